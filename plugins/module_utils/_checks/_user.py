# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Checks that an inventory brings, and the facts that they ask for."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields, replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import RULES, SAME, SEVERITIES, Check

_FIELDS = tuple(field.name for field in fields(Check) if field.name != "settled")
# Where a check's own fact comes from: the output of a command, or the text of a file.
_SOURCES = ("command", "file")


class CheckError(ValueError):
    """What is wrong with the checks of an inventory, one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class UserChecks:
    """`checks` replace or join the built-in ones; `asked` is what every node is asked for them (system_facts)."""

    checks: Tuple[Check, ...]
    asked: Tuple[Mapping[str, Any], ...]


def read_checks(documents: Mapping[str, Any], known: Sequence[Check]) -> UserChecks:
    """The checks of the given files (name to parsed YAML: a list of mappings). Raises CheckError."""
    problems: List[str] = []
    checks: Dict[str, Check] = {check.id: check for check in known}
    asked = []
    for file, document in documents.items():
        for number, raw in enumerate(document if isinstance(document, list) else [document], 1):
            place = f"{file}, check {number}"
            if not isinstance(raw, Mapping) or not raw.get("id"):
                problems.append(f"{place} has no id: wanted a list of mappings with id, rule and sentence")
                continue
            place = f"{file}, check {raw['id']}"
            found = _problems(raw, raw["id"] in checks)
            if found:
                problems += [f"{place}: {problem}" for problem in found]
                continue
            built_in = checks.get(str(raw["id"]))
            given = {key: value for key, value in raw.items() if key in _FIELDS}
            if built_in is not None:
                checks[built_in.id] = replace(built_in, **given, settled="severity" in given)
            else:
                checks[str(raw["id"])] = _new(raw)
            asked += [{"id": str(raw["id"]), key: raw[key]} for key in _SOURCES if key in raw]
    if problems:
        raise CheckError(problems)
    return UserChecks(tuple(checks.values()), tuple(asked))


def _new(raw: Mapping[str, Any]) -> Check:
    id = str(raw["id"])
    return Check(
        id=id,
        area=str(raw.get("area") or "own"),
        title=str(raw.get("title") or id),
        reads=str(raw.get("reads") or f"own.{id}"),
        rule=dict(raw["rule"]),
        severity=str(raw.get("severity") or "warn"),
        sentence=str(raw.get("sentence") or "{nodes}: " + str(raw.get("title") or id) + " is {value}"),
        remedy=str(raw.get("remedy") or ""),
        source=str(raw.get("source") or "the inventory's own check"),
        where=str(raw.get("where") or ""),
        unit=str(raw.get("unit") or ""),
    )


def _problems(raw: Mapping[str, Any], built_in: bool) -> List[str]:
    found = []
    for key in raw:
        if key not in (*_FIELDS, *_SOURCES):
            close = difflib.get_close_matches(str(key), (*_FIELDS, *_SOURCES), 1)
            found.append(f"{key} is unknown" + (f": did you mean {close[0]}?" if close else ""))
    if raw.get("severity", "warn") not in SEVERITIES:
        found.append(f"severity is {raw['severity']!r}, wanted one of {', '.join(SEVERITIES)}")
    rule = raw.get("rule")
    if rule is None:
        if not built_in:
            found.append(f"it has no rule: wanted one of same, {', '.join(RULES)}")
    elif not isinstance(rule, Mapping) or len(rule) != 1 or next(iter(rule)) not in (*RULES, "same"):
        found.append(f"rule is {rule!r}, wanted a mapping with one of same, {', '.join(RULES)}")
    elif "same" in rule and isinstance(rule["same"], str) and rule["same"] not in SAME:
        found.append(f"rule.same is {rule['same']!r}, wanted true, or one of {', '.join(SAME)}")
    elif next(iter(rule)) in ("at_least", "at_most") and not _is_number(next(iter(rule.values()))):
        found.append(f"rule is {rule!r}, wanted a number")
    if not built_in and not any(raw.get(key) for key in ("reads", *_SOURCES)):
        found.append("it reads nothing: wanted reads (a path into the facts), command or file")
    if "command" in raw and not (isinstance(raw["command"], list) and all(isinstance(w, str) for w in raw["command"])):
        found.append(f"command is {raw['command']!r}, wanted a list of words")
    return found


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
