# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What all launchers share: the environment of a node's launcher and the command of one rank."""

from __future__ import annotations

from typing import Dict, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, Job, Node
from ansible_collections.torchfleet.cluster.plugins.module_utils._nccl_env import node_settings, values

RANK_SHIM = "rank.py"  # plugins/plugin_utils/node/rank.py
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def rank_command(node: Node, job: Job) -> Tuple[str, ...]:
    """What the launcher starts for each rank: the shim that keeps the rank's log and exit status, then the script."""
    return (node.python, "-u", f"{job.lib}/{RANK_SHIM}", job.run_dir, node.python, "-u", *job.payload)


def base_env(cluster: Cluster, node: Node, job: Job) -> Dict[str, str]:
    """The environment that a node's launcher needs on top of a bare one.

    The job's own variables win over ours. Interface names are the node's own and never travel to another.
    """
    env = {
        "TORCHFLEET_RUN_ID": job.run_id,
        "TORCHFLEET_NODE": node.name,
        "TORCHFLEET_RUN_DIR": job.run_dir,
        "TORCHFLEET_OUTPUT_DIR": job.output_dir or f"{job.run_dir}/output",
        "TORCHFLEET_ATTEMPT": str(job.attempt),
        "PATH": f"{node.python.rpartition('/')[0]}:{SYSTEM_PATH}",
        "PYTHONUNBUFFERED": "1",
        # A rank that crashes, or that hangs and is aborted, then says where it was.
        "PYTHONFAULTHANDLER": "1",
    }
    env.update(values(node_settings(cluster, node)))
    # torchrun sets it to 1 with a warning where it is absent; said once here, it is part of the plan.
    env["OMP_NUM_THREADS"] = "1"
    env.update(job.env)
    return env
