# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Trust between the members: the texts of authorized_keys, known_hosts, ssh's configuration and sshd's drop-in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple

KEY_FILE = ".ssh/id_ed25519_torchfleet"

# type, base64, and a comment that is dropped: nothing of a peer's choosing may reach another node's files.
_PUBLIC_KEY = re.compile(r"((?:ssh|ecdsa|sk)-[A-Za-z0-9@.-]+) ([A-Za-z0-9+/]+={0,3})(?: .*)?\Z")
_ADDRESS = re.compile(r"[0-9a-fA-F:.]+\Z")
_MAX_STARTUPS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,3}):([0-9]{1,5}))?\Z")


@dataclass(frozen=True)
class Peer:
    """A member as the others have to know it. `addresses` are all that the node may connect from."""

    name: str
    aliases: Tuple[str, ...]
    address: str
    port: int
    public_key: str
    host_keys: Tuple[str, ...]
    addresses: Tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """What a node holds about a member in its managed blocks."""

    public_key: str = ""
    host_keys: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Stranger:
    """A member that is not the machine its peers know by this name. `changes` are phrases, `seen_by` the peers."""

    name: str
    changes: Tuple[str, ...]
    seen_by: Tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.name} is not the machine that {', '.join(self.seen_by)} know by this name: "
            f"{'; '.join(self.changes)}. If it was reinstalled, say so with ssh_trust_accept_new_identity="
            f"[{self.name}]; if not, find out what answers at its address"
        )


def clean_key(text: str) -> str:
    """`type base64` of a public key. Raises ValueError for anything else."""
    match = _PUBLIC_KEY.match(text.strip())
    if not match:
        raise ValueError(f"{text.strip()[:40]!r} is not a public key")
    return f"{match.group(1)} {match.group(2)}"


def authorized_keys(peers: Sequence[Peer], restrict_sources: bool) -> str:
    """One line per member. Each key is good only from its own node's addresses, unless that is turned off."""
    lines = []
    for peer in peers:
        options = ""
        if restrict_sources:
            # Sorted: the order of interfaces changes from boot to boot.
            sources = {address for address in (*peer.addresses, "127.0.0.1", "::1") if _ADDRESS.match(address)}
            options = f'from="{",".join(sorted(sources))}" '
        lines.append(f"{options}{clean_key(peer.public_key)} torchfleet:{peer.name}")
    return "\n".join(lines) + "\n"


def known_hosts(peers: Sequence[Peer]) -> str:
    """Every member's real host keys under its name, aliases and address, in the `[host]:port` form where needed."""
    lines = []
    for peer in peers:
        hosts = dict.fromkeys([peer.name, *peer.aliases, peer.address])
        pattern = ",".join(host if peer.port == 22 else f"[{host}]:{peer.port}" for host in hosts)
        lines += [f"{pattern} {clean_key(key)}" for key in peer.host_keys]
    return "\n".join(lines) + "\n"


def client_config(entries: str) -> str:
    """The block of ~/.ssh/config around `_ssh_config`'s entries. It stands first in the file (the first match wins)
    and closes with `Match all`, so that the user's own lines behind it keep their scope."""
    return f"{entries.strip()}\nMatch all\n"


def sshd_config(max_startups: str) -> str:
    """sshd's drop-in. Raises ValueError where the value is none that sshd takes (start:rate:full, rate in per cent)."""
    match = _MAX_STARTUPS.match(max_startups)
    start, *more = [int(part) for part in match.groups() if part] if match else [0]
    if start < 1 or (more and not (1 <= more[0] <= 100 and start <= more[1])):
        raise ValueError(f"ssh_trust_max_startups is {max_startups!r}, wanted start:rate:full, for example 200:30:400")
    return f"# Written by torchfleet.cluster.ssh_trust: a whole mesh may connect at once.\nMaxStartups {max_startups}\n"


def records(authorized: str, known: str) -> Dict[str, Record]:
    """Members by name, from the bodies of our blocks in authorized_keys and known_hosts."""
    keys: Dict[str, str] = {}
    hosts: Dict[str, List[str]] = {}
    for line in authorized.splitlines():
        rest, mark, name = line.rpartition(" torchfleet:")
        words = rest.split()
        if mark and len(words) >= 2:
            keys[name.strip()] = " ".join(words[-2:])
    for line in known.splitlines():
        words = line.split()
        if len(words) >= 3 and not line.startswith(("#", "@")):
            name = re.sub(r"\A\[(.*)\]:[0-9]+\Z", r"\1", words[0].split(",")[0])
            hosts.setdefault(name, []).append(" ".join(words[1:3]))
    return {
        name: Record(keys.get(name, ""), tuple(hosts.get(name, ()))) for name in sorted(set(keys) | set(hosts)) if name
    }


def fingerprint(key: str) -> str:
    """The key as `ssh-keygen -l` names it."""
    try:
        digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    except (IndexError, binascii.Error):
        return key
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def strangers(peers: Sequence[Peer], known: Mapping[str, Mapping[str, Record]]) -> List[Stranger]:
    """Members whose keys are not those that their peers hold. `known` are the peers' records, by the peer's name.

    What a member holds about itself says nothing: whoever took its place could have written that.
    """
    found = []
    for peer in peers:
        changes: Dict[str, None] = {}
        seen_by = []
        for observer, held in known.items():
            record = held.get(peer.name)
            if observer == peer.name or record is None:
                continue
            differences = _differences(peer, record)
            if differences:
                seen_by.append(observer)
                changes.update(dict.fromkeys(differences))
        if changes:
            found.append(Stranger(peer.name, tuple(changes), tuple(seen_by)))
    return found


def _differences(peer: Peer, record: Record) -> List[str]:
    now = {clean_key(key).split()[0]: clean_key(key) for key in peer.host_keys}
    before = {key.split()[0]: key for key in record.host_keys}
    # A key type that comes or goes is a setting of sshd's; another key of the same type is another machine.
    common = [kind for kind in before if kind in now]
    differences = [
        f"its {kind} host key is {fingerprint(now[kind])}, known was {fingerprint(before[kind])}"
        for kind in common
        if now[kind] != before[kind]
    ]
    if before and not common:
        differences.append("it has none of the host keys that are known")
    # No key yet: it will make one, which is as new as any other.
    own = clean_key(peer.public_key) if peer.public_key else ""
    if record.public_key and own != record.public_key:
        now_is = fingerprint(own) if own else "not there"
        differences.append(f"its cluster key is {now_is}, known was {fingerprint(record.public_key)}")
    return differences
