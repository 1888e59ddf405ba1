"""Role node_tuning: limits that hold, and firewalls that are open to members and to nobody else."""

from __future__ import annotations

import contextlib
import socket

import pytest

RENDEZVOUS = 29500


def tune(lab, *options, **variables):
    done = lab.playbook("provision", "-t", "node_tuning", *options, **variables)
    assert done.code == 0, done.output
    return done


@pytest.fixture
def nftables(lab, hosts):
    host = hosts["node1"]
    host.run_test("apt-get -qq update && apt-get -qq install -y --no-install-recommends nftables netcat-openbsd")
    host.run_test(f"cat > /etc/nftables.conf <<'E'\n{lab.closed_firewall()}E")
    host.run_test("rm -rf /etc/systemd/system/nftables.service.d; systemctl daemon-reload")
    host.run_test("systemctl enable nftables && systemctl restart nftables")
    yield host
    host.run_test("systemctl stop nftables; nft flush ruleset; rm -rf /etc/systemd/system/nftables.service.d")


@pytest.fixture
def ufw(lab, hosts):
    host = hosts["node2"]
    host.run_test("apt-get -qq update && apt-get -qq install -y --no-install-recommends ufw netcat-openbsd")
    host.run_test(f"ufw allow from {lab.controller} to any port 22 proto tcp && ufw --force enable")
    yield host
    host.run_test("ufw --force disable; ufw --force reset")


def test_limits_hold_in_sessions_and_units(lab, hosts):
    wanted = "4096"
    tune(lab, node_tuning_nofile=wanted, node_tuning_memlock="1m")
    for host in hosts.values():
        host.run_test("useradd -m limited 2>/dev/null; true")
        for shell in ("runuser -l limited -c", "su - limited -c", "systemd-run -q --wait --pipe sh -c"):
            assert host.check_output(f"{shell} 'ulimit -Hn; ulimit -Hl'").split() == [wanted, "1024"]
    for one, other in (("node1", "node2"), ("node2", "node1")):
        session = hosts[one].check_output(f"ssh -n -o BatchMode=yes {other} 'ulimit -Hn; ulimit -Hl'")
        assert session.split() == [wanted, "1024"]
    assert set(tune(lab, node_tuning_nofile=wanted, node_tuning_memlock="1m").changed().values()) == {0}
    tune(lab)


def test_a_limit_that_is_not_granted_locks_nobody_out(lab, hosts):
    tune(lab, node_tuning_nofile="4096")
    done = tune(lab, node_tuning_nofile="99999999")
    assert "nofile 99999999 is not granted here" in done.output
    for host in hosts.values():
        assert int(host.check_output("runuser -l root -c 'ulimit -Hn'")) >= 1024
    tune(lab)


def test_shared_memory_and_ports(lab, hosts):
    options = {"node_tuning_shm_size": "96m", "node_tuning_ports": "50000-51000"}
    tune(lab, **options)
    for host in hosts.values():
        assert host.check_output("df --output=size -BM /dev/shm | tail -1").strip() == "96M"
        assert host.check_output("cat /proc/sys/net/ipv4/ip_local_port_range").split() == ["50000", "51000"]
        assert "size=96m" in host.file("/etc/fstab").content_string
    assert set(tune(lab, **options).changed().values()) == {0}
    for host in hosts.values():
        host.run_test("rm /etc/sysctl.d/90-torchfleet.conf; echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range")


def knock(host, address, port):
    return host.run(f"timeout 3 bash -c '</dev/tcp/{address}/{port}' 2>&1").stdout


def is_open(host, address, port):
    """A closed port answers with a reset where the firewall lets one through; a dropped packet never does."""
    return "refused" in knock(host, address, port)


def test_nftables_opens_to_members(lab, hosts, nftables):
    address, peer = lab.nodes["node1"]["torchfleet_address"], hosts["node2"]
    assert not is_open(peer, address, 29501)
    assert tune(lab).changed()["node1"] == 1
    assert is_open(peer, address, 29501)
    assert tune(lab).changed()["node1"] == 0
    for action in ("restart", "reload"):
        nftables.run_test(f"systemctl {action} nftables")
        assert nftables.check_output("nft list ruleset").count("torchfleet") == 1
    assert "policy drop" in nftables.check_output("nft list ruleset")


def test_a_newcomer_gets_in_with_limit(lab, hosts, nftables):
    address, peer = lab.nodes["node1"]["torchfleet_address"], hosts["node2"]
    assert not is_open(peer, address, 29501)
    tune(lab, "--limit", "node2")
    assert is_open(peer, address, 29501)


def test_a_moved_node_is_let_in_from_where_it_is_alone(lab, hosts, nftables):
    """With --limit, and what node1 has noted of node2, and lets in, is another address."""
    address, peer, now = (
        lab.nodes["node1"]["torchfleet_address"],
        hosts["node2"],
        lab.nodes["node2"]["torchfleet_address"],
    )
    former = now.rpartition(".")[0] + ".77"
    tune(lab, inventory=lab.inventory_of(*hosts, node2={"torchfleet_address": former}))
    opened = ("nft list ruleset", "cat /etc/torchfleet/firewall.nft")
    nftables.check_output(f"cp /etc/hosts /root/hosts && sed 's/^{now}\\b/{former}/' /root/hosts > /etc/hosts")
    try:
        for where in opened:
            assert former in nftables.check_output(where)
        tune(lab, "--limit", "node2")
        for where in opened:
            assert former not in nftables.check_output(where)
        assert is_open(peer, address, 29501)
    finally:
        nftables.check_output("cat /root/hosts > /etc/hosts")


def test_nftables_opens_the_wanted_ports_alone(lab, hosts, nftables):
    address, peer = lab.nodes["node1"]["torchfleet_address"], hosts["node2"]
    tune(lab, node_tuning_ports="50000-51000")
    assert is_open(peer, address, 50500)
    assert is_open(peer, address, 29500)
    assert not is_open(peer, address, 8080)
    assert tune(lab, node_tuning_ports="50000-51000").changed()["node1"] == 0
    nftables.run_test("rm /etc/sysctl.d/90-torchfleet.conf; echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range")


def test_ufw_opens_to_members(lab, hosts, ufw):
    address, peer = lab.nodes["node2"]["torchfleet_address"], hosts["node1"]
    assert not is_open(peer, address, 29501)
    assert tune(lab).changed()["node2"] == 1
    assert is_open(peer, address, 29501)
    assert tune(lab).changed()["node2"] == 0
    assert "Status: active" in ufw.check_output("ufw status")


@pytest.fixture
def firewalld(hosts):
    host = hosts["node2"]
    host.check_output(
        "apt-get -qq update && apt-get -qq install -y --no-install-recommends firewalld python3-nftables nftables"
    )
    host.check_output("systemctl restart firewalld && firewall-cmd --state")
    yield host
    host.check_output("systemctl disable --now firewalld && apt-get -qq purge -y firewalld && rm -rf /etc/firewalld")


def test_firewalld_opens_to_members(lab, hosts, firewalld):
    address, peer = lab.nodes["node2"]["torchfleet_address"], hosts["node1"]
    assert not is_open(peer, address, 29501)
    assert tune(lab).changed()["node2"] == 1
    assert is_open(peer, address, 29501)
    assert tune(lab).changed()["node2"] == 0
    assert "target: ACCEPT" in firewalld.check_output("firewall-cmd --permanent --zone=torchfleet --list-all")
    assert firewalld.check_output("firewall-cmd --state 2>&1") == "running"


@contextlib.contextmanager
def listening(host):
    """Something answers at the rendezvous port, on all addresses, as torchrun's store does."""
    host.check_output(f"systemd-run -q --unit=rendezvous python3 -m http.server -d /srv {RENDEZVOUS}")
    host.check_output(
        f"for try in $(seq 100); do (</dev/tcp/127.0.0.1/{RENDEZVOUS}) 2>/dev/null && exit; sleep 0.1; done; exit 1"
    )
    try:
        yield
    finally:
        host.check_output("systemctl stop rendezvous")


def stranger_gets_in(lab, name):
    """The controller is no member: it comes from the gateway's address."""
    try:
        socket.create_connection((lab.nodes[name]["ansible_host"], RENDEZVOUS), timeout=3).close()
    except OSError:
        return False
    return True


def test_without_a_firewall_the_port_is_open_to_whoever_reaches_it(lab, hosts):
    with listening(hosts["node1"]):
        tune(lab)
        assert stranger_gets_in(lab, "node1")


@pytest.mark.parametrize(("name", "firewall"), [("node1", "nftables"), ("node2", "ufw"), ("node2", "firewalld")])
def test_a_stranger_is_kept_out_and_a_member_gets_in(lab, hosts, request, name, firewall):
    host = request.getfixturevalue(firewall)
    peer = hosts["node2" if name == "node1" else "node1"]
    with listening(host):
        tune(lab)
        for address in (lab.nodes[name]["torchfleet_address"], lab.nodes[name]["ansible_host"]):
            peer.check_output(f"timeout 3 bash -c '</dev/tcp/{address}/{RENDEZVOUS}'")
        assert not stranger_gets_in(lab, name)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"node_tuning_nofile": "many"}, "node_tuning_nofile is 'many', wanted a number"),
        ({"node_tuning_ports": "50000"}, "node_tuning_ports is '50000', wanted for example 50000-51000"),
        (
            {"node_tuning_shm_size": "half"},
            "node_tuning_shm_size is 'half', wanted a number such as 64g or 'unlimited'",
        ),
    ],
)
def test_bad_input_changes_nothing(lab, variables, words):
    done = lab.playbook("provision", "-t", "node_tuning", **variables)
    assert done.code != 0
    assert words in " ".join(done.output.split())
    assert set(done.changed().values()) == {0}
