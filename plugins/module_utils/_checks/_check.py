# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The language checks are written in, and the matcher.

The facts of one node are a mapping of plain values: `name`, `address`, `head` (whether it is the head), and under
`gpu`, `nccl`, `runtime`, `system`, `links` what the facts modules returned. What was not measured is absent, and a
check that reads it says nothing about that node.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

SEVERITIES = ("fail", "warn", "info")

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Cluster:
    """What a check may know: the nodes that answered, in launch order, and the settings of the cluster.

    `settings` has `master_port`, `torchfleet_python` and what else a remedy names; `missing` says why a node did not
    answer; `peers` are all members, those that did not answer too.
    """

    nodes: Tuple[Facts, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def peers(self) -> Tuple[str, ...]:
        return (*(str(node["name"]) for node in self.nodes), *self.missing)

    @property
    def addresses(self) -> Dict[str, str]:
        return {str(node["name"]): str(node.get("address") or "") for node in self.nodes}


@dataclass(frozen=True)
class Hit:
    """Something a rule found, and on which nodes. `values` fill the sentence; the other three replace the check's."""

    nodes: Tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    sentence: str = ""
    remedy: str = ""
    severity: str = ""


Special = Callable[[Cluster], Iterable[Hit]]


@dataclass(frozen=True)
class Check:
    """One thing that is looked at.

    `reads` is a path into the facts of a node: keys with dots between them, `[]` for every item of a list. `rule` is a
    mapping of one key (see RULES, or `same`), or a function of the whole cluster. `where` is a path: only nodes on
    which it leads to something are looked at. `unit` (`bytes`) is how values are shown. `settled` says that the user
    chose the severity, which then holds for every hit.

    Sentence and remedy are templates: `{nodes}`, `{has}`, `{is}` and `{does}` (which agree with the nodes in number),
    `{value}`, `{wanted}`, with `same` also `{usual}`, `{release}` (the usual version without its local part),
    `{others}` and `{others_have}`, of bytes `{room}` (see room), `{item[key]}` for a key of the last item of a list,
    and `{settings[name]}`.
    """

    id: str
    area: str
    title: str
    reads: str
    rule: Union[Mapping[str, Any], Special]
    severity: str
    sentence: str
    remedy: str
    source: str = ""
    where: str = ""
    unit: str = ""
    settled: bool = False


@dataclass(frozen=True)
class Finding:
    check: str
    area: str
    severity: str
    nodes: Tuple[str, ...]
    sentence: str
    remedy: str
    source: str = ""


@dataclass(frozen=True)
class Row:
    """One row of the sameness table: the value of each node as text; `odd` are the nodes that differ."""

    check: str
    title: str
    values: Mapping[str, str]
    odd: Tuple[str, ...]


# ---- reading facts


def read(facts: Any, path: str) -> Iterator[Tuple[Any, Any]]:
    """Each value that the path leads to, with the innermost item of a list it was found in."""
    yield from _walk(facts, [key for key in re.split(r"\.|(\[\])", path) if key], None)


def _walk(place: Any, keys: Sequence[str], item: Any) -> Iterator[Tuple[Any, Any]]:
    if not keys:
        yield item, place
    elif keys[0] == "[]":
        for one in place if isinstance(place, (list, tuple)) else ():
            yield from _walk(one, keys[1:], one)
    elif isinstance(place, Mapping) and keys[0] in place:
        yield from _walk(place[keys[0]], keys[1:], item)
    elif isinstance(place, (list, tuple)) and keys[0] == "count":
        yield item, len(place)


def get(facts: Any, path: str, default: Any = None) -> Any:
    """The first value that the path leads to."""
    value = next((value for _item, value in read(facts, path)), None)
    return default if value is None else value


# ---- rules of one value


def _number(value: Any) -> Optional[float]:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _at_least(value: Any, wanted: Any) -> bool:
    number = _number(value)
    return number is None or number >= float(wanted)


def _at_most(value: Any, wanted: Any) -> bool:
    number = _number(value)
    return number is None or number <= float(wanted)


def _version_at_least(value: Any, wanted: Any) -> bool:
    return _numbers(value) >= _numbers(wanted) if _numbers(value) else True


def _numbers(value: Any) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(value).partition("+")[0]))


def alike(value: Any, wanted: Any) -> bool:
    """Whether they are equal. What a command prints is text, `5` as well, and a number in YAML is none."""
    text, number = (value, wanted) if isinstance(value, str) else (wanted, value)
    if isinstance(text, str) and isinstance(number, (int, float)) and not isinstance(number, bool):
        for read_as in (int, float):
            try:
                return bool(read_as(text) == number)
            except ValueError:
                continue
    return bool(value == wanted)


# Whether a value is as it should be. A value of None is unknown and never reaches a rule.
RULES: Dict[str, Callable[[Any, Any], bool]] = {
    "equals": alike,
    "differs_from": lambda value, wanted: not alike(value, wanted),
    "one_of": lambda value, wanted: any(alike(value, one) for one in wanted),
    "none_of": lambda value, wanted: not any(alike(value, one) for one in wanted),
    "at_least": _at_least,
    "at_most": _at_most,
    "version_at_least": _version_at_least,
    "matches": lambda value, wanted: re.search(str(wanted), str(value)) is not None,
    "lacks": lambda value, wanted: re.search(str(wanted), str(value)) is None,
    "empty": lambda value, wanted: bool(value) != bool(wanted),
}
# `same`: true, or how much of the value counts.
SAME: Dict[str, Callable[[Any], Any]] = {
    "whole": lambda value: value,
    "release": lambda value: ".".join(str(value).split(".")[:2]),
}


# ---- words


def listed(names: Sequence[str], most: int = 6) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b and 22 more`."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def size(count: float) -> str:
    """Bytes in words, -1 being no limit at all."""
    if count < 0:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    return ""


def room(wanted: Any) -> str:
    """A size for a file system in memory, as mount and docker take it: whole GiB, 8 at least."""
    return f"{max(8, math.ceil((_number(wanted) or 0) / (1 << 30)))}g"


def shown(value: Any, unit: str = "") -> str:
    if unit == "bytes" and _number(value) is not None:
        return size(float(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(one) for one in value) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None or value == "" else str(value)


class _Fields(Dict[str, Any]):
    """A field that nobody filled stays as it is written: the sentence of a user's check is not to end the run."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def fill(template: str, fields: Mapping[str, Any]) -> str:
    try:
        return template.format_map(_Fields(fields))
    except (ValueError, IndexError, KeyError, AttributeError, TypeError):
        return template


# ---- the matcher


def _per_value(check: Check, rule: Mapping[str, Any], cluster: Cluster) -> Iterator[Hit]:
    ((name, wanted),) = rule.items()
    good = RULES[name]
    for node in cluster.nodes:
        if check.where and not get(node, check.where):
            continue
        for item, value in read(node, check.reads):
            if value is not None and not good(value, wanted):
                wanted_text = shown(wanted, check.unit)
                values = {"value": shown(value, check.unit), "wanted": wanted_text, "item": item or {}}
                if check.unit == "bytes":
                    values["room"] = room(wanted)
                yield Hit((str(node["name"]),), values)


def _comparable(check: Check, cluster: Cluster) -> Dict[str, Any]:
    """The value of each node that has one. Of a list that the path fans out, all values together."""
    rule = check.rule
    how = rule["same"] if not callable(rule) else True
    reduce = SAME[how if isinstance(how, str) else "whole"]
    found = {}
    for node in cluster.nodes:
        if check.where and not get(node, check.where):
            continue
        values = [reduce(value) for _item, value in read(node, check.reads) if value not in (None, "")]
        parent, fans_out, _rest = check.reads.partition("[]")
        if fans_out and get(node, parent) is not None:
            found[str(node["name"])] = ", ".join(sorted({shown(value, check.unit) for value in values})) or "none"
        elif values:
            found[str(node["name"])] = values[0]
    return found


def usual_value(values: Mapping[str, Any]) -> Any:
    """What most nodes have; of two that are as frequent, what comes first."""
    counts: Dict[str, int] = {}
    for value in values.values():
        counts[repr(value)] = counts.get(repr(value), 0) + 1
    most = max(counts.values(), default=0)
    return next((value for value in values.values() if counts[repr(value)] == most), None)


def _same(check: Check, cluster: Cluster) -> Iterator[Hit]:
    values = _comparable(check, cluster)
    usual = usual_value(values)
    odd: Dict[str, Tuple[Any, List[str]]] = {}
    for name, value in values.items():
        if value != usual:
            odd.setdefault(repr(value), (value, []))[1].append(name)
    usual_nodes = [name for name, value in values.items() if value == usual]
    for value, names in odd.values():
        yield Hit(
            tuple(names),
            {
                "value": shown(value, check.unit),
                "usual": shown(usual, check.unit),
                "release": shown(usual, check.unit).partition("+")[0],
                "others": listed(usual_nodes, 3) if len(usual_nodes) < 3 else f"the other {len(usual_nodes)} nodes",
                "others_have": "has" if len(usual_nodes) == 1 else "have",
            },
        )


def _hits(check: Check, cluster: Cluster) -> Iterable[Hit]:
    if callable(check.rule):
        return check.rule(cluster)
    return _same(check, cluster) if "same" in check.rule else _per_value(check, check.rule, cluster)


def run_check(check: Check, cluster: Cluster) -> List[Finding]:
    """What one check finds. The same words on several nodes are one finding."""
    merged: Dict[Tuple[str, str, str], List[str]] = {}
    for hit in _hits(check, cluster):
        base = {"settings": _Fields(cluster.settings), **hit.values}
        sentence = hit.sentence or check.sentence
        remedy = fill(hit.remedy or check.remedy, base)
        # What depends on how many nodes there are is filled in at the end.
        later = {key: f"{{{key}}}" for key in ("nodes", "has", "is", "does")}
        severity = check.severity if check.settled else hit.severity or check.severity
        key = (fill(sentence, {**_escaped(base), **later}), remedy, severity)
        merged.setdefault(key, []).extend(name for name in hit.nodes if name not in merged.get(key, ()))
    found = []
    for (sentence, remedy, severity), names in merged.items():
        one = len(names) == 1
        number = {"has": "has" if one else "have", "is": "is" if one else "are", "does": "does" if one else "do"}
        found.append(
            Finding(
                check=check.id,
                area=check.area,
                severity=severity,
                nodes=tuple(names),
                sentence=fill(sentence, {"nodes": listed(names), **number}),
                remedy=remedy,
                source=check.source,
            )
        )
    return found


def _escaped(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Values whose braces survive that the text is filled a second time."""

    def escape(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{", "{{").replace("}", "}}")
        if isinstance(value, Mapping):
            return _Fields({key: escape(one) for key, one in value.items()})
        return value

    return {key: escape(value) for key, value in values.items()}


def evaluate(checks: Sequence[Check], cluster: Cluster) -> List[Finding]:
    """All findings, the gravest first and otherwise in the order of the checks."""
    found = [finding for check in checks for finding in run_check(check, cluster)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def sameness(checks: Sequence[Check], cluster: Cluster) -> List[Row]:
    """The table of what has to agree, without rows of which no node knows anything."""
    rows = []
    for check in checks:
        if callable(check.rule) or "same" not in check.rule:
            continue
        values = _comparable(check, cluster)
        usual = usual_value(values)
        if any(value not in (0, "none") for value in values.values()):
            rows.append(
                Row(
                    check=check.id,
                    title=check.title,
                    values={name: shown(value, check.unit) for name, value in values.items()},
                    odd=tuple(name for name, value in values.items() if value != usual),
                )
            )
    return rows


def chosen(checks: Sequence[Check], skip: Sequence[str], severity: Mapping[str, str]) -> List[Check]:
    """The checks without those to skip, at the severity that the user gave them. Raises ValueError with the culprit."""
    known = {check.id for check in checks}
    for variable, names in (("check_skip", skip), ("check_severity", severity)):
        strange = [name for name in names if name not in known]
        if strange:
            raise ValueError(f"{variable} names {', '.join(strange)}, which is no check: docs/checks.md has them all")
    for name, level in severity.items():
        if level not in SEVERITIES:
            raise ValueError(f"check_severity.{name} is {level!r}, wanted one of {', '.join(SEVERITIES)}")
    return [
        replace(check, severity=severity[check.id], settled=True) if check.id in severity else check
        for check in checks
        if check.id not in skip
    ]


def status_of(findings: Iterable[Finding]) -> int:
    """0, 1 (warnings) or 2 (failures)."""
    levels = {finding.severity for finding in findings}
    return 2 if "fail" in levels else 1 if "warn" in levels else 0


def finding_to_dict(finding: Finding) -> Dict[str, Any]:
    plain: Dict[str, Any] = asdict(finding)
    return {**plain, "nodes": list(finding.nodes)}
