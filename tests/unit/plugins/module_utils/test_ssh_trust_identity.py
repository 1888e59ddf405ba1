"""A machine is known by the keys that its peers hold of it."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._ssh_trust import (
    Peer,
    Record,
    authorized_keys,
    fingerprint,
    known_hosts,
    records,
    strangers,
)


def peer(name, port=22, **changes):
    whole = Peer(
        name=name,
        aliases=(f"{name}.lan",),
        address=f"10.0.0.{name[-1]}",
        port=port,
        public_key=f"ssh-ed25519 AAAA{name} torchfleet:root@{name}",
        host_keys=(f"ssh-ed25519 HOST{name}", f"ssh-rsa RSA{name}"),
        addresses=(f"10.0.0.{name[-1]}",),
    )
    return dataclasses.replace(whole, **changes)


PEERS = [peer("node1"), peer("node2", port=2222), peer("node3")]


def held(peers):
    return records(authorized_keys(peers, True), known_hosts(peers))


@pytest.mark.parametrize("restrict", [True, False])
def test_records_read_what_was_written(restrict):
    assert records(authorized_keys(PEERS, restrict), known_hosts(PEERS)) == {
        one.name: Record(f"ssh-ed25519 AAAA{one.name}", one.host_keys) for one in PEERS
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"host_keys": ("ssh-rsa RSAnode3", "ecdsa-sha2-nistp256 NEW")}, None),
        ({"host_keys": ("ssh-ed25519 HOSTnode3",)}, None),
        ({"address": "10.0.9.9", "addresses": ("10.0.9.9",)}, None),
        ({"host_keys": ("ssh-ed25519 OTHER", "ssh-rsa RSAnode3")}, "ssh-ed25519 host key is"),
        ({"host_keys": ("ecdsa-sha2-nistp256 NEW",)}, "none of the host keys that are known"),
        ({"public_key": "ssh-ed25519 OTHER"}, "cluster key is"),
        ({"public_key": ""}, "cluster key is not there"),
    ],
)
def test_another_key_is_another_machine(change, words):
    now = [*PEERS[:2], peer("node3", **change)]
    found = strangers(now, {"node1": held(PEERS), "node2": held(PEERS), "node3": {}})
    if words is None:
        assert not found
    else:
        assert [stranger.name for stranger in found] == ["node3"]
        assert words in str(found[0])
        assert "node1, node2" in str(found[0])
        assert "ssh_trust_accept_new_identity=[node3]" in str(found[0])


def test_what_a_machine_says_of_itself_counts_for_nothing():
    now = [*PEERS[:2], peer("node3", public_key="ssh-ed25519 OTHER")]
    assert strangers(now, {"node1": held(PEERS), "node3": held(now)})
    assert not strangers(now, {"node1": {}, "node2": held(PEERS[:2]), "node3": held(PEERS)})


def test_fingerprints_are_those_of_ssh_keygen():
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIhuTtbh6tj1myZ/3R4wl41FYqBHp3Ud7gNQJsYKDf7e"
    assert fingerprint(key) == "SHA256:McLap5gV6TZnaO47H748gURCSlKC7uvJNlwd5lNtIuY"
