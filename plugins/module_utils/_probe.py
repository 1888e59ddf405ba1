# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What the network probe does, without its sockets: who meets whom when, what is said, what an answer means.

A listener is a plain mapping: `node`, `addresses` (all that the node has) and `endpoints`, each with `interface`,
`address`, `port`, `udp_port`, or an `error` in place of the ports.
"""

from __future__ import annotations

import errno
import ipaddress
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

# Longest line of the handshake; whoever sends more is no peer of ours.
MAX_LINE = 1024
# Enough to fill several packets of any MTU, little enough for a slow link.
EXCHANGE_BYTES = 65536
# Every IPv4 host takes datagrams of this size (RFC 791), so a smaller path is not looked for.
LEAST_MTU = 576
_IP_HEADER = {4: 20, 6: 40}
_UDP_HEADER = 8
_TCP_HEADER = 20
_TCP_TIMESTAMPS = 12

_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL)


@dataclass(frozen=True)
class Attempt:
    """One connection to try: from one of the node's addresses to one endpoint of a peer."""

    round: int
    peer: str
    source: str
    address: str
    port: int
    udp_port: int

    @property
    def family(self) -> int:
        return 6 if ":" in self.address else 4


def rounds(names: Sequence[str]) -> Tuple[Tuple[Tuple[str, str], ...], ...]:
    """All pairs in rounds of disjoint pairs: a tournament, N-1 rounds for an even N, N for an odd one."""
    seats: List[Optional[str]] = list(names)
    if len(seats) % 2:
        seats.append(None)
    half = len(seats) // 2
    played = []
    for _round in range(len(seats) - 1):
        pairs = zip(seats[:half], reversed(seats[half:]))
        played.append(tuple((a, b) for a, b in pairs if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(played)


def peers_by_round(names: Sequence[str], me: str) -> Tuple[Tuple[int, str], ...]:
    """(round, peer) of one node. All nodes must be given the same names; their order does not matter."""
    found = []
    for number, pairs in enumerate(rounds(sorted(names))):
        found += [(number, b if a == me else a) for a, b in pairs if me in (a, b)]
    return tuple(found)


def plan(me: str, listeners: Mapping[str, Mapping[str, Any]]) -> Tuple[List[Attempt], List[Dict[str, Any]]]:
    """What this node tries, in the order of its rounds, and the links that need no trying."""
    mine = listeners[me]
    own = {str(address) for address in mine.get("addresses") or ()}
    sources = [str(endpoint["address"]) for endpoint in mine["endpoints"]]
    attempts: List[Attempt] = []
    settled: List[Dict[str, Any]] = []
    for number, peer in peers_by_round(list(listeners), me):
        for endpoint in listeners[peer]["endpoints"]:
            address = str(endpoint["address"])
            for source in sources:
                if (":" in source) != (":" in address):
                    continue
                if address in own or address == source:
                    settled.append(link(me, source, peer, address, "own_address"))
                elif not endpoint.get("port"):
                    settled.append(link(me, source, peer, address, "not_listening"))
                else:
                    port, udp_port = int(endpoint["port"]), int(endpoint.get("udp_port") or 0)
                    attempts.append(Attempt(number, peer, source, address, port, udp_port))
    return attempts, settled


def link(
    source: str, source_address: str, target: str, target_address: str, why: str = "", **measured: Any
) -> Dict[str, Any]:
    """One result in the shape that the choice of the network reads; what is not known is left out."""
    found = {"source": source, "source_address": source_address, "target": target, "target_address": target_address}
    if why:
        return {**found, "ok": False, "why": why, **_known(measured)}
    return {**found, "ok": True, **_known(measured)}


def _known(values: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def line(**words: Any) -> bytes:
    """One line of the handshake."""
    return json.dumps(words, separators=(",", ":")).encode("ascii") + b"\n"


def read_line(data: bytes) -> Optional[Dict[str, Any]]:
    """The words of a line, or None where it is not one of ours."""
    try:
        words = json.loads(data.decode("ascii"))
    except ValueError:
        return None
    return words if isinstance(words, dict) else None


def judge_answer(answer: Optional[Mapping[str, Any]], probe_id: str, peer: str) -> str:
    """Why the answer is not the peer's; empty where it is. An address alone proves nothing: many machines have it."""
    if answer is None or answer.get("probe") != probe_id or answer.get("node") != peer:
        return "stranger"
    return ""


def why_of_errno(number: int) -> str:
    """The reason a connection failed, as the choice of the network knows it, or the system's own name for it."""
    if number in _UNREACHABLE:
        return "unreachable"
    if number in (errno.ETIMEDOUT, errno.EAGAIN):
        return "timeout"
    if number == errno.ECONNREFUSED:
        return "refused"
    return errno.errorcode.get(number, f"error {number}")


def tcp_path_mtu(kernel_mtu: Optional[int], segment: int, timestamps: bool, family: int) -> Optional[int]:
    """The path MTU that a connection has come to: what the kernel knows of the path, and what the peer's side takes.

    `segment` is the connection's maximum segment size, from which timestamps, where used, are already taken off.
    """
    if segment <= 0:
        return kernel_mtu
    by_segment = segment + _IP_HEADER[family] + _TCP_HEADER + (_TCP_TIMESTAMPS if timestamps else 0)
    return min(kernel_mtu or by_segment, by_segment)


def datagram_payload(packet: int, family: int) -> int:
    """Bytes of UDP payload that make an IP packet of this size."""
    return packet - _IP_HEADER[family] - _UDP_HEADER


def packet_sizes(low: int, high: int, count: int = 16) -> Tuple[int, ...]:
    """Packet sizes to try at once, above `low` (known to pass) and up to `high`, evenly spread, largest first."""
    spread = {high - (high - low) * part // count for part in range(count)}
    return tuple(sorted((size for size in spread if size > low), reverse=True))


def narrowed(tried: Sequence[int], passed: Sequence[int], low: int) -> Tuple[int, int]:
    """The bounds after a burst: the largest size that passed, and the largest that may still pass."""
    best = max(passed, default=low)
    lost = [size for size in tried if size > best]
    return best, (min(lost) - 1 if lost else best)


def worth_measuring(links: Sequence[Mapping[str, Any]]) -> List[int]:
    """Positions of the links whose bandwidth is measured: one towards each address of each peer.

    Of several sources the one that shares most leading bits with the target: most likely the same network.
    """
    nearest: Dict[Tuple[str, str], Tuple[int, int]] = {}
    for position, found in enumerate(links):
        if found.get("ok"):
            source = ipaddress.ip_address(found["source_address"])
            target = ipaddress.ip_address(found["target_address"])
            distance = (int(source) ^ int(target)).bit_length()
            key = (found["target"], found["target_address"])
            nearest[key] = min(nearest.get(key, (distance, position)), (distance, position))
    return sorted(position for _distance, position in nearest.values())
