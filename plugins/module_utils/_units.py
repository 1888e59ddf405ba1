# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What systemd on this node can do for a run.

Runs on nodes: Python 3.8, standard library.
"""

from __future__ import annotations

import os
import resource

# Bit 24 of a capability set, linux/capability.h.
CAP_SYS_RESOURCE = 1 << 24


def has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")


def memlock_can_be_raised(status: str = "/proc/1/status") -> bool:
    """Whether this machine lets systemd raise the limit: a container often does not, and the unit would not start."""
    try:
        with open(status, encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("CapEff:"):
                    return bool(int(line.split()[1], 16) & CAP_SYS_RESOURCE)
    except OSError:
        pass
    return False


def memlock() -> float:
    """Bytes that processes of a run can lock where this node's supervisor starts them; infinite without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    raised = has_systemd() and memlock_can_be_raised()
    return float("inf") if limit == resource.RLIM_INFINITY or raised else limit
