# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._render import RenderAction


def _spec(name: str, kind: str, default: Any) -> dict[str, Any]:
    ansible_type = next(
        (
            ours
            for part, ours in (("bool", "bool"), ("int", "int"), ("float", "float"), ("Tuple", "list"))
            if part in kind
        ),
        "str",
    )
    spec: dict[str, Any] = {"type": ansible_type}
    if ansible_type == "list":
        spec["elements"] = "str"
    elif default is not None:
        spec["default"] = default
    if name in _accelerate.CHOICES:
        spec["choices"] = list(_accelerate.CHOICES[name])
    return spec


class ActionModule(RenderAction):
    spec: ClassVar[Mapping[str, Any]] = {
        item.name: _spec(item.name, str(item.type), item.default) for item in fields(_accelerate.AccelerateOptions)
    }

    def render(self, cluster: Cluster, options: Mapping[str, Any], node: str) -> str:
        names = [member.name for member in cluster.nodes]
        if node not in names:
            raise ClusterError(
                [f"{node} is not one of the nodes {', '.join(names)}: add it to the group, or leave it out"]
            )
        return _accelerate.render(cluster, cluster.node(node), _accelerate.options(options))
