# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""From the measured pairs to the slow NIC, the slow router or the slow pair, and why it is slow.

A node that is slow towards all peers, while they are quick among themselves, has a slow NIC, cable or port. Where pairs
are quick inside each of two groups and slow across, what stands between the groups is slow, and no NIC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import (
    PROCESSOR_MBPS,
    TCP_SHARE,
    link_rate,
    median,
)

Pair = Tuple[str, str]

# A pair is slow below this share of what its NICs can carry, or, where they do not tell, of the quickest pair.
SLOW_OF_NOMINAL = 0.7
SLOW_OF_BEST = 0.5
# Where no NIC tells its rate, more than this is not asked of a link (Mb/s): a virtual one is as quick as the processor.
VIRTUAL_MBPS = 5000.0
# Rates at which ports and cables fall back, Mb/s.
STEPS = (10, 100, 1000, 2500, 5000, 10000, 25000, 40000, 50000, 100000, 200000)
# Round trips below this many seconds are no reason to complain.
LATENCY_FLOOR = 0.001


@dataclass(frozen=True)
class Nic:
    """What a node's interface on the training network says of itself. Rates are Mb/s, None where it does not tell.

    `speed` is what the port negotiated, `capable` the fastest that the NIC supports, `shaped` what tc allows it.
    """

    interface: str
    subnet: Optional[str] = None
    speed: Optional[float] = None
    capable: Optional[float] = None
    shaped: Optional[float] = None

    @property
    def nominal(self) -> Optional[float]:
        return max(self.speed or 0, self.capable or 0) or None


@dataclass(frozen=True)
class Finding:
    """One sentence about what is slow, with its cure. `nodes` are those it concerns."""

    check: str
    severity: str
    nodes: Tuple[str, ...]
    sentence: str
    remedy: str


def expected(pair: Pair, nics: Mapping[str, Nic], best: float) -> Tuple[float, bool]:
    """Mb/s that a pair should carry, and whether its NICs tell so."""
    rates = [nics[name].nominal for name in pair if name in nics]
    known = [rate for rate in rates if rate]
    if len(known) == 2:
        return min(min(known) * TCP_SHARE, PROCESSOR_MBPS), True
    return min([best, VIRTUAL_MBPS, *(rate * TCP_SHARE for rate in known)]), False


def slow_pairs(rates: Mapping[Pair, float], nics: Mapping[str, Nic]) -> Dict[Pair, float]:
    """The ordered pairs that carry too little, and what they should carry."""
    best = max(rates.values(), default=0.0)
    found = {}
    for pair, rate in rates.items():
        wanted, told = expected(pair, nics, best)
        if rate < wanted * (SLOW_OF_NOMINAL if told else SLOW_OF_BEST):
            found[pair] = wanted
    return found


def judge(rates: Mapping[Pair, float], nics: Mapping[str, Nic]) -> List[Finding]:
    """Whom the slow pairs have in common, the gravest first."""
    slow = slow_pairs(rates, nics)
    if len(_names(rates)) > 2 and len(slow) == len(rates) and max(rates.values()) < 1.5 * min(rates.values()):
        return [_everywhere(rates, slow, nics)]
    findings: List[Finding] = []
    left = set(slow)
    for one, other in _divided(left, rates, both=True):
        findings.append(_between(one, other, rates, slow, nics, "and"))
        left -= {pair for pair in left if _crosses(pair, one, other) or _crosses(pair, other, one)}
    for name, ways in _culprits(left, rates):
        findings.append(_node(name, ways, rates, slow, nics))
        left -= {pair for pair in left if name in pair}
    for one, other in _divided(left, rates, both=False):
        findings.append(_between(one, other, rates, slow, nics, "to"))
        left -= {pair for pair in left if _crosses(pair, one, other)}
    # Both directions of a pair are one matter.
    for pair in sorted(left):
        if (pair[1], pair[0]) in left and pair > (pair[1], pair[0]):
            continue
        findings.append(_pair(pair, (pair[1], pair[0]) in left, rates, slow, nics))
    return findings + _slower_nics(nics, {name for finding in findings for name in finding.nodes})


# ---- whom it concerns


def _crosses(pair: Pair, sources: FrozenSet[str], targets: FrozenSet[str]) -> bool:
    return pair[0] in sources and pair[1] in targets


def _names(rates: Mapping[Pair, float]) -> List[str]:
    return list(dict.fromkeys(name for pair in rates for name in pair))


def _divided(slow: Set[Pair], rates: Mapping[Pair, float], both: bool) -> List[Tuple[FrozenSet[str], FrozenSet[str]]]:
    """Two groups of two nodes or more, quick inside and slow across: in both directions, or from one to the other."""
    names = _names(rates)
    if both:
        groups: List[Set[str]] = []
        for name in names:
            near = {name} | {
                peer for peer in names if (name, peer) in rates and not {(name, peer), (peer, name)} <= slow
            }
            joined = [group for group in groups if group & near]
            groups = [group for group in groups if not group & near] + [near.union(*joined)]
        if len(groups) != 2:
            return []
        one, other = (frozenset(group) for group in groups)
    else:
        one, other = frozenset(pair[0] for pair in slow), frozenset(pair[1] for pair in slow)
        if one & other or any((a, b) in rates and (a, b) not in slow for a in one for b in other):
            return []
    return [(one, other)] if min(len(one), len(other)) >= 2 else []


def _culprits(slow: Set[Pair], rates: Mapping[Pair, float]) -> List[Tuple[str, Tuple[str, ...]]]:
    """Nodes all of whose pairs in a direction are slow, while others of these peers' pairs are not."""
    found: List[Tuple[str, Tuple[str, ...]]] = []
    left = set(slow)
    names = _names(rates)
    if len(names) < 3:
        return []
    while left:
        scores = {}
        for name in names:
            ways = []
            for way, place in (("sends", 0), ("receives", 1)):
                # Pairs of a node that is already named say nothing about another one.
                own = [p for p in rates if p[place] == name and not any(p[1 - place] == done for done, _w in found)]
                if own and all(pair in left for pair in own):
                    ways.append((way, len(own)))
            if ways:
                scores[name] = ways
        if not scores:
            break
        name = max(scores, key=lambda one: sum(count for _way, count in scores[one]))
        found.append((name, tuple(way for way, _count in scores[name])))
        left -= {pair for pair in left if name in pair}
    return found


# ---- why


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _reason(name: str, measured: float, wanted: float, nic: Nic) -> Tuple[str, str]:
    """Why a node is slow, as words behind a colon, and the cure."""
    interface = nic.interface
    shaped = nic.shaped
    if shaped and 0.7 * shaped <= measured <= 1.1 * shaped:
        return (
            f"a tc rule on {interface} limits it to {link_rate(shaped)}",
            f"on {name}: tc qdisc del dev {interface} root (and take the rule out of what sets it)",
        )
    if nic.speed and nic.nominal and nic.speed < nic.nominal and measured <= nic.speed:
        return (
            f"{name}'s port negotiated {link_rate(nic.speed)}",
            f"on {name}: change the cable or the switch port of {interface}, and let both ends negotiate "
            f"(ethtool -s {interface} autoneg on)",
        )
    step = next((step for step in STEPS if 0.85 * step <= measured <= step and step < 0.8 * wanted), None)
    if step:
        return (
            f"that is what a port of {link_rate(step)} carries",
            f"look for what runs at {link_rate(step)} on the way of {name}: the cable, the switch port, a virtual "
            f"machine's limit (ethtool {interface})",
        )
    return (
        f"something on its way is slow (wanted {link_rate(wanted)})",
        f"on {name}: ethtool {interface} (speed, duplex), ethtool -S {interface} (errors, drops), then cable and "
        "switch port",
    )


def _on_a_nic(nic: Nic) -> str:
    return f" on a {link_rate(nic.nominal)} NIC" if nic.nominal else ""


def _node(
    name: str, ways: Sequence[str], rates: Mapping[Pair, float], slow: Mapping[Pair, float], nics: Mapping[str, Nic]
) -> Finding:
    places = [0 if way == "sends" else 1 for way in ways]
    own = [pair for pair in slow if any(pair[place] == name for place in places)]
    measured, wanted = median([rates[pair] for pair in own]), min(slow[pair] for pair in own)
    rest = [rate for pair, rate in rates.items() if name not in pair]
    nic = nics.get(name, Nic("its interface"))
    because, remedy = _reason(name, measured, wanted, nic)
    beside = f", the others carry {link_rate(median(rest))}" if rest else ""
    return Finding(
        "slow-nic",
        "warn",
        (name,),
        f"{name} {' and '.join(ways)} {link_rate(measured)}{_on_a_nic(nic)}: {because}{beside}",
        remedy,
    )


def _everywhere(rates: Mapping[Pair, float], slow: Mapping[Pair, float], nics: Mapping[str, Nic]) -> Finding:
    """Nobody is quick, so nobody is the odd one."""
    measured = median(list(rates.values()))
    wanted = median(list(slow.values()))
    speeds = {nics[name].speed for name in _names(rates) if name in nics}
    least = min((speed for speed in speeds if speed), default=None)
    if least and least < wanted:
        why, remedy = f"their ports negotiated {link_rate(least)}", "change the switch, or let its ports negotiate"
    else:
        why = "what they share is slow"
        remedy = "look at the switch between them, at its ports' rates, and at limits of the machines' host"
    return Finding(
        "slow-network", "warn", (), f"all pairs carry {link_rate(measured)}, wanted {link_rate(wanted)}: {why}", remedy
    )


def _between(
    one: FrozenSet[str],
    other: FrozenSet[str],
    rates: Mapping[Pair, float],
    slow: Mapping[Pair, float],
    nics: Mapping[str, Nic],
    word: str,
) -> Finding:
    across = [pair for pair in slow if _crosses(pair, one, other) or (word == "and" and _crosses(pair, other, one))]
    inside = [rate for pair, rate in rates.items() if set(pair) <= one or set(pair) <= other]
    first, second = _listed(sorted(one)), _listed(sorted(other))
    subnets = [sorted({str(nics[name].subnet) for name in side if name in nics}) for side in (one, other)]
    routed = subnets[0] != subnets[1] and all(len(side) == 1 for side in subnets)
    what = f"the router between {subnets[0][0]} and {subnets[1][0]}" if routed else "the switch or uplink between them"
    lead = f"between {first} and {second}" if word == "and" else f"from {first} to {second}"
    quick = f", pairs on the same side carry {link_rate(median(inside))}" if inside else ""
    return Finding(
        "slow-router",
        "warn",
        (),
        f"{lead} go {link_rate(median([rates[pair] for pair in across]))}{quick}: {what} is the bottleneck, no NIC is",
        f"raise the rate of {what}, or train on one side alone",
    )


def _pair(
    pair: Pair, both: bool, rates: Mapping[Pair, float], slow: Mapping[Pair, float], nics: Mapping[str, Nic]
) -> Finding:
    one, other = pair
    measured, wanted = rates[pair], slow[pair]
    for name in pair:
        nic = nics.get(name)
        told = nic and ((nic.shaped and name == one) or (nic.speed and nic.nominal and nic.speed < nic.nominal))
        if nic and told:
            because, remedy = _reason(name, measured, wanted, nic)
            sentence = f"{one} sends {link_rate(measured)} to {other}{_on_a_nic(nic)}: {because}"
            return Finding("slow-nic", "warn", (name,), sentence, remedy)
    lead = f"{one} and {other} send each other" if both else f"{one} sends {other}"
    if len(_names(rates)) < 3:
        told_by = "with two nodes, which of them is slow cannot be told"
        remedy = f"ethtool on both ends, then the cable; add a third node to the measurement to tell {one} from {other}"
    else:
        told_by = "to and from their other peers both are quick"
        remedy = f"look at the route and the switches between {one} and {other}"
    return Finding(
        "slow-pair",
        "warn",
        pair,
        f"{lead} {link_rate(measured)} (wanted {link_rate(wanted)}): {told_by}",
        remedy,
    )


def _slower_nics(nics: Mapping[str, Nic], named: Set[str]) -> List[Finding]:
    """NICs that are what they are, and slower than the others': a ring waits for the slowest."""
    speeds = {name: nic.speed or nic.nominal for name, nic in nics.items()}
    known = {name: speed for name, speed in speeds.items() if speed}
    if len(known) < 2:
        return []
    usual = median(list(known.values()))
    return [
        Finding(
            "slower-nic",
            "info",
            (name,),
            f"{name} has a NIC of {link_rate(speed)}, the usual is {link_rate(usual)}: a ring runs at its pace",
            f"give {name} a quicker NIC, or leave it out of the group",
        )
        for name, speed in known.items()
        if speed < 0.8 * usual and name not in named
    ]


def judge_latency(latencies: Mapping[Pair, float]) -> List[Finding]:
    """Pairs whose quickest round trip is far above the usual. Seconds."""
    if len(latencies) < 3:
        return []
    # A single far node of four is in half of all pairs: the usual is what the quicker ones show.
    usual = sorted(latencies.values())[len(latencies) // 4]
    slow = {pair: seconds for pair, seconds in latencies.items() if seconds > max(LATENCY_FLOOR, 4 * usual)}
    left = set(slow)
    findings = []
    for name in sorted({name for pair in slow for name in pair}):
        own = {pair for pair in latencies if name in pair}
        if len(own) > 1 and own <= left:
            worst = median([latencies[pair] for pair in own])
            findings.append(
                Finding(
                    "slow-latency",
                    "warn",
                    (name,),
                    f"{name} answers after {1e3 * worst:.1f} ms, usual are {1e3 * usual:.2f} ms: it is far, or busy",
                    f"look at the way to {name} (tracepath) and at its load",
                )
            )
            left -= own
    findings += [
        Finding(
            "slow-latency",
            "warn",
            pair,
            f"from {pair[0]} to {pair[1]} and back takes {1e3 * slow[pair]:.1f} ms, usual are {1e3 * usual:.2f} ms",
            f"look at the route between {pair[0]} and {pair[1]} (tracepath)",
        )
        for pair in sorted(left)
    ]
    return findings
