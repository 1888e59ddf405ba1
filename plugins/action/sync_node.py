# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of sync_node: the manifest goes to a node that does not have it."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._sync import manifest_path

MODULE = "torchfleet.cluster.sync_node"


class ActionModule(ActionBase):
    TRANSFERS_FILES = True
    _requires_connection = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        args = dict(self._task.args)
        result: Dict[str, Any] = self._execute_module(MODULE, module_args=args, task_vars=task_vars)
        wanted = (result.get("plan") or {}).get("state") == "unknown"
        if not wanted or self._task.check_mode:
            return result
        folder = self._make_tmp_path()
        try:
            remote = self._connection._shell.join_path(folder, "manifest")
            self._transfer_file(str(manifest_path(str(args["release"]))), remote)
            args["manifest"] = remote
            again: Dict[str, Any] = self._execute_module(MODULE, module_args=args, task_vars=task_vars)
        finally:
            self._remove_tmp_path(folder, force=True)
        if "plan" in again:
            again["plan"]["wrong"] = again["plan"].get("wrong") or result["plan"].get("wrong") or []
        return again
