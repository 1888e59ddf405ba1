# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Which addresses of a node can carry training at all, and what kind of interface each sits on.

Interfaces are plain mappings: `name`, `kind`, `state`, `addresses` (mappings with `address`, `prefix`, `scope`, or
texts such as `10.0.0.1/24`), `mtu`, `speed_mbps`, `master`, and, of nccl_facts, `hardware` (the NICs below), `is_bmc`
and `down_reason`. All but `name` may be missing.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

# Tiers: a later one is taken only where no earlier one connects all nodes. Last, not never.
REAL, USB, VIRTUAL, TUNNEL, BMC = range(5)
TIER_NAMES = (
    "a real network interface",
    "a USB or wireless interface",
    "a virtual interface",
    "a tunnel",
    "the BMC's interface",
)

_TIERS = {
    "physical": REAL,
    "bond": REAL,
    "vlan": REAL,
    "ipoib": REAL,
    "macvlan": REAL,
    "ipvlan": REAL,
    "unknown": REAL,
    "usb": USB,
    "wireless": USB,
    "bridge": VIRTUAL,
    "veth": VIRTUAL,
    "dummy": VIRTUAL,
    "vrf": VIRTUAL,
    "tunnel": TUNNEL,
    "bmc": BMC,
}
_SAME_KIND = {
    "ethernet": "physical",
    "ether": "physical",
    "virtio": "physical",
    "vf": "physical",
    "team": "bond",
    "openvswitch": "bridge",
    "other": "dummy",
    "infiniband": "ipoib",
    "wifi": "wireless",
    "wlan": "wireless",
    "macvtap": "macvlan",
    "ipvtap": "ipvlan",
    "container": "veth",
    "cni": "veth",
    "tap": "tunnel",
    "tun": "tunnel",
    "vxlan": "tunnel",
    "geneve": "tunnel",
    "gre": "tunnel",
    "gretap": "tunnel",
    "ipip": "tunnel",
    "sit": "tunnel",
    "ip6tnl": "tunnel",
    "wireguard": "tunnel",
    "ppp": "tunnel",
}
# Among equals the more direct kind wins: a bond before the VLAN on top of it.
_DIRECT = ("physical", "bond", "ipoib", "unknown", "bridge", "macvlan", "ipvlan", "vlan")

# Used only where facts do not tell. Order matters: the first match wins.
_KIND_BY_NAME = (
    ("loopback", r"lo"),
    (
        "bridge",
        r"docker\d+|docker_gwbridge|br-[0-9a-f]{12}|(virbr|lxcbr|lxdbr|incusbr|podman|cni-podman|cni|cbr|mpqemubr)\d+",
    ),
    ("bridge", r"kube-bridge|nerdctl\d+|weave|ovs-system|br-int|br\d+|vmbr\d+|vmnet\d+|br-[\w-]+"),
    ("veth", r"veth.*|cali[0-9a-f]+|lxc[0-9a-f_]+|eni[0-9a-f]{6,}|azv[0-9a-f]+|gke[0-9a-f]+|vnet\d+|fwln.*|vethwe.*"),
    (
        "tunnel",
        r"(tun|tap|wg|tunl|ip6tnl|ip6gre|gre|gretap|erspan|sit|ip_vti|ip6_vti|ppp|vti|utun|vxlan|geneve|zt|ts)\d\w*",
    ),
    (
        "tunnel",
        r"(tap[0-9a-f]{8}|tmfifo_net|ham\d|tailscale|wt|nebula|cilium_|flannel|vxlan|geneve|antrea-gw|ovn-k8s-mp|zt|wg-|wireguard|nordlynx|mesh).*",
    ),
    ("tunnel", r"(genev|vxlan)_sys_\d+"),
    ("dummy", r"dummy\d*|kube-ipvs\d+|nodelocaldns|ifb\d+"),
    ("usb", r"usb\d+|enx[0-9a-f]{12}|(en|eth)\w*u\d+(u\d+)*(c\d+)?(i\d+)?"),
    ("bmc", r"bmc_?\w*|idrac\w*|ipmi\w*"),
    ("vlan", r"[\w-]+(\.\d+)+|vlan\d+"),
    ("bond", r"bond[\w-]*|team\d+|ib-?bond\d*"),
    ("ipoib", r"ib\d+|ib[psPo]\w+"),
    ("wireless", r"wl\w+"),
)
_KIND_PATTERNS = tuple((kind, re.compile(f"(?:{pattern})\\Z")) for kind, pattern in _KIND_BY_NAME)

# Drivers without a carrier of their own (tunnels, veth, IPoIB on some kernels) report "unknown" while they work.
_USABLE_STATES = ("", "up", "unknown", "none")

# Where the kernel reports no speed (virtio, some cloud drivers). Mb/s; only their order matters.
_ASSUMED_SPEED = {"ipoib": 20000, "wireless": 100}
_ASSUMED_SPEED_ELSE = 1000
# What the kernel prints for these is a constant of the driver, no measure.
_FICTITIOUS_SPEED = ("veth", "tunnel", "dummy", "vrf")


@dataclass(frozen=True)
class Candidate:
    """One address of one interface that training could use.

    `address` is canonical; `subnet` is the network it shares with others (None where the mask leaves room for nobody);
    `mtu` is bytes; `speed_mbps` the nominal speed (None: not reported); `tier` one of REAL … BMC. NCCL and gloo take an
    interface's first address of a family, so a second one is no candidate.
    """

    interface: str
    address: str
    subnet: Optional[str]
    kind: str
    tier: int
    mtu: Optional[int] = None
    speed_mbps: Optional[int] = None

    @property
    def family(self) -> int:
        return 6 if ":" in self.address else 4

    @property
    def link_local(self) -> bool:
        return self.address.startswith("169.254.")

    @property
    def assumed_speed(self) -> int:
        """Mb/s to compare by: the nominal speed, or a cautious figure where none is reported."""
        return self.speed_mbps or _ASSUMED_SPEED.get(self.kind, _ASSUMED_SPEED_ELSE)

    @property
    def indirectness(self) -> int:
        return _DIRECT.index(self.kind) if self.kind in _DIRECT else len(_DIRECT)


def _subnet(address: str, prefix: int) -> Optional[str]:
    network = ipaddress.ip_network(f"{address}/{prefix}", strict=False)
    return str(network) if network.num_addresses > 1 else None


def guess_kind(name: str) -> str:
    """The kind of an interface by its name alone: a fallback for facts that do not tell."""
    for kind, pattern in _KIND_PATTERNS:
        if pattern.match(name):
            return kind
    return "physical"


def interface_name(interface: Mapping[str, Any]) -> str:
    """The name without the `@peer` that `ip` prints behind it."""
    return str(interface.get("name") or "").partition("@")[0]


def _kind(interface: Mapping[str, Any]) -> str:
    kind = str(interface.get("kind") or "").strip().lower()
    kind = _SAME_KIND.get(kind, kind)
    if kind == "loopback" or (kind in _TIERS and kind != "unknown"):
        return kind
    return guess_kind(interface_name(interface))


def _number(value: Any) -> Optional[int]:
    """A positive whole number, or None: the kernel says -1 or 4294967295 for an unknown speed."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < 4294967295 else None


def _addresses(interface: Mapping[str, Any]) -> List[Tuple[str, int, bool]]:
    """(address, prefix, usable) in the kernel's order; texts that are no address are left out."""
    found = []
    for entry in interface.get("addresses") or ():
        if isinstance(entry, Mapping):
            text, prefix = str(entry.get("address") or ""), entry.get("prefix")
            flags = {str(flag).lower() for flag in entry.get("flags") or ()}
        else:
            text, prefix, flags = str(entry), None, set()
        text, _slash, written = text.partition("/")
        try:
            address = ipaddress.ip_address(text.partition("%")[0].strip())
        except ValueError:
            continue
        length = _number(prefix if prefix is not None else written) or address.max_prefixlen
        usable = not (
            address.is_loopback
            or address.is_multicast
            or address.is_unspecified
            or (address.version == 6 and address.is_link_local)
            or flags & {"tentative", "deprecated", "dadfailed", "temporary"}
        )
        found.append((str(address), min(length, address.max_prefixlen), usable))
    return found


def all_addresses(interfaces: Sequence[Mapping[str, Any]]) -> Dict[str, str]:
    """Every address of the node, loopback and secondary ones too, and the interface that has it."""
    return {
        address: interface_name(interface)
        for interface in interfaces
        for address, _prefix, _usable in _addresses(interface)
    }


def find_candidates(interfaces: Sequence[Mapping[str, Any]]) -> Tuple[Tuple[Candidate, ...], Dict[str, str]]:
    """The node's candidates in the order of its interfaces, and why each of the other interfaces is none."""
    by_name = {interface_name(interface): interface for interface in interfaces}
    real_ports = {
        str(interface.get("master"))
        for interface in interfaces
        if interface.get("master") and _TIERS.get(_kind(interface)) == REAL
    }
    candidates: List[Candidate] = []
    passed_over: Dict[str, str] = {}
    for name, interface in by_name.items():
        kind = _kind(interface)
        state = str(interface.get("state") or "").strip().lower()
        master = str(interface.get("master") or "")
        if kind == "loopback":
            passed_over[name] = "loopback"
            continue
        if state not in _USABLE_STATES:
            passed_over[name] = f"down ({interface['down_reason']})" if interface.get("down_reason") else state
            continue
        if master and _kind(by_name.get(master, {"name": master})) != "vrf":
            passed_over[name] = f"part of {master}"
            continue
        listed = _addresses(interface)
        usable = [entry for entry in listed if entry[2]]
        if not usable:
            passed_over[name] = "only a link-local address" if listed else "no address"
            continue
        # A bridge over a NIC or a bond is how the machine itself reaches the wire; one over containers is not.
        tier = _TIERS[kind]
        if tier == VIRTUAL and (name in real_ports or interface.get("hardware")):
            tier = REAL
        if interface.get("is_bmc"):
            tier = BMC
        speed = None if kind in _FICTITIOUS_SPEED else _number(interface.get("speed_mbps"))
        families = set()
        for address, prefix, _usable in usable:
            candidate = Candidate(
                interface=name,
                address=address,
                subnet=_subnet(address, prefix),
                kind=kind,
                tier=tier,
                mtu=_number(interface.get("mtu")),
                speed_mbps=speed,
            )
            if candidate.family not in families:
                families.add(candidate.family)
                candidates.append(candidate)
    return tuple(candidates), passed_over
