# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Who the members are to ssh, as role ssh_trust collected it from each in this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import read_members

IDENTITY = "__ssh_trust_identity"


def peers_from_task_vars(
    task_vars: Mapping[str, Any], templar: Any
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The members with their keys, as the module ssh_mesh takes them, and what each knows of the others, by name."""
    peers, known, absent = [], {}, []
    for host in read_members(task_vars, templar):
        identity = task_vars["hostvars"][host["host"]].get(IDENTITY)
        if not identity or "host_keys" not in identity:
            absent.append(host["host"])
            continue
        known[host["name"]] = identity.get("known") or {}
        peers.append(
            {
                "name": host["name"],
                "aliases": host["aliases"],
                "address": host["address"],
                "port": host["ssh_port"] or 22,
                "public_key": identity["public_key"],
                "host_keys": identity["host_keys"],
                "addresses": identity["addresses"],
            }
        )
    if absent:
        raise AnsibleActionFail(
            f"the keys of {', '.join(absent)} are not known in this run, and trust needs every member: make them "
            "reachable, or take them out with retire.yml"
        )
    return peers, known
