# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The variables that lead NCCL and gloo over the chosen network, and the files that carry them.

This is the only place that knows them: the launch units and the files of role nccl_env come from the same settings.

How NCCL reads its files (initEnv in src/misc/param.cc, 2.4 to 2.30): the environment first, then the file named by
NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf. The first one to name a variable wins, within a file too. A
line is NAME=VALUE to its end, with no quoting and no blanks around; only a '#' in the first column begins a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Node

CHOSEN = "chosen"
USER = "user"

BEGIN = "# BEGIN torchfleet.cluster: rendered from the inventory, changes between these lines are overwritten"
END = "# END torchfleet.cluster"
DEEPSPEED_MARK = "TORCHFLEET_DEEPSPEED_ENV"  # a comment would be a ValueError in DeepSpeed, a variable is not

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NCCL_MAX = 1023  # bytes of a value that NCCL keeps of a line in its files

# Values of these are true on one node only: names of its own devices, or a place in its own tables.
_NODE_OWN = re.compile(
    r"NCCL_SOCKET_IFNAME|NCCL_OOB_NET_IFNAME|GLOO_SOCKET_IFNAME|TP_SOCKET_IFNAME|NCCL_IB_HCA|NCCL_IB_GID_INDEX"
    r"|NCCL_TOPO_FILE|UCX_NET_DEVICES|OMPI_MCA_.*_if_(include|exclude)|CUDA_VISIBLE_DEVICES|.*_HCA|.*_IFNAME"
)


@dataclass(frozen=True)
class Setting:
    """One variable of a node. `origin` is `chosen` (by us, for the reason in `because`) or `user` (nccl_env_extra)."""

    name: str
    value: str
    origin: str
    because: str


@dataclass(frozen=True)
class Found:
    """A variable that something on a node sets already: `file` as nccl_facts names it, `line` counted from 1."""

    file: str
    line: int
    name: str
    value: str


def node_settings(cluster: Cluster, node: Node, extra: Optional[Mapping[str, Any]] = None) -> Dict[str, Setting]:
    """All variables of a node by name.

    `extra` are the user's, in place of the node's own `env_extra`: they win, and a value of None takes ours away.
    Raises ClusterError.
    """
    settings = {setting.name: setting for setting in _chosen(cluster, node)}
    for name, value in _checked_extra(node.env_extra if extra is None else extra).items():
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = Setting(name, value, USER, "nccl_env_extra")
    return settings


def values(settings: Mapping[str, Setting]) -> Dict[str, str]:
    """The settings as an environment."""
    return {name: setting.value for name, setting in settings.items()}


def _chosen(cluster: Cluster, node: Node) -> Iterable[Setting]:
    if node.interface:
        because = f"the interface of {node.address}"
        # "=" is NCCL's exact match (eth1 would take eth10 too); gloo knows no such form.
        yield Setting("NCCL_SOCKET_IFNAME", f"={node.interface}", CHOSEN, because)
        yield Setting("GLOO_SOCKET_IFNAME", node.interface, CHOSEN, because)
    if ":" in node.address:
        # Where an interface has both families NCCL takes the first address it is given, which is the IPv4 one.
        yield Setting("NCCL_SOCKET_FAMILY", "AF_INET6", CHOSEN, f"{node.address} is an IPv6 address")
    if cluster.transport == "tcp":
        yield Setting("NCCL_IB_DISABLE", "1", CHOSEN, "the transport is tcp")
        return
    if node.hcas:
        yield Setting("NCCL_IB_HCA", "=" + ",".join(node.hcas), CHOSEN, "the RDMA ports of the chosen network")
    if node.gid_index is not None:
        yield Setting("NCCL_IB_GID_INDEX", str(node.gid_index), CHOSEN, f"the GID that carries {node.address}")


def _checked_extra(extra: Mapping[str, Any]) -> Dict[str, Optional[str]]:
    problems: List[str] = []
    checked: Dict[str, Optional[str]] = {}
    for raw_name, raw in extra.items():
        name = str(raw_name)
        if not _ENV_NAME.match(name):
            problems.append(f"nccl_env_extra: {name!r} is not a name that an environment variable can have")
            continue
        if raw is not None and not isinstance(raw, (str, int, float)):
            problems.append(f"nccl_env_extra: {name} is a {type(raw).__name__}, wanted text, a number or null")
            continue
        # NCCL reads numbers: to it "True" is 0.
        value = None if raw is None else str(int(raw)) if isinstance(raw, bool) else str(raw)
        if value is not None:
            problems += _value_problems(name, value)
        checked[name] = value
    if problems:
        raise ClusterError(problems)
    return checked


def _value_problems(name: str, value: str) -> List[str]:
    problems = []
    if _CONTROL.search(value):
        problems.append(f"nccl_env_extra: the value of {name} contains a line break or another control character")
    if value != value.strip():
        problems.append(f"nccl_env_extra: the value of {name} has a blank at an end, which NCCL takes as part of it")
    if name.startswith("NCCL_") and len(value.encode("utf-8", "surrogateescape")) > _NCCL_MAX:
        problems.append(f"nccl_env_extra: the value of {name} is longer than the {_NCCL_MAX} bytes that NCCL reads")
    if name == "GLOO_SOCKET_IFNAME" and re.search(r"[=^,]", value):
        problems.append(f"nccl_env_extra: GLOO_SOCKET_IFNAME is {value!r}; gloo takes one plain interface name")
    return problems


# Renderings


def nccl_conf(settings: Mapping[str, Setting]) -> str:
    """Lines for /etc/nccl.conf: the NCCL_ variables. Others would be set only after torch and gloo have read them."""
    lines = []
    for setting in settings.values():
        if setting.name.startswith("NCCL_"):
            lines += [f"# {setting.origin}: {setting.because}", f"{setting.name}={setting.value}"]
    return _text(lines)


def profile(settings: Mapping[str, Setting]) -> str:
    """A POSIX shell fragment for people who log in. No run of ours depends on it."""
    lines = [BEGIN]
    for setting in settings.values():
        lines += [f"# {setting.origin}: {setting.because}", f"export {setting.name}={_quoted(setting.value)}"]
    return _text([*lines, END])


def _quoted(value: str) -> str:
    # Quoted even where sh needs none: zsh looks for a program named after a bare "=".
    return "'" + value.replace("'", "'\\''") + "'"


def environment_file(settings: Mapping[str, Setting]) -> str:
    """Lines for systemd's EnvironmentFile=. systemd expands nothing there but unquotes as a shell would."""
    return _text(f'{name}="{_double_quoted(value)}"' for name, value in values(settings).items())


def _double_quoted(value: str) -> str:
    return re.sub(r'(["\\$`])', r"\\\1", value)


def travelling(per_node: Sequence[Mapping[str, Setting]]) -> Dict[str, Setting]:
    """What a launcher on the head may carry to all nodes: alike on every node, and no name of a node's own device."""
    if not per_node:
        return {}
    return {
        name: setting
        for name, setting in per_node[0].items()
        if not _NODE_OWN.fullmatch(name)
        and all(name in other and other[name].value == setting.value for other in per_node[1:])
    }


def cluster_travelling(cluster: Cluster, extra: Optional[Mapping[str, Any]] = None) -> Dict[str, Setting]:
    """`travelling` for a cluster whose nodes share one nccl_env_extra."""
    return travelling([node_settings(cluster, node, extra) for node in cluster.nodes])


def deepspeed_env(settings: Mapping[str, Setting]) -> str:
    """Lines for `.deepspeed_env`: NAME=VALUE and nothing else, for DeepSpeed fails on a comment or an empty line.

    `settings` are those of `travelling`. The first line names ours, so that a later rendering finds them again.
    DeepSpeed puts a value between double quotes into a command of the remote shell and escapes nothing: values that
    a shell would expand there are refused. Raises ClusterError.
    """
    wrong = [setting for setting in settings.values() if _NODE_OWN.fullmatch(setting.name)]
    unsafe = [setting for setting in settings.values() if re.search(r'["\\$`]', setting.value)]
    problems = [f"{setting.name} is one node's own and must not be carried to others" for setting in wrong]
    problems += [
        f"{setting.name} is {setting.value!r}: DeepSpeed hands it to a shell on each node, which would expand "
        'the \\, ", $ or ` in it: choose another value'
        for setting in unsafe
    ]
    if problems:
        raise ClusterError(problems)
    if not settings:
        return ""
    return _text([f"{DEEPSPEED_MARK}={','.join(settings)}", *(f"{s.name}={s.value}" for s in settings.values())])


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# Files that we share with others: our lines go, come and move, everyone else's stay as they are


def merge_block(text: str, body: str) -> str:
    """The file's text with our block replaced by one that holds `body`, or without it where `body` is empty.

    The block comes first, where it wins over lines further down that set the same variables.
    """
    rest = strip_block(text)
    return f"{BEGIN}\n{body}{END}\n{rest}" if body else rest


def strip_block(text: str) -> str:
    """The file's text without our blocks. A lone marker goes alone: what follows it may be someone's own."""
    ours = managed_lines(text)
    return "".join(
        line for number, line in enumerate(_lines(text), 1) if number not in ours and line.strip() not in (BEGIN, END)
    )


def managed_lines(text: str) -> FrozenSet[int]:
    """The numbers, from 1, of the lines that belong to our blocks, markers included."""
    managed: List[int] = []
    begin = None
    for number, line in enumerate(_lines(text), 1):
        if line.strip() == BEGIN:
            begin = number
        elif line.strip() == END and begin is not None:
            managed += range(begin, number + 1)
            begin = None
    return frozenset(managed)


def _lines(text: str) -> List[str]:
    """The lines with their ends, split as C programs do: at line feeds alone."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def merge_deepspeed_env(text: str, body: str) -> str:
    """`.deepspeed_env` with our lines replaced by `body` (of `deepspeed_env`), at the end, where they win.

    Other people's variables stay. Lines that are none go: with one of them DeepSpeed does not start, and a '#' would
    turn the remote command into a comment.
    """
    kept = []
    ours: List[str] = []
    for line in _lines(text):
        name, equals, value = line.strip().partition("=")
        if name == DEEPSPEED_MARK:
            ours = value.split(",")
        elif ours and name == ours[0]:
            ours.pop(0)
        else:
            ours = []
            if equals and not name.startswith("#"):
                kept.append(line.strip())
    return _text(kept) + body


def deepspeed_names(text: str) -> FrozenSet[str]:
    """The variables in `.deepspeed_env` that are ours."""
    for line in _lines(text):
        name, _equals, value = line.strip().partition("=")
        if name == DEEPSPEED_MARK:
            return frozenset(value.split(","))
    return frozenset()


# What others have set


def contradictions(
    cluster: Cluster, node: Node, found: Iterable[Found], extra: Optional[Mapping[str, Any]] = None
) -> List[str]:
    """One sentence, with its cure, for each setting found on a node that works against ours.

    `found` holds foreign settings only: leave out the lines of `managed_lines` and the files that are all ours.
    """
    settings = node_settings(cluster, node, extra)
    sentences = []
    for item in found:
        mine = settings.get(item.name)
        if mine is not None:
            if _agree(item.name, item.value, mine.value):
                continue
            but = f"but {mine.value} is {'your nccl_env_extra' if mine.origin == USER else 'chosen: ' + mine.because}"
        else:
            unwanted = _unwanted(cluster, node, item, node.env_extra if extra is None else extra)
            if unwanted is None:
                continue
            but = f"but {unwanted}"
        sentences.append(
            f"{node.name}: {_place(item)} sets {item.name}={item.value}, {but}; {_effect(item.file)}. "
            f"Remove it, or set nccl_env_extra: {{{item.name}: {_yaml(item.value)}}} if it is meant"
        )
    return sentences


def _place(item: Found) -> str:
    return f"{item.file}:{item.line}" if item.line else item.file


def _unwanted(cluster: Cluster, node: Node, item: Found, extra: Mapping[str, Any]) -> Optional[str]:
    """Why a variable that we do not set must not be set either, or None."""
    if item.name in extra:  # null there: the user wants neither ours nor to hear of it
        return None
    value = item.value.strip()
    rdma = cluster.transport != "tcp"
    if item.name == "NCCL_IB_DISABLE" and rdma and _number(value) not in (None, 0):
        return f"the chosen transport is {cluster.transport}, which it turns off"
    if item.name == "NCCL_NET" and value.lower() == "socket" and rdma:
        return f"the chosen transport is {cluster.transport}, which it turns off"
    if item.name == "NCCL_NET" and value.lower() == "ib" and not rdma:
        return "the chosen transport is tcp, and NCCL fails where it finds no RDMA port"
    if item.name == "NCCL_SOCKET_FAMILY" and value == "AF_INET6" and ":" not in node.address:
        return f"the chosen address {node.address} is an IPv4 one"
    if item.name == "NCCL_COMM_ID":
        return "torch makes its own for every process group and cannot share a fixed one"
    return None


def _agree(name: str, theirs: str, ours: str) -> bool:
    if theirs == ours:
        return True
    if name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
        if theirs.startswith("^") or ours.startswith("^"):
            return False
        if name == "NCCL_IB_HCA":
            return _devices(theirs) == _devices(ours)
        return _devices(ours) <= _devices(theirs)  # one list of all nodes' interface names is a common habit
    number = _number(theirs)
    return number is not None and number == _number(ours)


def _devices(spec: str) -> FrozenSet[str]:
    """The device names of a list as NCCL splits it: `=a:1,b:1` or `a,b`, without the ports."""
    return frozenset(part.split(":")[0] for part in spec.lstrip("=").split(",") if part)


def _number(text: str) -> Optional[int]:
    try:
        return int(text.strip(), 0)
    except ValueError:
        return None


def _effect(file: str) -> str:
    """Where a setting in that file takes effect."""
    name = file.rsplit("/", 1)[-1]
    if file == "/etc/nccl.conf":
        return "NCCL takes the first of two lines in this file"
    if name in (".nccl.conf", "nccl.conf"):
        return "NCCL reads this file before /etc/nccl.conf"
    if name.startswith(".deepspeed_env"):
        return "DeepSpeed carries it to every node, over that node's own"
    return "it wins over /etc/nccl.conf wherever a run takes on that environment"


def _yaml(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def found_from(raw: Iterable[Mapping[str, Any]]) -> Tuple[Found, ...]:
    """nccl_facts' `variables` as Found: `name`, `value`, `source` (or `file`), `line`; without those of no effect."""
    return tuple(
        Found(
            file=str(item.get("source") or item.get("file")),
            line=int(item.get("line") or 0),
            name=str(item["name"]),
            value=str(item.get("value", "")),
        )
        for item in raw
        if item.get("effective", True)
    )
