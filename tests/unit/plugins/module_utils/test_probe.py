# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
from typing import Any, Dict, Optional, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._probe import (
    datagram_payload,
    judge_answer,
    line,
    link,
    narrowed,
    packet_sizes,
    peers_by_round,
    plan,
    read_line,
    rounds,
    tcp_path_mtu,
    why_of_errno,
    worth_measuring,
)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 24, 64])
def test_all_pairs_meet_once_in_rounds_of_disjoint_pairs(count: int) -> None:
    names = [f"n{at}" for at in range(count)]
    played = rounds(names)
    met = [frozenset(pair) for pairs in played for pair in pairs]
    assert len(met) == len(set(met)) == count * (count - 1) // 2
    assert all(len({name for pair in pairs for name in pair}) == 2 * len(pairs) for pairs in played)
    assert len(played) == (count - 1 if count % 2 == 0 else count)


def test_partners_agree_on_their_round_whatever_order_they_were_given() -> None:
    of_a = {peer: number for number, peer in peers_by_round(["a", "b", "c", "d", "e"], "a")}
    for peer, number in of_a.items():
        assert (number, "a") in peers_by_round(["e", "c", "a", "d", "b"], peer)


def listener(name: str, *endpoints: Dict[str, Any]) -> Dict[str, Any]:
    return {"node": name, "addresses": ["127.0.0.1", *(e["address"] for e in endpoints)], "endpoints": list(endpoints)}


def test_plan_settles_what_needs_no_trying() -> None:
    here = listener(
        "a", {"address": "10.0.0.1", "port": 1}, {"address": "172.17.0.1", "port": 2}, {"address": "fd::1", "port": 3}
    )
    there = listener(
        "b",
        {"address": "10.0.0.2", "port": 40001, "udp_port": 40002},
        {"address": "172.17.0.1", "port": 40003},
        {"address": "fd::2", "error": "Cannot assign requested address"},
    )
    attempts, settled = plan("a", {"a": here, "b": there})
    assert [(one.source, one.address, one.port, one.udp_port) for one in attempts] == [
        ("10.0.0.1", "10.0.0.2", 40001, 40002),
        ("172.17.0.1", "10.0.0.2", 40001, 40002),
    ]
    assert {(one["source_address"], one["target_address"], one["why"]) for one in settled} == {
        ("10.0.0.1", "172.17.0.1", "own_address"),
        ("172.17.0.1", "172.17.0.1", "own_address"),
        ("fd::1", "fd::2", "not_listening"),
    }


def test_result_leaves_out_what_is_not_known() -> None:
    assert link("a", "10.0.0.1", "b", "10.0.0.2", path_mtu=1500, via=None) == {
        "source": "a",
        "source_address": "10.0.0.1",
        "target": "b",
        "target_address": "10.0.0.2",
        "ok": True,
        "path_mtu": 1500,
    }


@pytest.mark.parametrize(
    "answer, why",
    [
        (line(probe="p", node="b"), ""),
        (line(probe="p", node="a"), "stranger"),
        (line(probe="q", node="b"), "stranger"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "stranger"),
        (b"[1]\n", "stranger"),
        (b"\xff\xfe\n", "stranger"),
        (b"", "stranger"),
    ],
)
def test_only_the_peer_of_this_probe_counts(answer: bytes, why: str) -> None:
    assert judge_answer(read_line(answer), "p", "b") == why


@pytest.mark.parametrize(
    "number, why",
    [
        (errno.ECONNREFUSED, "refused"),
        (errno.EHOSTUNREACH, "unreachable"),
        (errno.ENETUNREACH, "unreachable"),
        (errno.ETIMEDOUT, "timeout"),
        (errno.ECONNRESET, "ECONNRESET"),
        (0, "error 0"),
    ],
)
def test_errors_in_words(number: int, why: str) -> None:
    assert why_of_errno(number) == why


@pytest.mark.parametrize(
    "kernel, segment, timestamps, family, mtu",
    [
        (1500, 1448, True, 4, 1500),
        (1500, 1460, False, 4, 1500),
        (9000, 1448, True, 4, 1500),
        (9000, 8928, True, 6, 9000),
        (1400, 1448, True, 4, 1400),
        (None, 1448, True, 4, 1500),
        (1500, 0, True, 4, 1500),
    ],
)
def test_path_mtu_of_a_connection(kernel: Optional[int], segment: int, timestamps: bool, family: int, mtu: int) -> None:
    assert tcp_path_mtu(kernel, segment, timestamps, family) == mtu


@pytest.mark.parametrize("true_mtu", [576, 577, 1280, 1399, 1400, 1499, 1500, 4092, 8999, 9000])
def test_search_finds_the_largest_packet_that_passes(true_mtu: int) -> None:
    low, high, bursts = 576, 9000, 0
    while low < high:
        sizes = packet_sizes(low, high)
        low, high = narrowed(sizes, [size for size in sizes if size <= true_mtu], low)
        bursts += 1
    assert low == true_mtu
    assert bursts <= 4


@pytest.mark.parametrize("family, payload", [(4, 1472), (6, 1452)])
def test_datagram_of_a_packet_size(family: int, payload: int) -> None:
    assert datagram_payload(1500, family) == payload


def test_bandwidth_is_measured_once_per_address_from_the_nearest_source() -> None:
    pairs: Tuple[Tuple[str, str, bool], ...] = (
        ("192.168.0.1", "10.0.0.2", True),
        ("10.0.0.1", "10.0.0.2", True),
        ("10.0.0.1", "192.168.0.2", False),
        ("fd00::1", "fd00::2", True),
    )
    links = [link("a", source, "b", target, "" if ok else "timeout") for source, target, ok in pairs]
    assert worth_measuring(links) == [1, 3]
