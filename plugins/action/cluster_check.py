# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of check: says what to ask the nodes, and judges what they answered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks import _check, _facts, _user
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._rules import CHECKS
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import DEFAULT_MASTER_PORT
from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import network_problem
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _bench_report, _report
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import (
    asked,
    launch_problems,
    read_in_launch_order,
)

FACTS = {
    "system": "__check_system",
    "probed": "__check_probed",
}


def peers(members: Sequence[Mapping[str, Any]], ssh: str) -> dict[str, list[str]]:
    """Whom each host logs in to: every member, the next one first (or all would ask one at a time), or that alone."""
    names = [str(member["name"]) for member in members]
    wanted = len(names) if ssh == "all" else 1
    return {
        str(member["host"]): [*names[place:], *names[:place]][:wanted] for place, member in enumerate(members, start=1)
    }


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _rest, args = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "choices": ["planned", "paired", "judged"], "required": True},
                "checks_dir": {"type": "path"},
                "checks_dir_set": {"type": "bool", "default": False},
                "skip": {"type": "list", "elements": "str", "default": []},
                "severity": {"type": "dict", "default": {}},
                "timeout": {"type": "int", "default": 5},
                "dest": {"type": "path"},
                "runs": {"type": "list", "elements": "path", "default": []},
                "began": {"type": "float", "default": 0},
                "network": {"type": "list", "elements": "str"},
                "ssh": {"type": "str", "choices": ["all", "ring"], "default": "all"},
            }
        )
        try:
            if args["checks_dir_set"] and not Path(args["checks_dir"]).expanduser().is_dir():
                raise AnsibleActionFail(f"check_dir is {args['checks_dir']!r}, which is no folder on this controller")
            own = _user.read_checks(self._documents(args["checks_dir"]), CHECKS)
            checks = _check.chosen(own.checks, args["skip"], args["severity"])
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        group = read_in_launch_order(task_vars, self._templar)
        members = [member for member in group if member["host"] in asked(task_vars)]
        if args["state"] == "planned":
            self._refuse(args, task_vars)
            return {
                **result,
                "changed": False,
                "began": time.time(),
                "names": [member["name"] for member in members],
                "nodes": {member["host"]: member["name"] for member in members},
                "peers": peers(members, args["ssh"]),
                "probe_id": f"check-{time.time_ns()}",
                "own": [dict(asked) for asked in own.asked],
                "master_port": self._option(task_vars, "torchfleet_master_port", DEFAULT_MASTER_PORT),
            }
        if args["state"] == "paired":
            found = {m["name"]: task_vars["hostvars"][m["host"]].get("__check_listening") or {} for m in members}
            listeners = {name: answer["listener"] for name, answer in found.items() if answer.get("listener")}
            return {**result, "changed": False, "listeners": listeners}
        report = self._judge(group, checks, args, task_vars)
        self._display.display(_report.as_text(report), color=("green", "yellow", "red")[report["status"]])
        files = {}
        if args["dest"]:
            files = self._write(Path(args["dest"]).expanduser(), report, args["runs"])
        return {
            **result,
            "changed": False,
            "status": report["status"],
            "findings": report["findings"],
            "files": files,
            "sentence": report["sentence"],
        }

    # ---- what there is

    def _refuse(self, args: Mapping[str, Any], task_vars: Mapping[str, Any]) -> None:
        """Settings with which no node can be asked. What else a launch would refuse is a finding."""
        port = self._option(task_vars, "torchfleet_master_port", DEFAULT_MASTER_PORT)
        problems = []
        if not str(port).isdecimal():
            problems.append(f"torchfleet_master_port is {port!r}, wanted an unprivileged port (1024 to 65535)")
        if args["timeout"] < 1:
            problems.append(f"check_timeout is {args['timeout']}, wanted whole seconds, 1 or more")
        problems += [
            f"check_runs names {run!r}, wanted a folder of a run on this controller, with its manifest.json"
            for run in args["runs"]
            if not (Path(run).expanduser() / "manifest.json").is_file()
        ]
        if problems:
            raise AnsibleActionFail("\n".join(problems))

    @staticmethod
    def _documents(folder: str | None) -> dict[str, Any]:
        """The inventory's own checks: file name to content."""
        documents = {}
        found = sorted(Path(folder).expanduser().glob("*.y*ml")) if folder else []
        for path in found:
            try:
                documents[path.name] = yaml.safe_load(path.read_text(encoding="utf-8")) or []
            except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
                raise AnsibleActionFail(f"{path} cannot be read: {error}") from error
        return documents

    def _option(self, task_vars: Mapping[str, Any], name: str, default: Any) -> Any:
        value = self._templar.template(task_vars[name]) if name in task_vars else None
        return default if value in (None, "") else value

    # ---- the judgement

    def _judge(
        self,
        group: list[dict[str, Any]],
        checks: list[_check.Check],
        args: Mapping[str, Any],
        task_vars: Mapping[str, Any],
    ) -> dict[str, Any]:
        members = [member for member in group if member["host"] in asked(task_vars)]
        outside = [str(member["name"]) for member in group if member not in members]
        results = {}
        for member in members:
            hostvars = task_vars["hostvars"][member["host"]]
            found = {key: hostvars.get(name) or {} for key, name in FACTS.items()}
            results[member["name"]] = {**{key: found["system"].get(key) for key in _facts.MODULES}, **found}
        settings = {"master_port": self._option(task_vars, "torchfleet_master_port", DEFAULT_MASTER_PORT)}
        problems = launch_problems(task_vars, self._templar)
        network = args["network"]
        unreadable = network_problem(network)
        if unreadable:
            problems.append(unreadable)
            network = None
        if problems:
            settings["inventory_problems"] = [" ".join(problem.split()) for problem in problems]
        cluster = _facts.assemble(members, results, settings, network, head=str(group[0]["name"]))
        findings = _check.evaluate(checks, cluster)
        now = time.time()
        previous = _report.read_json(Path(args["dest"]).expanduser() / _report.CHECK_JSON) if args["dest"] else None
        return _report.check_report(
            cluster,
            checks,
            findings,
            began=args["began"] or now,
            ended=now,
            skipped=args["skip"],
            previous=previous,
            outside=outside,
        )

    def _write(self, folder: Path, report: dict[str, Any], runs: list[str]) -> dict[str, str]:
        """JSON and HTML. They are the answer of this verb, so that check mode writes them, too."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            data, page = folder / _report.CHECK_JSON, folder / _report.PAGE
            data.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
            page.write_text(
                _report.render(
                    check=report,
                    runs=[_report.read_run(Path(run)) for run in runs],
                    bench=_report.read_report(folder / _bench_report.BENCH_JSON, "bench"),
                ),
                encoding="utf-8",
            )
        except OSError as error:
            raise AnsibleActionFail(f"check_dest: {error}") from error
        self._display.display(f"Report: {page}\nJSON:   {data}")
        return {"json": str(data), "html": str(page)}
