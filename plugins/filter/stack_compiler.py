# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stack_compiler
short_description: Choose the GCC that a stack's extensions are built with
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Takes the GCC that the stack names, or one of the distribution's that suits its CUDA and torch.
positional: software
options:
  _input:
    description: The stack, as keys or as the name of a set.
    type: raw
    required: true
  software:
    description: C(torchfleet_software) of the node, see M(torchfleet.cluster.stack_facts).
    type: dict
    required: true
  wanted:
    description: A GCC major that has to be this one. Without it, the stack's, or one that suits.
    type: str
"""

EXAMPLES = r"""
- name: Which compiler
  ansible.builtin.debug:
    msg: "{{ torchfleet_stack | torchfleet.cluster.stack_compiler(ansible_facts['torchfleet_software']) }}"
"""

RETURN = r"""
_value:
  description: The compiler, or why there is none.
  type: dict
  sample:
    refused: ""
    reason: GCC 12, which suits (9 to 13)
    major: 12
    packages: [gcc-12, g++-12]
    cc: /usr/bin/gcc-12
    cxx: /usr/bin/g++-12
"""

from typing import Any, Callable, Dict, Mapping, Optional

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import gcc_bounds, resolve_stack
from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import choose_compiler, platform_of


def stack_compiler(stack: Any, software: Mapping[str, Any], wanted: Optional[str] = None) -> Dict[str, Any]:
    """The choice as a plain mapping; `refused` says why there is none."""
    filled, _problems = resolve_stack(stack or None)
    release = software.get("release") or {}
    platform = platform_of(str(release.get("id")), release.get("version"))
    none = {"refused": "", "reason": "", "major": None, "packages": [], "cc": "", "cxx": ""}
    if platform is None:
        name = release.get("name") or "this distribution"
        return {**none, "refused": f"{name} is not known here: set compiler_enabled to false, and bring one yourself"}
    bounds = gcc_bounds(filled.get("cuda"), filled.get("torch"))
    found, reason = choose_compiler(platform, wanted or filled.get("gcc"), bounds, strict=wanted is not None)
    if found is None:
        return {**none, "refused": reason}
    return {
        "refused": "",
        "reason": reason,
        "major": found.major,
        "packages": list(found.packages),
        "cc": found.cc,
        "cxx": found.cxx,
    }


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"stack_compiler": stack_compiler}
