"""Role ssh_trust: the training user of every member logs in to every member, with checking on."""

from __future__ import annotations

import itertools

import pytest

NODES = ["node1", "node2", "node3"]
SSH = ".ssh/id_ed25519_torchfleet"


@pytest.mark.parametrize(("one", "other"), list(itertools.product(NODES, NODES)))
def test_every_ordered_pair_logs_in(hosts, one, other):
    host = hosts[one]
    assert host.check_output(f"ssh -n -o BatchMode=yes {other} hostname") == other


def test_by_address_too(lab, hosts):
    address = lab.nodes["node3"]["torchfleet_address"]
    assert hosts["node1"].check_output(f"ssh -n -o BatchMode=yes {address} hostname") == "node3"


def test_modes_are_what_sshd_demands(hosts):
    for host in hosts.values():
        assert host.file("/root/.ssh").mode == 0o700
        assert host.file("/root/.ssh/authorized_keys").mode == 0o600
        assert host.file(f"/root/{SSH}").mode == 0o600


def test_strict_checking_stays_on(hosts):
    settings = hosts["node1"].check_output("ssh -G node2").lower().splitlines()
    assert "stricthostkeychecking true" in settings


def test_private_keys_never_leave_their_node(hosts):
    keys = {name: host.check_output(f"sha256sum /root/{SSH}").split()[0] for name, host in hosts.items()}
    assert len(set(keys.values())) == len(hosts)


def test_a_changed_host_key_is_refused(hosts):
    address = hosts["node1"].check_output("ssh -G node2 | awk '$1 == \"hostname\" {print $2}'")
    wrong = f"{address} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIhuTtbh6tj1myZ/3R4wl41FYqBHp3Ud7gNQJsYKDf7e"
    hosts["node1"].run_test(f"echo '{wrong}' > /tmp/known")
    # "|| true": testinfra takes ssh's own status 255 for a broken connection of its own.
    done = hosts["node1"].run("ssh -n -o BatchMode=yes -o UserKnownHostsFile=/tmp/known node2 echo in 2>&1 || true")
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stdout
    assert "Host key verification failed" in done.stdout


def test_a_key_is_no_good_from_elsewhere(lab, hosts):
    """node1's key, used from an address that is not node1's: here the controller's end of the bridge."""
    line = next(
        line
        for line in hosts["node2"].file("/root/.ssh/authorized_keys").content_string.splitlines()
        if "torchfleet:node1" in line
    )
    assert line.startswith('from="')
    assert lab.nodes["node2"]["torchfleet_address"] not in line.split('"')[1].split(",")


def test_own_entries_survive(lab, hosts):
    host = hosts["node1"]
    own_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOwn own@laptop"
    host.run_test(f"echo '{own_key}' >> /root/.ssh/authorized_keys")
    host.run_test("printf 'Host bastion\\n    Port 2200\\n' >> /root/.ssh/config")
    done = lab.playbook("provision", "-t", "ssh_trust")
    assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}
    assert own_key in host.file("/root/.ssh/authorized_keys").content_string
    assert "port 2200" in host.check_output("ssh -G bastion").splitlines()


def test_sshd_bears_a_mesh_of_64(hosts):
    for host in hosts.values():
        assert "maxstartups 200:30:400" in host.check_output("sshd -T").splitlines()


def test_a_damaged_file_is_repaired(lab, hosts):
    host = hosts["node3"]
    host.run_test("sed -i '/END torchfleet/,$d' /root/.ssh/authorized_keys; rm /root/.ssh/known_hosts")
    done = lab.playbook("provision", "-t", "ssh_trust")
    assert done.code == 0, done.output
    assert done.changed()["node3"] == 1
    assert host.check_output("ssh -n -o BatchMode=yes node1 hostname") == "node1"
    assert lab.playbook("provision", "-t", "ssh_trust").changed()["node3"] == 0
