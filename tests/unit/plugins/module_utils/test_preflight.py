# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _preflight
from ansible_collections.torchfleet.cluster.plugins.module_utils._preflight import Process

AGENT = b"/opt/venv/bin/python\0-I\0/var/lib/torchfleet/lib/0123/agent.py\0run\0/var/lib/torchfleet/runs/r1\0"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("command", "environ", "run_id", "supervises"),
    [
        (AGENT, b"A=1\0TORCHFLEET_RUN_ID=r1\0", "r1", True),
        (AGENT.replace(b"\0run\0", b"\0follow\0"), b"TORCHFLEET_RUN_ID=r1\0", "r1", False),
        (AGENT, b"", "", False),
        (b"python\0train.py\0run\0", b"TORCHFLEET_RUN_ID=r1\0", "r1", False),
        (b"python\0train.py\0", b"XTORCHFLEET_RUN_ID=r1\0", "", False),
        (b"", b"", "", False),
        (b"\xff\0", b"TORCHFLEET_RUN_ID=\0", "", False),
    ],
)
def test_whose_process_it_is(command: bytes, environ: bytes, run_id: str, supervises: bool) -> None:
    found = _preflight.read_process(7, "ml", command, environ)
    assert (found.run_id, found.supervises) == (run_id, supervises)


def test_a_process_is_named_as_people_know_it() -> None:
    found = _preflight.read_process(7, "ml", b"python\0train.py\0--lr\0", b"")
    assert str(found) == "process 7 (python train.py --lr) of ml"


def test_runs_without_their_supervisor_are_what_is_left_of_them() -> None:
    agent = Process(1, "ml", "agent.py", "r1", supervises=True)
    rank, orphan, other = Process(2, "ml", "a", "r1"), Process(3, "ml", "b", "r2"), Process(4, "root", "sshd")
    live, stale = _preflight.split_runs([orphan, rank, agent, other])
    assert (live, stale) == ({"r1": [rank, agent]}, {"r2": [orphan]})
    assert _preflight.overlap_problems(live) == [
        "run r1 of ml is running here: end it with stop.yml -e run_id=r1, or set launch_allow_overlap"
    ]


def gpu(index: int, *processes: dict[str, Any], lost: bool = False) -> dict[str, Any]:
    return {"index": index, "lost": lost, "processes": list(processes)}


HOLDERS = {5: Process(5, "ann", "python x.py"), 6: Process(6, "ml", "python y.py", "r9")}


@pytest.mark.parametrize(
    ("gpus", "slots", "overlap", "said"),
    [
        ([], 4, False, []),
        ([gpu(0), gpu(1)], 2, False, []),
        ([gpu(0), gpu(1)], 0, False, []),
        ([gpu(0), gpu(1)], 3, False, ["3 ranks are planned, and there are 2 GPUs: set torchfleet_slots to 2"]),
        (
            [gpu(0), gpu(1, lost=True)],
            2,
            False,
            [
                "the driver has lost GPU 1: reset it or reboot",
                "2 ranks are planned, and there are 1 GPUs: set torchfleet_slots to 1",
            ],
        ),
        (
            [gpu(0, {"pid": 5, "kind": "C"})],
            1,
            True,
            ["GPU 0 is in use by process 5 (python x.py) of ann: end it, or set launch_allow_busy_gpus"],
        ),
        ([gpu(0, {"pid": 6, "kind": "C"})], 1, True, []),
        (
            [gpu(0, {"pid": 6, "kind": "C+G"})],
            1,
            False,
            ["GPU 0 is in use by process 6 (python y.py) of ml: end it, or set launch_allow_busy_gpus"],
        ),
        # In another container: no process of that number is to be seen.
        (
            [gpu(0, {"pid": 8, "kind": "C", "name": "train"})],
            1,
            False,
            ["GPU 0 is in use by process 8 (train): end it, or set launch_allow_busy_gpus"],
        ),
        ([gpu(0, {"pid": 9, "kind": "G", "name": "Xorg"})], 1, False, []),
    ],
)
def test_gpus_that_are_not_there_or_not_free(gpus: Any, slots: int, overlap: bool, said: list[str]) -> None:
    assert _preflight.gpu_problems(gpus, slots, HOLDERS, overlap) == said


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ({"n1": 0, "n2": 0}, []),
        ({"n1": 8, "n2": 4}, []),
        ({"n1": 8, "n2": None}, []),
        (
            {"n1": 8, "n2": 0},
            [
                "n2: no GPU can be used (the driver is not loaded), and there are some on n1: repair it, leave it out of "
                "the group, or set torchfleet_slots"
            ],
        ),
    ],
)
def test_a_node_without_a_usable_gpu_beside_others(gpus: Any, said: list[str]) -> None:
    assert _preflight.uneven_gpus(gpus, {"n2": "the driver is not loaded"}) == said


def test_a_held_port_comes_with_one_that_is_free() -> None:
    assert "set torchfleet_master_port to 29501, which is free" in _preflight.port_problem(29500, "process 1", 29501)
    assert "set torchfleet_master_port to another port" in _preflight.port_problem(29500, "process 1", None)


@pytest.mark.parametrize(
    ("found", "bad"),
    [
        (["127.0.1.1"], True),
        (["::1"], True),
        (["10.0.0.1", "127.0.0.1"], False),
        ([], False),
        (["fe80::1%eth0"], False),
    ],
)
def test_names_on_loopback(found: list[str], bad: bool) -> None:
    problems = _preflight.name_problems({"n1": found})
    assert bool(problems) is bad
    assert all(problem.startswith(f"n1 resolves to {found[0]}") for problem in problems)


def test_too_little_room() -> None:
    assert _preflight.space_problems({"/a": GIB, "/b": 3 << 20}, GIB) == [
        "3.0 MiB are free at /b, wanted 1.0 GiB for logs and checkpoints: make room, or set launch_min_free_bytes"
    ]
    assert _preflight.space_problems({"/a": 0}, 0) == []


@pytest.mark.parametrize(
    ("shm", "rdma", "memlock", "words"),
    [
        (GIB, False, 65536, []),
        (GIB, True, float("inf"), []),
        (GIB, True, 65536, ["no more than 64.0 KiB of memory can be locked"]),
        (1 << 20, False, 0, ["1.0 MiB are free in /dev/shm"]),
        (None, False, 0, ["there is no /dev/shm"]),
    ],
)
def test_memory_that_may_not_do(shm: int | None, rdma: bool, memlock: float, words: list[str]) -> None:
    found = _preflight.memory_warnings(shm, rdma, memlock)
    assert [line.partition(":")[0] for line in found] == words


@pytest.mark.parametrize(
    ("rdma", "hard", "words"),
    [
        (True, "64", ["over ssh to n2, no more than 64.0 KiB of memory can be locked"]),
        (True, "0", ["over ssh to n2, no more than 0 B of memory can be locked"]),
        (True, "unlimited", []),
        (True, "", []),
        (False, "64", []),
    ],
)
def test_limits_of_ranks_that_come_over_ssh(rdma: bool, hard: str, words: list[str]) -> None:
    answer = f"a banner\ntorchfleet-check\n64\n{hard}\n1024\n1024\n\n"
    found = _preflight.session_warnings(rdma, {"n2": answer, "n3": ""})
    assert [line.partition(":")[0] for line in found] == words


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ({"python": "3.11.2", "torch": "2.6"}, {"python": "3.11.9", "torch": "2.6"}, None),
        ({"python": "3.11.2"}, {"python": "3.12.1"}, "python differs between the nodes (3.11 on n1; 3.12 on n2)"),
        ({"torch": "2.6"}, {"torch": "2.5"}, "torch differs between the nodes (2.5 on n2; 2.6 on n1)"),
        ({"numpy": "2"}, {"torch": "2"}, "torch differs between the nodes (2 on n2; none on n1)"),
        ({}, {"torch": "2.5"}, None),  # n1 has said already why it knows of none
    ],
)
def test_versions_that_differ(one: dict[str, str], two: dict[str, str], said: str | None) -> None:
    found = _preflight.version_problems({"n1": one, "n2": two}, ["torch"])
    assert [line.partition(": run")[0] for line in found] == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("digests", "said"),
    [
        ({"n1": "a" * 64, "n2": "a" * 64}, ""),
        ({"n1": "a" * 64, "n2": ""}, ""),  # n2 has said already that it has none
        ({"n1": "a" * 64, "n2": "b" * 64, "n3": "a" * 64}, "sha256 aaaaaaaaaaaa on n1, n3; sha256 bbbbbbbbbbbb on n2"),
    ],
)
def test_interpreters_that_are_not_the_same_file(digests: dict[str, str], said: str) -> None:
    note = _preflight.interpreter_note(digests)
    assert (said in note) if said else note == ""
