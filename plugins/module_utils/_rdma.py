# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""RDMA devices of one node: /sys/class/infiniband first, the tools of rdma-core and OFED as supplements.

The tools' parsers take tabs or blanks, cut output, and lines that are no part of a report (`ibpanic: …`); those lines
are kept as problems.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric import Interface, pci_address

GID_TYPES = ("IB", "RoCE v1", "RoCE v2", "")

# mlx4/mlx5 print the PCI device id in decimal behind "MT" (pci.ids, vendor 15b3).
_MODELS = {
    "MT4099": "ConnectX-3",
    "MT4100": "ConnectX-3 VF",
    "MT4103": "ConnectX-3 Pro",
    "MT4115": "ConnectX-4",
    "MT4116": "ConnectX-4 VF",
    "MT4117": "ConnectX-4 Lx",
    "MT4118": "ConnectX-4 Lx VF",
    "MT4119": "ConnectX-5",
    "MT4120": "ConnectX-5 VF",
    "MT4121": "ConnectX-5 Ex",
    "MT4122": "ConnectX-5 Ex VF",
    "MT4123": "ConnectX-6",
    "MT4124": "ConnectX-6 VF",
    "MT4125": "ConnectX-6 Dx",
    "MT4126": "ConnectX VF",
    "MT4127": "ConnectX-6 Lx",
    "MT4129": "ConnectX-7",
    "MT4131": "ConnectX-8",
    "MT41682": "BlueField",
    "MT41686": "BlueField-2",
    "MT41692": "BlueField-3",
}

# The words of sysfs, ibstat and libibverbs for one state.
_STATES = {
    "ACTIVE": "ACTIVE",
    "DOWN": "DOWN",
    "INIT": "INIT",
    "INITIALIZE": "INIT",
    "INITIALIZING": "INIT",
    "ARMED": "ARMED",
    "ACTIVE_DEFER": "ACTIVE_DEFER",
    "NOP": "NOP",
    "NO STATE CHANGE": "NOP",
}
_PHYS_STATES = {
    "linkup": "LinkUp",
    "disabled": "Disabled",
    "polling": "Polling",
    "sleep": "Sleep",
    "portconfigurationtraining": "PortConfigurationTraining",
    "configurationtraining": "PortConfigurationTraining",
    "linkerrorrecovery": "LinkErrorRecovery",
    "phytest": "PhyTest",
    "nostatechange": "NoStateChange",
}
_LINK_LAYERS = {"infiniband": "InfiniBand", "ib": "InfiniBand", "ethernet": "Ethernet", "unspecified": "Unspecified"}


@dataclass(frozen=True)
class Gid:
    """One entry of a port's GID table. `type` is one of GID_TYPES, '' where the source does not tell.

    `ipv4` is set where the GID maps an IPv4 address.
    """

    index: int
    gid: str
    type: str
    ipv4: Optional[str] = None
    netdev: str = ""
    link_local: bool = False


@dataclass(frozen=True)
class RdmaPort:
    """One port. `state` is IBTA's (`ACTIVE`, `DOWN`, `INIT`, `ARMED`); `rate_gbps` is the signalling rate of the link.

    A port that is down reports the rate of its lowest width and speed. `roce_v2_gid_index` is the first RoCE v2 entry
    with an IPv4 address that routes, then with a global IPv6 one; None on InfiniBand and where there is none.
    """

    port: int
    state: str = ""
    phys_state: str = ""
    rate_gbps: Optional[float] = None
    link_layer: str = ""
    netdev: str = ""
    active_mtu: Optional[int] = None
    gids: Tuple[Gid, ...] = ()
    roce_v2_gid_index: Optional[int] = None
    nccl_name: str = ""


@dataclass(frozen=True)
class RdmaDevice:
    """One RDMA device. `transport` is `ib`, `roce`, `iwarp` or `other` (EFA, usNIC), by its first port."""

    name: str
    hca_type: str = ""
    model: str = ""
    firmware: str = ""
    board_id: str = ""
    node_guid: str = ""
    transport: str = "other"
    driver: str = ""
    pci_address: str = ""
    numa_node: Optional[int] = None
    is_virtual_function: bool = False
    is_soft: bool = False
    ports: Tuple[RdmaPort, ...] = ()


@dataclass(frozen=True)
class GidRow:
    """One line of show_gids: a GID and the port it belongs to."""

    device: str
    port: int
    gid: Gid


@dataclass(frozen=True)
class NetdevLink:
    """One line of ibdev2netdev."""

    device: str
    port: int
    netdev: str
    up: bool
    pci_address: str = ""
    firmware: str = ""


@dataclass(frozen=True)
class RdmaReport:
    """What a tool said: the devices it got to, and the lines in which it complained."""

    devices: Tuple[RdmaDevice, ...]
    problems: Tuple[str, ...] = ()


def _number(text: str) -> Optional[int]:
    found = re.match(r"\s*(-?(?:0x[0-9a-fA-F]+|\d+))", text)
    return int(found.group(1), 0) if found else None


def port_state(text: str) -> str:
    """`4: ACTIVE`, `Active`, `PORT_ACTIVE (4)` -> `ACTIVE`."""
    word = re.sub(r"\(\d+\)|^\s*\d+:", "", text).strip().upper()
    if word.startswith("PORT_"):
        word = word[len("PORT_") :]
    return _STATES.get(word, word)


def phys_state(text: str) -> str:
    """`5: LinkUp`, `LinkUp`, `LINK_UP (5)` -> `LinkUp`."""
    word = re.sub(r"\(\d+\)|^\s*\d+:", "", text).strip()
    return _PHYS_STATES.get(re.sub(r"[^a-z]", "", word.lower()), word)


def rate_gbps(text: str) -> Optional[float]:
    """`400 Gb/sec (4X NDR)`, `200`, `2.5 Gb/sec (1X SDR)` -> gigabits a second."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return float(found.group(1)) if found else None


def _link_layer(text: str) -> str:
    return _LINK_LAYERS.get(text.strip().lower(), text.strip())


def make_gid(index: int, gid: str, gid_type: str, netdev: str = "", link_layer: str = "") -> Optional[Gid]:
    """A table entry, or None for an empty one. `gid_type` is any tool's word: `v2`, `RoCE v2`, `IB/RoCE v1`, ``."""
    try:
        value = ipaddress.IPv6Address(gid.strip())
    except ValueError:
        return None
    if int(value) & (2**64 - 1) == 0:  # a zero interface id: never set, or only a subnet prefix
        return None
    word = gid_type.strip().lower()
    # The kernel writes "IB/RoCE v1" for both, show_gids "v1".
    if link_layer == "InfiniBand" or (word == "ib" and link_layer != "Ethernet"):
        kind = "IB"
    elif "v2" in word:
        kind = "RoCE v2"
    else:
        kind = "RoCE v1" if "v1" in word else ""
    mapped = value.ipv4_mapped
    return Gid(
        index=index,
        gid=value.exploded,
        type=kind,
        ipv4=str(mapped) if mapped else None,
        netdev=netdev.strip(),
        link_local=value.is_link_local or bool(mapped and mapped.is_link_local),
    )


def roce_v2_gid_index(gids: Iterable[Gid], netdev: str = "") -> Optional[int]:
    """The first RoCE v2 entry whose address routes, IPv4 before IPv6; of `netdev` first where the port has several."""

    def worse(gid: Gid) -> Tuple[bool, bool, int]:
        return bool(netdev) and gid.netdev not in ("", netdev), gid.ipv4 is None, gid.index

    fit = [gid for gid in gids if gid.type == "RoCE v2" and not gid.link_local]
    return min(fit, key=worse).index if fit else None


def _transport(device: Mapping[str, Any], ports: Sequence[RdmaPort]) -> str:
    """By sysfs' `node_type` (`1: CA`) or ibv_devinfo's `transport` (`InfiniBand (0)`, which means verbs), then by link.

    The link layer alone does not tell: iWARP and usNIC are on Ethernet, and tools call EFA's InfiniBand.
    """
    told = f"{device.get('node_type', '')} {device.get('transport', '')}".lower()
    if "rnic" in told or "iwarp" in told:
        return "iwarp"
    if re.search(r"usnic|unspecified|unknown|invalid", told):
        return "other"
    layer = ports[0].link_layer if ports else ""
    return {"InfiniBand": "ib", "Ethernet": "roce"}.get(layer, "other")


def _finish_port(device: str, port: RdmaPort) -> RdmaPort:
    netdev = port.netdev or next((gid.netdev for gid in port.gids if gid.netdev), "")
    index = roce_v2_gid_index(port.gids, netdev) if port.link_layer != "InfiniBand" else None
    return replace(port, netdev=netdev, roce_v2_gid_index=index, nccl_name=f"{device}:{port.port}")


def _finish(device: RdmaDevice, raw: Optional[Mapping[str, Any]] = None) -> RdmaDevice:
    ports = tuple(_finish_port(device.name, port) for port in sorted(device.ports, key=lambda port: port.port))
    return replace(device, model=_MODELS.get(device.hca_type, ""), ports=ports, transport=_transport(raw or {}, ports))


def _natural(name: str) -> List[Any]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _port_netdev(raw: Mapping[str, Any], number: int, link_layer: str) -> str:
    """The port's network interface: the GID table's first, then the PCI function's by port number."""
    ndevs = raw["ports"][number].get("ndevs") or {}
    first = next((ndevs[index] for index in sorted(ndevs) if ndevs[index].strip()), "")
    if first:
        return str(first).strip()
    netdevs: Mapping[str, Any] = raw.get("netdevs") or {}
    by_port = [name for name, dev_port in sorted(netdevs.items()) if _number(str(dev_port)) == number - 1]
    if len(by_port) == 1 or link_layer == "InfiniBand":
        return by_port[0] if by_port else ""
    return next(iter(netdevs)) if len(netdevs) == 1 else ""


def build_rdma_devices(sysfs: Mapping[str, Mapping[str, Any]]) -> Tuple[RdmaDevice, ...]:
    """Devices from /sys/class/infiniband.

    Each holds the texts of `hca_type fw_ver board_id node_guid node_type`, `device` (real path, '' for a software
    device), `driver`, `numa_node`, `is_virtual_function`, `netdevs` (interfaces of the same PCI function -> dev_port)
    and `ports`: number -> texts of `state phys_state rate link_layer` and the maps `gids`, `types`, `ndevs` by index.
    """
    found = []
    for name in sorted(sysfs, key=_natural):
        raw = sysfs[name]
        ports = []
        for number, port in (raw.get("ports") or {}).items():
            layer = _link_layer(str(port.get("link_layer", "")))
            types, ndevs = port.get("types") or {}, port.get("ndevs") or {}
            gids = (
                make_gid(index, gid, types.get(index, ""), ndevs.get(index, ""), layer)
                for index, gid in sorted((port.get("gids") or {}).items())
            )
            ports.append(
                RdmaPort(
                    port=number,
                    state=port_state(str(port.get("state", ""))),
                    phys_state=phys_state(str(port.get("phys_state", ""))),
                    rate_gbps=rate_gbps(str(port.get("rate", ""))),
                    link_layer=layer,
                    netdev=_port_netdev(raw, number, layer),
                    gids=tuple(gid for gid in gids if gid),
                )
            )
        numa = _number(str(raw.get("numa_node", "")))
        device = str(raw.get("device", ""))
        found.append(
            _finish(
                RdmaDevice(
                    name=name,
                    hca_type=str(raw.get("hca_type", "")).strip(),
                    firmware=str(raw.get("fw_ver", "")).strip(),
                    board_id=str(raw.get("board_id", "")).strip(),
                    node_guid=str(raw.get("node_guid", "")).strip(),
                    driver=str(raw.get("driver", "")),
                    pci_address=pci_address(device),
                    numa_node=numa if numa is not None and numa >= 0 else None,
                    is_virtual_function=bool(raw.get("is_virtual_function")),
                    is_soft=bool(raw.get("is_soft")),
                    ports=tuple(ports),
                ),
                raw,
            )
        )
    return tuple(found)


def attach(interfaces: Iterable[Interface], devices: Iterable[RdmaDevice]) -> Tuple[Interface, ...]:
    """The interfaces with the RDMA device each belongs to, and its rate where the interface tells no speed."""
    by_netdev = {port.netdev: (device, port) for device in devices for port in device.ports if port.netdev}
    joined = []
    for interface in interfaces:
        if interface.name in by_netdev:
            device, port = by_netdev[interface.name]
            speed = interface.speed_mbps
            if speed is None and port.rate_gbps and port.state == "ACTIVE":
                speed = int(port.rate_gbps * 1000)
            interface = replace(interface, rdma_device=device.name, speed_mbps=speed)
        joined.append(interface)
    return tuple(joined)


_COMPLAINT = re.compile(r"\s*ib\w+:\s|.*\b(failed|no IB devices|command not found|can't open|unable to)\b", re.I)


def _complaints(text: str) -> Tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if _COMPLAINT.match(line))


class _Draft:
    """A device being read line by line."""

    def __init__(self, name: str) -> None:
        self.device = RdmaDevice(name=name)
        self.transport = ""
        self.width: Optional[float] = None
        self.ports: List[RdmaPort] = []

    def port(self, **fields: Any) -> None:
        if not self.ports:
            self.ports.append(RdmaPort(port=1))
        self.ports[-1] = replace(self.ports[-1], **fields)

    def finish(self) -> RdmaDevice:
        return _finish(replace(self.device, ports=tuple(self.ports)), {"transport": self.transport})


def _key_value(line: str) -> Tuple[str, str]:
    key, _rest, value = line.strip().partition(":")
    return re.sub(r"\s+", " ", key.strip().lower()), value.strip()


def parse_ibstat(text: str) -> RdmaReport:
    """`ibstat`, whole or cut. A device that ibstat could not open is a problem, not a device."""
    drafts: List[_Draft] = []
    for line in text.splitlines():
        head = re.match(r"\s*CA '([^']+)'\s*$", line)
        if head:
            drafts.append(_Draft(head.group(1)))
            continue
        if not drafts:
            continue
        draft = drafts[-1]
        number = re.match(r"\s*Port (\d+):", line)
        key, value = _key_value(line)
        if number:
            draft.ports.append(RdmaPort(port=int(number.group(1))))
        elif key == "ca type":
            draft.device = replace(draft.device, hca_type=value)
        elif key == "firmware version":
            draft.device = replace(draft.device, firmware=value)
        elif key == "node guid":
            draft.device = replace(draft.device, node_guid=value)
        elif key == "state":
            draft.port(state=port_state(value))
        elif key == "physical state":
            draft.port(phys_state=phys_state(value))
        elif key == "rate":
            draft.port(rate_gbps=rate_gbps(value))
        elif key == "link layer":
            draft.port(link_layer=_link_layer(value))
    return RdmaReport(tuple(draft.finish() for draft in drafts), _complaints(text))


def parse_ibstatus(text: str) -> RdmaReport:
    """`ibstatus`: one paragraph a port."""
    drafts: Dict[str, _Draft] = {}
    draft: Optional[_Draft] = None
    for line in text.splitlines():
        head = re.match(r"\s*Infiniband device '([^']+)' port (\d+) status", line, re.I)
        if head:
            draft = drafts.setdefault(head.group(1), _Draft(head.group(1)))
            draft.ports.append(RdmaPort(port=int(head.group(2))))
            continue
        if draft is None:
            continue
        key, value = _key_value(line)
        if key == "default gid":
            gid = make_gid(0, value, "")
            draft.port(gids=(gid,) if gid else ())
        elif key == "state":
            draft.port(state=port_state(value))
        elif key == "phys state":
            draft.port(phys_state=phys_state(value))
        elif key == "rate":
            draft.port(rate_gbps=rate_gbps(value))
        elif key == "link_layer":
            layer = _link_layer(value)
            # The paragraph gives the first GID before it says what kind of network the port is on.
            gids = tuple(replace(gid, type="IB" if layer == "InfiniBand" else "") for gid in draft.ports[-1].gids)
            draft.port(link_layer=layer, gids=gids)
    return RdmaReport(tuple(item.finish() for item in drafts.values()), _complaints(text))


_DEVINFO_KEYS = ("transport", "fw_ver", "node_guid", "board_id", "vendor_part_id", "port", "state", "phys_state")


def parse_ibv_devinfo(text: str) -> RdmaReport:
    """`ibv_devinfo` or `ibv_devinfo -v`. A report cut before its first `hca_id` gives a device without a name."""
    drafts: List[_Draft] = []
    for line in text.splitlines():
        key, value = _key_value(line)
        if key == "hca_id":
            drafts.append(_Draft(value))
            continue
        gid_head = re.match(r"gid\[\s*(\d+)\]", key)
        known = gid_head or key in _DEVINFO_KEYS
        if not drafts and not known:
            continue
        if not drafts:
            drafts.append(_Draft(""))
        draft = drafts[-1]
        if gid_head:
            gid_text, _rest, gid_type = value.partition(",")
            layer = draft.ports[-1].link_layer if draft.ports else ""
            gid = make_gid(int(gid_head.group(1)), gid_text, gid_type, "", layer)
            if gid:
                draft.port(gids=(*(draft.ports[-1].gids if draft.ports else ()), gid))
        elif key == "transport":
            draft.transport = value
        elif key == "fw_ver":
            draft.device = replace(draft.device, firmware=value)
        elif key == "node_guid":
            draft.device = replace(draft.device, node_guid=value)
        elif key == "board_id":
            draft.device = replace(draft.device, board_id=value)
        elif key == "vendor_part_id" and f"MT{value}" in _MODELS:
            draft.device = replace(draft.device, hca_type=f"MT{value}")
        elif key == "port" and value.isdigit():
            draft.ports.append(RdmaPort(port=int(value)))
        elif key == "state":
            draft.port(state=port_state(value))
        elif key == "phys_state":
            draft.port(phys_state=phys_state(value))
        elif key == "active_mtu":
            draft.port(active_mtu=_number(value))
        elif key == "active_width":
            draft.width = rate_gbps(value)
        elif key == "active_speed" and draft.width:
            lane = rate_gbps(value)
            draft.port(rate_gbps=lane * draft.width if lane else None)
        elif key == "link_layer":
            draft.port(link_layer=_link_layer(value))
    return RdmaReport(tuple(draft.finish() for draft in drafts), _complaints(text))


def parse_show_gids(text: str) -> Tuple[GidRow, ...]:
    """`show_gids`: the IPv4 column may be empty, the interface column missing, the last row cut."""
    rows = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or not fields[1].isdigit() or not fields[2].isdigit():
            continue
        rest = fields[4:]
        if rest and re.match(r"\d+\.\d+\.\d+\.\d+$", rest[0]):
            rest = rest[1:]
        version = rest[0] if rest else ""
        gid = make_gid(int(fields[2]), fields[3], version, rest[1] if len(rest) > 1 else "")
        if gid:
            rows.append(GidRow(fields[0], int(fields[1]), gid))
    return tuple(rows)


def parse_ibdev2netdev(text: str) -> Tuple[NetdevLink, ...]:
    """`ibdev2netdev`, with or without -v."""
    rows = []
    pattern = re.compile(r"\s*(?:(\S+:\S+\.\d) )?(\S+)(?: \(.*\))? .*?port (\d+) (?:\([^)]*\) *)?==> (\S+) \((\w+)\)")
    plain = re.compile(r"\s*()(\S+) port (\d+) ==> (\S+) \((\w+)\)")
    for line in text.splitlines():
        found = plain.match(line) or pattern.match(line)
        if found:
            firmware = re.search(r"\bfw (\S+)", line)
            rows.append(
                NetdevLink(
                    device=found.group(2),
                    port=int(found.group(3)),
                    netdev=found.group(4),
                    up=found.group(5).lower() == "up",
                    pci_address=found.group(1) or "",
                    firmware=firmware.group(1) if firmware else "",
                )
            )
    return tuple(rows)


def supplement(
    devices: Iterable[RdmaDevice],
    others: Iterable[RdmaDevice] = (),
    gids: Iterable[GidRow] = (),
    netdevs: Iterable[NetdevLink] = (),
) -> Tuple[RdmaDevice, ...]:
    """Fill what `devices` lack from other reports of the same node. What is there already stays."""
    merged = {device.name: device for device in devices}
    for other in others:
        merged[other.name] = _merge_device(merged[other.name], other) if other.name in merged else other
    tables: Dict[Tuple[str, int], List[Gid]] = {}
    for row in gids:
        tables.setdefault((row.device, row.port), []).append(row.gid)
    links = {(link.device, link.port): link.netdev for link in netdevs}
    filled = []
    for device in merged.values():
        ports = []
        for port in device.ports:
            key = (device.name, port.port)
            table = tuple(
                replace(gid, type="IB") if port.link_layer == "InfiniBand" else gid for gid in tables.get(key, ())
            )
            # show_gids lists the whole table and names interfaces; a report of fewer entries is no better.
            if len(table) > len(port.gids):
                port = replace(port, gids=table)
            ports.append(_finish_port(device.name, replace(port, netdev=port.netdev or links.get(key, ""))))
        filled.append(replace(device, ports=tuple(ports)))
    return tuple(filled)


def _merge_device(device: RdmaDevice, other: RdmaDevice) -> RdmaDevice:
    def fill(mine: Any, theirs: Any, *names: str) -> Any:
        missing = {name: getattr(theirs, name) for name in names if getattr(mine, name) in ("", None, ())}
        return replace(mine, **missing)

    theirs = {port.port: port for port in other.ports}
    ports = [
        fill(port, theirs[port.port], "state", "phys_state", "rate_gbps", "link_layer", "netdev", "active_mtu", "gids")
        if port.port in theirs
        else port
        for port in device.ports
    ]
    mine = {port.port for port in device.ports}
    ports += [port for number, port in theirs.items() if number not in mine]
    merged: RdmaDevice = fill(device, other, "hca_type", "model", "firmware", "board_id", "node_guid")
    merged = replace(merged, ports=tuple(ports))
    if merged.transport == "other":
        merged = replace(merged, transport=other.transport)
    return merged
