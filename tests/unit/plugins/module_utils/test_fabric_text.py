# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric import (
    Interface,
    build_interfaces,
    build_routes,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric_text import (
    parse_ifconfig,
    parse_ip_addr,
    parse_ip_route,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "fabric"
SHARED = Path(__file__).resolve().parents[4].parent / "shared" / "fixtures" / "ib"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared samples of real output are not here")


def built(links: List[Dict[str, Any]]) -> Dict[str, Interface]:
    return {item.name: item for item in build_interfaces(links)}


def cidrs(interface: Interface) -> List[str]:
    return [f"{item.address}/{item.prefix}" for item in interface.addresses]


def test_ip_addr() -> None:
    found = built(parse_ip_addr((FIXTURES / "ip_addr_container_host.txt").read_text()))
    table = {name: (item.kind, item.state, item.mtu, item.master, cidrs(item)) for name, item in found.items()}
    assert table == {
        "lo": ("loopback", "up", 65536, "", ["127.0.0.1/8"]),
        "eno1": ("ethernet", "up", 9000, "bond0", []),
        "eno2": ("ethernet", "down", 9000, "bond0", []),
        "bond0": ("bond", "up", 9000, "", ["10.20.0.1/24", "10.20.0.9/24"]),
        "bond0.2093": ("vlan", "up", 9000, "", ["10.20.93.1/24", "2001:db8:93::1/64"]),
        "docker0": ("bridge", "down", 1500, "", ["172.17.0.1/16"]),
        "ib0": ("infiniband", "up", 2044, "", ["10.30.0.1/16"]),
        "wg0": ("wireguard", "up", 1420, "", ["10.99.0.1/32"]),
        "veth1a2b3c4": ("veth", "up", 1500, "docker0", []),
    }
    assert found["eno1"].alt_names == ("enp4s0f0", "ens1f0")
    assert found["bond0.2093"].lower == ("bond0",)
    assert found["bond0.2093"].hardware == ("eno1", "eno2")
    assert found["bond0.2093"].vlan_id == 2093
    assert found["bond0.2093"].addresses[1].usable is False
    assert found["bond0"].addresses[1].flags == ("secondary",)
    assert found["wg0"].addresses[0].peer == "10.99.0.2"
    assert found["veth1a2b3c4"].peer_elsewhere


def test_ip_d_addr_names_kinds_that_names_hide() -> None:
    text = (
        "5: fabric@agg: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc noqueue state UP group default qlen 1000\n"
        "    link/ether 02:00:5e:00:00:05 brd ff:ff:ff:ff:ff:ff promiscuity 0\n"
        "    vlan protocol 802.1Q id 2093 <REORDER_HDR> numtxqueues 1\n"
        "    inet 10.20.93.1/24 scope global fabric\n"
    )
    found = built(parse_ip_addr(text))["fabric"]
    assert (found.kind, found.vlan_id, found.lower) == ("vlan", 2093, ("agg",))


@pytest.mark.parametrize(
    ("detail", "kind"),
    [
        ("gretap remote 192.0.2.1 local 192.0.2.2 dev eth0 ttl inherit nopmtudisc", "tunnel"),
        ("geneve id 7 remote 192.0.2.9 ttl auto dstport 6081", "tunnel"),
        ("macsec sci 02005e0000050001 protect on", "vlan"),
        ("netkit mode l3 type peer", "veth"),
        ("ipvtap mode l2", "ipvlan"),
        ("openvswitch_slave addrgenmode eui64", "ethernet"),
    ],
)
def test_ip_d_addr_knows_every_kind_of_the_kernel(detail: str, kind: str) -> None:
    text = (
        "6: over: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UNKNOWN group default\n"
        f"    link/ether 02:00:5e:00:00:06 brd ff:ff:ff:ff:ff:ff promiscuity 0\n    {detail}\n"
    )
    assert built(parse_ip_addr(text))["over"].kind == kind


def test_vlan_of_an_old_tool_stands_on_the_interface_of_its_name() -> None:
    text = (
        "eth0      Link encap:Ethernet  HWaddr 02:00:5e:00:00:01\n"
        "          inet addr:10.0.0.1  Bcast:10.0.0.255  Mask:255.255.255.0\n"
        "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n"
        "eth0.50   Link encap:Ethernet  HWaddr 02:00:5e:00:00:01\n"
        "          inet addr:10.50.0.1  Bcast:10.50.0.255  Mask:255.255.255.0\n"
        "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n"
        "eth9.50   Link encap:Ethernet  HWaddr 02:00:5e:00:00:09\n"
        "          inet addr:10.59.0.1  Bcast:10.59.0.255  Mask:255.255.255.0\n"
        "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n"
    )
    found = built(parse_ifconfig(text))
    assert [(item.kind, item.lower, item.hardware) for item in found.values()] == [
        ("ethernet", (), ("eth0",)),
        ("vlan", ("eth0",), ("eth0",)),
        ("vlan", (), ()),
    ]


def test_ip_o_addr() -> None:
    text = (
        "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever\n"
        "2: eno1    inet 10.0.0.1/24 brd 10.0.0.255 scope global dynamic eno1\\       valid_lft 10sec\n"
        "2: eno1    inet6 fe80::1/64 scope link \\       valid_lft forever preferred_lft forever\n"
    )
    found = {item["ifname"]: item for item in parse_ip_addr(text)}
    assert [entry["local"] for entry in found["eno1"]["addr_info"]] == ["10.0.0.1", "fe80::1"]


def test_old_ifconfig() -> None:
    found = built(parse_ifconfig((FIXTURES / "ifconfig_old.txt").read_text()))
    table = {name: (item.kind, item.state, item.mtu, cidrs(item)) for name, item in found.items()}
    assert table == {
        "eth0": ("ethernet", "up", 9000, ["10.0.0.5/24", "fe80::5eff:fe00:1/64", "2001:db8::5/64", "10.0.0.6/24"]),
        "eth1": ("ethernet", "down", 1500, []),
        "lo": ("loopback", "up", 65536, ["127.0.0.1/8"]),
        "tun0": ("tun", "up", 1500, ["10.8.0.6/32"]),
    }
    assert found["eth0"].mac == "02:00:5e:00:00:01"
    assert found["tun0"].addresses[0].peer == "10.8.0.5"


def test_ip_route() -> None:
    text = (
        "default via 10.0.0.254 dev eno1 proto dhcp src 10.0.0.1 metric 100\n"
        "10.0.0.0/24 dev eno1 proto kernel scope link src 10.0.0.1\n"
        "blackhole 10.9.0.0/16\n"
        "10.8.0.0/16 proto static\n"
        "\tnexthop via 10.0.0.2 dev eno1 weight 1\n"
        "\tnexthop via 10.1.0.2 dev eno2 weight 1\n"
    )
    found = [(r.destination, r.gateway, r.interface, r.source, r.metric) for r in build_routes(parse_ip_route(text))]
    assert found == [
        ("0.0.0.0/0", "10.0.0.254", "eno1", "10.0.0.1", 100),
        ("10.0.0.0/24", "", "eno1", "10.0.0.1", 0),
        ("10.8.0.0/16", "10.0.0.2", "eno1", "", 0),
        ("10.8.0.0/16", "10.1.0.2", "eno2", "", 0),
    ]


@needs_shared
@pytest.mark.parametrize(
    ("name", "parse", "expected"),
    [
        (
            "t_nccl1580_ip_addr.txt",
            parse_ip_addr,
            {
                "lo": ("loopback", "up", ["127.0.0.1/8", "::1/128"]),
                "eno1": ("ethernet", "up", ["192.168.3.15/20", "fe80::ae1f:6bff:fee7:210e/64"]),
                "eno2": ("ethernet", "down", []),
                "enp37s0f0": ("ethernet", "up", ["192.168.5.15/20", "fe80::a236:90ff:fe2a:7688/64"]),
                "enp37s0f1": ("ethernet", "down", []),
            },
        ),
        (
            "t_nccl634_ifconfig_s.txt",
            parse_ifconfig,
            {
                "eno1np0": ("ethernet", "up", []),
                "eno2np1": ("ethernet", "down", []),
                "enp0s20f0u1u6": ("usb", "up", []),
                "ib0": ("infiniband", "up", []),
                "ib1": ("infiniband", "up", []),
                "ib-bond0": ("bond", "up", []),
            },
        ),
        (
            "t_calico2072_ip_addr_wg.txt",
            parse_ip_addr,
            {
                "lo": ("loopback", "up", []),
                "eth0": ("ethernet", "up", []),
                "wg0": ("wireguard", "up", []),
                "docker0": ("bridge", "down", []),
                "cali217c693643a": ("veth", "up", []),
                "cali893367b5351": ("veth", "up", []),
                "tunl0": ("tunnel", "up", []),
                "cali12d4a061371": ("veth", "up", []),
            },
        ),
        (
            "t_pytorch52916_ifconfig_master.txt",
            parse_ifconfig,
            {
                "enp0s31f6": (
                    "ethernet",
                    "up",
                    ["203.0.113.243/32", "2001:db8:202:61ed::2/64", "fe80::921b:eff:fef7:15a1/64"],
                ),
                "lo": ("loopback", "up", ["127.0.0.1/8", "::1/128"]),
            },
        ),
        (
            "mleng__ifconfig.txt",
            parse_ifconfig,
            {
                "docker0": ("bridge", "up", ["172.99.0.1/16", "f330::42:fe33:f335:7c94/64"]),
                "lo": ("loopback", "up", ["127.0.0.1/8", "::1/128"]),
                "eth0": ("ethernet", "up", ["10.0.0.23/24", "2601:3108:1c71:600:4224:7e4b:13e4:7b54/64"]),
            },
        ),
    ],
)
def test_real_output(name: str, parse: Any, expected: Dict[str, Any]) -> None:
    found = built(parse((SHARED / name).read_text()))
    assert {item.name: (item.kind, item.state, cidrs(item)) for item in found.values()} == expected


@needs_shared
def test_members_of_the_only_bond_are_told_by_their_flag() -> None:
    found = built(parse_ifconfig((SHARED / "t_nccl634_ifconfig_s.txt").read_text()))
    assert (found["ib0"].master, found["ib1"].master, found["eno1np0"].master) == ("ib-bond0", "ib-bond0", "")
    assert found["ib-bond0"].hardware == ("ib0", "ib1")
