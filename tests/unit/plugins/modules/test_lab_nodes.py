# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._lab import LabNode, plan_lab
from ansible_collections.torchfleet.cluster.plugins.modules.lab_nodes import setup_script, shape_script

KEY = "ssh-ed25519 AAAA it's a $(comment) \\n `x`"
PIP = "[global]\nindex-url = https://me:p'w$d@mirror.example/simple\nfind-links = /a b\\n%s\n"


def node(**more: Any) -> LabNode:
    networks = [{"name": "mgmt"}, {"name": "train", "rate": "100mbit"}]
    return plan_lab("lab", networks, [{"name": "n1", **more}]).nodes[0]


def run_in(folder: Path, script: str) -> str:
    """The script with its paths moved below the folder and the node's commands replaced: what it did."""
    for name in ("etc/sudoers.d", "etc/ssh", "root", "home/trainer", "bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "etc/ssh/sshd_config").write_text("#Port 22\nPort 22\nUsePAM yes\n")
    for name in ("hostname", "useradd", "chown", "systemctl", "tc", "id"):
        code = 1 if name == "id" else 0
        (folder / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/calls\nexit {code}\n')
        (folder / "bin" / name).chmod(0o755)
    (folder / "bin" / "install").write_text('#!/bin/sh\nfor path; do :; done\nmkdir -p "$path"\n')
    (folder / "bin" / "install").chmod(0o755)
    for top in ("/etc/", "/root", "/home/"):
        script = script.replace(f" {top}", f" {folder}{top}")
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, env=env, cwd=folder, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "calls").read_text()


@pytest.mark.parametrize("user", ["root", "trainer"])
def test_keys_and_settings_arrive_as_they_are(tmp_path: Path, user: str) -> None:
    calls = run_in(tmp_path, setup_script(node(user=user), KEY, PIP))
    home = tmp_path / ("root" if user == "root" else "home/trainer")
    assert (tmp_path / "etc/pip.conf").read_text() == PIP
    assert (home / ".ssh/authorized_keys2").read_text() == KEY + "\n"
    assert (home / ".ssh/authorized_keys2").stat().st_mode & 0o777 == 0o600
    assert ("useradd" in calls) == (tmp_path / "etc/sudoers.d/lab").exists() == (user != "root")


def test_a_node_is_as_bare_as_installers_leave_it(tmp_path: Path) -> None:
    calls = run_in(tmp_path, setup_script(node(), KEY, PIP))
    assert (tmp_path / "etc/hostname").read_text() == "debian\n"
    assert "127.0.1.1\tdebian\n" in (tmp_path / "etc/hosts").read_text()
    assert "systemctl restart ssh\n" in calls


@pytest.mark.parametrize(
    ("port", "config"), [(22, "#Port 22\nPort 22\nUsePAM yes\n"), (2222, "UsePAM yes\nPort 2222\n")]
)
def test_sshd_listens_on_the_nodes_port_alone(tmp_path: Path, port: int, config: str) -> None:
    run_in(tmp_path, setup_script(node(ssh_port=port), KEY, PIP))
    assert (tmp_path / "etc/ssh/sshd_config").read_text() == config


def test_links_are_shaped_to_their_rates(tmp_path: Path) -> None:
    calls = run_in(tmp_path, shape_script(node())).splitlines()
    assert calls[0] == "tc qdisc del dev eth0 root"
    assert calls[1].startswith("tc qdisc replace dev eth1 root tbf rate 100mbit ")
