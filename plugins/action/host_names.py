# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of host_names: the members come from the inventory, and bad ones stop everything here."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import check_members
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import acting_host, read_members


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        hosts = read_members(task_vars, self._templar)
        problems = check_members(hosts)
        if problems:
            raise AnsibleActionFail("Nothing was changed. " + "; ".join(problems))
        name = acting_host(self._task, task_vars)
        mine = next((host for host in hosts if host["host"] == name), None)
        if mine is None:
            group = task_vars.get("torchfleet_group") or "train"
            raise AnsibleActionFail(f"{name} is not in the group {group!r} (torchfleet_group)")
        args = dict(self._task.args)
        args["members"] = [{key: host[key] for key in ("name", "address", "aliases")} for host in hosts]
        args["name"] = mine["name"]
        return self._execute_module(module_name="torchfleet.cluster.host_names", module_args=args, task_vars=task_vars)
