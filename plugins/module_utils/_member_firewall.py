# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Openings between members in the firewall that a node has: what is open now, and the commands that change it.

Nothing here turns a firewall off, and nothing closes what others opened.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

MARK = "torchfleet"
ZONE = "torchfleet"
Argv = Tuple[str, ...]


@dataclass(frozen=True)
class Opening:
    """From whom, and to which TCP ports (`22`, `50000-51000`); no ports mean everything."""

    members: FrozenSet[str]
    ports: Tuple[str, ...] = ()

    def of(self, version: int) -> List[str]:
        found = [ipaddress.ip_address(one) for one in self.members]
        return [str(one) for one in sorted((one for one in found if one.version == version), key=int)]


@dataclass(frozen=True)
class Chain:
    """A chain of nftables that decides about what comes in, and closes something."""

    family: str
    table: str
    name: str

    def __str__(self) -> str:
        return f"{self.family} {self.table} {self.name}"


def addresses(values: Iterable[str]) -> FrozenSet[str]:
    """Those of the values that are addresses of one host, in their usual form."""
    found: Set[str] = set()
    for value in values:
        try:
            one = ipaddress.ip_address(str(value).strip().strip("[]").partition("%")[0])
        except ValueError:
            continue
        if not (one.is_loopback or one.is_link_local or one.is_unspecified or one.is_multicast):
            found.add(str(one))
    return frozenset(found)


# --- nftables ---------------------------------------------------------------------------------------------------------


def closing_chains(ruleset: str) -> List[Chain]:
    """Base chains at the input hook that drop or reject, from `nft list ruleset`; those of firewalls' own tools too."""
    found: List[Chain] = []
    family = table = name = body = ""
    for raw in ruleset.splitlines():
        line = raw.strip()
        opened = re.match(r"table (\S+) (\S+) \{", line)
        if opened:
            family, table = opened.groups()
        elif re.match(r"chain \S+ \{", line):
            name, body = line.split()[1], ""
        elif line == "}" and name:
            closes = "policy drop" in body or re.search(r"\b(?:drop|reject)\b", body)
            if "hook input" in body and closes and family in ("ip", "ip6", "inet"):
                found.append(Chain(family, table, name))
            name = ""
        elif name:
            body += line + "\n"
    return found


def members_of(chain: Chain, opening: Opening) -> FrozenSet[str]:
    """The members that the chain can tell of: one of a single family has no place for the other's addresses."""
    versions = {"ip": (4,), "ip6": (6,)}.get(chain.family, (4, 6))
    return frozenset(one for version in versions for one in opening.of(version))


def nft_rules(chain: Chain, opening: Opening) -> List[str]:
    """The rules that open the chain, as nft reads them."""
    ports = " tcp dport { " + ", ".join(opening.ports) + " }" if opening.ports else ""
    rules = []
    for version, word in ((4, "ip"), (6, "ip6")):
        members = opening.of(version)
        if members and chain.family in ("inet", word):
            rules.append(f'{chain} {word} saddr {{ {", ".join(members)} }}{ports} accept comment "{MARK}"')
    return rules


def nft_open(listing: str) -> Tuple[Opening, List[int]]:
    """What our rules in `nft -a list chain` open, and their handles."""
    members: Set[str] = set()
    ports: List[str] = []
    handles = []
    for line in listing.splitlines():
        if f'comment "{MARK}"' not in line:
            continue
        handle = re.search(r"# handle (\d+)", line)
        handles += [int(handle.group(1))] if handle else []
        for key, kept in (("saddr", members), ("dport", None)):
            value = re.search(rf"{key} (\{{[^}}]*\}}|\S+)", line)
            words = [word.strip() for word in value.group(1).strip("{}").split(",")] if value else []
            if kept is not None:
                kept.update(words)
            else:
                ports = words or ports
    return Opening(frozenset(members), tuple(_port_number(port) for port in ports)), handles


def _port_number(port: str) -> str:
    # nft shows the names of /etc/services with some options, and a range is always in numbers.
    return {"ssh": "22"}.get(port, port)


def nft_script(chains: Sequence[Chain], opening: Opening) -> str:
    """What is loaded after the firewall's own rules at every start."""
    rules = [f"insert rule {rule}\n" for chain in chains for rule in nft_rules(chain, opening)]
    return "# Written by torchfleet.cluster.node_tuning; the next provision overwrites it.\n" + "".join(rules)


def nft_unit(nft: str, script: str) -> str:
    """A drop-in of nftables.service: its start and its reload flush what was there."""
    return (
        "# Written by torchfleet.cluster.node_tuning; the next provision overwrites it.\n"
        f"[Service]\nExecStartPost=-{nft} -f {script}\nExecReload=-{nft} -f {script}\n"
    )


def nft_script_without(script: str, gone: FrozenSet[str]) -> str:
    """The script that is loaded at every start, without some members."""
    lines = []
    for line in script.splitlines(keepends=True):
        listed = re.search(r"saddr \{ ([^}]*) \}", line)
        kept = [one for one in listed.group(1).split(", ") if one not in gone] if listed else []
        if listed and kept:
            line = line[: listed.start(1)] + ", ".join(kept) + line[listed.end(1) :]
        if kept or not listed:
            lines.append(line)
    return "".join(lines)


# --- ufw --------------------------------------------------------------------------------------------------------------


def ufw_open(added: str) -> Dict[str, Tuple[str, ...]]:
    """From `ufw show added`: member -> ports, of the rules with our mark."""
    found: Dict[str, Tuple[str, ...]] = {}
    for line in added.splitlines():
        match = re.match(r"ufw (?:prepend |insert \d+ )?allow (?:in )?(?:proto tcp )?from (\S+)(.*)", line.strip())
        if match and re.search(rf"comment ['\"]{MARK}['\"]", line):
            ports = re.search(r"to any port (\S+)", match.group(2))
            found[match.group(1)] = tuple(ports.group(1).replace(":", "-").split(",")) if ports else ()
    return found


def ufw_rule(member: str, ports: Sequence[str]) -> Argv:
    if not ports:
        return ("allow", "from", member)
    listed = ",".join(port.replace("-", ":") for port in ports)
    return ("allow", "proto", "tcp", "from", member, "to", "any", "port", listed)


def ufw_commands(now: Dict[str, Tuple[str, ...]], opening: Opening) -> List[Argv]:
    """Our rules first in the list, as a rule that denies may stand in it."""
    commands: List[Argv] = []
    for member, ports in sorted(now.items()):
        if member not in opening.members or ports != opening.ports:
            commands.append(("--force", "delete", *ufw_rule(member, ports)))
    for member in [*opening.of(4), *opening.of(6)]:
        if now.get(member) != opening.ports:
            commands.append(("prepend", *ufw_rule(member, opening.ports), "comment", MARK))
    return commands


def ufw_taken_back(now: Dict[str, Tuple[str, ...]], gone: FrozenSet[str]) -> List[Argv]:
    return [("--force", "delete", *ufw_rule(one, ports)) for one, ports in sorted(now.items()) if one in gone]


# --- firewalld --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zone:
    """A permanent zone of firewalld."""

    target: str = ""
    sources: FrozenSet[str] = frozenset()
    ports: FrozenSet[str] = frozenset()


def read_zone(text: str) -> Zone:
    """`firewall-cmd --permanent --zone=Z --list-all`; an empty text is a zone that is not there."""
    values = dict(re.findall(r"^  (target|sources|ports):[ \t]*(.*)$", text, re.MULTILINE))
    return Zone(
        values.get("target", ""),
        frozenset(values.get("sources", "").split()),
        frozenset(values.get("ports", "").split()),
    )


def zone_commands(now: Optional[Zone], opening: Opening) -> List[Argv]:
    """firewall-cmd's options, one call each, for the permanent settings; a reload makes them the running ones."""
    commands: List[Argv] = []
    if now is None:
        commands.append((f"--new-zone={ZONE}",))
        now = Zone()
    zone = f"--zone={ZONE}"
    target = "default" if opening.ports else "ACCEPT"
    if now.target != target:
        commands.append((zone, f"--set-target={target}"))
    wanted = frozenset(f"{port}/tcp" for port in opening.ports)
    for option, have, want in (("port", now.ports, wanted), ("source", now.sources, opening.members)):
        commands += [(zone, f"--remove-{option}={one}") for one in sorted(have - want)]
        commands += [(zone, f"--add-{option}={one}") for one in sorted(want - have)]
    return commands


def zone_taken_back(now: Zone, gone: FrozenSet[str]) -> List[Argv]:
    """The same without some members; without any, the zone goes."""
    if now.sources <= gone:
        return [(f"--delete-zone={ZONE}",)]
    return [(f"--zone={ZONE}", f"--remove-source={one}") for one in sorted(now.sources & gone)]
