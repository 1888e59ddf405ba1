# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rendered file is written once, whole, and as its mode and backup are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.modules import rendered_file


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(content: str = "node1 slots=2\n", **more: Any) -> Any:
        params = {"content": content, "dest": str(tmp_path / "file"), "_ansible_tmpdir": str(tmp_path), **more}
        with patch_module_args(params), pytest.raises(SystemExit):
            rendered_file.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_it_is_written_once(call: Callable[..., Any], tmp_path: Path) -> None:
    assert call(mode="0640")["changed"]
    assert (tmp_path / "file").read_text() == "node1 slots=2\n"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert not call(mode="0640")["changed"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_mode_alone_is_a_change(call: Callable[..., Any], tmp_path: Path) -> None:
    call(mode="0600")
    assert call(mode="0644")["changed"]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_check_mode_shows_what_would_be_and_writes_nothing(call: Callable[..., Any], tmp_path: Path) -> None:
    told = call(_ansible_check_mode=True, _ansible_diff=True, mode="0644")
    assert told["changed"]
    assert (told["diff"]["before"], told["diff"]["after"]) == ("", "node1 slots=2\n")
    assert not (tmp_path / "file").exists()


def test_what_was_there_is_kept_where_that_is_asked_for(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine\n")
    kept = call(backup=True)["backup_file"]
    assert Path(kept).read_text() == "mine\n"
    assert "backup_file" not in call(backup=True)


@pytest.mark.parametrize(("dest", "words"), [("", "is a folder"), ("none/file", "is not there: make it first")])
def test_a_place_that_cannot_be_is_named(call: Callable[..., Any], tmp_path: Path, dest: str, words: str) -> None:
    told = call(dest=str(tmp_path / dest))
    assert told["failed"]
    assert words in told["msg"]
