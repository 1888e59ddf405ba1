# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Reads logs of any size once, and puts what the rules saw in order: the first cause before its echoes.

A block of the log is searched for the rules' literals all at once; only lines that hold one are looked at closely. What
is kept does not grow with the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Pattern, Sequence, Set, Tuple, Union

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._findings import Evidence, Finding, Probe
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import CONTAINER, Rule
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rules import RULES

Log = Union[str, bytes, Iterable[bytes]]

BLOCK_BYTES = 1 << 20
_LINE_BYTES = 4096  # of a longer line only the surroundings of the literal are looked at
_EVIDENCE_LINES = 5
_EVIDENCE_CHARACTERS = 300
_MATCHES = 1000  # a rule that matched so often has said what it has to say
_LINES_OF_A_SHAPE = 100  # so have lines that differ in their numbers alone
_SHAPES = 50000
_DIGITS = b"0123456789"
_VALUES = 6

_COLOURS = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x00")
_HOST = re.compile(r"(?:^|[\s\]>:])([A-Za-z][\w.-]*):\d+:\d+ \[\d+\]|^([A-Za-z][\w.-]*):\d+ \| ")
_RANK = re.compile(
    r"\[(?:default|rank|trainer)(\d+)(?:\|\d+)?\]:|^\[[\w.-]+:(\d+)\]|^\[\d+,(\d+)\]<std|"
    r"^[\w.-]+:(\d+) \| |\[Rank (\d+)\]"
)
# Who printed a line, where a launcher says so.
_SOURCE = re.compile(rb"[\w.-]+:\d+ \| |\[\d+,\d+\]<std|\[(?:default|rank)\d+\]:")
# What launchers, collectors and quotes put before a line: a pattern may ask for the line's own beginning.
_DRESS = re.compile(
    r"\s*(?:(?:\(\w+ pid=\d+[^)]*\)|\[\d+,\d+\]<std\w+>:|\[[^\]]{1,60}\]:?|>|[\w.-]{1,99}(?::\d+)? +\||"
    r"\w{3} +\d+ \d\d:\d\d:\d\d [\w.-]+ [\w./-]+(?:\[\d+\])?:|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|"
    r"(?:DEBUG|INFO|WARNING|ERROR)(?: \d\d-\d\d \d\d:\d\d:\d\d)?(?= )|(?:\d{1,9}|[\w-]{0,60}\d[\w.-]{0,60}):(?= ))\s*)*"
)
# Lines that a terminal or a writer broke are about so long, and go on without a capital.
_BROKEN = range(50, 200)
# So many lines of progress of others after a rank's trouble tell that it is over; fewer may have been under way.
_LINES_OF_OTHERS = 3
_LINES_OF_A_SURVIVOR = 10
_RUN_FILE = re.compile(r"(?:(?:^|/)(?P<host>[\w.-]+)/)?(?:rank-(?P<rank>\d+)|launcher)\.log\Z")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt_ ](\d\d:\d\d:\d\d(?:[.,]\d+)?)")
# What a run prints while it does its work: steps with a loss, progress bars, results of a benchmark. Lower case.
_PROGRESS = re.compile(
    rb"iteration +\d+ ?/|\[\d+:\d\d<|it/s\b|s/it\b|loss['\"]?[ :=]+-?\d|avg bus bandwidth|busbw\b|samples/s|tokens/s|"
    rb"step[ :=]+\d+.{0,60}loss|latency\(us\)|gbps\b|train_runtime|train(?:ing)? (?:is )?(?:complete|finished|done)"
)
# What stands in a sentence for a value that the log does not name.
_WORDS = {
    "host": "the node",
    "port": "<port>",
    "name": "a host name",
    "peer": "a peer",
    "ifname": "an interface",
    "library": "a CUDA library",
    "command": "a program",
    "variable": "a variable",
    "address": "loopback",
    "version": "a newer version",
    "xid": "fault",
    "symbol": "one it needs",
    "sm": "in this machine",
    "seq": "not printed",
    "first": "one",
    "second": "another",
    "other": "an adapter",
    "device": "not named",
    "pci": "of this node",
    "toolkit": "one version",
    "torch": "another",
    "rank": "not named",
}


@dataclass(frozen=True)
class _Hit:
    file: int
    line: int
    text: str
    time: str


@dataclass
class _Seen:
    """What one rule has seen so far."""

    matches: int = 0
    hits: List[_Hit] = field(default_factory=list)
    shapes: Set[str] = field(default_factory=set)
    values: Dict[str, List[str]] = field(default_factory=dict)
    by_host: Dict[str, str] = field(default_factory=dict)
    tally: Dict[str, int] = field(default_factory=dict)
    total: int = 0
    ranks: List[str] = field(default_factory=list)
    hosts: List[str] = field(default_factory=list)
    last: Tuple[int, bytes, int, int] = (-1, b"", 0, 0)  # file, who, and how much progress that file and they had shown


@dataclass(frozen=True)
class _Index:
    """Rules by the literals they wait for, and one expression that finds any of the literals."""

    waiting: Mapping[bytes, Sequence[Tuple[Rule, str]]]
    literals: Pattern[bytes]
    shapes: Pattern[bytes]  # the same for lines without their digits


class _Words(Dict[str, str]):
    def __missing__(self, key: str) -> str:
        return _WORDS.get(key, "?")


def diagnose(logs: Union[Log, Mapping[str, Log]]) -> List[Finding]:
    """Findings for one text, or for many by file name; best first, never empty.

    A log is text, bytes or an iterable of bytes in pieces of any size. Give the files in launch order, head first.
    """
    reader = Reader()
    for name, log in logs.items() if isinstance(logs, Mapping) else [("log", logs)]:
        reader.read(name, log)
    return reader.findings()


class Reader:
    """Reads one log after the other, then answers."""

    def __init__(self, rules: Optional[Sequence[Rule]] = None) -> None:
        self._index = _index_of_all() if rules is None else _index(rules)
        self._rules = {rule.id: rule for rule in (RULES if rules is None else rules)}
        self._seen = {name: _Seen() for name in self._rules}
        self._files: List[str] = []
        self._progress: Dict[Tuple[int, bytes], int] = {}  # lines of a file, and of each source in it
        self._hosts: Set[str] = set()
        self._empty = True
        self._place = ("", "")  # host and rank that the file's name tells
        self._dull: Set[bytes] = set()  # shapes of lines that say nothing, or nothing more
        self._working: Set[bytes] = set()  # those of progress
        self._told: Dict[bytes, int] = {}

    def read(self, name: str, log: Log) -> None:
        """Take in one log. Lines end at a newline; a carriage return starts a line's text anew."""
        number = len(self._files)
        self._files.append(name)
        named = _RUN_FILE.search(name)
        self._place = (named.group("host") or "", named.group("rank") or "") if named else ("", "")
        line = 1
        for block in _blocks(log):
            raw = _COLOURS.sub(b"", block) if b"\x1b" in block or b"\x00" in block else block
            if self._empty and raw.strip():
                self._empty = False
            self._read_block(number, raw, line)
            line += raw.count(b"\n")

    def _read_block(self, file: int, raw: bytes, first_line: int) -> None:
        text = raw.lower().replace(b"\r", b"\n")  # same length, so that places in it are places in raw
        place = counted = 0
        number = first_line
        # A line's shape is the line without its digits: what is told of a shape need not be asked again.
        for line, shape in zip(text.split(b"\n"), text.translate(None, _DIGITS).split(b"\n")):
            start, place = place, place + len(line) + 1
            if shape in self._dull:
                continue
            if shape in self._working:
                self._note_progress(file, line)
                continue
            interesting = bool(self._index.shapes.search(shape))
            working = bool(_PROGRESS.search(line))
            if working:
                self._note_progress(file, line)
            if interesting:
                number += raw.count(b"\n", counted, start)
                counted = start
                self._read_line(file, number, raw, text, start, place - 1)
            self._remember(shape, interesting, working)

    def _note_progress(self, file: int, line: bytes) -> None:
        self._progress[file, b""] = self._progress.get((file, b""), 0) + 1
        source = _SOURCE.match(line)
        if source:
            self._progress[file, source.group()] = self._progress.get((file, source.group()), 0) + 1

    def _remember(self, shape: bytes, interesting: bool, working: bool) -> None:
        if len(shape) > _LINE_BYTES or len(self._dull) + len(self._working) + len(self._told) >= _SHAPES:
            return
        if interesting:
            self._told[shape] = self._told.get(shape, 0) + 1
            if self._told[shape] < _LINES_OF_A_SHAPE:
                return
            del self._told[shape]
        (self._working if working else self._dull).add(shape)

    def _read_line(self, file: int, number: int, raw: bytes, text: bytes, start: int, end: int) -> None:
        """Try the rules on one line of a block."""
        window, content = -1, ""
        others: Optional[List[str]] = None
        at = self._index.literals.search(text, start, end)
        while at:
            place = at.start()
            if window < 0 or place - window > _LINE_BYTES // 2:
                window = max(start, place - _LINE_BYTES // 4)
                content = raw[window : min(end, window + _LINE_BYTES)].decode("utf-8", "replace").rstrip()
                others = None
            for rule, pattern in self._index.waiting[at.group()]:
                seen = self._seen[rule.id]
                if seen.matches >= _MATCHES:
                    continue
                found = _compiled(pattern).search(content)
                if not found:
                    others = _other_readings(raw, start, end, content) if others is None else others
                    found = next(filter(None, map(_compiled(pattern).search, others)), None)
                if found and _holds(rule, found.groupdict()):
                    self._note(rule, seen, found.groupdict(), file, number, content, text, start)
            at = self._index.literals.search(text, place + 1, end)

    def _note(
        self,
        rule: Rule,
        seen: _Seen,
        values: Mapping[str, Optional[str]],
        file: int,
        line: int,
        content: str,
        text: bytes,
        start: int,
    ) -> None:
        if seen.hits and seen.hits[-1].file == file and seen.hits[-1].line == line and not any(values.values()):
            return
        seen.matches += 1
        source = _SOURCE.match(text, start)
        who = source.group() if source else b""
        seen.last = (file, who, self._progress.get((file, b""), 0), self._progress.get((file, who), 0))
        host = _first_group(_HOST.search(content)) or self._place[0]
        rank = _first_group(_RANK.search(content)) or self._place[1]
        if host:
            self._hosts.add(host)
        for known, new in ((seen.hosts, host), (seen.ranks, rank)):
            if new and new not in known and len(known) < 64:
                known.append(new)
        for name, value in values.items():
            known = seen.values.setdefault(name, [])
            if value and value not in known and len(known) < _VALUES:
                known.append(value.strip())
        if rule.differs:
            value = str(values.get(rule.differs))
            seen.by_host[host or value] = value
        if rule.tally:
            member = str(values.get(rule.tally[0]))
            seen.tally[member] = seen.tally.get(member, 0) + 1
            seen.total = max(seen.total, int(values.get(rule.tally[1]) or 0))
        shape = re.sub(r"[\d\W]+", " ", content)
        if shape not in seen.shapes and len(seen.hits) < _EVIDENCE_LINES:
            seen.shapes.add(shape)
            seen.hits.append(_Hit(file, line, _clip(content), _time(content, text, start)))

    def findings(self) -> List[Finding]:
        """The answer: at least one finding, the best first, one for each label."""
        if self._empty:
            return [Finding("insufficient_log", "The logs are empty.", _fix_of(self._rules, "ranks_failed"), (), 0.9)]
        active = [rule for rule in self._rules.values() if rule.label and self._is_seen(rule.id)]
        ordered = _outranked_behind(sorted(active, key=self._order(active)))
        for idle in ("none", "insufficient_log"):  # said only where there is nothing better to say
            if any(rule.label != idle for rule in ordered):
                ordered = [rule for rule in ordered if rule.label != idle or rule.level < CONTAINER]
        if not ordered:
            return [Finding("none", "No fault is seen in these logs.", "No action.", (), 0.6)]
        labels: Dict[str, List[Rule]] = {}
        for rule in ordered:
            labels.setdefault(rule.label, []).append(rule)
        return [self._finding(rules) for rules in labels.values()]

    def _is_seen(self, rule_id: str) -> bool:
        if rule_id == "several_hosts":
            return len(self._hosts) > 1
        rule, seen = self._rules[rule_id], self._seen[rule_id]
        if not seen.matches or (rule.differs and len(set(seen.by_host.values())) < 2):
            return False
        if rule.tally and not _tallies(seen, rule.tally[2]):
            return False
        if (rule.recovers or self._before_restart(*seen.last)) and self._recovered(*seen.last):
            return False
        if rule.caught and self._went_on(*seen.last):
            return False
        return all(any(map(self._is_seen, need.split("|"))) for need in rule.needs) and not any(
            map(self._is_seen, rule.unless)
        )

    def _before_restart(self, file: int, who: bytes, all_before: int, own_before: int) -> bool:
        restarted = self._seen.get("restarted", _Seen()).last
        return restarted[0] == file and restarted[2] >= all_before

    def _recovered(self, file: int, who: bytes, all_before: int, own_before: int) -> bool:
        """Whether the log goes on with progress: that rank's own, or enough of the others'."""
        if self._progress.get((file, who), 0) > own_before:
            return True
        return self._progress.get((file, b""), 0) - all_before >= _LINES_OF_OTHERS

    def _went_on(self, file: int, who: bytes, all_before: int, own_before: int) -> bool:
        """Whether who raised an exception then worked for long: other ranks come to the next collective at most."""
        long = self._progress.get((file, who), 0) - own_before >= _LINES_OF_A_SURVIVOR
        return long and not self._seen.get("ranks_failed", _Seen()).matches

    def _order(self, active: Sequence[Rule]) -> Callable[[Rule], Tuple[int, str, bool, int, int]]:
        """By level; within a level by time where all lines tell it, by line within one file, else the program first."""
        firsts = {rule.id: self._seen[rule.id].hits[0] for rule in active}
        one_file = len({hit.file for hit in firsts.values()}) < 2
        timed = not one_file and all(hit.time for hit in firsts.values())

        def key(rule: Rule) -> Tuple[int, str, bool, int, int]:
            hit = firsts[rule.id]
            return (
                rule.level,
                hit.time if timed else "",
                not one_file and not timed and rule.label != "user_code",
                hit.file,
                hit.line,
            )

        return key

    def _finding(self, rules: Sequence[Rule]) -> Finding:
        rule = rules[0]
        seen = self._seen[rule.id]
        words = _Words({name: ", ".join(values) for name, values in seen.values.items() if values})
        hits = seen.hits + [hit for other in rules[1:] for hit in self._seen[other.id].hits]
        lines = {(hit.file, hit.line): hit for hit in reversed(hits)}
        evidence = [Evidence(self._files[hit.file], hit.line, hit.text) for hit in reversed(list(lines.values()))]
        probe = (
            Probe(rule.probe, {name: value.format_map(words) for name, value in rule.probe_parameters.items()})
            if rule.probe
            else None
        )
        return Finding(
            label=rule.label,
            cause=rule.cause.format_map(words).replace(" (<port>)", ""),
            fix=rule.fix.format_map(words),
            evidence=tuple(evidence[:_EVIDENCE_LINES]),
            confidence=rule.confidence,
            rule=rule.id,
            ranks=tuple(seen.ranks),
            hosts=tuple(seen.hosts),
            probe=probe,
        )


def _index(rules: Sequence[Rule]) -> _Index:
    waiting: Dict[bytes, List[Tuple[Rule, str]]] = {}
    for rule in rules:
        for sign in rule.signs:
            for literal in sign.keys:
                waiting.setdefault(literal.encode(), []).append((rule, sign.pattern))
    # One literal may be part of another: the longer is what the search finds, so it answers for both.
    whole = {key: list(pairs) for key, pairs in waiting.items()}
    all_keys = b"\n".join(waiting)
    for part, pairs in waiting.items():
        at = all_keys.find(part)
        while at >= 0:
            end = all_keys.find(b"\n", at)
            end = len(all_keys) if end < 0 else end
            key = all_keys[all_keys.rfind(b"\n", 0, at) + 1 : end]
            if key != part:
                whole[key].extend(pairs)
            at = all_keys.find(part, end)
    return _Index(whole, _search_for(whole), _search_for({key.translate(None, _DIGITS) for key in whole}))


@lru_cache(maxsize=None)
def _compiled(pattern: str) -> Pattern[str]:
    """Only when a line holds a literal of it: most of the patterns are never asked."""
    return re.compile(pattern, re.IGNORECASE)


def _other_readings(raw: bytes, start: int, end: int, content: str) -> List[str]:
    """The line without its dress, and together with its neighbours where it was broken."""
    bare = _DRESS.sub("", content, count=1)
    readings = [] if bare == content else [bare]
    before = raw[max(0, start - _BROKEN.stop - 1) : max(0, start - 1)].rpartition(b"\n")[2].decode("utf-8", "replace")
    after = raw[end + 1 : end + _BROKEN.stop].partition(b"\n")[0].decode("utf-8", "replace")
    for first, line in ((content, after), (before, content)):
        first, second = first.rstrip(), _DRESS.sub("", line, count=1).rstrip()
        # What wears more than the line before it is a line of its own.
        alike = _dress_of(line) <= _dress_of(first)
        if alike and len(first) in _BROKEN and second and not second[0].isupper():
            readings.append(f"{first} {second}")
    return readings


def _dress_of(line: str) -> int:
    found = _DRESS.match(line.lstrip())
    return found.end() if found else 0


@lru_cache(maxsize=1)
def _index_of_all() -> _Index:
    return _index(RULES)


def _fix_of(rules: Mapping[str, Rule], rule_id: str) -> str:
    return rules[rule_id].fix.format_map(_Words())


def _outranked_behind(ordered: Sequence[Rule]) -> List[Rule]:
    """The rules in the same order, but none before one that explains it."""
    left, result = list(ordered), []
    while left:
        free = (rule for rule in left if not any(rule.label in other.outranks for other in left if other is not rule))
        best = next(free, left[0])
        left.remove(best)
        result.append(best)
    return result


def _holds(rule: Rule, values: Mapping[str, Optional[str]]) -> bool:
    if not rule.compare:
        return True
    left, how, right = rule.compare
    first, second = int(values[left] or 0), int(values[right] or 0)
    return first < second if how == "<" else first > second


def _tallies(seen: _Seen, how: str) -> bool:
    """Whether members do not come at all, while the others come once each or one of them more often."""
    if not len(seen.tally) < seen.total < _LINES_OF_A_SHAPE:
        return False
    return (max(seen.tally.values()) > 1) == (how == "twice")


def _first_group(found: Optional[re.Match[str]]) -> str:
    return next((group for group in found.groups() if group), "") if found else ""


def _clip(content: str) -> str:
    content = content.strip()
    return content if len(content) <= _EVIDENCE_CHARACTERS else content[: _EVIDENCE_CHARACTERS - 1] + "…"


def _time(content: str, text: bytes, start: int) -> str:
    """The line's time stamp, or the nearest one a little above it; "" where there is none."""
    above = text[max(0, start - _LINE_BYTES) : start].decode("ascii", "replace")
    for stamps in (_TIME.findall(content), _TIME.findall(above)):
        if stamps:
            return "T".join(stamps[-1]).replace(",", ".")
    return ""


def _blocks(log: Log) -> Iterator[bytes]:
    """The log in blocks that end where a line does, as far as its lines are shorter than a block."""
    if isinstance(log, str):
        log = log.encode("utf-8", "replace")
    rest = b""
    for piece in _pieces(log):
        block = rest + piece if rest else piece
        cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if not cut and len(block) < BLOCK_BYTES:
            rest = block
            continue
        cut = cut or len(block)
        rest = block[cut:]
        yield block[:cut]
    if rest:
        yield rest


def _pieces(log: Union[bytes, Iterable[bytes]]) -> Iterator[bytes]:
    if isinstance(log, bytes):
        for start in range(0, len(log), BLOCK_BYTES):
            yield log[start : start + BLOCK_BYTES]
    else:
        yield from log


def _search_for(literals: Iterable[bytes]) -> Pattern[bytes]:
    """One expression that finds the longest of the literals at the first place where there is one."""
    tree: Dict[int, object] = {}
    for literal in literals:
        node = tree
        for byte in literal:
            node = node.setdefault(byte, {})  # type: ignore[assignment]
        node[-1] = True
    return re.compile(_tree_pattern(tree) if tree else b"(?!)")


def _tree_pattern(node: Mapping[int, object]) -> bytes:
    branches = [
        re.escape(bytes([byte])) + _tree_pattern(child)  # type: ignore[arg-type]
        for byte, child in sorted(node.items())
        if byte >= 0
    ]
    if not branches:
        return b""
    pattern = branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
    return b"(?:" + pattern + b")?" if -1 in node else pattern
