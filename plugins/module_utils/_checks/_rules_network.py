# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Checks of names, ssh, the training network, RDMA and what steers NCCL."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._candidates import find_candidates
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import (
    Check,
    Cluster,
    Hit,
    get,
    listed,
    usual_value,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._reachability import Reachability

TRUST = "run ansible-playbook playbooks/provision.yml -t ssh_trust"
# What differs from node to node by its nature, and what changes nothing but words.
_OWN = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")
_WORDS = ("NCCL_DEBUG", "NCCL_TOPO", "NCCL_GRAPH")


def name_of(node: Mapping[str, Any]) -> str:
    return str(node["name"])


def unreachable(cluster: Cluster) -> Iterator[Hit]:
    for name, why in cluster.missing.items():
        yield Hit((name,), {"value": why})


def inventory(cluster: Cluster) -> Iterator[Hit]:
    """Each problem in the launch's own words. One that opens with a setting is of the cluster as a whole."""
    for problem in cluster.settings.get("inventory_problems") or ():
        variables = dict.fromkeys(re.findall(r"\b(?:torchfleet|hosts|ansible)_[a-z_]+", problem))
        words = () if problem.startswith("torchfleet_") else re.findall(r"[\w.-]*\w", problem)
        nodes = tuple(name for name in cluster.peers if name in words)
        yield Hit(nodes, {"value": problem, "variable": " or ".join(variables) or "it"})


def not_measured(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for what, why in (node.get("failed") or {}).items():
            yield Hit((name_of(node),), {"what": what, "value": " ".join(str(why).split())[:200]})


# ---- names


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def loopback_names(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for name, found in get(node, "system.names", {}).items():
            loopback = [address for address in found if is_loopback(str(address))]
            if loopback:
                yield Hit((name_of(node),), {"value": name, "address": loopback[0]})


def wrong_names(cluster: Cluster) -> Iterator[Hit]:
    addresses = cluster.addresses
    for node in cluster.nodes:
        for name, found in get(node, "system.names", {}).items():
            if name not in addresses or any(is_loopback(str(address)) for address in found):
                continue
            if not found:
                yield Hit((name_of(node),), {"value": name}, sentence="{nodes} {does} not resolve the name {value}")
            elif addresses[name] and addresses[name] not in found:
                yield Hit((name_of(node),), {"value": name, "address": found[0], "wanted": addresses[name]})


def host_names(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        hostname = get(node, "system.hostname")
        if hostname and hostname != node["name"]:
            yield Hit((name_of(node),), {"value": hostname})


# ---- ssh

_SSH_CAUSES = (
    (
        "host key",
        "has another host key than the one known: after a reinstallation of it "
        + TRUST
        + "; else find out who answers",
    ),
    ("permission denied", TRUST + ": its key is not among the authorized keys"),
    ("could not resolve", "run ansible-playbook playbooks/provision.yml -t hosts"),
    ("refused", "systemctl enable --now ssh on {value}, or set ansible_port to where its sshd listens"),
    ("timed out", "let {value}'s firewall accept ssh from {node}"),
    ("no ssh", "install openssh-client on {node}"),
)


def ssh_pairs(cluster: Cluster) -> Iterator[Hit]:
    """Every ordered pair. Peers that the controller does not reach either have their line already."""
    broken: Dict[Tuple[str, str], List[str]] = {}
    for node in cluster.nodes:
        for peer, answer in get(node, "system.ssh", {}).items():
            if not answer.get("ok") and peer not in cluster.missing:
                broken.setdefault((peer, str(answer.get("why"))), []).append(name_of(node))
    from_node: Dict[Tuple[Tuple[str, ...], str], List[str]] = {}
    for (peer, why), sources in broken.items():
        from_node.setdefault((tuple(sources), why), []).append(peer)
    for (nodes, why), peers in from_node.items():
        remedy = next((text for words, text in _SSH_CAUSES if words in why.lower()), TRUST)
        if "host key" in why.lower():
            remedy = f"{{value}} {remedy}"
        yield Hit(nodes, {"value": listed(peers), "why": why, "node": listed(nodes)}, remedy=remedy)


def noisy_shells(cluster: Cluster) -> Iterator[Hit]:
    for name in cluster.peers:
        noise = next(
            (
                str(answer["noise"])
                for node in cluster.nodes
                for peer, answer in get(node, "system.ssh", {}).items()
                if peer == name and answer.get("noise")
            ),
            "",
        )
        if noise:
            yield Hit((name,), {"value": noise.strip().splitlines()[0][:80]})


# ---- the training network


def matrix_of(cluster: Cluster) -> Reachability:
    return Reachability(
        [name_of(node) for node in cluster.nodes],
        [find_candidates(get(node, "nccl.interfaces", []))[0] for node in cluster.nodes],
        [link for node in cluster.nodes for link in get(node, "links", [])],
    )


def training_pairs(cluster: Cluster, matrix: Reachability) -> List[Tuple[int, int]]:
    """The ordered pairs of candidates that carry the nodes' training addresses."""
    addresses = cluster.addresses
    chosen = [
        i
        for i, candidate in enumerate(matrix.candidates)
        if candidate.address == addresses[matrix.names[matrix.owner[i]]]
    ]
    return [(i, j) for i in chosen for j in chosen if matrix.owner[i] != matrix.owner[j]]


def missing_address(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        own = {
            str(address.get("address"))
            for interface in get(node, "nccl.interfaces", [])
            if interface.get("state") == "up"
            for address in interface.get("addresses") or ()
        }
        if own and node.get("address") and node["address"] not in own:
            places = [
                f"{candidate.interface} {candidate.address}"
                for candidate in find_candidates(get(node, "nccl.interfaces", []))[0]
            ]
            yield Hit((name_of(node),), {"value": node["address"], "places": listed(places, 4) or "no other address"})


def reachability(cluster: Cluster) -> Iterator[Hit]:
    matrix = matrix_of(cluster)
    training = set(training_pairs(cluster, matrix))
    pairs = set(training)
    for group in matrix.groups.values():
        inner = [(i, j) for i in group for j in group if matrix.owner[i] != matrix.owner[j]]
        # A network on which nobody answers is a bridge that every node has for itself.
        if any(matrix.ok(i, j) for i, j in inner):
            pairs.update(inner)
    broken = sorted((i, j) for i, j in pairs if matrix.why(i, j) not in ("", "not_measured") and not matrix.ok(i, j))
    drops = {name_of(node): get(node, "system.firewall.drops", []) for node in cluster.nodes}
    for culprit in matrix.culprits(broken):
        i, j = culprit[0]
        target = matrix.names[matrix.owner[j]]
        rules = drops.get(target) or ()
        hint = f"; {target} has the rule `{rules[0]}`" if rules and matrix.why(i, j) in ("timeout", "refused") else ""
        sources = {matrix.owner[source] for source, _target in culprit}
        targets = {matrix.owner[target] for _source, target in culprit}
        owners = targets if len(targets) == 1 else sources
        yield Hit(
            tuple(matrix.names[owner] for owner in sorted(owners)),
            {"value": matrix.complaint(culprit), "advice": matrix.remedy(i, j) + hint},
            severity="" if training.intersection(culprit) else "warn",
        )


def network_choice(cluster: Cluster) -> Iterator[Hit]:
    problem = cluster.settings.get("network_problem")
    if problem:
        yield Hit((), {"value": str(problem).splitlines()[0]})


def path_mtu(cluster: Cluster) -> Iterator[Hit]:
    matrix = matrix_of(cluster)
    low: Dict[Tuple[int, int], List[str]] = {}
    mtus = {
        str(address.get("address")): interface.get("mtu")
        for node in cluster.nodes
        for interface in get(node, "nccl.interfaces", [])
        for address in interface.get("addresses") or ()
    }
    for i, j in training_pairs(cluster, matrix):
        found = matrix.path_mtu(i, j)
        set_to = [mtus.get(matrix.candidates[place].address) for place in (i, j)]
        known = [int(mtu) for mtu in set_to if mtu]
        if matrix.ok(i, j) and found and known and found < min(known):
            source, target = (matrix.names[matrix.owner[place]] for place in (i, j))
            low.setdefault((found, min(known)), []).append(f"{source} to {target}")
    for (found, wanted), pairs in low.items():
        ends = sorted({name for pair in pairs for name in pair.split(" to ")}, key=cluster.peers.index)
        yield Hit(tuple(ends), {"value": found, "wanted": wanted, "pairs": listed(pairs, 3)})


def slow_links(cluster: Cluster) -> Iterator[Hit]:
    """A node that sends or receives, or else a pair that carries, less than half of what is usual."""
    matrix = matrix_of(cluster)
    rates = {pair: matrix.measured[pair] for pair in training_pairs(cluster, matrix) if pair in matrix.measured}
    if not rates:
        return
    # By node and direction: 0 sends, 1 receives.
    best: Dict[Tuple[int, int], float] = {}
    for pair, rate in rates.items():
        for direction in (0, 1):
            key = (matrix.owner[pair[direction]], direction)
            best[key] = max(best.get(key, 0.0), rate)
    nodes = sorted({node for node, _direction in best})
    usual = _median([max(best.get((node, direction), 0.0) for direction in (0, 1)) for node in nodes])
    slow = {key for key, rate in best.items() if rate < usual / 2}
    for node, direction in sorted(slow):
        yield Hit(
            (matrix.names[node],),
            {
                "value": _rate(best[node, direction]),
                "usual": _rate(usual),
                "verb": ("sends", "receives")[direction],
            },
            sentence="{nodes} {verb} {value} at best with any peer, where {usual} are usual",
        )
    for (i, j), rate in rates.items():
        source, target = matrix.owner[i], matrix.owner[j]
        if rate < usual / 2 and not slow & {(source, 0), (target, 1)}:
            pair_name = f"{matrix.names[source]} to {matrix.names[target]}"
            yield Hit(
                (matrix.names[source], matrix.names[target]),
                {"value": _rate(rate), "usual": _rate(usual), "pair": pair_name},
                sentence="{pair} carries {value}, where {usual} are usual",
            )


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _rate(mbps: float) -> str:
    return f"{mbps / 1000:.1f} Gb/s" if mbps >= 1000 else f"{mbps:.0f} Mb/s"


def firewall_port(cluster: Cluster) -> Iterator[Hit]:
    port = str(cluster.settings.get("master_port") or "")
    for node in cluster.nodes:
        for rule in get(node, "system.firewall.drops", []):
            if node.get("head") and port and port in str(rule).replace("-", " ").replace(":", " ").split():
                yield Hit((name_of(node),), {"value": rule, "port": port})


# ---- NCCL's variables


def contradictions(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for name, settings in get(node, "nccl.contradictions", {}).items():
            places = [
                f"{setting['value']} by {setting['source']}{':' + str(setting['line']) if setting.get('line') else ''}"
                for setting in settings
            ]
            yield Hit((name_of(node),), {"name": name, "value": listed(places, 4)})


def variables_alike(cluster: Cluster) -> Iterator[Hit]:
    read = {name_of(node): get(node, "nccl.nccl_reads") for node in cluster.nodes}
    known = {node: values for node, values in read.items() if values is not None}
    names = sorted({name for values in known.values() for name in values})
    for name in names:
        if name in _OWN or name.startswith(_WORDS):
            continue
        values = {node: str(found.get(name, "not set")) for node, found in known.items()}
        usual = usual_value(values)
        for node, value in values.items():
            if value != usual:
                yield Hit((node,), {"name": name, "value": value, "usual": usual})


def interface_names(cluster: Cluster) -> Iterator[Hit]:
    """NCCL_SOCKET_IFNAME as NCCL reads it: a list of prefixes, of whole names after `=`, of exclusions after `^`."""
    for node in cluster.nodes:
        interfaces = get(node, "nccl.interfaces", [])
        wanted = str(get(node, "nccl.nccl_reads", {}).get("NCCL_SOCKET_IFNAME") or "")
        if not wanted or not interfaces or wanted.startswith("^"):
            continue
        exact, names = wanted.startswith("="), wanted.lstrip("=").split(",")
        taken = [
            interface
            for interface in interfaces
            if any(interface["name"] == name if exact else interface["name"].startswith(name) for name in names)
        ]
        values = {"value": wanted, "wanted": get(node, "network.interface", "the training network's")}
        if not taken:
            yield Hit(
                (name_of(node),),
                values,
                sentence="{nodes}: NCCL_SOCKET_IFNAME is {value}, and there is no such interface",
            )
        elif all(interface.get("kind") == "loopback" for interface in taken):
            yield Hit(
                (name_of(node),), values, sentence="{nodes}: NCCL_SOCKET_IFNAME is {value}, which no peer can reach"
            )
        elif get(node, "network.interface") and get(node, "network.interface") not in [i["name"] for i in taken]:
            yield Hit((name_of(node),), values, severity="warn")


def _net(
    id: str, title: str, reads: str, severity: str, sentence: str, remedy: str, source: str, where: str = ""
) -> Check:
    return Check(id, "network", title, reads, {"same": "whole"}, severity, sentence, remedy, source, where)


CHECKS = (
    Check(
        id="unreachable",
        area="nodes",
        title="every node answers",
        reads="system",
        rule=unreachable,
        severity="fail",
        sentence="{nodes} cannot be looked at: {value}",
        remedy="see that the machine runs and that Ansible logs in to it, or take it out of torchfleet_group",
        source="a run takes every node of the group",
    ),
    Check(
        id="inventory",
        area="nodes",
        title="inventory as a launch takes it",
        reads="settings",
        rule=inventory,
        severity="fail",
        sentence="{value}",
        remedy="correct {variable} in the inventory: launch.yml refuses it as it is",
        source="launch.yml builds the cluster from the same variables",
    ),
    Check(
        id="not-measured",
        area="nodes",
        title="everything was measured",
        reads="failed",
        rule=not_measured,
        severity="warn",
        sentence="{nodes}: {what} gave no facts: {value}",
        remedy="what depends on these facts was not checked on that node",
        source="",
    ),
    Check(
        id="name-loopback",
        area="names",
        title="names resolve to loopback",
        reads="system.names",
        rule=loopback_names,
        severity="fail",
        sentence="{nodes}: the name {value} resolves to {address}, which gloo and torch would tell the peers",
        remedy="run ansible-playbook playbooks/provision.yml -t hosts, which takes it off the loopback line",
        source="gloo and torch.distributed advertise the address that the host name resolves to",
    ),
    Check(
        id="name-resolves",
        area="names",
        title="members resolve",
        reads="system.names",
        rule=wrong_names,
        severity="warn",
        sentence="{nodes}: {value} resolves to {address}; its address on the training network is {wanted}",
        remedy="run ansible-playbook playbooks/provision.yml -t hosts",
        source="launchers that start over ssh take the members by name",
    ),
    Check(
        id="host-name",
        area="names",
        title="host name",
        reads="system.hostname",
        rule=host_names,
        severity="warn",
        sentence="{nodes} bears the host name {value}",
        remedy="run ansible-playbook playbooks/provision.yml -t hosts, or `hosts_hostname: {value}` for that host",
        source="names in logs and launchers are host names",
    ),
    Check(
        id="ssh",
        area="ssh",
        title="ssh in every ordered pair",
        reads="system.ssh",
        rule=ssh_pairs,
        severity="fail",
        sentence="{nodes} cannot log in to {value}: {why}",
        remedy=TRUST,
        source="launchers that start over ssh need every pair",
    ),
    Check(
        id="shell-noise",
        area="ssh",
        title="a shell that prints",
        reads="system.ssh",
        rule=noisy_shells,
        severity="fail",
        sentence="{nodes}: the shell of an ssh session prints by itself ({value}), which breaks rsync and launchers",
        remedy="move what prints in ~/.bashrc behind `case $- in *i*) ;; *) return;; esac`",
        source="rsync(1): is your shell clean?",
    ),
    Check(
        id="address",
        area="network",
        title="training address",
        reads="nccl.interfaces",
        rule=missing_address,
        severity="fail",
        sentence="{nodes} {does} not own {value}, its address on the training network",
        remedy="set torchfleet_address to one of {places}, or take the interface up",
        source="ranks listen on it",
    ),
    Check(
        id="reachability",
        area="network",
        title="every node reaches every node",
        reads="links",
        rule=reachability,
        severity="fail",
        sentence="{value}",
        remedy="{advice}",
        source="measured: TCP on ephemeral ports of every address, both ways, with full-size packets",
    ),
    Check(
        id="network-choice",
        area="network",
        title="one network for all",
        reads="links",
        rule=network_choice,
        severity="fail",
        sentence="no network connects all nodes: {value}",
        remedy="connect them, or set torchfleet_address for each node",
        source="measured",
    ),
    Check(
        id="path-mtu",
        area="network",
        title="path MTU",
        reads="links",
        rule=path_mtu,
        severity="warn",
        sentence="packets of {value} bytes at most go from {pairs}, where both interfaces are set to {wanted}",
        remedy="set the MTU of the interfaces to {value}, or raise it on switches and tunnels between them",
        source="measured",
    ),
    _net(
        "same-mtu",
        "MTU",
        "network.mtu",
        "warn",
        "{nodes}: the interface on the training network has MTU {value}, {others} {others_have} {usual}",
        "ip link set dev INTERFACE mtu {usual}, and in the network's configuration",
        "within one network all have to agree; larger packets are dropped without a word",
    ),
    _net(
        "same-speed",
        "link speed (Mb/s)",
        "network.speed_mbps",
        "warn",
        "{nodes}: the network card runs at {value} Mb/s, {others} {others_have} {usual}",
        "look at cable, port and switch: a damaged pair makes a card negotiate less",
        "the slowest link sets the pace of every all-reduce",
    ),
    Check(
        id="slow-link",
        area="network",
        title="bandwidth of each pair",
        reads="links",
        rule=slow_links,
        severity="warn",
        sentence="",
        remedy="look at cable, port, switch and shaping (tc qdisc) of that node",
        source="measured, with check_bandwidth_seconds above 0",
    ),
    Check(
        id="firewall-port",
        area="network",
        title="firewall on the master port",
        reads="system.firewall",
        rule=firewall_port,
        severity="warn",
        sentence="{nodes}: the firewall has a rule on the master port {port}: {value}",
        remedy="take the rule out, or set torchfleet_master_port to a port that is open",
        source="all nodes connect to that port of the head",
    ),
    _net(
        "same-rdma-ports",
        "active RDMA ports:",
        "rdma.active",
        "fail",
        "{nodes} {has} {value} active RDMA ports, {others} {others_have} {usual}",
        "look at ibstat and the cables, or set `torchfleet_transport: tcp`",
        "NCCL uses InfiniBand or RoCE only where every node has it",
    ),
    _net(
        "same-rdma-rates",
        "RDMA rates (Gb/s)",
        "rdma.rates",
        "warn",
        "{nodes}: the RDMA ports run at {value} Gb/s, {others} {others_have} {usual}",
        "look at cables and switch ports; ibstat shows the rate",
        "the slowest port sets the pace of every all-reduce",
        where="rdma.active",
    ),
    _net(
        "same-gid-types",
        "GID types",
        "rdma.gid_types",
        "fail",
        "{nodes}: the RDMA ports have GIDs of type {value}, {others} {others_have} {usual}",
        "give every port an IPv4 address, so that it has a RoCE v2 GID",
        "peers have to speak the same RoCE version",
        where="rdma.active",
    ),
    _net(
        "same-gid-index",
        "GID index",
        "rdma.gid_index",
        "info",
        "{nodes}: the index of the RoCE v2 GID is {value}, {others} {others_have} {usual}",
        "run ansible-playbook playbooks/provision.yml -t nccl_env, which writes each node's own",
        "NCCL_IB_GID_INDEX differs then",
        where="rdma.active",
    ),
    Check(
        id="nccl-contradiction",
        area="nccl",
        title="NCCL variables that contradict",
        reads="nccl.contradictions",
        rule=contradictions,
        severity="warn",
        sentence="{nodes}: {name} is set to {value}",
        remedy="keep one of them; your own belongs into the inventory: `nccl_env_extra: {{{name}: ...}}`",
        source="which file wins depends on how a rank is started",
    ),
    Check(
        id="same-nccl-variables",
        area="nccl",
        title="NCCL variables alike",
        reads="nccl.nccl_reads",
        rule=variables_alike,
        severity="fail",
        sentence="{nodes}: NCCL reads {name}={value}, on the other nodes {usual}",
        remedy="run ansible-playbook playbooks/provision.yml -t nccl_env; your own belongs into `nccl_env_extra`",
        source="NCCL user guide: variables that steer algorithm or transport have to be the same on all ranks",
    ),
    Check(
        id="nccl-interface",
        area="nccl",
        title="NCCL_SOCKET_IFNAME",
        reads="nccl.nccl_reads",
        rule=interface_names,
        severity="fail",
        sentence="{nodes}: NCCL_SOCKET_IFNAME is {value}; the training network is on {wanted}",
        remedy="run ansible-playbook playbooks/provision.yml -t nccl_env, and take other settings of it away",
        source="NCCL user guide, NCCL_SOCKET_IFNAME",
    ),
)
