# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fetch_groups
short_description: Which node fetches for which others
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Puts the hosts that lack the same things and are of one kind together. The first of each group fetches for all.
  - A host that lacks nothing, or that no other is like, is in no group.
options:
  _input:
    description: What each host answered, C(kind) and C(missing), by host in the order of the play.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show who fetches
  ansible.builtin.debug:
    msg: "{{ {'n1': wanted, 'n2': wanted, 'n3': {}} | torchfleet.cluster.fetch_groups }}"
  vars:
    wanted: {kind: debian 12 x86_64, missing: [pdsh]}
"""

RETURN = r"""
_value:
  description: The groups.
  type: list
  elements: dict
  sample: [{collector: n1, hosts: [n1, n2]}]
"""

from typing import Any, Callable, Dict, List, Mapping

from ansible_collections.torchfleet.cluster.plugins.module_utils import _fetch


def fetch_groups(answers: Mapping[str, Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """The groups as plain mappings."""
    return [{"collector": group.collector, "hosts": list(group.hosts)} for group in _fetch.groups(answers)]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"fetch_groups": fetch_groups}
