"""Tests that try: a stranger, another user, an inventory that means harm."""

from __future__ import annotations

import pytest

ROLES = ("-t", "hosts,ssh_trust")
NODES = ("node1", "node2", "node3", "node4")


@pytest.fixture(scope="module")
def hosts(lab):
    assert lab.playbook("provision", "-t", "hosts,ssh_trust,nccl_env").code == 0
    return lab.hosts()


HOSTILE = [
    "$(touch /tmp/pwned)",
    "x;touch /tmp/pwned",
    "x\ntouch /tmp/pwned",
    "a b",
    "'`touch /tmp/pwned`'",
    "-oProxyCommand=touch /tmp/pwned",
]


def unharmed(hosts):
    return not any(host.file("/tmp/pwned").exists for host in hosts.values())


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("variable", ["hosts_hostname", "torchfleet_address"])
def test_a_hostile_name_or_address_is_refused(lab, hosts, variable, name):
    before = {node: host.file("/etc/hosts").content_string for node, host in hosts.items()}
    inventory = lab.inventory_of(*NODES, node2={variable: name})
    done = lab.playbook("provision", *ROLES, inventory=inventory)
    assert done.code != 0
    assert {node: host.file("/etc/hosts").content_string for node, host in hosts.items()} == before
    assert unharmed(hosts)


def test_a_hostile_alias_or_user_is_refused(lab, hosts):
    for change in ({"hosts_aliases": [HOSTILE[0]]}, {"torchfleet_user": HOSTILE[1]}):
        done = lab.playbook("provision", *ROLES, inventory=lab.inventory_of(*NODES, node2=change))
        assert done.code != 0
    assert unharmed(hosts)


@pytest.mark.parametrize("dest", ["/data/$(touch /tmp/pwned)", "/data/'; touch /tmp/pwned; '", "/data/a b"])
def test_a_hostile_path_is_a_path(lab, hosts, tmp_path, dest):
    tree = tmp_path / "$(touch pwned) 'x'"
    tree.mkdir()
    (tree / "$(touch pwned);x").write_text("text\n", encoding="utf-8")
    done = lab.playbook("sync", sync_src=str(tree), sync_dest=dest)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert host.file(f"{dest}/$(touch pwned);x").content_string == "text\n"
        host.run_test("rm -rf /data")
    assert unharmed(hosts)


def test_a_path_of_two_lines_is_refused(lab, hosts, tmp_path):
    done = lab.playbook("sync", sync_src=str(tmp_path), sync_dest="/data/a\ntouch /tmp/pwned")
    assert done.code != 0
    assert unharmed(hosts)


def test_a_key_opens_from_its_own_node_only(lab, hosts):
    """node1's private key, carried to node2 by a thief, opens nothing there."""
    key = hosts["node1"].check_output("cat /root/.ssh/id_ed25519_torchfleet")
    hosts["node2"].run_test(f"umask 077; printf '%s\\n' '{key}' > /tmp/stolen")
    try:
        done = hosts["node2"].run(
            "ssh -n -F none -o BatchMode=yes -o IdentitiesOnly=yes -i /tmp/stolen root@node3 id 2>&1 || true"
        )
        assert "Permission denied" in done.stdout
        here = hosts["node1"].run(
            "ssh -n -F none -o BatchMode=yes -o IdentitiesOnly=yes -i /root/.ssh/id_ed25519_torchfleet root@node3 id 2>&1 || true"
        )
        assert "uid=0" in here.stdout
    finally:
        hosts["node2"].run_test("rm -f /tmp/stolen")


def test_a_user_cannot_make_root_write_elsewhere(lab, hosts, tmp_path):
    """The tree belongs to a user without rights, who lays a link where its releases are to be."""
    for host in hosts.values():
        host.run_test(
            "id eve >/dev/null 2>&1 || useradd -m eve; su eve -c 'mkdir -p ~/work && ln -sfn /etc ~/work/.set.releases'"
        )
    (tmp_path / "agent.py").write_text("owned\n", encoding="utf-8")
    done = lab.playbook("sync", sync_src=str(tmp_path), sync_dest="/home/eve/work/set", sync_user="eve")
    assert done.code != 0
    assert ".set.releases is not a folder of eve's" in " ".join(done.output.split())
    for host in hosts.values():
        assert not host.file("/etc/agent.py").exists


def test_another_user_can_neither_read_nor_stop_a_run(lab, hosts, tmp_path):
    host = hosts["node1"]
    host.run_test("id eve >/dev/null 2>&1 || useradd -m eve")
    (tmp_path / "job.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n", encoding="utf-8")
    job = {"launch_launcher": "python", "launch_packages": [], "torchfleet_python": "/usr/bin/python3"}
    secret = {"TOKEN": "s3cret-value"}
    job |= {"launch_script": str(tmp_path / "job.py"), "launch_secret_env": secret, "launch_run_id": "guarded"}
    started = lab.playbook("launch", "-vvv", cwd=tmp_path, launch_detach=True, **job)
    assert started.code == 0, started.output
    assert "s3cret" not in started.output
    assert not any(
        "s3cret" in path.read_text(encoding="utf-8") for path in tmp_path.glob("runs/**/*") if path.is_file()
    )
    try:
        pid = host.check_output("systemctl show -p MainPID --value torchfleet-guarded")
        assert pid != "0"
        for attempt in (
            "cat /var/lib/torchfleet/runs/guarded/plan.json",
            "ls /var/lib/torchfleet/runs/guarded/logs",
            f"cat /proc/{pid}/environ",
            f"kill {pid}",
            "systemctl --no-ask-password stop torchfleet-guarded",
            "cat /root/.ssh/id_ed25519_torchfleet",
        ):
            done = host.run(f"su eve -c '{attempt}' 2>&1; echo code $?")
            assert not done.stdout.strip().endswith("code 0"), attempt
        assert "s3cret" not in host.check_output("su eve -c 'ps auxwwe'")
        assert "s3cret" not in host.check_output("ps auxww")
        assert host.check_output("systemctl is-active torchfleet-guarded") == "active"
    finally:
        assert lab.playbook("stop", run_id="guarded").code == 0
    assert not host.check_output("pgrep -f '[j]ob.py' || true")
