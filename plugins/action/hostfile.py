# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.torchfleet.cluster.plugins.module_utils import _hostfile
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._render import RenderAction


class ActionModule(RenderAction):
    spec: ClassVar[Mapping[str, Any]] = {
        "format": {"type": "str", "choices": list(_hostfile.FORMATS), "default": "deepspeed"},
        "by": {"type": "str", "choices": list(_hostfile.BY), "default": "name"},
    }

    def render(self, cluster: Cluster, options: Mapping[str, Any], node: str) -> str:
        return _hostfile.render(cluster, options["format"], options["by"])
