# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Hostfiles: the nodes in launch order, in the form that each launcher reads."""

from __future__ import annotations

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Node

FORMATS = ("deepspeed", "openmpi", "plain")
BY = ("name", "address")
_PROGRAM = {"deepspeed": "DeepSpeed", "openmpi": "Open MPI"}


def render(cluster: Cluster, fmt: str = "deepspeed", by: str = "name") -> str:
    """The hostfile's text, one line a node and nothing else.

    `deepspeed` and `openmpi` give `host slots=N`, `plain` the bare host (Colossal-AI takes no more than that). No
    format gets a comment: older DeepSpeed and Colossal-AI read one as a host. Raises ClusterError.
    """
    problems = []
    if fmt not in FORMATS:
        problems.append(f"format is {fmt!r}, wanted one of {', '.join(FORMATS)}")
    if by not in BY:
        problems.append(f"by is {by!r}, wanted one of {', '.join(BY)}")
    if not problems and fmt != "plain":
        # DeepSpeed takes a ':' in a host for the start of a list of slots; Open MPI 4.1 allows letters, digits, . and -
        problems = [
            f"{node.name}: {_PROGRAM[fmt]} cannot use the IPv6 address {node.address} in a hostfile: set by to name"
            for node in cluster.nodes
            if ":" in _host(node, by)
        ]
    if problems:
        raise ClusterError(problems)
    suffix = "" if fmt == "plain" else " slots={}"
    return "".join(f"{_host(node, by)}{suffix.format(node.slots)}\n" for node in cluster.nodes)


def _host(node: Node, by: str) -> str:
    return node.address if by == "address" else node.name
