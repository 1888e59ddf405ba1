# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: members_outside
short_description: Which members that a play leaves out fall to this host
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - With C(--limit), members of the cluster are outside of the play and have to know of a newcomer all the same.
  - They are dealt out in turn to the hosts that are still in the play, each of which delegates to its own.
options:
  _input:
    description: All members.
    type: list
    elements: str
    required: true
  host:
    description: C(inventory_hostname).
    type: str
    required: true
  hosts:
    description: C(ansible_play_hosts), of which the host is one.
    type: list
    elements: str
    required: true
  all_hosts:
    description: C(ansible_play_hosts_all). Who is in it is not outside, even where it has failed.
    type: list
    elements: str
    required: true
positional: host, hosts, all_hosts
"""

EXAMPLES = r"""
- name: Tell the members outside of --limit
  ansible.builtin.debug:
    msg: >-
      {{ groups['train']
         | torchfleet.cluster.members_outside(inventory_hostname, ansible_play_hosts, ansible_play_hosts_all) }}
"""

RETURN = r"""
_value:
  description: The members that fall to this host, in their order; none without C(--limit).
  type: list
  elements: str
  sample: [n1, n3]
"""

from typing import Any, Callable, Dict, List, Sequence


def members_outside(members: Sequence[str], host: str, hosts: Sequence[str], all_hosts: Sequence[str]) -> List[str]:
    """Every len(hosts)-th of those outside, from this host's place on: each falls to one host."""
    outside = [member for member in members if member not in all_hosts]
    return outside[hosts.index(host) :: len(hosts)]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"members_outside": members_outside}
