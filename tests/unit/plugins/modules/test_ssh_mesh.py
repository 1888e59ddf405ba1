# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ssh_identity and ssh_mesh for a user whose home is a temporary folder."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils._managed_block import BEGIN, END
from ansible_collections.torchfleet.cluster.plugins.modules import ssh_identity, ssh_mesh

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample"
PEERS = [
    {
        "name": f"n{number}",
        "aliases": [],
        "address": f"10.0.0.{number}",
        "port": 22,
        "public_key": f"{KEY}{number} torchfleet:root@n{number}",
        "host_keys": [f"{KEY}Host{number}"],
        "addresses": [f"10.0.0.{number}"],
    }
    for number in (1, 2)
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    account = pwd.struct_passwd(("trainer", "x", os.getuid(), os.getgid(), "", str(folder), "/bin/sh"))

    def getpwnam(name: str) -> pwd.struct_passwd:
        if name != "trainer":
            raise KeyError(name)
        return account

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    sshd = tmp_path / "sshd_config"
    sshd.write_text("UsePAM yes\n")
    monkeypatch.setattr(ssh_mesh, "SSHD_CONFIG", str(sshd))
    monkeypatch.setattr(ssh_mesh, "DROP_IN", str(tmp_path / "sshd_config.d" / "10-torchfleet.conf"))
    monkeypatch.setattr(ssh_mesh, "reload_sshd", lambda *_args: None)
    monkeypatch.setattr(ssh_identity, "host_keys", lambda _module: [f"{KEY}Host"])
    (tmp_path / "bin").mkdir()
    put_sshd(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return folder


def put_sshd(folder: Path, script: str) -> None:
    (folder / "bin" / "sshd").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "sshd").chmod(0o755)


@pytest.fixture
def call(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(module: Any, check: bool = False, **params: Any) -> Any:
        with patch_module_args({"user": "trainer", **params, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run


def mesh(call: Any, **more: Any) -> Any:
    return call(ssh_mesh, **{"peers": PEERS, "client_config": "Host n1\n    Port 22\n", **more})


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.skipif(not (shutil.which("ssh-keygen") and shutil.which("ip")), reason="needs ssh-keygen and ip")
def test_a_key_is_made_once_and_stays(call: Any, home: Path) -> None:
    looked = call(ssh_identity, check=True)
    assert (looked["changed"], looked["public_key"]) == (True, "")
    assert list(home.iterdir()) == []

    first = call(ssh_identity)
    private = home / ".ssh" / "id_ed25519_torchfleet"
    assert first["changed"] and first["public_key"].startswith("ssh-ed25519 AAAA")
    assert (mode(home / ".ssh"), mode(private)) == (0o700, 0o600)
    assert sorted(path.name for path in (home / ".ssh").iterdir()) == [private.name, f"{private.name}.pub"]
    secret = private.read_bytes()

    second = call(ssh_identity)
    assert (second["changed"], second["public_key"]) == (False, first["public_key"])

    private.with_suffix(".pub").unlink()  # cut off between the two files
    third = call(ssh_identity)
    assert third["changed"] and third["public_key"].split()[:2] == first["public_key"].split()[:2]
    assert private.read_bytes() == secret

    private.unlink()
    assert call(ssh_identity)["public_key"].split()[1] != first["public_key"].split()[1]
    assert "PRIVATE" not in json.dumps([first, second, third])


def test_a_user_that_is_not_there_is_named(call: Any) -> None:
    result = call(ssh_identity, user="nobody-here")
    assert result["failed"] and "'nobody-here'" in result["msg"] and "torchfleet_user" in result["msg"]


def test_the_mesh_is_written_once(call: Any, home: Path, tmp_path: Path) -> None:
    looked = mesh(call, check=True)
    assert looked["changed"] and len(looked["diff"]) == 4
    assert list(home.iterdir()) == []

    first = mesh(call)
    ssh = home / ".ssh"
    assert first["files"] == [
        *(str(ssh / name) for name in ("authorized_keys", "known_hosts", "config")),
        str(tmp_path / "sshd_config"),
    ]
    assert [mode(ssh / name) for name in ("", "authorized_keys", "known_hosts", "config")] == [
        0o700,
        0o600,
        0o644,
        0o600,
    ]
    assert f"{KEY}2 torchfleet:n2\n" in (ssh / "authorized_keys").read_text()
    assert f"n2,10.0.0.2 {KEY}Host2\n" in (ssh / "known_hosts").read_text()
    assert (tmp_path / "sshd_config").read_text().endswith(f"MaxStartups 200:30:400\n{END}\nUsePAM yes\n")

    second = mesh(call)
    assert (second["changed"], second["files"], second["members"]) == (False, [], ["n1", "n2"])


def test_a_retired_members_keys_go_and_the_users_own_stay(call: Any, home: Path) -> None:
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "authorized_keys").write_text("ssh-rsa AAAA mine")
    (ssh / "config").write_text("Host *\n    Port 2200\n")
    mesh(call)
    assert mesh(call, peers=PEERS[:1])["changed"]
    text = (ssh / "authorized_keys").read_text()
    assert text.startswith(f"ssh-rsa AAAA mine\n{BEGIN}\n") and f"{KEY}1 " in text and f"{KEY}2 " not in text
    assert f"{KEY}Host2" not in (ssh / "known_hosts").read_text()
    assert (ssh / "config").read_text().endswith(f"Match all\n{END}\nHost *\n    Port 2200\n")


def test_the_drop_in_is_used_where_sshd_reads_it(call: Any, tmp_path: Path) -> None:
    (tmp_path / "sshd_config").write_text("Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n")
    (tmp_path / "sshd_config.d").mkdir()
    mesh(call)
    assert "MaxStartups 200:30:400\n" in (tmp_path / "sshd_config.d" / "10-torchfleet.conf").read_text()
    assert "MaxStartups" not in (tmp_path / "sshd_config").read_text()


@pytest.mark.parametrize("drop_in", [True, False])
def test_what_sshd_refuses_is_taken_back(call: Any, tmp_path: Path, drop_in: bool) -> None:
    if drop_in:
        (tmp_path / "sshd_config").write_text("Include /etc/ssh/sshd_config.d/*.conf\n")
        (tmp_path / "sshd_config.d").mkdir()
    before = (tmp_path / "sshd_config").read_text()
    put_sshd(tmp_path, "echo 'line 7: Bad option' >&2; exit 255")
    result = mesh(call)
    assert result["failed"] and "line 7: Bad option" in result["msg"] and "is as it was" in result["msg"]
    assert (tmp_path / "sshd_config").read_text() == before
    assert not (tmp_path / "sshd_config.d" / "10-torchfleet.conf").exists()


@pytest.mark.parametrize(("wrong", "right"), [(0o777, 0o600), (0o664, 0o600), (0o600, 0o600), (0o644, 0o644)])
def test_a_file_that_others_could_write_is_put_right(call: Any, home: Path, wrong: int, right: int) -> None:
    mesh(call)
    (home / ".ssh" / "authorized_keys").chmod(wrong)
    assert mesh(call)["changed"] == (wrong != right)
    assert mode(home / ".ssh" / "authorized_keys") == right


def test_a_link_to_the_users_own_file_is_followed(call: Any, home: Path) -> None:
    (home / ".ssh").mkdir(mode=0o700)
    (home / "dotfiles").write_text("Host mine\n")
    (home / ".ssh" / "config").symlink_to("../dotfiles")
    mesh(call)
    assert (home / ".ssh" / "config").is_symlink()
    assert BEGIN in (home / "dotfiles").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns files of others")
@pytest.mark.parametrize("name", [".ssh", ".ssh/authorized_keys", ".ssh/known_hosts", ".ssh/config"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_file_of_somebody_else_is_not(
    call: Any, home: Path, tmp_path: Path, name: str, there: bool
) -> None:
    target = tmp_path / "root's"
    if there:
        target.mkdir() if name == ".ssh" else target.write_text("root's\n")
        os.chown(target, 1234, 1234)
    if name != ".ssh":
        (home / ".ssh").mkdir(mode=0o700)
    (home / name).symlink_to(target)
    result = mesh(call)
    assert result["failed"] and f"{home / name} is a link to {target}" in result["msg"]
    assert target.exists() == there
    assert not there or target.is_dir() or target.read_text() == "root's\n"


@pytest.mark.parametrize("check", [True, False])
def test_a_home_that_others_could_write_stops_before_the_first_change(call: Any, home: Path, check: bool) -> None:
    home.chmod(0o775)
    result = mesh(call, check=check)
    assert result["failed"] and "0775" in result["msg"] and "chmod go-w" in result["msg"]
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_startups": "10:300:5"}, "ssh_trust_max_startups"),
        ({"peers": [{**PEERS[0], "public_key": f'command="x" {KEY}'}]}, "is not a public key"),
        ({"peers": [{**PEERS[0], "host_keys": [f"{KEY}\n* {KEY}"]}]}, "is not a public key"),
    ],
)
def test_bad_values_stop_before_the_first_change(call: Any, home: Path, more: dict[str, Any], said: str) -> None:
    result = mesh(call, **more)
    assert result["failed"] and said in result["msg"]
    assert list(home.iterdir()) == []
