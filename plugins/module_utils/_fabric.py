# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Network interfaces and routes of one node, from `ip -j` and /sys/class/net.

An interface's kind is what the kernel says it is (link information, sysfs); its name is asked only where nothing else
is known, as with the output of an old tool that somebody pasted.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

# What an interface can be. `usb` is a USB network adapter, `bmc` the USB link to the board's management controller,
# `tunnel` any encapsulation that is not vxlan or WireGuard, `other` something the kernel knows and this table does not.
KINDS = (
    "loopback",
    "ethernet",
    "infiniband",
    "wireless",
    "usb",
    "bmc",
    "bond",
    "team",
    "bridge",
    "openvswitch",
    "vlan",
    "macvlan",
    "ipvlan",
    "veth",
    "tun",
    "wireguard",
    "vxlan",
    "tunnel",
    "dummy",
    "vrf",
    "other",
)

ADDRESS_FLAGS = ("tentative", "dadfailed", "deprecated", "temporary", "dynamic", "secondary")
HARDWARE_KINDS = ("ethernet", "infiniband", "wireless", "usb")
TUNNEL_KINDS = ("tun", "wireguard", "vxlan", "tunnel")

# rtnl_link_ops.kind of the kernel (`ip -d link`, info_kind) and uevent's DEVTYPE, which agree where both exist.
KERNEL_KINDS = {
    "bond": "bond",
    "team": "team",
    "bridge": "bridge",
    "openvswitch": "openvswitch",
    "vlan": "vlan",
    "macsec": "vlan",
    "macvlan": "macvlan",
    "macvtap": "macvlan",
    "ipvlan": "ipvlan",
    "ipvtap": "ipvlan",
    "veth": "veth",
    "netkit": "veth",
    "vxcan": "other",
    "tun": "tun",
    "tap": "tun",
    "wireguard": "wireguard",
    "amneziawg": "wireguard",
    "vxlan": "vxlan",
    "geneve": "tunnel",
    "bareudp": "tunnel",
    "ipip": "tunnel",
    "sit": "tunnel",
    "gre": "tunnel",
    "gretap": "tunnel",
    "erspan": "tunnel",
    "ip6erspan": "tunnel",
    "ip6tnl": "tunnel",
    "ip6gre": "tunnel",
    "ip6gretap": "tunnel",
    "vti": "tunnel",
    "vti6": "tunnel",
    "xfrm": "tunnel",
    "gtp": "tunnel",
    "ppp": "tunnel",
    "dummy": "dummy",
    "vrf": "vrf",
    "ipoib": "infiniband",
    "wlan": "wireless",
    "ifb": "other",
    "nlmon": "other",
    "can": "other",
    "vcan": "other",
}

# ARPHRD numbers (include/uapi/linux/if_arp.h) and the words that `ip` prints for them.
_ARPHRD_KINDS = {
    "772": "loopback",
    "32": "infiniband",
    "512": "tunnel",
    "768": "tunnel",
    "769": "tunnel",
    "776": "tunnel",
    "778": "tunnel",
    "823": "tunnel",
    "loopback": "loopback",
    "infiniband": "infiniband",
    "ppp": "tunnel",
    "ipip": "tunnel",
    "tunnel6": "tunnel",
    "sit": "tunnel",
    "gre": "tunnel",
    "gre6": "tunnel",
}

# USB class drivers that a management controller's virtual NIC binds to; adapters have a driver of their own make.
_USB_CLASS_DRIVERS = ("cdc_ether", "rndis_host", "cdc_ncm", "cdc_eem", "cdc_subset")
# Makers of USB Ethernet adapters (USB vendor ids: Realtek, ASIX, TP-Link, Linksys) that also speak those classes.
_USB_ADAPTER_MAKERS = ("bda", "b95", "2357", "13b1")

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# Last resort, for text that carries neither link information nor sysfs.
_NAME_HINTS = (
    (re.compile(r"lo\d*\Z"), "loopback"),
    (
        re.compile(
            r"docker(\d|_gwbridge)|br-[\w-]+\Z|(virbr|lxcbr|lxdbr|incusbr|mpqemubr|vmbr|cbr|cni|podman|nerdctl|br)\d|"
            r"(cni-podman|vmnet)\d|kube-bridge|weave\Z"
        ),
        "bridge",
    ),
    (re.compile(r"ovs-system\Z"), "openvswitch"),
    (re.compile(r"veth|(cali|azv|gke)[0-9a-f]{6}|lxc[0-9a-f_]{4}|eni[0-9a-f]{8}|vnet\d|fwln"), "veth"),
    (re.compile(r"(tunl|ip6tnl|gre|gretap|sit|erspan|ip6gre|ppp|vti|ip_vti|ip6_vti|geneve)\d|genev_sys_"), "tunnel"),
    (re.compile(r"cilium_(host|net)|nebula|ham\d|antrea-gw|ovn-k8s-mp|nordlynx"), "tunnel"),
    (re.compile(r"(tun|tap|tailscale|utun|tmfifo_net)\d|tap[0-9a-f]{8}|zt[a-z0-9]{8,}\Z"), "tun"),
    (re.compile(r"wg(-|\d)|wt\d"), "wireguard"),
    (re.compile(r"(flannel|vxlan|cilium_vxlan)[.\w]*"), "vxlan"),
    (re.compile(r"(dummy\d|kube-ipvs|nodelocaldns)"), "dummy"),
    (re.compile(r".+[.]\d+\Z|vlan\d"), "vlan"),
    (re.compile(r"(\w+-)?bond[\d_-]"), "bond"),
    (re.compile(r"team\d"), "team"),
    (re.compile(r"(ib\d|ib[pP]\d|ibs)"), "infiniband"),
    (re.compile(r"idrac|bmc(_|\d|\Z)"), "bmc"),
    (re.compile(r"en(p\d+)?s\d+(f\d+)?u\d|enx[0-9a-f]{12}|usb\d"), "usb"),
    (re.compile(r"wl[Pponsx]\w*\d|wlan\d"), "wireless"),
)


@dataclass(frozen=True)
class Address:
    """One address of an interface. `family` is `ipv4` or `ipv6`; `peer` is set on a point-to-point link.

    `usable` is false for link-local, loopback, tentative and duplicate addresses: nothing routes there.
    """

    address: str
    prefix: int
    family: str
    scope: str
    peer: Optional[str] = None
    link_local: bool = False
    usable: bool = True
    flags: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Interface:
    """One network interface. Units: `mtu` bytes, `speed_mbps` megabits a second (None: the driver does not tell).

    `state` is `up` or `down`, and `down_reason` says why. `lower` are the interfaces of this node that it stands on
    (a VLAN's parent, a bond's or bridge's members, the local end of a veth pair); `hardware` are the real NICs at the
    bottom, itself included. `rank` orders candidates by what they are, 0 best; `candidate_reason` says why.
    """

    name: str
    kind: str
    state: str
    down_reason: str = ""
    addresses: Tuple[Address, ...] = ()
    mtu: Optional[int] = None
    speed_mbps: Optional[int] = None
    mac: str = ""
    ifindex: Optional[int] = None
    driver: str = ""
    bus: str = ""
    pci_address: str = ""
    numa_node: Optional[int] = None
    master: str = ""
    lower: Tuple[str, ...] = ()
    hardware: Tuple[str, ...] = ()
    vlan_id: Optional[int] = None
    bond_mode: str = ""
    peer_elsewhere: bool = False
    rdma_device: str = ""
    alt_names: Tuple[str, ...] = ()
    is_virtual_function: bool = False
    is_bmc: bool = False
    link_local_only: bool = False
    is_candidate: bool = False
    rank: int = 9
    candidate_reason: str = ""


@dataclass(frozen=True)
class Route:
    """One route of the main table. `destination` is a CIDR; a default route is `0.0.0.0/0` or `::/0`."""

    destination: str
    interface: str
    family: str
    gateway: str = ""
    source: str = ""
    metric: int = 0
    scope: str = "global"
    protocol: str = ""

    @property
    def is_default(self) -> bool:
        return self.destination.endswith("/0")


def load_json(text: str) -> Optional[List[Dict[str, Any]]]:
    """The array that `ip -j` printed, without the empty objects of old versions; None where the text is not one."""
    try:
        rows = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(rows, list):
        return None
    return [row for row in rows if isinstance(row, dict) and row]


def _integer(value: Any) -> Optional[int]:
    try:
        return int(str(value).strip(), 0)
    except ValueError:
        return None


def _uevent(sysfs: Mapping[str, Any], key: str) -> str:
    found = re.search(rf"^{key}=(.*)$", str(sysfs.get("uevent", "")), re.M)
    return found.group(1).strip() if found else ""


def kind_by_name(name: str) -> str:
    """What a name suggests, for text that tells nothing else."""
    for pattern, kind in _NAME_HINTS:
        if pattern.match(name):
            return kind
    return "ethernet"


def _is_bmc(sysfs: Mapping[str, Any]) -> bool:
    if sysfs.get("bus") != "usb" or sysfs.get("driver") not in _USB_CLASS_DRIVERS:
        return False
    product = _uevent({"uevent": sysfs.get("device_uevent", "")}, "PRODUCT")
    return product.split("/")[0].lstrip("0").lower() not in _USB_ADAPTER_MAKERS


def _kind_by_sysfs(sysfs: Mapping[str, Any]) -> str:
    """The kind from the interface's folder in /sys/class/net, '' where it does not tell."""
    if sysfs.get("bonding") is not None:
        return "bond"
    if sysfs.get("is_bridge"):
        return "bridge"
    if sysfs.get("tun_flags"):
        return "tun"
    if sysfs.get("is_wireless"):
        return "wireless"
    if sysfs.get("type", "").strip() in _ARPHRD_KINDS:
        return _ARPHRD_KINDS[sysfs["type"].strip()]
    if sysfs.get("device"):
        if _is_bmc(sysfs):
            return "bmc"
        return "usb" if sysfs.get("bus") == "usb" else "ethernet"
    if sysfs.get("type", "").strip() == "65534":
        return "tun"
    own, other = _integer(sysfs.get("ifindex")), _integer(sysfs.get("iflink"))
    if own is not None and other is not None and own != other:
        # A VLAN or macvlan shows its parent as lower_<name> where that is in this namespace; a veth has none.
        return "macvlan" if sysfs.get("lower") else "veth"
    flags = _integer(sysfs.get("flags")) or 0
    if flags & 0x80 and flags & 0x2:  # NOARP and BROADCAST
        return "dummy"
    return "other" if sysfs else ""


def _kind(link: Mapping[str, Any], sysfs: Mapping[str, Any]) -> str:
    told = str((link.get("linkinfo") or {}).get("info_kind") or _uevent(sysfs, "DEVTYPE"))
    if told in KERNEL_KINDS:
        return KERNEL_KINDS[told]
    flags = link.get("flags") or ()
    if "LOOPBACK" in flags or link.get("link_type") == "loopback":
        return "loopback"
    by_sysfs = _kind_by_sysfs(sysfs)
    if by_sysfs:
        return by_sysfs
    if told:
        return "other"
    if link.get("parentbus"):
        return _ARPHRD_KINDS.get(str(link.get("link_type")), "usb" if link["parentbus"] == "usb" else "ethernet")
    if link.get("link_type") in _ARPHRD_KINDS:
        return _ARPHRD_KINDS[link["link_type"]]
    by_name = kind_by_name(str(link["ifname"]))
    if by_name != "ethernet":
        return by_name
    if "POINTOPOINT" in flags or ("NOARP" in flags and "BROADCAST" not in flags):
        return "tunnel"
    if "NOARP" in flags:
        return "dummy"
    if link.get("link_index") is not None:
        return "veth"
    return by_name


def _state(link: Mapping[str, Any], sysfs: Mapping[str, Any]) -> Tuple[str, str]:
    flags = set(link.get("flags") or ())
    number = _integer(sysfs.get("flags"))
    up = bool(number & 1) if not flags and number is not None else "UP" in flags
    if not up:
        return "down", "administratively down"
    oper = str(link.get("operstate") or sysfs.get("operstate") or "").strip().upper()
    if "NO-CARRIER" in flags or str(sysfs.get("carrier", "")).strip() == "0":
        return "down", "no carrier"
    if oper in ("DOWN", "LOWERLAYERDOWN", "DORMANT", "NOTPRESENT", "TESTING"):
        words = {"DOWN": "no carrier", "LOWERLAYERDOWN": "the interface below is down", "NOTPRESENT": "not present"}
        return "down", words.get(oper, oper.lower())
    if oper in ("UP", "UNKNOWN") or flags & {"LOWER_UP", "RUNNING"} or not flags:
        return "up", ""
    return "down", "no carrier"


def _speed(kind: str, sysfs: Mapping[str, Any]) -> Optional[int]:
    """Megabits a second. Virtual links report invented figures (tun 10, veth 10000), unknown is -1 in some width."""
    if kind in TUNNEL_KINDS or kind in ("veth", "dummy", "loopback", "openvswitch", "other"):
        return None
    speed = _integer(sysfs.get("speed"))
    return speed if speed is not None and 0 < speed < 65535000 and speed != 65535 else None


def parse_address(info: Mapping[str, Any]) -> Optional[Address]:
    """One entry of `addr_info`, or None where it holds no address (old versions print empty ones)."""
    try:
        address = ipaddress.ip_address(str(info.get("local") or info.get("address")))
    except ValueError:
        return None
    flags = tuple(flag for flag in ADDRESS_FLAGS if info.get(flag))
    peer = info.get("address") if info.get("local") and info.get("address") else None
    prefix = _integer(info.get("prefixlen"))
    link_local = address.is_link_local or (address.version == 6 and info.get("scope") == "link")
    nowhere = link_local or address.is_loopback or address.is_unspecified
    return Address(
        address=str(address),
        prefix=address.max_prefixlen if prefix is None else prefix,
        family=f"ipv{address.version}",
        scope=str(info.get("scope") or ("link" if link_local else "global")),
        peer=str(peer) if peer else None,
        link_local=link_local,
        usable=not (nowhere or {"tentative", "dadfailed"} & set(flags)),
        flags=flags,
    )


def _lower(link: Mapping[str, Any], sysfs: Mapping[str, Any], members: Iterable[str]) -> Tuple[str, ...]:
    names = list(members) + [str(name) for name in sysfs.get("lower") or ()]
    if link.get("link") and "link_netnsid" not in link:
        names.append(str(link["link"]))
    return tuple(sorted(set(names) - {str(link["ifname"])}))


def pci_address(device_path: str) -> str:
    """The PCI function that a device path in /sys/devices ends at or hangs below, '' where there is none."""
    found = _PCI.findall(device_path)
    return found[-1] if found else ""


def _bonding_mode(link: Mapping[str, Any], sysfs: Mapping[str, Any]) -> str:
    told = ((link.get("linkinfo") or {}).get("info_data") or {}).get("mode")
    return str(told or sysfs.get("bonding") or "").partition(" ")[0].strip()


def _one(link: Mapping[str, Any], sysfs: Mapping[str, Any], members: Iterable[str]) -> Interface:
    kind = _kind(link, sysfs)
    state, why = _state(link, sysfs)
    # A USB NIC hangs below its host controller's PCI function, which says nothing about the NIC.
    bus = str(sysfs.get("bus") or link.get("parentbus") or "")
    device = str(sysfs.get("device") or "") or (str(link.get("parentdev") or "") if bus == "pci" else "")
    numa = _integer(sysfs.get("numa_node"))
    info_data = (link.get("linkinfo") or {}).get("info_data") or {}
    addresses = tuple(found for found in map(parse_address, link.get("addr_info") or ()) if found)
    link_local_only = bool(addresses) and all(found.link_local for found in addresses)
    if kind == "usb" and link_local_only and not sysfs:
        kind = "bmc"  # nothing names the driver, but only a management controller hands out 169.254/16 over USB
    vlan_id = _integer(info_data.get("id")) if kind == "vlan" else None
    if vlan_id is None and kind == "vlan":
        tail = re.search(r"[.](\d+)\Z|vlan(\d+)\Z", str(link["ifname"]))
        vlan_id = int(tail.group(1) or tail.group(2)) if tail else None
    return Interface(
        name=str(link["ifname"]),
        kind=kind,
        state=state,
        down_reason=why,
        addresses=addresses,
        mtu=_integer(link.get("mtu") if link.get("mtu") is not None else sysfs.get("mtu")),
        speed_mbps=_speed(kind, sysfs),
        mac=str(link.get("address") or sysfs.get("address") or "").strip(),
        ifindex=_integer(link.get("ifindex") or sysfs.get("ifindex")),
        driver=str(sysfs.get("driver") or ""),
        bus=bus,
        pci_address="" if bus == "usb" else pci_address(device),
        numa_node=numa if numa is not None and numa >= 0 else None,
        master=str(link.get("master") or sysfs.get("master") or ""),
        lower=_lower(link, sysfs, members),
        vlan_id=vlan_id,
        bond_mode=_bonding_mode(link, sysfs) if kind == "bond" else "",
        peer_elsewhere="link_netnsid" in link or link.get("link_index") is not None,
        alt_names=tuple(str(name) for name in link.get("altnames") or ()),
        is_virtual_function=bool(sysfs.get("is_virtual_function")),
        is_bmc=kind == "bmc",
        link_local_only=link_local_only,
    )


def _hardware(name: str, known: Mapping[str, Interface], seen: FrozenSet[str] = frozenset()) -> Set[str]:
    """Names of the real NICs that an interface stands on, itself included."""
    if name not in known or name in seen:
        return set()
    interface = known[name]
    if interface.kind in HARDWARE_KINDS and not interface.lower:
        return {name}
    below = set(interface.lower)
    if interface.kind == "openvswitch" and interface.master:
        # An internal port and the NIC it leads to are both ports of the same datapath.
        below |= {other.name for other in known.values() if other.master == interface.master}
    found: Set[str] = set()
    for lower in below:
        found |= _hardware(lower, known, seen | {name})
    return found | ({name} if interface.kind in HARDWARE_KINDS else set())


def _candidate(interface: Interface, known: Mapping[str, Interface]) -> Tuple[bool, int, str]:
    """Whether training could use the interface, how good its kind is (0 best), and why."""
    if interface.kind == "loopback":
        return False, 9, "loopback reaches this node only"
    if interface.is_bmc:
        return False, 9, "leads to the board's management controller"
    if interface.state != "up":
        return False, 9, f"down: {interface.down_reason}"
    if not interface.addresses:
        return False, 9, f"no address, it is a member of {interface.master}" if interface.master else "no address"
    if not any(found.usable for found in interface.addresses):
        if any(found.family == "ipv4" for found in interface.addresses):
            return True, 5, "link-local addresses only"
        return False, 9, "link-local or unusable IPv6 addresses only"
    if interface.kind in ("wireless", "usb"):
        return True, 2, f"{interface.kind} adapter"
    if interface.hardware:
        below = [name for name in interface.hardware if name != interface.name]
        return True, 0, "hardware" if not below else f"{interface.kind} on hardware ({', '.join(below)})"
    if interface.kind == "bridge" or (interface.master and known.get(interface.master, interface).kind == "bridge"):
        return True, 4, "bridge without a real NIC, for containers or virtual machines of this node"
    if interface.kind in TUNNEL_KINDS:
        return True, 3, f"{interface.kind}: encapsulated traffic"
    if interface.kind == "veth" and interface.lower:
        return True, 4, "both ends are on this node"
    if interface.kind in ("veth", "macvlan", "ipvlan", "vlan"):
        return True, 1, f"{interface.kind} whose other end is outside this network namespace"
    return True, 3, f"{interface.kind} without a real NIC"


def build_interfaces(
    links: Sequence[Mapping[str, Any]], sysfs: Optional[Mapping[str, Mapping[str, Any]]] = None
) -> Tuple[Interface, ...]:
    """All interfaces of a node, in the kernel's order.

    `links` is what `ip -d -j addr` printed (or a text parser made of an older tool's output); `sysfs` maps names to
    what /sys/class/net/<name> holds: the files `type flags operstate carrier speed mtu address ifindex iflink uevent
    tun_flags` as text, `device` (real path), `bus`, `driver`, `device_uevent`, `numa_node`, `master`, `lower` (names),
    `bonding` (the mode's text), `is_bridge`, `is_wireless` and `is_virtual_function`. Either may be empty.
    """
    sysfs = sysfs or {}
    by_name = {str(link["ifname"]): link for link in links if link.get("ifname")}
    for name in sysfs:
        by_name.setdefault(name, {"ifname": name})
    bonds = [name for name, link in by_name.items() if _kind(link, sysfs.get(name, {})) == "bond"]
    for name, link in by_name.items():
        # Old tools flag a bond's members and do not say whose they are.
        if "SLAVE" in (link.get("flags") or ()) and not link.get("master") and len(bonds) == 1:
            by_name[name] = {**link, "master": bonds[0]}
    for name, link in by_name.items():
        # Nor do they say what a VLAN stands on, save by its name.
        parent = name.rpartition(".")[0]
        if "link" not in link and name not in sysfs and parent in by_name and _kind(link, {}) == "vlan":
            by_name[name] = {**link, "link": parent}
    members: Dict[str, List[str]] = {}
    for name, link in by_name.items():
        master = str(link.get("master") or sysfs.get(name, {}).get("master") or "")
        if master:
            members.setdefault(master, []).append(name)
    found = {name: _one(link, sysfs.get(name, {}), members.get(name, ())) for name, link in by_name.items()}
    grounded = {name: replace(item, hardware=tuple(sorted(_hardware(name, found)))) for name, item in found.items()}
    return tuple(_finish(item, grounded) for item in grounded.values())


def _finish(item: Interface, known: Mapping[str, Interface]) -> Interface:
    speed = item.speed_mbps
    # A bridge reports its fastest port, a made-up 10000 where that is a veth.
    if item.kind == "bridge" or (speed is None and item.kind in ("vlan", "macvlan", "ipvlan", "openvswitch")):
        speed = min((known[name].speed_mbps or 0 for name in item.hardware), default=0) or None
    usable, rank, reason = _candidate(item, known)
    return replace(item, speed_mbps=speed, is_candidate=usable, rank=rank, candidate_reason=reason)


def build_routes(rows: Iterable[Mapping[str, Any]]) -> Tuple[Route, ...]:
    """Routes from what `ip -j route` and `ip -j -6 route` printed. A multipath route becomes one route a hop."""
    routes = []
    for row in rows:
        destination = str(row.get("dst", ""))
        gateway = str(row.get("gateway") or (row.get("via") or {}).get("host") or "")
        if row.get("type", "unicast") not in ("unicast", "") or not destination:
            continue
        six = ":" in destination or ":" in gateway or ":" in str(row.get("prefsrc", ""))
        six = six or any(":" in str(hop.get("gateway", "")) for hop in row.get("nexthops") or ())
        if row.get("family"):
            six = row["family"] == "ipv6"
        if destination == "default":
            destination = "::/0" if six and "via" not in row else "0.0.0.0/0"
        try:
            network = ipaddress.ip_network(destination, strict=False)
        except ValueError:
            continue
        for hop in row.get("nexthops") or [row]:
            hop_gateway = str(hop.get("gateway") or (hop.get("via") or {}).get("host") or "")
            routes.append(
                Route(
                    destination=str(network),
                    interface=str(hop.get("dev") or row.get("dev") or ""),
                    family=f"ipv{network.version}",
                    gateway=hop_gateway,
                    source=str(row.get("prefsrc") or ""),
                    metric=_integer(row.get("metric")) or 0,
                    scope=str(row.get("scope") or ("global" if hop_gateway else "link")),
                    protocol=str(row.get("protocol") or ""),
                )
            )
    return tuple(routes)


def parse_proc_route(text: str) -> List[Dict[str, Any]]:
    """/proc/net/route as rows for build_routes: addresses there are little-endian hexadecimal words."""

    def dotted(word: str) -> str:
        return str(ipaddress.IPv4Address(bytes.fromhex(word)[::-1]))

    rows = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or not int(fields[3], 16) & 1 or int(fields[3], 16) & 0x200:  # RTF_UP, RTF_REJECT
            continue
        gateway = dotted(fields[2])
        rows.append(
            {
                "dst": f"{dotted(fields[1])}/{bin(int(fields[7], 16)).count('1')}",
                "dev": fields[0],
                "gateway": "" if gateway == "0.0.0.0" else gateway,
                "metric": fields[6],
                "family": "ipv4",
            }
        )
    return rows


def parse_if_inet6(text: str) -> Dict[str, List[Dict[str, Any]]]:
    """/proc/net/if_inet6 as interface name -> addr_info entries."""
    scopes = {0x00: "global", 0x10: "host", 0x20: "link", 0x40: "site"}
    found: Dict[str, List[Dict[str, Any]]] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) != 6 or len(fields[0]) != 32:
            continue
        flags = int(fields[4], 16)
        found.setdefault(fields[5], []).append(
            {
                "local": str(ipaddress.IPv6Address(int(fields[0], 16))),
                "prefixlen": int(fields[2], 16),
                "scope": scopes.get(int(fields[3], 16), "global"),
                "tentative": bool(flags & 0x40),
                "dadfailed": bool(flags & 0x08),
                "deprecated": bool(flags & 0x20),
            }
        )
    return found
