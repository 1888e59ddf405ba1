# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A self-extracting installer fills its folder once, and one that fails leaves it as it was."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.modules import run_installer

GOOD = 'mkdir -p "$1/bin"; echo "$2" > "$1/bin/tool"; echo "$2" >> "$1/../calls"\n'


@pytest.fixture
def call(tmp_path, capsys):
    def run(script=GOOD, version="1", sha="a" * 64, check=False, **more):
        installer = tmp_path / "installer.sh"
        installer.write_text(script, encoding="utf-8")
        params = {
            "installer": str(installer),
            "arguments": [str(tmp_path / "target"), version],
            "target": str(tmp_path / "target"),
            "provides": "bin/tool",
            "sha256": sha,
            "_ansible_check_mode": check,
            **more,
        }
        with patch_module_args(params), pytest.raises(SystemExit):
            run_installer.main()
        return json.loads(capsys.readouterr().out)

    return run


def tool(tmp_path: Path) -> str:
    return (tmp_path / "target/bin/tool").read_text(encoding="utf-8").strip()


def test_it_runs_once(call, tmp_path):
    assert call()["changed"]
    assert not call()["changed"]
    assert (tmp_path / "calls").read_text(encoding="utf-8").split() == ["1"]


def test_check_mode_makes_nothing(call, tmp_path):
    assert call(check=True)["changed"]
    assert not (tmp_path / "target").exists()


def test_another_installer_replaces_what_the_first_left(call, tmp_path):
    call()
    assert call(version="2", sha="b" * 64)["changed"]
    assert tool(tmp_path) == "2"
    assert not (tmp_path / "target.before").exists()


def test_one_that_fails_leaves_the_older_one(call, tmp_path):
    call()
    answer = call(
        'mkdir -p "$1/bin"; echo half > "$1/bin/half"; echo "No space left on device" >&2; exit 1\n', sha="b" * 64
    )
    assert answer["failed"]
    assert "No space left on device" in answer["msg"]
    assert tool(tmp_path) == "1"
    assert not (tmp_path / "target/bin/half").exists()
    assert not call()["changed"]


def test_one_that_says_it_went_well_and_left_nothing(call, tmp_path):
    assert call("exit 0\n")["failed"]
    assert not (tmp_path / "target").exists()


def test_one_that_was_cut_off_is_begun_anew(call, tmp_path):
    (tmp_path / "target/bin").mkdir(parents=True)
    (tmp_path / "target/half").write_text("", encoding="utf-8")
    (tmp_path / "target.installing").write_text("", encoding="utf-8")
    assert call()["changed"]
    assert tool(tmp_path) == "1"
    assert not (tmp_path / "target/half").exists()
    assert not (tmp_path / "target.installing").exists()


def test_what_somebody_else_installed_is_left_alone(call, tmp_path):
    (tmp_path / "target/bin").mkdir(parents=True)
    (tmp_path / "target/bin/tool").write_text("own", encoding="utf-8")
    answer = call()
    assert (answer["changed"], answer["foreign"]) == (False, True)
    assert tool(tmp_path) == "own"


def test_a_folder_of_something_else_is_not_touched(call, tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target/thesis.tex").write_text("", encoding="utf-8")
    assert "is not of this role" in call()["msg"]
    assert (tmp_path / "target/thesis.tex").exists()


def test_too_little_room_is_said_before_it_starts(call, tmp_path):
    assert "are wanted: make room" in call(room=10**18)["msg"]
    assert not (tmp_path / "calls").exists()


def packed(path: Path, *members: tuple[str, bytes, str]) -> None:
    """A tar archive: name, type and content, or a link's target."""
    with tarfile.open(path, "w:xz") as stream:
        for name, kind, text in members:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind == tarfile.REGTYPE:
                entry.size = len(text)
            else:
                entry.linkname = text
            stream.addfile(entry, io.BytesIO(text.encode()))


GOOD_ARCHIVE = [
    ("top-1.0/bin/tool", tarfile.REGTYPE, "1\n"),
    ("top-1.0/bin/same", tarfile.LNKTYPE, "top-1.0/bin/tool"),
    ("top-1.0/lib/tool", tarfile.SYMTYPE, "../bin/tool"),
    ("top-1.0/device", tarfile.CHRTYPE, ""),
]


def test_an_archive_is_unpacked_without_its_top_folder(call, tmp_path):
    path = tmp_path / "archive.tar.xz"
    packed(path, *GOOD_ARCHIVE)
    archive = {"installer": str(path), "unpack": True, "arguments": []}
    assert call(**archive)["changed"]
    assert tool(tmp_path) == "1"
    assert os.path.samefile(tmp_path / "target/bin/same", tmp_path / "target/bin/tool")
    assert os.readlink(tmp_path / "target/lib/tool") == "../bin/tool"
    assert not (tmp_path / "target/device").exists()
    assert not call(**archive)["changed"]


@pytest.mark.parametrize(
    "member",
    [
        ("../outside", tarfile.REGTYPE, "x"),
        ("/outside", tarfile.REGTYPE, "x"),
        ("top-1.0/link", tarfile.SYMTYPE, "../../outside"),
        ("top-1.0/link", tarfile.SYMTYPE, "/etc/passwd"),
        ("top-1.0/link", tarfile.LNKTYPE, "../outside"),
    ],
)
def test_an_archive_that_leads_out_of_its_folder_is_refused(call, tmp_path, member):
    (tmp_path / "outside").write_text("kept", encoding="utf-8")
    path = tmp_path / "archive.tar.xz"
    packed(path, *GOOD_ARCHIVE, member)
    answer = call(installer=str(path), unpack=True, arguments=[])
    assert answer["failed"]
    assert "outside of it" in answer["msg"]
    assert (tmp_path / "outside").read_text(encoding="utf-8") == "kept"
    assert not (tmp_path / "target").exists()


def test_an_archive_that_was_cut_off_leaves_the_folder_as_it_was(call, tmp_path):
    path = tmp_path / "archive.tar.xz"
    packed(path, *GOOD_ARCHIVE)
    archive = {"installer": str(path), "unpack": True, "arguments": []}
    call(**archive)
    path.write_bytes(path.read_bytes()[:-60])
    answer = call(**archive, sha="b" * 64)
    assert answer["failed"]
    assert "cannot be unpacked" in answer["msg"]
    assert tool(tmp_path) == "1"
