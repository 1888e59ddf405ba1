# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The scripts that a run needs on its nodes.

Root runs them there, so they lie where only root can write, and not in the run's folder, which is the training user's.
Their folder is named after their contents: runs that were started by another version keep theirs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

LIB = "/var/lib/torchfleet/lib"
SCRIPTS = Path(__file__).resolve().parent / "node"


def read() -> dict[str, str]:
    """The scripts' texts by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SCRIPTS.glob("[a-z]*.py"))}


def folder(scripts: dict[str, str]) -> str:
    """Where these scripts lie on every node."""
    digest = hashlib.sha256(repr(sorted(scripts.items())).encode()).hexdigest()
    return f"{LIB}/{digest[:16]}"
