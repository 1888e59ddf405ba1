# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the choice of the network: no connection to any node."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import to_dict
from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import NetworkError, choose_network


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, given = self.validate_argument_spec(
            argument_spec={
                "nodes": {"type": "list", "elements": "dict", "required": True},
                "links": {"type": "list", "elements": "dict", "required": True},
                "network": {"type": "list", "elements": "str"},
                "transport": {"type": "str", "choices": ["auto", "tcp", "ib", "roce"], "default": "auto"},
            }
        )
        try:
            choice = choose_network(given["nodes"], given["links"], given["network"], given["transport"])
        except NetworkError as error:
            return {**result, "failed": True, "msg": str(error), "problems": error.problems, "matrix": error.matrix}
        plain = to_dict(choice)
        return {
            **result,
            "changed": False,
            "nodes": {node["name"]: node for node in plain["nodes"]},
            "transport": choice.transport,
            "slowest_mbps": choice.slowest_mbps,
            "reasons": plain["reasons"],
            "cautions": list(choice.warnings),
            "warnings": [*result.get("warnings", ()), *choice.warnings],
        }
