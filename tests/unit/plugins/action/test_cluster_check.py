# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail

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
