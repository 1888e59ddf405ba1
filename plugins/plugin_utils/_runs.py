# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The run's folder on the controller: `runs/<run_id>/` with manifest.json and `<node>/<log>` files.

The followers of the nodes are processes of their own. They agree on one thing only, that the run is to end, through a
file that the first one makes.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import LaunchPlan, NodePlan, Rank

MANIFEST = "manifest.json"
STOP = ".stop"
SIGN = ".sign-"
STACKS = ".stacks-"
LOST = ".lost-"
HEAD_ENDED = ".ended-"


def write_json(path: Path, data: Any) -> None:
    """Replace the file whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=2, default=str) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))


def update_manifest(folder: Path, **entries: Any) -> dict[str, Any]:
    manifest = {**read_manifest(folder), **entries}
    write_json(folder / MANIFEST, manifest)
    return manifest


def controller() -> dict[str, Any]:
    """Who follows the run. Actions are children of Ansible's main process."""
    return {"host": socket.gethostname(), "pid": os.getppid()}


def order_stop(folder: Path, reason: str) -> None:
    """End the run everywhere. The first reason stands."""
    # Not the pid alone: a signal's handler may come here while its own process is here already.
    temporary = folder / f"{STOP}.{uuid.uuid4()}"
    temporary.write_text(reason, encoding="utf-8")
    try:
        os.link(temporary, folder / STOP)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def stop_reason(folder: Path) -> str:
    """Why the run is to end; empty where it is not."""
    try:
        return (folder / STOP).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def note_sign(folder: Path, node: str, when: float) -> None:
    """When the run last showed a sign of life on the node, by this controller's clock."""
    mark = folder / f"{SIGN}{node}"
    mark.touch()
    os.utime(mark, (when, when))


def last_sign(folder: Path) -> float:
    """The newest sign of life of all nodes."""
    return max((mark.stat().st_mtime for mark in folder.glob(f"{SIGN}*")), default=time.time())


def note_stacks(folder: Path, node: str, stacks: Mapping[str, str]) -> None:
    write_json(folder / f"{STACKS}{node}", stacks)


def all_stacks(folder: Path, nodes: int, seconds: float) -> dict[str, str]:
    """The stacks of all nodes by rank, once all followers have written theirs, or after some seconds."""
    deadline = time.monotonic() + seconds
    while len(list(folder.glob(f"{STACKS}*"))) < nodes and time.monotonic() < deadline:
        time.sleep(0.2)
    found: dict[str, str] = {}
    for path in sorted(folder.glob(f"{STACKS}*")):
        found.update(json.loads(path.read_text(encoding="utf-8")))
    return found


def tidy(folder: Path) -> None:
    """Take away what the followers told each other."""
    for pattern in (STOP, f"{SIGN}*", f"{STACKS}*", f"{LOST}*", f"{HEAD_ENDED}*"):
        for mark in folder.glob(pattern):
            mark.unlink()


def note(folder: Path, what: str, node: str) -> set[str]:
    """Tell the other followers something of a node, once, and read of which nodes it has been told."""
    path = folder / f"{what}{node}"
    if not path.exists():
        path.touch()
    return {path.name[len(what) :] for path in folder.glob(f"{what}*")}


def noted_ago(folder: Path, what: str, node: str) -> float | None:
    """Seconds since the note; None where there is none."""
    try:
        return time.time() - (folder / f"{what}{node}").stat().st_ctime
    except FileNotFoundError:
        return None


def shown_env(env: Mapping[str, str], secret: tuple[str, ...]) -> dict[str, str]:
    """An environment as it may be shown: secret variables by name only."""
    return {**env, **dict.fromkeys(secret, "********")}


# What torch puts before each line of a traceback that nobody caught, once there is a process group.
RANK_MARK = re.compile(r"^\[rank\d+\]: ?")


def last_exception(path: Path) -> str:
    """What the last traceback in a log's end comes to, as Python prints it; empty where there is none."""
    lines = [RANK_MARK.sub("", line) for line in last_lines(path, 500)]
    starts = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if not starts:
        return ""
    # Indented lines are the frames; the first that is not is the exception.
    return next((line for line in lines[starts[-1] + 1 :] if not line[:1].isspace()), "")


def last_lines(path: Path, count: int = 15) -> list[str]:
    """The end of a log, for a summary."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 65536))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    # Of a progress bar, what a terminal would show in the end.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in lines if line.strip()][-count:]


def plan_of(manifest: Mapping[str, Any]) -> LaunchPlan:
    """The plan as the manifest has it: what the run is judged against."""
    plan = manifest["plan"]
    return LaunchPlan(
        run_id=plan["run_id"],
        launcher=plan["launcher"],
        world_size=plan["world_size"],
        master_address=plan["master_address"],
        master_port=plan["master_port"],
        transport=plan["transport"],
        nodes=tuple(
            NodePlan(node["node"], node["node_rank"], tuple(node["argv"]), node["env"], node["cwd"])
            for node in plan["nodes"]
        ),
        ranks=tuple(Rank(**rank) for rank in plan["ranks"]),
        elastic=plan["elastic"],
        min_nodes=plan["min_nodes"],
    )
