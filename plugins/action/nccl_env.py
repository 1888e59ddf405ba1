# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of nccl_env: one node's variables from the Cluster, and what works against them there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils import _nccl_env
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import ClusterError
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import (
    acting_host,
    cluster_from_task_vars,
    node_name,
)


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        cluster = cluster_from_task_vars(task_vars, self._templar)
        host = acting_host(self._task, task_vars)
        node = cluster.node(node_name(task_vars, host))
        try:
            settings = _nccl_env.node_settings(cluster, node)
            texts = {
                "nccl_conf": _nccl_env.nccl_conf(settings),
                "profile": _nccl_env.profile(settings),
                "deepspeed_env": _nccl_env.deepspeed_env(_nccl_env.cluster_travelling(cluster)),
            }
        except ClusterError as error:
            raise AnsibleActionFail(str(error)) from error
        facts = task_vars["hostvars"][host].get("ansible_facts", {})
        found = (facts.get("torchfleet_nccl") or {}).get("variables") or []
        args = {**self._task.args, "texts": texts, "variables": found}
        result = self._execute_module("torchfleet.cluster.nccl_env", module_args=args, task_vars=task_vars)
        if not result.get("failed"):
            against = _nccl_env.contradictions(cluster, node, _nccl_env.found_from(result.get("foreign") or ()))
            result["settings"] = [asdict(setting) for setting in settings.values()]
            result["contradictions"] = against
            result.setdefault("warnings", []).extend(against)
        return result
