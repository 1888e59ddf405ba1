# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The measured matrix: which candidate of which node reaches which candidate of which other node.

A link is a plain mapping: `source` and `target` (node names), `target_address`, `ok`, and where known
`source_address` or `source_interface` (neither: whichever the node's routing picks), `why` (a key of WHY, or free
text), `path_mtu` (bytes), `bandwidth_mbps`, `via` (the address that the node's routing would send from).
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._candidates import Candidate

# Above this many Mb/s one TCP stream measures the processor; a known nominal speed then says more.
_PROCESSOR_BOUND = 10000.0

# why a link does not work: (mark in the printed matrix, what was seen, what to change)
WHY: Dict[str, Tuple[str, str, str]] = {
    "timeout": (
        "t",
        "no answer",
        "let {target}'s firewall accept TCP from {source} on all ports, or mend the cable, VLAN or route between them",
    ),
    "refused": (
        "r",
        "the connection was refused",
        "let {target}'s firewall accept TCP from {source} on all ports, and make sure no other machine has {address}",
    ),
    "unreachable": (
        "u",
        "no route, or nobody there",
        "connect {interface} of {target} to the network of {source}, or add the missing route",
    ),
    "stranger": (
        "s",
        "another machine answered",
        "give {target} an address of its own on {interface}: some other machine has {address} too",
    ),
    "own_address": (
        "o",
        "{source} has the same address itself",
        "give {target} an address of its own on {interface}: {source} has {address} too",
    ),
    "mtu": (
        "m",
        "it connects, but full-size packets are lost",
        "set the MTU of {interface} on all nodes to {mtu}, or raise it on the switches and tunnels between them",
    ),
    "not_listening": (
        "n",
        "the probe could not listen there",
        "see that {address} is really configured on {interface} of {target}",
    ),
    "not_measured": (
        "?",
        "not measured",
        "run the probe on all nodes: there is no measurement from {source} to {address}",
    ),
}
_ELSE = ("x", "", "look into the error that {source} got from {address}")


class Reachability:
    """The matrix over all candidates, as bit masks: candidate `i` is bit `i`.

    `owner[i]` is the node (by position) of candidate `candidates[i]`; `mine[n]` the mask of node n's candidates;
    `both[i]` the candidates of other nodes that reach `i` and are reached from it. `measured` has the Mb/s of ordered
    pairs (the nominal ones where a measurement cannot tell); `speeds[i]` is the best that was measured through `i`, or
    else its nominal Mb/s. `groups` are candidates that look like one network: those that share a subnet, and of the
    others those that share a name.
    """

    def __init__(
        self, names: Sequence[str], candidates: Sequence[Sequence[Candidate]], links: Iterable[Mapping[str, Any]]
    ) -> None:
        self.names = tuple(names)
        self.candidates: List[Candidate] = [candidate for own in candidates for candidate in own]
        self.owner = [node for node, own in enumerate(candidates) for _candidate in own]
        self.mine = [0] * len(names)
        for index, node in enumerate(self.owner):
            self.mine[node] |= 1 << index
        self.measured: Dict[Tuple[int, int], float] = {}
        self._why: Dict[Tuple[int, int], str] = {}
        self._path_mtu: Dict[Tuple[int, int], int] = {}
        self._via: Dict[Tuple[int, int], str] = {}
        self._out = self._read(links)
        incoming = [0] * len(self.candidates)
        for index, mask in enumerate(self._out):
            for other in members(mask):
                incoming[other] |= 1 << index
        self.both = [out & into for out, into in zip(self._out, incoming)]
        best: Dict[int, float] = {}
        for pair, mbps in self.measured.items():
            for index in pair:
                best[index] = max(best.get(index, 0.0), mbps)
        self.speeds = [best.get(index, float(c.assumed_speed)) for index, c in enumerate(self.candidates)]
        self.groups = self._groups()

    def _read(self, links: Iterable[Mapping[str, Any]]) -> List[int]:
        node_of = {name: node for node, name in enumerate(self.names)}
        by_address = {(self.owner[i], c.address): i for i, c in enumerate(self.candidates)}
        by_interface: Dict[Tuple[int, str], List[int]] = {}
        for i, candidate in enumerate(self.candidates):
            by_interface.setdefault((self.owner[i], candidate.interface), []).append(i)
        exact = [0] * len(self.candidates)
        found = [0] * len(self.candidates)
        # A measurement from one address says more than one that left the choice to the routing: read it last.
        for link in sorted(links, key=_is_exact):
            source, target = node_of.get(link["source"]), node_of.get(link["target"])
            if source is None or target is None or source == target:
                continue
            j = by_address.get((target, link["target_address"]))
            if j is None:
                continue
            if link.get("source_address"):
                own = by_address.get((source, link["source_address"]))
                sources = [] if own is None else [own]
            elif link.get("source_interface"):
                sources = by_interface.get((source, link["source_interface"]), [])
            else:
                sources = members(self.mine[source])
            bit = 1 << j
            for i in sources:
                if self.candidates[i].family != self.candidates[j].family:
                    continue
                exact[i] |= bit
                if link.get("ok"):
                    found[i] |= bit
                else:
                    found[i] &= ~bit
                    self._why[i, j] = str(link.get("why") or "timeout")
                if link.get("path_mtu"):
                    self._path_mtu[i, j] = int(link["path_mtu"])
                if link.get("bandwidth_mbps"):
                    self.measured[i, j] = self._worth(i, j, float(link["bandwidth_mbps"]))
                if link.get("via"):
                    self._via[i, j] = str(link["via"])
        return found

    def _worth(self, i: int, j: int, mbps: float) -> float:
        nominal = min(self.candidates[i].speed_mbps or 0, self.candidates[j].speed_mbps or 0)
        return mbps if mbps < _PROCESSOR_BOUND else max(_PROCESSOR_BOUND, nominal)

    def ok(self, source: int, target: int) -> bool:
        return bool(self._out[source] >> target & 1)

    def why(self, source: int, target: int) -> str:
        """A key of WHY or the probe's own words; empty where the link works."""
        return "" if self.ok(source, target) else self._why.get((source, target), "not_measured")

    def path_mtu(self, source: int, target: int) -> Optional[int]:
        return self._path_mtu.get((source, target))

    def via(self, source: int, target: int) -> Optional[str]:
        return self._via.get((source, target))

    def place(self, index: int) -> str:
        """`eth0 10.0.0.1`"""
        candidate = self.candidates[index]
        return f"{candidate.interface} {candidate.address}"

    def complaint(self, pairs: Sequence[Tuple[int, int]]) -> str:
        """`b does not reach a at 10.0.0.1 on eth0 (no answer)`, for pairs with the same source or the same target."""
        source, target = pairs[0]
        why = self.why(source, target)
        sources = list(dict.fromkeys(self.names[self.owner[i]] for i, _target in pairs))
        targets = list(dict.fromkeys(j for _source, j in pairs))
        seen = WHY.get(why, _ELSE)[1].format(source="the sender" if len(sources) > 1 else sources[0]) or why
        mtus = [mtu for mtu in (self.path_mtu(i, j) for i, j in pairs) if mtu]
        if why == "mtu" and mtus:
            seen += f": above {min(mtus)} bytes"
        places = [f"{self.names[self.owner[j]]} at {self.candidates[j].address}" for j in targets]
        on = f" on {self.candidates[target].interface}" if len(targets) == 1 else ""
        do = "does" if len(sources) == 1 else "do"
        return f"{listed(sources, 3)} {do} not reach {listed(places, 3)}{on} ({seen})"

    def culprits(self, pairs: Sequence[Tuple[int, int]]) -> List[List[Tuple[int, int]]]:
        """The broken pairs, gathered by whom most of them have in common, the largest gathering first."""
        left = list(pairs)
        found = []
        while left:
            groups: Dict[Tuple[str, int, str], List[Tuple[int, int]]] = {}
            for i, j in left:
                why = self.why(i, j)
                groups.setdefault(("to", j, why), []).append((i, j))
                groups.setdefault(("from", i, why), []).append((i, j))
            largest = max(groups.values(), key=len)
            found.append(largest)
            taken = set(largest)
            left = [pair for pair in left if pair not in taken]
        return found

    def remedy(self, source: int, target: int) -> str:
        """What to change so that this link works, without a full stop."""
        candidate = self.candidates[target]
        return WHY.get(self.why(source, target), _ELSE)[2].format(
            source=self.names[self.owner[source]],
            target=self.names[self.owner[target]],
            address=candidate.address,
            interface=candidate.interface,
            mtu=self.path_mtu(source, target) or "what the path carries",
        )

    def _groups(self) -> Dict[str, List[int]]:
        by_subnet: Dict[str, List[int]] = {}
        for index, candidate in enumerate(self.candidates):
            if candidate.subnet:
                by_subnet.setdefault(candidate.subnet, []).append(index)
        found: Dict[str, List[int]] = {}
        for index, candidate in enumerate(self.candidates):
            same = by_subnet.get(candidate.subnet or "", [])
            if len({self.owner[i] for i in same}) > 1:
                found[str(candidate.subnet)] = same
            else:
                found.setdefault(f"{candidate.interface} (IPv{candidate.family})", []).append(index)
        return found

    def as_text(self) -> str:
        """The matrix for people: one grid a network, rows send, columns receive."""
        blocks = []
        seen = {""}
        for label, group in self.groups.items():
            left = max(len(self.names[self.owner[i]]) for i in group)
            middle = max(len(self.place(i)) for i in group)
            columns = [str(number) for number in range(1, len(group) + 1)]
            width = max(len(column) for column in columns)
            blank = " " * (width + 2 + left + 2 + middle)
            lines = [f"{label}", f"{blank}  to " + " ".join(column.rjust(width) for column in columns)]
            for column, i in zip(columns, group):
                cells = []
                for j in group:
                    why = self.why(i, j)
                    mark = "." if self.owner[i] == self.owner[j] else "+" if not why else WHY.get(why, _ELSE)[0]
                    if mark not in ".+":
                        seen.add(why)
                    cells.append(mark.rjust(width))
                name = self.names[self.owner[i]].ljust(left)
                lines.append(f"{column.rjust(width)}  {name}  {self.place(i).ljust(middle)}     " + " ".join(cells))
            blocks.append("\n".join(lines))
        legend = ["+ works", ". same node"]
        legend += [
            f"{mark} {text.format(source='the sender')}" for why, (mark, text, _fix) in WHY.items() if why in seen
        ]
        legend += [f"x {why}" for why in sorted(seen - set(WHY) - {""})]
        return "\n\n".join([*blocks, "; ".join(legend)])


def _is_exact(link: Mapping[str, Any]) -> bool:
    return bool(link.get("source_address") or link.get("source_interface"))


def listed(parts: Sequence[str], most: int) -> str:
    """`a, b and 3 more`"""
    more = len(parts) - most
    return ", ".join(parts[:most]) + (f" and {more} more" if more > 0 else "")


def members(mask: int) -> List[int]:
    """The positions of the bits that are set, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
