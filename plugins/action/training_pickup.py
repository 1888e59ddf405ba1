# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put together what the nodes tell of their runs, show it, and take one up from this controller."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils import _run_list
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _runs
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import asked, read_members

INFO = "__launch_runs"
OVER = ("succeeded", "failed")
NOT_ASKED = "not asked (--limit)"


def has_controller(manifest: Mapping[str, Any]) -> bool:
    """Whether the controller that follows the run, as its manifest says, is alive on this machine."""
    controller = manifest.get("controller") or {}
    if controller.get("host") != socket.gethostname() or manifest.get("state") in (*OVER, "interrupted", "detached"):
        return False
    try:
        os.kill(int(controller["pid"]), 0)
    except (OSError, KeyError, ValueError):
        return False
    return True


def refusal(run: _run_list.RunView, ends: bool, follows: bool) -> str:
    """Why a run of which nodes are outside of --limit is not ended or followed; looking at it does no harm."""
    also = f"run {run.run_id} is on {', '.join(run.outside)}, too, which --limit leaves out: "
    if ends:
        return f"{also}ended on some nodes alone it would hang on the others, so run without --limit"
    if follows:
        return f"{also}its end is judged over all nodes, so run without --limit, or with -e launch_logs_follow=false"
    return ""


def take_folder(runs_dir: Path, run_id: str, launch: Mapping[str, Any]) -> Path:
    """The run's folder on this controller, emptied of an earlier follower's logs; one aside where somebody follows."""
    folder = runs_dir / run_id
    manifest: Dict[str, Any] = dict(launch)
    try:
        kept = _runs.read_manifest(folder)
        if has_controller(kept):
            folder = Path(tempfile.mkdtemp(prefix=f"torchfleet-{run_id}-"))
        else:
            manifest = kept
    except (OSError, ValueError):
        pass
    for node in launch["plan"]["nodes"]:
        (folder / str(node["node"])).mkdir(parents=True, exist_ok=True)
        for log in (folder / str(node["node"])).glob("*.log"):
            log.unlink()
    _runs.tidy(folder)
    _runs.write_json(folder / _runs.MANIFEST, {**manifest, "controller": _runs.controller()})
    return folder


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = self._task.args
        hosts = {host["name"]: host["host"] for host in read_members(task_vars, self._templar)}
        outside = {name for name, host in hosts.items() if host not in asked(task_vars)}
        reports: Dict[str, List[Mapping[str, Any]]] = {}
        silent = []
        for name, host in hosts.items():
            info = task_vars["hostvars"][host].get(INFO) or {}
            if name in outside:
                silent.append(f"{name}: {NOT_ASKED}")
            elif "runs" in info:
                reports[name] = info["runs"]
            else:
                silent.append(f"{name}: {str(info.get('msg') or 'no answer').strip()}")
        runs = _run_list.views(reports, outside)
        if args.get("show"):
            wanted = str(args.get("run_id") or "")
            shown = [run for run in runs if wanted in ("", run.run_id)]
            none = f"There is no run {wanted!r} on the nodes: without run_id all are listed."
            lines = [none if wanted else "No run is known on any node."]
            if shown:
                lines = _run_list.table(shown, time.time())
            self._display.display("\n".join([*lines, *silent]))
            plain = [{"run_id": r.run_id, "user": r.user, "state": r.state, "nodes": list(r.nodes)} for r in shown]
            return {"changed": False, "runs": plain, "silent": silent}
        try:
            run = _run_list.pick(runs, str(args.get("run_id") or ""), bool(args.get("running")))
        except ValueError as error:
            raise AnsibleActionFail("; ".join([str(error), *silent])) from None
        if run.state == "private":
            raise AnsibleActionFail(f"run {run.run_id} is {run.user}'s, who alone can read or end it, beside root")
        if run.launch is None:
            raise AnsibleActionFail(f"run {run.run_id} was never wholly started: no node has its plan")
        if run.outside:
            why = refusal(run, bool(args.get("running")), bool(args.get("runs_dir")))
            if why:
                raise AnsibleActionFail(why)
            self._display.display("\n".join(f"{name}: {NOT_ASKED}" for name in run.outside))
        launch = json.loads(json.dumps(run.launch))
        job, nodes = launch["job"], launch["plan"]["nodes"]
        folder = ""
        if args.get("runs_dir") and not self._task.check_mode:
            folder = str(take_folder(Path(str(args["runs_dir"])).expanduser(), run.run_id, launch))
        unknown = [node["node"] for node in nodes if node["node"] not in hosts]
        if unknown:
            raise AnsibleActionFail(f"run {run.run_id} has nodes that the inventory has not: {', '.join(unknown)}")
        return {
            "changed": False,
            "run_id": run.run_id,
            "run_dir": job["run_dir"],
            "folder": folder,
            "state": run.state,
            "stop_grace": job["stop_grace"],
            "head": hosts[nodes[0]["node"]],
            "master_port": launch["plan"]["master_port"],
            "time_limit": job["time_limit"],
            "lease": job["lease"],
            "stall_timeout": job["stall_timeout"],
            "stall_action": job["stall_action"],
            "collect": job["collect"],
            "output_dir": job["output_dir"] or f"{job['run_dir']}/output",
            "elastic": launch["plan"]["elastic"],
            "min_nodes": launch["plan"]["min_nodes"],
            "nodes": {hosts[node["node"]]: {"node": node["node"], "argv": node["argv"]} for node in nodes},
        }
