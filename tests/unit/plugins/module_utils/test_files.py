# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("old\n")
    path.chmod(0o640)
    return path


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert _files.read(str(tmp_path / "none")) == ""


@pytest.mark.parametrize(
    "data", [b"", b"plain\n", b"crlf\r\n", b"lone\r", b"no end", b"\xff\xfe latin \xe9\n", "ü\n".encode()]
)
def test_any_bytes_survive_a_round_trip(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    _files.replace(str(path), _files.read(str(path)))
    assert path.read_bytes() == data


@pytest.mark.parametrize(("given", "got"), [(None, 0o644), (0o600, 0o600)])
@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_a_new_file_has_the_mode_whatever_the_umask(tmp_path: Path, given: int | None, got: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        _files.replace(str(tmp_path / "new"), "x", mode=given)
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == got


def test_an_existing_file_keeps_its_mode_unless_one_is_given(old: Path) -> None:
    _files.replace(str(old), "new\n")
    assert (old.read_text(), mode(old)) == ("new\n", 0o640)
    _files.replace(str(old), "new\n", mode=0o600)
    assert mode(old) == 0o600
    _files.replace(str(old), "new\n", owner=os.getuid(), group=os.getgid())
    assert mode(old) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_existing_file_keeps_its_owner_unless_one_is_given(old: Path) -> None:
    os.chown(old, 1234, 4321)
    _files.replace(str(old), "new\n")
    assert (old.stat().st_uid, old.stat().st_gid, mode(old)) == (1234, 4321, 0o640)
    _files.replace(str(old), "new\n", owner=1235, group=4322, mode=0o600)
    assert (old.stat().st_uid, old.stat().st_gid, mode(old)) == (1235, 4322, 0o600)


def test_a_link_stays_a_link_and_its_file_changes(old: Path) -> None:
    link = old.with_name("link")
    link.symlink_to("file")
    _files.replace(str(link), "new\n")
    assert link.is_symlink()
    assert old.read_text() == "new\n"


def test_a_link_to_nothing_makes_the_file_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    _files.replace(str(tmp_path / "link"), "new\n")
    assert (tmp_path / "target").read_text() == "new\n"


@pytest.mark.parametrize("step", ["fsync", "chown", "chmod", "rename"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    old: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_files.os, step, full)
        with pytest.raises(OSError, match="No space left"):
            _files.replace(str(old), "new\n", owner=os.getuid())
    assert old.read_text() == "old\n"
    assert [path.name for path in old.parent.iterdir()] == ["file"]


def test_an_interrupt_leaves_the_old_file_and_no_other(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_files.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _files.replace(str(old), "new\n")
    assert old.read_text() == "old\n"
    assert [path.name for path in old.parent.iterdir()] == ["file"]


def test_readers_see_the_old_file_whole_or_the_new_one_whole(old: Path) -> None:
    with old.open() as reader:
        _files.replace(str(old), "new\n")
        assert reader.read() == "old\n"
    assert old.read_text() == "new\n"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        _files.replace(str(tmp_path / "none" / "file"), "x")


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    return tmp_path / "root" / "lib"


def test_scripts_for_root_are_readable_by_all_whatever_the_umask(lib: Path) -> None:
    umask = os.umask(0o077)
    try:
        _files.install_scripts(str(lib), {"agent.py": "new\n"})
    finally:
        os.umask(umask)
    assert (mode(lib), mode(lib.parent), mode(lib / "agent.py")) == (0o755, 0o755, 0o644)
    before = (lib / "agent.py").stat().st_ino
    _files.install_scripts(str(lib), {"agent.py": "new\n"})
    assert (lib / "agent.py").stat().st_ino == before
    _files.install_scripts(str(lib), {"agent.py": "newer\n"})
    assert (lib / "agent.py").read_text() == "newer\n"


def test_scripts_for_root_are_not_put_where_others_could_change_them(lib: Path) -> None:
    lib.mkdir(parents=True)
    lib.parent.chmod(0o777)
    with pytest.raises(PermissionError, match=f"{lib.parent} could be changed by others"):
        _files.install_scripts(str(lib), {"agent.py": "new\n"})
    assert not (lib / "agent.py").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_scripts_for_root_are_not_put_below_a_users_folder(lib: Path) -> None:
    lib.mkdir(parents=True)
    os.chown(lib.parent, 1234, 1234)
    with pytest.raises(PermissionError, match=str(lib.parent)):
        _files.install_scripts(str(lib), {"agent.py": "new\n"})


def test_a_link_in_the_place_of_a_script_is_not_followed(lib: Path, tmp_path: Path) -> None:
    lib.mkdir(parents=True)
    (tmp_path / "other").write_text("other\n")
    (lib / "agent.py").symlink_to(tmp_path / "other")
    _files.install_scripts(str(lib), {"agent.py": "new\n"})
    assert (tmp_path / "other").read_text() == "other\n"
    assert (lib / "agent.py").read_text() == "new\n"


def test_a_fresh_folder_is_empty_and_readable_by_all_whatever_the_umask(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/old").write_text("", encoding="utf-8")
    before = os.umask(0o077)
    try:
        for path in ("a/b", "c/d"):
            _files.fresh_folder(str(tmp_path / path))
    finally:
        os.umask(before)
    assert list((tmp_path / "a/b").iterdir()) == []
    assert {(tmp_path / path).stat().st_mode & 0o777 for path in ("c", "c/d", "a/b")} == {0o755}


@pytest.mark.parametrize(
    ("digest", "copied"),
    [
        ("", True),
        ("5d41402abc4b2a76b9719d911017c592", True),
        ("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", True),
        ("0" * 32, False),
        ("0" * 64, False),
    ],
)
def test_a_copy_is_there_whole_and_right_or_not_at_all(tmp_path, digest, copied):
    (tmp_path / "source").write_text("hello", encoding="utf-8")
    source, place = tmp_path / "source", tmp_path / "place"
    assert _files.copy_checked(str(source), str(place), digest) is copied
    assert place.exists() is copied
    assert sorted(path.name for path in tmp_path.iterdir()) == (["place", "source"] if copied else ["source"])
    assert not _files.copy_checked(str(source), str(place), "0" * 64)  # what is there stays
    assert not _files.copy_checked(str(tmp_path / "none"), str(tmp_path / "other"))


@pytest.mark.parametrize("tail", ["", "a", "a/b/c"])
def test_nearest_folder(tmp_path: Path, tail: str) -> None:
    assert _files.nearest_folder(str(tmp_path / tail)) == str(tmp_path)


def test_a_relative_path_has_a_nearest_folder_too() -> None:
    assert _files.nearest_folder("no/such/folder") == "/"
