# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Version numbers as people, YAML and tools write them, compared by number and not as text (2.9 < 2.10)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Optional, Tuple

_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL = 3
# PEP 440, spelled tolerantly; the epoch is dropped (none of our software has one).
_PEP440 = re.compile(
    r"""\s*v?(?:\d+!)?(?P<release>\d+(?:\.\d+)*)
        (?:[-_.]?(?P<stage>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<stage_number>\d*))?
        (?:[-_.]?post[-_.]?(?P<post>\d*)|-(?P<dash_post>\d+))?
        (?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?
        (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_Key = Tuple[Tuple[int, ...], int, int, int, int]


@dataclass(frozen=True)
class Version:
    """A version in comparable form. `local` is what stands behind a '+' (`cu128`); it takes no part in comparisons.

    `key` orders as PEP 440 does: dev < alpha < beta < rc < final < post, and trailing zeros do not count.
    """

    text: str
    release: Tuple[int, ...]
    key: _Key
    local: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def is_prerelease(self) -> bool:
        return self.key[1] < _FINAL

    @property
    def base(self) -> str:
        """The release numbers alone: `2.9.1` of `2.9.1rc2+cu128`."""
        return ".".join(map(str, self.release))

    @property
    def minor(self) -> str:
        """Major and minor: `2.9` of `2.9.1`; a lone major stays alone."""
        return ".".join(map(str, self.release[:2]))

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __le__(self, other: Version) -> bool:
        return self.key <= other.key

    def same(self, other: Version) -> bool:
        """Whether both name one release, whatever their local labels and trailing zeros (2.9 and 2.9.0+cu128)."""
        return self.key == other.key

    def covers(self, other: Version) -> bool:
        """Whether `other` is this version or, where this one is shorter, a patch release of it (2.9 covers 2.9.1)."""
        return not self.is_prerelease and other.release[: len(self.release)] == self.release


def _trimmed(release: Tuple[int, ...]) -> Tuple[int, ...]:
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    return release


def parse_version(value: Any) -> Optional[Version]:
    """A version from text or a number as YAML hands it over; None where the value is not one."""
    if value is None or isinstance(value, bool):
        return None
    found = _PEP440.match(str(value))
    if not found:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    stage, number = _FINAL, 0
    post = found["post"] if found["post"] is not None else found["dash_post"]
    if found["stage"]:
        stage, number = _STAGES[found["stage"].lower()], int(found["stage_number"] or 0)
    elif found["dev"] and post is None:
        stage = -1
    key: _Key = (
        _trimmed(release),
        stage,
        number,
        -1 if post is None else int(post or 0),
        int(found["dev_number"] or 0) if found["dev"] else 1 << 62,
    )
    return Version(str(value).strip(), release, key, (found["local"] or "").lower())


def parse_driver(value: Any) -> Optional[Version]:
    """An NVIDIA driver: `580`, `580.95.05`, `580-server`, `3:580.95.05-0ubuntu1`, `R580`. None where there is none.

    One number alone is a branch: see `driver_at_least`.
    """
    if isinstance(value, bool):
        return None
    found = re.search(r"(?<![\d.])(\d{3,4}(?:\.\d+)*)", str(value or ""))
    return parse_version(found[1]) if found else None


def driver_at_least(driver: Version, floor: Version) -> bool:
    """Whether the driver reaches the floor. A branch alone (`580`) stands for the newest driver of that branch."""
    if len(driver.release) == 1:
        return driver.release[0] >= floor.release[0]
    return floor <= driver


def parse_cuda(value: Any) -> Optional[Version]:
    """A CUDA release: `12.8`, 12.8, `12.8.1`, `cu128`, `cu118`, `cuda-12-8`, or a major alone (`12`)."""
    text = str(value).strip().lower()
    found = re.match(r"cu(?:da)?[-_ ]?(\d{2})(\d)\Z", text) or re.match(r"cuda[-_](\d+)-(\d+)\Z", text)
    if found:
        return parse_version(f"{found[1]}.{found[2]}")
    return None if isinstance(value, bool) else parse_version(re.sub(r"\A(?:cuda|cu)[-_ ]?", "", text))


def parse_gcc(value: Any) -> Optional[Version]:
    """A GCC version: `12`, `12.2.0`, `gcc-12`, or the first line of `gcc --version`."""
    text = re.sub(r"\([^)]*\)", " ", str(value if value is not None else ""))
    found = re.search(r"(?<![\w.])(?:(?:gcc|g\+\+)-)?(\d+(?:\.\d+)*)", text)
    return parse_version(found[1]) if found and not isinstance(value, bool) else None


def parse_python(value: Any) -> Optional[Version]:
    """A Python version: `3.12`, `3.12.4`, `Python 3.12.4`, `python3.12`, `cp312`."""
    text = str(value if value is not None else "").strip().lower()
    found = re.match(r"(?:cp|py)(\d)(\d+)\Z", text)
    if found:
        return parse_version(f"{found[1]}.{found[2]}")
    return None if isinstance(value, bool) else parse_version(re.sub(r"\A(?:c?python)[- ]?", "", text))


def parse_capability(value: Any) -> Optional[Tuple[int, int]]:
    """A compute capability: `8.6`, 8.6, `sm_86`, `compute_120`, `90a`, `86`, `12.0+PTX`. None where it is not one."""
    text = str(value).strip().lower()
    found = re.match(r"(?:(?:sm|compute)[-_]?)?(\d{1,2})(?:\.(\d))[a-z]?(?:\+ptx)?\Z", text)
    if found:
        return int(found[1]), int(found[2])
    found = re.match(r"(?:(?:sm|compute)[-_]?)?(\d{1,2})(\d)[a-z]?(?:\+ptx)?\Z", text)
    # 10 and 12 as bare numbers are a major whose '.0' YAML swallowed; no capability 1.x is still alive.
    if found and int(found[1]) >= 2:
        return int(found[1]), int(found[2])
    return (int(text), 0) if re.match(r"1\d\Z", text) else None


def lost_zero(value: Any, known: Iterable[str]) -> Optional[str]:
    """What a bare YAML number may have been before its last zero was dropped: 2.1 may have been written 2.10.

    `known` are the versions that exist. None where the number can mean one thing only.
    """
    if not isinstance(value, float):
        return None
    longer = f"{value}0"
    return longer if any(version == longer or version.startswith(longer + ".") for version in known) else None
