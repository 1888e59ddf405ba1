# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Action plugins that render a file from the Cluster on the controller and have it written in one call to the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import (
    acting_host,
    cluster_from_task_vars,
    node_name,
)

# What rendered_file takes for the file itself, passed on as given.
FILE_SPEC: dict[str, dict[str, Any]] = {
    "dest": {"type": "path", "required": True},
    "backup": {"type": "bool", "default": False},
    "owner": {"type": "str"},
    "group": {"type": "str"},
    "mode": {"type": "raw"},
    "attributes": {"type": "str", "aliases": ["attr"]},
    "selevel": {"type": "str"},
    "serole": {"type": "str"},
    "setype": {"type": "str"},
    "seuser": {"type": "str"},
    "unsafe_writes": {"type": "bool", "default": False},
}


class RenderAction(ActionBase):
    """Subclasses name their options in `spec` and render in `render`, which may raise ClusterError."""

    _requires_connection = True
    spec: ClassVar[Mapping[str, Any]] = {}

    def render(self, cluster: Cluster, options: Mapping[str, Any], node: str) -> str:
        """The file's text for the node of that name. `options` has the keys of `spec`."""
        raise NotImplementedError

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec={**FILE_SPEC, **self.spec})
        cluster = cluster_from_task_vars(task_vars, self._templar)
        node = node_name(task_vars, acting_host(self._task, task_vars))
        try:
            text = self.render(cluster, {name: args.get(name) for name in self.spec}, node)
        except ClusterError as error:
            raise AnsibleActionFail(str(error)) from error
        about = {name: args[name] for name in FILE_SPEC if args.get(name) is not None}
        module_args = {**about, "content": text}
        result.update(
            self._execute_module("torchfleet.cluster.rendered_file", module_args=module_args, task_vars=task_vars)
        )
        return result
