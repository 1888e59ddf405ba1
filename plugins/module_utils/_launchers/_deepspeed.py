# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""DeepSpeed's launcher: `no_ssh` on every node, or `pdsh` or `openmpi` from the head."""

from __future__ import annotations

import shlex
from typing import Dict, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
    Node,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._hostfile import render as hostfile
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import _mpirun
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    bare_rank_command,
    choose_via,
    flag,
    from_head,
    missing_packages,
    not_elastic,
    on_each_node,
    programs,
    rank_command,
    read_options,
)

WAYS = ("no_ssh", "pdsh", "openmpi")
# Its check of ssh runs a bare `hostname` on the first node, and fails where a shell there has no PATH.
NO_CHECK = ("--no_ssh_check",)
OPTIONS = {"local_rank_argument": flag}


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """Slots may differ. With `local_rank_argument` the script gets `--local_rank=N`, as by DeepSpeed itself."""
    via = choose_via(job, WAYS, "no_ssh")
    options = read_options(job, OPTIONS)
    problems = not_elastic(job) + missing_packages(cluster, "deepspeed")
    if via == "openmpi" and options.get("local_rank_argument"):
        problems.append("local_rank_argument: by openmpi there is none: set launch_deepspeed_via to no_ssh")
    turned = [node.name for node in cluster.nodes if cluster.first_rank(node) % node.slots]
    if options.get("local_rank_argument") and turned:
        problems.append(
            f"local_rank_argument: DeepSpeed counts local ranks from the wrong one on {', '.join(turned)}, as slots "
            "differ: read LOCAL_RANK in its place, or order the nodes by falling torchfleet_slots"
        )
    if via == "pdsh":
        problems += programs([cluster.head], "pdsh")
    if problems:
        raise ClusterError(problems)
    path = f"{job.run_dir}/hostfile"
    # Without the file DeepSpeed warns and trains on one node alone.
    files = {path: hostfile(cluster)}
    env = {} if any(node.gpus for node in cluster.nodes) else {"DS_ACCELERATOR": "cpu"}
    meeting = ("--master_addr", cluster.master_address, "--master_port", str(cluster.master_port))
    flags = () if options.get("local_rank_argument") else ("--no_local_rank",)

    def runner(node: Node) -> Tuple[str, ...]:
        return (node.python, "-m", "deepspeed.launcher.runner", "--hostfile", path)

    def first_rank(node: Node) -> Dict[str, str]:
        """DeepSpeed takes the rank modulo the slots for the local one: the shim counts again."""
        return {} if options.get("local_rank_argument") else {"TORCHFLEET_FIRST_RANK": str(cluster.first_rank(node))}

    if via == "no_ssh":

        def argv(node: Node) -> Tuple[str, ...]:
            place = ("--no_ssh", "--node_rank", str(node.node_rank), *meeting, *flags, "--no_python")
            return (*runner(node), *place, *rank_command(node, job))

        return on_each_node(cluster, job, argv, env, lambda _node: files, first_rank)

    head = cluster.head
    bare = bare_rank_command(head, job)[2:]
    if via == "pdsh":
        command = (*runner(head), *NO_CHECK, "--launcher", "pdsh", *meeting, *flags, *bare)
        rank_env = {**env, "PYTHONPATH": job.workdir}
        files.update(pdsh_files(job))
        return from_head(cluster, job, command, {**env, **pdsh_env(job)}, files, rank_env, first_rank)
    # In one word: the value begins with a dash.
    arguments = f"--launcher_args={shlex.join(_mpirun.arguments(cluster, job))}"
    command = (*runner(head), *NO_CHECK, "--launcher", "openmpi", arguments, *meeting, *bare)
    return from_head(
        cluster,
        job,
        command,
        {**env, "DS_ENV_FILE": "/dev/null"},
        files,
        {**env, "PYTHONPATH": job.workdir, **_mpirun.master(cluster)},
    )


def deepspeed_wrapper(node: Node, *options: str) -> str:
    """accelerate runs whatever `deepspeed` comes first in PATH, and gives it no option of ours."""
    return f'#!/bin/sh\nexec {shlex.quote(node.python)} -m deepspeed.launcher.runner {" ".join(options)} "$@"\n'


def pdsh_env(job: Job) -> Dict[str, str]:
    """A file of the run in place of those in ~ and the working directory: they grow, and hold who knows what."""
    return {"DS_ENV_FILE": _env_file(job), "PDSH_SSH_ARGS_APPEND": "-oBatchMode=yes"}


def pdsh_files(job: Job) -> Dict[str, str]:
    """By its run id a process on another node is found; all else the ranks read there."""
    return {_env_file(job): f"TORCHFLEET_RUN_ID={job.run_id}\n"}


def _env_file(job: Job) -> str:
    return f"{job.run_dir}/deepspeed_env"
