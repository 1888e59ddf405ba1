# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Which RDMA ports every node can use towards every other, and the GID index that RoCE needs.

Devices are plain mappings: `name` and `ports`, each with `port` (number), `state`, `phys_state`, `link_layer`, `rate`
(`400 Gb/sec (4X NDR)`) or `rate_gbps`, `netdev`, and `gids` (mappings with `index`, `gid`, `type`, `netdev`).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Reason
from ansible_collections.torchfleet.cluster.plugins.module_utils._reachability import Reachability, members

# Since NCCL 2.21 the GID is chosen per connection and NCCL_IB_GID_INDEX should stay unset (NCCL user guide, RoCE).
NCCL_CHOOSES_GID = (2, 21)


@dataclass(frozen=True)
class Port:
    """One active RDMA port. `name` is as NCCL has it (`mlx5_0:1`); `rate` is Gb/s, 0 where unknown.

    `gids` has the indexes of the RoCE v2 entries and the IP addresses they stand for, link-local ones left out.
    """

    name: str
    layer: str
    rate: float
    netdev: str
    gids: Tuple[Tuple[int, str], ...]


@dataclass(frozen=True)
class Rdma:
    """What RDMA gives: the transport, and per node (by position) the ports and the GID index to set."""

    transport: str
    hcas: Tuple[Tuple[str, ...], ...]
    gid_index: Tuple[Optional[int], ...]
    reasons: Tuple[Reason, ...]


def nccl_release(version: Any) -> Optional[Tuple[int, int]]:
    """(major, minor) of `2.21.5`, `2.21.5+cuda12.4`, `(2, 21, 5)` or NCCL's own number 22105 (2708 for 2.7.8)."""
    if isinstance(version, (list, tuple)):
        version = ".".join(str(part) for part in version)
    text = str(version or "").strip().lstrip("v")
    if text.isdigit():
        number = int(text)
        return (number // 10000, number % 10000 // 100) if number >= 10000 else (number // 1000, number % 1000 // 100)
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def _rate(port: Mapping[str, Any]) -> float:
    for key, unit in (("rate_gbps", 1.0), ("rate_mbps", 0.001), ("rate", 1.0)):
        match = re.match(r"\s*([\d.]+)", str(port.get(key) or ""))
        if match:
            return float(match.group(1)) * unit
    return 0.0


def _active(port: Mapping[str, Any]) -> bool:
    """The port's own state, whatever its IP interface's is. `4: ACTIVE`, `Active`, `PORT_ACTIVE (4)`."""
    state = str(port.get("state") or "").upper()
    physical = str(port.get("phys_state") or port.get("physical_state") or "LINKUP").upper().replace("_", "")
    return "ACTIVE" in state and "DEFER" not in state and "LINKUP" in physical


def _gid_address(gid: Any) -> Optional[str]:
    """The IP address that a GID stands for; None for link-local and empty ones."""
    try:
        address = ipaddress.IPv6Address(str(gid))
    except ValueError:
        return None
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return None if address.is_link_local or address.is_unspecified or not int(address) >> 64 else str(address)


def _is_v2(kind: Any) -> bool:
    return re.sub(r"[^a-z0-9]", "", str(kind or "").lower()) in ("rocev2", "v2", "ibrocev2")


def active_ports(devices: Sequence[Mapping[str, Any]]) -> List[Port]:
    """The ports in ACTIVE state, InfiniBand and Ethernet ones."""
    found = []
    for device in devices:
        # Software RoCE is slower than plain TCP, and NCCL's verbs transport speaks no iWARP, EFA or usNIC.
        if device.get("is_soft") or device.get("transport") in ("iwarp", "other"):
            continue
        listed = device.get("ports") or ()
        entries = listed.values() if isinstance(listed, Mapping) else listed
        for number, port in enumerate(entries, start=1):
            if not _active(port):
                continue
            gids = []
            for entry in port.get("gids") or ():
                address = _gid_address(entry.get("gid"))
                if address and _is_v2(entry.get("type")):
                    gids.append((int(entry["index"]), address))
            found.append(
                Port(
                    name=f"{device['name']}:{port.get('port') or number}",
                    layer=str(port.get("link_layer") or "").strip().lower(),
                    rate=_rate(port),
                    netdev=str(port.get("netdev") or ""),
                    gids=tuple(gids),
                )
            )
    return found


def _fast(ports: Sequence[Port]) -> List[Port]:
    """Without those below half the fastest: a storage or management port would hold the collective back."""
    best = max(port.rate for port in ports)
    return [port for port in ports if port.rate * 2 >= best]


def _ib(names: Sequence[str], ports: Sequence[Sequence[Port]]) -> Rdma:
    reasons = [Reason("transport", "ib", "every node has an active InfiniBand port")]
    hcas = []
    for name, own in zip(names, ports):
        active = [port for port in own if port.layer == "infiniband"]
        kept = _fast(active)
        slow = [port.name for port in active if port not in kept]
        because = "active InfiniBand ports" + (f", without the slower {', '.join(slow)}" if slow else "")
        hcas.append(tuple(port.name for port in kept))
        reasons.append(Reason(f"{name} HCAs", ",".join(hcas[-1]), because))
    return Rdma("ib", tuple(hcas), (None,) * len(names), tuple(reasons))


def _usable_gids(port: Port, node: int, matrix: Reachability, chosen: int) -> Dict[int, int]:
    """GID index -> candidate whose address it stands for; only the chosen interface's where the port carries that."""
    own = {matrix.candidates[i].address: i for i in members(matrix.mine[node])}
    found = {index: own[address] for index, address in port.gids if address in own}
    preferred = {index: i for index, i in found.items() if i == chosen}
    return preferred or found


def _reaching(usable: List[Dict[Port, FrozenSet[int]]], matrix: Reachability) -> List[Dict[Port, FrozenSet[int]]]:
    """Keep the ports from which each other node has a kept port that connects, both ways."""
    while True:
        masks = [sum(1 << i for i in set().union(*own.values())) for own in usable]
        kept: List[Dict[Port, FrozenSet[int]]] = []
        for node, own in enumerate(usable):
            others = [mask for other, mask in enumerate(masks) if other != node]
            alive = {i for i in members(masks[node]) if all(matrix.both[i] & mask for mask in others)}
            kept.append({port: places & alive for port, places in own.items() if places & alive})
        if kept == usable:
            return kept
        usable = kept


def _roce(
    names: Sequence[str],
    ports: Sequence[Sequence[Port]],
    matrix: Reachability,
    chosen: Sequence[int],
    releases: Sequence[Optional[Tuple[int, int]]],
) -> Tuple[Optional[Rdma], str]:
    """RoCE over the ports whose own addresses connect, or None and why not."""
    gids: List[Dict[str, Dict[int, int]]] = []
    usable: List[Dict[Port, FrozenSet[int]]] = []
    for node, own in enumerate(ports):
        table = {port.name: _usable_gids(port, node, matrix, chosen[node]) for port in own if port.layer == "ethernet"}
        gids.append(table)
        usable.append({port: frozenset(table[port.name].values()) for port in own if table.get(port.name)})
    without = [name for name, own in zip(names, usable) if not own]
    if without:
        return None, f"no active RoCE port of {', '.join(without)} has a RoCE v2 GID for an address that was probed"
    usable = _reaching(usable, matrix)
    if not all(usable):
        return None, "the addresses of the RoCE ports do not connect every pair of nodes"

    indexes: List[Optional[int]] = []
    because_gid: List[str] = []
    for node, reaching in enumerate(usable):
        kept = {port: reaching[port] for port in _fast(list(reaching))}
        usable[node] = kept
        release = releases[node]
        if release and release >= NCCL_CHOOSES_GID:
            indexes.append(None)
            because_gid.append(f"NCCL {release[0]}.{release[1]} chooses the GID itself")
            continue
        serves = {
            at: [port for port in kept if gids[node][port.name].get(at) in kept[port]]
            for at in sorted({at for port in kept for at in gids[node][port.name]})
        }
        best = max(serves, key=lambda at: (len(serves[at]), -at))
        indexes.append(best)
        because_gid.append("the RoCE v2 entry with the port's address, one index for all ports of a node")
        usable[node] = {port: frozenset([gids[node][port.name][best]]) for port in serves[best]}
    usable = _reaching(usable, matrix)
    if not all(usable):
        return None, "no single GID index of each node gives RoCE ports that connect every pair of nodes"

    reasons = [
        Reason("transport", "roce", "every node has active RoCE ports whose addresses connect every pair of nodes")
    ]
    hcas = []
    for node, name in enumerate(names):
        hcas.append(tuple(port.name for port in usable[node]))
        left = [port.name for port in ports[node] if port.name not in hcas[-1]]
        because = "active RoCE ports that reach every other node" + (f", without {', '.join(left)}" if left else "")
        reasons.append(Reason(f"{name} HCAs", ",".join(hcas[-1]), because))
        index = indexes[node]
        reasons.append(Reason(f"{name} GID index", "not set" if index is None else str(index), because_gid[node]))
    return Rdma("roce", tuple(hcas), tuple(indexes), tuple(reasons)), ""


def choose_rdma(
    names: Sequence[str],
    devices: Sequence[Sequence[Mapping[str, Any]]],
    matrix: Reachability,
    chosen: Sequence[int],
    nccl_versions: Sequence[Any],
    wanted: Optional[str] = None,
) -> Tuple[Rdma, Optional[str]]:
    """The transport and its ports, given the candidate chosen for each node.

    `wanted` is the user's transport. The second value says why it cannot be had; None where it can.
    """
    none: Tuple[Tuple[str, ...], ...] = ((),) * len(names)
    ports = [active_ports(own) for own in devices]

    def tcp(because: str) -> Rdma:
        return Rdma("tcp", none, (None,) * len(names), (Reason("transport", "tcp", because),))

    if wanted == "tcp":
        return tcp("set by torchfleet_transport"), None
    lacking = [name for name, own in zip(names, ports) if not any(port.layer == "infiniband" for port in own)]
    if wanted != "roce" and not lacking:
        return _marked(_ib(names, ports), wanted), None
    if not any(ports):
        because = "no node has an active RDMA port"
    elif wanted == "ib" or len(lacking) < len(names):
        because = f"no active InfiniBand port on {', '.join(lacking)}"
    else:
        because = ""
    if wanted != "ib" and any(ports):
        releases = [nccl_release(version) for version in nccl_versions]
        roce, why_not = _roce(names, ports, matrix, chosen, releases)
        if roce is not None:
            return _marked(roce, wanted), None
        because = "; ".join(part for part in (because, why_not) if part)
    return tcp(because), because if wanted else None


def _marked(rdma: Rdma, wanted: Optional[str]) -> Rdma:
    if not wanted:
        return rdma
    first, *rest = rdma.reasons
    marked = Reason(first.subject, first.choice, f"set by torchfleet_transport; checked: {first.because}")
    return Rdma(rdma.transport, rdma.hcas, rdma.gid_index, (marked, *rest))
