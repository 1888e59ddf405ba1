# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""From Ansible's variables to the nouns: the only place that reads the inventory."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import normalise_address


def members(task_vars: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The hosts of the training group in inventory order, as `check_members` and `build_cluster` take them."""
    group = task_vars.get("torchfleet_group") or "train"
    found = []
    for host in task_vars["groups"].get(group, []):
        hostvars = task_vars["hostvars"][host]
        ansible_host = hostvars.get("ansible_host") or host
        address = hostvars.get("torchfleet_address") or normalise_address(ansible_host)
        found.append(
            {
                "inventory_name": host,
                "name": hostvars.get("hosts_hostname") or host,
                "aliases": list(hostvars.get("hosts_aliases") or ()),
                "address": address,
                "ssh_user": hostvars.get("torchfleet_user") or hostvars.get("ansible_user") or "root",
                "ssh_host": ansible_host,
                "ssh_port": hostvars.get("torchfleet_ssh_port") or hostvars.get("ansible_port") or 22,
                "slots": hostvars.get("torchfleet_slots"),
                "gpus": hostvars.get("torchfleet_gpus") or (),
                "interface": hostvars.get("torchfleet_interface"),
                "python": hostvars.get("torchfleet_python"),
            }
        )
    return found
