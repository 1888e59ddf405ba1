# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._candidates import (
    BMC,
    REAL,
    TUNNEL,
    USB,
    VIRTUAL,
    all_addresses,
    find_candidates,
    guess_kind,
)


@pytest.mark.parametrize(
    "kind, names",
    [
        ("loopback", "lo"),
        ("physical", "eno1 enp99s0 enp27s0f0np0 eth0 ens5 net1 wan0 rdma0 gpu0eth"),
        ("wireless", "wlp2s0 wlan0"),
        ("usb", "enp0s20f0u1u6 enx3c18a0123456 usb0"),
        ("bond", "bond0 ib-bond0 team0 bond-data bond_mgmt"),
        ("vlan", "bond0.2093 bond0.2093.1 eth0.100 vlan42"),
        ("ipoib", "ib0 ibp26s0 ibs1"),
        ("bridge", "docker0 br-03e037269530 virbr0 cni0 lxdbr0 podman1 br0 vmbr0 docker_gwbridge br-my-lan vmnet8"),
        ("veth", "veth25f2e72 veth0 cali1a2b3c4d5e6 lxc1234abcd eni1a2b3c4d5e6 vnet3"),
        (
            "tunnel",
            "tun0 wg0 tailscale0 ip6tnl0 tunl0 flannel.1 vxlan.calico cilium_vxlan zt5u4uxxxx sit0 genev_sys_6081 "
            "ham0 tap1a2b3c4d-5e tmfifo_net0",
        ),
        ("dummy", "dummy0 kube-ipvs0"),
        ("bmc", "bmc0 idrac"),
    ],
)
def test_kind_by_name(kind: str, names: str) -> None:
    assert {name: guess_kind(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


def fact(name: str, *addresses: Any, **more: Any) -> Dict[str, Any]:
    return {"name": name, "state": "up", "addresses": list(addresses), **more}


@pytest.mark.parametrize(
    "interfaces, tier",
    [
        ([fact("eth0", "10.0.0.1/24", kind="veth")], VIRTUAL),
        ([fact("veth7", "10.0.0.1/24", kind="ethernet")], REAL),
        ([fact("docker0", "172.17.0.1/16", kind="bridge"), fact("veth1", kind="veth", master="docker0")], VIRTUAL),
        ([fact("br0", "10.0.0.1/24", kind="bridge"), fact("eno1", kind="ethernet", master="br0")], REAL),
        ([fact("br-ex", "10.0.0.1/24", kind="openvswitch", hardware=["eno1"])], REAL),
        ([fact("tailscale0", "100.64.0.1/32", kind="tun", hardware=[])], TUNNEL),
        ([fact("enp0s20f0u1u6", "169.254.95.120/16")], USB),
        ([fact("wlp2s0", "192.168.1.7/24")], USB),
        ([fact("eth2", "169.254.0.2/16", kind="usb", is_bmc=True)], BMC),
        ([{"name": "eth0", "addresses": ["10.0.0.1/24"]}], REAL),
    ],
)
def test_tier_is_what_the_interface_is(interfaces: List[Dict[str, Any]], tier: int) -> None:
    assert [candidate.tier for candidate in find_candidates(interfaces)[0]] == [tier]


@pytest.mark.parametrize(
    "interface, why",
    [
        (fact("lo", "127.0.0.1/8", state="unknown"), "loopback"),
        (fact("eth0", "10.0.0.1/24", state="DOWN"), "down"),
        (fact("eth0", "10.0.0.1/24", state="lowerlayerdown"), "lowerlayerdown"),
        (fact("eth0", "10.0.0.1/24", state="down", down_reason="no carrier"), "down (no carrier)"),
        (fact("ib0", "10.0.0.1/24", master="bond0"), "part of bond0"),
        (fact("eth1", "fe80::1/64"), "only a link-local address"),
        (fact("eth1", {"address": "2001:db8::1", "prefix": 64, "flags": ["tentative"]}), "only a link-local address"),
        (fact("eth1"), "no address"),
        (fact("eth1", "not an address"), "no address"),
    ],
)
def test_no_candidate(interface: Dict[str, Any], why: str) -> None:
    assert find_candidates([interface]) == ((), {interface["name"]: why})


def test_first_address_of_each_family_is_the_one_that_counts() -> None:
    addresses = ["10.0.0.1/24", "10.0.0.9/24", "fe80::1/64", {"address": "2001:DB8::1", "prefix": 64}, "2001:db8::2/64"]
    found, _passed = find_candidates([fact("eth0@if5", *addresses, mtu="9000", speed_mbps=-1)])
    assert [(one.interface, one.address, one.mtu, one.speed_mbps) for one in found] == [
        ("eth0", "10.0.0.1", 9000, None),
        ("eth0", "2001:db8::1", 9000, None),
    ]
    assert all_addresses([fact("eth0", *addresses)])["10.0.0.9"] == "eth0"


@pytest.mark.parametrize(
    "address, subnet",
    [
        ("10.0.0.1/24", "10.0.0.0/24"),
        ("10.0.0.1/31", "10.0.0.0/31"),
        ("10.0.0.1/32", None),
        ("10.0.0.1", None),
        ("2001:db8::1/128", None),
        ("2001:db8::1/127", "2001:db8::/127"),
    ],
)
def test_subnet_says_who_else_may_be_on_it(address: str, subnet: Any) -> None:
    assert find_candidates([fact("eth0", address)])[0][0].subnet == subnet


def test_invented_speed_of_a_veth_is_not_believed() -> None:
    veth, nic = find_candidates([fact("v", "10.0.0.1/24", kind="veth", speed_mbps=10000), fact("e", "10.1.0.1/24")])[0]
    assert veth.speed_mbps is None
    assert veth.assumed_speed == nic.assumed_speed
