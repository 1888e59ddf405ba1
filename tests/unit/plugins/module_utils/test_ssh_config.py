# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _ssh_config
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, build_cluster


def cluster(**second: Any) -> Cluster:
    return build_cluster(
        [
            {"name": "n1", "address": "10.0.0.1", "ssh_user": "trainer"},
            {"name": "n2", "address": "fd00::2", "ssh_user": "trainer", "ssh_port": 2222, **second},
        ]
    )


def test_each_member_has_an_entry() -> None:
    text = _ssh_config.render(cluster(), "~/.ssh/id_train")
    assert text.split("\n\n")[1:] == [
        "Host n1 10.0.0.1\n"
        "    HostName 10.0.0.1\n"
        "    User trainer\n"
        "    Port 22\n"
        '    IdentityFile "~/.ssh/id_train"\n'
        "    IdentitiesOnly yes\n"
        "    StrictHostKeyChecking yes",
        "Host n2 fd00::2\n"
        "    HostName fd00::2\n"
        "    User trainer\n"
        "    Port 2222\n"
        '    IdentityFile "~/.ssh/id_train"\n'
        "    IdentitiesOnly yes\n"
        "    StrictHostKeyChecking yes\n",
    ]


def test_a_member_is_reached_by_each_of_its_names_once() -> None:
    assert "\nHost n2 left gpu-2 fd00::2\n" in _ssh_config.render(cluster(aliases=["left", "gpu-2", "n2"]))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh client")
@pytest.mark.parametrize("alias", ["n2", "fd00::2"])
@pytest.mark.parametrize("key", ["/keys/plain", "/keys/a b/100%h", "/keys/it's"])
def test_ssh_itself_reads_what_was_meant(tmp_path: Path, alias: str, key: str) -> None:
    config = tmp_path / "config"
    config.write_text(_ssh_config.render(cluster(), key))
    shown = subprocess.run(["ssh", "-G", "-F", str(config), alias], capture_output=True, text=True, check=True).stdout
    lines = shown.splitlines()
    assert "hostname fd00::2" in lines
    assert "user trainer" in lines
    assert "port 2222" in lines
    assert "stricthostkeychecking true" in lines
    assert "identitiesonly yes" in lines
    assert f"identityfile {key.replace('%', '%%')}" in lines  # ssh -G shows it before its tokens are expanded


def test_without_a_key_ssh_chooses() -> None:
    assert "Identit" not in _ssh_config.render(cluster())


@pytest.mark.parametrize("user", ["root", "svc_train", "first.last", "u-1", "ad+user", "host$", "a@example.org"])
def test_login_names_that_exist_in_the_wild(user: str) -> None:
    assert f"    User {user}\n" in _ssh_config.render(cluster(ssh_user=user))


@pytest.mark.parametrize(
    "user", ["two words", "a\n    ProxyCommand touch /x", 'q"uote', "-oProxyCommand=x", "%h", "$(id)"]
)
def test_a_user_that_is_none_is_refused(user: str) -> None:
    with pytest.raises(ClusterError, match=r"n2: the ssh user is .*: set torchfleet_user"):
        _ssh_config.render(cluster(ssh_user=user))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("id_train", "wanted an absolute path"),
        ("", "wanted an absolute path"),
        ('/keys/a"b', 'contains "'),
        ("/keys/${HOME}", "contains ${"),
        ("/keys/a\\b", "contains \\"),
        ("/keys/a\n    ProxyCommand touch /x", "contains a control character"),
    ],
)
def test_a_key_path_that_ssh_cannot_be_told_is_refused(path: str, said: str) -> None:
    with pytest.raises(ClusterError) as error:
        _ssh_config.render(cluster(), path)
    assert said in str(error.value)
