# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""torchrun: one agent a node, which meet at the head's address. `static` gives each its rank, `c10d` deals them out."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
    Node,
    Reason,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    choose_via,
    on_each_node,
    rank_command,
    read_options,
    seconds,
)

WAYS = ("static", "c10d")
OPTIONS = {"join_timeout": seconds, "last_call_timeout": seconds}


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """One `torch.distributed.run` agent per node. Slots may differ from node to node."""
    wanted = "launch_max_restarts" if job.max_restarts else "launch_min_nodes" if job.min_nodes else ""
    via = choose_via(job, WAYS, "c10d" if wanted else "static")
    options = read_options(job, OPTIONS)
    problems = []
    if wanted and via == "static":
        problems.append(
            f"{wanted} has no effect with torchrun's static rendezvous, which never recovers: "
            "unset launch_torchrun_via, or set it to c10d"
        )
    if via == "static" and "last_call_timeout" in options:
        problems.append("launch_launcher_options: last_call_timeout is c10d's: remove it, or set launch_torchrun_via")
    if job.min_nodes and job.min_nodes > len(cluster.nodes):
        problems.append(f"launch_min_nodes is {job.min_nodes}, and there are {len(cluster.nodes)} nodes: set it lower")
    if problems:
        raise ClusterError(problems)
    if via == "static":
        return static(cluster, job, options.get("join_timeout"))
    return _elastic(cluster, job, options, Reason("rendezvous", "c10d", wanted or "launch_torchrun_via"))


def static(cluster: Cluster, job: Job, timeout: Optional[int] = None) -> LaunchPlan:
    """Ranks are dealt node by node, in launch order."""
    limit = (f"--rdzv-conf=timeout={timeout}",) if timeout else ()

    def argv(node: Node) -> Tuple[str, ...]:
        return (
            node.python,
            "-m",
            "torch.distributed.run",
            f"--nnodes={len(cluster.nodes)}",
            f"--nproc-per-node={node.slots}",
            f"--node-rank={node.node_rank}",
            f"--master-addr={cluster.master_address}",
            f"--master-port={cluster.master_port}",
            *limit,
            "--max-restarts=0",
            "--no-python",
            *rank_command(node, job),
        )

    return on_each_node(cluster, job, argv)


def _elastic(cluster: Cluster, job: Job, options: Mapping[str, Any], reason: Reason) -> LaunchPlan:
    least = job.min_nodes or len(cluster.nodes)
    host = f"[{cluster.master_address}]" if ":" in cluster.master_address else cluster.master_address

    def argv(node: Node) -> Tuple[str, ...]:
        # Said, not guessed: torch compares the endpoint with what the node's own name resolves to.
        conf: Dict[str, Any] = {"is_host": str(node is cluster.head).lower(), **options}
        return (
            node.python,
            "-m",
            "torch.distributed.run",
            f"--nnodes={least}:{len(cluster.nodes)}",
            f"--nproc-per-node={node.slots}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{cluster.master_port}",
            f"--rdzv-id={job.run_id}",
            f"--rdzv-conf={','.join(f'{name}={value}' for name, value in conf.items())}",
            # Else the node that becomes rank 0 is advertised by a name, which others may not resolve.
            f"--local-addr={node.address}",
            f"--max-restarts={job.max_restarts}",
            "--no-python",
            *rank_command(node, job),
        )

    # With a shared store the workers of a second round read the addresses of the first, dead one (torch 2.4 and later).
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return on_each_node(cluster, job, argv, env, reasons=(reason,), elastic=True, min_nodes=least)
