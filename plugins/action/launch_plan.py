# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the LaunchPlan of a run from inventory, preflight and job, and show it."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import time
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
    NodePlan,
    to_dict,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import plan as make_plan
from ansible_collections.torchfleet.cluster.plugins.module_utils._preflight import (
    interpreter_note,
    uneven_gpus,
    version_problems,
)
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _node_scripts, _runs
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import cluster_from_task_vars, members

PREFLIGHT = "__launch_preflight"


def with_reports(cluster: Cluster, reports: Mapping[str, Mapping[str, Any]]) -> Cluster:
    """The cluster with what the preflight saw: tools, packages, and interfaces where none was chosen."""
    nodes = [
        dataclasses.replace(
            node,
            interface=node.interface or reports.get(node.name, {}).get("interface"),
            programs=reports.get(node.name, {}).get("programs"),
            packages=reports.get(node.name, {}).get("versions") or None,
        )
        for node in cluster.nodes
    ]
    return dataclasses.replace(cluster, nodes=tuple(nodes))


def as_text(plan: LaunchPlan, secret: tuple[str, ...]) -> str:
    """The plan for people: per node the directory, the environment and the command, fit to be pasted into a shell."""
    lines = [
        f"run {plan.run_id}: {plan.launcher}, world size {plan.world_size}, "
        f"master {plan.master_address}:{plan.master_port}"
    ]
    for node in plan.nodes:
        lines += [f"{node.node} (node rank {node.node_rank})", f"  cd {shlex.quote(node.cwd)}"]
        if node.argv:
            lines += _command(node.argv, node.env, () if node.rank else secret)
        if node.rank is not None:
            by = (
                "Slurm" if node.rank.queued else "this command" if all(each.argv for each in plan.nodes) else "the head"
            )
            lines.append(f"  {node.rank.count} ranks, started by {by}, each:")
            lines.append(f"    cd {shlex.quote(node.rank.cwd)}")
            lines += [f"  {line}" for line in _command(node.rank.argv, node.rank.env, secret)]
    lines += [f"because {reason}" for reason in plan.reasons]
    return "\n".join(lines) + "\n"


def _command(argv: Sequence[str], env: Mapping[str, str], secret: tuple[str, ...]) -> List[str]:
    shown = sorted(_runs.shown_env(env, secret).items())
    return [*(f"  {name}={shlex.quote(value)}" for name, value in shown), f"  {shlex.join(argv)}"]


def peers_of(plan: LaunchPlan, node: NodePlan) -> List[str]:
    """The nodes on which this one's launcher starts ranks over ssh."""
    if not node.argv or node.rank is None or node.rank.queued:
        return []
    return [other.node for other in plan.nodes if not other.argv]


def others_of(plan: LaunchPlan, node: NodePlan) -> List[str]:
    """The nodes that end when this one's launcher fails and nobody follows the run: all others, where each node has a
    launcher of its own that does not go on with fewer."""
    if plan.elastic or not all(other.argv for other in plan.nodes):
        return []
    return [other.node for other in plan.nodes if other.node != node.node]


def script_in(workdir: Path, script: str) -> str:
    """The script's path below the working directory. Raises ClusterError where it is not there."""
    path = Path(script).expanduser()
    full = path if path.is_absolute() else workdir / path
    if not full.is_file():
        here = Path.cwd() / path
        full = here if here.is_file() else full
    if not full.is_file():
        raise ClusterError([f"launch_script is {script!r}: there is no file {full} on this controller"])
    try:
        found = str(full.resolve().relative_to(workdir.resolve()))
        return f"./{found}" if found.startswith("-") else found  # python would take it for an option
    except ValueError:
        raise ClusterError(
            [
                f"launch_script {full} lies outside launch_workdir {workdir}: "
                "set launch_workdir to a folder that holds it"
            ]
        ) from None


def default_run_id(name: str) -> str:
    """A run id from the name of a script or module, and the time."""
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in name).strip("-")[:40]
    return f"{plain or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"


def words(value: Any) -> tuple[str, ...]:
    """A list of arguments; a text, as `-e launch_args='--epochs 3'` gives it, is split as a shell splits it."""
    try:
        return tuple(shlex.split(value)) if isinstance(value, str) else tuple(str(word) for word in value or ())
    except ValueError as error:
        raise ClusterError([f"launch_args is {value!r}, which has no end ({error}): give it as a list"]) from None


def seconds(variable: str, value: Any) -> float:
    try:
        return float(value or 0)
    except (TypeError, ValueError):
        raise ClusterError([f"{variable} is {value!r}, wanted seconds, 0 or more"]) from None


def hashes(local_workdir: Path, job: Job) -> Dict[str, str]:
    """What each node has to have in place before it starts: the script as it is here."""
    if job.script is None:
        return {}
    text = (local_workdir / job.script).read_bytes()
    return {str(PurePosixPath(job.workdir) / job.script): hashlib.sha256(text).hexdigest()}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = self._task.args
        cluster = cluster_from_task_vars(task_vars, self._templar)
        reports = self._reports(task_vars, cluster)
        port = reports.get(cluster.head.name, {}).get("master_port")
        if port:
            cluster = dataclasses.replace(cluster, master_port=int(port))
        found = [f"{name}: {problem}" for name, report in reports.items() for problem in report.get("problems", ())]
        versions = {name: report.get("versions") or {} for name, report in reports.items()}
        found += version_problems(versions, list(args.get("packages") or []))
        found += self._uneven(task_vars)
        notes = [
            f"{name}: {note}"
            for name, report in reports.items()
            for note in [*report.get("warnings_found", ()), *(f"ended {left}" for left in report.get("ended", ()))]
        ]
        different = interpreter_note({name: report.get("interpreter_sha256", "") for name, report in reports.items()})
        notes += [different] if different else []
        problems = []
        if args.get("skip_preflight"):
            notes += [f"{problem} (launch_skip_preflight)" for problem in found]
        else:
            problems += found
        for note in notes:
            self._display.warning(note)
        forks = context.CLIARGS.get("forks") or 5
        if forks < len(cluster.nodes):
            problems.append(
                f"all {len(cluster.nodes)} nodes are followed at once, but Ansible runs {forks} forks: add "
                f"--forks {len(cluster.nodes)} to the command, or set forks in ansible.cfg"
            )
        try:
            job, local_workdir = self._job(args, cluster)
            plan = make_plan(with_reports(cluster, reports), job)
        except ClusterError as error:
            problems += error.problems
            plan = None
        if plan is not None and self._task.diff:
            self._display.display(as_text(plan, job.secret_env))
        if problems or plan is None:
            raise AnsibleActionFail("Nothing was started. " + "; ".join(problems))

        folder = Path(str(args["runs_dir"])).expanduser() / job.run_id
        result: Dict[str, Any] = {
            "changed": True,
            "run_id": job.run_id,
            "run_dir": job.run_dir,
            "folder": str(folder),
            "local_workdir": str(local_workdir),
            "remote_workdir": job.workdir,
            "stop_grace": job.stop_grace,
            "time_limit": job.time_limit,
            "lease": job.lease,
            "stall_timeout": job.stall_timeout,
            "stall_action": job.stall_action,
            "collect": list(job.collect),
            "output_dir": job.output_dir or f"{job.run_dir}/output",
            "elastic": plan.elastic,
            "min_nodes": plan.min_nodes,
            "nodes": {},
        }
        host_of = {host["name"]: host["host"] for host in members(task_vars, self._templar)}
        for number, node in enumerate(plan.nodes):
            result["nodes"][host_of[node.node]] = {
                "node": node.node,
                "argv": list(node.argv),
                "env": dict(node.env),
                "cwd": node.cwd,
                "files": dict(node.files),
                "sha256": hashes(local_workdir, job),
                "rank": to_dict(node.rank) if node.rank else None,
                "peers": peers_of(plan, node),
                "others": others_of(plan, node),
                "turn": number,
            }
        if not self._task.check_mode:
            if folder.exists():
                raise AnsibleActionFail(f"{folder} exists already: choose another launch_run_id, or leave it unset")
            for node in plan.nodes:
                (folder / node.node).mkdir(parents=True)
            shown = to_dict(plan)
            for entry in shown["nodes"]:
                part = entry["rank"] or entry
                part["env"] = _runs.shown_env(part["env"], job.secret_env)
                entry["files"] = sorted(entry["files"])
            result["manifest"] = {
                "schema": 1,
                "run_id": job.run_id,
                "state": "planned",
                "attempt": job.attempt,
                "job": {**to_dict(job), "local_workdir": str(local_workdir)},
                "plan": shown,
                "preflight": {"skipped": bool(args.get("skip_preflight")), "notes": notes},
                "versions": versions,
                "times": {"planned": time.time()},
            }
            _runs.write_json(folder / _runs.MANIFEST, {**result["manifest"], "controller": _runs.controller()})
            why = task_vars["hostvars"][host_of[cluster.head.name]].get("torchfleet_network_choice") or {}
            self._header(plan, folder, reports, str(why.get("reason") or ""))
        return result

    def _uneven(self, task_vars: Mapping[str, Any]) -> List[str]:
        counts, reasons = {}, {}
        for host in members(task_vars, self._templar):
            facts = (task_vars["hostvars"][host["host"]].get("ansible_facts") or {}).get("torchfleet_gpu") or {}
            known = host["gpus"] is not None and host["slots"] is None
            counts[host["name"]] = len(host["gpus"]) if known else None
            reasons[host["name"]] = str(facts.get("reason") or "")
        return uneven_gpus(counts, reasons)

    def _reports(self, task_vars: Mapping[str, Any], cluster: Cluster) -> Dict[str, Mapping[str, Any]]:
        """What the preflight of each node said, by the node's name."""
        reports: Dict[str, Mapping[str, Any]] = {}
        for host in members(task_vars, self._templar):
            report = task_vars["hostvars"][host["host"]].get(PREFLIGHT) or {}
            if report.get("unreachable"):
                report = {"problems": [f"cannot be reached: {str(report.get('msg', '')).strip()}"]}
            elif "problems" not in report:
                report = {
                    "problems": ["was not looked at: a run takes every node of the group, so run without --limit"]
                }
            reports[host["name"]] = report
        return reports

    def _job(self, args: Mapping[str, Any], cluster: Cluster) -> tuple[Job, Path]:
        script, module = args.get("script"), args.get("module")
        workdir = args.get("workdir")
        if script and not workdir:
            path = Path(str(script)).expanduser()
            local_workdir = (path if path.is_absolute() else Path.cwd() / path).parent
        else:
            local_workdir = Path(str(workdir or ".")).expanduser()
        local_workdir = local_workdir.absolute()
        if not local_workdir.is_dir():
            raise ClusterError(
                [f"launch_workdir is {str(workdir or script)!r}: there is no folder {local_workdir} on this controller"]
            )
        name = Path(str(script)).stem if script else str(module or "run").rpartition(".")[2]
        run_id = str(args.get("run_id") or default_run_id(name))
        attempt, output_dir = int(args.get("attempt") or 1), ""
        if attempt > 1:
            output_dir = f"{args['remote_root']}/runs/{run_id}/output"
            run_id = f"{run_id}-{attempt}"
        env = {str(key): str(value) for key, value in (args.get("env") or {}).items()}
        job = Job(
            run_id=run_id,
            run_dir=f"{args['remote_root']}/runs/{run_id}",
            workdir=f"{args['remote_root']}/work/{local_workdir.name}",
            script=script_in(local_workdir, str(script)) if script else None,
            module=str(module) if module else None,
            args=words(args.get("args")),
            env=env,
            secret_env=tuple(str(name) for name in args.get("secret_env") or ()),
            launcher=str(args.get("launcher") or "torchrun"),
            lib=_node_scripts.folder(_node_scripts.read()),
            via=str(args.get("via") or ""),
            options=dict(args.get("launcher_options") or {}),
            max_restarts=int(args.get("max_restarts") or 0),
            min_nodes=int(args["min_nodes"]) if args.get("min_nodes") else None,
            time_limit=seconds("launch_time_limit", args.get("time_limit")),
            stop_grace=seconds("launch_stop_grace", args.get("stop_grace")),
            lease=seconds("launch_lease", args.get("lease")),
            stall_timeout=seconds("launch_stall_timeout", args.get("stall_timeout")),
            stall_action=str(args.get("stall_action") or "report"),
            attempt=attempt,
            output_dir=output_dir,
            collect=tuple(str(name) for name in args.get("collect") or ()),
        )
        return job, local_workdir

    def _header(self, plan: LaunchPlan, folder: Path, reports: Mapping[str, Mapping[str, Any]], why: str) -> None:
        slots: Dict[str, int] = {}
        for rank in plan.ranks:
            slots[rank.node] = slots.get(rank.node, 0) + 1
        torch = next((report["versions"].get("torch") for report in reports.values() if report.get("versions")), "?")
        self._display.display(
            f"Run {plan.run_id}: {plan.launcher} on {len(plan.nodes)} nodes, world size {plan.world_size} "
            f"({', '.join(f'{name} x{count}' for name, count in slots.items())}), torch {torch}\n"
            f"Network: {plan.transport}, master {plan.master_address}:{plan.master_port}, interfaces "
            f"{', '.join(node.rank_env.get('GLOO_SOCKET_IFNAME', '?') + ' on ' + node.node for node in plan.nodes)}"
            f"{f', because {why}' if why else ''}\n"
            f"Logs: {folder}",
            color="cyan",
        )
