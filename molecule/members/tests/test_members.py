"""Machines that come and go: a newcomer, one that is retired, one that was reinstalled, one that moved."""

from __future__ import annotations

import json

import pytest

ROLES = ("-t", "hosts,ssh_trust,nccl_env,launch")
HOSTFILE = "/etc/torchfleet.hostfile"
ACCELERATE = "/etc/torchfleet/accelerate.yaml"
FILES = (
    "/etc/hosts",
    "/root/.ssh/authorized_keys",
    "/root/.ssh/known_hosts",
    "/root/.ssh/config",
    "/etc/nccl.conf",
    "/root/.deepspeed_env",
    HOSTFILE,
    ACCELERATE,
)
# What the others must know a newcomer by.
TELLING = {*FILES[:4], HOSTFILE, ACCELERATE}
# Without an installed accelerate, which would read what was written.
RENDER = """
- name: Write accelerate's configuration
  hosts: train
  gather_facts: false
  tasks:
    - name: Choose the network
      ansible.builtin.include_role:
        name: torchfleet.cluster.nccl_env
        tasks_from: choose
    - name: Write the configuration
      ansible.builtin.include_role:
        name: torchfleet.cluster.accelerate
        tasks_from: configure
      vars:
        torchfleet_python: /bin/true
"""
THREE = ("node1", "node2", "node3")


def texts(host):
    return {path: host.file(path).content_string for path in FILES if host.file(path).exists}


def logs_in(host, other):
    return host.run(f"ssh -n -o BatchMode=yes -o ConnectTimeout=5 {other} hostname || true").stdout.strip() == other


def words(done):
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def hosts(lab):
    return lab.hosts()


@pytest.fixture(scope="module")
def render(lab, tmp_path_factory):
    """Accelerate's configuration on the nodes of an inventory, or of --limit."""
    play = lab.written(tmp_path_factory.mktemp("render"), RENDER)

    def render(*options, **variables):
        done = lab.playbook(play, *options, **variables)
        assert done.code == 0, done.output
        return done

    return render


@pytest.fixture(scope="module", autouse=True)
def three(lab, hosts, render):
    """The module begins with a cluster of three; node4 has been retired."""
    assert lab.playbook("provision", *ROLES).code == 0
    render()
    done = lab.playbook("retire", node="node4")
    assert done.code == 0, done.output
    return lab.inventory_of(*THREE)


def test_a_retired_node_leaves_nothing_with_the_others(lab, hosts, three, render):
    for name in THREE:
        assert not any(
            "node4" in text or lab.nodes["node4"]["torchfleet_address"] in text for text in texts(hosts[name]).values()
        )
    assert not hosts["node4"].file("/root/.ssh/id_ed25519_torchfleet").exists
    assert not any(
        "torchfleet" in hosts["node4"].file(path).content_string for path in FILES if hosts["node4"].file(path).exists
    )
    assert not any(hosts["node4"].file(path).exists for path in (HOSTFILE, ACCELERATE))
    done = lab.playbook("provision", *ROLES, inventory=three)
    assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}
    assert set(render(inventory=three).changed().values()) == {0}


def test_a_newcomer_comes_in_with_limit(lab, hosts, render):
    before = {name: texts(hosts[name]) for name in THREE}
    done = lab.playbook("provision", *ROLES, "--limit", "node4")
    assert done.code == 0, done.output
    render("--limit", "node4")
    assert all(logs_in(hosts["node4"], other) and logs_in(hosts[other], "node4") for other in THREE)
    for name in THREE:
        after = texts(hosts[name])
        changed = {path for path in FILES if after[path] != before[name][path]}
        assert changed == TELLING
        assert "num_machines: 4\n" in after[ACCELERATE]
        assert after[HOSTFILE] == hosts["node4"].file(HOSTFILE).content_string
        assert set(before[name]["/etc/hosts"].splitlines()) < set(after["/etc/hosts"].splitlines())
    again = lab.playbook("provision", *ROLES)
    assert set(again.changed().values()) == {0}, again.output
    assert set(render().changed().values()) == {0}


def closed(lab, host):
    """A firewall of its own, which lets in nobody but the controller."""
    host.run_test("apt-get -qq update && apt-get -qq install -y --no-install-recommends nftables")
    host.run_test(f"cat > /etc/nftables.conf <<'E'\n{lab.closed_firewall()}E")
    host.run_test("systemctl enable nftables && systemctl restart nftables")


def opened(host):
    return host.check_output("nft list ruleset; cat /etc/torchfleet/firewall.nft 2>/dev/null || true")


def test_a_retired_node_is_let_in_no_longer(lab, hosts, three, render):
    tune = ("-t", "node_tuning")
    try:
        for name in ("node1", "node4"):
            closed(lab, hosts[name])
        assert lab.playbook("provision", *tune).code == 0
        ours = lab.nodes["node4"]["torchfleet_address"], lab.nodes["node4"]["ansible_host"]
        assert all(opened(hosts["node1"]).count(address) == 2 for address in ours)
        done = lab.playbook("retire", node="node4")
        assert done.code == 0, done.output
        assert not any(address in opened(hosts["node1"]) for address in ours)
        assert opened(hosts["node1"]).count(lab.nodes["node2"]["torchfleet_address"]) == 2
        assert "torchfleet" not in opened(hosts["node4"])
        assert "policy drop" in opened(hosts["node4"])
        again = lab.playbook("provision", *tune, inventory=three)
        assert set(again.changed().values()) == {0}, again.output
    finally:
        for name in ("node1", "node4"):
            hosts[name].run("systemctl disable --now nftables; nft flush ruleset; rm -f /etc/torchfleet/firewall.nft")
        assert lab.playbook("provision", *ROLES).code == 0
        render()


def test_retire_works_on_a_dead_node_that_is_gone_from_the_inventory(lab, hosts, three):
    container = f"{lab.prefix}-node4"
    lab.podman("stop", "--time", "1", container)
    try:
        done = lab.playbook("retire", inventory=three, node="node4")
        assert done.code == 0, done.output
        assert done.changed() == dict.fromkeys(THREE, 1)
        assert not any("node4" in text for name in THREE for text in texts(hosts[name]).values())
        still_there = lab.playbook("retire", node="node4")
        assert still_there.code == 0, still_there.output
        assert {still_there.changed()[name] for name in THREE} == {0}
    finally:
        lab.start_node("node4")
    # It comes back with its old key, which no longer opens anything, until it is taken in again.
    assert hosts["node4"].file("/root/.ssh/id_ed25519_torchfleet").exists
    assert not logs_in(hosts["node4"], "node1")
    assert lab.playbook("provision", *ROLES).code == 0
    assert logs_in(hosts["node4"], "node1")


@pytest.mark.parametrize("name", [None, "", "*", "all:!node1", "node 4", "a/b", ["node1"]])
def test_retire_takes_one_plain_name_only(lab, hosts, name):
    before = {node: texts(host) for node, host in hosts.items()}
    done = lab.playbook("retire", node=name)
    assert done.code != 0
    assert "add -e node=NAME" in words(done)
    assert {node: texts(host) for node, host in hosts.items()} == before


def test_retire_with_limit_says_why_not(lab):
    done = lab.playbook("retire", "--limit", "node1", node="node4")
    assert done.code != 0
    assert "run without --limit" in words(done)


def test_launch_with_limit_says_why_not(lab, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n", encoding="utf-8")
    done = lab.playbook("launch", "--limit", "node1", cwd=tmp_path, launch_script=str(script))
    assert done.code != 0
    assert "a run takes every node of the group, so run without --limit" in words(done)


def test_status_and_stop_with_limit(lab, tmp_path):
    (tmp_path / "job.py").write_text("import time\ntime.sleep(300)\n", encoding="utf-8")
    job = {"launch_launcher": "python", "launch_packages": [], "torchfleet_python": "/usr/bin/python3"}
    job |= {"launch_script": str(tmp_path / "job.py"), "launch_run_id": "limited", "launch_detach": True}
    started = lab.playbook("launch", cwd=tmp_path, **job)
    assert started.code == 0, started.output
    try:
        seen = lab.playbook("status", "--limit", "node1,node2")
        assert seen.code == 0
        assert "node3: not asked (--limit)" in seen.output
        assert "no answer" not in seen.output
        lines = lab.playbook("logs", "--limit", "node1", cwd=tmp_path, launch_logs_follow=False)
        assert lines.code == 0, lines.output
        for verb in ("stop", "logs"):
            refused = lab.playbook(verb, "--limit", "node1,node2", cwd=tmp_path)
            assert refused.code != 0
            assert "run limited is on node3, node4, too, which --limit leaves out" in words(refused)
        assert "running" in lab.playbook("status").output
    finally:
        stopped = lab.playbook("stop", run_id="limited")
    assert stopped.code == 0, stopped.output


def test_check_with_limit_is_about_those_that_were_asked(lab, tmp_path):
    done = lab.playbook("check", "--limit", "node1,node2", cwd=tmp_path, check_fail_on="never")
    assert done.code == 0, done.output
    assert "not asked (--limit): node3 and node4" in words(done)
    report = json.loads((tmp_path / "reports" / "check.json").read_text(encoding="utf-8"))
    assert [node["name"] for node in report["nodes"]] == ["node1", "node2"]
    assert not any({"node3", "node4"} & set(finding["nodes"]) for finding in report["findings"])
    assert "unreachable" not in {finding["check"] for finding in report["findings"]}


def test_bench_and_explain_with_limit_say_why_not(lab, tmp_path):
    bench = lab.playbook("bench", "--limit", "node1,node2", cwd=tmp_path)
    assert bench.code != 0
    assert "--limit leaves out node3, node4" in words(bench)
    explained = lab.playbook("explain", "--limit", "node1", cwd=tmp_path)
    assert explained.code != 0
    assert "nothing was explained: run without --limit, or add localhost to it" in words(explained)


def reinstall(lab, host):
    """As an installer leaves a machine: other host keys, no keys of users, none of our files."""
    host.run_test(
        "rm -rf /etc/ssh/ssh_host_* /root/.ssh/id_* /root/.ssh/authorized_keys /root/.ssh/known_hosts /root/.ssh/config; "
        "printf '127.0.0.1\\tlocalhost\\n127.0.1.1\\tdebian\\n' > /etc/hosts; echo debian > /etc/hostname; hostname debian; "
        "ssh-keygen -q -A; systemctl restart ssh"
    )
    # The user tells Ansible about the new host key; whether the cluster takes it is another matter.
    host_keys = lab.podman("exec", f"{lab.prefix}-node4", "sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub")
    address = lab.nodes["node4"]["ansible_host"]
    known = lab.folder / "known_hosts"
    kept = [
        line for line in known.read_text(encoding="utf-8").splitlines() if address not in line.split()[0].split(",")
    ]
    kept += [f"{address} {' '.join(line.split()[:2])}" for line in host_keys.splitlines()]
    known.write_text("\n".join(kept) + "\n", encoding="utf-8")


def test_a_reinstalled_machine_is_refused_until_the_word_is_given(lab, hosts):
    before = {name: texts(hosts[name]) for name in THREE}
    reinstall(lab, hosts["node4"])
    for limit in ((), ("--limit", "node4")):
        refused = lab.playbook("provision", *ROLES, *limit)
        assert refused.code != 0
        assert "node4 is not the machine that node1, node2, node3 know by this name" in words(refused)
        assert "ssh_trust_accept_new_identity" in words(refused)
        assert "SHA256:" in refused.output
        assert {name: texts(hosts[name]) for name in THREE} == before
        assert hosts["node4"].check_output("hostname") == "debian"
    other_word = lab.playbook("provision", *ROLES, ssh_trust_accept_new_identity=["node3"])
    assert other_word.code != 0
    accepted = lab.playbook("provision", *ROLES, "-e", "ssh_trust_accept_new_identity=[node4]")
    assert accepted.code == 0, accepted.output
    assert all(logs_in(hosts["node4"], other) and logs_in(hosts[other], "node4") for other in THREE)
    assert set(lab.playbook("provision", *ROLES).changed().values()) == {0}


def test_a_new_address_is_followed_everywhere(lab, hosts):
    old = lab.nodes["node4"]["torchfleet_address"]
    new = old.rpartition(".")[0] + ".77"
    hosts["node4"].run_test(f"ip address flush dev eth1 && ip address add {new}/24 dev eth1")
    try:
        moved = lab.inventory_of(*THREE, "node4", node4={"torchfleet_address": new})
        done = lab.playbook("provision", *ROLES, "--limit", "node4", inventory=moved)
        assert done.code == 0, done.output
        for name in THREE:
            assert hosts[name].check_output("getent hosts node4").split()[0] == new
            assert old not in "".join(texts(hosts[name]).values())
            assert logs_in(hosts[name], "node4")
            assert logs_in(hosts["node4"], name)
        assert set(lab.playbook("provision", *ROLES, inventory=moved).changed().values()) == {0}
    finally:
        hosts["node4"].run_test(f"ip address flush dev eth1 && ip address add {old}/24 dev eth1")
        assert lab.playbook("provision", *ROLES).code == 0
