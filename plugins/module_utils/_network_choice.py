# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""From facts and the measured matrix to one interface per node, the transport, RDMA ports and GID index, with reasons.

What is asked for: every ordered pair of nodes connects at the chosen addresses. Of the choices that do, real interfaces
come before virtual ones and tunnels, then the one whose slowest link is fastest wins, then one network common to all.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._candidates import (
    BMC,
    TIER_NAMES,
    all_addresses,
    find_candidates,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import TRANSPORTS, Reason, normalise_address
from ansible_collections.torchfleet.cluster.plugins.module_utils._rdma_choice import choose_rdma
from ansible_collections.torchfleet.cluster.plugins.module_utils._reachability import Reachability, listed, members

# Speeds closer than this count as equal: a measurement is not more exact.
_SAME_SPEED = 1.25
# By how many such steps a mixture of networks must be faster than one network for all: more than twice.
_MIXTURE_GAIN = 3
# Steps of the search before it gives up. Real networks need one per node; only contrived matrices come near.
_SEARCH_STEPS = 20000


class NetworkError(ValueError):
    """No choice satisfies the matrix, or an override contradicts it.

    `problems` holds one sentence per culprit, the first one says what to change; `matrix` is the matrix as text.
    """

    def __init__(self, problems: Sequence[str], matrix: str = "") -> None:
        self.problems = tuple(problems)
        self.matrix = matrix
        super().__init__("\n".join(self.problems) + (f"\n\nWho reaches whom:\n{matrix}" if matrix else ""))


@dataclass(frozen=True)
class NodeNetwork:
    """What one node uses. `hcas` and `gid_index` are as in `Node`; `path_mtu` is the least towards any peer (bytes)."""

    name: str
    interface: str
    address: str
    hcas: Tuple[str, ...] = ()
    gid_index: Optional[int] = None
    path_mtu: Optional[int] = None


@dataclass(frozen=True)
class NetworkChoice:
    """The network of a cluster.

    `nodes` are in the order given; `slowest_mbps` is the slowest ordered pair's figure, measured where it was, else
    nominal (None: a single node); `warnings` are sentences on what works but should be better.
    """

    nodes: Tuple[NodeNetwork, ...]
    transport: str
    slowest_mbps: Optional[float]
    reasons: Tuple[Reason, ...]
    warnings: Tuple[str, ...] = ()

    def node(self, name: str) -> NodeNetwork:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


def nccl_socket_ifname(interface: str) -> str:
    """The value for NCCL_SOCKET_IFNAME: `=` asks for this name and not for all that begin with it."""
    return f"={interface}"


def gloo_socket_ifname(interface: str) -> str:
    """The value for GLOO_SOCKET_IFNAME: gloo matches whole names and knows neither `=` nor `^`."""
    return interface


def nccl_ib_hca(hcas: Sequence[str]) -> str:
    """The value for NCCL_IB_HCA, exact as well: a bare `mlx5_1` would take `mlx5_10` too."""
    return "=" + ",".join(hcas)


def nccl_socket_family(address: str) -> str:
    """The value for NCCL_SOCKET_FAMILY that makes NCCL use this address of an interface that has both families."""
    return "AF_INET6" if ":" in address else "AF_INET"


def choose_network(
    nodes: Sequence[Mapping[str, Any]],
    links: Iterable[Mapping[str, Any]],
    network: Any = None,
    transport: Optional[str] = None,
) -> NetworkChoice:
    """Choose the network.

    Each node has `name` and `interfaces`, and may have `rdma` (devices), `nccl_version`, and the user's own
    `interface` or `address`. `links` is the matrix. `network` is a CIDR, or several, that all addresses must be in;
    `transport` the user's `tcp`, `ib` or `roce`. Shapes: _candidates, _reachability and _rdma_choice.
    Raises NetworkError with the matrix.
    """
    if not nodes:
        raise NetworkError(["there are no nodes to choose a network for"])
    if transport == "auto":
        transport = None
    if transport and transport not in TRANSPORTS:
        raise NetworkError([f"torchfleet_transport is {transport!r}, wanted auto or one of {', '.join(TRANSPORTS)}"])
    names = [str(node["name"]) for node in nodes]
    looked_at = [find_candidates(node.get("interfaces") or ()) for node in nodes]
    matrix = Reachability(names, [candidates for candidates, _passed in looked_at], links)

    passed_over = [passed for _candidates, passed in looked_at]
    domains, marks, problems = _domains(nodes, matrix, passed_over, network)
    if problems:
        raise NetworkError(problems, matrix.as_text())
    chosen = _search(matrix, domains)
    if chosen is None:
        raise NetworkError(_refusal(matrix, domains, marks, passed_over), matrix.as_text())

    rdma, why_not = choose_rdma(
        names,
        [node.get("rdma") or () for node in nodes],
        matrix,
        chosen,
        [node.get("nccl_version") for node in nodes],
        transport,
    )
    if why_not:
        raise NetworkError(
            [f"torchfleet_transport is {transport}, but {why_not}: set it to auto or tcp"], matrix.as_text()
        )

    slowest, at = _slowest(matrix, chosen)
    reasons = []
    picked = []
    for node, index in enumerate(chosen):
        mtus = [matrix.path_mtu(index, other) for other in chosen if other != index]
        known = [mtu for mtu in mtus if mtu]
        candidate = matrix.candidates[index]
        picked.append(
            NodeNetwork(
                name=names[node],
                interface=candidate.interface,
                address=candidate.address,
                hcas=rdma.hcas[node],
                gid_index=rdma.gid_index[node],
                path_mtu=min(known) if known else None,
            )
        )
        because = _because(matrix, chosen, node, marks[node], at)
        others = _others(matrix, chosen, node, passed_over[node])
        reasons.append(Reason(f"{names[node]} interface", matrix.place(index), "; ".join([because, *others])))
    return NetworkChoice(
        nodes=tuple(picked),
        transport=rdma.transport,
        slowest_mbps=slowest,
        reasons=(*reasons, *rdma.reasons),
        warnings=tuple(_warnings(matrix, chosen)),
    )


# ---- what each node may use


def _networks(network: Any) -> List[Any]:
    texts = network if isinstance(network, (list, tuple)) else re.split(r"[,\s]+", str(network or ""))
    return [ipaddress.ip_network(str(text), strict=False) for text in texts if str(text)]


def network_problem(network: Any) -> str:
    """What is wrong with the user's networks, '' where nothing is."""
    try:
        _networks(network)
    except ValueError as error:
        return f"torchfleet_network is {network!r}, wanted a network such as 10.0.0.0/24 ({error})"
    return ""


def _within(address: str, networks: Sequence[Any]) -> bool:
    return any(ipaddress.ip_address(address) in network for network in networks)


def _domains(
    nodes: Sequence[Mapping[str, Any]], matrix: Reachability, passed_over: Sequence[Mapping[str, str]], network: Any
) -> Tuple[List[int], List[str], List[str]]:
    """Per node the mask of candidates that the user's settings leave, which setting that was, and what is wrong."""
    unreadable = network_problem(network)
    if unreadable:
        return [], [], [unreadable]
    networks = _networks(network)
    domains, marks, problems = [], [], []
    for position, node in enumerate(nodes):
        mine = members(matrix.mine[position])
        allowed, mark, problem = mine, "", ""
        wanted, address = node.get("interface"), node.get("address")
        if wanted:
            mark = f"torchfleet_interface of {node['name']} is {wanted}"
            allowed = [i for i in mine if matrix.candidates[i].interface == wanted]
            if not allowed:
                why = passed_over[position].get(str(wanted), "there is no such interface")
                problem = f"{mark}, which cannot be used ({why})"
        if address and not problem:
            mark = f"{mark} and {address}" if mark else f"torchfleet_address of {node['name']} is {address}"
            allowed = [i for i in allowed if matrix.candidates[i].address == normalise_address(address)]
            if not allowed:
                problem = f"{mark}, {_why_no_candidate(node, address, passed_over[position])}"
        if networks and not mark:
            mark = f"torchfleet_network is {', '.join(str(net) for net in networks)}"
            allowed = [i for i in mine if _within(matrix.candidates[i].address, networks)]
            if not allowed:
                seen = _unusable_in(node, networks, passed_over[position])
                problem = f"{mark}, but {node['name']} has no usable address in it{seen}"
        if not mine and not mark:
            seen = ", ".join(f"{name}: {why}" for name, why in passed_over[position].items()) or "no interfaces"
            problem = f"{node['name']} has no address that a peer could reach ({seen}): configure one of its interfaces"
        if problem and mine:
            problem += f"; set it to one of {listed([matrix.place(i) for i in mine], 6)}"
        if problem:
            problems.append(problem)
        domains.append(sum(1 << i for i in allowed))
        marks.append(mark)
    return domains, marks, problems


def _unusable_in(node: Mapping[str, Any], networks: Sequence[Any], passed_over: Mapping[str, str]) -> str:
    """Which interfaces with an address in the networks cannot be used, and why, in brackets."""
    seen = [
        f"{interface} {address}: {passed_over[interface]}"
        for address, interface in all_addresses(node.get("interfaces") or ()).items()
        if interface in passed_over and _within(address, networks)
    ]
    return f" ({', '.join(seen)})" if seen else ""


def _why_no_candidate(node: Mapping[str, Any], address: Any, passed_over: Mapping[str, str]) -> str:
    interfaces = node.get("interfaces") or ()
    on = all_addresses(interfaces).get(normalise_address(address) or "")
    if on is None:
        return "which the node does not have"
    if on in passed_over:
        return f"which is on {on} ({passed_over[on]})"
    return f"which is not the first address of {on}, the one that NCCL and gloo take"


# ---- the search


def _consistent(matrix: Reachability, domains: Sequence[int]) -> List[int]:
    """Take out, until nothing changes, every candidate that has no partner at some node."""
    domains = list(domains)
    changed = True
    while changed:
        changed = False
        for node, domain in enumerate(domains):
            for index in members(domain):
                both = matrix.both[index]
                if any(not both & other for position, other in enumerate(domains) if position != node):
                    domains[node] &= ~(1 << index)
                    changed = True
    return domains


def _assign(both: Sequence[int], domains: Sequence[int], rank: Sequence[Any]) -> Optional[List[int]]:
    """One candidate per node, all connected with one another; lower ranks first. None where there is none.

    Looks ahead one step and goes back at most _SEARCH_STEPS times, so that its cost stays polynomial.
    """
    steps = _SEARCH_STEPS
    chosen = [-1] * len(domains)

    def extend(open_nodes: List[int], left: List[int]) -> bool:
        nonlocal steps
        if not open_nodes:
            return True
        node = min(open_nodes, key=lambda position: (bin(left[position]).count("1"), position))
        rest = [position for position in open_nodes if position != node]
        for index in sorted(members(left[node]), key=lambda i: rank[i]):
            steps -= 1
            if steps < 0:
                return False
            narrowed = list(left)
            for position in rest:
                narrowed[position] &= both[index]
            if all(narrowed[position] for position in rest):
                chosen[node] = index
                if extend(rest, narrowed):
                    return True
        return False

    return chosen if extend(list(range(len(domains))), list(domains)) else None


def _step(mbps: float) -> int:
    return round(math.log(max(mbps, 0.001), _SAME_SPEED))


def _search(matrix: Reachability, domains: Sequence[int]) -> Optional[List[int]]:
    viable = _consistent(matrix, domains)
    if not all(viable):
        return None
    tiers = [candidate.tier for candidate in matrix.candidates]
    best_tier = [min(tiers[i] for i in members(mask)) for mask in viable]
    ranks = _ranks(matrix, viable)
    tried: List[List[int]] = []
    for limit in range(BMC + 1):
        allowed = [
            sum(1 << i for i in members(mask) if tiers[i] <= max(limit, best)) for mask, best in zip(viable, best_tier)
        ]
        if allowed in tried:
            continue
        tried.append(allowed)
        fastest = _fastest(matrix, allowed, ranks)
        if fastest is not None:
            return fastest[0]
    return None


def _fastest(matrix: Reachability, domains: Sequence[int], ranks: Sequence[Any]) -> Optional[Tuple[List[int], int]]:
    """The assignment whose slowest link is fastest, and that speed's step.

    One network for all nodes is taken before a mixture: many hosts answer for all of their addresses on any interface,
    so that a mixture connects, and says little about the wires.
    """
    mixed = _fastest_of(matrix, domains, ranks, matrix.both)
    if mixed is None:
        return None
    masks = [0] * len(matrix.candidates)
    for group in matrix.groups.values():
        mask = sum(1 << i for i in group)
        for i in group:
            masks[i] = mask
    common = _fastest_of(matrix, domains, ranks, [both & mask for both, mask in zip(matrix.both, masks)])
    return mixed if common is None or mixed[1] - common[1] > _MIXTURE_GAIN else common


def _fastest_of(
    matrix: Reachability, domains: Sequence[int], ranks: Sequence[Any], connected: Sequence[int]
) -> Optional[Tuple[List[int], int]]:
    """The same over the given connections, by halving over the speeds that occur."""

    def at_least(step: int) -> Optional[List[int]]:
        fast = sum(1 << i for i, speed in enumerate(matrix.speeds) if _step(speed) >= step)
        both = list(connected)
        for (i, j), mbps in matrix.measured.items():
            if _step(mbps) < step:
                both[i] &= ~(1 << j)
                both[j] &= ~(1 << i)
        return _assign(both, [domain & fast for domain in domains], ranks)

    nominal = {_step(matrix.speeds[i]) for mask in domains for i in members(mask)}
    steps = sorted(nominal | {_step(mbps) for mbps in matrix.measured.values()})
    low, high = 0, len(steps) - 1
    best = at_least(steps[0])
    while best is not None and low < high:
        middle = (low + high + 1) // 2
        found = at_least(steps[middle])
        if found is None:
            high = middle - 1
        else:
            best, low = found, middle
    return None if best is None else (best, steps[low])


def _natural(name: str) -> Tuple[Tuple[int, int, str], ...]:
    """eth2 before eth10, and enp1s0 before enP2p1s0, which is in another PCI domain."""
    parts = re.findall(r"\d+|\D+", name.lower())
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def _ranks(matrix: Reachability, domains: Sequence[int]) -> List[Any]:
    """A sort key for each candidate, the most wanted first: networks that all share, and of those the fast ones."""
    viable = {i for mask in domains for i in members(mask)}
    keys: Dict[int, Any] = {}
    for group in matrix.groups.values():
        alive = [i for i in group if i in viable] or group
        candidates = [matrix.candidates[i] for i in alive]
        key = (
            -len({matrix.owner[i] for i in alive}),
            -sum(_step(matrix.speeds[i]) for i in alive) / len(alive),
            any(candidate.link_local for candidate in candidates),
            candidates[0].family,
            min(candidate.indirectness for candidate in candidates),
            min(_natural(candidate.interface) for candidate in candidates),
            min(candidate.subnet or "" for candidate in candidates),
        )
        keys.update((i, key) for i in group)
    return [
        (candidate.tier, keys[i], -_step(matrix.speeds[i]), candidate.indirectness, _natural(candidate.interface))
        for i, candidate in enumerate(matrix.candidates)
    ]


# ---- what is said about it


def _link_speed(matrix: Reachability, i: int, j: int) -> Tuple[float, str]:
    measured = matrix.measured.get((i, j))
    if measured:
        return measured, "measured"
    ends = (matrix.candidates[i], matrix.candidates[j])
    known = all(end.speed_mbps for end in ends)
    return float(min(end.assumed_speed for end in ends)), "nominal" if known else "assumed"


def _slowest(matrix: Reachability, chosen: Sequence[int]) -> Tuple[Optional[float], str]:
    """The slowest ordered pair's Mb/s, and in words."""
    found = [(*_link_speed(matrix, i, j), i, j) for i in chosen for j in chosen if i != j]
    if not found:
        return None, "single node"
    mbps, how, i, j = min(found)
    pair = f"{matrix.names[matrix.owner[i]]} to {matrix.names[matrix.owner[j]]}"
    return mbps, f"slowest link {mbps:.0f} Mb/s ({how}, {pair})"


def _because(matrix: Reachability, chosen: Sequence[int], node: int, mark: str, slowest: str) -> str:
    alone = len(chosen) == 1
    because = "the only node" if alone else f"every other node reaches it and is reached from it; {slowest}"
    candidate = matrix.candidates[chosen[node]]
    if candidate.tier:
        because += f"; {TIER_NAMES[candidate.tier]}, for want of a better one"
    return f"set by the user: {mark}; checked: {because}" if mark else because


def _others(matrix: Reachability, chosen: Sequence[int], node: int, passed_over: Mapping[str, str]) -> List[str]:
    """Why each of the node's other interfaces was not taken; the longest lists cut."""
    mine = chosen[node]
    said: Dict[str, str] = {}
    for index in members(matrix.mine[node]):
        candidate = matrix.candidates[index]
        if candidate.interface == matrix.candidates[mine].interface or candidate.interface in said:
            continue
        said[candidate.interface] = _why_not(matrix, chosen, node, index)
    said.update((name, why) for name, why in passed_over.items() if why != "loopback")
    return [listed([f"not {name}: {why}" for name, why in said.items()], 6)] if said else []


def _why_not(matrix: Reachability, chosen: Sequence[int], node: int, index: int) -> str:
    """Whether the candidate could have been used with its like elsewhere, and if so what speaks against it."""
    taken, candidate = matrix.candidates[chosen[node]], matrix.candidates[index]
    like = next(group for group in matrix.groups.values() if index in group)
    peers = [i for i in like if matrix.owner[i] != node]
    for other in peers:
        if not matrix.ok(other, index):
            return matrix.complaint([(other, index)])
        if not matrix.ok(index, other):
            return matrix.complaint([(index, other)])
    present = {node} | {matrix.owner[i] for i in peers}
    missing = [name for at, name in enumerate(matrix.names) if at not in present]
    if missing:
        return f"not a network of {listed(missing, 3)}"
    if candidate.tier > taken.tier:
        return TIER_NAMES[candidate.tier]
    slowest = min(matrix.speeds[i] for i in like)
    if _step(slowest) < _step(min(matrix.speeds[i] for i in chosen)):
        return f"slower ({slowest:.0f} Mb/s)"
    return "no better"


def _warnings(matrix: Reachability, chosen: Sequence[int]) -> List[str]:
    warnings = []
    detours: Dict[Tuple[int, str], List[str]] = {}
    for i in chosen:
        elsewhere = {
            matrix.candidates[k].address
            for k in members(matrix.mine[matrix.owner[i]])
            if matrix.candidates[k].interface != matrix.candidates[i].interface
        }
        for j in chosen:
            via = matrix.via(i, j)
            if via in elsewhere:
                detours.setdefault((i, str(via)), []).append(matrix.names[matrix.owner[j]])
    for (i, via), peers in detours.items():
        name = matrix.names[matrix.owner[i]]
        warnings.append(
            f"{name} sends from {via} to {listed(peers, 3)}, not from {matrix.place(i)}: "
            "put the two interfaces into different subnets, or prefer this one in the routes"
        )
    mtus = {mtu for i in chosen for j in chosen if i != j for mtu in [matrix.path_mtu(i, j)] if mtu}
    if len(mtus) > 1:
        warnings.append(
            f"path MTUs differ between the nodes, from {min(mtus)} to {max(mtus)} bytes: set one MTU on all"
        )
    chosen_tiers = {matrix.candidates[i].tier for i in chosen} - {0}
    warnings += [f"some traffic goes over {TIER_NAMES[tier]}: expect it to be slow" for tier in sorted(chosen_tiers)]
    return warnings


def _refusal(
    matrix: Reachability, domains: Sequence[int], marks: Sequence[str], passed_over: Sequence[Mapping[str, str]]
) -> List[str]:
    """What to change, first; then what stands in the way on the network that comes nearest."""
    allowed = {i for mask in domains for i in members(mask)}
    groups = [(label, [i for i in group if i in allowed]) for label, group in matrix.groups.items()]

    def merit(group: List[int]) -> Tuple[int, int, int]:
        connected = {(matrix.owner[i], matrix.owner[j]) for i in group for j in group if matrix.ok(i, j)}
        nodes = {matrix.owner[i] for i in group}
        return len(connected), len(nodes), -min(matrix.candidates[i].tier for i in group)

    label, group = max(((name, left) for name, left in groups if left), key=lambda item: merit(item[1]))
    broken = [(i, j) for i in group for j in group if matrix.owner[i] != matrix.owner[j] and not matrix.ok(i, j)]
    present = {matrix.owner[i] for i in group}
    missing = []
    for node, name in enumerate(matrix.names):
        if node not in present:
            unused = [f"{interface}: {why}" for interface, why in passed_over[node].items() if why != "loopback"]
            missing.append(f"{name} ({listed(unused, 4)})" if unused else name)

    nearest = f"no choice of interfaces connects every pair of nodes; {label} comes nearest"
    said = list(dict.fromkeys(mark for mark in marks if mark))
    otherwise = _search(matrix, matrix.mine) if said else None
    groups_of_pairs = matrix.culprits(broken)
    complaints = [matrix.complaint(pairs) for pairs in groups_of_pairs]
    if otherwise:
        places = [f"{name} {matrix.place(i)}" for name, i in zip(matrix.names, otherwise)]
        first = (
            f"{listed(said, 3)}: that does not connect every pair of nodes. "
            f"Remove the setting: without it, this would work: {listed(places, 4)}"
        )
    elif missing:
        first = f"{nearest}: give {listed(missing, 6)} an address on it, or a route to and from it"
    elif not merit(group)[0] and {matrix.why(i, j) for i, j in broken} <= {"timeout", "unreachable", "refused"}:
        first = (
            f"no node reaches another at any address, not on {label} either: let the firewalls accept TCP between "
            "the nodes on all ports, or mend the cables, VLANs or routes"
        )
    else:
        first = f"{nearest}, but {complaints.pop(0)}: {matrix.remedy(*groups_of_pairs[0][0])}"
    problems = [first, *complaints[:12]]
    if len(complaints) > 12:
        problems.append(f"and {len(complaints) - 12} more such findings, see the matrix")
    if said and not otherwise:
        problems.append(f"set by the user, and kept: {listed(said, 3)}")
    return problems
