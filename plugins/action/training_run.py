# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of training_run: adds the node's supervisor, which travels with every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase

SCRIPTS = Path(__file__).resolve().parents[1] / "plugin_utils" / "node"


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        args = dict(self._task.args)
        if args.get("state", "started") == "started":
            args["scripts"] = {
                path.name: path.read_text(encoding="utf-8") for path in sorted(SCRIPTS.glob("[a-z]*.py"))
            }
        return self._execute_module(
            module_name="torchfleet.cluster.training_run", module_args=args, task_vars=task_vars
        )
