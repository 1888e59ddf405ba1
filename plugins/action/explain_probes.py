# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the probes: what the nodes are to be asked, and what their answers say about the findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import DEFAULT_MASTER_PORT
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis import _confirm
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _report
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import members

PROBED = "__explain_probed"
# Of many findings the first ones are causes, the rest are echoes.
MOST = 4


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _rest, args = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "choices": ["planned", "judged"], "required": True},
                "path": {"type": "path", "required": True},
                "findings": {"type": "list", "elements": "dict", "required": True},
                "dest": {"type": "path"},
            }
        )
        hosts = members(task_vars, self._templar)
        findings = [dict(finding) for finding in args["findings"]]
        probed = [finding for finding in findings[:MOST] if (finding.get("probe") or {}).get("id") in _confirm.IDS]
        if args["state"] == "planned":
            plan = (_report.read_json(Path(args["path"]) / "manifest.json") or {}).get("plan") or {}
            peers = [
                {"name": host["name"], "address": host["address"], "port": host["ssh_port"] or 22} for host in hosts
            ]
            return {
                **result,
                "changed": False,
                "probes": [finding["probe"] for finding in probed],
                "run_id": str(plan.get("run_id") or Path(args["path"]).name),
                "master_port": int(plan.get("master_port") or DEFAULT_MASTER_PORT),
                "nodes": {
                    host["host"]: {
                        "name": host["name"],
                        "interface": host["interface"] or "",
                        "peers": [peer for peer in peers if peer["name"] != host["name"]],
                    }
                    for host in hosts
                },
            }
        answered = {host["name"]: task_vars["hostvars"][host["host"]].get(PROBED) or {} for host in hosts}
        silent = [name for name, answer in answered.items() if "answers" not in answer]
        told = []
        for number, finding in enumerate(probed):
            answers = {name: answer["answers"][number] for name, answer in answered.items() if "answers" in answer}
            combined = _confirm.combine(answers, silent)
            finding["probe"] = {**finding["probe"], "result": combined}
            if combined:
                told.append({"label": finding["label"], **combined})
                words, colour = {
                    True: ("so it is on the cluster now", "red"),
                    False: ("not so on the cluster now", "yellow"),
                    None: ("seen on the cluster now", "cyan"),
                }[combined["confirmed"]]
                self._display.display(f"{finding['label']}, {words}: {combined['sentence']}", color=colour)
        dest = Path(args["dest"]) if args["dest"] else None
        if dest and told and not self._task.check_mode:
            answer = _report.read_json(dest) or {}
            dest.write_text(json.dumps({**answer, "findings": findings}, indent=2) + "\n", encoding="utf-8")
        return {**result, "changed": False, "results": told, "findings": findings}
