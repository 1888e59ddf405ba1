# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Who listens on a TCP port of this node, from /proc alone.

Runs on nodes: Python 3.8, standard library.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENS = "0A"  # the state in these tables


class Holder(NamedTuple):
    """A process that listens; `run_id` is that of the run to which it belongs, empty where it is of none of ours."""

    pid: int
    command: str
    run_id: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def port_holder(port: int) -> Optional[Holder]:
    """None where nobody listens, or where whoever does is not to be seen (another user's, without root)."""
    inodes = set()
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as stream:
                for line in stream.readlines()[1:]:
                    fields = line.split()
                    if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == LISTENS:
                        inodes.add(f"socket:[{fields[9]}]")
        except OSError:
            continue
    if not inodes:
        return None
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if inodes & {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}:
                return Holder(int(pid), _words(pid, "cmdline", " ").strip()[:120], _run_id(pid))
        except OSError:
            continue
    return None


def _words(pid: str, name: str, separator: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as stream:
        return stream.read().decode(errors="replace").replace("\0", separator)


def _run_id(pid: str) -> str:
    mark = "TORCHFLEET_RUN_ID="
    return next((line[len(mark) :] for line in _words(pid, "environ", "\n").split("\n") if line.startswith(mark)), "")
