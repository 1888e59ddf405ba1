# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import (
    NetworkChoice,
    NetworkError,
    choose_network,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._rdma_choice import nccl_release


def ib(name: str, state: str = "ACTIVE", rate: float = 400, **more: Any) -> Dict[str, Any]:
    port = {"port": 1, "state": state, "link_layer": "InfiniBand", "rate_gbps": rate}
    return {"name": name, "ports": [{**port, **more}]}


def roce(name: str, address: str, index: int = 3, rate: str = "100 Gb/sec (4X EDR)", **more: Any) -> Dict[str, Any]:
    gids = [
        {"index": 0, "gid": "fe80:0000:0000:0000:0ac0:ebff:fe00:0001", "type": "IB/RoCE v1"},
        {"index": 1, "gid": "fe80:0000:0000:0000:0ac0:ebff:fe00:0001", "type": "RoCE v2"},
        {"index": index - 1, "gid": gid_of(address), "type": "IB/RoCE v1"},
        {"index": index, "gid": gid_of(address), "type": "RoCE v2"},
    ]
    port = {"port": 1, "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": rate}
    return {"name": name, "ports": [{**port, "gids": gids, **more}]}


def gid_of(address: str) -> str:
    return address if ":" in address else f"::ffff:{address}"


def choose(
    devices: List[List[Dict[str, Any]]],
    versions: Any = None,
    dead: Tuple[str, ...] = (),
    transport: Optional[str] = None,
) -> NetworkChoice:
    """Nodes a, b, … with eth0 and the rails r0 and r1. What is in `dead` reaches nobody."""
    nodes = []
    for at, (name, own) in enumerate(zip("abcd", devices), start=1):
        interfaces = [
            {"name": "eth0", "state": "up", "addresses": [f"10.0.0.{at}/24"], "speed_mbps": 200000},
            {"name": "r0", "state": "up", "addresses": [f"10.1.0.{at}/24", f"2001:db8::{at}/64"], "speed_mbps": 100000},
            {"name": "r1", "state": "up", "addresses": [f"10.2.0.{at}/24"], "speed_mbps": 100000},
        ]
        nodes.append({"name": name, "interfaces": interfaces, "rdma": own, "nccl_version": versions})
    links = [
        {
            "source": a["name"],
            "source_interface": interface["name"],
            "target": b["name"],
            "target_address": text.split("/")[0],
            "ok": interface["name"] not in dead,
        }
        for a in nodes
        for b in nodes
        for interface in b["interfaces"]
        for text in interface["addresses"]
        if a is not b
    ]
    return choose_network(nodes, links, transport=transport)


def because(choice: NetworkChoice, subject: str) -> str:
    return next(reason.because for reason in choice.reasons if reason.subject == subject)


def test_infiniband_where_every_node_has_it() -> None:
    choice = choose([[ib(f"mlx5_{at}") for at in range(2)] for _node in "ab"])
    assert choice.transport == "ib"
    assert [node.hcas for node in choice.nodes] == [("mlx5_0:1", "mlx5_1:1")] * 2
    assert [node.gid_index for node in choice.nodes] == [None, None]


def test_ip_interface_of_an_infiniband_port_may_be_down() -> None:
    assert choose([[ib("mlx5_0", netdev="ibp26s0", phys_state="LinkUp")]] * 2).transport == "ib"


@pytest.mark.parametrize("state", ["DOWN", "INIT", "1: DOWN", "PORT_DOWN (1)", "Initializing", ""])
def test_infiniband_down_on_one_node_gives_tcp_and_names_it(state: str) -> None:
    choice = choose([[ib("mlx5_0")], [ib("mlx5_0", state)]])
    assert (choice.transport, choice.nodes[0].hcas) == ("tcp", ())
    assert because(choice, "transport").startswith("no active InfiniBand port on b")


def test_ports_that_are_down_and_slow_storage_ports_are_left_out() -> None:
    devices = [
        ib("mlx5_0"),
        ib("mlx5_1", "DOWN"),
        ib("mlx5_2", rate=200),
        ib("mlx5_3", rate=100),
        roce("eth", "10.0.0.1"),
    ]
    choice = choose([devices, devices])
    assert choice.nodes[0].hcas == ("mlx5_0:1", "mlx5_2:1")
    assert "mlx5_3:1" in because(choice, "a HCAs")


def test_roce_gid_index_per_node() -> None:
    choice = choose([[roce("mlx5_0", "10.1.0.1", 5)], [roce("mlx5_4", "10.1.0.2", 7)]], "2.20.5")
    assert choice.transport == "roce"
    assert [(node.hcas, node.gid_index) for node in choice.nodes] == [(("mlx5_0:1",), 5), (("mlx5_4:1",), 7)]


@pytest.mark.parametrize("version, index", [("2.21.5+cuda12.4", None), ([2, 27, 3], None), (22005, 3), (None, 3)])
def test_nccl_that_chooses_the_gid_itself_gets_none(version: Any, index: Optional[int]) -> None:
    choice = choose([[roce("mlx5_0", f"10.1.0.{at}")] for at in (1, 2)], version)
    assert (choice.transport, choice.nodes[0].gid_index) == ("roce", index)


def test_roce_over_addresses_that_do_not_connect_is_not_used() -> None:
    choice = choose([[roce("mlx5_0", f"10.1.0.{at}")] for at in (1, 2)], dead=("r0",))
    assert choice.transport == "tcp"
    assert "do not connect every pair" in because(choice, "transport")


def test_dead_rail_is_left_out() -> None:
    devices = [[roce("mlx5_0", f"10.1.0.{at}"), roce("mlx5_1", f"10.2.0.{at}")] for at in (1, 2, 3)]
    choice = choose(devices, dead=("r1",))
    assert [node.hcas for node in choice.nodes] == [("mlx5_0:1",)] * 3


def test_ports_of_a_node_whose_indexes_differ_share_one_or_leave_it_to_nccl() -> None:
    devices = [[roce("mlx5_0", f"10.1.0.{at}", 3), roce("mlx5_1", f"10.2.0.{at}", 5)] for at in (1, 2)]
    assert [(node.hcas, node.gid_index) for node in choose(devices, "2.18").nodes] == [(("mlx5_0:1",), 3)] * 2
    assert choose(devices, "2.21").nodes[0].hcas == ("mlx5_0:1", "mlx5_1:1")


def test_ipv6_only_roce() -> None:
    choice = choose([[roce("mlx5_0", f"2001:db8::{at}")] for at in (1, 2)])
    assert (choice.transport, choice.nodes[0].gid_index) == ("roce", 3)


@pytest.mark.parametrize(
    "device",
    [
        roce("mlx5_0", "192.0.2.1"),
        {**roce("rxe0", "10.0.0.1"), "is_soft": True},
        {**roce("irdma0", "10.0.0.1"), "transport": "iwarp"},
        roce("mlx5_0", "10.0.0.1", gids=[{"index": 0, "gid": "::ffff:10.0.0.1", "type": "IB/RoCE v1"}]),
        roce("mlx5_0", "10.0.0.1", gids=[]),
        {"name": "efa_0", "ports": [{"port": 1, "state": "ACTIVE", "link_layer": "Unspecified"}]},
        {**ib("efa_0"), "transport": "other"},
    ],
    ids=["address elsewhere", "software", "iwarp", "v1 only", "no table", "efa", "efa called InfiniBand"],
)
def test_devices_that_nccl_cannot_use_here(device: Dict[str, Any]) -> None:
    assert choose([[device], [roce("mlx5_0", "10.0.0.2")]]).transport == "tcp"


def test_infiniband_beside_roce_only_nodes_gives_tcp() -> None:
    choice = choose([[ib("mlx5_0")], [roce("mlx5_0", "10.0.0.2")]])
    assert choice.transport == "tcp"
    assert "no active InfiniBand port on b; no active RoCE port of a" in because(choice, "transport")


def test_user_may_forbid_rdma_or_ask_for_one_kind() -> None:
    devices = [[ib("mlx5_0"), roce("mlx5_1", f"10.1.0.{at}")] for at in (1, 2)]
    assert choose(devices, transport="tcp").nodes[0].hcas == ()
    assert choose(devices, transport="roce").nodes[0].hcas == ("mlx5_1:1",)
    marked = choose(devices, transport="ib")
    assert because(marked, "transport").startswith("set by torchfleet_transport; checked")
    with pytest.raises(NetworkError, match="torchfleet_transport is ib, but no active InfiniBand port on a"):
        choose([[roce("mlx5_0", f"10.1.0.{at}")] for at in (1, 2)], transport="ib")
    with pytest.raises(NetworkError, match="torchfleet_transport is roce, but no node has an active RDMA port"):
        choose([[], []], transport="roce")


@pytest.mark.parametrize(
    "version, release",
    [
        ("2.21.5", (2, 21)),
        (22105, (2, 21)),
        ("22105", (2, 21)),
        (2708, (2, 7)),
        ((2, 18, 3), (2, 18)),
        ("", None),
        (None, None),
    ],
)
def test_nccl_release(version: Any, release: Any) -> None:
    assert nccl_release(version) == release
