# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A verified file in the controller's cache, fetched once however many nodes want it at the same time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

CHUNK = 1 << 20
# How long a file without a sum counts as the current one: the nodes of one run share it, a later run sees a new one.
CURRENT_SECONDS = 3600
# Opens a URL from a byte on; the answer has `status` (206 where the server went along with that) and reads as a file.
Opener = Callable[[str, int], Any]


class DownloadError(Exception):
    """The file cannot be had; the message says why and what to set."""


def check_sha256(value: Any) -> str:
    """The 64 hex digits, without a `sha256:` before them. Raises DownloadError."""
    text = str(value if value is not None else "").strip().lower()
    text = text[len("sha256:") :] if text.startswith("sha256:") else text
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise DownloadError(f"sha256 is {value!r}, wanted the 64 hex digits of the file's SHA-256")
    return text


def file_name(url: str) -> str:
    """What a URL's file is called."""
    return os.path.basename(unquote(urlsplit(url).path)) or "download"


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


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
    size = _receive(url, part, open_url)
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
    # Its beginning may be that of another file.
    part.unlink(missing_ok=True)
    size = _receive(url, part, open_url)
    part.replace(done)
    return done, size


def _receive(url: str, part: Path, open_url: Opener) -> int:
    start = part.stat().st_size if part.exists() else 0
    try:
        answer = open_url(url, start)
    except Exception as error:
        # A server that has no more than what is there already answers 416: the sum then tells.
        if start and getattr(error, "code", None) == 416:
            return 0
        raise DownloadError(f"{url} cannot be reached from this controller: {error}") from error
    continues = start and getattr(answer, "status", getattr(answer, "code", 200)) == 206
    with part.open("ab" if continues else "wb") as stream:
        return _copy(answer, stream, url)


def _copy(answer: Any, stream: BinaryIO, url: str) -> int:
    size = 0
    while True:
        try:
            chunk = answer.read(CHUNK)
        except Exception as error:
            raise DownloadError(f"{url} broke off after {size} bytes ({error}): run it again to continue") from error
        if not chunk:
            return size
        stream.write(chunk)
        size += len(chunk)
