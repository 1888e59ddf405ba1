# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ipaddress
from typing import Any, Callable, Dict, List, Optional

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import build_cluster
from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import (
    NetworkError,
    choose_network,
    gloo_socket_ifname,
    nccl_ib_hca,
    nccl_socket_family,
    nccl_socket_ifname,
)

Node = Dict[str, Any]
Rule = Callable[[Node, Dict[str, Any], Node, Dict[str, Any]], Any]


def nic(name: str, *addresses: str, speed: Optional[int] = None, **more: Any) -> Dict[str, Any]:
    return {"name": name, "state": "up", "addresses": list(addresses), "speed_mbps": speed, **more}


def node(name: str, *interfaces: Dict[str, Any], **more: Any) -> Node:
    return {"name": name, "interfaces": list(interfaces), **more}


def same_subnet(_a: Node, here: Dict[str, Any], _b: Node, there: Dict[str, Any]) -> bool:
    left, right = (ipaddress.ip_interface(side["addresses"][0]) for side in (here, there))
    return left.network == right.network and left.ip != right.ip


def measure(nodes: List[Node], rule: Rule = same_subnet) -> List[Dict[str, Any]]:
    """The matrix as the probe would find it. A rule says True, False, why not, or what was measured."""
    links = []
    for a in nodes:
        for b in nodes:
            for here in a["interfaces"]:
                for there in b["interfaces"]:
                    if a is b or not here["addresses"] or not there["addresses"]:
                        continue
                    found = rule(a, here, b, there)
                    if isinstance(found, str):
                        found = {"ok": False, "why": found}
                    elif not isinstance(found, dict):
                        found = {"ok": found, "why": "" if found else "timeout"}
                    links.append(
                        {
                            "source": a["name"],
                            "source_address": here["addresses"][0].split("/")[0],
                            "target": b["name"],
                            "target_address": there["addresses"][0].split("/")[0],
                            **found,
                        }
                    )
    return links


def chosen(nodes: List[Node], rule: Rule = same_subnet, **more: Any) -> List[str]:
    return [found.interface for found in choose_network(nodes, measure(nodes, rule), **more).nodes]


def three(*nets: Any) -> List[Node]:
    """Nodes a, b, c, with one interface per (name, network, speed)."""
    return [
        node(name, *(nic(eth, f"{net}.{at}/24", speed=speed) for eth, net, speed in nets))
        for at, name in enumerate("abc", start=1)
    ]


def test_names_differ_per_node() -> None:
    nodes = [node("a", nic("eno1", "10.0.0.1/24")), node("b", nic("enp99s0", "10.0.0.2/24"))]
    assert chosen(nodes) == ["eno1", "enp99s0"]


def test_fastest_network_wins() -> None:
    assert chosen(three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 100000))) == ["eth1"] * 3


def test_of_two_equal_networks_the_one_on_the_first_pci_domain_is_taken() -> None:
    assert chosen(three(("enP2p1s0f1np1", "10.1.0", 200000), ("enp1s0f1np1", "10.0.0", 200000))) == ["enp1s0f1np1"] * 3


def test_a_wire_by_way_of_usb_comes_before_radio() -> None:
    assert chosen(three(("wlp2s0", "10.0.0", None), ("enx02005e000001", "10.1.0", 2500))) == ["enx02005e000001"] * 3


def test_one_slow_link_makes_a_fast_network_slow() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 10000))
    nodes[2]["interfaces"][1]["speed_mbps"] = 100
    assert chosen(nodes) == ["eth0"] * 3


def test_measured_bandwidth_overrules_the_nominal_speed() -> None:
    def shaped(a: Node, here: Dict[str, Any], b: Node, there: Dict[str, Any]) -> Any:
        mbps = 96.0 if here["name"] == "eth1" else 900.0
        return same_subnet(a, here, b, there) and {"ok": True, "bandwidth_mbps": mbps}

    assert chosen(three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 10000)), shaped) == ["eth0"] * 3


def test_private_network_that_looks_fine_and_is_not_reachable() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 100000))
    assert chosen(nodes, lambda a, h, b, t: h["name"] == t["name"] == "eth0") == ["eth0"] * 3


def test_one_direction_is_not_enough() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 100000))

    def firewall(a: Node, here: Dict[str, Any], b: Node, there: Dict[str, Any]) -> bool:
        return same_subnet(a, here, b, there) and not (b["name"] == "c" and there["name"] == "eth1")

    assert chosen(nodes, firewall) == ["eth0"] * 3


def test_management_nic_in_the_same_subnet_as_the_fast_one() -> None:
    nodes = [
        node(name, nic("eno1", f"10.0.0.{at}/24", speed=1000), nic("enp65s0", f"10.0.0.{at + 100}/24", speed=100000))
        for at, name in enumerate("abc", start=1)
    ]
    assert chosen(nodes, lambda *_any: True) == ["enp65s0"] * 3
    choice = choose_network(
        nodes, measure(nodes, lambda a, h, b, t: {"ok": True, "via": f"10.0.0.{'abc'.index(a['name']) + 1}"})
    )
    assert "different subnets" in choice.warnings[0]


@pytest.mark.parametrize("prefix", [31, 32])
def test_point_to_point_addresses(prefix: int) -> None:
    nodes = [node("a", nic("enp1s0", f"10.9.0.0/{prefix}")), node("b", nic("enp2s0", f"10.9.0.1/{prefix}"))]
    assert chosen(nodes, lambda *_any: True) == ["enp1s0", "enp2s0"]


def test_each_node_in_a_subnet_of_its_own_behind_routers() -> None:
    nodes = [
        node(name, nic("eno1", f"192.168.0.{at}/24", speed=1000), nic(fast, f"10.{at}.0.1/31", speed=100000))
        for at, (name, fast) in enumerate([("a", "enp1s0"), ("b", "enp2s0"), ("c", "enp3s0")], start=1)
    ]

    def routed(_a: Node, here: Dict[str, Any], _b: Node, there: Dict[str, Any]) -> bool:
        return (here["name"] == "eno1") == (there["name"] == "eno1")

    assert chosen(nodes, routed) == ["enp1s0", "enp2s0", "enp3s0"]


def test_cables_between_pairs_do_not_make_a_network() -> None:
    nodes = [
        node("a", nic("p1", "10.1.0.0/31", speed=100000), nic("p2", "10.2.0.0/31", speed=100000)),
        node("b", nic("p1", "10.1.0.1/31", speed=100000), nic("p2", "10.3.0.0/31", speed=100000)),
        node("c", nic("p1", "10.2.0.1/31", speed=100000), nic("p2", "10.3.0.1/31", speed=100000)),
    ]
    with pytest.raises(NetworkError):
        chosen(nodes)
    for at, one in enumerate(nodes, start=1):
        one["interfaces"].append(nic("eno1", f"192.168.0.{at}/24", speed=1000))
    assert chosen(nodes) == ["eno1"] * 3


def test_one_network_is_preferred_to_a_mixture_that_hosts_happen_to_answer() -> None:
    nodes = three(("eth0", "10.0.0", 10000), ("eth1", "10.1.0", 10000))
    nodes[0]["interfaces"].reverse()
    picked = chosen(nodes, lambda *_any: True)
    assert picked in (["eth0"] * 3, ["eth1"] * 3)


def test_virtual_interfaces_come_last_but_not_never() -> None:
    nodes = [
        node(
            name,
            nic("eth0", f"10.0.0.{at}/24", kind="veth", speed=10000),
            nic("tun0", f"10.8.0.{at}/24", kind="tunnel"),
        )
        for at, name in enumerate("ab", start=1)
    ]
    assert chosen(nodes) == ["eth0", "eth0"]
    assert chosen(nodes, lambda a, h, b, t: h["name"] == t["name"] == "tun0") == ["tun0", "tun0"]
    for at, one in enumerate(nodes, start=1):
        one["interfaces"].append(nic("eno1", f"10.2.0.{at}/24", speed=100))
    assert chosen(nodes) == ["eno1", "eno1"]


def test_a_container_beside_machines() -> None:
    nodes = three(("eno1", "10.0.0", 1000))
    nodes[2]["interfaces"] = [nic("eth0", "10.0.0.3/24", kind="veth", speed=10000)]
    for one in nodes[:2]:
        one["interfaces"].append(nic("docker0", "172.17.0.1/16", kind="bridge"))
    assert chosen(nodes) == ["eno1", "eno1", "eth0"]


def test_same_docker_address_everywhere_is_no_network() -> None:
    nodes = [node(name, nic("docker0", "172.17.0.1/16", kind="bridge")) for name in "ab"]
    with pytest.raises(NetworkError) as refused:
        chosen(nodes, lambda *_any: "own_address")
    assert "has 172.17.0.1 too" in refused.value.problems[0]


def test_ipv6_only_and_dual_stack() -> None:
    six = [node(name, nic("eth0", f"2001:db8::{at}/64", "fe80::1/64")) for at, name in enumerate("ab", start=1)]
    choice = choose_network(six, measure(six))
    assert [found.address for found in choice.nodes] == ["2001:db8::1", "2001:db8::2"]
    both = [node(name, nic("eth0", f"10.0.0.{at}/24", f"2001:db8::{at}/64")) for at, name in enumerate("ab", start=1)]
    links = measure(both) + measure(six)
    assert [found.address for found in choose_network(both, links).nodes] == ["10.0.0.1", "10.0.0.2"]
    dead = [{**link, "ok": ":" in link["target_address"]} for link in links]
    assert [found.address for found in choose_network(both, dead).nodes] == ["2001:db8::1", "2001:db8::2"]


def test_interfaces_that_are_down_or_slaves_are_not_taken() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 100000), ("ens1", "10.2.0", 100000))
    nodes[1]["interfaces"][1]["state"] = "lowerlayerdown"
    nodes[2]["interfaces"][2]["master"] = "bond0"
    assert chosen(nodes, lambda a, h, b, t: h["name"] == t["name"]) == ["eth0"] * 3


def test_lossy_jumbo_path_is_named_with_its_remedy() -> None:
    nodes = three(("eth0", "10.0.0", 100000))

    def jumbo(a: Node, _here: Dict[str, Any], b: Node, _there: Dict[str, Any]) -> Any:
        return {"ok": False, "why": "mtu", "path_mtu": 1500} if {a["name"], b["name"]} == {"a", "c"} else True

    with pytest.raises(NetworkError) as refused:
        chosen(nodes, jumbo)
    assert "set the MTU of eth0 on all nodes to 1500" in refused.value.problems[0]


def test_refusal_names_the_culprit_first_and_shows_the_matrix() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("trap", "10.9.0", 100000))

    def rule(_a: Node, here: Dict[str, Any], b: Node, there: Dict[str, Any]) -> bool:
        return here["name"] == there["name"] == "eth0" and b["name"] != "b"

    with pytest.raises(NetworkError) as refused:
        chosen(nodes, rule)
    assert "a, c do not reach b at 10.0.0.2 on eth0 (no answer): let b's firewall" in refused.value.problems[0]
    assert "1  a  eth0 10.0.0.1     . t +" in refused.value.matrix
    assert "2  b  eth0 10.0.0.2     + . +" in refused.value.matrix
    assert str(refused.value).endswith(refused.value.matrix)


def test_refusal_names_the_node_whose_interface_is_down() -> None:
    nodes = three(("eth0", "10.0.0", 1000))
    nodes[2]["interfaces"] += [nic("eth1", "10.5.0.3/24")]
    nodes[2]["interfaces"][0]["state"] = "down"
    with pytest.raises(NetworkError) as refused:
        chosen(nodes, lambda a, h, b, t: h["name"] == t["name"] and "c" not in (a["name"], b["name"]))
    assert "10.0.0.0/24 comes nearest: give c (eth0: down) an address on it" in refused.value.problems[0]


def test_node_without_any_usable_address() -> None:
    nodes = [node("a", nic("eth0", "10.0.0.1/24")), node("b", nic("eth0", "10.0.0.2/24", state="down"))]
    with pytest.raises(NetworkError, match=r"b has no address that a peer could reach \(eth0: down\)"):
        chosen(nodes)


def test_what_was_not_measured_does_not_count_as_reachable() -> None:
    nodes = three(("eth0", "10.0.0", 1000))
    links = [link for link in measure(nodes) if link["source"] != "c"]
    with pytest.raises(NetworkError, match=r"c does not reach a at 10\.0\.0\.1, b at 10\.0\.0\.2 \(not measured\)"):
        choose_network(nodes, links)


def test_measurement_without_a_source_speaks_for_all_of_the_node() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 10000))
    links = [
        {key: value for key, value in link.items() if key != "source_address"}
        for link in measure(nodes, lambda a, h, b, t: t["name"] == "eth0")
    ]
    assert [found.interface for found in choose_network(nodes, links).nodes] == ["eth0"] * 3


@pytest.mark.parametrize(
    "override, picked",
    [
        ({"interface": "eth0"}, "eth0"),
        ({"address": "10.0.0.1"}, "eth0"),
        ({"interface": "eth1", "address": "10.1.0.1"}, "eth1"),
    ],
)
def test_override_of_one_node_wins_and_is_marked(override: Dict[str, str], picked: str) -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 10000))
    nodes[0].update(override)
    choice = choose_network(nodes, measure(nodes))
    assert choice.node("a").interface == picked
    assert choice.reasons[0].because.startswith("set by the user: torchfleet_")


def test_network_override() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 10000))
    assert chosen(nodes, network="10.0.0.0/16") == ["eth0"] * 3
    assert chosen(nodes, network=["10.7.0.0/16", "10.1.0.0/16"]) == ["eth1"] * 3


@pytest.mark.parametrize(
    "override, network, words",
    [
        (
            {"interface": "eth9"},
            None,
            "torchfleet_interface of a is eth9, which cannot be used (there is no such interface)",
        ),
        ({"interface": "eth2"}, None, "torchfleet_interface of a is eth2, which cannot be used (down)"),
        ({"interface": "trap"}, None, "without it, this would work: a eth0 10.0.0.1, b eth0 10.0.0.2"),
        ({"address": "10.0.0.77"}, None, "which the node does not have; set it to one of eth0 10.0.0.1"),
        ({"address": "10.0.0.9"}, None, "which is not the first address of eth0, the one that NCCL and gloo take"),
        ({"address": "10.3.0.1"}, None, "which is on eth2 (down)"),
        ({}, "172.16.0.0/12", "torchfleet_network is 172.16.0.0/12, but a has no usable address in it"),
        ({}, "10.0.0.0/99", "wanted a network such as 10.0.0.0/24"),
    ],
)
def test_override_is_checked(override: Dict[str, str], network: Any, words: str) -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("trap", "10.9.0", 1000))
    nodes[0]["interfaces"] += [nic("eth2", "10.3.0.1/24", state="down")]
    nodes[0]["interfaces"][0]["addresses"].append("10.0.0.9/24")
    nodes[0].update(override)
    with pytest.raises(NetworkError) as refused:
        chosen(nodes, lambda a, h, b, t: h["name"] == t["name"] == "eth0", network=network)
    assert words in refused.value.problems[0]


def test_unusable_transport_and_no_nodes() -> None:
    with pytest.raises(NetworkError, match="wanted auto or one of tcp, ib, roce"):
        chosen(three(("eth0", "10.0.0", 1000)), transport="rdma")
    with pytest.raises(NetworkError, match="no nodes"):
        choose_network([], [])


def test_reasons_say_why_not_the_others() -> None:
    nodes = three(("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 10000), ("tun0", "10.8.0", 10))
    nodes[0]["interfaces"] += [nic("eno4", state="down")]
    because = choose_network(nodes, measure(nodes)).reasons[0].because
    assert "slowest link 10000 Mb/s (nominal, a to b)" in because
    assert "not eth0: slower (1000 Mb/s)" in because
    assert "not tun0: a tunnel" in because
    assert "not eno4: down" in because


def test_choice_becomes_a_cluster() -> None:
    nodes = three(("eth0", "10.0.0", 1000))
    choice = choose_network(nodes, measure(nodes))
    hosts = [{"name": found.name, "address": found.address, "interface": found.interface} for found in choice.nodes]
    cluster = build_cluster(hosts, transport=choice.transport, reasons=choice.reasons)
    assert [one.interface for one in cluster.nodes] == ["eth0"] * 3
    assert cluster.master_address == "10.0.0.1"


def test_mixed_path_mtus_are_remarked() -> None:
    nodes = three(("eth0", "10.0.0", 1000))
    mtus = {"a": 9000, "b": 9000, "c": 1500}
    choice = choose_network(nodes, measure(nodes, lambda a, h, b, t: {"ok": True, "path_mtu": mtus[b["name"]]}))
    assert [found.path_mtu for found in choice.nodes] == [1500, 1500, 9000]
    assert "from 1500 to 9000 bytes" in choice.warnings[0]


def test_contrived_matrix_ends_all_the_same() -> None:
    """More nodes than ways to differ: to prove that takes all permutations, so the search must give up before."""
    nodes = [node(f"n{at}", *(nic(f"e{port}", f"10.{port}.{at}.1/32") for port in range(12))) for at in range(16)]
    with pytest.raises(NetworkError):
        chosen(nodes, lambda a, h, b, t: h["name"] != t["name"])


@pytest.mark.parametrize("name", ["bond0", "bond0.2093", "ib0"])
def test_rendering(name: str) -> None:
    assert (nccl_socket_ifname(name), gloo_socket_ifname(name)) == (f"={name}", name)
    assert nccl_ib_hca(["mlx5_1:1", "mlx5_10:1"]) == "=mlx5_1:1,mlx5_10:1"
    assert (nccl_socket_family("10.0.0.1"), nccl_socket_family("fd00::1")) == ("AF_INET", "AF_INET6")
