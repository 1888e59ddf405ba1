# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What a diagnosis answers: findings, and the lines that show them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple


@dataclass(frozen=True)
class Evidence:
    """One line of a log. `line` counts from 1, as an editor does; `text` is without colours and clipped."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Probe:
    """A question that can be put to the live cluster to confirm a finding: data only, nothing is run here."""

    id: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One answer to "why did the run fail".

    `confidence` is 0 to 1: 0.85 and more, a line states the cause; about 0.6, a symptom that mostly has this cause;
    0.4 and less, a hint, or an echo whose cause lies elsewhere. `ranks` and `hosts` are those that show it, where
    the log names them. `rule` is the id of the rule that spoke.
    """

    label: str
    cause: str
    fix: str
    evidence: Tuple[Evidence, ...]
    confidence: float
    rule: str = ""
    ranks: Tuple[str, ...] = ()
    hosts: Tuple[str, ...] = ()
    probe: Optional[Probe] = None


def finding_to_dict(finding: Finding) -> Dict[str, Any]:
    """A finding as plain dicts and lists, fit for JSON and for Ansible."""
    plain: Dict[str, Any] = asdict(finding)
    for key in ("evidence", "ranks", "hosts"):
        plain[key] = list(plain[key])
    return plain
