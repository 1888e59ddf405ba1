# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a member logs in to the others, with an ssh that does what the case says."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _mesh

ACCOUNT = pwd.getpwuid(os.getuid())
REFUSED = "root@n2: Permission denied (publickey)."
RESET = "kex_exchange_identification: read: Connection reset by peer"
SLOW = "no answer: timed out after 15 s"


@pytest.mark.parametrize(
    ("own", "order"),
    [("n1", ["n2", "n3", "n1"]), ("n3", ["n1", "n2", "n3"]), ("elsewhere", ["n1", "n2", "n3"])],
)
def test_each_member_begins_with_the_next(own: str, order: list[str]) -> None:
    assert _mesh.in_turn(["n1", "n2", "n3"], own) == order


@pytest.mark.parametrize(
    ("answers", "why", "asked"),
    [
        ([""], "", 1),
        ([REFUSED], REFUSED, 1),
        ([None, ""], "", 2),
        ([None, None], SLOW, 2),
        ([None, REFUSED], REFUSED, 2),
        ([RESET, ""], "", 2),
        ([RESET, RESET], RESET, 2),
        ([FileNotFoundError()], "there is no ssh on this node", 1),
    ],
)
def test_what_is_slow_or_turned_away_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any], why: str, asked: int
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        words = answers[len(commands) - 1]
        if words is None:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        if isinstance(words, OSError):
            raise words
        return subprocess.CompletedProcess(command, 255 if words else 0, b"", b"a banner\n" + words.encode())

    monkeypatch.setattr(subprocess, "run", run)
    assert _mesh.log_in(ACCOUNT, "n2", 10).why == why
    assert len(commands) == asked
    assert commands[0][-3:] == ["--", "n2", "true"]
    assert "BatchMode=yes" in commands[0]


def test_every_peer_is_asked_for_the_same() -> None:
    def answer(_account: pwd.struct_passwd, peer: str, timeout: int, script: str) -> _mesh.Login:
        return _mesh.Login(f"{peer} {timeout} {script}", "" if peer == "n1" else REFUSED)

    assert _mesh.log_in_to_all(ACCOUNT.pw_name, ["n1", "n2"], 5, "ulimit", answer) == {
        "n1": _mesh.Login("n1 5 ulimit", ""),
        "n2": _mesh.Login("n2 5 ulimit", REFUSED),
    }


def test_a_user_that_the_node_lacks_is_each_peers_answer() -> None:
    answers = _mesh.log_in_to_all("nobody-of-that-name", ["n1"], 5)
    assert answers["n1"].why == "there is no user nobody-of-that-name on this node"


def test_the_users_command_has_that_users_home_and_a_time_limit() -> None:
    shown = [sys.executable, "-c", "import os; print(os.environ['HOME'], os.getcwd())"]
    assert _mesh.as_user(ACCOUNT, shown, 20) == (0, f"{ACCOUNT.pw_dir} /\n", "")
    code, _out, err = _mesh.as_user(ACCOUNT, [sys.executable, "-c", "import time; time.sleep(9)"], 0.1)
    assert (code, err) == (_mesh.NO_ANSWER, "no answer: timed out after 0 s")
