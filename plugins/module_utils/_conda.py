# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What conda calls a build of torch, and what an explicit list has in it."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

SUFFIXES = (".conda", ".tar.bz2")
NAMES = {"torch": "pytorch"}
# `name`, `name=version`, `name=version=build`, also with `==`; all else is conda's to judge.
_SPEC = re.compile(r"^([A-Za-z0-9_.-]+)(?:={1,2}([A-Za-z0-9_.!+*]+)(?:=([A-Za-z0-9_.*]+))?)?$")


def torch_specs(
    build: Mapping[str, Any], torch: str, cuda: Optional[str], companions: Sequence[str], blas: Optional[str] = None
) -> List[str]:
    """What conda is asked for: `pytorch=2.13.0=cuda129*`, the companions of the same build, and `cuda-version=12.9`.

    conda-forge's builds are called by their CUDA (`cuda129_...`, `cpu_...`), torch's then by the BLAS that it uses
    (`mkl`, `generic` for OpenBLAS); `cuda-version` keeps CUDA's libraries, packages of their own, to that release.
    `build` is what torch_build returned; where that is refused, `torch` and `cuda` are taken as they are.
    """
    if build.get("refused"):
        wanted = "" if cuda is None else str(cuda)
        versions: Dict[str, str] = {"torch": torch, **dict.fromkeys(companions, "")}
    else:
        wanted = str(build["cuda"])
        pairs = (one.partition("==")[::2] for one in build["requirements"])
        versions = {name: version for name, version in pairs if name == "torch" or name in companions}
    begin = "cpu" if wanted == "cpu" else "cuda" + wanted.replace(".", "") if wanted else ""
    specs = []
    for name, version in versions.items():
        kind = f"{begin or '*'}_{blas}_*" if blas and name == "torch" else f"{begin}*" if begin else ""
        specs.append(f"{NAMES.get(name, name)}={version or '*'}" + (f"={kind}" if kind else ""))
    return specs + ([f"cuda-version={wanted}"] if wanted not in ("", "cpu") else [])


def package_files(explicit: str) -> Dict[str, Tuple[str, str]]:
    """From an explicit list: package files by name, each with its URL and its MD5 or SHA-256 (empty without one)."""
    found: Dict[str, Tuple[str, str]] = {}
    for line in explicit.splitlines():
        url, _hash, digest = line.strip().partition("#")
        name = url.rpartition("/")[2]
        if url and name.endswith(SUFFIXES):
            found[name] = (url, digest.rpartition(":")[2])
    return found


def unmet(explicit: str, specs: Sequence[str]) -> List[str]:
    """The specs that an explicit list does not meet, as far as they are plain ones."""
    there: Dict[str, Tuple[str, str]] = {}
    for name in package_files(explicit):
        stem = next(name[: -len(suffix)] for suffix in SUFFIXES if name.endswith(suffix))
        parts = stem.rsplit("-", 2)
        if len(parts) == 3:
            there[parts[0].lower()] = (parts[1], parts[2])
    return [spec for spec in specs if not _met(spec, there)]


def _met(spec: str, there: Mapping[str, Tuple[str, str]]) -> bool:
    found = _SPEC.match(spec.strip())
    if not found:
        return True
    name, version, build = found.groups()
    if name.lower() not in there:
        return False
    has_version, has_build = there[name.lower()]
    plain = (version or "").rstrip("*").rstrip(".")
    same = not plain or has_version == plain or has_version.startswith(plain + ".")
    return same and fnmatch.fnmatchcase(has_build, build or "*")
