"""Three Debian releases, with other users and ports than root and 22: names, trust, limits, firewalls, compilers, environments."""

from __future__ import annotations

import itertools

import pytest

NODES = {"eleven": "3.9", "twelve": "3.11", "thirteen": "3.13"}


def as_user(lab, host, name, command):
    user = lab.nodes[name]["ansible_user"]
    return host.check_output(f"runuser -u {user} -- {command}")


@pytest.mark.parametrize(("name", "python"), list(NODES.items()))
def test_the_nodes_are_of_three_releases(hosts, name, python):
    assert hosts[name].check_output("python3 -V").startswith(f"Python {python}.")


@pytest.mark.parametrize(("one", "other"), list(itertools.product(NODES, NODES)))
def test_every_ordered_pair_logs_in_as_its_own_user_on_its_own_port(lab, hosts, one, other):
    answer = as_user(
        lab, hosts[one], one, f"ssh -n -o BatchMode=yes {other} 'echo $(hostname) $(id -un) $SSH_CONNECTION'"
    )
    name, user, *connection = answer.split()
    assert (name, user) == (other, lab.nodes[other]["ansible_user"])
    assert connection[3] == str(lab.nodes[other]["ansible_port"])


def test_aliases_serve_too(lab, hosts):
    assert (
        as_user(lab, hosts["twelve"], "twelve", "ssh -n -o BatchMode=yes thirteen.lab.example hostname") == "thirteen"
    )


def test_host_keys_of_other_ports_are_pinned_in_their_own_form(lab, hosts):
    known = hosts["eleven"].file("/home/ml/.ssh/known_hosts").content_string
    assert (
        f"[twelve]:2222,[twelve.lab.example]:2222,[{lab.nodes['twelve']['torchfleet_address']}]:2222 ssh-ed25519 "
        in known
    )


def test_files_belong_to_the_user(hosts):
    for name in ("eleven", "twelve"):
        for path in ("authorized_keys", "known_hosts", "config", "id_ed25519_torchfleet"):
            assert hosts[name].file(f"/home/ml/.ssh/{path}").user == "ml"


def test_sshd_kept_its_port_and_took_the_limit(lab, hosts):
    for name, host in hosts.items():
        settings = host.check_output("/usr/sbin/sshd -T").splitlines()
        assert f"port {lab.nodes[name]['ansible_port']}" in settings
        assert "maxstartups 200:30:400" in settings


def test_a_link_is_shaped(hosts):
    assert "rate 200Mbit" in hosts["eleven"].check_output("/sbin/tc qdisc show dev eth1")


def test_limits_hold_in_ssh_sessions(lab, hosts):
    for one, other in itertools.permutations(NODES, 2):
        assert as_user(lab, hosts[one], one, f"ssh -n -o BatchMode=yes {other} ulimit -Hn") == "4096"
    for host in hosts.values():
        assert host.check_output("df --output=size -BM /dev/shm | tail -1").strip() == "96M"


def test_each_node_has_its_release_s_own_gcc(hosts):
    for (name, host), major in zip(hosts.items(), ("10", "12", "14")):
        compiler = host.check_output("sh -c '. /etc/torchfleet/build.env && $CXX -dumpversion'")
        assert compiler == major, name


def test_each_node_has_an_environment_of_its_own_python(hosts):
    for name, version in NODES.items():
        ask = "import numpy, six, sys; print(numpy.ones(3).sum(), six.__version__, sys.version.split()[0])"
        answer = hosts[name].check_output(f"/opt/torchfleet/venv/bin/python -c '{ask}'")
        assert answer.startswith(f"3.0 1.17.0 {version}.")


def test_nftables_of_each_release_opens_to_members(lab, hosts):

    def reached(name):
        """A closed port answers with a reset where the firewall lets one through; a dropped packet never does."""
        peer = hosts[{"eleven": "twelve", "twelve": "thirteen", "thirteen": "eleven"}[name]]
        return (
            "refused"
            in peer.run(f"timeout 3 bash -c '</dev/tcp/{lab.nodes[name]['torchfleet_address']}/29501' 2>&1").stdout
        )

    for host in hosts.values():
        host.check_output("sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends nftables'")
        host.check_output(f"cat > /etc/nftables.conf <<'E'\n{lab.closed_firewall('')}E")
        host.check_output("systemctl enable nftables && systemctl restart nftables")
    assert not any(map(reached, NODES))
    done = lab.playbook("provision", "-t", "node_tuning")
    assert done.code == 0, done.output
    assert all(map(reached, NODES))
    assert set(lab.playbook("provision", "-t", "node_tuning").changed().values()) == {0}
    for host in hosts.values():
        host.check_output("systemctl restart nftables")
    assert all(map(reached, NODES))
