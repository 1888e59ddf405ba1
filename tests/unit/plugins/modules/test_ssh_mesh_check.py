# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a member logs in to the others, with an ssh that does what the case says."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.modules import ssh_mesh_check

ACCOUNT = pwd.getpwuid(os.getuid())
REFUSED = "root@n2: Permission denied (publickey)."


@pytest.mark.parametrize(
    ("own", "order"),
    [("n1", ["n2", "n3", "n1"]), ("n3", ["n1", "n2", "n3"]), ("elsewhere", ["n1", "n2", "n3"])],
)
def test_each_member_begins_with_the_next(own: str, order: list[str]) -> None:
    assert ssh_mesh_check.in_turn(["n1", "n2", "n3"], own) == order


@pytest.mark.parametrize(
    ("answers", "why", "asked"),
    [
        ([0], None, 1),
        ([255], REFUSED, 1),
        ([None, 0], None, 2),
        ([None, None], "no answer in 15 s", 2),
        ([None, 255], "no answer in 15 s", 2),
    ],
)
def test_what_is_slow_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch, answers: list[int | None], why: str | None, asked: int
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        code = answers[len(commands) - 1]
        if code is None:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return subprocess.CompletedProcess(command, code, b"", b"a banner\n" + REFUSED.encode() if code else b"")

    monkeypatch.setattr(subprocess, "run", run)
    assert ssh_mesh_check.log_in("ssh", ACCOUNT, "n2", 10) == why
    assert len(commands) == asked
    assert commands[0][-3:] == ["--", "n2", "true"]
