# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of explain: the logs are there, and so is the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._findings import finding_to_dict
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _logs
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._failure import as_result


def _unprobed(text: str) -> Any:
    """An earlier answer without what the cluster said of it later; None where it is none."""
    try:
        answer = json.loads(text)
        for finding in answer["findings"]:
            (finding.get("probe") or {}).pop("result", None)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return answer


class ActionModule(ActionBase):
    _supports_check_mode = True

    @as_result
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _rest, args = self.validate_argument_spec(
            argument_spec={
                "path": {"type": "path"},
                "runs_dir": {"type": "path"},
                "dest": {"type": "path"},
                "show": {"type": "bool", "default": True},
            },
            required_one_of=[("path", "runs_dir")],
        )
        path = self._path(args["path"], args["runs_dir"])
        logs = _logs.find_logs(path)
        if not logs:
            raise AnsibleActionFail(
                f"{path} holds no logs (*.log, *.out, *.err, *.txt; also packed): set explain_path to the logs of a run"
            )
        findings = _logs.explain_logs(logs, path)
        if args["show"]:
            Display().display(_logs.report(findings))
        dest = Path(args["dest"]).resolve() if args["dest"] else path / "findings.json" if path.is_dir() else None
        answer = {
            "schema": 1,
            "path": str(path),
            "files": [str(log) for log in logs],
            "findings": [finding_to_dict(finding) for finding in findings],
        }
        result.update(answer, dest=str(dest) if dest else None, changed=self._write(dest, answer))
        return result

    def _path(self, path: str | None, runs_dir: str | None) -> Path:
        if path:
            found = Path(path).expanduser().resolve()
            if not found.exists():
                raise AnsibleActionFail(f"{found} does not exist: set explain_path to a log or to the folder of a run")
            return found
        newest = _logs.newest_run(Path(str(runs_dir)).expanduser().resolve())
        if newest is None:
            raise AnsibleActionFail(f"{runs_dir} holds no runs: set explain_path to a log or to the folder of a run")
        return newest

    def _write(self, dest: Path | None, answer: dict[str, Any]) -> bool:
        """Whether the file is another than before."""
        if dest is None:
            return False
        text = json.dumps(answer, indent=2) + "\n"
        try:
            if dest.is_file() and _unprobed(dest.read_text(encoding="utf-8")) == answer:
                return False
            if not self._task.check_mode:
                dest.parent.mkdir(parents=True, exist_ok=True)
                dest.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AnsibleActionFail(f"{error}: set explain_dest to a file that can be written") from error
        return True
