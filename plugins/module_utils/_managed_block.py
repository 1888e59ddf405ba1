# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""One block of ours in a file that belongs to the user: everything outside the markers is theirs."""

from __future__ import annotations

from typing import List, Tuple

BEGIN = "# BEGIN torchfleet.cluster"
END = "# END torchfleet.cluster"


def split(text: str) -> Tuple[str, str, str]:
    """The text before our block, the block's body, and the text after it.

    A block whose end marker is lost (a file cut off while some other tool wrote it) is taken to be its marker line
    alone: better a doubled line than a user's line gone. Every further block of ours is dropped.
    """
    before: List[str] = []
    body: List[str] = []
    after: List[str] = []
    lines = text.splitlines(keepends=True)
    index = 0
    found = False
    while index < len(lines):
        line = lines[index]
        if line.rstrip() == BEGIN:
            end = next((at for at in range(index + 1, len(lines)) if lines[at].rstrip() == END), None)
            if end is not None:
                if not found:
                    body = lines[index + 1 : end]
                found = True
                index = end + 1
                continue
            index += 1
            continue
        if line.rstrip() == END:
            index += 1
            continue
        (after if found else before).append(line)
        index += 1
    return "".join(before), "".join(body), "".join(after)


def replace(text: str, body: str, first: bool = False) -> str:
    """The text with our block set to `body`; an empty body removes it.

    A new block goes to the end, or to the beginning where `first` is set (files in which the first match wins).
    """
    before, old, after = split(text)
    if not body:
        return before + after
    block = f"{BEGIN}\n{body.rstrip()}\n{END}\n"
    if BEGIN in text and (old or after):
        return before + block + after
    if first:
        return block + before + after
    if before and not before.endswith("\n"):
        before += "\n"
    return before + block + after
