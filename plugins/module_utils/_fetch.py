# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Which node fetches for which others, and what a package manager says of the files that it wants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple


@dataclass(frozen=True)
class Group:
    """Hosts that lack the same and are alike, in the play's order: the first of them fetches for all."""

    collector: str
    hosts: Tuple[str, ...]


@dataclass(frozen=True)
class WantedFile:
    """A package file by its index: its size in bytes and its SHA-256."""

    size: int
    sha256: str


def groups(answers: Mapping[str, Mapping[str, Any]]) -> Tuple[Group, ...]:
    """By what each host answered: `kind` what it is, `missing` what it lacks, and nothing where it was not asked.

    A host that lacks nothing, or that nobody is like, is in no group.
    """
    alike: Dict[Tuple[str, Tuple[str, ...]], List[str]] = {}
    for host, answer in answers.items():
        missing = tuple(sorted(map(str, answer.get("missing") or ())))
        if missing:
            alike.setdefault((str(answer.get("kind") or ""), missing), []).append(host)
    return tuple(Group(hosts[0], tuple(hosts)) for hosts in alike.values() if len(hosts) > 1)


_URI = re.compile(r"^'[^']+' (\S+) (\d+) SHA256:([0-9a-f]{64})$", re.MULTILINE)


def wanted_by_apt(print_uris: str) -> Dict[str, WantedFile]:
    """From `apt-get --print-uris -o Acquire::ForceHash=SHA256`: the files to be fetched, by their names in its cache.

    One without a hash is left out: nobody could tell whether a file is it.
    """
    return {name: WantedFile(int(size), sha256) for name, size, sha256 in _URI.findall(print_uris)}
