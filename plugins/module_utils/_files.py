# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Files on a node, replaced whole: a power cut leaves the old file or the new one. The one module_utils with a disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from typing import Mapping, Optional

BLOCK = 1 << 20  # bytes of a file at a time


def read(path: str) -> str:
    """The file's text; empty where there is no file. Bytes that are no UTF-8 survive a round trip."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def replace(
    path: str, text: str, mode: Optional[int] = None, owner: Optional[int] = None, group: Optional[int] = None
) -> None:
    """Write beside the file, flush, and rename over it.

    An existing file keeps its owner and mode unless they are given; a new one's mode is 0644 where none is. A symbolic
    link is followed, so that the file it names is the one that changes. Raises OSError; then the file is as it was.
    """
    path = os.path.realpath(path)
    try:
        old = os.stat(path)
        mode = stat.S_IMODE(old.st_mode) if mode is None else mode
        owner = old.st_uid if owner is None else owner
        group = old.st_gid if group is None else group
    except FileNotFoundError:
        pass
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".torchfleet-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if owner is not None:
            os.chown(name, owner, -1 if group is None else group)
        os.chmod(name, 0o644 if mode is None else mode)
        os.rename(name, path)
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise


def nearest_folder(path: str) -> str:
    """The folder, or the first above it that exists; of a relative path that leads nowhere, the root."""
    while not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def fresh_folder(path: str) -> None:
    """An empty folder that every user can read, whatever root's umask is: another user passes on what is put there."""
    shutil.rmtree(path, ignore_errors=True)
    umask = os.umask(0o022)
    try:
        os.makedirs(path)
    finally:
        os.umask(umask)


def copy_checked(source: str, place: str, digest: str = "") -> bool:
    """Whether a copy is there now that was not before: whole, and with that SHA-256 or MD5 where one is given.

    It is looked at on its way, as others than root may have written the source. A full disk, say, is no error here: who
    wanted the copy does without.
    """
    if os.path.exists(place) or not os.path.isfile(source):
        return False
    found = hashlib.new("md5" if len(digest) == 32 else "sha256")
    part = f"{place}.torchfleet"
    try:
        with open(source, "rb") as old, open(part, "wb") as new:
            for block in iter(lambda: old.read(BLOCK), b""):
                found.update(block)
                new.write(block)
        if digest not in ("", found.hexdigest()):
            return False
        os.rename(part, place)
        return True
    except OSError:
        return False
    finally:
        if os.path.lexists(part):
            os.unlink(part)


def install_scripts(folder: str, scripts: Mapping[str, str]) -> None:
    """Put scripts that root runs where nobody else can change them, each readable by all.

    Raises OSError, also where another user could put something else in their place.
    """
    umask = os.umask(0o022)
    try:
        os.makedirs(folder, exist_ok=True)
    finally:
        os.umask(umask)
    above = os.path.abspath(folder)
    while True:
        found = os.lstat(above)
        shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or shared:
            raise PermissionError(f"{above} could be changed by others than root, who runs what lies there")
        if above == os.path.dirname(above):
            break
        above = os.path.dirname(above)
    for name, text in scripts.items():
        path = os.path.join(folder, name)
        if os.path.islink(path):
            os.unlink(path)
        if read(path) != text:
            replace(path, text, 0o644)
