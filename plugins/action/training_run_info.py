# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of training_run_info: adds the scripts that look at runs on the node."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _node_scripts


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        scripts = _node_scripts.read()
        return self._execute_module(
            module_name="torchfleet.cluster.training_run_info",
            module_args={**self._task.args, "scripts": scripts, "lib": _node_scripts.folder(scripts)},
            task_vars=task_vars,
        )
