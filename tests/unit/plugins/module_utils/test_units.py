# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _units

ALL = "CapEff:\t000001ffffffffff\n"
CONTAINER = "CapEff:\t00000000a80425fb\n"


@pytest.mark.parametrize(("text", "can"), [(ALL, True), (CONTAINER, False), ("Name:\tinit\n", False)])
def test_the_limit_is_raised_where_the_machine_lets_systemd(tmp_path: Path, text: str, can: bool) -> None:
    (tmp_path / "status").write_text(f"Name:\tsystemd\n{text}", encoding="utf-8")
    assert _units.memlock_can_be_raised(str(tmp_path / "status")) is can
    assert _units.memlock_can_be_raised(str(tmp_path / "gone")) is False


@pytest.mark.parametrize(
    ("hard", "systemd", "raised", "memlock"),
    [
        (65536, True, True, float("inf")),
        (65536, True, False, 65536),
        (65536, False, True, 65536),
        (resource.RLIM_INFINITY, False, False, float("inf")),
    ],
)
def test_what_a_runs_processes_can_lock(
    monkeypatch: pytest.MonkeyPatch, hard: int, systemd: bool, raised: bool, memlock: float
) -> None:
    monkeypatch.setattr(_units.resource, "getrlimit", lambda _name: (0, hard))
    monkeypatch.setattr(_units, "has_systemd", lambda: systemd)
    monkeypatch.setattr(_units, "memlock_can_be_raised", lambda: raised)
    assert _units.memlock() == memlock
