# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Colossal-AI: its scripts under torchrun on every node, as its own launcher starts them, or that launcher (`cli`)."""

from __future__ import annotations

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Job, LaunchPlan
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import _torchrun
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    bare_rank_command,
    choose_via,
    from_head,
    missing_packages,
    not_elastic,
    read_options,
    unequal_slots,
)

WAYS = ("torchrun", "cli")


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """With `cli` slots and ssh ports must be the same on all nodes."""
    via = choose_via(job, WAYS, "torchrun")
    read_options(job, {})
    problems = not_elastic(job)
    if via == "cli":
        problems += unequal_slots(cluster, "colossalai run has one number of processes for all nodes")
        ports = {node.ssh_port for node in cluster.nodes}
        if len(ports) > 1:
            problems.append(
                f"colossalai run has one ssh port for all nodes, and theirs are {', '.join(map(str, sorted(ports)))}: "
                "set launch_colossalai_via to torchrun"
            )
        problems += missing_packages(cluster, "colossalai")
    if problems:
        raise ClusterError(problems)
    if via == "torchrun":
        return _torchrun.static(cluster, job)
    head = cluster.head
    command = (
        f"{head.python.rpartition('/')[0]}/colossalai",
        "run",
        "--nproc_per_node",
        str(head.slots),
        "--host",
        ",".join(node.name for node in cluster.nodes),
        "--master_addr",
        cluster.master_address,
        "--master_port",
        str(cluster.master_port),
        "--ssh-port",
        str(head.ssh_port),
    )
    argv = (*command, *bare_rank_command(head, job)[2:])
    return from_head(cluster, job, argv, rank_env={"PYTHONPATH": job.workdir})
