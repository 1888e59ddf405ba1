# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Open MPI's mpirun on the head. The shim maps its variables to torch's; MPI's own and Horovod's work beside them."""

from __future__ import annotations

from typing import Dict, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Job, LaunchPlan
from ansible_collections.torchfleet.cluster.plugins.module_utils._hostfile import render as hostfile
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    bare_rank_command,
    from_head,
    network_of,
    not_elastic,
    program,
    programs,
    read_options,
    strings,
)

OPTIONS = {"arguments": strings}


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """Slots may differ. The option `arguments` is a list of further arguments of mpirun."""
    options = read_options(job, OPTIONS)
    problems = not_elastic(job) + programs(cluster.nodes, "mpirun")
    if problems:
        raise ClusterError(problems)
    path = f"{job.run_dir}/hostfile"
    command = (
        program(cluster.head, "mpirun"),
        "-np",
        str(cluster.world_size),
        "--hostfile",
        path,
        *arguments(cluster, job),
        *options.get("arguments", ()),
    )
    return from_head(
        cluster,
        job,
        (*command, *bare_rank_command(cluster.head, job)),
        files={path: hostfile(cluster, "openmpi")},
        rank_env=master(cluster),
    )


def arguments(cluster: Cluster, job: Job) -> Tuple[str, ...]:
    """What leads mpirun over the training network, deals ranks node by node, and lets its daemons be found again."""
    mpirun = program(cluster.head, "mpirun")
    network = network_of(cluster)
    # A daemon that ssh starts has no PATH to count on.
    prefix = ("--prefix", mpirun.rpartition("/bin/")[0] or "/") if "/bin/" in mpirun else ()
    return (
        *prefix,
        "--allow-run-as-root",
        "--bind-to",
        "none",
        "--map-by",
        "slot",
        "--mca",
        "btl_tcp_if_include",
        network,
        "--mca",
        "oob_tcp_if_include",
        network,
        "--mca",
        "plm_rsh_args",
        "-oBatchMode=yes",
        # Its daemons get nothing by -x, and have to be found again, too.
        "--mca",
        "orte_launch_agent",
        f"/usr/bin/env TORCHFLEET_RUN_ID={job.run_id} orted",
        "-x",
        f"TORCHFLEET_RUN_ID={job.run_id}",
    )


def master(cluster: Cluster) -> Dict[str, str]:
    """MPI has no rendezvous of torch's: the ranks are told."""
    return {"MASTER_ADDR": cluster.master_address, "MASTER_PORT": str(cluster.master_port)}
