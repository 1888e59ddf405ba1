# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._hang import LEAVING, innermost, late, sentence

FAULTHANDLER = """step 7
Fatal Python error: Aborted

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/opt/venv/lib/torch/distributed/distributed_c10d.py", line 2831 in all_reduce
  File "/work/train.py", line 12 in <module>

Extension modules: torch._C (total: 21)
"""
PY_SPY = """Process 41: python -u train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 50 (idle): "Thread-1"
    wait (threading.py:324)
Thread 41 (idle): "MainThread"
    load_batch (data.py:7)
    <module> (train.py:12)
"""


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        (FAULTHANDLER, "all_reduce (distributed_c10d.py:2831)"),
        (PY_SPY, "load_batch (data.py:7)"),
        ('Current thread 0x1 (most recent call first):\n  File "a b.py", line 3 in f\n  ...\n', "f (a b.py:3)"),
        # Behind the program: what Python does last.
        (
            'Current thread 0x1 (most recent call first):\n  File "torch/library.py", line 665 in _del_library\n',
            LEAVING,
        ),
        ("Error: Permission denied", ""),
        ("", ""),
    ],
)
def test_where_a_rank_is(stack: str, place: str) -> None:
    assert innermost(stack) == place


@pytest.mark.parametrize(
    ("places", "ranks"),
    [
        ({0: "a", 1: "a", 2: "b"}, [2]),
        ({0: "b", 1: "a", 2: "a", 3: "", 4: "a", 5: "a"}, [0, 3]),
        ({0: "a", 1: "a"}, []),
        ({0: "a", 1: "b"}, []),
        # Two ranks, of which one waits for the other; and three, of which one has left meanwhile.
        ({0: "all_reduce (distributed_c10d.py:7)", 1: "load (data.py:7)"}, [1]),
        ({0: "all_reduce (distributed_c10d.py:7)", 1: LEAVING, 2: "load (data.py:7)"}, [2]),
        ({0: "all_reduce (distributed_c10d.py:7)", 1: "barrier (distributed_c10d.py:9)"}, []),
        ({0: "all_reduce (distributed_c10d.py:7)", 1: LEAVING, 2: LEAVING}, []),
        ({}, []),
    ],
)
def test_the_late_are_those_who_are_elsewhere(places: dict[int, str], ranks: list[int]) -> None:
    assert late(places) == ranks


def test_the_finding_in_words() -> None:
    assert sentence({0: "wait (c.py:1)", 1: "sleep (t.py:2)", 2: "wait (c.py:1)"}, 60) == (
        "no rank showed any progress for 60 s (launch_stall_timeout): rank 1 is at sleep (t.py:2), late; "
        "the others wait at wait (c.py:1)"
    )
    assert sentence({0: "a", 1: ""}, 60).endswith(": rank 0 at a, rank 1 at an unknown place")
    assert sentence({0: "all_reduce (distributed_c10d.py:7)", 1: LEAVING, 2: "load (data.py:7)"}, 60).endswith(
        ": rank 2 is at load (data.py:7), late; the others wait at all_reduce (distributed_c10d.py:7)"
    )
    assert sentence({}, 60).endswith("(launch_stall_timeout)")
