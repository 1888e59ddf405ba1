"""Whatever cuts a provision off, running it again makes the cluster right, and the user's own lines survive."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

ROLES = ("-t", "hosts,ssh_trust,nccl_env")
NODES = ("node1", "node2", "node3", "node4")
KILLS = int(os.environ.get("TORCHFLEET_FAULT_ROUNDS", "20"))  # at points drawn by chance
CUTS = max(1, KILLS // 4)
OWN = {
    "/etc/hosts": "10.99.0.7\tnas # ours",
    "/root/.ssh/authorized_keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOwn own@laptop",
    "/root/.ssh/config": "Host bastion",
}


@pytest.fixture(scope="module")
def hosts(lab):
    hosts = lab.hosts()
    for host in hosts.values():
        for path, line in OWN.items():
            host.run_test(f"mkdir -p -m 700 /root/.ssh; grep -qxF '{line}' {path} || echo '{line}' >> {path}")
    return hosts


@pytest.fixture(autouse=True)
def right_afterwards(lab, hosts):
    yield
    done = lab.playbook("provision", *ROLES)
    assert done.code == 0, done.output
    again = lab.playbook("provision", *ROLES)
    assert set(again.changed().values()) == {0}, again.output
    for name, host in hosts.items():
        for path, line in OWN.items():
            assert host.file(path).content_string.splitlines().count(line) == 1, (name, path)
        assert not host.check_output("find /etc /root/.ssh -maxdepth 1 -name '.torchfleet-*'").strip()
        for other in NODES:
            assert host.check_output(f"ssh -n -o BatchMode=yes {other} hostname") == other


def forget(hosts, names=NODES):
    """So that the next provision has something to write."""
    for name in names:
        hosts[name].run_test(
            "sed -i '/BEGIN torchfleet/,/END torchfleet/d' /etc/hosts /root/.ssh/authorized_keys /root/.ssh/known_hosts /root/.ssh/config"
        )


def words(done):
    return " ".join(done.output.split())


def test_a_controller_that_is_killed_at_any_point(lab, hosts, tmp_path):
    for number in range(KILLS):
        forget(hosts)
        running = lab.start("provision", tmp_path / f"out{number}", *ROLES)
        time.sleep(random.uniform(1, 15))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        done = lab.playbook("provision", *ROLES)
        assert done.code == 0, done.output


def test_a_power_cut_while_files_are_written(lab, hosts, tmp_path):
    """node4 goes down while these two files are written again and again; each is the old one or the new one, whole."""
    container = f"{lab.prefix}-node4"
    paths = "/etc/hosts", "/root/.ssh/authorized_keys"
    wanted = {path: hosts["node4"].file(path).content_string for path in paths}
    for _number in range(CUTS):
        forget(hosts, ["node4"])
        without = {path: hosts["node4"].file(path).content_string for path in paths}
        running = lab.start("provision", tmp_path / "out", *ROLES, "--limit", "node4")
        time.sleep(random.uniform(4, 14))
        lab.podman("kill", container)
        running.wait(timeout=240)
        lab.start_node("node4")
        for path in paths:
            assert lab.podman("exec", container, "cat", path).strip() in (wanted[path].strip(), without[path].strip())


@pytest.mark.parametrize(
    ("broken", "mended", "said"),
    [
        ("mount -o bind,ro /root/.ssh /root/.ssh 2>/dev/null || (mount --bind /root/.ssh /root/.ssh && mount -o remount,bind,ro /root/.ssh)", "umount /root/.ssh", "Read-only file system"),
        ("cp -a /root/.ssh /tmp/ssh && mount -t tmpfs -o size=64k,mode=700 tmpfs /root/.ssh && cp -a /tmp/ssh/. /root/.ssh/ && (head -c 65536 /dev/zero > /root/.ssh/fill || true)", "umount /root/.ssh; rm -rf /tmp/ssh", "No space left on device"),
    ],
    ids=["read-only", "full"],
)  # fmt: skip
def test_a_disk_that_takes_nothing(lab, hosts, broken, mended, said):
    forget(hosts, ["node2"])
    before = hosts["node2"].file("/root/.ssh/authorized_keys").content_string
    lab.podman("exec", f"{lab.prefix}-node2", "sh", "-c", broken)
    try:
        done = lab.playbook("provision", *ROLES)
        assert done.code != 0
        assert said in words(done)
        assert "it is as it was" in words(done)
        assert hosts["node2"].file("/root/.ssh/authorized_keys").content_string == before
    finally:
        lab.podman("exec", f"{lab.prefix}-node2", "sh", "-c", mended)


def test_a_node_that_is_down_from_the_start_changes_nothing_elsewhere(lab, hosts):
    forget(hosts, ["node1"])
    before = hosts["node1"].file("/root/.ssh/authorized_keys").content_string
    lab.podman("stop", "--time", "1", f"{lab.prefix}-node3")
    try:
        done = lab.playbook("provision", *ROLES)
        assert done.code != 0
        assert "node3" in words(done)
        assert hosts["node1"].file("/root/.ssh/authorized_keys").content_string == before
    finally:
        lab.start_node("node3")


VENV = """
- name: Bring what makes virtual environments
  hosts: train
  gather_facts: false
  tasks:
    - name: Bring it
      ansible.builtin.include_role:
        name: torchfleet.cluster.system_packages
      vars:
        system_packages_names: [python3-venv]
        system_packages_fetch: each
"""
HOLD = """
import fcntl, time
held = [open(path, "w") for path in ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock")]
for one in held:
    fcntl.lockf(one, fcntl.LOCK_EX)
open("/tmp/locked", "w").close()
time.sleep(25)
"""


def test_a_locked_package_manager_is_waited_for(lab, hosts, tmp_path):
    """As unattended-upgrades holds it; the other nodes do not wait."""
    for name in ("node1", "node2"):
        hosts[name].run_test("dpkg --purge python3-venv >/dev/null 2>&1; rm -f /tmp/locked")
    hosts["node2"].run_test(
        f"cat > /tmp/hold.py <<'E'\n{HOLD}E\nsystemd-run -q --unit=hold python3 /tmp/hold.py; "
        "for n in $(seq 50); do test -e /tmp/locked && exit 0; sleep 0.2; done; exit 1"
    )
    done = lab.playbook(lab.written(tmp_path, VENV), "--limit", "node1,node2")
    assert done.code == 0, done.output
    assert hosts["node2"].check_output("systemctl is-active hold || true") != "active"
    for name in ("node1", "node2"):
        assert hosts[name].package("python3-venv").is_installed


def test_sudo_with_a_password(lab, hosts, tmp_path):
    """Ansible comes in as a user whose sudo asks; the password is wrong first."""
    key = (lab.folder / "id_ed25519.pub").read_text(encoding="utf-8").strip()
    for host in hosts.values():
        host.run_test(
            f"id ops >/dev/null 2>&1 || useradd -m -s /bin/bash ops; echo 'ops:s3cret word' | chpasswd; install -d -m 700 -o ops /home/ops/.ssh; "
            f"echo '{key}' > /home/ops/.ssh/authorized_keys2; chown ops: /home/ops/.ssh/authorized_keys2; echo 'ops ALL=(ALL) ALL' > /etc/sudoers.d/ops"
        )
    changes = {name: {"ansible_user": "ops", "torchfleet_user": "root"} for name in NODES}
    inventory = lab.inventory_of(*NODES, **changes)
    wrong = lab.playbook("provision", *ROLES, inventory=inventory, ansible_become_password="wrong")
    assert wrong.code != 0
    assert "s3cret" not in wrong.output
    done = lab.playbook("provision", *ROLES, inventory=inventory, ansible_become_password="s3cret word")
    assert done.code == 0, done.output
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("text\n", encoding="utf-8")
    settings = {"sync_src": str(tmp_path / "tree"), "sync_dest": "/data/sudo"}
    sent = lab.playbook("sync", inventory=inventory, ansible_become_password="s3cret word", **settings)
    assert sent.code == 0, sent.output
    assert all(host.file("/data/sudo/file").content_string == "text\n" for host in hosts.values())
    assert "s3cret" not in done.output + sent.output
