# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Plain DDP: one process per slot with torch's variables, and INIT_METHOD as an address or a file on a shared mount."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
    Node,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import (
    absolute_path,
    choose_via,
    not_elastic,
    on_each_node,
    rank_command,
    read_options,
)

WAYS = ("tcp", "file")
OPTIONS = {"shared_folder": absolute_path}


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """Slots may differ. `file` needs the option `shared_folder`, a folder that all nodes mount."""
    via = choose_via(job, WAYS, "tcp")
    options = read_options(job, OPTIONS)
    problems = not_elastic(job)
    folder = options.get("shared_folder")
    if via == "file" and folder is None:
        problems.append(
            "launch_python_via file needs launch_launcher_options: {shared_folder: /path}, which all nodes mount; "
            "without one set launch_python_via to tcp"
        )
    if via == "tcp" and folder is not None:
        problems.append("shared_folder is read with launch_python_via file only: set it, or remove shared_folder")
    if problems:
        raise ClusterError(problems)
    host = f"[{cluster.master_address}]" if ":" in cluster.master_address else cluster.master_address
    # A name of the run's own: what a crashed run left would make the next one fail, or hang.
    method = f"file://{folder}/torchfleet-{job.run_id}" if via == "file" else f"tcp://{host}:{cluster.master_port}"
    env = {
        "INIT_METHOD": method,
        "MASTER_ADDR": cluster.master_address,
        "MASTER_PORT": str(cluster.master_port),
    }

    def argv(node: Node) -> Tuple[str, ...]:
        numbers = (cluster.first_rank(node), node.slots, cluster.world_size)
        return (node.python, "-u", f"{job.lib}/spawn.py", *map(str, numbers), *rank_command(node, job))

    return on_each_node(cluster, job, argv, env)
