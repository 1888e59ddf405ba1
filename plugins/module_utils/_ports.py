# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Who listens on a TCP port of this node, from /proc alone.

Runs on nodes: Python 3.8, standard library.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple, Optional, Set

from ansible_collections.torchfleet.cluster.plugins.module_utils._system import listening_inodes

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class Holder(NamedTuple):
    """A process that listens; `run_id` is that of the run to which it belongs, empty where it is of none of ours."""

    pid: int
    command: str
    run_id: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def port_holder(port: int) -> Optional[Holder]:
    """None where nobody listens, or where whoever does is not to be seen (another user's, without root)."""
    inodes: Set[str] = set()
    for table in TABLES:
        with contextlib.suppress(OSError), open(table, encoding="ascii") as stream:
            inodes.update(f"socket:[{inode}]" for inode in listening_inodes(stream.read(), port))
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
