# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A verified file in the controller's cache, fetched once however many nodes want it at the same time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.torchfleet.cluster.plugins.module_utils._download import (
    DownloadError,
    Opener,
    digest,
    file_name,
    receive,
)

# How long a file without a sum counts as the current one: the nodes of one run share it, a later run sees a new one.
CURRENT_SECONDS = 3600
HERE = ("this controller", "torchfleet_cache")


def check_sha256(value: Any) -> str:
    """The 64 hex digits, without a `sha256:` before them. Raises DownloadError."""
    text = str(value if value is not None else "").strip().lower()
    text = text[len("sha256:") :] if text.startswith("sha256:") else text
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise DownloadError(f"sha256 is {value!r}, wanted the 64 hex digits of the file's SHA-256")
    return text


def local_file(path: str, sha256: str) -> Path:
    """A file of the controller's own, if it is the wanted one."""
    here = Path(path).expanduser()
    if not here.is_file():
        raise DownloadError(f"{here} is not on this controller: put it there, or set a url")
    found = digest(here)
    if found != sha256:
        raise DownloadError(f"{here} is not the wanted file: its sha256 is {found}, wanted {sha256}")
    return here


def fetch(url: str, sha256: str, cache: Path, open_url: Opener) -> tuple[Path, int]:
    """The file in the cache, and how many bytes were fetched for it: none where it was there.

    A fetch that was cut off is continued by the next call. What is not the wanted file is removed.
    """
    return _in_cache(url, cache, cache / sha256, lambda done: _fetch_locked(url, sha256, done, open_url))


def fetch_current(url: str, cache: Path, open_url: Opener, now: float) -> tuple[Path, int]:
    """As fetch, of a file that its owner replaces, so that nobody can name its sum: https alone vouches for it."""
    if urlsplit(url).scheme != "https":
        raise DownloadError(f"{url} has no sha256, and is not fetched by https: set its sha256")
    folder = cache / hashlib.sha256(url.encode()).hexdigest()
    return _in_cache(url, cache, folder, lambda done: _fetch_current_locked(url, done, open_url, now))


def _in_cache(url: str, cache: Path, folder: Path, get: Callable[[Path], tuple[Path, int]]) -> tuple[Path, int]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return get(folder / file_name(url))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "make room, or set torchfleet_cache to a larger disk" if full else "look at torchfleet_cache"
        raise DownloadError(f"{url} could not be kept in {cache}: {error.strerror or error}: {advice}") from error


def _fetch_locked(url: str, sha256: str, done: Path, open_url: Opener) -> tuple[Path, int]:
    if done.exists():
        if digest(done) == sha256:
            return done, 0
        done.unlink()  # a disk that lied, or somebody's edit
    part = done.with_name(done.name + ".part")
    size = receive(url, part, open_url, *HERE, known=True)
    found = digest(part)
    if found != sha256:
        total = part.stat().st_size
        part.unlink()
        raise DownloadError(
            f"{url} is not the wanted file: its {total} bytes have the sha256 {found}, wanted {sha256}. "
            "Nothing was changed"
        )
    part.replace(done)
    return done, size


def _fetch_current_locked(url: str, done: Path, open_url: Opener, now: float) -> tuple[Path, int]:
    if done.exists() and now - done.stat().st_mtime < CURRENT_SECONDS:
        return done, 0
    part = done.with_name(done.name + ".part")
    size = receive(url, part, open_url, *HERE, known=False)
    part.replace(done)
    return done, size
