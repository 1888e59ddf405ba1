# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice on networks that people had trouble with, as they reported them."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import (
    NetworkError,
    choose_network,
    gloo_socket_ifname,
    nccl_socket_ifname,
)

NETWORKS = Path(__file__).resolve().parents[4].parent / "shared" / "networks"
CASES = sorted(NETWORKS.glob("*.yaml"))

# Words of the reports -> kinds; what is not here is left to the name, as with poor facts.
KINDS = {"tunnel": "tunnel", "container": "", "cni": "veth", "usb/bmc": "usb", "IPoIB bond": "bond", "bond slave": ""}
NEGATIVE = re.compile(r"\bno\b|\bnot\b|only the BMC|link-local only|do not leave")
EVERYTHING = ("per-rail subnets", "public addresses", "Ethernet for TCP", "single node")


def interfaces_of(node: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    names = [interface["name"] for interface in node["interfaces"]]
    for interface in node["interfaces"]:
        fact = {"name": interface["name"], "state": interface["state"], "addresses": interface["addresses"]}
        if KINDS.get(interface.get("kind", "")):
            fact["kind"] = KINDS[interface["kind"]]
        if interface.get("kind") == "bond slave":
            fact["master"] = next(name for name in names if "bond" in name)
        found.append(fact)
    return found


def with_peer(nodes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Reports of one node speak of a peer: give it one that is alike, with other addresses where it is not local."""
    if len(nodes) > 1:
        return nodes
    twin = {"name": "peer", "interfaces": []}
    for interface in nodes[0]["interfaces"]:
        local = interface.get("kind") in ("container", "usb/bmc") or interface["name"] in ("docker0", "lo")
        shifted = []
        for text in interface["addresses"]:
            address, _slash, prefix = text.partition("/")
            shifted.append(text if local else f"{ipaddress.ip_address(address) + 100}/{prefix}")
        twin["interfaces"].append({**interface, "addresses": shifted})
    return [*nodes, twin]


def reaching_pairs(text: str, names: Set[str]) -> Set[Tuple[str, str]]:
    """(interface, peer's interface) that connect, read from the report's sentence."""
    if any(words in text for words in EVERYTHING):
        return {(a, b) for a in names for b in names if a == b or "public" in text}
    if "NCCL does not" in text:
        return set()
    pairs = set()
    for clause in re.split(r"[;,]", text.replace("others do not", "rest does not")):
        tokens = [token.split("@")[0] for token in re.findall(r"[\w.@-]+", clause)]
        named = [token for token in tokens if token in names]
        if not named or NEGATIVE.search(clause.replace("(observed)", "")):
            continue
        both = named if "<->" in clause else []
        pairs |= {(name, name) for name in named} if len(set(both)) != 2 else {tuple(both), tuple(reversed(both))}
    return pairs


def links_of(case: Dict[str, Any], nodes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    names = {interface["name"] for node in nodes for interface in node["interfaces"]}
    pairs = reaching_pairs(case["reachability"], names)
    links = []
    for source in nodes:
        for target in nodes:
            for here in source["interfaces"]:
                for there in target["interfaces"]:
                    if source is target:
                        continue
                    for text in there["addresses"]:
                        address = text.split("/")[0]
                        own = {a.split("/")[0] for i in source["interfaces"] for a in i["addresses"]}
                        ok = (here["name"], there["name"]) in pairs and address not in own
                        links.append(
                            {
                                "source": source["name"],
                                "source_interface": here["name"],
                                "target": target["name"],
                                "target_address": address,
                                "ok": ok,
                                "why": "" if ok else "own_address" if address in own else "timeout",
                            }
                        )
    return links


def gids(index: int, address: str) -> List[Dict[str, Any]]:
    """A RoCE table as macvlan pods have it: the address as v1 and, one entry later, as v2."""
    gid = f"::ffff:{address}"
    return [
        {"index": index - 2, "gid": "fe80::858:acff:fe14:101", "type": "RoCE v2"},
        {"index": index - 1, "gid": gid, "type": "IB/RoCE v1"},
        {"index": index, "gid": gid, "type": "RoCE v2"},
    ]


def facts_of(case: Dict[str, Any], node: Dict[str, Any]) -> Dict[str, Any]:
    facts = {"name": node["name"], "interfaces": interfaces_of(node)}
    if "gid_index" in case:
        index = case["gid_index"].get(node["name"], 3)
        address = node["interfaces"][0]["addresses"][0].split("/")[0]
        port = {"port": 1, "state": "4: ACTIVE", "link_layer": "Ethernet", "gids": gids(index, address)}
        facts["rdma"] = [{"name": "mlx5_4", "ports": [port]}]
    return facts


@pytest.mark.skipif(not CASES, reason="the reported networks lie beside the checkout, and are not there")
@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_reported_network(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    nodes = case["nodes"] if case["reachability"] == "single node" else with_peer(case["nodes"])
    facts = [facts_of(case, node) for node in nodes]
    links = links_of(case, nodes)
    right = case["correct_NCCL_SOCKET_IFNAME"]
    if any("none works" in str(answer) for answer in right.values()):
        with pytest.raises(NetworkError) as refused:
            choose_network(facts, links)
        assert all(name in refused.value.matrix for name in right)
        return

    choice = choose_network(facts, links)
    for name, answer in right.items():
        answer = case.get("GLOO_SOCKET_IFNAME", answer)
        mine = next(node for node in nodes if node["name"] == name)
        accepted = [
            i["name"] for i in mine["interfaces"] if re.search(rf"(?<![\w.]){re.escape(i['name'])}(?![\w.])", answer)
        ]
        taken = choice.node(name).interface
        assert taken in set(accepted) - {"lo"}
        assert nccl_socket_ifname(taken) not in case["wrong_choices"]
        assert gloo_socket_ifname(taken) not in set(case["wrong_choices"]) - {"bond0"}
    for name, index in case.get("gid_index", {}).items():
        assert (choice.transport, choice.node(name).gid_index) == ("roce", index)
