# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A tree of files that travels to many nodes: what is in it, what a node lacks, and the process that brings it.

`agent.py receive ROOT`  fetches what the node lacks from its parents in the chain; where none is left, from what the
                         controller spools
`agent.py serve ROOT`    hands chunks on to a child, also those that are still to come

The same file is imported by modules and actions, and is itself the script of the two verbs: standard library only,
Python 3.8 and later. Beside the destination `/a/tree`, which is a link, lies ROOT, `/a/.tree.releases`:

    <id>.<time>/        a release: a whole tree; the link points to one of them
    <id>.part/          the one that is being made, and <id>.have, one byte for each chunk of it
    <id>.manifest       what belongs to it; <id> is the hash of that
    stats.json          what the files of the current release looked like when they were right
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import itertools
import json
import mmap
import os
import re
import select
import shutil
import stat
import struct
import subprocess
import sys
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

CHUNK = 1 << 20  # bytes; what a hop waits for before it passes data on
MAX_CHUNK = 1 << 24
SILENCE = 10.0  # seconds without a frame, heartbeats included, after which a parent counts as dead
IDLE = 60.0  # seconds without any data after which a receiver gives up
FROZEN = 30.0  # seconds without a word of a receiver's, which has one several times a second, waiting or not
BEHIND = 8 << 20  # bytes that a parent may lag behind its own parent before another way is tried
NOISE = 1 << 16  # bytes that a login shell may print before
WINDOW = 4096  # chunks that a server looks ahead for one it has

# What a server's words begin with: whatever a login shell printed before is none of it.
MAGIC = b"\0torchfleet-sync 1\n"
TOP = "."  # the path of the tree's own folder
FRAME = struct.Struct(">BII")
BEAT, DATA, END, GONE = range(4)


class SyncError(Exception):
    """What stands in the way, in one sentence."""


class Entry(NamedTuple):
    """One name of the tree. `kind` is f, d or l. `digests` are a file's chunks, in hex; `target` is a link's."""

    path: str
    kind: str
    mode: int
    size: int
    mtime: int
    digests: Tuple[str, ...]
    target: str


class Chunk(NamedTuple):
    entry: Entry
    offset: int
    length: int
    digest: str


def chunk_size(size: int) -> int:
    """Larger for larger files: a manifest has a thousand digests a file, or so."""
    length = CHUNK
    while length < MAX_CHUNK and size > length * 1024:
        length *= 2
    return length


# What belongs to a tree


class Excludes:
    """Patterns as `.gitignore` has them: the last match decides, `!` takes back, `/` at the end means folders."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.rules: List[Tuple[bool, bool, Any]] = []
        for raw in patterns:
            text = raw.rstrip()
            if not text or text.startswith("#"):
                continue
            keep = text.startswith("!")
            text = text[1:] if keep else text
            folder = text.endswith("/")
            text = text.rstrip("/")
            anchored = "/" in text
            body = _glob(text.lstrip("/"))
            self.rules.append((keep, folder, re.compile(body if anchored else f"(?:.*/)?{body}", re.DOTALL)))

    def match(self, path: str, is_dir: bool) -> bool:
        return bool(self.verdict(path, is_dir))

    def verdict(self, path: str, is_dir: bool) -> Optional[bool]:
        """What the last rule that speaks of this very path says; None where none does."""
        for keep, folder, pattern in reversed(self.rules):
            if (is_dir or not folder) and pattern.fullmatch(path):
                return not keep
        return None


def _glob(text: str) -> str:
    out, at = "", 0
    while at < len(text):
        if text.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif text.startswith("**", at):
            out, at = out + ".*", at + 2
        elif text[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif text[at] == "?":
            out, at = out + "[^/]", at + 1
        elif text[at] == "[" and "]" in text[at + 2 :]:
            end = text.index("]", at + 2)
            inner = text[at + 1 : end].replace("\\", "\\\\")
            out, at = out + "[" + ("^" + inner[1:] if inner.startswith("!") else inner) + "]", end + 1
        else:
            at += text[at] == "\\" and at + 1 < len(text)
            out, at = out + re.escape(text[at]), at + 1
    return out


def walk(top: str, excludes: Excludes, notes: Optional[List[str]] = None) -> Iterator[Tuple[str, os.stat_result]]:
    """Every name below `top` that is not left out, parents first, sorted. Links are not followed."""
    stack = [""]
    while stack:
        folder = stack.pop()
        with os.scandir(os.path.join(top, folder)) as found:
            items = sorted(found, key=lambda item: item.name)
        deeper = []
        for item in items:
            path = f"{folder}/{item.name}" if folder else item.name
            info = item.stat(follow_symlinks=False)
            is_dir = stat.S_ISDIR(info.st_mode)
            if excludes.match(path, is_dir):
                continue
            if is_dir:
                deeper.append(path)
            elif not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                if notes is not None:
                    notes.append(f"{path} is no file, folder or link, and is left out")
                continue
            yield path, info
        stack += reversed(deeper)


def signature(info: os.stat_result) -> List[int]:
    """Changes with the content, as far as the file system can tell. The last is not in the hands of who writes."""
    return [info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns]


def digests_of(path: str, size: int) -> Tuple[str, ...]:
    """The digests of a file's chunks. Raises SyncError where it is not as long as it was."""
    length = chunk_size(size)
    found = []
    left = size
    with open(path, "rb") as stream:
        while left:
            data = stream.read(min(length, left))
            if not data:
                raise SyncError(f"{path} became shorter while it was read: run again when nobody writes to it")
            found.append(hashlib.sha256(data).hexdigest())
            left -= len(data)
    return tuple(found)


Cache = Dict[str, Tuple[List[int], Tuple[str, ...]]]


def scan(
    top: str, patterns: Sequence[str], cache: Cache, notes: Optional[List[str]] = None
) -> Tuple[List[Entry], Cache]:
    """The entries of a folder (or of one file), reading only files that changed since the cache was made."""
    entries, fresh = [], {}
    only = ""
    if not os.path.isdir(top):
        top, only = os.path.split(top)
        found: Any = [(only, os.stat(os.path.join(top, only)))]
    else:
        found = itertools.chain([(TOP, os.stat(top))], walk(top, Excludes(patterns), notes))
    for path, info in found:
        full = os.path.join(top, path)
        mode = stat.S_IMODE(info.st_mode)
        if stat.S_ISDIR(info.st_mode):
            entries.append(Entry(path, "d", mode, 0, info.st_mtime_ns, (), ""))
        elif stat.S_ISLNK(info.st_mode):
            entries.append(Entry(path, "l", 0o777, 0, info.st_mtime_ns, (), os.readlink(full)))
        else:
            now = signature(info)
            held = cache.get(path)
            digests = held[1] if held and held[0] == now else digests_of(full, info.st_size)
            # A file that was written just now may be written again within the clock's step.
            if time.time_ns() - info.st_mtime_ns > 2_000_000_000:
                fresh[path] = (now, digests)
            entries.append(Entry(path, "f", mode, info.st_size, info.st_mtime_ns, digests, ""))
    return entries, fresh


def read_cache(path: str) -> Cache:
    try:
        with open(path, encoding="utf-8") as stream:
            return {name: (held[0], tuple(held[1])) for name, held in json.load(stream).items()}
    except (OSError, ValueError, TypeError, IndexError):
        return {}


def write_file(path: str, data: bytes) -> None:
    """Replace the file whole."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as stream:
        stream.write(data)
    os.rename(temporary, path)


def write_json(path: str, data: Any) -> None:
    write_file(path, json.dumps(data).encode())


def pack(entries: Sequence[Entry]) -> Tuple[str, bytes]:
    """The release's id and the manifest as bytes. Times are in the manifest, but are no part of what a release is."""
    what = [[e.path, e.kind, e.mode, e.size, e.digests, e.target] for e in entries]
    release = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
    return release, zlib.compress(json.dumps([list(entry) for entry in entries]).encode(), 1)


def unpack(data: bytes) -> List[Entry]:
    """The entries of a manifest. Raises SyncError where a path would lead out of the tree."""
    entries = [Entry._make([*row[:5], tuple(row[5]), row[6]]) for row in json.loads(zlib.decompress(data))]
    links = {entry.path for entry in entries if entry.kind != "d"}
    for entry in entries:
        parts = entry.path.split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        is_top = (entry.path, entry.kind) == (TOP, "d")
        if (not is_top and not set(parts).isdisjoint(("", ".", ".."))) or "\0" in entry.path or above & links:
            raise SyncError(f"the manifest has the path {entry.path!r}, which leads out of the tree")
    return entries


def chunks_of(entries: Sequence[Entry]) -> List[Chunk]:
    found = []
    for entry in entries:
        length = chunk_size(entry.size)
        for number, digest in enumerate(entry.digests):
            offset = number * length
            found.append(Chunk(entry, offset, min(length, entry.size - offset), digest))
    return found


# A node's side: what it has, what it lacks


def current_release(root: str, dest: str) -> Tuple[str, str]:
    """Id and folder of the release that the destination links to; empty where it does not."""
    try:
        target = os.readlink(dest)
    except OSError:
        return "", ""
    folder = os.path.join(root, os.path.basename(target))
    if os.path.basename(os.path.dirname(target)) != os.path.basename(root) or not os.path.isdir(folder):
        return "", ""
    return os.path.basename(target).partition(".")[0], folder


def wrong_files(folder: str, entries: Sequence[Entry], stats: Cache, thorough: bool) -> List[str]:
    """Paths of a release that are not what they should be. Files are read only where they look touched, or all of them
    (`thorough`)."""
    wrong = []
    for entry in entries:
        full = os.path.join(folder, entry.path)
        try:
            info = os.lstat(full)
        except OSError:
            wrong.append(entry.path)
            continue
        if entry.kind == "l":
            right = stat.S_ISLNK(info.st_mode) and os.readlink(full) == entry.target
        elif entry.kind == "d":
            right = stat.S_ISDIR(info.st_mode) and stat.S_IMODE(info.st_mode) == entry.mode
        else:
            right = stat.S_ISREG(info.st_mode) and info.st_size == entry.size
            right = right and stat.S_IMODE(info.st_mode) == entry.mode
            held = stats.get(entry.path)
            if right and (thorough or not held or held[0] != signature(info)):
                right = _reads_as(full, entry)
                if right:
                    stats[entry.path] = (signature(info), entry.digests)
        if not right:
            wrong.append(entry.path)
    return wrong


def _reads_as(path: str, entry: Entry) -> bool:
    try:
        return digests_of(path, entry.size) == entry.digests
    except (OSError, SyncError):
        return False


def extras(folder: str, entries: Sequence[Entry], excludes: Excludes) -> List[str]:
    """What lies in a release beside the tree's own entries, and is not excluded."""
    own = {entry.path for entry in entries}
    return [path for path, _info in walk(folder, excludes) if path not in own]


def load(root: str, release: str) -> Optional[List[Entry]]:
    try:
        with open(os.path.join(root, f"{release}.manifest"), "rb") as stream:
            return unpack(stream.read())
    except FileNotFoundError:
        return None


class Part:
    """A release in the making: its folder, its chunks, and which of them are there."""

    def __init__(self, root: str, release: str) -> None:
        entries = load(root, release)
        if entries is None:
            raise SyncError(f"there is no manifest of {release} in {root}")
        self.root, self.release, self.entries = root, release, entries
        self.folder = os.path.join(root, f"{release}.part")
        self.chunks = chunks_of(entries)
        self.have_path = os.path.join(root, f"{release}.have")
        self.have: Any = bytearray(len(self.chunks))
        self._open: Tuple[str, int] = ("", -1)

    def attach(self) -> None:
        """Share the marks with other processes."""
        if self.chunks:
            with open(self.have_path, "r+b") as stream:
                self.have = mmap.mmap(stream.fileno(), 0)

    def missing(self) -> List[int]:
        held = self.have[:]
        return [number for number in range(len(self.chunks)) if not held[number]]

    def bytes_missing(self) -> int:
        return sum(self.chunks[number].length for number in self.missing())

    def write(self, number: int, data: bytes) -> bool:
        """Store a chunk; False where it is not the one that the manifest means."""
        chunk = self.chunks[number]
        if hashlib.sha256(data).hexdigest() != chunk.digest:
            return False
        handle = self._handle(chunk.entry.path)
        view, at = memoryview(data), chunk.offset
        while view:
            done = os.pwrite(handle, view, at)
            view, at = view[done:], at + done
        self.have[number] = 1
        return True

    def _handle(self, path: str) -> int:
        if self._open[0] != path:
            self.close()
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._open = (path, os.open(os.path.join(self.folder, path), flags, 0o600))
        return self._open[1]

    def close(self) -> None:
        if self._open[1] >= 0:
            os.close(self._open[1])
        self._open = ("", -1)


def plan(
    root: str,
    dest: str,
    release: str,
    patterns: Sequence[str],
    delete: bool,
    thorough: bool,
    dry: bool,
    spare: str = "",
) -> Dict[str, Any]:
    """Compare the node's tree with a release, and lay out what it has of it, also in the folder `spare`.

    `state` of the answer: current (nothing to do), unknown (the manifest is wanted), or planned (with what is needed).
    """
    excludes = Excludes(patterns)
    held, folder = current_release(root, dest)
    stats = {} if thorough else read_cache(os.path.join(root, "stats.json"))
    entries = load(root, release)
    wrong: List[str] = []
    if os.path.ismount(dest):
        raise SyncError(f"{dest} is a mount point, which cannot be switched: set sync_dest to a folder below it")
    if held == release and entries is not None:
        before = dict(stats)
        wrong = wrong_files(folder, entries, stats, thorough)
        surplus = extras(folder, entries, excludes) if delete else []
        if not wrong and not surplus:
            if stats != before and not dry:
                write_json(os.path.join(root, "stats.json"), stats)
            return {"state": "current", "root": root}
    if entries is None or dry:
        return {"state": "unknown", "root": root, "wrong": wrong}
    old = folder or (dest if os.path.isdir(dest) else "")
    _lay_out(root, release, old, held, stats, spare)
    part = Part(root, release)
    part.attach()
    space = os.statvfs(root)
    total, need = sum(chunk.length for chunk in part.chunks), part.bytes_missing()
    files = len({part.chunks[number].entry.path for number in part.missing()})
    wanted, free = need + files * space.f_bsize, space.f_bavail * space.f_frsize
    # For the children, who may ask before the receiver runs.
    write_json(os.path.join(root, "status.json"), {"state": "planned", "have": total - need, "at": time.time()})
    return {
        "state": "planned",
        "root": root,
        "wrong": wrong,
        "need": need,
        "total": total,
        "free": free,
        "files": files,
        "short": f"{dest} needs {wanted} bytes and its disk has {free} left" if wanted > free else "",
    }


def _lay_out(root: str, release: str, old: str, held: str, stats: Cache, spare: str) -> None:
    """Make the part: folders and links, and every file or chunk that is on this node already."""
    part = Part(root, release)
    before = load(root, held) if held else None
    try:
        os.mkdir(part.folder, 0o700)
        resumed = False
    except FileExistsError:
        resumed = True
        _drop_strangers(part)
    known: Dict[str, Tuple[str, int, int]] = {}
    whole: Dict[Tuple[int, Tuple[str, ...]], str] = {}
    for entry in before or ():
        if entry.kind == "f" and entry.digests:
            whole.setdefault((entry.size, entry.digests), entry.path)
            length = chunk_size(entry.size)
            for number, digest in enumerate(entry.digests):
                known.setdefault(digest, (entry.path, number * length, min(length, entry.size - number * length)))
    # Before the folders get their own modes, which may forbid writing: that is the switch's last step.
    at = 0
    for entry in part.entries:
        full = os.path.join(part.folder, entry.path)
        count = len(entry.digests)
        if entry.kind == "d":
            if not os.path.isdir(full):
                os.mkdir(full, 0o700)
        elif entry.kind == "l":
            if not os.path.islink(full):
                os.symlink(entry.target, full)
        elif resumed and os.path.lexists(full):
            _mark_present(part, at, count, full)
        elif not (
            (old and _take_over(old, full, entry, stats, whole)) or (spare and _take_over(spare, full, entry, {}, {}))
        ):
            os.close(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        else:
            part.have[at : at + count] = b"\1" * count
        at += count
    for number, chunk in enumerate(part.chunks):
        if not part.have[number] and chunk.digest in known and old:
            path, offset, length = known[chunk.digest]
            with contextlib.suppress(OSError), open(os.path.join(old, path), "rb") as stream:
                stream.seek(offset)
                part.write(number, stream.read(length))
    part.close()
    write_file(part.have_path, bytes(part.have))
    if stats:
        # Links changed the files' ctime; nobody else touched them since they were looked at.
        write_json(os.path.join(root, "stats.json"), stats)


def _drop_strangers(part: Part) -> None:
    own = {entry.path for entry in part.entries}
    for path, info in list(walk(part.folder, Excludes(()))):
        full = os.path.join(part.folder, path)
        if path not in own and os.path.lexists(full):
            shutil.rmtree(full) if stat.S_ISDIR(info.st_mode) else os.unlink(full)


def _mark_present(part: Part, at: int, count: int, full: str) -> None:
    """What an earlier attempt left is read again: it may have been cut off in the middle of a write."""
    with contextlib.suppress(OSError), open(full, "rb") as stream:
        for number in range(at, at + count):
            chunk = part.chunks[number]
            stream.seek(chunk.offset)
            if hashlib.sha256(stream.read(chunk.length)).hexdigest() == chunk.digest:
                part.have[number] = 1


def _take_over(old: str, full: str, entry: Entry, stats: Cache, whole: Dict[Tuple[int, Tuple[str, ...]], str]) -> bool:
    """Link a file of the old tree into the new one, or copy it where a link would change the old one."""
    for path in dict.fromkeys([entry.path, whole.get((entry.size, entry.digests), entry.path)]):
        source = os.path.join(old, path)
        try:
            info = os.lstat(source)
        except OSError:
            continue
        if not stat.S_ISREG(info.st_mode) or info.st_size != entry.size:
            continue
        held = stats.get(path)
        sure = held is not None and held[0] == signature(info)
        if not (held is not None and held[1] == entry.digests if sure else _reads_as(source, entry)):
            continue
        if stat.S_IMODE(info.st_mode) == entry.mode and info.st_uid == os.geteuid():
            try:
                os.link(source, full)
            except OSError:
                pass
            else:
                if held is not None:
                    stats[path] = (signature(os.lstat(source)), entry.digests)
                return True
        try:
            shutil.copyfile(source, full)
        except OSError:
            continue
        return _reads_as(full, entry)
    return False


# From the part to the release


def finish(root: str, dest: str, release: str, patterns: Sequence[str], delete: bool) -> str:
    """Make a release of a whole part; returns its folder's name. What lies beside the tree is carried over."""
    part = Part(root, release)
    part.attach()
    if part.missing():
        raise SyncError(f"{len(part.missing())} pieces are still missing")
    _held, folder = current_release(root, dest)
    old = [folder] if folder else [dest] if os.path.isdir(dest) else []
    olds = sorted((path for path in releases(root) if path != folder), reverse=True)
    for place in old:
        _carry_over(place, part, Excludes(patterns), delete, ())
    for place in olds:
        # One in which a run still works. Only what it made itself: the rest may have been deleted on purpose since.
        _carry_over(
            place, part, Excludes(patterns), delete, load(root, os.path.basename(place).partition(".")[0]) or ()
        )
    # For a tree that is one file, and has no folder of its own.
    os.chmod(part.folder, 0o755)
    for entry in reversed(part.entries):
        full = os.path.join(part.folder, entry.path)
        if entry.kind == "f" and stat.S_IMODE(os.lstat(full).st_mode) != entry.mode:
            os.utime(full, ns=(entry.mtime, entry.mtime))
            os.chmod(full, entry.mode)
        elif entry.kind == "f" and os.lstat(full).st_nlink == 1:
            os.utime(full, ns=(entry.mtime, entry.mtime))
        elif entry.kind == "d":
            os.chmod(full, entry.mode)
    flush(root)
    name = f"{release}.{time.time_ns()}"
    os.rename(part.folder, os.path.join(root, name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part.have_path)
    return name


def releases(root: str) -> List[str]:
    names = [name for name in os.listdir(root) if re.fullmatch(r"([0-9a-f]{32}|adopted)\.[0-9]+", name)]
    return [os.path.join(root, name) for name in names]


def _carry_over(place: str, part: Part, excludes: Excludes, delete: bool, skip: Sequence[Entry]) -> None:
    """Link into the part what lies in another tree beside the tree's own entries. Files that runs or people made, and
    those that the source has no more, are nobody's to delete unless that is asked for."""
    kinds = {entry.path: entry.kind for entry in part.entries}
    skipped = {entry.path for entry in skip}
    for path, info in walk(place, Excludes(())):
        full = os.path.join(part.folder, path)
        is_dir = stat.S_ISDIR(info.st_mode)
        if path in kinds or os.path.lexists(full):
            if is_dir and kinds.get(path, "d") != "d" and not delete and os.listdir(os.path.join(place, path)):
                raise SyncError(
                    f"{path} is a folder with files on this node, and none at the source: "
                    "set sync_delete, or move it away"
                )
            continue
        if path in skipped or (delete and not _is_excluded(path, is_dir, excludes)):
            continue
        above = path.split("/")[:-1]
        if any(kinds.get("/".join(above[: depth + 1]), "d") != "d" for depth in range(len(above))):
            continue
        os.makedirs(os.path.dirname(full), exist_ok=True)
        source = os.path.join(place, path)
        if is_dir:
            os.mkdir(full)
            os.chmod(full, stat.S_IMODE(info.st_mode) | 0o700)
        elif stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(source), full)
        else:
            try:
                os.link(source, full)
            except OSError:
                shutil.copy2(source, full)


def _is_excluded(path: str, is_dir: bool, excludes: Excludes) -> bool:
    parts = path.split("/")
    above = any(excludes.match("/".join(parts[:depth]), True) for depth in range(1, len(parts)))
    return above or excludes.match(path, is_dir)


def flush(path: str) -> None:
    """All of the file system to the disk: after a power cut the link must not lead to empty files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None).syncfs(handle) != 0:
            os.sync()
    except AttributeError:
        os.sync()
    finally:
        os.close(handle)


def exchange(one: str, other: str) -> bool:
    """Swap two names at once; False where the system cannot."""
    try:
        call = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    at_cwd, swap = -100, 2
    return bool(call(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), swap) == 0)


def point(root: str, dest: str, name: str) -> None:
    """Let the destination be the release: whoever opens it sees the old tree or the new one. A plain folder that was
    there becomes one of the old releases."""
    temporary = f"{dest}.torchfleet-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(os.path.join(os.path.basename(root), name), temporary)
    if os.path.isdir(dest) and not os.path.islink(dest):
        adopted = os.path.join(root, f"adopted.{time.time_ns()}")
        if exchange(temporary, dest):
            os.rename(temporary, adopted)
        else:
            os.rename(dest, adopted)
            os.rename(temporary, dest)
    else:
        os.rename(temporary, dest)


def tidy(root: str, dest: str) -> None:
    """Remove old releases in which nobody works, and note what the current one looks like."""
    release, folder = current_release(root, dest)
    busy = _working_folders()
    for old in releases(root):
        inside = os.path.realpath(old)
        if old != folder and not any(place == inside or place.startswith(inside + "/") for place in busy):
            _remove(old)
    entries = load(root, release) or []
    kept = {os.path.basename(path).partition(".")[0] for path in releases(root)}
    for name in os.listdir(root):
        stem, _dot, kind = name.partition(".")
        if stem not in kept and (kind in ("manifest", "have", "part") or kind.startswith("manifest.")):
            _remove(os.path.join(root, name))
    stats: Dict[str, Any] = {}
    for entry in entries:
        if entry.kind == "f":
            stats[entry.path] = (signature(os.lstat(os.path.join(folder, entry.path))), entry.digests)
    write_json(os.path.join(root, "stats.json"), stats)


def _remove(path: str) -> None:
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
        return
    for folder, _names, _files in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def _working_folders() -> Set[str]:
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/cwd"))
    return found


# The journey


class Status:
    """What the receiver says of itself, for the controller and for the node's children."""

    def __init__(self, root: str, part: Part) -> None:
        self.path = os.path.join(root, "status.json")
        self.total = sum(chunk.length for chunk in part.chunks)
        self.need = part.bytes_missing()
        self.got = 0
        self.began = time.time()
        self.state = "running"
        self.source = ""
        self.problem = ""
        self.above = 0  # bytes of the tree that the parent has
        self.spooled: Optional[int] = None  # blobs of the controller's that were read; None: it is not asked for any
        self._written = 0.0

    def say(self, now: bool = False) -> None:
        if not now and time.time() - self._written < 0.3:
            return
        self._written = time.time()
        word = {
            "state": self.state,
            "need": self.need,
            "got": self.got,
            "have": self.total - self.need + self.got,
            "above": self.above,
            "seconds": self._written - self.began,
            "source": self.source,
            "problem": self.problem,
            "spooled": self.spooled,
            "at": self._written,
            "pid": os.getpid(),
        }
        try:
            write_json(self.path, word)
        except OSError:
            if self.state == "running":
                raise
            # A full disk takes no new file. What is there can still be written over, and others wait for this word.
            with open(self.path, "r+b") as stream:
                stream.write(json.dumps(word).encode())
                stream.truncate()


def read_status(root: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(root, "status.json"), encoding="utf-8") as stream:
            return dict(json.load(stream))
    except (OSError, ValueError):
        return {}


def receive(root: str) -> int:
    """Bring all that is missing. The way is told in ROOT/way.json; the end is in ROOT/status.json."""
    with open(os.path.join(root, "way.json"), encoding="utf-8") as stream:
        way = json.load(stream)
    part = Part(root, way["release"])
    part.attach()
    status = Status(root, part)
    status.say(now=True)
    try:
        why = _from_parents(part, status, way["parents"])
        if part.missing() and not way["spool"]:
            raise SyncError(f"nobody could be copied from ({why})")
        _from_spool(part, status, way["spool"])
        status.state = "done"
    except (SyncError, OSError) as error:
        status.state, status.problem = "failed", str(error)
    part.close()
    status.say(now=True)
    return 0 if status.state == "done" else 1


def _from_spool(part: Part, status: Status, spool: str) -> None:
    missing = set(part.missing())
    if not missing:
        return
    status.source = "controller"
    number, heard = 0, time.monotonic()
    status.spooled = number
    status.say(now=True)
    while missing:
        path = os.path.join(spool, f"{number:08d}")
        try:
            with open(path, "rb") as stream:
                data = stream.read()
        except FileNotFoundError:
            if time.monotonic() - heard > IDLE:
                raise SyncError(f"the controller has sent nothing for {IDLE:.0f} s") from None
            time.sleep(0.02)
            status.say()
            continue
        number, heard = number + 1, time.monotonic()
        for index, body in frames(data):
            if not part.write(index, body):
                raise SyncError(f"{part.chunks[index].entry.path} changed at the source while it was copied: run again")
            missing.discard(index)
            status.got += len(body)
            status.say()
        status.spooled = number
        status.say()


def frames(data: bytes) -> Iterator[Tuple[int, bytes]]:
    at = 0
    while at < len(data):
        _kind, index, length = FRAME.unpack_from(data, at)
        at += FRAME.size
        yield index, data[at : at + length]
        at += length


def _from_parents(part: Part, status: Status, parents: List[Dict[str, Any]]) -> str:
    """Take from the nearest parent; from the next one up where that is dead, or is so slow that the next is twice as
    quick. What it measures is its own way only, so no node has to know the whole. Returns what was wrong with whom when
    nobody is left."""
    at, heard, next_try, pause = 0, time.monotonic(), 0.0, 10.0
    faults: Dict[str, str] = {}
    alive = list(parents)
    while part.missing() and alive and time.monotonic() - heard <= IDLE:
        at = min(at, len(alive) - 1)
        may_try = at + 1 < len(alive)
        end, got, seconds = _fetch(part, status, alive[at], next_try if may_try else float("inf"), None)
        heard = time.monotonic() if got else heard
        if end == "behind":
            rate = got / max(seconds, 0.1)
            _end, more, took = _fetch(part, status, alive[at + 1], float("inf"), 3.0)
            heard = time.monotonic() if more else heard
            if more / max(took, 0.1) > 2 * rate:
                at += 1
            pause *= 2
            next_try = time.monotonic() + pause
        elif end != "done":
            faults[alive[at]["name"]] = end
            alive.pop(at)
    status.say(now=True)
    return "; ".join(f"{name}: {why}" for name, why in faults.items()) or f"no data for {IDLE:.0f} s"


def _fetch(
    part: Part, status: Status, parent: Dict[str, Any], next_try: float, limit: Optional[float]
) -> Tuple[str, int, float]:
    """One session with a parent: how it ended (done, behind, time, or what went wrong), bytes, and seconds of data."""
    status.source = parent["name"]
    wanted = part.missing()
    marks = bytearray(len(part.chunks))
    for number in wanted:
        marks[number] = 1
    request = {
        "release": part.release,
        "tree": parent.get("tree"),
        "want": base64.b64encode(zlib.compress(bytes(marks), 1)).decode(),
    }
    process = subprocess.Popen(parent["command"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not (process.stdin and process.stdout and process.stderr):
        raise SyncError("ssh has no pipes")
    got, first, left = 0, 0.0, len(wanted)
    buffer = bytearray()
    heard = time.monotonic()
    end, greeted = "", False
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.close()
        stream = process.stdout.fileno()
        while left and not end:
            status.say()
            now = time.monotonic()
            if limit is not None and first and now - first > limit:
                return "time", got, now - first
            ready, _w, _x = select.select([stream], [], [], 0.25)
            if not ready:
                if now - heard > SILENCE + (20 if not first else 0):
                    end = f"silent for {SILENCE:.0f} s"
                continue
            data = os.read(stream, 1 << 20)
            if not data:
                # What it says ends with it, and it may not.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                process.kill()
                said = process.stderr.read().decode(errors="replace").strip().splitlines()
                end = said[-1] if said else "the connection ended"
                break
            heard = now
            buffer += data
            at = 0
            if not greeted:
                found = buffer.find(MAGIC)
                if found < 0 and len(buffer) > NOISE:
                    end = f"it says {bytes(buffer[:60])!r}"
                if found < 0:
                    continue
                greeted, at = True, found + len(MAGIC)
            while len(buffer) - at >= FRAME.size:
                kind, number, length = FRAME.unpack_from(buffer, at)
                if len(buffer) - at - FRAME.size < length:
                    break
                body = bytes(buffer[at + FRAME.size : at + FRAME.size + length])
                at += FRAME.size + length
                if kind == DATA:
                    first = first or time.monotonic()
                    if not part.write(number, body):
                        end = f"{part.chunks[number].entry.path} came damaged"
                        break
                    got, left = got + length, left - 1
                    status.got += length
                elif kind == BEAT:
                    beat = json.loads(body)
                    status.above = beat["have"]
                    lag = beat["above"] - beat["have"]
                    if lag > BEHIND and first and now - first > 3 and now > next_try:
                        return "behind", got, now - first
                else:
                    end = body.decode(errors="replace") or "it has no more"
                    break
            del buffer[:at]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    return end or "done", got, time.monotonic() - first if first else 0.0


def serve(root: str) -> None:
    """Send the chunks that a child asks for, each as soon as it is here."""
    request = json.loads(sys.stdin.buffer.readline())
    out = sys.stdout.buffer
    part = Part(root, request["release"])
    wanted = zlib.decompress(base64.b64decode(request["want"]))
    pending = [number for number in range(len(part.chunks)) if wanted[number]]
    total = sum(chunk.length for chunk in part.chunks)
    place = _place(part, request["tree"])
    out.write(MAGIC)
    beat, began = 0.0, time.time()
    handle: Tuple[str, Any] = ("", None)
    while pending:
        sent = 0
        later = []
        for position, number in enumerate(pending):
            if position - sent >= WINDOW or time.monotonic() - beat > 1:
                later += pending[position:]
                break
            if place is None and not part.have[number]:
                later.append(number)
                continue
            chunk = part.chunks[number]
            try:
                if handle[0] != chunk.entry.path:
                    if handle[1]:
                        handle[1].close()
                    handle = (chunk.entry.path, open(os.path.join(place or part.folder, chunk.entry.path), "rb"))  # noqa: SIM115
                handle[1].seek(chunk.offset)
                data = handle[1].read(chunk.length)
            except OSError as error:
                # The part became a release meanwhile, which is whole.
                moved = _place(part, request["tree"])
                if moved is None or moved == place:
                    _end(out, f"{chunk.entry.path}: {error.strerror}")
                    return
                place, handle = moved, ("", None)
                later += pending[position:]
                break
            out.write(FRAME.pack(DATA, number, len(data)) + data)
            sent += 1
        out.flush()
        pending = later
        if time.monotonic() - beat > 1:
            beat = time.monotonic()
            said = read_status(root) if place is None else {}
            if said.get("state") == "failed":
                _end(out, f"it gave up: {said.get('problem')}")
                return
            # Others wait for what this process has not; it would go on saying that it is alive.
            quiet = time.time() - float(said.get("at", began))
            if said.get("state") == "planned":
                quiet = min(quiet, time.time() - began)
            if said.get("state") in ("planned", "running") and quiet > FROZEN:
                _end(out, f"its receiver has not moved for {quiet:.0f} s")
                return
            body = json.dumps({"have": said.get("have", total if place else 0), "above": said.get("above", 0)}).encode()
            out.write(FRAME.pack(BEAT, 0, len(body)) + body)
            out.flush()
        elif not sent:
            time.sleep(0.02)


def _place(part: Part, tree: Optional[str]) -> Optional[str]:
    """Where the whole tree lies; None where there is only a part of it."""
    if tree:
        return tree
    whole = [path for path in releases(part.root) if os.path.basename(path).startswith(part.release + ".")]
    if os.path.isdir(part.folder):
        part.attach()
        return None
    return max(whole) if whole else None


def _end(out: Any, words: str) -> None:
    body = words.encode()
    out.write(FRAME.pack(END, 0, len(body)) + body)
    out.flush()


def main(verbs: Dict[str, Callable[[str], Any]]) -> None:
    verb, root = sys.argv[1:3]
    try:
        raise SystemExit(verbs[verb](root) or 0)
    except BrokenPipeError:
        os._exit(0)
    except SyncError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main({"receive": receive, "serve": serve})
