# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge a finished run over all its nodes, complete the manifest, and tell people."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils import _outcome
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import LaunchPlan, to_dict
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _runs


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        launch: Mapping[str, Any] = self._task.args["launch"]
        folder = Path(str(launch["folder"]))
        manifest = _runs.read_manifest(folder)
        plan = _runs.plan_of(manifest)
        if self._task.args.get("detached"):
            return self._detached(folder, plan)
        ends = [
            self._node_end(str(node["node"]), task_vars["hostvars"][host]) for host, node in launch["nodes"].items()
        ]
        stop_reason = _runs.stop_reason(folder)
        _runs.tidy(folder)
        outcome = _outcome.judge(plan, ends, stop_reason)
        if manifest.get("hang") and not outcome.ok:
            outcome = dataclasses.replace(outcome, problems=(manifest["hang"]["sentence"], *outcome.problems))

        starts = [rank.started for end in ends for rank in end.ranks if rank.started]
        # A later look at a run that has ended finds the same.
        known = [end.ended for end in ends if end.ended]
        ended = max(known) if known else manifest["times"].get("ended") or time.time()
        times = {**manifest["times"], "ended": ended}
        if starts:
            times["first_rank"] = min(starts)
        _runs.update_manifest(
            folder,
            state="succeeded" if outcome.ok else "failed",
            outcome=self._told(outcome, folder),
            nodes=[to_dict(end) for end in ends],
            times=times,
        )
        self._report(plan, ends, outcome, folder, ended - manifest["times"]["planned"])
        self._tell_collected(launch, task_vars["hostvars"], folder)
        again = not outcome.ok and not _outcome.by_person(stop_reason) and not any(end.timed_out for end in ends)
        return {
            "changed": False,
            "ok": outcome.ok,
            "again": again,
            "sentence": outcome.sentence,
            "folder": str(folder),
        }

    def _detached(self, folder: Path, plan: LaunchPlan) -> Dict[str, Any]:
        _runs.update_manifest(folder, state="detached")
        self._display.display(
            f"Run {plan.run_id} goes on by itself on {len(plan.nodes)} nodes. Follow it with logs.yml, look at it with "
            f"status.yml, end it with stop.yml, each with -e run_id={plan.run_id}",
            color="cyan",
        )
        return {"changed": False, "ok": True, "again": False, "sentence": "detached", "folder": str(folder)}

    def _tell_collected(self, launch: Mapping[str, Any], hostvars: Mapping[str, Any], folder: Path) -> None:
        """What came back from the nodes, and what did not."""
        reports = []
        for host, node in launch["nodes"].items():
            names = ("__launch_collected", "__launch_collected_too")
            calls = [
                report for report in (hostvars[host].get(name) or {} for name in names) if not report.get("skipped")
            ]
            for report in calls:
                if "problem" in report:
                    reports.append(report)
                elif report:
                    words = str(report.get("msg") or "no answer").strip()
                    reports.append({"files": 0, "bytes": 0, "unmatched": [], "problem": f"{node['node']}: {words}"})
        if not reports:
            return
        problems = [str(report["problem"]) for report in reports if report["problem"]]
        unmatched = set.intersection(*(set(report["unmatched"]) for report in reports)) if not problems else set()
        problems += [
            f"no node's output folder has anything that matches '{pattern}' of launch_collect"
            for pattern in sorted(unmatched)
        ]
        files, size = sum(report["files"] for report in reports), sum(report["bytes"] for report in reports)
        _runs.update_manifest(folder, collected={"files": files, "bytes": size, "problems": problems})
        self._display.display(f"  {files} files came back ({size / 1e6:.1f} MB): {folder / 'output'}", color="green")
        for problem in problems:
            self._display.warning(problem)

    @staticmethod
    def _node_end(node: str, hostvars: Mapping[str, Any]) -> _outcome.NodeEnd:
        follow = hostvars.get("__launch_follow") or {}
        if "answer" not in follow:
            words = str(follow.get("msg") or "it was not followed to its end").strip()
            return _outcome.NodeEnd(node, "unreachable", problem=f"{node}: {words}")
        end = _outcome.node_end(node, follow["answer"], float(follow["offset"]))
        return dataclasses.replace(end, problem=str(follow.get("problem") or end.problem))

    @staticmethod
    def _told(outcome: _outcome.Outcome, folder: Path) -> Dict[str, Any]:
        """The outcome, with what the rank that failed first said last."""
        told = dataclasses.asdict(outcome)
        if outcome.first is not None:
            log = folder / outcome.first.node / f"rank-{outcome.first.rank}.log"
            exception = outcome.first.error or _runs.last_exception(log)
            told["first"].update(exception=exception, log=str(log), last_lines=_runs.last_lines(log))
        return told

    def _report(
        self, plan: LaunchPlan, ends: List[_outcome.NodeEnd], outcome: _outcome.Outcome, folder: Path, seconds: float
    ) -> None:
        colour = "green" if outcome.ok else "red"
        lines = [
            f"Run {plan.run_id} {'succeeded' if outcome.ok else 'failed'} after {seconds:.0f} s: {outcome.sentence}"
        ]
        lines += [f"  {problem}" for problem in outcome.problems if problem != outcome.sentence]
        for end in ends:
            ranks = ", ".join(
                f"{rank.rank}: {_outcome.how(rank.code, rank.signal) if rank.finished else 'no end seen'}"
                for rank in end.ranks
            )
            launcher = _outcome.how(end.code, end.signal) if end.status == "exited" else end.status
            lines.append(f"  {end.node}: launcher {launcher}{'; rank ' + ranks if ranks else ''}")
        lost = [end.node for end in ends if end.status == "unreachable"]
        if lost:
            lines.append(
                f"  {', '.join(lost)}: once it answers, end what it still runs: stop.yml -e run_id={plan.run_id}"
            )
        first = self._told(outcome, folder)["first"]
        if first:
            if first["exception"]:
                lines.append(f"  Its exception: {first['exception']}")
            lines.append(f"  The last lines of {first['log']}:")
            lines += [f"    {line}" for line in first["last_lines"]]
        lines.append(f"  Logs and manifest: {folder}")
        self._display.display("\n".join(lines), color=colour)
