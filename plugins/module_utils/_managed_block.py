# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""One block of ours in a file that belongs to the user: everything outside the markers is theirs."""

from __future__ import annotations

import re
from typing import List, Tuple

BEGIN = "# BEGIN torchfleet.cluster"
END = "# END torchfleet.cluster"


def split(text: str) -> Tuple[str, str, str]:
    """The text before our block, the block's body, and the text after it.

    A block whose end marker is lost (a file cut off while some other tool wrote it) is taken to be its marker line
    alone: better a doubled line than a user's line gone. Every further block of ours is dropped.
    """
    users, bodies = _parts(text)
    at = bodies[0][0] if bodies else len(text) + 1
    return (
        "".join(line for number, line in users if number < at),
        bodies[0][1] if bodies else "",
        "".join(line for number, line in users if number > at),
    )


def user_lines(text: str) -> List[Tuple[int, str]]:
    """The lines that are not ours, with their ends, each with its number in the file (from 1)."""
    return _parts(text)[0]


def _parts(text: str) -> Tuple[List[Tuple[int, str]], List[Tuple[int, str]]]:
    """The user's lines, and the bodies of our blocks, each with the number of the line at which it begins."""
    users: List[Tuple[int, str]] = []
    bodies: List[Tuple[int, str]] = []
    # Only \n ends a line for the programs that read these files; str.splitlines knows ten more.
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    marks = [line.rstrip() for line in lines]
    index = 0
    while index < len(lines):
        if marks[index] == BEGIN:
            end = next((at for at in range(index + 1, len(lines)) if marks[at] in (BEGIN, END)), None)
            if end is not None and marks[end] == END:
                bodies.append((index + 1, "".join(lines[index + 1 : end])))
                index = end
        elif marks[index] != END:
            users.append((index + 1, lines[index]))
        index += 1
    return users, bodies


def replace(text: str, body: str, first: bool = False) -> str:
    """The text with our block set to `body`; an empty body removes it.

    A new block goes to the end, or to the beginning where `first` is set (files in which the first match wins).
    """
    before, old, after = split(text)
    if not body:
        return before + after
    block = f"{BEGIN}\n{body.rstrip()}\n{END}\n"
    if old or after:
        return before + block + after
    if first:
        return block + before + after
    if before and not before.endswith("\n"):
        before += "\n"
    return before + block + after
