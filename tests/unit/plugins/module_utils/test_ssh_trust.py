# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._ssh_trust import (
    Peer,
    authorized_keys,
    clean_key,
    client_config,
    known_hosts,
    sshd_config,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHexampleexampleexampleexampleexampleexample"


def peer(number: int, **more: Any) -> Peer:
    fields: dict[str, Any] = {
        "name": f"n{number}",
        "aliases": (),
        "address": f"10.0.0.{number}",
        "port": 22,
        "public_key": f"{KEY}{number} root@n{number}",
        "host_keys": (f"ssh-rsa AAAAB3{number}", f"{KEY}/{number}="),
        "addresses": (f"10.0.0.{number}", f"192.0.2.{number}"),
    }
    return Peer(**{**fields, **more})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (KEY, KEY),
        (f"{KEY} torchfleet:root@n1", KEY),
        (f"  {KEY} a comment of many words\n", KEY),
        (f'{KEY} x" no-pty,command="reboot', KEY),
        (f"{KEY} x\rssh-rsa AAAA", KEY),
        ("ssh-rsa AAAA==", "ssh-rsa AAAA=="),
        ("ecdsa-sha2-nistp256 AAAA=", "ecdsa-sha2-nistp256 AAAA="),
        ("sk-ssh-ed25519@openssh.com AAAA", "sk-ssh-ed25519@openssh.com AAAA"),
    ],
)
def test_a_key_is_its_type_and_its_data_alone(text: str, key: str) -> None:
    assert clean_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "AAAAC3Nz",
        f'command="reboot" {KEY}',
        f'from="*" {KEY}',
        f"{KEY}\n{KEY}",
        f"{KEY} comment\n* {KEY}",
        f"@cert-authority * {KEY}",
        f"* {KEY}",
        "ssh-ed25519 AAAA,BBBB",
        "ssh-ed25519 AA AA\nx",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_is_more_or_less_than_a_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a public key"):
        clean_key(text)


def test_a_private_key_by_mistake_is_not_repeated_in_the_error() -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXktdjEAAAAA\n" * 5
    with pytest.raises(ValueError) as error:
        clean_key(secret)
    assert "b3BlbnNza" not in str(error.value)


def test_each_key_is_good_from_its_own_node_only() -> None:
    assert authorized_keys([peer(1), peer(2, addresses=("fd00::2", "10.0.0.2"))], True) == (
        f'from="10.0.0.1,127.0.0.1,192.0.2.1,::1" {KEY}1 torchfleet:n1\n'
        f'from="10.0.0.2,127.0.0.1,::1,fd00::2" {KEY}2 torchfleet:n2\n'
    )


def test_the_order_of_a_nodes_interfaces_does_not_matter() -> None:
    one = authorized_keys([peer(1, addresses=("10.0.0.1", "10.0.0.2"))], True)
    assert one == authorized_keys([peer(1, addresses=("10.0.0.2", "10.0.0.1"))], True)


@pytest.mark.parametrize("address", ["*", "10.0.*", "!10.0.0.1", '1" ', "n1", "10.0.0.0/0", "", "10.0.0.1,*", "::1\n"])
def test_a_node_cannot_widen_its_own_from_list(address: str) -> None:
    text = authorized_keys([peer(1, addresses=(address,))], True)
    assert text == f'from="127.0.0.1,::1" {KEY}1 torchfleet:n1\n'


def test_sources_may_be_left_open() -> None:
    assert authorized_keys([peer(1)], False) == f"{KEY}1 torchfleet:n1\n"


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        ({}, "n1,10.0.0.1"),
        ({"aliases": ("left", "n1")}, "n1,left,10.0.0.1"),
        ({"port": 2222}, "[n1]:2222,[10.0.0.1]:2222"),
        ({"address": "fd00::1"}, "n1,fd00::1"),
        ({"address": "fd00::1", "port": 2222, "aliases": ("left",)}, "[n1]:2222,[left]:2222,[fd00::1]:2222"),
    ],
)
def test_host_keys_stand_under_every_name(more: dict[str, Any], pattern: str) -> None:
    assert known_hosts([peer(1, **more)]) == f"{pattern} ssh-rsa AAAAB31\n{pattern} {KEY}/1=\n"


@pytest.mark.parametrize("field", ["public_key", "host_keys"])
def test_one_bad_key_stops_the_whole_file(field: str) -> None:
    bad = f"{KEY}\n* {KEY}"
    bad_peer = peer(2, **{field: bad if field == "public_key" else (bad,)})
    with pytest.raises(ValueError, match="is not a public key"):
        authorized_keys([peer(1), bad_peer], True) + known_hosts([peer(1), bad_peer])


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")
@pytest.mark.parametrize(
    ("port", "asked"), [(22, "n1"), (22, "fd00::1"), (2222, "[n1]:2222"), (2222, "[fd00::1]:2222")]
)
def test_ssh_keygen_finds_the_keys(tmp_path: Path, port: int, asked: str) -> None:
    pair = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(pair)], check=True)
    key = pair.with_suffix(".pub").read_text()
    path = tmp_path / "known_hosts"
    path.write_text(known_hosts([peer(1, address="fd00::1", port=port, host_keys=(key,))]))
    found = subprocess.run(["ssh-keygen", "-F", asked, "-f", str(path)], capture_output=True, text=True, check=False)
    assert clean_key(key) in found.stdout


def test_the_users_own_ssh_settings_keep_their_scope() -> None:
    assert client_config("Host n1\n    Port 22\n\n") == "Host n1\n    Port 22\nMatch all\n"


@pytest.mark.parametrize("value", ["10", "200:30:400", "1:1:1", "10:100:10", "400:30:400"])
def test_max_startups(value: str) -> None:
    assert sshd_config(value).endswith(f"\nMaxStartups {value}\n")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "many",
        "10:30",
        "10:30:",
        "200:30:100",
        "10:0:20",
        "10:101:20",
        "0:30:60",
        "-1:30:60",
        "10:30:60\n",
        "10\nPermitRootLogin yes",
        "10 30 60",
        "100000",
    ],
)
def test_max_startups_that_sshd_would_refuse(value: str) -> None:
    with pytest.raises(ValueError, match=r"ssh_trust_max_startups is .*, wanted start:rate:full"):
        sshd_config(value)
