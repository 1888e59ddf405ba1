# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _runs


def test_a_manifest_is_written_whole_and_added_to(tmp_path: Path) -> None:
    _runs.write_json(tmp_path / _runs.MANIFEST, {"state": "planned", "path": tmp_path, "run_id": "r"})
    assert _runs.update_manifest(tmp_path, state="failed")["state"] == "failed"
    assert _runs.read_manifest(tmp_path) == {"state": "failed", "path": str(tmp_path), "run_id": "r"}
    assert [path.name for path in tmp_path.iterdir()] == [_runs.MANIFEST]


def test_a_manifest_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    _runs.write_json(tmp_path / _runs.MANIFEST, {"a": 1})
    with pytest.raises(TypeError):
        _runs.write_json(tmp_path / _runs.MANIFEST, {("a", "b"): 1})
    assert _runs.read_manifest(tmp_path) == {"a": 1}


def test_the_first_reason_to_stop_stands(tmp_path: Path) -> None:
    assert _runs.stop_reason(tmp_path) == ""
    for reason in ("first", "second", "third"):
        _runs.order_stop(tmp_path, reason)
    assert _runs.stop_reason(tmp_path) == "first"
    assert [path.name for path in tmp_path.iterdir()] == [_runs.STOP]


def test_followers_that_order_the_end_at_once_agree_on_one_reason(tmp_path: Path) -> None:
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            _runs.order_stop(tmp_path, f"reason {number} " + "x" * 5000)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    reason = _runs.stop_reason(tmp_path)
    assert reason.startswith("reason ") and len(reason) == 5009
    assert [path.name for path in tmp_path.iterdir()] == [_runs.STOP]


def test_a_signal_while_the_end_is_being_ordered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def interrupted(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", link)
        os.kill(os.getpid(), signal.SIGUSR1)
        link(source, target)

    monkeypatch.setattr(os, "link", interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_args: _runs.order_stop(tmp_path, "the handler's"))
    try:
        _runs.order_stop(tmp_path, "the interrupted one's")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert _runs.stop_reason(tmp_path) == "the handler's"
    assert [path.name for path in tmp_path.iterdir()] == [_runs.STOP]


def test_secrets_are_shown_by_name_only() -> None:
    shown = _runs.shown_env({"A": "1", "TOKEN": "hunter2"}, ("TOKEN", "OTHER"))
    assert set(shown) == {"A", "TOKEN", "OTHER"}
    assert "hunter2" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one\n\n  \ntwo\n", ["one", "two"]),
        (b"no end", ["no end"]),
        (b"10%\r20%\rloss 1\n30%\r40%\r", ["loss 1", "40%"]),
        (b"crlf\r\nx\r\n", ["crlf", "x"]),
        (b"\xff\n", ["\ufffd"]),
        (b"x" * 70000 + b"\nlast\n", ["x" * 65530, "last"]),
        (b"".join(b"%d\n" % number for number in range(50)), [str(number) for number in range(35, 50)]),
    ],
)
def test_the_last_lines_of_a_log(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "log").write_bytes(data)
    assert _runs.last_lines(tmp_path / "log") == lines


def test_there_may_be_no_log(tmp_path: Path) -> None:
    assert _runs.last_lines(tmp_path / "log") == []


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        ("step 1\nstep 2\n", ""),
        ("", ""),
        (
            'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    main()\nValueError: boom\n',
            "ValueError: boom",
        ),
        (
            "Traceback (most recent call last):\n  File x\nKeyError: 1\n\nDuring handling of the above exception, another "
            "exception occurred:\n\nTraceback (most recent call last):\n  File y\ntorch.OutOfMemoryError: CUDA out of memory.\nbye\n",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        ("Traceback (most recent call last):\n  File x\n", ""),
        (
            '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 3, in <module>\n[rank1]:     main()\n'
            "[rank1]: ValueError: boom\n",
            "ValueError: boom",
        ),
    ],
)
def test_the_last_traceback_comes_to_its_exception(tmp_path: Path, text: str, exception: str) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(text, encoding="utf-8")
    assert _runs.last_exception(log) == exception
