# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pwd

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import build_cluster
from ansible_collections.torchfleet.cluster.plugins.module_utils._managed_block import BEGIN, END
from ansible_collections.torchfleet.cluster.plugins.modules import retire_member

NAMES = ("n1", "n2", "n3")


def configuration(*names):
    cluster = build_cluster([{"name": name, "address": f"10.0.0.{name[1:]}"} for name in names])
    return _accelerate.render(cluster, cluster.node("n2"), _accelerate.options({"distributed_type": "MULTI_CPU"}))


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """The module on n2, which knows three members; n4 is in the inventory alone."""
    account = pwd.struct_passwd(("trainer", "x", os.getuid(), os.getgid(), "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: account)
    monkeypatch.setattr(retire_member, "OWN_FILES", ())
    (tmp_path / ".ssh").mkdir()
    keys = "".join(f'from="10.0.0.{n[1:]},127.0.0.1,192.0.2.{n[1:]}" ssh-ed25519 AAAA torchfleet:{n}\n' for n in NAMES)
    (tmp_path / ".ssh" / "authorized_keys").write_text(f"{BEGIN}\n{keys}{END}\n")
    hosts = "".join(f"10.0.0.{name[1:]}\t{name}\n" for name in NAMES)
    (tmp_path / "hosts").write_text(f"{BEGIN}\n{hosts}{END}\n")
    (tmp_path / "hostfile").write_text("".join(f"{name} slots=1\n" for name in NAMES))
    (tmp_path / "accelerate.yaml").write_text(configuration(*NAMES))

    def run(**params):
        paths = {"hosts_path": "hosts", "hostfile": "hostfile", "accelerate_config": "accelerate.yaml"}
        given = {
            **{key: str(tmp_path / name) for key, name in paths.items()},
            "user": "trainer",
            "node": "n2",
            **params,
        }
        with patch_module_args(given), pytest.raises(SystemExit) as ended:
            retire_member.main()
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_the_head_goes_and_its_files_are_those_of_the_others(call, tmp_path):
    answer = call(name="n1", left=["n2", "n3", "n4"], addresses=["198.51.100.1"])
    assert answer["addresses"] == ["10.0.0.1", "192.0.2.1", "198.51.100.1"]
    assert (tmp_path / "hostfile").read_text() == "n2 slots=1\nn3 slots=1\n"
    assert (tmp_path / "accelerate.yaml").read_text() == configuration("n2", "n3")
    assert "n1" not in (tmp_path / "hosts").read_text()
    assert call(name="n1", left=["n2", "n3", "n4"])["changed"] is False


def test_what_was_never_written_is_not_written_now(call, tmp_path):
    for name in ("hostfile", "accelerate.yaml"):
        (tmp_path / name).unlink()
    answer = call(name="n3", left=["n1", "n2"])
    assert answer["files"] == [str(tmp_path / "hosts"), str(tmp_path / ".ssh" / "authorized_keys")]
    assert not (tmp_path / "hostfile").exists()


def test_the_node_itself_keeps_neither(call, tmp_path):
    call(name="n2", left=["n1", "n3"], whole=True)
    assert not (tmp_path / "hostfile").exists()
    assert not (tmp_path / "accelerate.yaml").exists()
    assert (tmp_path / "hosts").read_text() == ""


def test_check_mode_says_where_it_was_let_in_and_writes_nothing(call, tmp_path):
    before = (tmp_path / "hosts").read_text()
    answer = call(name="n3", left=["n1", "n2"], _ansible_check_mode=True)
    assert answer["changed"] is True
    assert answer["addresses"] == ["10.0.0.3", "192.0.2.3"]
    assert (tmp_path / "hosts").read_text() == before
