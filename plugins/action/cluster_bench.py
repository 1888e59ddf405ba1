# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of bench: says who measures what with whom, and judges the figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import meetings, rounds
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, planned_ranks
from ansible_collections.torchfleet.cluster.plugins.module_utils._nccl_env import node_settings, values
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _bench_report, _report
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import cluster_from_task_vars, members

# What the tasks register, by what it is.
REGISTERED = {
    "prepared": "__bench_prepared",
    "links": "__bench_links",
    "disks": "__bench_disks",
    "local": "__bench_local",
    "collective": "__bench_collective",
    "nccl_tests": "__bench_nccl_tests",
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
                "state": {"type": "str", "choices": ["planned", "paired", "gathered", "judged"], "required": True},
                "backend": {"type": "str", "choices": ["auto", "nccl", "gloo"], "default": "auto"},
                "measure": {"type": "list", "elements": "str", "default": list(_bench_report.MEASURES)},
                "most_bytes": {"type": "int", "default": 0},
                "seconds": {"type": "float", "default": 1},
                "env": {"type": "dict", "default": {}},
                "nccl_tests": {"type": "path"},
                "parameters": {"type": "float", "default": 0},
                "gradient_bytes": {"type": "float", "default": 2},
                "again": {"type": "dict"},
                "measured": {"type": "dict", "default": {}},
                "dest": {"type": "path"},
                "began": {"type": "float", "default": 0},
            }
        )
        cluster = cluster_from_task_vars(task_vars, self._templar)
        host_of = {member["name"]: member["host"] for member in members(task_vars, self._templar)}
        backend = _bench_report.backend_of(cluster, args["backend"])
        if args["state"] == "planned":
            return {**result, "changed": False, **self._plan(cluster, host_of, backend, args)}
        found = self._registered(task_vars, host_of)
        if args["state"] == "paired":
            return {**result, "changed": False, **self._pair(cluster, host_of, found, args["again"])}
        facts = {name: task_vars["hostvars"][host].get("ansible_facts") or {} for name, host in host_of.items()}
        measured = _bench_report.merged(args["measured"], _bench_report.measured(cluster, found))
        nodes = _bench_report.described(cluster, facts, measured)
        report = _bench_report.bench_report(
            cluster,
            nodes,
            measured,
            backend,
            args["parameters"],
            args["gradient_bytes"],
            args["began"] or time.time(),
            args["again"],
        )
        if args["state"] == "gathered":
            again = _bench_report.suspects(report)
            return {**result, "changed": False, "measured": measured, "again": again, "any": any(again.values())}
        previous = None
        folder = Path(args["dest"]).expanduser() if args["dest"] else None
        if folder:
            previous = _report.read_report(folder / _bench_report.BENCH_JSON, "bench")
        report = _bench_report.with_previous(report, previous)
        self._display.display(_bench_report.as_text(report), color=("green", "yellow")[report["status"]])
        files = self._write(folder, report) if folder else {}
        shown = {key: report[key] for key in ("status", "sentence", "findings", "cost")}
        return {**result, "changed": False, **shown, "files": files}

    # ---- what is to be measured

    def _plan(
        self, cluster: Cluster, host_of: Mapping[str, str], backend: str, args: Mapping[str, Any]
    ) -> dict[str, Any]:
        unknown = sorted(set(args["measure"]) - set(_bench_report.MEASURES))
        if unknown:
            raise AnsibleActionFail(
                f"bench_measure has {', '.join(unknown)}, wanted some of {', '.join(_bench_report.MEASURES)}"
            )
        if not _bench_report.measurable(cluster, args["measure"]):
            raise AnsibleActionFail(
                f"bench_measure is {', '.join(args['measure']) or 'empty'}, of which {len(cluster.nodes)} node with "
                f"{cluster.world_size} rank(s) measures nothing: add local or disks"
            )
        forks = context.CLIARGS.get("forks") or 5
        if forks < len(cluster.nodes):
            raise AnsibleActionFail(
                f"all {len(cluster.nodes)} nodes measure at once, but Ansible runs {forks} forks: add "
                f"--forks {len(cluster.nodes)} to the command, or set forks in ansible.cfg"
            )
        sizes = _bench_report.sizes(backend, args["most_bytes"])
        schedule = rounds([node.name for node in cluster.nodes])
        if self._task.check_mode:
            self._display.display(_bench_report.plan_text(cluster, schedule, backend, sizes, args))
        own = {str(name): str(value) for name, value in args["env"].items()}
        return {
            "began": time.time(),
            "bench_id": f"bench-{time.time_ns()}",
            "backend": backend,
            "sizes": sizes,
            "nodes": {
                host_of[node.name]: {
                    "name": node.name,
                    "interface": node.interface or "",
                    "address": node.address,
                    "environment": {**values(node_settings(cluster, node)), **own},
                }
                for node in cluster.nodes
            },
            "head": host_of[cluster.head.name],
            "nccl_tests": _bench_report.nccl_tests_argv(cluster, args["nccl_tests"], sizes, own)
            if backend == "nccl"
            else [],
        }

    @staticmethod
    def _registered(
        task_vars: Mapping[str, Any], host_of: Mapping[str, str]
    ) -> dict[str, dict[str, Mapping[str, Any]]]:
        """What each node's tasks have answered, by what they measure and the node's name."""
        return {
            what: {name: task_vars["hostvars"][host].get(variable) or {} for name, host in host_of.items()}
            for what, variable in REGISTERED.items()
        }

    @staticmethod
    def _pair(
        cluster: Cluster,
        host_of: Mapping[str, str],
        found: Mapping[str, Mapping[str, Mapping[str, Any]]],
        again: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Whom each host meets, with ports, and the environment of its ranks."""
        ready = {name: answer for name, answer in found["prepared"].items() if answer.get("port")}
        if again is None:
            schedule = rounds([node.name for node in cluster.nodes if node.name in ready])
        else:
            # One pair at a time: what is slow then is slow by itself.
            schedule = [[(one, other)] for one, other in again["pairs"] if one in ready and other in ready]
        address = {node.name: node.address for node in cluster.nodes}
        world = planned_ranks(cluster)
        master = (ready.get(cluster.head.name) or {}).get("master_port")
        met = {
            host_of[name]: [
                {**one, "address": address[one["peer"]], "port": ready[one["peer"]]["port"]}
                for one in meetings(schedule, name)
            ]
            for name in ready
        }
        slots = {node.name: node.slots for node in cluster.nodes}
        ranks: dict[str, list[dict[str, str]]] = {host: [] for host in host_of.values()}
        # An all-reduce wants every node, and somebody to reduce with.
        for rank in world if master and len(ready) == len(cluster.nodes) and len(world) > 1 else ():
            ranks[host_of[rank.node]].append(
                {
                    "RANK": str(rank.rank),
                    "LOCAL_RANK": str(rank.local_rank),
                    "WORLD_SIZE": str(len(world)),
                    "LOCAL_WORLD_SIZE": str(slots[rank.node]),
                    "MASTER_ADDR": cluster.master_address,
                    "MASTER_PORT": str(master),
                }
            )
        return {"meetings": met, "ranks": ranks, "rounds": len(schedule)}

    def _write(self, folder: Path, report: dict[str, Any]) -> dict[str, str]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            data, page = folder / _bench_report.BENCH_JSON, folder / _report.PAGE
            data.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
            page.write_text(
                _report.render(check=_report.read_report(folder / _report.CHECK_JSON, "check"), bench=report),
                encoding="utf-8",
            )
        except OSError as error:
            raise AnsibleActionFail(f"bench_dest: {error}") from error
        self._display.display(f"Report: {page}\nJSON:   {data}")
        return {"json": str(data), "html": str(page)}
