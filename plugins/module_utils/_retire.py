# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A member taken out of what we wrote, without asking the other members: they may be down, and it may be dead.

What is left is the text that the roles would render without it, so that the next provision changes nothing.
"""

from __future__ import annotations

import json
import re
from typing import Callable, Dict, List, Mapping, Sequence, Set

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate, _managed_block

_PORT = re.compile(r"\A\[(.*)\]:[0-9]+\Z")


def _hosts(body: str, name: str) -> str:
    return "".join(line for line in body.splitlines(keepends=True) if line.split()[1:2] != [name])


def _authorized_keys(body: str, name: str) -> str:
    return "".join(
        line for line in body.splitlines(keepends=True) if line.rstrip().rpartition(" ")[2] != f"torchfleet:{name}"
    )


def _known_hosts(body: str, name: str) -> str:
    kept = []
    for line in body.splitlines(keepends=True):
        first = (line.split() or [""])[0].split(",")[0]
        if _PORT.sub(r"\1", first) != name:
            kept.append(line)
    return "".join(kept)


def _config(body: str, name: str) -> str:
    kept: List[str] = []
    ours = False
    for line in body.splitlines(keepends=True):
        words = line.split()
        if words[:1] in (["Host"], ["Match"]):
            # An entry goes with the blank line behind it, or, where it was the last, with the one before.
            if ours and words[0] == "Match" and kept and not kept[-1].strip():
                kept.pop()
            ours = words[:2] == ["Host", name]
        if not ours:
            kept.append(line)
    return "".join(kept)


_FORMS: Dict[str, Callable[[str, str], str]] = {
    "hosts": _hosts,
    "authorized_keys": _authorized_keys,
    "known_hosts": _known_hosts,
    "config": _config,
}


def without_member(form: str, text: str, name: str) -> str:
    """The file without the member of that host name. `form` is hosts, authorized_keys, known_hosts or config."""
    before, body, after = _managed_block.split(text)
    kept = _FORMS[form](body, name)
    if kept == body:
        return text
    begin, end = f"{_managed_block.BEGIN}\n", f"{_managed_block.END}\n"
    return f"{before}{begin}{kept}{end}{after}" if _says_something(kept) else before + after


def without_block(text: str) -> str:
    """The file without anything of ours."""
    return _managed_block.replace(text, "")


def addresses(hosts: str, authorized_keys: str = "") -> Dict[str, List[str]]:
    """What this node knows as each member's addresses, the one on the training network first."""
    found: Dict[str, List[str]] = {}
    for line in _managed_block.split(hosts)[1].splitlines():
        words = line.split()
        if len(words) > 1 and not line.startswith("#"):
            found.setdefault(words[1], []).append(words[0])
    for line in _managed_block.split(authorized_keys)[1].splitlines():
        match = re.match(r'from="([^"]*)" .* torchfleet:(\S+)$', line)
        if match:
            known = found.setdefault(match.group(2), [])
            known += [one for one in match.group(1).split(",") if one not in (*known, "127.0.0.1", "::1")]
    return found


def of_it_alone(known: Mapping[str, Sequence[str]], name: str) -> Set[str]:
    """The member's addresses; behind NAT, one of them may be others' too."""
    others = {one for member, its in known.items() if member != name for one in its}
    return set(known.get(name, ())) - others


def hostfile(text: str, name: str) -> str:
    """A hostfile without the member."""
    return "".join(line for line in text.splitlines(keepends=True) if line.split()[:1] != [name])


def accelerate(text: str, node: str, left: Sequence[str], master_address: str = "") -> str:
    """The configuration of `accelerate launch` on that node for those that are left, in launch order.

    Each machine has the same number of processes: accelerate takes nothing else. Without a `master_address` it stays.
    """
    machines, processes = (re.search(rf"^num_{what}: (\d+)$", text, re.MULTILINE) for what in ("machines", "processes"))
    if not text.startswith(_accelerate.HEADER) or not machines or not processes or node not in left:
        return text
    values = {
        "num_machines": str(len(left)),
        "num_processes": str(int(processes.group(1)) * len(left) // int(machines.group(1))),
        "main_process_ip": json.dumps(master_address) if master_address else "",
        "machine_rank": "" if 'deepspeed_multinode_launcher: "pdsh"' in text else str(left.index(node)),
    }
    for key, value in values.items():
        if value:
            text = re.sub(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.MULTILINE)
    return text


def _says_something(body: str) -> bool:
    return any(
        line.strip() and not line.startswith("#") and line.split() != ["Match", "all"] for line in body.splitlines()
    )
