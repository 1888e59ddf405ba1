# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""`accelerate launch` with DeepSpeed's pdsh launcher: started on the head, which reaches the other nodes over ssh."""

from __future__ import annotations

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Job, LaunchPlan
from ansible_collections.torchfleet.cluster.plugins.module_utils._hostfile import render as hostfile
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    bare_rank_command,
    from_head,
    head_env,
    missing_packages,
    not_elastic,
    programs,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._deepspeed import (
    NO_CHECK,
    deepspeed_wrapper,
    pdsh_env,
)

OURS = ("deepspeed_launcher", "deepspeed_hostfile")


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """The options are those of `AccelerateOptions` for DEEPSPEED. Slots must be the same on all nodes."""
    problems = not_elastic(job)
    problems += [
        f"launch_launcher_options: {name} is accelerate_pdsh's own: remove it" for name in OURS if name in job.options
    ]
    kind = job.options.get("distributed_type")
    if kind not in (None, "DEEPSPEED"):
        problems.append(f"distributed_type is {kind}, which pdsh cannot start: set launch_launcher to accelerate")
    if problems:
        raise ClusterError(problems)
    paths = {name: f"{job.run_dir}/{name}" for name in ("accelerate.yaml", "hostfile")}
    chosen = _accelerate.options(
        {
            **job.options,
            "distributed_type": "DEEPSPEED",
            "deepspeed_launcher": "pdsh",
            "deepspeed_hostfile": paths["hostfile"],
        }
    )
    problems += _accelerate.refusals(cluster, chosen)
    problems += missing_packages(cluster, "accelerate", "deepspeed")
    problems += programs([cluster.head], "pdsh")
    if problems:
        raise ClusterError(problems)
    extra, env = _accelerate.launch_needs(cluster, chosen)
    head = cluster.head
    command = (head.python, "-m", "accelerate.commands.launch", "--config_file", paths["accelerate.yaml"], *extra)
    folder = f"{job.run_dir}/bin"
    return from_head(
        cluster,
        job,
        argv=(*command, *bare_rank_command(head, job)[2:]),
        env={**env, **pdsh_env(job), "PATH": f"{folder}:{head_env(head, job)['PATH']}"},
        files={
            paths["accelerate.yaml"]: _accelerate.render(cluster, head, chosen),
            paths["hostfile"]: hostfile(cluster),
            f"{folder}/deepspeed": deepspeed_wrapper(head, *NO_CHECK),
        },
        rank_env={**env, "PYTHONPATH": job.workdir},
    )
