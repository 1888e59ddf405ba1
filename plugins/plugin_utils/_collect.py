# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Files that come back from a run's output folder: which ones, and how they are put down on the controller."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ansible_collections.torchfleet.cluster.plugins.module_utils._sync_agent import Excludes

PART = ".part"


class Changed(Exception):
    """A file on the node is no longer what it was when it was listed."""


@dataclass(frozen=True)
class Entry:
    """A file or a link of the output folder. Size in bytes; `target` is a link's."""

    path: str
    size: int
    mode: int
    mtime: float
    target: str | None = None


def entries(listed: Iterable[Sequence[Any]]) -> list[Entry]:
    """What the node listed, but for names that would lead out of the folder."""
    found = []
    for path, size, mode, mtime in listed:
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            continue
        if isinstance(size, str):
            inside = os.path.normpath(os.path.join(os.path.dirname(path), size))
            if size.startswith("/") or inside.split("/")[0] == "..":
                continue
            found.append(Entry(path, 0, mode, mtime, size))
        else:
            found.append(Entry(path, int(size), mode, mtime))
    return found


def chosen(found: Sequence[Entry], patterns: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """Entries that the patterns (as .gitignore has them) name, and the patterns that name nothing.

    A folder's name stands for all in it, from which `!` takes away.
    """

    def named(matcher: Excludes, path: str) -> bool:
        parts, state = path.split("/"), False
        for depth in range(1, len(parts) + 1):
            verdict = matcher.verdict("/".join(parts[:depth]), depth < len(parts))
            state = state if verdict is None else verdict
        return state

    everything = Excludes(patterns)
    wanted = [entry for entry in found if named(everything, entry.path)]
    single = [(pattern, Excludes([pattern])) for pattern in patterns if not pattern.startswith(("!", "#"))]
    return wanted, [pattern for pattern, matcher in single if not any(named(matcher, entry.path) for entry in found)]


class Receiver:
    """Puts files down in a folder, each whole or not at all. `keep`: what is there already stays."""

    def __init__(self, folder: Path, keep: bool = False) -> None:
        self.folder, self.keep = folder, keep

    def has(self, entry: Entry) -> bool:
        """Whether the file is there already: from a former call, or from another node."""
        path = self.folder / entry.path
        if not os.path.lexists(path):
            return False
        if self.keep or entry.target is not None:
            return self.keep or (path.is_symlink() and os.readlink(path) == entry.target)
        about = path.lstat()
        return about.st_size == entry.size and abs(about.st_mtime - entry.mtime) < 0.001

    def begin(self, entry: Entry) -> Path:
        path = self.folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}{PART}")
        part.write_bytes(b"")
        return part

    def add(self, entry: Entry, part: Path, data: bytes) -> bool:
        """Whether the file is complete. Raises Changed where the node has less or more of it than it said."""
        with part.open("ab") as stream:
            stream.write(data)
            received = stream.tell()
        if received > entry.size or (not data and received < entry.size):
            part.unlink()
            raise Changed(f"{entry.path} was changed while it was brought")
        if received < entry.size:
            return False
        os.chmod(part, entry.mode)
        os.utime(part, (entry.mtime, entry.mtime))
        self._place(part, self.folder / entry.path)
        return True

    def link(self, entry: Entry) -> None:
        part = self.begin(entry)
        part.unlink()
        part.symlink_to(str(entry.target))
        self._place(part, self.folder / entry.path)

    def _place(self, part: Path, path: Path) -> None:
        if not self.keep:
            part.replace(path)
            return
        with contextlib.suppress(FileExistsError):
            os.link(part, path, follow_symlinks=False)
        part.unlink()
