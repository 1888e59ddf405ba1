# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of report: what it shows lies on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _report
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._failure import as_result


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    @as_result
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _rest, args = self.validate_argument_spec(
            argument_spec={
                "dest": {"type": "path", "required": True},
                "check": {"type": "path"},
                "runs": {"type": "list", "elements": "path", "default": []},
                "findings": {"type": "path"},
            }
        )
        check = _report.read_json(Path(args["check"]).expanduser()) if args["check"] else None
        runs = [run for folder in args["runs"] if (run := _report.read_run(Path(folder).expanduser()))]
        logs = _report.read_json(Path(args["findings"]).expanduser()) if args["findings"] else None
        if check is None and not runs and logs is None:
            raise AnsibleActionFail("there is nothing to report: neither check, runs nor findings lead to anything")
        dest = Path(args["dest"]).expanduser().resolve()
        text = _report.render(check, runs, logs=logs)
        try:
            changed = not dest.is_file() or dest.read_text(encoding="utf-8") != text
            if changed and not self._task.check_mode:
                dest.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AnsibleActionFail(f"the page cannot be written: {error}") from error
        return {**result, "changed": changed, "dest": str(dest)}
