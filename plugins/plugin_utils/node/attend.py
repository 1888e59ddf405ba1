# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main process of a run on a node that a launcher reaches from the head: `attend.py RUN_DIR`.

Waits for the ranks that are to appear here, passes signals on to them, and ends as they do, once what started them has
gone as well: to end it in the middle of its own work would look like a failure on the head.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, List, Optional, Tuple

APPEAR_SECONDS = 900  # torchrun gives a missing node as long
POLL = 0.2
LINGER_SECONDS = 20.0  # for what started the ranks to go by itself
SETTLE_SECONDS = 2.0  # between the death of a rank's supervisor and our certainty that it left no exit record


def read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def look(run_dir: str) -> Tuple[List[int], List[int]]:
    """The ranks that run here, by pid, and the statuses (128 and more: signals) of those that have ended."""
    running: List[int] = []
    ended: List[int] = []
    folder = os.path.join(run_dir, "ranks")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".exit.json") or not name.endswith(".json"):
            continue
        record = read_json(os.path.join(folder, name))
        end = read_json(os.path.join(folder, name[: -len("json")] + "exit.json"))
        if end is not None:
            ended.append(end["code"] if end["signal"] is None else 128 + end["signal"])
        elif record is not None:
            running.append(record["pid"])
    return running, ended


def helpers(run_id: str) -> List[int]:
    """What else belongs to the run here, the run's supervisor apart."""
    needle = f"\0TORCHFLEET_RUN_ID={run_id}\0".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (os.getpid(), os.getppid()):
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                if needle in b"\0" + stream.read() + b"\0" and alive(int(name)):
                    found.append(int(name))
        except OSError:
            continue
    return found


def main() -> None:
    run_dir = sys.argv[1]
    plan = read_json(os.path.join(run_dir, "payload.json"))
    told: List[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: told.append(number))
    deadline = float("inf") if plan["queued"] else time.monotonic() + APPEAR_SECONDS
    gone_since: Optional[float] = None
    while True:
        running, ended = look(run_dir)
        left = [pid for pid in running if alive(pid)]
        while told:
            signalled = told.pop()
            if not left:
                sys.exit(128 + signalled)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signalled)
        if len(ended) >= plan["count"]:
            break
        gone = not left and (any(ended) or running)
        gone_since = (gone_since or time.monotonic()) if gone else None
        if gone_since and time.monotonic() - gone_since >= SETTLE_SECONDS:
            sys.exit(next((status for status in ended if status), 1))
        if len(running) + len(ended) < plan["count"] and time.monotonic() >= deadline:
            print(
                f"{len(running) + len(ended)} of {plan['count']} ranks came up here in {APPEAR_SECONDS} s: "
                "the launcher on the head did not start the others"
            )
            sys.exit(1)
        time.sleep(POLL)
    patience = time.monotonic() + LINGER_SECONDS
    while not told and time.monotonic() < patience and helpers(os.path.basename(run_dir)):
        time.sleep(POLL)
    sys.exit(next((status for status in ended if status), 0))


if __name__ == "__main__":
    main()
