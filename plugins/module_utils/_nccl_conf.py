# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Where a node already sets variables that steer NCCL and gloo: which file, which line, and whether it takes effect."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

# Names that steer the network of a run.
PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TP_SOCKET_IFNAME")

# How a file is read: by NCCL itself, by PAM, by a shell, by DeepSpeed, by systemd, or not at all (the environment).
DIALECTS = ("nccl", "pam_env", "pam_conf", "shell", "csh", "deepspeed", "environment")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Source:
    """A file to look into. `path` may begin with `~` and end in a glob."""

    path: str
    dialect: str


# In the order in which they win for a process that NCCL runs in, as far as files alone can tell.
SOURCES = (
    Source("~/.nccl.conf", "nccl"),
    Source("/etc/nccl.conf", "nccl"),
    Source("/etc/environment", "pam_env"),
    Source("/etc/environment.d/*.conf", "pam_env"),
    Source("~/.config/environment.d/*.conf", "pam_env"),
    Source("/etc/security/pam_env.conf", "pam_conf"),
    Source("~/.pam_environment", "pam_conf"),
    Source("~/.ssh/environment", "pam_env"),
    Source("/etc/profile", "shell"),
    Source("/etc/profile.d/*.sh", "shell"),
    Source("/etc/profile.d/*.csh", "csh"),
    Source("/etc/bash.bashrc", "shell"),
    Source("/etc/bashrc", "shell"),
    Source("/etc/zsh/zshenv", "shell"),
    Source("~/.bash_profile", "shell"),
    Source("~/.bash_login", "shell"),
    Source("~/.profile", "shell"),
    Source("~/.bashrc", "shell"),
    Source("~/.zshenv", "shell"),
    Source("~/.zshrc", "shell"),
    Source("~/.deepspeed_env", "deepspeed"),
)


@dataclass(frozen=True)
class Setting:
    """One variable set in one place. `line` counts from 1, 0 in the process environment (`source` is `environment`).

    `effective` is false where the reader of that file would not set the variable as written; `note` says why.
    """

    name: str
    value: str
    source: str
    line: int
    dialect: str
    effective: bool = True
    note: str = ""


def is_wanted(name: str, prefixes: Sequence[str] = PREFIXES) -> bool:
    return name.startswith(tuple(prefixes))


def _nccl_line(line: str) -> Optional[Tuple[str, str, bool, str]]:
    """NCCL takes all before the first `=` as the name and all after it as the value: no quotes, blanks or `export`."""
    if line.startswith("#") or "=" not in line:
        return None
    raw, _rest, value = line.partition("=")
    name = raw.strip()
    if name.startswith("export ") or name.startswith("setenv "):
        return name.split()[-1], value, False, "NCCL reads NAME=VALUE only: remove 'export'"
    if raw != name:
        return name, value, False, "NCCL takes the blanks around the name as part of it"
    if value.startswith(('"', "'")):
        return name, value, True, "NCCL takes the quotes as part of the value"
    if value != value.strip():
        return name, value, True, "NCCL takes the blanks around the value as part of it"
    return name, value, True, ""


def _pam_env_line(line: str) -> Optional[Tuple[str, str, bool, str]]:
    found = re.match(rf"\s*(?:export\s+)?({_NAME})=(.*)$", line)
    if not found:
        return None
    value = found.group(2).strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return found.group(1), value, True, ""


def _pam_conf_line(line: str) -> Optional[Tuple[str, str, bool, str]]:
    """`NAME DEFAULT=value OVERRIDE=value`; OVERRIDE wins."""
    found = re.match(rf"\s*({_NAME})\s+(.*)$", line)
    if not found:
        return _pam_env_line(line)
    options = dict(re.findall(r"(DEFAULT|OVERRIDE)=(\"[^\"]*\"|\S*)", found.group(2)))
    value = options.get("OVERRIDE") or options.get("DEFAULT")
    return None if value is None else (found.group(1), value.strip('"'), True, "")


def _deepspeed_line(line: str) -> Optional[Tuple[str, str, bool, str]]:
    """DeepSpeed splits each line at the first `=` and exports it; it knows no comments and no `export`."""
    if "=" not in line:
        return None
    raw, _rest, value = line.partition("=")
    name = raw.strip()
    if name.startswith("export "):
        return name.split()[-1], value.strip(), False, "DeepSpeed reads NAME=VALUE only: remove 'export'"
    if not re.match(rf"{_NAME}\Z", name):
        return None
    return name, value.strip(), True, ""


def _csh_line(line: str) -> Optional[Tuple[str, str, bool, str]]:
    found = re.match(rf"\s*setenv\s+({_NAME})\s+(.*)$", line)
    if not found:
        return None
    return found.group(1), found.group(2).strip().strip("\"'"), True, ""


_LINE_READERS = {
    "nccl": _nccl_line,
    "pam_env": _pam_env_line,
    "pam_conf": _pam_conf_line,
    "deepspeed": _deepspeed_line,
    "csh": _csh_line,
}


_HIDDEN = 0xF0000  # the beginning of a plane of Unicode in which no text is


def _shift(text: str, by: int) -> str:
    return "".join(chr((ord(c) + by) % 0x110000) for c in text)


def _shell_words(line: str) -> List[str]:
    # What a command substitution holds is a script of its own: kept as one word, as it is written.
    hidden = re.sub(r"\$\([^()]*\)|`[^`]*`", lambda found: _shift(found.group(), _HIDDEN), line)
    lexer = shlex.shlex(hidden, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError:
        # A quote that closes on another line.
        words = hidden.split()
    return ["".join(_shift(c, -_HIDDEN) if ord(c) >= _HIDDEN else c for c in word) for word in words]


def _shell_line(line: str) -> List[Tuple[str, str, bool, str]]:
    """The assignments of one line of sh: `export A=1 B=2`, `A=1; export A`, `declare -x A=1`, `[ … ] && A=1`."""
    found = []
    exporting, at_start, removing = False, True, False
    for word in _shell_words(line):
        if set(word) <= set(";&|()"):
            exporting, at_start, removing = False, True, False
            continue
        assignment = re.match(rf"({_NAME})\+?=(.*)$", word, re.S)
        if removing and re.match(rf"{_NAME}\Z", word):
            found.append((word, "", False, "unset here"))
        elif assignment and (at_start or exporting):
            computed = "computed when a shell reads the file" if re.search(r"[$`]", assignment.group(2)) else ""
            found.append((assignment.group(1), assignment.group(2), True, computed if exporting else "bare"))
        elif word in ("export", "declare", "typeset", "readonly", "env"):
            exporting = True
        elif word == "unset":
            removing = True
        elif not word.startswith("-") and word not in ("if", "then", "else", "do", "{", "}"):
            at_start = False
    return found


def _shell(text: str) -> List[Tuple[int, Tuple[str, str, bool, str]]]:
    found = []
    exported = set(re.findall(rf"\b(?:export|declare\s+-\w*x\w*)\s+({_NAME})\s*(?:;|$|#)", text, re.M))
    every = bool(re.search(r"^\s*set\s+-(?:a|o\s+allexport)\b", text, re.M))
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        first, joined = index, lines[index]
        while joined.endswith("\\") and index + 1 < len(lines):
            index += 1
            joined = joined[:-1] + " " + lines[index]
        for name, value, effective, note in _shell_line(joined):
            number = next((at for at in range(first, index + 1) if name in lines[at]), first)
            if note == "bare":
                known = name in exported or every
                effective, note = (True, "") if known else (False, "set but not exported: no process inherits it")
            found.append((number + 1, (name, value, effective, note)))
        index += 1
    return found


def parse_settings(text: str, source: str, dialect: str, prefixes: Sequence[str] = PREFIXES) -> Tuple[Setting, ...]:
    """The wanted variables that a file sets, in the order of its lines. `dialect` is one of DIALECTS."""
    rows: List[Tuple[int, Tuple[str, str, bool, str]]] = []
    if dialect == "shell":
        rows = _shell(text)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if dialect != "nccl" and line.lstrip().startswith("#"):
                continue
            row = _LINE_READERS[dialect](line.rstrip("\r"))
            if row:
                rows.append((number, row))
    return tuple(
        Setting(name, value, source, number, dialect, effective, note)
        for number, (name, value, effective, note) in rows
        if is_wanted(name, prefixes)
    )


def environment_settings(environment: Mapping[str, str], prefixes: Sequence[str] = PREFIXES) -> Tuple[Setting, ...]:
    """The wanted variables of a process environment."""
    return tuple(
        Setting(name, environment[name], "environment", 0, "environment")
        for name in sorted(environment)
        if is_wanted(name, prefixes)
    )


def what_nccl_reads(settings: Iterable[Setting], environment: Optional[Mapping[str, str]] = None) -> Dict[str, Setting]:
    """What NCCL itself would use in a process with that environment, shell files not read.

    NCCL never overwrites a variable that is set: the environment wins over the user's file (NCCL_CONF_FILE in its place
    where that is set), that over /etc/nccl.conf, and within a file the first line wins.
    """
    environment = environment or {}
    won: Dict[str, Setting] = {setting.name: setting for setting in environment_settings(environment)}
    files = [setting for setting in settings if setting.dialect == "nccl" and setting.effective]
    named = environment.get("NCCL_CONF_FILE")
    if named:
        files = [setting for setting in files if setting.source in (named, "/etc/nccl.conf")]
    for setting in sorted(files, key=lambda item: (item.source == "/etc/nccl.conf", item.line)):
        won.setdefault(setting.name, setting)
    return won


def contradictions(settings: Iterable[Setting]) -> Dict[str, Tuple[Setting, ...]]:
    """Variables that different places set to different values."""
    by_name: Dict[str, List[Setting]] = {}
    for setting in settings:
        if setting.effective:
            by_name.setdefault(setting.name, []).append(setting)
    return {name: tuple(found) for name, found in sorted(by_name.items()) if len({item.value for item in found}) > 1}
