# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: conda_unmet
short_description: What an explicit list of conda's does not have
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Looks for plain packages, V(name), V(name=version) and V(name=version=build), and takes all others for met.
positional: packages
options:
  _input:
    description: The text of the list.
    type: str
    required: true
  packages:
    description: Packages as conda takes them.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'conda.lock') | torchfleet.cluster.conda_unmet(['python=3.12']) }}"
"""

RETURN = r"""
_value:
  description: The packages that it does not have.
  type: list
  elements: str
  sample: ["python=3.12"]
"""

from typing import Any, Callable, Dict, List, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._conda import unmet


def conda_unmet(explicit: str, packages: Sequence[str]) -> List[str]:
    """The packages; see `_conda.unmet`."""
    return unmet(explicit, list(packages))


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"conda_unmet": conda_unmet}
