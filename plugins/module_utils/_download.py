# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What a URL leads to, into a file: continued where it broke off, and not begun where there is no room for it."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Mapping
from urllib.parse import unquote, urlsplit

CHUNK = 1 << 20
# Opens a URL with headers; the answer has `status` (206 where the server went along with a range) and `headers`, and
# reads as a file.
Opener = Callable[[str, Mapping[str, str]], Any]


class DownloadError(Exception):
    """The file cannot be had; the message says why and what to set."""


def file_name(url: str) -> str:
    """What a URL's file is called."""
    return os.path.basename(unquote(urlsplit(url).path)) or "download"


def digest(path: Path, algorithm: str = "sha256") -> str:
    found = hashlib.new(algorithm)
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            found.update(chunk)
    return found.hexdigest()


def receive(url: str, part: Path, open_url: Opener, where: str, variable: str, known: bool) -> int:
    """Bring what `part` lacks of the file; returns the bytes that came.

    Of a file that is `known` by its sum, anything may be continued; of another one, what the server says is still the
    same. `where` this is, and the `variable` that names another disk, are for the messages.
    """
    note = part.with_name(part.name + ".from")
    mark = note.read_text(encoding="utf-8") if note.exists() else ""
    start = part.stat().st_size if part.exists() and (known or mark) else 0
    headers: Dict[str, str] = {"Range": f"bytes={start}-"} if start else {}
    if start and not known:
        headers["If-Range"] = mark
    try:
        answer = open_url(url, headers)
    except Exception as error:
        # A server that has no more than what is there already answers 416: the sum then tells.
        if start and getattr(error, "code", None) == 416:
            return 0
        raise DownloadError(f"{url} cannot be reached from {where}: {error}") from error
    continues = start and getattr(answer, "status", getattr(answer, "code", 200)) == 206
    with part.open("ab" if continues else "wb") as stream:
        coming = int(answer.headers.get("Content-Length") or 0)
        free = shutil.disk_usage(part.parent).free
        if coming > free:
            raise DownloadError(
                f"{url} has {coming} bytes to come, and the disk of {part.parent} on {where} has {free} left: "
                f"make room, or set {variable} to a larger disk"
            )
        note.write_text(_mark(answer.headers), encoding="utf-8")
        size = _copy(answer, stream, url)
    if size < coming:
        raise DownloadError(f"{url} broke off after {size} of {coming} bytes: run it again to continue")
    note.unlink()
    return size


def _mark(headers: Mapping[str, str]) -> str:
    """By what a server knows the same file again (If-Range); a weak tag does not say that it is, byte by byte."""
    tag = headers.get("ETag") or ""
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified") or ""


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
