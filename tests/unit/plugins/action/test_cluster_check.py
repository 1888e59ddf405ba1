# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.action.cluster_check import ActionModule, peers
from ansible_collections.torchfleet.cluster.plugins.action.system_facts import one_line

MEMBERS = [{"host": "10.0.0.1", "name": "gpu1"}, {"host": "b", "name": "gpu2"}, {"host": "c", "name": "gpu3"}]


def test_every_node_logs_in_to_every_member_and_to_itself():
    assert peers(MEMBERS, "all") == {
        "10.0.0.1": ["gpu2", "gpu3", "gpu1"],
        "b": ["gpu3", "gpu1", "gpu2"],
        "c": ["gpu1", "gpu2", "gpu3"],
    }


def test_a_ring_reaches_every_member_once():
    assert peers(MEMBERS, "ring") == {"10.0.0.1": ["gpu2"], "b": ["gpu3"], "c": ["gpu1"]}
    assert peers(MEMBERS[:1], "ring") == {"10.0.0.1": ["gpu1"]}


def test_files_of_own_checks_are_read_in_order(tmp_path):
    (tmp_path / "b.yml").write_text("- id: b\n")
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / "notes.txt").write_text("x")
    assert ActionModule._documents(str(tmp_path)) == {"a.yaml": [], "b.yml": [{"id": "b"}]}
    assert ActionModule._documents(str(tmp_path / "none")) == ActionModule._documents(None) == {}
    (tmp_path / "c.yml").write_text("- id: [\n")
    with pytest.raises(AnsibleActionFail, match=r"c\.yml cannot be read"):
        ActionModule._documents(str(tmp_path))


@pytest.mark.parametrize(
    "words, line",
    [
        (
            "Failed to connect: ssh: connect to host 10.0.0.9 port 22: No route to host\\r\\n",
            "Failed to connect: ssh: connect to host 10.0.0.9 port 22: No route to host",
        ),
        ("Warning: x\nroot@b: Permission denied (publickey).\n", "root@b: Permission denied (publickey)."),
        ("", "no answer"),
    ],
)
def test_why_a_node_does_not_answer_is_one_line(words, line):
    assert one_line(words) == line


@pytest.fixture
def check(monkeypatch):
    """The action over two nodes that answer, with these arguments and variables."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    shown = []

    def run(state="planned", hosts=None, args=None, **common):
        defaults = {
            "checks_dir": None,
            "checks_dir_set": False,
            "skip": [],
            "severity": {},
            "timeout": 5,
            "dest": None,
            "runs": [],
            "began": 0,
            "network": None,
            "ssh": "all",
        }
        monkeypatch.setattr(
            ActionModule,
            "validate_argument_spec",
            lambda self, argument_spec: (None, {**defaults, "state": state, **(args or {})}),
        )
        action = ActionModule.__new__(ActionModule)
        action._templar = SimpleNamespace(template=lambda value: value)
        action._display = SimpleNamespace(display=lambda text, color=None: shown.append(text))
        hosts = hosts or {"node1": {}, "node2": {}}
        answered = {"__check_system": {"reached": True}}
        task_vars = {
            **common,
            "groups": {"train": list(hosts)},
            "hostvars": {name: {**answered, **common, **own} for name, own in hosts.items()},
            "inventory_hostname": next(iter(hosts)),
            "ansible_play_hosts_all": list(hosts),
        }
        return action.run(None, task_vars)

    return run


@pytest.mark.parametrize(
    "given, sentence, remedy",
    [
        ({"torchfleet_head": "nodeX"}, "torchfleet_head is 'nodeX'", "correct torchfleet_head"),
        ({"torchfleet_master_port": 99999}, "torchfleet_master_port is 99999", "correct torchfleet_master_port"),
        ({"args": {"network": ["bogus"]}}, "torchfleet_network is ['bogus']", "correct torchfleet_network"),
        (
            {"hosts": {"node1": {}, "node2": {"hosts_aliases": ["node1"]}}},
            "node2: 'node1' in hosts_aliases is a name of node1 too",
            "correct hosts_aliases",
        ),
        ({"hosts": {"GPU_01": {}, "node2": {}}}, "'GPU_01' is not a valid host name", "correct hosts_hostname"),
    ],
)
def test_what_a_launch_refuses_is_a_failure(check, given, sentence, remedy):
    told = check("judged", **given)
    assert told["status"] == 2
    assert len(told["findings"]) == 1
    assert told["findings"][0]["check"] == "inventory"
    assert told["findings"][0]["sentence"].startswith(sentence)
    assert told["findings"][0]["remedy"].startswith(remedy)
    # All nodes are asked nevertheless.
    assert len(check("planned", **given)["names"]) == 2


def test_an_inventory_that_launches_is_no_finding(check):
    told = check("judged", torchfleet_head="node2", torchfleet_master_port=29501, args={"network": ["10.0.0.0/8"]})
    assert (told["status"], told["findings"]) == (0, [])


@pytest.mark.parametrize(
    "given, words",
    [
        ({"torchfleet_master_port": "abc"}, "torchfleet_master_port is 'abc', wanted an unprivileged port"),
        ({"args": {"timeout": 0}}, "check_timeout is 0, wanted whole seconds, 1 or more"),
        ({"args": {"checks_dir": "/nope", "checks_dir_set": True}}, "check_dir is '/nope', which is no folder"),
        ({"args": {"runs": ["/nope"]}}, "check_runs names '/nope', wanted a folder of a run"),
    ],
)
def test_settings_with_which_no_node_can_be_asked_are_refused(check, given, words):
    with pytest.raises(AnsibleActionFail, match=words):
        check(**given)


def test_folders_that_are_there_and_a_default_one_that_is_not(check, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    own = {"checks_dir": str(tmp_path), "checks_dir_set": True, "runs": [str(tmp_path)]}
    assert check(args=own)["own"] == check(args={"checks_dir": "/nope"})["own"] == []
