# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Logs on the controller: which files belong to a run, and their contents piece by piece."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._findings import Finding
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import BLOCK_BYTES, Reader
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rules import RULES

MANIFEST = "manifest.json"
# What a folder's files are called that hold the output of programs, as logrotate leaves them, too.
_LOG = re.compile(r"\.(?:log|out|err|txt)(?:[.-]\d+)?(?:\.(?:gz|bz2|xz))?\Z")
_UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def newest_run(runs_dir: Path) -> Path | None:
    """The run folder that was begun last."""
    runs = [folder for folder in runs_dir.glob("*") if folder.is_dir() and not folder.name.startswith(".")]
    return max(runs, key=lambda folder: folder.stat().st_mtime, default=None)


def find_logs(path: Path) -> list[Path]:
    """The log itself, or those below a folder: a run's nodes in launch order, launchers before ranks."""
    if path.is_file():
        return [path]
    order = _launch_order(path / MANIFEST)
    logs = [log for log in path.rglob("*") if _LOG.search(log.name) and log.is_file()]

    def key(log: Path) -> tuple[int, list[tuple[bool, int, str]]]:
        inner = log.relative_to(path)
        place = order.index(inner.parts[0]) if inner.parts[0] in order else len(order)
        numbers = re.split(r"(\d+)", str(inner))
        return place, [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in numbers]

    return sorted(logs, key=key)


def _launch_order(manifest: Path) -> list[str]:
    """Names of the nodes as the manifest has them; none where there is no manifest that says so."""
    try:
        nodes = json.loads(manifest.read_text(encoding="utf-8")).get("nodes", [])
    except (OSError, ValueError, AttributeError):
        return []
    return [str(node.get("node") or node.get("name")) if isinstance(node, dict) else str(node) for node in nodes]


def _failed_by_itself(manifest: Path) -> bool:
    """Whether a run is known to have begun to fail with a rank that no signal ended."""
    try:
        first = json.loads(manifest.read_text(encoding="utf-8"))["outcome"]["first"]
        return bool(first["code"]) and first["signal"] is None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def explain_logs(logs: Sequence[Path], root: Path) -> list[Finding]:
    """Findings for the logs, which are named by their path below `root`."""
    # The launchers of the other nodes then tell of the signal by which the run was ended on them.
    rules = [rule for rule in RULES if rule.id != "terminated"] if _failed_by_itself(root / MANIFEST) else None
    reader = Reader(rules)
    for log in logs:
        reader.read(str(log.relative_to(root)) if log != root else str(log), _pieces(log))
    return reader.findings()


def _pieces(log: Path) -> Iterator[bytes]:
    try:
        with _UNPACK.get(log.suffix, open)(log, "rb") as stream:
            while piece := stream.read(BLOCK_BYTES):
                yield piece
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise OSError(f"{log} cannot be read ({error}): copy it once more, or take it out of the folder") from error


def report(findings: Sequence[Finding], others: int = 3) -> str:
    """The answer for people: the first finding in full, a few more in a line each."""
    first = findings[0]
    lines = [f"{first.label} (confidence {first.confidence:.2f})", f"  Cause: {first.cause}"]
    where = [
        f"{what} {', '.join(names[:8])}" for what, names in (("rank", first.ranks), ("host", first.hosts)) if names
    ]
    if where:
        lines.append(f"  Seen on: {'; '.join(where)}")
    lines += [f"  {item.file}:{item.line}: {item.text}" for item in first.evidence]
    lines.append(f"  Fix: {first.fix}")
    lines += [
        f"also {item.label} (confidence {item.confidence:.2f}): {item.cause}" for item in findings[1 : 1 + others]
    ]
    return "\n".join(lines)
