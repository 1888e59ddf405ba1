# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Slurm: the same world as a batch job on the same nodes, submitted from the head, followed and ended through Slurm."""

from __future__ import annotations

import shlex
from typing import Any, Callable, Dict

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Job, LaunchPlan
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import _mpirun
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    bare_rank_command,
    flag,
    from_head,
    not_elastic,
    program,
    programs,
    read_options,
    strings,
    word,
)

PASSED_ON = ("partition", "account", "qos", "reservation", "gres", "time")
OPTIONS: Dict[str, Callable[[Any], Any]] = {**dict.fromkeys(PASSED_ON, word), "exclusive": flag, "arguments": strings}
TOOLS = ("sbatch", "squeue", "scontrol", "scancel")


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """Slots may differ. Options are sbatch's of the same names; `arguments` is a list of further ones."""
    options = read_options(job, OPTIONS)
    problems = not_elastic(job) + programs([cluster.head], *TOOLS) + programs(cluster.nodes, "srun")
    if problems:
        raise ClusterError(problems)
    head = cluster.head
    script, hosts = f"{job.run_dir}/slurm.sh", f"{job.run_dir}/slurm.hosts"
    wants: Dict[str, str] = {
        "job-name": f"torchfleet-{job.run_id}",
        "nodes": str(len(cluster.nodes)),
        "nodelist": ",".join(node.name for node in cluster.nodes),
        "ntasks": str(cluster.world_size),
        "output": f"{job.run_dir}/logs/slurm.log",
        "chdir": job.run_dir,
        **{name: options[name] for name in PASSED_ON if name in options},
    }
    lines = [f"#SBATCH --{name}={value}" for name, value in wants.items()]
    # Whole nodes, unless told otherwise: a share of one need not hold as many ranks as are planned there.
    lines += [] if options.get("exclusive") is False else ["#SBATCH --exclusive"]
    lines += [f"#SBATCH {shlex.quote(argument)}" for argument in options.get("arguments", ())]
    # Slurm sorts its nodes by its own order; this file alone says which rank is where.
    step = (
        "srun",
        "--distribution=arbitrary",
        f"--ntasks={cluster.world_size}",
        "--kill-on-bad-exit=1",
        "--unbuffered",
    )
    command = shlex.join((*step, *bare_rank_command(head, job)))
    text = "\n".join(
        ["#!/bin/sh", *lines, "#SBATCH --no-requeue", f"export SLURM_HOSTFILE={hosts}", f"exec {command}", ""]
    )
    return from_head(
        cluster,
        job,
        (head.python, "-u", f"{job.lib}/slurm.py", script, *(program(head, tool) for tool in TOOLS)),
        files={script: text, hosts: "".join(f"{node.name}\n" * node.slots for node in cluster.nodes)},
        rank_env=_mpirun.master(cluster),
        queued=True,
    )
