# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that really send to each other, on loopback, as three processes of the module would."""

from __future__ import annotations

import threading
import time

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import meetings, rounds
from ansible_collections.torchfleet.cluster.plugins.modules import link_bench

ADDRESS = "127.0.0.1"


def cluster(names, silent=(), **options):
    """All nodes measure at the same time. Returns them by name."""
    ports = dict(zip(names, link_bench.free_ports(ADDRESS, len(names))))
    schedule = rounds(names)
    nodes = {
        name: link_bench.Node(
            {
                "node": name,
                "address": ADDRESS,
                "bench_id": "b1",
                "port": ports[name],
                "seconds": 0.05,
                "streams": 2,
                "round_trips": 5,
                "patience": 5.0,
                "meetings": [
                    {**met, "address": ADDRESS, "port": ports[met["peer"]]} for met in meetings(schedule, name)
                ],
                **options,
            }
        )
        for name in names
    }
    threads = [threading.Thread(target=node.run) for name, node in nodes.items() if name not in silent]
    for number, thread in enumerate(threads):
        thread.start()
        # Modules do not start at the same moment.
        time.sleep(0.02 * (number % 2))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return nodes


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_ordered_pair_is_measured_once(count):
    names = [f"n{number}" for number in range(count)]
    nodes = cluster(names)
    assert [problem for node in nodes.values() for problem in node.problems] == []
    links = [link for node in nodes.values() for link in node.links]
    pairs = [(link["source"], link["target"]) for link in links]
    assert sorted(pairs) == sorted((one, other) for one in names for other in names if one != other)
    for link in links:
        assert link["mbps"] > 1
        assert 0 < link["latency_seconds"] <= link["latency_median_seconds"]


def test_a_node_that_is_not_there_costs_its_own_pairs_only():
    nodes = cluster(["a", "b", "c"], silent=["c"], patience=0.5)
    links = {(link["source"], link["target"]) for node in nodes.values() for link in node.links}
    assert links == {("a", "b"), ("b", "a")}
    problems = sorted(problem for node in nodes.values() for problem in node.problems)
    assert len(problems) == 2
    assert all(" c at 127.0.0.1" in problem for problem in problems)


def test_a_stranger_on_the_port_is_sent_away():
    names = ["a", "b"]
    nodes = cluster(names)
    other = link_bench.Node({**nodes["a"].params, "bench_id": "b2", "patience": 0.5})
    mine = link_bench.Node({**nodes["b"].params, "patience": 0.5})
    threads = [threading.Thread(target=node.run) for node in (other, mine)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert other.links == mine.links == []
    assert other.problems
    assert mine.problems


def test_ports_are_free_and_different():
    ports = link_bench.free_ports(ADDRESS, 3)
    assert len(set(ports)) == 3


def test_a_nic_without_modes_tells_nothing():
    assert link_bench.capable("lo") is None
    assert link_bench.capable("nosuchnic0") is None
