# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who meets whom in which round, and what NICs, buses and tools say."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _bench


@pytest.mark.parametrize("count", range(1, 26))
def test_rounds_are_disjoint_and_meet_all_pairs_once(count):
    names = [f"n{number}" for number in range(count)]
    schedule = _bench.rounds(names)
    assert len(schedule) == (0 if count == 1 else count - 1 if count % 2 == 0 else count)
    for pairs in schedule:
        assert len({name for pair in pairs for name in pair}) == 2 * len(pairs)
    met = [frozenset(pair) for pairs in schedule for pair in pairs]
    assert sorted(map(sorted, met)) == sorted(map(sorted, itertools.combinations(names, 2)))


def test_both_of_a_pair_know_of_it_and_one_opens():
    schedule = _bench.rounds(["a", "b", "c", "d"])
    for number, pairs in enumerate(schedule):
        for one, other in pairs:
            mine = [met for met in _bench.meetings(schedule, one) if met["round"] == number]
            theirs = [met for met in _bench.meetings(schedule, other) if met["round"] == number]
            assert mine == [{"round": number, "peer": other, "opens": True}]
            assert theirs == [{"round": number, "peer": one, "opens": False}]


@pytest.mark.parametrize(
    "words, mbps",
    [
        ((0b111111,), 1000),
        ((0b001111,), 100),
        ((1 << 12 | 1 << 5,), 10000),
        ((1 << 31, 1), 25000),
        ((0, 1 << 4), 100000),  # 100000baseKR4
        ((0, 0, 1 << (69 - 64)), 400000),
        ((1 << 6 | 1 << 7,), None),  # autonegotiation and twisted pair are no rates
        ((), None),
    ],
)
def test_fastest_mode(words, mbps):
    assert _bench.fastest_mode(words) == mbps


def test_link_settings_are_asked_in_two_steps():
    request = _bench.link_settings_request()
    assert request[:4] == (0x4C).to_bytes(4, "little")
    # The kernel answers the first with the negative number of words.
    refused = bytearray(request)
    refused[15] = 0x100 - 3
    assert _bench.read_link_settings(bytes(refused)) == (-3, ())
    answer = bytearray(_bench.link_settings_request(3))
    answer[48:60] = b"\x20\0\0\0" + bytes(8)
    count, words = _bench.read_link_settings(bytes(answer))
    assert (count, words) == (3, (0x20, 0, 0))
    assert _bench.fastest_mode(words) == 1000


@pytest.mark.parametrize(
    "text, mbps",
    [
        ("qdisc noqueue 0: root refcnt 2\n", None),
        ("qdisc mq 0: root\nqdisc fq_codel 0: parent :1 limit 10240p flows 1024 quantum 1514 target 5ms\n", None),
        ("qdisc tbf 8001: root refcnt 2 rate 100Mbit burst 64Kb lat 50ms\n", 100.0),
        ("class htb 1:1 root rate 1Gbit ceil 1Gbit burst 1375b\nclass htb 1:10 parent 1:1 rate 250Mbit\n", 250.0),
        ("qdisc cake 8002: root bandwidth 50Mbit besteffort\n", 50.0),
        ("qdisc netem 8003: root limit 1000 delay 1ms rate 2.5Gbit\n", 2500.0),
        ("qdisc tbf 8001: root rate 12Mibit burst 1Mb\n", 12.0),
        ("qdisc tbf 8001: root rate 800Kbit burst 1Mb\n", 0.8),
    ],
)
def test_shaped(text, mbps):
    assert _bench.shaped_mbps(text) == mbps


@pytest.mark.parametrize(
    "mbps, text",
    [
        (98.4, "98 Mb/s"),
        (1000, "1 Gb/s"),
        (9412, "9.4 Gb/s"),
        (940, "940 Mb/s"),
        (400000, "400 Gb/s"),
        (3.14, "3.1 Mb/s"),
    ],
)
def test_link_rate(mbps, text):
    assert _bench.link_rate(mbps) == text


@pytest.mark.parametrize(
    "pcie, gbps",
    [
        ({"generation": 1, "generation_max": 4, "width": 16, "width_max": 16}, 31.504),
        ({"generation": 3, "generation_max": 3, "width": 8, "width_max": 16}, 7.88),
        ({"generation": None, "width": 16}, None),
        (None, None),
    ],
)
def test_pcie(pcie, gbps):
    assert _bench.pcie_gbps(pcie) == pytest.approx(gbps)


def gpu(links=4, speed=25.0, **pcie):
    nvlink = {"active": links, "total": links, "speeds": [speed] * links} if links else None
    return {"nvlink": nvlink, "pcie": {"generation_max": 3, "width": 16, **pcie}}


@pytest.mark.parametrize(
    "one, other, way, gbps",
    [
        (gpu(), gpu(), "NV4", 100.0),
        (gpu(4), gpu(4), "NV2", 50.0),  # two of its four links lead to this peer
        (gpu(0), gpu(0), "PHB", 15.76),
        (gpu(0), gpu(0, width=4), "PIX", 3.94),
    ],
)
def test_between_gpus(one, other, way, gbps):
    assert _bench.peer_gbps(one, other, way) == pytest.approx(gbps)


def test_rdma_takes_the_chosen_ports_alone():
    devices = [
        {"name": "mlx5_0", "ports": [{"port": 1, "rate_gbps": 100.0}, {"port": 2, "rate_gbps": 25.0}]},
        {"name": "mlx5_1", "ports": [{"port": 1, "rate_gbps": 200.0}]},
    ]
    assert _bench.rdma_mbps(devices, ["mlx5_0:1", "mlx5_1"]) == 300000
    assert _bench.rdma_mbps(devices, []) is None


def test_sweep_row_has_both_bandwidths():
    row = _bench.sweep_row(1_000_000_000, 2.0, 4)
    assert (row["algbw_gbps"], row["busbw_gbps"]) == (0.5, 0.75)
    assert _bench.sweep_row(1000, 0, 4)["algbw_gbps"] == 0


NCCL_TESTS = """
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    33.12    0.00    0.00      0    32.80    0.00    0.00      0
     1048576        262144     float     sum      -1    152.7    6.87   12.88      0    151.9    6.90   12.94    N/A
   134217728      33554432     float     sum      -1   2714.3   49.45   92.72      0   2716.0   49.42   92.66      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 35.2
"""


def test_nccl_tests():
    rows = _bench.read_nccl_tests(NCCL_TESTS)
    assert [row["bytes"] for row in rows] == [8, 1048576, 134217728]
    assert rows[2] == {
        "bytes": 134217728,
        "seconds": pytest.approx(2714.3e-6),
        "algbw_gbps": 49.45,
        "busbw_gbps": 92.72,
    }


def test_nccl_tests_of_mpirun_and_of_old_versions():
    tagged = "[1,0]<stdout>:     1048576        262144     float     sum    152.7    6.87   12.88  1e-06    151.9    6.90   12.94  1e-06\n"
    assert _bench.read_nccl_tests(tagged)[0]["busbw_gbps"] == 12.88
    assert _bench.read_nccl_tests("mpirun was unable to launch\n") == []


def test_marked_lines():
    mark = "@@x@@"
    assert _bench.read_marked(mark, f'noise\n{mark}{{"a": 1}}\n{mark}{{"a": 2}}\n{mark}{{"a"') == {"a": 2}
    assert _bench.read_marked(mark, "noise") == {}
