# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Which ranks are late, from the stacks of all: in a collective that hangs, most wait where one has not arrived."""

from __future__ import annotations

import re
from collections import Counter
from typing import List, Mapping, Optional

# faulthandler: `  File "train.py", line 5 in step`; py-spy: `    step (train.py:5)`.
_FAULTHANDLER = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.MULTILINE)
_PY_SPY = re.compile(r"^\s+(?P<function>\S+) \((?P<file>[^():]+):(?P<line>\d+)\)", re.MULTILINE)
# Where ranks wait for the others.
_COLLECTIVE = "(distributed_c10d.py:"
# Of a rank that leaves: its peers were ended first, and where it had been is gone.
LEAVING = "its end"


def innermost(stack: str) -> str:
    """Where the main thread is, as `step (train.py:5)`; empty without a stack, LEAVING behind the program."""
    main = re.search(r'^Current thread .*$|^Thread .*"MainThread".*$', stack, re.MULTILINE)
    text = stack[main.end() :] if main else stack
    end = re.search(r"^(Current thread|Thread) ", text, re.MULTILINE)
    text = text[: end.start()] if end else text
    for form in (_FAULTHANDLER, _PY_SPY):
        found = form.search(text)
        if found:
            inside = any(frame["function"] == "<module>" for frame in form.finditer(text))
            if not inside and "\n  ..." not in text:  # a deep stack is cut off
                return LEAVING
            return f"{found['function']} ({found['file'].rpartition('/')[2]}:{found['line']})"
    return ""


def late(places: Mapping[int, str]) -> List[int]:
    """Ranks that are not where most are; where no place has most of them, those that are in no collective."""
    there = {rank: place for rank, place in places.items() if place != LEAVING}
    most = _most(there)
    if most is not None:
        return sorted(rank for rank, place in there.items() if place != most)
    waiting = [rank for rank, place in there.items() if _COLLECTIVE in place]
    return sorted(set(there) - set(waiting)) if waiting else []


def _most(places: Mapping[int, str]) -> Optional[str]:
    counted = Counter(places.values()).most_common(1)
    return counted[0][0] if counted and counted[0][1] * 2 > len(places) else None


def sentence(places: Mapping[int, str], seconds: float) -> str:
    """The finding for people."""
    head = f"no rank showed any progress for {seconds:.0f} s (launch_stall_timeout)"
    odd = late(places)
    if odd:
        others = {rank: place for rank, place in places.items() if rank not in odd and place != LEAVING}
        most = Counter(others.values()).most_common(1)[0][0] or "an unknown place"
        named = ", ".join(f"rank {rank} is at {places[rank] or 'an unknown place'}" for rank in odd[:8])
        return f"{head}: {named}, late; the others wait at {most}"
    where = ", ".join(f"rank {rank} at {place or 'an unknown place'}" for rank, place in sorted(places.items())[:8])
    return f"{head}: {where}" if where else head
