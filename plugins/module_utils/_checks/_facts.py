# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""From what the facts modules returned for each node to the facts that checks read."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import Cluster, get
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._rules_network import (
    matrix_of,
    training_pairs,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import NetworkError, choose_network

MODULES = ("gpu", "nccl", "runtime")


def assemble(
    members: Sequence[Mapping[str, Any]],
    results: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    network: Any = None,
    head: str = "",
) -> Cluster:
    """The cluster that is judged.

    `members` have `name`, `address`, `interface` and `by_hand` (the user set the address); the `head` is the first,
    unless it is another, which may be none of them. `results` are by name what the modules returned, under `system`,
    `gpu`, `nccl`, `runtime` and `probed`. `network` are the CIDRs that the training may use.
    """
    nodes: List[Dict[str, Any]] = []
    missing: Dict[str, str] = {}
    for member in members:
        name = str(member["name"])
        found = results.get(name) or {}
        system = found.get("system") or {}
        if not system.get("reached"):
            missing[name] = str(system.get("problem") or system.get("msg") or "no answer")
            continue
        nodes.append(_node(member, found))
    settings = dict(settings)
    if not all(member.get("by_hand") for member in members):
        problem = _choose(nodes, members, network)
        if problem:
            settings["network_problem"] = problem
    limits = _ssh_limits(nodes)
    for position, node in enumerate(nodes):
        node["head"] = node["name"] == (head or members[0]["name"])
        node["network"] = _network(node)
        node["rdma"] = _rdma(get(node, "nccl.rdma"))
        node["limits"] = limits.get(str(node["name"])) or _session_limits(get(node, "nccl.limits", {}))
        nodes[position] = {key: value for key, value in node.items() if value is not None}
    return Cluster(nodes=tuple(nodes), settings=settings, missing=missing)


def _node(member: Mapping[str, Any], found: Mapping[str, Any]) -> Dict[str, Any]:
    node: Dict[str, Any] = {"name": str(member["name"]), "address": member.get("address"), "failed": {}, "own": {}}
    node["system"] = found["system"]
    for key in MODULES:
        result = found.get(key) or {}
        if result.get("failed") or result.get("unreachable"):
            node["failed"][f"{key}_facts"] = result.get("msg") or "it failed"
        elif result and not result.get("skipped"):
            node[key] = result
    probed = found.get("probed") or {}
    if "links" in probed:
        node["links"] = probed["links"]
    elif probed and not probed.get("skipped"):
        node["failed"]["network_probe"] = probed.get("msg") or "it failed"
    for id, told in (found["system"].get("own") or {}).items():
        if "value" in told:
            node["own"][id] = told["value"]
        else:
            node["failed"][f"check {id}"] = told.get("problem") or "no answer"
    return node


def _choose(nodes: List[Dict[str, Any]], members: Sequence[Mapping[str, Any]], network: Any) -> str:
    """Give every node the address that a launch would choose; why there is none, where there is none."""
    by_name = {str(member["name"]): member for member in members}
    described = [
        {
            "name": node["name"],
            "interfaces": get(node, "nccl.interfaces", []),
            "interface": by_name[node["name"]].get("interface"),
            "address": by_name[node["name"]].get("address") if by_name[node["name"]].get("by_hand") else None,
        }
        for node in nodes
    ]
    links = [link for node in nodes for link in node.get("links") or ()]
    if not described or (not links and len(described) > 1):
        return ""
    try:
        choice = choose_network(described, links, network)
    except NetworkError as error:
        return str(error.problems[0])
    for node, picked in zip(nodes, choice.nodes):
        node["address"] = picked.address
    return ""


def _network(node: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The interface that carries the training address."""
    for interface in get(node, "nccl.interfaces", []):
        if any(address.get("address") == node.get("address") for address in interface.get("addresses") or ()):
            return {
                "interface": interface["name"],
                "mtu": interface.get("mtu"),
                "speed_mbps": interface.get("speed_mbps"),
                "kind": interface.get("kind"),
            }
    return None


def _rdma(devices: Any) -> Optional[Dict[str, Any]]:
    if devices is None:
        return None
    ports = [
        port
        for device in devices
        if not device.get("is_soft")
        for port in device.get("ports") or ()
        if port.get("state") == "ACTIVE"
    ]
    rates = sorted({f"{port['rate_gbps']:g}" for port in ports if port.get("rate_gbps")})
    types = sorted({str(gid.get("type")) for port in ports for gid in port.get("gids") or () if gid.get("type")})
    indexes = sorted({str(port["roce_v2_gid_index"]) for port in ports if port.get("roce_v2_gid_index") is not None})
    return {
        "active": len(ports),
        "rates": ", ".join(rates) or None,
        "gid_types": ", ".join(types) or None,
        "gid_index": ", ".join(indexes) or None,
    }


_LIMITS = ("memlock_soft", "memlock_hard", "nofile_soft", "nofile_hard")


def _ssh_limits(nodes: Sequence[Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Limits of an ssh session on each node, whoever could log in there."""
    found: Dict[str, Dict[str, Any]] = {}
    for node in nodes:
        for peer, answer in get(node, "system.ssh", {}).items():
            if answer.get("nofile_hard") is not None:
                found.setdefault(str(peer), {key: answer.get(key) for key in _LIMITS})
    for limits in found.values():
        # No limit is the most that the kernel's own fs.nr_open can be.
        limits.update({key: 1 << 31 for key in ("nofile_soft", "nofile_hard") if limits[key] == -1})
    return found


def _session_limits(limits: Mapping[str, Any]) -> Dict[str, Any]:
    """The limits of Ansible's own session, for want of better."""
    return {
        f"{name}_{side}": (limits.get(name) or {}).get(side)
        for name in ("memlock", "nofile")
        for side in ("soft", "hard")
    }


# ---- what the report shows


def matrix(cluster: Cluster) -> Dict[str, Any]:
    """Who reaches whom at the training addresses: rows send, columns receive."""
    measured = matrix_of(cluster)
    names = [str(node["name"]) for node in cluster.nodes]
    cells: List[List[Optional[Dict[str, Any]]]] = [[None] * len(names) for _name in names]
    for i, j in training_pairs(cluster, measured):
        cells[measured.owner[i]][measured.owner[j]] = {
            "ok": measured.ok(i, j),
            "why": measured.why(i, j),
            "path_mtu": measured.path_mtu(i, j),
            "bandwidth_mbps": measured.measured.get((i, j)),
        }
    return {"nodes": names, "cells": cells}


def card(node: Mapping[str, Any]) -> Dict[str, Any]:
    """A node in short."""
    gpus = get(node, "gpu.gpus", [])
    models: Dict[str, int] = {}
    for gpu in gpus:
        models[str(gpu.get("model") or "GPU")] = models.get(str(gpu.get("model") or "GPU"), 0) + 1
    return {
        "name": node["name"],
        "reached": True,
        "problem": "",
        "head": bool(node.get("head")),
        "address": node.get("address") or "",
        "interface": get(node, "network.interface", ""),
        "gpus": [f"{count} x {model}" for model, count in models.items()],
        "driver": get(node, "gpu.driver_version", ""),
        "torch": get(node, "runtime.torch.version", "") or get(node, "runtime.packages.torch.version", ""),
        "nccl": get(node, "runtime.libraries.nccl.version", ""),
        "python": get(node, "runtime.python.version", ""),
        "kernel": get(node, "system.kernel", ""),
        "os": get(node, "system.os", ""),
        "uptime_seconds": get(node, "system.uptime"),
        "clock_offset_seconds": get(node, "system.clock.offset"),
        "shm_bytes": get(node, "nccl.shm.size_bytes"),
        "disks": [
            {key: disk.get(key) for key in ("mount", "size_bytes", "free_bytes")}
            for disk in get(node, "system.disks", [])
        ],
        "memory_used": [
            {"index": gpu.get("index"), "used_bytes": gpu.get("memory_used_bytes"), "bytes": gpu.get("memory_bytes")}
            for gpu in gpus
        ],
    }
