# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of retire_member: who is left, and where the inventory says that the member was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import (
    acting_host,
    node_name,
    read_in_launch_order,
)


def addresses(members: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """Those of the member and of no other: behind NAT, several have one."""
    its: set[str] = set()
    others: set[str] = set()
    for member in members:
        (its if member["name"] == name else others).update(filter(None, (member["address"], member["ssh_host"])))
    return sorted(its - others)


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        members = read_in_launch_order(task_vars, self._templar)
        name = str(self._task.args.get("name"))
        args = {
            **self._task.args,
            "node": node_name(task_vars, acting_host(self._task, task_vars)),
            "left": [member["name"] for member in members if member["name"] != name],
            "addresses": addresses(members, name),
        }
        return self._execute_module("torchfleet.cluster.retire_member", module_args=args, task_vars=task_vars)
