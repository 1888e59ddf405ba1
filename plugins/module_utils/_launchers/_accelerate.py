# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""`accelerate launch` on every node, each with a configuration file of its own. A default one is not read."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
    Node,
    Reason,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._hostfile import render as hostfile
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    bare_rank_command,
    head_env,
    missing_packages,
    not_elastic,
    on_each_node,
    rank_command,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._deepspeed import deepspeed_wrapper


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """The options are those of `AccelerateOptions`. Slots must be the same on all nodes."""
    given: Dict[str, Any] = dict(job.options)
    gpus = any(node.gpus for node in cluster.nodes)
    kind = "MULTI_GPU" if gpus else "MULTI_CPU"
    reason = Reason("distributed_type", str(given.get("distributed_type", kind)), "launch_launcher_options")
    if given.get("distributed_type") is None:
        given["distributed_type"] = kind
        reason = Reason("distributed_type", kind, "GPUs are known" if gpus else "no GPU is known (torchfleet_gpus)")
    if given.get("deepspeed_launcher") == "nossh":
        given["deepspeed_hostfile"] = f"{job.run_dir}/hostfile"
    problems = not_elastic(job)
    if given.get("deepspeed_launcher") == "pdsh":
        problems.append("deepspeed_launcher pdsh starts from the head: set launch_launcher to accelerate_pdsh")
    if problems:
        raise ClusterError(problems)
    chosen = _accelerate.options(given)
    problems += _accelerate.refusals(cluster, chosen)
    if cluster.world_size < 2:
        problems.append("accelerate starts 2 processes or more, and the world is 1: set launch_launcher to torchrun")
    wanted = ("accelerate", "deepspeed") if chosen.distributed_type == "DEEPSPEED" else ("accelerate",)
    problems += missing_packages(cluster, *wanted)
    if problems:
        raise ClusterError(problems)
    extra, env = _accelerate.launch_needs(cluster, chosen)
    config = f"{job.run_dir}/accelerate.yaml"
    no_ssh, folder = chosen.deepspeed_launcher == "nossh", f"{job.run_dir}/bin"

    def argv(node: Node) -> Tuple[str, ...]:
        command = (node.python, "-m", "accelerate.commands.launch", "--config_file", config, *extra)
        if no_ssh:
            return (*command, *bare_rank_command(node, job)[2:])
        return (*command, "--no_python", *rank_command(node, job))

    def files(node: Node) -> Dict[str, str]:
        texts = {config: _accelerate.render(cluster, node, chosen)}
        if chosen.deepspeed_hostfile:
            texts[chosen.deepspeed_hostfile] = hostfile(cluster)
        if no_ssh:
            texts[f"{folder}/deepspeed"] = deepspeed_wrapper(node, "--no_local_rank")
        return texts

    # accelerate appends its whole environment to ./.deepspeed_env, which later runs would read.
    def own_env(node: Node) -> Dict[str, str]:
        return {"PATH": f"{folder}:{head_env(node, job)['PATH']}"} if no_ssh else {}

    return on_each_node(cluster, job, argv, env, files, own_env, sealed=no_ssh, reasons=(reason,))
