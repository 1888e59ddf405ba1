# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe on real networks: two nodes in namespaces, joined by links that fail in the ways links do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import NetworkError, choose_network

COLLECTIONS = Path(__file__).resolve().parents[4] / "playbooks" / "collections"
PREFIX = f"tfnp-{os.getpid()}-"
PROBE = "probe-1"

# What a node runs: the module's own functions, with the parameters from stdin.
NODE = """
import json, sys
from ansible_collections.torchfleet.cluster.plugins.modules import network_probe as probe
given = json.load(sys.stdin)
if given["do"] == "listen":
    out = probe.listen(given["node"], given["probe_id"], given["interfaces"], given["lifetime"])
elif given["do"] == "stop":
    out = probe.stop(given["probe_id"], given["listener"], 2)
else:
    attempts, out = probe.plan(given["node"], given["listeners"])
    prober = probe.Prober(given["node"], given["probe_id"], 3.0)
    prober.run(attempts, 0.01)
    if given["bandwidth"]:
        prober.measure_bandwidth(0.1, 1 << 24)
    out = out + prober.links
print(json.dumps(out))
"""

# interface -> addresses of a, of b
WIRES = {
    "good": (["10.91.1.1/24", "fd91:1::1/64"], ["10.91.1.2/24", "fd91:1::2/64"]),
    "trap": (["10.91.2.1/24"], ["10.91.2.2/24"]),
    "oneway": (["10.91.3.1/24"], ["10.91.3.2/24"]),
    "far": (["10.91.4.1/24", "fd91:4::1/64"], ["10.91.5.1/24", "fd91:5::1/64"]),
    "docker0": (["172.17.0.1/16"], ["172.17.0.1/16"]),
}


def missing() -> str:
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if not shutil.which("ip") or not shutil.which("iptables"):
        return "needs ip and iptables"
    name = f"{PREFIX}try"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True)
    filters = ["ip", "netns", "exec", name, "iptables", "-A", "INPUT", "-p", "tcp", "-j", "DROP"]
    works = made.returncode == 0 and subprocess.run(filters, check=False, capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return "" if works else "this kernel gives no network namespaces with a packet filter"


MISSING = missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "none")


def sh(script: str) -> None:
    """Run lines such as `a: ip link …` in namespace a."""
    for text in script.strip().splitlines():
        where, _colon, command = text.strip().partition(": ")
        subprocess.run(["ip", "netns", "exec", PREFIX + where, *command.split()], check=True, capture_output=True)


def wire(left: str, left_name: str, right: str, right_name: str) -> None:
    veth = ["ip", "link", "add", left_name, "netns", PREFIX + left, "type", "veth"]
    subprocess.run([*veth, "peer", "name", right_name, "netns", PREFIX + right], check=True, capture_output=True)
    sh(f"{left}: ip link set {left_name} up\n{right}: ip link set {right_name} up")


def build() -> None:
    for name in "abrqx":
        subprocess.run(["ip", "netns", "add", PREFIX + name], check=True, capture_output=True)
        sh(f"{name}: ip link set lo up\n{name}: sysctl -qw net.ipv6.conf.default.accept_dad=0")
    wire("a", "good", "b", "good")
    wire("a", "oneway", "b", "oneway")
    # Both ends have a carrier and an address in the same subnet, and no cable leads from one to the other.
    wire("a", "trap", "x", "trap-a")
    wire("b", "trap", "x", "trap-b")
    # a -1500- r -1400- q -1500- b, where the routers' "packet too big" gets through over IPv6 only
    wire("a", "far", "r", "near")
    wire("r", "mid", "q", "mid")
    wire("q", "near", "b", "far")
    for name in "ab":
        sh(f"{name}: ip link add docker0 type bridge\n{name}: ip link set docker0 up")
    for interface, (of_a, of_b) in WIRES.items():
        for name, addresses in (("a", of_a), ("b", of_b)):
            for address in addresses:
                nodad = " nodad" if ":" in address else ""
                sh(f"{name}: ip addr add {address} dev {interface}{nodad}")
    for name in "rq":
        sh(
            f"""{name}: ip link set mid mtu 1400
            {name}: sysctl -qw net.ipv4.ip_forward=1
            {name}: sysctl -qw net.ipv6.conf.all.forwarding=1
            {name}: iptables -A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP"""
        )
    sh(
        """r: ip addr add 10.91.4.254/24 dev near
        r: ip addr add fd91:4::ff/64 dev near nodad
        r: ip addr add 10.91.9.1/30 dev mid
        r: ip addr add fd91:9::1/64 dev mid nodad
        q: ip addr add 10.91.9.2/30 dev mid
        q: ip addr add fd91:9::2/64 dev mid nodad
        q: ip addr add 10.91.5.254/24 dev near
        q: ip addr add fd91:5::ff/64 dev near nodad
        r: ip route add 10.91.5.0/24 via 10.91.9.2
        r: ip route add fd91:5::/64 via fd91:9::2
        q: ip route add 10.91.4.0/24 via 10.91.9.1
        q: ip route add fd91:4::/64 via fd91:9::1
        a: ip route add 10.91.5.0/24 via 10.91.4.254
        a: ip route add fd91:5::/64 via fd91:4::ff
        b: ip route add 10.91.4.0/24 via 10.91.5.254
        b: ip route add fd91:4::/64 via fd91:5::ff
        b: iptables -A INPUT -i oneway -p tcp --tcp-flags SYN,ACK SYN -j DROP"""
    )


def start(node: str, **given: Any) -> subprocess.Popen:
    process = subprocess.Popen(
        ["ip", "netns", "exec", PREFIX + node, sys.executable, "-c", NODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(COLLECTIONS), *filter(None, sys.path)])},
    )
    json.dump({"node": node, "probe_id": PROBE, **given}, process.stdin)
    process.stdin.close()
    return process


def result(process: subprocess.Popen) -> Any:
    text = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    return json.loads(text)


def interfaces(node: str) -> List[Dict[str, Any]]:
    side = "ab".index(node)
    facts = [{"name": name, "state": "up", "addresses": sides[side]} for name, sides in WIRES.items()]
    return [*facts, {"name": "lo", "state": "unknown", "addresses": ["127.0.0.1/8"]}]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int) -> bool:
    for _try in range(100):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def nodes() -> Iterator[None]:
    try:
        build()
        yield
    finally:
        for name in "abrqx":
            subprocess.run(["ip", "netns", "del", PREFIX + name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def listeners(nodes: None) -> Iterator[Dict[str, Any]]:
    started = {name: start(name, do="listen", interfaces=interfaces(name), lifetime=60) for name in "ab"}
    found = {name: result(process) for name, process in started.items()}
    yield found
    for name in "ab":
        assert result(start(name, do="stop", listener=found[name])) is True
        assert ends(found[name]["pid"])


@pytest.fixture(scope="module")
def links(listeners: Dict[str, Any]) -> List[Dict[str, Any]]:
    started = [start(name, do="probe", listeners=listeners, bandwidth=True) for name in "ab"]
    return [link for process in started for link in result(process)]


def between(links: List[Dict[str, Any]], source: str, target: str) -> Dict[str, Any]:
    return next(link for link in links if (link["source_address"], link["target_address"]) == (source, target))


@pytest.mark.parametrize("source, target", [("10.91.1.1", "10.91.1.2"), ("fd91:1::2", "fd91:1::1")])
def test_working_link_is_measured(links: List[Dict[str, Any]], source: str, target: str) -> None:
    found = between(links, source, target)
    assert (found["ok"], found["path_mtu"]) == (True, 1500)
    assert found["bandwidth_mbps"] > 0


def test_unconnected_networks_of_the_same_subnet(links: List[Dict[str, Any]]) -> None:
    for source, target in (("10.91.2.1", "10.91.2.2"), ("10.91.2.2", "10.91.2.1")):
        found = between(links, source, target)
        assert not found["ok"]
        assert found["why"] in ("timeout", "unreachable")


def test_one_way_firewall(links: List[Dict[str, Any]]) -> None:
    found = between(links, "10.91.3.1", "10.91.3.2")
    assert (found["ok"], found["why"]) == (False, "timeout")
    assert between(links, "10.91.3.2", "10.91.3.1")["ok"]


def test_black_hole_for_large_packets_is_found_and_sized(links: List[Dict[str, Any]]) -> None:
    for source, target in (("10.91.4.1", "10.91.5.1"), ("10.91.5.1", "10.91.4.1")):
        found = between(links, source, target)
        assert (found["ok"], found["why"], found["path_mtu"]) == (False, "mtu", 1400)


def test_smaller_path_mtu_that_is_announced_works(links: List[Dict[str, Any]]) -> None:
    found = between(links, "fd91:4::1", "fd91:5::1")
    assert (found["ok"], found["path_mtu"]) == (True, 1400)


def test_ones_own_copy_of_the_address_is_not_the_peer(links: List[Dict[str, Any]]) -> None:
    found = between(links, "10.91.1.1", "172.17.0.1")
    assert (found["ok"], found["why"]) == (False, "own_address")


def test_another_machine_at_the_address_is_a_stranger(listeners: Dict[str, Any]) -> None:
    """The address given for c is b's: what answers there is a listener of the same probe, but not c."""
    only = {"a": listeners["a"], "c": {**listeners["b"], "node": "c"}}
    found = between(result(start("a", do="probe", listeners=only, bandwidth=False)), "10.91.1.1", "10.91.1.2")
    assert (found["ok"], found["why"]) == (False, "stranger")


def test_choice_takes_the_one_network_that_works_both_ways(links: List[Dict[str, Any]]) -> None:
    nodes = [{"name": name, "interfaces": interfaces(name)} for name in "ab"]
    # Without the measured rates: on a busy machine they are its load's, and all of these wires are alike.
    alike = [{**link, "bandwidth_mbps": None} for link in links]
    choice = choose_network(nodes, alike)
    assert [(node.interface, node.address) for node in choice.nodes] == [("good", "10.91.1.1"), ("good", "10.91.1.2")]


def test_without_that_network_the_choice_is_refused_with_the_matrix(links: List[Dict[str, Any]]) -> None:
    facts = {name: [i for i in interfaces(name) if i["name"] in ("trap", "oneway", "docker0")] for name in "ab"}
    with pytest.raises(NetworkError) as refused:
        choose_network([{"name": name, "interfaces": facts[name]} for name in "ab"], links)
    assert "a does not reach b at 10.91.3.2 on oneway (no answer): let b's firewall accept TCP" in str(refused.value)
    assert "172.17.0.1" in refused.value.matrix


def test_listener_ends_by_itself(nodes: None) -> None:
    listener = result(start("a", do="listen", interfaces=interfaces("a"), lifetime=1))
    assert ends(listener["pid"])
    assert result(start("a", do="stop", listener=listener)) is False
