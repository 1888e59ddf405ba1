"""Role hosts: each node has its name, and every member's name means its address on the training network."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest


def test_every_node_bears_its_name_now_and_after_the_next_boot(hosts):
    for name, host in hosts.items():
        assert host.check_output("hostname") == name
        assert host.file("/etc/hostname").content_string.strip() == name


def test_every_name_resolves_everywhere_to_the_training_address(lab, hosts):
    wanted = {name: node["torchfleet_address"] for name, node in lab.nodes.items()}
    for host in hosts.values():
        for name, address in wanted.items():
            answers = {line.split()[0] for line in host.check_output(f"getent ahosts {name}").splitlines()}
            assert answers == {address}


def test_what_gloo_asks_for_is_no_loopback(lab, hosts):
    for name, host in hosts.items():
        asked = host.check_output("python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'")
        assert asked == lab.nodes[name]["torchfleet_address"]


def test_names_trust_and_rendering_take_twelve_remote_calls_a_node(lab):
    done = lab.playbook("provision", "-vvv", "-t", "hosts,ssh_trust,nccl_env,launch")
    assert done.code == 0, done.output
    made = Counter(re.findall(r"^<(\S+)> SSH: EXEC", done.output, re.MULTILINE))
    assert len(made) == len(lab.nodes)
    assert max(made.values()) <= 12, made


def test_localhost_stays(hosts):
    for host in hosts.values():
        assert "127.0.0.1\tlocalhost" in host.file("/etc/hosts").content_string


def test_own_lines_survive_and_a_loopback_trap_goes(lab, hosts):
    hosts["node2"].run_test("printf '10.99.0.7\\tnas # ours\\n127.0.1.1\\tnode2.example.org node2\\n' >> /etc/hosts")
    before = hosts["node2"].file("/etc/hosts").content_string
    done = lab.playbook("provision", "-t", "hosts")
    assert done.code == 0, done.output
    assert done.changed() == {"node1": 0, "node2": 1, "node3": 0}
    after = hosts["node2"].file("/etc/hosts").content_string
    assert after == before.replace("127.0.1.1\tnode2.example.org node2\n", "")


@pytest.mark.parametrize(
    ("limit", "variables", "words"),
    [
        ("node2", {"torchfleet_address": "10.250.250.250"}, "node2 is 10.250.250.250, which the node does not have"),
        ("node2", {"hosts_hostname": "node1"}, "used by more than one host"),
        ("node2", {"hosts_hostname": "no_underscores"}, "is not a valid host name"),
    ],
)
def test_bad_input_changes_nothing_and_names_the_culprit(lab, hosts, tmp_path, limit, variables, words):
    files = {name: host.file("/etc/hosts").content_string for name, host in hosts.items()}
    lines = "".join(f"        {key}: {value}\n" for key, value in variables.items())
    extra = tmp_path / "bad.yml"
    extra.write_text(f"train:\n  hosts:\n    {limit}:\n{lines}", encoding="utf-8")
    done = lab.playbook("provision", "-t", "hosts", "-i", str(extra))
    assert done.code != 0
    assert words in " ".join(done.output.split())
    assert all("changed=0" in line for line in done.output.splitlines() if line.startswith("node"))
    assert {name: host.file("/etc/hosts").content_string for name, host in hosts.items()} == files
    assert hosts["node2"].check_output("hostname") == "node2"


def reaches(host, other):
    return "in" in host.run(f"ssh -n -o BatchMode=yes -o ConnectTimeout=3 {other} echo in || true").stdout


def test_the_name_outlives_a_reboot(lab, hosts):
    lab.podman("restart", "--time", "2", f"{lab.prefix}-node3")
    lab.wait_up("node3")
    deadline = time.monotonic() + 120
    while not all(
        reaches(hosts[one], other) for one, other in (("node1", "node3"), ("node3", "node1"), ("node2", "node3"))
    ):
        assert time.monotonic() < deadline, "node3 did not come back to the training network"
        time.sleep(1)
    assert hosts["node3"].check_output("hostname") == "node3"
    assert hosts["node3"].check_output("getent hosts node1").split()[0] == lab.nodes["node1"]["torchfleet_address"]
