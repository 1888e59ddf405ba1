# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A member's lines taken out of our blocks, without knowing the other members: they may be down, and it may be dead.

What is left is the text that the roles would render without it, so that the next provision changes nothing.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List

from ansible_collections.torchfleet.cluster.plugins.module_utils import _managed_block

_PORT = re.compile(r"\A\[(.*)\]:[0-9]+\Z")


def _hosts(body: str, name: str) -> str:
    return "".join(line for line in body.splitlines(keepends=True) if line.split()[1:2] != [name])


def _authorized_keys(body: str, name: str) -> str:
    return "".join(
        line for line in body.splitlines(keepends=True) if line.rstrip().rpartition(" ")[2] != f"torchfleet:{name}"
    )


def _known_hosts(body: str, name: str) -> str:
    kept = []
    for line in body.splitlines(keepends=True):
        first = (line.split() or [""])[0].split(",")[0]
        if _PORT.sub(r"\1", first) != name:
            kept.append(line)
    return "".join(kept)


def _config(body: str, name: str) -> str:
    kept: List[str] = []
    ours = False
    for line in body.splitlines(keepends=True):
        words = line.split()
        if words[:1] in (["Host"], ["Match"]):
            # An entry goes with the blank line behind it, or, where it was the last, with the one before.
            if ours and words[0] == "Match" and kept and not kept[-1].strip():
                kept.pop()
            ours = words[:2] == ["Host", name]
        if not ours:
            kept.append(line)
    return "".join(kept)


_FORMS: Dict[str, Callable[[str, str], str]] = {
    "hosts": _hosts,
    "authorized_keys": _authorized_keys,
    "known_hosts": _known_hosts,
    "config": _config,
}


def without_member(form: str, text: str, name: str) -> str:
    """The file without the member of that host name. `form` is hosts, authorized_keys, known_hosts or config."""
    before, body, after = _managed_block.split(text)
    kept = _FORMS[form](body, name)
    if kept == body:
        return text
    begin, end = f"{_managed_block.BEGIN}\n", f"{_managed_block.END}\n"
    return f"{before}{begin}{kept}{end}{after}" if _says_something(kept) else before + after


def without_block(text: str) -> str:
    """The file without anything of ours."""
    return _managed_block.replace(text, "")


def _says_something(body: str) -> bool:
    return any(
        line.strip() and not line.startswith("#") and line.split() != ["Match", "all"] for line in body.splitlines()
    )
