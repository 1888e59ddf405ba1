# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric import (
    KINDS,
    Interface,
    build_interfaces,
    build_routes,
    load_json,
    parse_if_inet6,
    parse_proc_route,
    pci_address,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "fabric"

PCI_NIC = {
    "type": "1\n",
    "device": "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0",
    "bus": "pci",
    "driver": "ice",
    "numa_node": "1\n",
}
USB_BMC = {
    "type": "1",
    "device": "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-6/1-6:2.0",
    "bus": "usb",
    "driver": "cdc_ether",
    "device_uevent": "DEVTYPE=usb_interface\nDRIVER=cdc_ether\nPRODUCT=46b/ffb0/100\n",
}
UP = {"flags": "0x1003", "operstate": "up\n", "carrier": "1\n"}


def one(link: Mapping[str, Any], sysfs: Mapping[str, Any]) -> Interface:
    name = str(link.get("ifname", "x"))
    return build_interfaces([{"ifname": name, **link}], {name: sysfs} if sysfs else {})[0]


def recorded() -> Dict[str, Interface]:
    rows = load_json((FIXTURES / "ip_d_addr.json").read_text())
    assert rows is not None
    return {interface.name: interface for interface in build_interfaces(rows)}


@pytest.mark.parametrize(
    ("link", "sysfs", "kind"),
    [
        ({"linkinfo": {"info_kind": "vxlan"}}, {}, "vxlan"),
        ({"linkinfo": {"info_kind": "macvtap"}}, {}, "macvlan"),
        ({"linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}}, {}, "tun"),
        ({"linkinfo": {"info_kind": "netkit"}}, {}, "veth"),
        ({"linkinfo": {"info_kind": "ip6tnl"}}, {}, "tunnel"),
        ({"linkinfo": {"info_kind": "something_new"}}, {}, "other"),
        # A bond of IPoIB members has their link type.
        ({"link_type": "infiniband", "linkinfo": {"info_kind": "bond"}}, {}, "bond"),
        # Names lie: an interface is what the kernel says.
        ({"ifname": "docker0", "parentbus": "pci"}, PCI_NIC, "ethernet"),
        ({"ifname": "eno1", "linkinfo": {"info_kind": "veth"}}, {}, "veth"),
        ({"ifname": "veth0"}, PCI_NIC, "ethernet"),
        ({"ifname": "eth0"}, {"type": "1", "is_bridge": True}, "bridge"),
        ({"ifname": "eth0"}, {"type": "1", "bonding": "802.3ad 4\n"}, "bond"),
        ({"ifname": "eth0"}, {"type": "1", "uevent": "DEVTYPE=wireguard\nINTERFACE=eth0\n"}, "wireguard"),
        ({"ifname": "eth0"}, {"type": "1", "uevent": "DEVTYPE=vlan\n"}, "vlan"),
        ({"ifname": "eth0"}, {"type": "1", "tun_flags": "0x1002\n"}, "tun"),
        (
            {"ifname": "eth0"},
            {"type": "32\n", "device": "/sys/devices/pci0000:00/0000:81:00.0", "bus": "pci"},
            "infiniband",
        ),
        ({"ifname": "eth0"}, {"type": "772\n"}, "loopback"),
        ({"ifname": "eth0"}, {"type": "768"}, "tunnel"),
        ({"ifname": "eth0"}, {"type": "1", "device": "/sys/d", "bus": "pci", "is_wireless": True}, "wireless"),
        ({"ifname": "eth0"}, {"type": "1", "ifindex": "5\n", "iflink": "9\n"}, "veth"),
        ({"ifname": "eth0"}, {"type": "1", "ifindex": "5\n", "iflink": "2\n", "lower": ["eno1"]}, "macvlan"),
        ({"ifname": "eth0"}, {"type": "1", "ifindex": "5", "iflink": "5", "flags": "0x82"}, "dummy"),
        ({"ifname": "eth7"}, USB_BMC, "bmc"),
        ({"ifname": "eth7"}, {**USB_BMC, "driver": "rndis_host"}, "bmc"),
        # Realtek's adapters bind to the class driver where the kernel has no better one.
        ({"ifname": "eth7"}, {**USB_BMC, "device_uevent": "PRODUCT=bda/8153/3100\n"}, "usb"),
        ({"ifname": "eth7"}, {**USB_BMC, "driver": "r8152"}, "usb"),
        # Nothing but a name and flags is known.
        ({"ifname": "wg1"}, {}, "wireguard"),
        ({"ifname": "tunl0", "flags": ["NOARP", "UP"]}, {}, "tunnel"),
        ({"ifname": "br-0123456789ab"}, {}, "bridge"),
        ({"ifname": "docker_gwbridge"}, {}, "bridge"),
        ({"ifname": "br-my-lan"}, {}, "bridge"),
        ({"ifname": "vmbr0"}, {}, "bridge"),
        ({"ifname": "gke0123456789a"}, {}, "veth"),
        ({"ifname": "cilium_host"}, {}, "tunnel"),
        ({"ifname": "cilium_vxlan"}, {}, "vxlan"),
        ({"ifname": "gretap0"}, {}, "tunnel"),
        ({"ifname": "tap1a2b3c4d-5e"}, {}, "tun"),
        ({"ifname": "wg-mesh"}, {}, "wireguard"),
        ({"ifname": "bond-data"}, {}, "bond"),
        ({"ifname": "ibP257p0s0"}, {}, "infiniband"),
        ({"ifname": "idrac"}, {}, "bmc"),
        ({"ifname": "wlP9s9"}, {}, "wireless"),
        ({"ifname": "enp0s20f0u1u6"}, {}, "usb"),
        ({"ifname": "corp", "flags": ["POINTOPOINT", "NOARP", "UP"]}, {}, "tunnel"),
        ({"ifname": "net1", "link_index": 3}, {}, "veth"),
        ({"ifname": "enp37s0f0"}, {}, "ethernet"),
        ({"ifname": "ens5"}, {}, "ethernet"),
        ({"ifname": "weaver0"}, {}, "ethernet"),
        ({"ifname": "hsn0"}, {}, "ethernet"),
    ],
)
def test_kind_is_what_the_kernel_says(link: Dict[str, Any], sysfs: Dict[str, Any], kind: str) -> None:
    found = one(link, sysfs)
    assert found.kind == kind
    assert kind in KINDS
    assert found.is_bmc is (kind == "bmc")


@pytest.mark.parametrize(
    ("link", "sysfs", "state", "reason"),
    [
        ({"flags": ["UP", "LOWER_UP"], "operstate": "UP"}, {}, "up", ""),
        ({"flags": ["UP", "LOWER_UP"], "operstate": "UNKNOWN"}, {}, "up", ""),
        ({"flags": ["UP", "RUNNING"]}, {}, "up", ""),
        ({"flags": ["UP"]}, {}, "down", "no carrier"),
        ({"flags": ["UP", "NO-CARRIER"], "operstate": "DOWN"}, {}, "down", "no carrier"),
        ({"flags": ["UP"], "operstate": "LOWERLAYERDOWN"}, {}, "down", "the interface below is down"),
        ({"flags": ["UP", "LOWER_UP"], "operstate": "DORMANT"}, {}, "down", "dormant"),
        ({"flags": ["BROADCAST"], "operstate": "DOWN"}, {}, "down", "administratively down"),
        ({}, UP, "up", ""),
        ({}, {**UP, "carrier": "0\n", "operstate": "down\n"}, "down", "no carrier"),
        ({}, {**UP, "flags": "0x1002"}, "down", "administratively down"),
    ],
)
def test_state(link: Dict[str, Any], sysfs: Dict[str, Any], state: str, reason: str) -> None:
    found = one(link, sysfs)
    assert (found.state, found.down_reason) == (state, reason)


@pytest.mark.parametrize(
    ("sysfs", "speed"),
    [
        ({**PCI_NIC, "speed": "100000\n"}, 100000),
        ({**PCI_NIC, "speed": "-1\n"}, None),
        ({**PCI_NIC, "speed": "4294967295\n"}, None),
        ({**PCI_NIC, "speed": "65535\n"}, None),
        (PCI_NIC, None),
        ({"type": "1", "tun_flags": "0x1001", "speed": "10\n"}, None),
        ({"type": "1", "ifindex": "5", "iflink": "6", "speed": "10000\n"}, None),
    ],
)
def test_invented_speeds_are_not_reported(sysfs: Dict[str, Any], speed: Any) -> None:
    assert one({}, sysfs).speed_mbps == speed


def test_place_of_a_nic() -> None:
    found = one({}, {**PCI_NIC, **UP, "is_virtual_function": True, "mtu": "9000\n", "ifindex": "2"})
    assert (found.driver, found.bus, found.pci_address, found.numa_node) == ("ice", "pci", "0000:41:00.0", 1)
    assert (found.mtu, found.ifindex, found.is_virtual_function) == (9000, 2, True)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/sys/devices/pci0000:00/0000:00:03.0/virtio0", "0000:00:03.0"),
        ("/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0/mlx5_core.sf.4", "0000:03:00.0"),
        ("/sys/devices/pci10000:e0/10000:e0:02.0/10000:e1:00.0", "10000:e1:00.0"),
        ("/sys/devices/LNXSYSTM:00/VMBUS:00/f8615163-0000-1000-2000-0022482b5c5e", ""),
    ],
)
def test_pci_address(path: str, address: str) -> None:
    assert pci_address(path) == address


def test_a_usb_nic_has_no_pci_place_of_its_own() -> None:
    assert one({}, USB_BMC).pci_address == ""


def test_numa_node_of_minus_one_is_none() -> None:
    assert one({}, {**PCI_NIC, "numa_node": "-1\n"}).numa_node is None


def test_recorded_node() -> None:
    """The table a chooser sees: what stands on hardware first, container bridges last, the BMC and loopback not."""
    found = recorded()
    table = {name: (item.kind, item.hardware, item.is_candidate, item.rank) for name, item in found.items()}
    assert table == {
        "lo": ("loopback", (), False, 9),
        "oob0": ("ethernet", ("oob0",), True, 0),
        "lan1": ("ethernet", ("lan1",), False, 9),
        "lan2": ("ethernet", ("lan2",), False, 9),
        "agg": ("bond", ("lan1", "lan2"), False, 9),
        "fabric": ("vlan", ("lan1", "lan2"), True, 0),
        "lan9": ("bridge", (), True, 4),
        "x1@y": ("veth", (), False, 9),
        "uplink": ("bridge", ("lan3",), True, 0),
        "lan3": ("ethernet", ("lan3",), False, 9),
        "mesh": ("wireguard", (), True, 3),
        "svc": ("dummy", (), False, 9),
        "storage": ("infiniband", ("storage",), False, 9),
        "svc6": ("bmc", (), False, 9),
    }
    assert found["fabric"].vlan_id == 2093
    assert found["agg"].bond_mode == "802.3ad"
    assert found["agg"].lower == ("lan1", "lan2")
    assert found["lan1"].candidate_reason == "no address, it is a member of agg"
    assert found["lan1"].pci_address == "0000:41:00.0"
    assert found["svc6"].link_local_only
    assert found["x1@y"].peer_elsewhere


def nic(name: str, **more: Any) -> Dict[str, Any]:
    address = more.pop("address", None)
    info = [{"local": address, "prefixlen": 24, "scope": "global"}] if address else []
    return {"ifname": name, "flags": ["UP", "LOWER_UP"], "operstate": "UP", "addr_info": info, **more}


@pytest.mark.parametrize(
    ("links", "name", "expected"),
    [
        # In a container the veth is the way out.
        ([nic("eth0", address="10.0.0.2", link_index=9, linkinfo={"info_kind": "veth"})], "eth0", (True, 1)),
        # Both ends here, as Cilium's and Calico's own pairs.
        (
            [
                nic("c0", address="10.0.0.2", link="c1", linkinfo={"info_kind": "veth"}),
                nic("c1", link="c0", linkinfo={"info_kind": "veth"}),
            ],
            "c0",
            (True, 4),
        ),
        ([nic("net1", address="10.0.0.2", link_netnsid=0, linkinfo={"info_kind": "macvlan"})], "net1", (True, 1)),
        (
            [
                nic("mv0", address="10.0.0.2", link="p1", linkinfo={"info_kind": "macvlan"}),
                nic("p1", parentbus="pci"),
            ],
            "mv0",
            (True, 0),
        ),
        # Open vSwitch: the internal port carries the node's address, the NIC is another port of the datapath.
        (
            [
                nic("br-ex", address="10.0.0.2", master="ovs-system", linkinfo={"info_kind": "openvswitch"}),
                nic("ovs-system", linkinfo={"info_kind": "openvswitch"}),
                nic("p1", master="ovs-system", parentbus="pci"),
            ],
            "br-ex",
            (True, 0),
        ),
        ([nic("p1", address="169.254.10.1", parentbus="pci")], "p1", (True, 5)),
        ([nic("p1", address="fe80::1", parentbus="pci")], "p1", (False, 9)),
        ([nic("p1", address="2001:db8::1", parentbus="pci")], "p1", (True, 0)),
        ([nic("u1", address="10.0.0.2", parentbus="usb")], "u1", (True, 2)),
        # Hyper-V: the synthetic NIC has the address, the virtual function below it does the work.
        (
            [nic("eth0", address="10.0.0.2", parentbus="vmbus"), nic("vf0", master="eth0", parentbus="pci")],
            "eth0",
            (True, 0),
        ),
        ([nic("g0", address="10.0.0.2", linkinfo={"info_kind": "gre"})], "g0", (True, 3)),
    ],
)
def test_candidates(links: Any, name: str, expected: Tuple[bool, int]) -> None:
    found = {item.name: item for item in build_interfaces(links)}[name]
    assert (found.is_candidate, found.rank) == expected
    assert found.candidate_reason


def test_speed_of_what_stands_on_a_nic() -> None:
    links = [
        nic("p1", master="br0", parentbus="pci"),
        nic("br0", address="10.0.0.1", linkinfo={"info_kind": "bridge"}),
        nic("br1", address="10.0.1.1", linkinfo={"info_kind": "bridge"}),
        nic("v1", master="br1", linkinfo={"info_kind": "veth"}),
    ]
    sysfs = {
        "p1": {**PCI_NIC, "speed": "25000"},
        "br0": {"is_bridge": True, "speed": "10000"},
        "br1": {"is_bridge": True, "speed": "10000"},
    }
    found = {item.name: item.speed_mbps for item in build_interfaces(links, sysfs)}
    assert (found["br0"], found["br1"]) == (25000, None)


def test_an_interface_that_only_sysfs_knows_is_listed() -> None:
    names = [item.name for item in build_interfaces([nic("lo")], {"lo": {}, "eno9": {**PCI_NIC, **UP}})]
    assert names == ["lo", "eno9"]


def test_addresses_keep_what_a_chooser_needs() -> None:
    link = nic("p1", parentbus="pci")
    link["addr_info"] = [
        {"local": "10.0.0.1", "address": "10.0.0.2", "prefixlen": 32, "scope": "global"},
        {"local": "2001:db8::1", "prefixlen": 64, "scope": "global", "tentative": True},
        {"local": "2001:db8::2", "prefixlen": 64, "scope": "global", "temporary": True, "deprecated": True},
        {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
        {},
    ]
    found = build_interfaces([link])[0].addresses
    assert [(item.address, item.prefix, item.family, item.peer, item.usable, item.flags) for item in found] == [
        ("10.0.0.1", 32, "ipv4", "10.0.0.2", True, ()),
        ("2001:db8::1", 64, "ipv6", None, False, ("tentative",)),
        ("2001:db8::2", 64, "ipv6", None, True, ("deprecated", "temporary")),
        ("fe80::1", 64, "ipv6", None, False, ()),
    ]


def test_routes() -> None:
    rows = [
        {"dst": "default", "gateway": "10.0.0.254", "dev": "eno1", "protocol": "dhcp", "metric": 100, "flags": []},
        {"dst": "10.0.0.0/24", "dev": "eno1", "protocol": "kernel", "scope": "link", "prefsrc": "10.0.0.1"},
        {"dst": "10.7.0.9", "dev": "ppp0", "scope": "link"},
        {"dst": "default", "gateway": "fe80::1", "dev": "eno1", "metric": 1024},
        {"dst": "default", "dev": "eno2", "family": "ipv6"},
        {"type": "blackhole", "dst": "10.9.0.0/16"},
        {"type": "unreachable", "dst": "fd00::/8", "dev": "lo"},
        {"dst": "10.8.0.0/16", "nexthops": [{"gateway": "10.0.0.2", "dev": "a"}, {"gateway": "10.1.0.2", "dev": "b"}]},
        {"dst": "192.0.2.0/24", "via": {"family": "inet6", "host": "fe80::9"}, "dev": "eno1"},
    ]
    found = [(r.destination, r.interface, r.gateway, r.is_default) for r in build_routes(rows)]
    assert found == [
        ("0.0.0.0/0", "eno1", "10.0.0.254", True),
        ("10.0.0.0/24", "eno1", "", False),
        ("10.7.0.9/32", "ppp0", "", False),
        ("::/0", "eno1", "fe80::1", True),
        ("::/0", "eno2", "", True),
        ("10.8.0.0/16", "a", "10.0.0.2", False),
        ("10.8.0.0/16", "b", "10.1.0.2", False),
        ("192.0.2.0/24", "eno1", "fe80::9", False),
    ]


def test_proc_route() -> None:
    text = (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\tFE00000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "*\t0000FEA9\t00000000\t0200\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    )
    found = build_routes(parse_proc_route(text))
    assert [(r.destination, r.gateway, r.metric) for r in found] == [
        ("0.0.0.0/0", "10.0.0.254", 100),
        ("10.0.0.0/24", "", 0),
    ]


def test_if_inet6() -> None:
    text = (
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "20010db8000000000000000000000005 02 40 00 40     eth0\n"
        "fe800000000000000000000000000005 02 40 20 80     eth0\n"
    )
    found = parse_if_inet6(text)
    assert [(item["local"], item["prefixlen"], item["scope"]) for item in found["eth0"]] == [
        ("2001:db8::5", 64, "global"),
        ("fe80::5", 64, "link"),
    ]
    assert found["eth0"][0]["tentative"] is True


@pytest.mark.parametrize("text", ["", 'Object "-j" is unknown', "[{", "null", "{}"])
def test_no_json_is_told_from_an_empty_list(text: str) -> None:
    assert load_json(text) is None
    assert load_json("[]") == []
