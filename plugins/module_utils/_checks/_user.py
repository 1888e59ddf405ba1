# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Checks that an inventory brings, and the facts that they ask for."""

from __future__ import annotations

import difflib
import math
import re
import string
from dataclasses import dataclass, fields, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import RULES, SAME, SEVERITIES, Check

_FIELDS = tuple(field.name for field in fields(Check) if field.name != "settled")
# Where a check's own fact comes from: the output of a command, or the text of a file.
_SOURCES = ("command", "file")
_TEXTS = ("area", "title", "reads", "sentence", "remedy", "source", "where", "unit")
# Which fields of a text are filled in: of the sentence alone, and by rule (see Check).
_NUMBERED = ("nodes", "has", "is", "does")
_SAME = ("value", "usual", "release", "others", "others_have", "settings")
_PER_VALUE = ("value", "wanted", "settings")


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
            if not isinstance(raw["id"], str):
                problems.append(f"{place}: id is {raw['id']!r}, wanted a text")
                continue
            place = f"{file}, check {raw['id']}"
            built_in = checks.get(raw["id"])
            found = _problems(raw, built_in)
            if not found:
                given = {key: value for key, value in raw.items() if key in _FIELDS and value is not None}
                check = replace(built_in, **given, settled="severity" in given) if built_in else _new(raw)
                found = _unfilled(check)
            if found:
                problems += [f"{place}: {problem}" for problem in found]
                continue
            checks[check.id] = check
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


def _problems(raw: Mapping[str, Any], built_in: Optional[Check]) -> List[str]:
    found = []
    for key in raw:
        if key not in (*_FIELDS, *_SOURCES):
            close = difflib.get_close_matches(str(key), (*_FIELDS, *_SOURCES), 1)
            found.append(f"{key} is unknown" + (f": did you mean {close[0]}?" if close else ""))
    if raw.get("severity", "warn") not in SEVERITIES:
        found.append(f"severity is {raw['severity']!r}, wanted one of {', '.join(SEVERITIES)}")
    found += [
        f"{key} is {raw[key]!r}, wanted a text" for key in _TEXTS if not isinstance(raw.get(key), (str, type(None)))
    ]
    rule = raw.get("rule")
    if rule is None:
        if built_in is None:
            found.append(f"it has no rule: wanted one of same, {', '.join(RULES)}")
    elif built_in is not None and callable(built_in.rule):
        found.append(
            "its rule is a function of all nodes and cannot be replaced: take another id, and check_skip for it"
        )
    elif not isinstance(rule, Mapping) or len(rule) != 1 or next(iter(rule)) not in (*RULES, "same"):
        found.append(f"rule is {rule!r}, wanted a mapping with one of same, {', '.join(RULES)}")
    else:
        ((name, wanted),) = rule.items()
        problem = _wanted_problem(name, wanted, told_as_text=built_in is None and not raw.get("reads"))
        if problem:
            found.append(f"rule.{name} is {wanted!r}, {problem}")
    if built_in is None and not any(raw.get(key) for key in ("reads", *_SOURCES)):
        found.append("it reads nothing: wanted reads (a path into the facts), command or file")
    if "command" in raw and not (isinstance(raw["command"], list) and all(isinstance(w, str) for w in raw["command"])):
        found.append(f"command is {raw['command']!r}, wanted a list of words")
    return found


def _wanted_problem(rule: str, wanted: Any, told_as_text: bool) -> str:
    """What is wrong with what a rule wants, '' where nothing is. Of a command or a file the value is a text."""
    if rule == "same" and wanted is not True and not (isinstance(wanted, str) and wanted in SAME):
        return f"wanted true, or one of {', '.join(SAME)}"
    if rule in ("one_of", "none_of") and not isinstance(wanted, list):
        return "wanted a list"
    if rule in ("equals", "differs_from", "one_of", "none_of") and told_as_text:
        for one in wanted if rule in ("one_of", "none_of") else [wanted]:
            if isinstance(one, bool) or not isinstance(one, (str, int, float)):
                return f"wanted a text or a number: {one!r} is none (yes, no, on and off are texts in quotes alone)"
    if rule in ("at_least", "at_most") and not _is_number(wanted):
        return "wanted a number"
    if rule == "version_at_least" and not re.match(r"v?\d", str(wanted)):
        return "wanted a version"
    if rule == "empty" and not isinstance(wanted, bool):
        return "wanted true or false"
    if rule in ("matches", "lacks"):
        try:
            re.compile(str(wanted))
        except (re.error, OverflowError, RecursionError) as error:
            return f"wanted a regular expression ({error})"
    return ""


def _unfilled(check: Check) -> List[str]:
    """Fields of a check's texts that nothing will fill. Those of a function are its own."""
    if callable(check.rule):
        return []
    known: Set[str] = set(_SAME if "same" in check.rule else _PER_VALUE)
    if "same" not in check.rule and "[]" in check.reads:
        known.add("item")
    if "same" not in check.rule and check.unit == "bytes":
        known.add("room")
    found = []
    for key, text, more in (("sentence", check.sentence, _NUMBERED), ("remedy", check.remedy, ())):
        try:
            names = [name for _text, name, _spec, _how in string.Formatter().parse(text) if name is not None]
        except ValueError as error:
            found.append(f"{key} is {text!r}, which has a brace without its other ({error})")
            continue
        of_it = sorted({*known, *more})
        found += [
            f"{key} has {{{name}}}, which nothing fills: wanted one of {', '.join(of_it)}"
            for name in names
            if re.split(r"[.\[]", name)[0] not in of_it
        ]
    return found


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
