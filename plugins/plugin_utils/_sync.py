# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Trees on their way, the controller's side: manifests, the chain, and what is said about it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.torchfleet.cluster.plugins.module_utils import _sync_agent

KEPT = 50  # manifests

# Ciphers in the order of their speed; the last for the machines that have neither.
SSH = (
    "ssh",
    "-T",
    "-o", "BatchMode=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "Compression=no",
    "-o", "Ciphers=aes128-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr",
)  # fmt: skip


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "torchfleet" / "sync"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def manifest_path(release: str) -> Path:
    return cache_dir() / f"{release}.manifest"


def keep_manifest(release: str, data: bytes) -> None:
    _sync_agent.write_file(str(manifest_path(release)), data)
    found = sorted(cache_dir().glob("*.manifest"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[KEPT:]:
        old.unlink(missing_ok=True)


def scan_here(top: str, excludes: Sequence[str], notes: list[str]) -> tuple[str, bytes, list[_sync_agent.Entry]]:
    """Release, manifest and entries of a tree on this machine."""
    key = hashlib.sha256(json.dumps([os.path.realpath(top), list(excludes)]).encode()).hexdigest()[:32]
    path = str(cache_dir() / f"{key}.digests")
    entries, fresh = _sync_agent.scan(top, excludes, _sync_agent.read_cache(path), notes)
    _sync_agent.write_json(path, fresh)
    return (*_sync_agent.pack(entries), entries)


def way(
    host: str,
    plans: Mapping[str, Mapping[str, Any]],
    source: Mapping[str, Any],
    names: Mapping[str, str],
    trusted: bool = True,
) -> dict[str, Any]:
    """Where a node's data comes from: the nodes before it in the chain, the nearest first, then who has everything.

    `plans` are the answers of sync_node by host, in launch order. `source` names the node that has the tree, or none:
    then whoever has nobody left gets what the controller spools, as the first of the chain has from the beginning.
    Where the tree's owner is not `trusted` to log in from node to node, all nodes get it from there.
    """

    def parent(peer: str, tree: str | None = None) -> dict[str, Any]:
        entry = plans[peer]
        serve = [entry["python"], "-I", f"{entry['plan']['root']}/agent.py", "serve", entry["plan"]["root"]]
        # ssh hands one line to a shell at the other end.
        line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in serve)
        return {"name": names[peer], "command": [*SSH, "--", names[peer], line], "tree": tree}

    if not trusted and not source.get("host"):
        return {"parents": [], "spool": True}
    needy = [peer for peer, entry in plans.items() if entry["plan"]["state"] == "planned"]
    whole = [peer for peer, entry in plans.items() if entry["plan"]["state"] == "current"]
    parents = [parent(peer) for peer in reversed(needy[: needy.index(host)])]
    if source.get("host"):
        parents.append(parent(source["host"], source["path"]))
    parents += [parent(peer) for peer in whole]
    return {"parents": parents, "spool": not source.get("host")}


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def progress(name: str, status: Mapping[str, Any], rate: float) -> str:
    """One line on a node that is underway. `rate` is of late, in bytes a second."""
    need, got = float(status["need"]), float(status["got"])
    percent = 100 * got / need if need else 100
    left = f"{(need - got) / rate:.0f} s left" if rate > 0 else "standing still"
    source = f", from {status['source']}" if status.get("source") else ""
    return f"{name}: {percent:3.0f} % of {size(need)}, {size(rate)}/s, {left}{source}"
