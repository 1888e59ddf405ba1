# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stack_report
short_description: The software stack that nodes have, a line for all that are alike
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Puts facts of M(torchfleet.cluster.stack_facts) into words.
options:
  _input:
    description: The facts of each node, C(torchfleet_software) and C(torchfleet_gpu).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Say what is there
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | map('extract', hostvars, 'ansible_facts') | torchfleet.cluster.stack_report }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
  sample: ["gpu1, gpu2: Debian 12, Python 3.11.2, GCC 12.2.0, no CUDA toolkit, driver 580.65.06 for 8 x NVIDIA A100"]
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._software import report


def stack_report(nodes: Sequence[Mapping[str, Any]]) -> List[str]:
    """The lines, in the order of the nodes."""
    return list(report(nodes))


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"stack_report": stack_report}
