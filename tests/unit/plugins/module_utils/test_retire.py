"""A member's lines go, and what is left is what the roles would have written without it."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import (
    _accelerate,
    _hostfile,
    _hosts_file,
    _managed_block,
    _retire,
    _ssh_config,
    _ssh_trust,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import build_cluster

NAMES = ["node1", "node2", "node21"]


def members(names):
    return [{"name": name, "address": f"10.0.0.{NAMES.index(name) + 1}", "aliases": [f"{name}.x"]} for name in names]


def peers(names, port=22):
    return [
        _ssh_trust.Peer(
            name=member["name"],
            aliases=tuple(member["aliases"]),
            address=member["address"],
            port=port,
            public_key=f"ssh-ed25519 AAAAkey{member['name']} torchfleet",
            host_keys=(f"ssh-ed25519 AAAAhost{member['name']}", f"ssh-rsa AAAArsa{member['name']}"),
            addresses=(member["address"],),
        )
        for member in members(names)
    ]


def rendered(form, names, port=22):
    if form == "hosts":
        body, first = _hosts_file.render_block(members(names)), True
    elif form == "authorized_keys":
        body, first = _ssh_trust.authorized_keys(peers(names), True), False
    elif form == "known_hosts":
        body, first = _ssh_trust.known_hosts(peers(names, port)), False
    else:
        hosts = [{**member, "ssh_port": port} for member in members(names)]
        body, first = _ssh_trust.client_config(_ssh_config.render(build_cluster(hosts), "~/.ssh/k")), True
    return _managed_block.replace("# mine\nmy own line\n", body, first=first)


@pytest.mark.parametrize(
    ("form", "port"),
    [("hosts", 22), *((form, port) for form in ("authorized_keys", "known_hosts", "config") for port in (22, 2222))],
)
@pytest.mark.parametrize("gone", NAMES)
def test_what_is_left_is_what_would_be_rendered_without_it(form, port, gone):
    left = [name for name in NAMES if name != gone]
    assert _retire.without_member(form, rendered(form, NAMES, port), gone) == rendered(form, left, port)


@pytest.mark.parametrize("form", ["hosts", "authorized_keys", "known_hosts", "config"])
def test_the_users_own_lines_stay(form):
    text = rendered(form, ["node1"]).replace(
        "my own line\n", "10.9.9.9 node1\nHost node1\nssh-rsa AAAA torchfleet:node1\n"
    )
    assert (
        _retire.without_member(form, text, "node1")
        == "# mine\n10.9.9.9 node1\nHost node1\nssh-rsa AAAA torchfleet:node1\n"
    )
    assert _retire.without_member(form, text, "node9") == text


@pytest.mark.parametrize("form", ["hosts", "authorized_keys", "known_hosts", "config"])
def test_all_of_ours_goes(form):
    assert _retire.without_block(rendered(form, NAMES)) == "# mine\nmy own line\n"


def cluster(names, slots=2):
    return build_cluster([{**member, "slots": slots} for member in members(names)])


@pytest.mark.parametrize("gone", NAMES)
def test_the_hostfile_is_the_one_of_those_that_are_left(gone):
    left = [name for name in NAMES if name != gone]
    text = _hostfile.render(cluster(NAMES))
    assert _retire.hostfile(text, gone) == _hostfile.render(cluster(left))
    assert _retire.hostfile(_retire.hostfile(text, gone), gone) == _hostfile.render(cluster(left))


PDSH = {"distributed_type": "DEEPSPEED", "deepspeed_launcher": "pdsh", "deepspeed_hostfile": "/etc/h", "zero_stage": 1}


@pytest.mark.parametrize("options", [{"distributed_type": "MULTI_CPU"}, PDSH], ids=["plain", "pdsh"])
@pytest.mark.parametrize("gone", NAMES)
def test_accelerate_is_told_of_those_that_are_left(gone, options):
    left = [name for name in NAMES if name != gone]
    chosen = _accelerate.options(options)
    master = members(left)[0]["address"]
    for name in left:
        wanted = _accelerate.render(cluster(left), cluster(left).node(name), chosen)
        text = _accelerate.render(cluster(NAMES), cluster(NAMES).node(name), chosen)
        assert _retire.accelerate(text, name, left, master) == wanted
        assert _retire.accelerate(wanted, name, left, master) == wanted


def test_a_configuration_that_is_not_ours_stays():
    assert (
        _retire.accelerate("num_machines: 3\nnum_processes: 6\n", "node2", ["node2"])
        == "num_machines: 3\nnum_processes: 6\n"
    )


def test_a_members_addresses_are_in_our_blocks():
    hosts, keys = rendered("hosts", NAMES), rendered("authorized_keys", NAMES)
    known = _retire.addresses(hosts, keys)
    assert known["node1"] == ["10.0.0.1"]
    assert _retire.of_it_alone(known, "node1") == {"10.0.0.1"}
    assert _retire.of_it_alone({"a": ["10.0.0.1", "192.0.2.1"], "b": ["192.0.2.1"]}, "a") == {"10.0.0.1"}
    assert _retire.of_it_alone(known, "node9") == set()
