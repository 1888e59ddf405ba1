# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of ssh_mesh: members from the inventory, keys from what each node reported."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils import _ssh_config
from ansible_collections.torchfleet.cluster.plugins.module_utils._ssh_trust import KEY_FILE
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._identities import peers_from_task_vars
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import cluster_from_task_vars

# Stands for a key that is made only in a real run, so that check mode can show the change.
PENDING = "ssh-ed25519 AAAA"


class ActionModule(ActionBase):
    _requires_connection = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        peers, _known = peers_from_task_vars(task_vars, self._templar)
        args = {
            **self._task.args,
            "peers": [{**peer, "public_key": peer["public_key"] or PENDING} for peer in peers],
            "client_config": _ssh_config.render(cluster_from_task_vars(task_vars, self._templar), f"~/{KEY_FILE}"),
        }
        return self._execute_module(module_name="torchfleet.cluster.ssh_mesh", module_args=args, task_vars=task_vars)
