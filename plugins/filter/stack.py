# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stack
short_description: The versions that a software stack stands for
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Fills in what a named set brings, so that each role reads its version by its key.
  - Says nothing about whether the stack is possible, see P(torchfleet.cluster.stack_problems#filter).
options:
  _input:
    description: The stack, as keys or as the name of a set; nothing at all is an empty stack.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show the CUDA toolkit of a set
  ansible.builtin.debug:
    msg: "{{ ('torch-2.13-cu130' | torchfleet.cluster.stack).cuda }}"  # 13.0
"""

RETURN = r"""
_value:
  description: Every key with its value, V(null) for those that the stack leaves open.
  type: dict
  sample: {"torch": "2.13.0", "cuda": "13.0", "driver": "580", "gcc": "13", "python": "3.12", "deepspeed": null}
"""

from typing import Any, Callable, Dict

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import canonical, resolve_stack
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_data import STACK_KEYS


def stack(raw: Any) -> Dict[str, Any]:
    """The stack with all of its keys; versions are text."""
    filled = canonical(resolve_stack(raw or None)[0])
    return {key: _text(filled.get(key)) for key in STACK_KEYS}


def _text(value: Any) -> Any:
    """Versions are text, also where YAML read a number."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"stack": stack}
