# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which NIC, router or pair is slow, by the matrix of pairs."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench_links import Nic, judge, judge_latency


def matrix(names, rate=940.0, **slow):
    """All ordered pairs at one rate, but those named `a_b`."""
    rates = {(one, other): rate for one in names for other in names if one != other}
    for pair, value in slow.items():
        rates[tuple(pair.split("_"))] = value
    return rates


def nics(names, speed=1000.0, capable=1000.0, **others):
    return {name: others.get(name, Nic("eno1", "10.0.0.0/24", speed, capable)) for name in names}


VIRTUAL = Nic("eth1", "10.0.0.0/24")


def slow_node(names, name, sends=None, receives=None, rate=940.0):
    rates = matrix(names, rate)
    for one, other in rates:
        if sends and one == name:
            rates[one, other] = sends
        if receives and other == name:
            rates[one, other] = receives
    return rates


def said(rates, cards):
    return [(one.check, one.severity, one.nodes, one.sentence) for one in judge(rates, cards)]


@pytest.mark.parametrize("count", [2, 3, 4, 8, 24])
@pytest.mark.parametrize("rate, speed", [(940.0, 1000.0), (9400.0, 10000.0), (23000.0, 100000.0), (12000.0, None)])
def test_a_healthy_cluster(count, rate, speed):
    names = [f"n{number}" for number in range(count)]
    rates = matrix(names, rate)
    # No two measurements are the same.
    for number, pair in enumerate(rates):
        rates[pair] *= 1 - 0.15 * (number % 7) / 7
    assert said(rates, nics(names, speed, speed)) == []


def test_a_port_that_negotiated_less():
    names = [f"node{number}" for number in range(28, 33)]
    rates = slow_node(names, "node31", 98.0, 97.0)
    cards = nics(names, node31=Nic("eno1", "10.0.0.0/24", 100.0, 1000.0))
    assert said(rates, cards) == [
        (
            "slow-nic",
            "warn",
            ("node31",),
            "node31 sends and receives 98 Mb/s on a 1 Gb/s NIC: node31's port negotiated 100 Mb/s, the others carry "
            "940 Mb/s",
        )
    ]


@pytest.mark.parametrize("count", [3, 4, 9])
@pytest.mark.parametrize(
    "sends, receives, words",
    [(95.0, None, "sends 95 Mb/s"), (None, 95.0, "receives 95 Mb/s"), (95.0, 95.0, "sends and receives 95 Mb/s")],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_slow_node_by_what_all_its_pairs_share(count, sends, receives, words, known):
    names = [f"n{number}" for number in range(count)]
    cards = nics(names) if known else dict.fromkeys(names, VIRTUAL)
    (found,) = said(slow_node(names, "n1", sends, receives), cards)
    assert found[0] == "slow-nic"
    assert found[2] == ("n1",)
    assert found[3].startswith(f"n1 {words}")
    assert "that is what a port of 100 Mb/s carries" in found[3]


def test_a_rule_of_tc_is_the_reason():
    names = ["a", "b", "c"]
    cards = {**dict.fromkeys(names, VIRTUAL), "c": Nic("eth1", None, shaped=100.0)}
    (found,) = judge(slow_node(names, "c", sends=96.0), cards)
    assert found.sentence == "c sends 96 Mb/s: a tc rule on eth1 limits it to 100 Mb/s, the others carry 940 Mb/s"
    assert "tc qdisc del dev eth1 root" in found.remedy


def test_two_slow_nodes():
    names = [f"n{number}" for number in range(6)]
    rates = {pair: 95.0 if {"n1", "n4"} & set(pair) else 940.0 for pair in matrix(names)}
    assert [found[2] for found in said(rates, nics(names))] == [("n1",), ("n4",)]


def test_a_router_between_two_groups():
    left, right = ["a", "b", "c"], ["x", "y"]
    rates = {p: 240.0 if (p[0] in left) != (p[1] in left) else 940.0 for p in matrix(left + right)}
    cards = {
        **nics(left),
        **{name: Nic("eno1", "10.0.9.0/24", 1000.0, 1000.0) for name in right},
    }
    (found,) = judge(rates, cards)
    assert found.check == "slow-router"
    assert found.sentence.startswith(
        "between a, b and c and x and y go 240 Mb/s, pairs on the same side carry 940 Mb/s"
    )
    assert "the router between 10.0.0.0/24 and 10.0.9.0/24 is the bottleneck, no NIC is" in found.sentence


def test_an_uplink_that_is_slow_one_way():
    left, right = ["a", "b"], ["x", "y"]
    rates = {p: 240.0 if p[0] in left and p[1] in right else 940.0 for p in matrix(left + right)}
    (found,) = judge(rates, nics(left + right))
    assert found.check == "slow-router"
    assert found.sentence.startswith("from a and b to x and y go 240 Mb/s")
    assert "the switch or uplink between them" in found.sentence


def test_a_single_slow_pair_accuses_no_node():
    names = ["a", "b", "c", "d"]
    (found,) = said(matrix(names, a_b=95.0, b_a=96.0), nics(names))
    assert found[0] == "slow-pair"
    assert set(found[2]) == {"a", "b"}
    assert "to and from their other peers both are quick" in found[3]
    (one_way,) = said(matrix(names, a_b=95.0), nics(names))
    assert one_way[3].startswith("a sends b 95 Mb/s")


def test_of_two_nodes_neither_is_accused_without_a_reason():
    (found,) = said(matrix(["a", "b"], a_b=95.0, b_a=95.0), nics(["a", "b"]))
    assert found[0] == "slow-pair"
    assert "which of them is slow cannot be told" in found[3]
    cards = nics(["a", "b"], b=Nic("eno1", None, 100.0, 1000.0))
    (named,) = said(matrix(["a", "b"], a_b=95.0, b_a=95.0), cards)
    assert named[2] == ("b",)
    assert "b's port negotiated 100 Mb/s" in named[3]


def test_where_all_are_slow_nobody_is_the_odd_one():
    names = ["a", "b", "c"]
    (found,) = said(matrix(names, 95.0), nics(names))
    assert found[0] == "slow-network"
    assert found[3] == "all pairs carry 95 Mb/s, wanted 940 Mb/s: what they share is slow"
    (ports,) = said(matrix(names, 95.0), nics(names, 100.0, 1000.0))
    assert ports[3].endswith("their ports negotiated 100 Mb/s")


def test_a_slower_nic_that_gives_all_it_has_is_no_fault():
    names = ["a", "b", "c"]
    rates = {pair: 940.0 if "c" in pair else 9400.0 for pair in matrix(names)}
    cards = {**nics(names, 10000.0, 10000.0), "c": Nic("eno1", None, 1000.0, 1000.0)}
    (found,) = said(rates, cards)
    assert found[:3] == ("slower-nic", "info", ("c",))


def test_latency():
    names = ["a", "b", "c", "d"]
    usual = {(one, other): 0.0002 for one in names for other in names if one < other}
    assert judge_latency(usual) == []
    # Not everything that is slower is worth a word.
    assert judge_latency({**usual, ("a", "b"): 0.0009}) == []
    (pair,) = judge_latency({**usual, ("a", "b"): 0.02})
    assert pair.sentence == "from a to b and back takes 20.0 ms, usual are 0.20 ms"
    (node,) = judge_latency({pair: 0.02 if "d" in pair else seconds for pair, seconds in usual.items()})
    assert node.nodes == ("d",)
