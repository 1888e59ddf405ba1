# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""/etc/hosts: the block with all members, and the lines that would make a member's name mean something else."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils import _managed_block
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import is_localhost, normalise_address


@dataclass(frozen=True)
class Conflict:
    """A line of the user's that maps a member's name to another address. `line` counts from 1."""

    line: int
    name: str
    address: str
    wanted: str


def render_block(members: Sequence[Mapping[str, Any]]) -> str:
    """One line per member: address, name, further names."""
    lines = []
    for member in members:
        lines.append(f"{normalise_address(member['address'])}\t{' '.join(_names(member))}")
    return "\n".join(lines) + "\n"


def _names(member: Mapping[str, Any]) -> List[str]:
    return [str(member["name"]), *[str(alias) for alias in member.get("aliases") or ()]]


def _parse(line: str) -> Tuple[str, List[str]]:
    fields = line.partition("#")[0].split()
    return (fields[0], fields[1:]) if len(fields) > 1 else ("", [])


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _without(line: str, drop: Set[str]) -> str:
    """The line with some of its names taken out; empty where none is left."""
    content, mark, comment = line.partition("#")
    address, names = _parse(content)
    kept = [name for name in names if name not in drop]
    if not kept:
        return ""
    end = line[len(line.rstrip("\r\n")) :]
    return f"{address}\t{' '.join(kept)}" + (f" {mark}{comment.rstrip()}" if mark else "") + end


def conflicts(text: str, members: Sequence[Mapping[str, Any]]) -> List[Conflict]:
    """The user's lines that map a member's name to an address that is neither loopback nor the member's own."""
    wanted = {name: str(normalise_address(member["address"])) for member in members for name in _names(member)}
    found = []
    for number, line in _managed_block.user_lines(text):
        address, names = _parse(line)
        if not address or _is_loopback(address):
            continue
        found += [
            Conflict(number, name, address, wanted[name.lower()])
            for name in names
            if wanted.get(name.lower(), normalise_address(address)) != normalise_address(address)
        ]
    return found


def update(
    text: str, members: Sequence[Mapping[str, Any]], own_names: Sequence[str], replace_conflicts: bool = False
) -> str:
    """The file with our block in place and no loopback line left that names a member.

    `own_names` are the node's new and old host name: installers write `127.0.1.1 <hostname>`, which makes gloo and
    torch advertise loopback. The block stands first because the first match wins. Everything else stays as it is.
    """
    names = {name.lower() for member in members for name in _names(member)} | {name.lower() for name in own_names}

    def is_ours(name: str) -> bool:
        name = name.lower()
        # Stock images are called localhost.localdomain: that name stays what it is.
        return not is_localhost(name) and (name in names or name.partition(".")[0] in names)

    drop_elsewhere = {(clash.line, clash.name) for clash in conflicts(text, members)} if replace_conflicts else set()
    kept = []
    for number, line in _managed_block.user_lines(text):
        address, found = _parse(line)
        if address and _is_loopback(address):
            drop = {name for name in found if is_ours(name)}
        else:
            drop = {name for name in found if (number, name) in drop_elsewhere}
        kept.append(_without(line, drop) if drop else line)
    return _managed_block.replace("".join(kept), render_block(members), first=True)


def local_addresses(ip_json: str) -> Dict[str, str]:
    """Address -> interface from `ip -j addr`, link-local ones apart."""
    found: Dict[str, str] = {}
    for interface in json.loads(ip_json or "[]"):
        for info in interface.get("addr_info") or ():
            address = normalise_address(info.get("local"))
            if address and info.get("scope") != "link":
                found[address] = str(interface.get("ifname"))
    return found


def ownership_problem(name: str, address: str, local: Mapping[str, str]) -> Optional[str]:
    """Why the address cannot be this node's, in one sentence; None where the node owns it."""
    if normalise_address(address) in local:
        return None
    owned = ", ".join(f"{addr} on {interface}" for addr, interface in local.items() if not _is_loopback(addr))
    return (
        f"{name}: torchfleet_address is {address}, which this node does not own: "
        f"set it to one it has ({owned or 'none'})"
    )
