# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What came of a sync over all nodes: one line that says so, and a failure that names every node without the tree."""

from __future__ import annotations

import shutil
from typing import Any, Dict, Optional

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _sync


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        source = self._task.args["source"]
        without: Dict[str, str] = {}
        moved, seconds, current = 0, 0.0, 0
        hosts = list(self._task.args.get("hosts") or variables.get("ansible_play_hosts_all") or ())
        for host in hosts:
            got = variables["hostvars"][host]
            plan, transfer, switch = (
                got.get(name) or {} for name in ("__sync_plan", "__sync_transfer", "__sync_switch")
            )
            if (plan.get("plan") or {}).get("state") == "current":
                current += 1
                continue
            moved += int(transfer.get("bytes") or 0)
            seconds = max(seconds, float(transfer.get("seconds") or 0))
            if plan.get("failed") or plan.get("unreachable") or "plan" not in plan:
                without[host] = _words(plan)
            elif not transfer.get("complete"):
                without[host] = str(plan["plan"].get("short") or transfer.get("problem") or _words(transfer))
            elif switch.get("failed") or switch.get("unreachable") or "folder" not in switch:
                without[host] = _words(switch)
        shutil.rmtree(str(source["folder"]), ignore_errors=True)
        what = f"{source['files']} files, {_sync.size(source['bytes'])}, release {source['release'][:12]}"
        done = len(hosts) - len(without)
        line = f"{done} of {len(hosts)} nodes have the tree ({what})"
        if moved:
            line += (
                f"; {_sync.size(moved)} received in {seconds:.1f} s, {_sync.size(moved / max(seconds, 0.1))}/s in all"
            )
        elif current == len(hosts):
            line += "; nothing was to be done"
        self._display.display(line, color="yellow" if without else "green")
        result.update(changed=False, summary=line, without=without)
        culprits = "; ".join(f"{host}: {why}" for host, why in without.items())
        if without and boolean(self._task.args.get("required", True)):
            result.update(failed=True, msg=f"{line}. Not there: {culprits}. Run again to complete them")
        elif without:
            self._display.display(f"Not there: {culprits}", color="yellow")
        return result


def _words(answer: Dict[str, Any]) -> str:
    return str(answer.get("msg") or "no answer").strip()
