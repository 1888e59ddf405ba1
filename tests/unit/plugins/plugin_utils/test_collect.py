# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _collect
from ansible_collections.torchfleet.cluster.plugins.plugin_utils.node import agent

FILES = {"model.pt": b"m" * 3000, "log.txt": b"", "step-1/shard0.pt": b"0" * 10, "step-1/sub/deep.json": b"{}"}


@pytest.fixture()
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "model.pt").chmod(0o640)
    (folder / "latest").symlink_to("step-1")
    (folder / "evil").symlink_to("/etc")
    (folder / "above").symlink_to("../other")
    os.mkfifo(folder / "pipe")
    return folder


def bring(output: Path, receiver: _collect.Receiver, patterns: list[str], room: int = 1000) -> list[str]:
    wanted, _unmatched = _collect.chosen(_collect.entries(agent.list_output(str(output))), patterns)
    for entry in wanted:
        if receiver.has(entry):
            continue
        if entry.target is not None:
            receiver.link(entry)
            continue
        part, whole, offset = receiver.begin(entry), False, 0
        while not whole:
            (piece,) = agent.read_output(str(output), room, [[entry.path, offset]])
            data = base64.b64decode(piece)
            offset += len(data)
            whole = receiver.add(entry, part, data)
    return [entry.path for entry in wanted]


@pytest.mark.parametrize(
    ("patterns", "found", "unmatched"),
    [
        (["model.pt"], ["model.pt"], []),
        (["*.pt"], ["model.pt", "step-1/shard0.pt"], []),
        (["/*.pt"], ["model.pt"], []),
        (["step-1/"], ["step-1/shard0.pt", "step-1/sub/deep.json"], []),
        (["step-*/**", "!deep.json"], ["step-1/shard0.pt"], []),
        (["*", "!*.pt"], ["latest", "log.txt", "step-1/sub/deep.json"], []),
        (["none", "log.txt"], ["log.txt"], ["none"]),
        (["evil", "above", "pipe"], [], ["evil", "above", "pipe"]),
    ],
)
def test_patterns_choose_files(output: Path, patterns: list[str], found: list[str], unmatched: list[str]) -> None:
    wanted, missed = _collect.chosen(_collect.entries(agent.list_output(str(output))), patterns)
    assert sorted({entry.path for entry in wanted}) == sorted(found)
    assert missed == unmatched


def test_files_come_whole_with_mode_time_and_links(output: Path, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    bring(output, _collect.Receiver(dest), ["*"])
    for name, data in FILES.items():
        assert (dest / name).read_bytes() == data
        assert abs((dest / name).stat().st_mtime - (output / name).stat().st_mtime) < 0.001
    assert (dest / "model.pt").stat().st_mode & 0o777 == 0o640
    assert os.readlink(dest / "latest") == "step-1"
    assert not any(_collect.PART in path.name for path in dest.rglob("*"))
    assert not os.path.lexists(dest / "evil")


def test_what_is_there_is_not_brought_again_and_what_changed_is(output: Path, tmp_path: Path) -> None:
    receiver = _collect.Receiver(tmp_path / "dest")
    bring(output, receiver, ["*"])
    listed = _collect.entries(agent.list_output(str(output)))
    assert all(receiver.has(entry) for entry in listed)
    (output / "model.pt").write_bytes(b"new")
    assert [entry.path for entry in _collect.entries(agent.list_output(str(output))) if not receiver.has(entry)] == [
        "model.pt"
    ]


def test_keep_leaves_the_first_nodes_file(output: Path, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "model.pt").write_bytes(b"the head's")
    bring(output, _collect.Receiver(dest, keep=True), ["*.pt"])
    assert (dest / "model.pt").read_bytes() == b"the head's"
    assert (dest / "step-1/shard0.pt").read_bytes() == FILES["step-1/shard0.pt"]


@pytest.mark.parametrize("data", [b"", b"x" * 3001])
def test_a_file_that_changes_meanwhile_is_not_taken(output: Path, tmp_path: Path, data: bytes) -> None:
    receiver = _collect.Receiver(tmp_path / "dest")
    entry = next(e for e in _collect.entries(agent.list_output(str(output))) if e.path == "model.pt")
    part = receiver.begin(entry)
    with pytest.raises(_collect.Changed, match=r"model\.pt was changed"):
        receiver.add(entry, part, data)
    assert not list((tmp_path / "dest").iterdir())


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_names_that_lead_out_are_left(path: str) -> None:
    assert _collect.entries([[path, 1, 0o644, 0.0]]) == []


def test_small_files_share_an_answer_and_what_cannot_be_read_is_told(output: Path) -> None:
    pieces = agent.read_output(str(output), 100, [["step-1/shard0.pt", 0], ["gone", 0], ["model.pt", 2990]])
    assert base64.b64decode(pieces[0]) == FILES["step-1/shard0.pt"]
    assert pieces[1] == "!No such file or directory"
    assert base64.b64decode(pieces[2]) == b"m" * 10
