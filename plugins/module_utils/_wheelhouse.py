# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""How pip on one machine collects the wheels that other machines' Pythons install."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, List, Mapping, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import parse_python, parse_version

# The oldest C library that wheels are tagged for by its version; before it there were names.
_OLDEST = 5
_NAMES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
WANTED = "WANTED.json"


def oldest(versions: Sequence[str]) -> str:
    """The oldest of some versions; empty where none is one."""
    known = [one for one in map(parse_version, versions) if one]
    return min(known, key=lambda one: one.key).text if known else ""


def pip_platforms(machine: str, glibc: str) -> Tuple[str, ...]:
    """The platform tags that a node's pip accepts, newest first. pip takes none for granted where one is given."""
    parsed = parse_version(glibc)
    minor = parsed.release[1] if parsed and len(parsed.release) > 1 and parsed.release[0] == 2 else 17
    tags: List[str] = []
    for one in range(minor, _OLDEST - 1, -1):
        tags.append(f"manylinux_2_{one}_{machine}")
        if one in _NAMES:
            tags.append(f"{_NAMES[one]}_{machine}")
    return (*tags, f"linux_{machine}")


def pip_target(python: str, machine: str, glibc: str) -> List[str]:
    """pip download's options for a node. Raises ValueError where `python` is not a version."""
    parsed = parse_python(python)
    if parsed is None or len(parsed.release) < 2:
        raise ValueError(f"{python!r} is not a Python version")
    tag = f"cp{parsed.release[0]}{parsed.release[1]}"
    options = ["--only-binary=:all:", "--python-version", parsed.minor, "--implementation", "cp"]
    for abi in (tag, "abi3", "none"):
        options += ["--abi", abi]
    for platform in pip_platforms(machine, glibc):
        options += ["--platform", platform]
    return options


def key_of(wanted: Mapping[str, Any]) -> str:
    """A name for what is wanted: the same for the same wishes, whatever their order."""
    plain = {name: sorted(value) if isinstance(value, (list, tuple)) else value for name, value in wanted.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def split_sources(packages: Sequence[str], sources: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Requirements that come as wheels, and those of the projects that are published as source alone."""
    names = {_project(name) for name in sources}
    wheels = [one for one in packages if _project(one) not in names]
    return wheels, [one for one in packages if _project(one) in names]


def _project(requirement: str) -> str:
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return re.sub(r"[-_.]+", "-", found.group(1)).lower() if found else ""


def last_words(text: str, count: int = 4) -> str:
    """The lines of pip's that say why it gave up."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return " ".join(lines[-count:])
