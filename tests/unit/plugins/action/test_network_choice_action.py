# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any, Dict, List
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleError

from ansible_collections.torchfleet.cluster.plugins.action.network_choice import ActionModule

NODES = [
    {"name": name, "interfaces": [{"name": "eth0", "state": "up", "addresses": [f"10.0.0.{at}/24"]}]}
    for at, name in enumerate("ab", start=1)
]


def links(ok: bool) -> List[Dict[str, Any]]:
    pairs = (("a", "b", "10.0.0.2"), ("b", "a", "10.0.0.1"))
    return [{"source": a, "target": b, "target_address": address, "ok": ok} for a, b, address in pairs]


def run(**args: Any) -> Dict[str, Any]:
    task = MagicMock(args=args, async_val=False, check_mode=True, diff=False)
    loader = templar = shared = MagicMock()
    return ActionModule(task, MagicMock(), MagicMock(check_mode=True), loader, templar, shared).run(task_vars={})


def test_choice_is_returned_as_plain_data() -> None:
    result = run(nodes=NODES, links=links(True), network=["10.0.0.0/24"])
    assert not result["changed"]
    assert result["nodes"]["b"] == {
        "name": "b",
        "interface": "eth0",
        "address": "10.0.0.2",
        "hcas": (),
        "gid_index": None,
        "path_mtu": None,
    }
    assert result["transport"] == "tcp"
    assert result["reasons"][0]["subject"] == "a interface"


def test_refusal_fails_with_the_matrix() -> None:
    result = run(nodes=NODES, links=links(False))
    assert result["failed"]
    assert "no node reaches another at any address" in result["problems"][0]
    assert result["matrix"] in result["msg"]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(AnsibleError, match="transport"):
        run(nodes=NODES, links=[], transport="smoke")
