# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disk is really written and read; nothing of it stays."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.modules import disk_bench

MIB = 1 << 20


def test_a_folder_is_measured_and_left_as_it_was(tmp_path):
    (tmp_path / "mine").write_text("x")
    found = disk_bench.measure(str(tmp_path), 16 * MIB, 5)
    assert found["write_mbps"] > 0
    assert found["read_mbps"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_direct_access_it_is_measured_all_the_same(tmp_path, monkeypatch):
    real = disk_bench.os.open

    def refuse(path, flags, mode=0o777):
        if flags & disk_bench.os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, mode)

    monkeypatch.setattr(disk_bench.os, "open", refuse)
    found = disk_bench.measure(str(tmp_path), 8 * MIB, 5)
    assert found["direct"] is False
    assert found["write_mbps"] > 0


def test_a_full_disk_is_not_filled_further(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_bench, "SPARE_BYTES", 1 << 62)
    assert disk_bench.measure(str(tmp_path), 16 * MIB, 5) == {"problem": "too little free space to measure"}
    assert list(tmp_path.iterdir()) == []


def test_time_is_kept(tmp_path, monkeypatch):
    ticks = iter(range(0, 1000, 10))
    monkeypatch.setattr(disk_bench.time, "monotonic", lambda: next(ticks))
    found = disk_bench.measure(str(tmp_path), 1024 * MIB, 5)
    # One block each, in ten seconds of this clock or twenty: the rate is of what was written.
    assert found["write_mbps"] == pytest.approx(4 * MIB / 1e6 / 20, abs=0.1)
