# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("ansible", reason="action plugins raise ansible-core's errors")

from ansible_collections.torchfleet.cluster.plugins.action.training_follow import LineSink, NodeLost, within


def shown(tmp_path: Path, *chunks: bytes) -> list[str]:
    lines: list[str] = []
    sink = LineSink(tmp_path / "log", "n1:0", lines.append)
    for chunk in chunks:
        sink.feed(chunk)
    sink.close()
    assert (tmp_path / "log").read_bytes().rstrip(b"\n") == b"".join(chunks).rstrip(b"\n")
    return lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"\n\n  \none\n", ["one"]),
        (b"no end", ["no end"]),
        (b"crlf\r\nnext\r\n", ["crlf", "next"]),
        (b"10%\r20%\r100%\n", ["100%"]),
        (b"10%\r20%\rerror: x\n", ["error: x"]),
        (b"10%\r100%\r\n", ["100%"]),
        ("loss \u20ac\n".encode(), ["loss \u20ac"]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
def test_lines_are_shown_with_their_label_however_the_text_is_cut(
    tmp_path: Path, data: bytes, lines: list[str]
) -> None:
    wanted = [f"n1:0 | {line}" for line in lines]
    assert shown(tmp_path, data) == wanted
    (tmp_path / "log").unlink()
    assert shown(tmp_path, *(data[at : at + 1] for at in range(len(data)))) == wanted


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_costs_the_file_and_not_the_lines() -> None:
    lines: list[str] = []
    sink = LineSink(Path("/dev/full"), "n1:0", lines.append)
    sink.feed(b"one\n")
    sink.feed(b"two\nthr")
    sink.close()
    assert lines == [
        "n1:0 | /dev/full is cut off here: No space left on device",
        "n1:0 | one",
        "n1:0 | two",
        "n1:0 | thr",
    ]


def test_a_bars_states_are_redrawn_and_its_last_one_is_a_line(tmp_path: Path) -> None:
    lines: list[str] = []
    states: list[str] = []
    sink = LineSink(tmp_path / "log", "n1:0", lines.append, redraw=states.append)
    for chunk in (b"start\n", b"10%\r", b"20%\r30%\r", b"\r", b"100%\r\n", b"half a li", b"ne\n"):
        sink.feed(chunk)
    sink.close()
    assert states[:2] == ["n1:0 | 10%", "n1:0 | 30%"]
    assert lines == ["n1:0 | start", "n1:0 | 100%", "n1:0 | half a line"]


def test_who_looks_in_later_sees_the_last_lines_first(tmp_path: Path) -> None:
    lines: list[str] = []
    states: list[str] = []
    sink = LineSink(tmp_path / "log", "n1:0", lines.append, 2, states.append)
    sink.feed(b"one\ntwo\nthree\n10%\r")
    assert (lines, states) == ([], [])
    sink.release()
    sink.feed(b"four\n")
    sink.close()
    assert lines == ["n1:0 | two", "n1:0 | three", "n1:0 | four"]
    assert (tmp_path / "log").read_text().startswith("one\n")


def test_a_call_that_answers() -> None:
    assert within(10, lambda: "answer") == "answer"


def test_a_call_that_hangs_or_fails_means_the_node_is_lost() -> None:
    with pytest.raises(NodeLost, match="no answer in 0 s"):
        within(0.01, lambda: time.sleep(1))

    def fails() -> None:
        raise OSError("link cut")

    with pytest.raises(NodeLost, match="link cut"):
        within(10, fails)
