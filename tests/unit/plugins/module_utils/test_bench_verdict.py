# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs, buses, disks and the all-reduce against their likes and their links; cost; and what has changed."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _bench_verdict as verdict
from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import sweep_row


def device(node, index, tflops, model="H100"):
    return {"node": node, "index": index, "model": model, "dtype": "bfloat16", "tflops": tflops}


def test_the_slow_gpu_is_named_among_its_own_kind():
    devices = [device(node, index, 640.0 - index) for node in ("a", "b") for index in range(4)]
    devices += [device("old", 0, 110.0, "V100"), device("old", 1, 112.0, "V100")]
    assert verdict.judge_compute(devices) == []
    devices[5] = device("b", 1, 400.0)
    (found,) = verdict.judge_compute(devices)
    assert found.check == "slow-gpu"
    assert found.sentence.startswith("GPU 1 of b (H100) multiplies bfloat16 matrices at 400 TFLOP/s")
    assert "-i 1" in found.remedy


def test_a_lone_device_has_nothing_to_be_compared_with():
    assert verdict.judge_compute([device("a", 0, 1.0), device("b", 0, 600.0, "B200")]) == []
    assert verdict.judge_compute([device("a", 0, 600.0), {**device("b", 0, 0.0), "problem": "out of memory"}]) == []


def test_processors_are_given_more_room():
    devices = [device(name, None, 0.2, "EPYC x2") for name in "abc"]
    devices[2]["tflops"] = 0.12
    assert verdict.judge_compute(devices) == []
    devices[2]["tflops"] = 0.05
    (found,) = verdict.judge_compute(devices)
    assert (found.check, found.nodes) == ("slow-processor", ("c",))


GPUS = [
    {"index": 0, "pcie": {"generation_max": 4, "width": 16}, "nvlink": None},
    {"index": 1, "pcie": {"generation_max": 4, "width": 4}, "nvlink": None},
]


def test_buses_against_their_links():
    local = {
        "devices": [
            {"index": 0, "from_host_gbps": 25.0},
            {"index": 1, "from_host_gbps": 3.0},
        ],
        "peers": [{"source": 0, "target": 1, "gbps": 6.0}, {"source": 1, "target": 0, "gbps": 2.0}],
    }
    # Three GB/s over four lanes of generation 4 is slow for 7.9, and six from 16 lanes to four are not.
    checks = [(one.check, one.sentence) for one in verdict.judge_buses("a", GPUS, None, local)]
    assert [check for check, _sentence in checks] == ["slow-pcie", "slow-peer"]
    assert "GPU 1 of a gets 3 GB/s from the host, its PCIe link (generation 4, 4 lanes) carries 7.88" in checks[0][1]
    assert checks[1][1].startswith("GPU 1 to GPU 0 of a: 2 GB/s")


def test_nvlink_by_the_topology():
    gpus = [{"index": i, "nvlink": {"active": 4, "total": 4, "speeds": [25.0] * 4}, "pcie": None} for i in (0, 1)]
    topology = {"links": {"GPU0": {"GPU1": "NV4"}, "GPU1": {"GPU0": "NV4"}}}
    local = {"peers": [{"source": 0, "target": 1, "gbps": 92.0}, {"source": 1, "target": 0, "gbps": 12.0}]}
    (found,) = verdict.judge_buses("a", gpus, topology, local)
    assert found.sentence == "GPU 1 to GPU 0 of a: 12 GB/s, the way between them (NV4) carries 100"


def test_disks_of_the_same_folder():
    disks = [{"node": name, "path": "/ckpt", "write_mbps": 900.0, "read_mbps": 2000.0} for name in "abc"]
    disks += [{"node": "a", "path": "/data", "write_mbps": 90.0, "read_mbps": 100.0}]
    assert verdict.judge_disks(disks) == []
    disks[1]["write_mbps"] = 45.0
    (found,) = verdict.judge_disks(disks)
    assert found.sentence == "b writes 45 MB/s in /ckpt, others 900 MB/s"


@pytest.mark.parametrize(
    "backend, slowest, rdma, wanted",
    [
        ("gloo", 940.0, [None, None], 940.0),
        ("gloo", 23000.0, [None, None], 2000.0),
        ("nccl", 23000.0, [None, None], 23000.0),
        ("nccl", 23000.0, [200000.0, 100000.0], 100000.0),
        ("nccl", 9400.0, [200000.0, None], 9400.0),  # not all nodes have RDMA
        ("nccl", None, [None], None),
    ],
)
def test_what_an_all_reduce_should_reach(backend, slowest, rdma, wanted):
    assert verdict.collective_expected(backend, slowest, rdma) == wanted


def test_a_slow_all_reduce():
    sweep = [sweep_row(1 << 20, 0.05, 4), sweep_row(64 << 20, 2.0, 4)]
    assert verdict.judge_collective(sweep, "nccl", 500.0) == []
    (found,) = verdict.judge_collective(sweep, "nccl", 9400.0)
    assert found.sentence == "all-reduce (nccl) reaches 402 Mb/s of bus bandwidth, the links carry 9.4 Gb/s"
    assert verdict.judge_collective([], "nccl", 9400.0) == []


def test_seconds_at_any_size():
    sweep = [{"bytes": 1000, "seconds": 0.001}, {"bytes": 1_000_000, "seconds": 0.01}]
    assert verdict.at_size(sweep, 10) == 0.001
    assert verdict.at_size(sweep, 500_500) == pytest.approx(0.0055)
    assert verdict.at_size(sweep, 100_000_000) == pytest.approx(1.0)


def test_cost_of_a_slow_link():
    sweep = [sweep_row(64 << 20, 0.75, 3)]
    told = verdict.cost(7e9, 2, 3, sweep, 95.0, 950.0, 500.0)
    assert told["gradient_bytes"] == 14e9
    assert told["seconds"] == pytest.approx(14e9 / (64 << 20) * 0.75, rel=1e-3)
    assert told["healthy_seconds"] == pytest.approx(told["seconds"] / 10, rel=1e-3)
    assert told["sentence"].startswith("7 B parameters: 14 GB of gradients a step take 3 min to all-reduce; 16 s if")
    assert told["sentence"].endswith("A checkpoint of 98 GB takes 3 min to write")


def test_cost_without_a_sweep_goes_by_the_slowest_link():
    told = verdict.cost(1e9, 2, 2, [], 1000.0, 1000.0, None)
    assert told["seconds"] == pytest.approx(16.0)
    assert "if the slowest" not in told["sentence"]
    assert verdict.cost(0, 2, 2, [], 1000.0, 1000.0, None) is None
    assert verdict.cost(1e9, 2, 2, [], None, None, None) is None


def test_one_rank_has_nothing_to_reduce_but_saves():
    told = verdict.cost(7e9, 2, 1, [], None, None, 500.0)
    assert told["seconds"] == 0
    assert told["sentence"] == (
        "7 B parameters on one rank: nothing to all-reduce. A checkpoint of 98 GB takes 3 min to write"
    )
    assert verdict.cost(7e9, 2, 1, [], None, None, None) is None


def report(mbps=940.0, tflops=600.0, busbw=0.11, world=2, backend="gloo"):
    return {
        "schema": 1,
        "kind": "bench",
        "ended": 5.0,
        "links": [{"source": "a", "target": "b", "mbps": mbps}],
        "nodes": [{"name": "a", "devices": [{"index": 0, "tflops": tflops}], "disks": []}],
        "all_reduce": {
            "backend": backend,
            "world_size": world,
            "sweep": [{"bytes": 1024, "seconds": 0.1, "algbw_gbps": busbw, "busbw_gbps": busbw}],
        },
    }


def test_beside_the_run_before():
    told = verdict.compared(report(mbps=95.0, tflops=610.0), report())
    assert told["slower"] == ["a to b: 940 before, now 95 Mb/s"]
    assert told["quicker"] == []
    assert verdict.compared(report(), report(mbps=95.0))["quicker"] == ["a to b: 95 before, now 940 Mb/s"]
    for none in (None, {"schema": 2, "kind": "bench"}, {"schema": 1, "kind": "check"}):
        assert verdict.compared(report(), none) is None


def test_an_all_reduce_is_compared_with_one_of_as_many_ranks():
    same = verdict.compared(report(busbw=0.05), report())
    assert same["slower"] == ["all-reduce (gloo, 2 ranks), bus bandwidth: 880 before, now 400 Mb/s"]
    assert len(same["sweep"]) == 1
    for before in (report(world=3), report(world=1, busbw=3.9), report(backend="nccl")):
        other = verdict.compared(report(busbw=0.05), before)
        assert (other["slower"], other["quicker"], other["sweep"]) == ([], [], [])
