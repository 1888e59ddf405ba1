# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible", reason="action plugins raise ansible-core's errors")

from ansible_collections.torchfleet.cluster.plugins.action.training_pickup import has_controller, refusal, take_folder
from ansible_collections.torchfleet.cluster.plugins.module_utils._run_list import RunView
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _runs

HERE = {"host": socket.gethostname(), "pid": os.getpid()}
NOBODY = {"host": socket.gethostname(), "pid": 2**22 + 1}
LAUNCH: dict[str, Any] = {"run_id": "r1", "state": "planned", "plan": {"nodes": [{"node": "n1"}, {"node": "n2"}]}}


@pytest.mark.parametrize(
    ("manifest", "alive"),
    [
        ({"state": "planned", "controller": HERE}, True),
        ({"state": "planned", "controller": NOBODY}, False),
        ({"state": "planned", "controller": {**HERE, "host": "elsewhere"}}, False),
        ({"state": "planned"}, False),
        ({"state": "detached", "controller": HERE}, False),
        ({"state": "failed", "controller": HERE}, False),
    ],
)
def test_whether_somebody_follows_the_run(manifest: Any, alive: bool) -> None:
    assert has_controller(manifest) is alive


def test_a_run_of_another_controller_gets_a_folder(tmp_path: Path) -> None:
    folder = take_folder(tmp_path / "runs", "r1", LAUNCH)
    assert folder == tmp_path / "runs" / "r1"
    assert _runs.read_manifest(folder)["plan"] == LAUNCH["plan"]
    assert (folder / "n2").is_dir()


def test_what_a_dead_controller_left_is_taken_over(tmp_path: Path) -> None:
    folder = take_folder(tmp_path, "r1", LAUNCH)
    _runs.update_manifest(folder, controller=NOBODY, versions={"n1": {"torch": "2"}})
    (folder / "n1" / "rank-0.log").write_text("half of it")
    (folder / "output").mkdir()
    _runs.order_stop(folder, "of old")
    assert take_folder(tmp_path, "r1", LAUNCH) == folder
    assert _runs.read_manifest(folder)["versions"] == {"n1": {"torch": "2"}}
    assert _runs.stop_reason(folder) == ""
    assert sorted(path.name for path in folder.rglob("*")) == ["manifest.json", "n1", "n2", "output"]


def test_a_living_controllers_folder_is_left_alone(tmp_path: Path) -> None:
    folder = take_folder(tmp_path, "r1", LAUNCH)
    _runs.update_manifest(folder, controller=HERE)
    (folder / "n1" / "rank-0.log").write_text("being written")
    aside = take_folder(tmp_path, "r1", LAUNCH)
    try:
        assert aside != folder
        assert (folder / "n1" / "rank-0.log").read_text() == "being written"
    finally:
        shutil.rmtree(aside)


@pytest.mark.parametrize(
    ("ends", "follows", "words"),
    [
        (True, False, "run r1 is on n2, too, which --limit leaves out: ended on some nodes alone it would hang"),
        (False, True, "-e launch_logs_follow=false"),
        (False, False, ""),
    ],
)
def test_with_limit_a_run_is_neither_ended_nor_followed_by_halves(ends: bool, follows: bool, words: str) -> None:
    view = RunView("r1", "ml", "running", ("n1",), (), 1.0, "", LAUNCH, outside=("n2",))
    assert words in refusal(view, ends, follows)
    assert bool(words) == bool(refusal(view, ends, follows))
