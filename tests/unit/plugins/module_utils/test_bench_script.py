# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The script that measures devices and the all-reduce, with a stand-in for torch: what it asks for and what it tells."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _bench_script as script


class Tensor:
    def __init__(self, *shape, device="cpu", dtype=None, pin_memory=False):
        self.device = device

    def to(self, _dtype):
        return self

    def copy_(self, other, non_blocking=False):
        assert {str(self.device), str(other.device)} != {"cpu"}
        time.sleep(0.001)


def fake_torch(gpus=2, capability=(9, 0), full=()):
    def mm(one, _other, out):
        if str(one.device) in full:
            raise RuntimeError("CUDA out of memory\nmore words")
        time.sleep(0.001)

    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            get_device_capability=lambda index: capability,
            get_device_name=lambda index: "NVIDIA H100",
            synchronize=lambda index=None: None,
            can_device_access_peer=lambda one, other: True,
        ),
        device=lambda kind, index: f"{kind}:{index}",
        randn=Tensor,
        empty=Tensor,
        empty_like=lambda one: one,
        mm=mm,
        float32="torch.float32",
        float16="torch.float16",
        bfloat16="torch.bfloat16",
        uint8="torch.uint8",
    )


def test_every_gpu_and_every_way_between_them_is_measured():
    told = script.local(fake_torch(3), 0.01)
    assert [device["index"] for device in told["devices"]] == [0, 1, 2]
    for device in told["devices"]:
        assert (device["model"], device["dtype"]) == ("NVIDIA H100", "bfloat16")
        assert device["tflops"] > 0
        assert device["from_host_gbps"] > 0
        assert device["to_host_gbps"] > 0
    assert [(copy["source"], copy["target"]) for copy in told["peers"]] == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 2),
        (2, 0),
        (2, 1),
    ]
    assert all(copy["direct"] and copy["gbps"] > 0 for copy in told["peers"])


def test_an_old_gpu_multiplies_what_it_can():
    told = script.local(fake_torch(1, (7, 0)), 0.01)
    assert told["devices"][0]["dtype"] == "float16"


def test_a_gpu_that_is_full_is_said_and_the_others_are_measured():
    told = script.local(fake_torch(2, full=("cuda:1",)), 0.01)
    assert told["devices"][1]["problem"] == "CUDA out of memory"
    assert "tflops" not in told["devices"][1]
    assert told["devices"][0]["tflops"] > 0


def test_without_gpu_the_processor_is_measured():
    told = script.local(fake_torch(0), 0.01)
    assert [device["index"] for device in told["devices"]] == [None]
    assert told["peers"] == []


class Group:
    """torch.distributed of one rank: each all-reduce takes a time that grows with the tensor."""

    ReduceOp = SimpleNamespace(MAX="max")

    def __init__(self):
        self.made = None
        self.calls = 0

    def init_process_group(self, backend, timeout):
        self.made = (backend, timeout.total_seconds())

    def all_reduce(self, tensor, op=None):
        self.calls += 1
        time.sleep(tensor.count * 1e-9)

    def barrier(self):
        pass

    def get_world_size(self):
        return 3


def collective(sizes, **more):
    group = Group()

    class Counted:
        def __init__(self, values):
            self.count = values if isinstance(values, int) else 0
            self.value = 0 if isinstance(values, int) else values[0]

        def item(self):
            return self.value

    torch = SimpleNamespace(
        distributed=group,
        device=lambda *words: words,
        zeros=lambda count, dtype, device: Counted(count),
        tensor=lambda values, dtype, device: Counted(values),
        float32=4,
        float64=8,
    )
    task = {"backend": "gloo", "sizes": sizes, "seconds": 0.02, "step_seconds": 8, "timeout": 60, **more}
    return script.collective(torch, task), group


def test_the_sweep_goes_through_all_sizes():
    told, group = collective([1024, 1 << 20, 4 << 20])
    assert (told["backend"], told["world"], group.made) == ("gloo", 3, ("gloo", 60.0))
    assert [row["bytes"] for row in told["rows"]] == [1024, 1 << 20, 4 << 20]
    assert all(row["seconds"] > 0 and row["count"] >= 1 for row in told["rows"])


def test_the_sweep_ends_before_a_size_that_would_take_too_long():
    told, _group = collective([1 << 22, 1 << 30], step_seconds=0.05)
    assert [row["bytes"] for row in told["rows"]] == [1 << 22]


def test_it_runs_from_standard_input_and_says_what_is_missing(tmp_path):
    source = script.__loader__.get_source(script.__name__)
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    env = {script.TASK: json.dumps({"measure": "local", "seconds": 0.1}), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-"], input=source, env=env, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(script.MARK)]
    assert json.loads(line[len(script.MARK) :]) == {"problem": "torch cannot be imported: no torch here"}


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_things_are_repeated_thrice_at_least(seconds):
    took = script.repeat(lambda: None, lambda: None, seconds)
    assert len(took) >= 3
