# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.torchfleet.cluster.plugins.module_utils import _ssh_config
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._render import RenderAction


class ActionModule(RenderAction):
    spec: ClassVar[Mapping[str, Any]] = {"identity_file": {"type": "str"}}

    def render(self, cluster: Cluster, options: Mapping[str, Any], node: str) -> str:
        return _ssh_config.render(cluster, options["identity_file"])
