# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""torchrun with static rendezvous: one agent a node, the head's address is the endpoint."""

from __future__ import annotations

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    Job,
    LaunchPlan,
    NodePlan,
    planned_ranks,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import base_env, rank_command


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """One `torch.distributed.run` agent per node. Slots may differ from node to node."""
    nodes = []
    for node in cluster.nodes:
        argv = (
            node.python,
            "-m",
            "torch.distributed.run",
            f"--nnodes={len(cluster.nodes)}",
            f"--nproc-per-node={node.slots}",
            f"--node-rank={node.node_rank}",
            f"--master-addr={cluster.master_address}",
            f"--master-port={cluster.master_port}",
            "--max-restarts=0",
            "--no-python",
            *rank_command(node, job),
        )
        nodes.append(
            NodePlan(
                node=node.name, node_rank=node.node_rank, argv=argv, env=base_env(cluster, node, job), cwd=job.workdir
            )
        )
    return LaunchPlan(
        run_id=job.run_id,
        launcher=job.launcher,
        world_size=cluster.world_size,
        master_address=cluster.master_address,
        master_port=cluster.master_port,
        transport=cluster.transport,
        nodes=tuple(nodes),
        ranks=planned_ranks(cluster),
        reasons=cluster.reasons,
    )
