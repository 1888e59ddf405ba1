"""Names and trust on three Debian releases, with other users and ports than root and 22."""

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
