# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The language rules are written in.

A rule says which lines show a cause, and what to answer. It is matched line by line, without regard to case, on text
freed of colours. `level` is its place in the order of causes: what is printed because something else went wrong
must stand behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import List, Mapping, Tuple, Union

# The order of causes, first to last. Between two of one level the earlier line wins.
STATED = 10  # the line names a cause that nothing else explains (a full disk, a lost GPU)
LIKELY = 20  # a setting or state that is wrong in itself
SYMPTOM = 40  # trouble as it is seen from outside: a refused connection, an exception of the program
KILLED = 45  # ended by a signal: the kernel's, the scheduler's, the launcher's
UNKNOWN = 48  # an exception that no rule knows
ECHO = 50  # what is left of somebody else's trouble: time-outs, closed connections
HINT = 60  # suspicious, answered only if nothing better is there
CONTAINER = 70  # says only that something failed

# How launchers, shells and schedulers name the number that a process ended with. Keys.
EXIT_CODE = ("exit code", "exitcode", "exit_code", "exit status", "status code", "return code", "returncode")

_KEY_LENGTH = 4
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)(.*)\)\Z", re.DOTALL)


@dataclass(frozen=True)
class Sign:
    """Lines that `pattern` (a regular expression) is found in. Each holds one of the literals in `keys`."""

    pattern: str
    keys: Tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """One cause and how it shows.

    A rule without a label is a fact: it answers nothing, others need it. `needs` and `unless` name rules that must
    (not) have been seen, "a|b" meaning either. The named groups of the patterns are the rule's values: `{name}` in
    `cause`, `fix` and `probe_parameters` stands for them.

    `compare` (two groups and a sign between them), `differs` (a group whose values must not be the same on all
    hosts) and `tally` (a member's number, how many there should be, and "once" or "twice": some number does not come,
    and those that come do so once each, or one of them more often) are further conditions. `recovers` marks what a run
    may live through: it counts only where the log does not go on with progress. `caught` marks what a program may
    handle itself: it does not count where the same source goes on for long, and no rank is said to have failed.
    `outranks` names labels that this finding explains: they are put behind it.
    """

    id: str
    label: str
    level: int
    confidence: float
    signs: Tuple[Sign, ...]
    cause: str = ""
    fix: str = ""
    needs: Tuple[str, ...] = ()
    unless: Tuple[str, ...] = ()
    compare: Tuple[str, ...] = ()
    differs: str = ""
    tally: Tuple[str, ...] = ()
    recovers: bool = False
    caught: bool = False
    outranks: Tuple[str, ...] = ()
    probe: str = ""
    probe_parameters: Mapping[str, str] = field(default_factory=dict)


def sign(pattern: str, *keys: str) -> Sign:
    """A sign whose keys, unless given, are the longest literals of the pattern's alternatives."""
    return Sign(pattern, tuple(key.lower() for key in keys or _literals(pattern)))


def signs(*patterns: Union[str, Sign]) -> Tuple[Sign, ...]:
    """Signs of which any one suffices."""
    return tuple(sign(pattern) if isinstance(pattern, str) else pattern for pattern in patterns)


def fact(id: str, *patterns: Union[str, Sign]) -> Rule:
    """A rule that answers nothing."""
    return Rule(id=id, label="", level=CONTAINER, confidence=0, signs=signs(*patterns))


def _literals(pattern: str) -> Tuple[str, ...]:
    """The best choice of literals, of which each match of the pattern contains one."""
    found: List[str] = []
    for branch in _branches(pattern):
        best = max(_choices(branch), key=lambda keys: min(map(len, keys)))
        if min(map(len, best)) < _KEY_LENGTH:
            raise ValueError(f"no literal of {_KEY_LENGTH} characters in {pattern!r}: name the keys")
        found.extend(best)
    return tuple(found)


def _skip(pattern: str, at: int) -> int:
    """The place behind the escape, class, group or character at `at`."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        end = at + 2 if pattern[at + 1] != "^" else at + 3
        while pattern[end] != "]":
            end += 2 if pattern[end] == "\\" else 1
        return end + 1
    if pattern[at] == "(":
        at += 1
        while pattern[at] != ")":
            at = _skip(pattern, at)
    return at + 1


def _branches(pattern: str) -> List[str]:
    branches, start, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            branches.append(pattern[start:at])
            start = at + 1
        at = _skip(pattern, at)
    return [*branches, pattern[start:]]


def _choices(branch: str) -> List[Tuple[str, ...]]:
    """Sets of literals: each match of the branch contains one of each set."""
    choices: List[Tuple[str, ...]] = []
    run, at = "", 0
    while at < len(branch):
        end = _skip(branch, at)
        atom = branch[at:end]
        quantifier = branch[end : end + 1] if branch[end : end + 1] in tuple("?*+{") else ""
        literal = atom[1] if atom[0] == "\\" and not atom[1].isalnum() else atom if atom not in "^$." else ""
        if len(literal) == 1 and literal.isascii() and quantifier in ("", "+"):
            run += literal
        else:
            literal = ""
        if quantifier or not literal:
            choices.append((run,))
            run = ""
            end += len(quantifier)
            if quantifier == "{":
                end = branch.index("}", end) + 1
            if branch[end : end + 1] == "?" and quantifier:
                end += 1
        group = _GROUP.match(atom)
        if group and quantifier in ("", "+"):
            inner = [max(_choices(part), key=lambda keys: min(map(len, keys))) for part in _branches(group.group(1))]
            choices.append(tuple(key for keys in inner for key in keys))
        at = end
    return [*choices, (run,)]
