# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nvidia_repository
short_description: NVIDIA's package repository for a node's distribution
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Says where NVIDIA's packages for the distribution are, and what sets the repository up.
options:
  _input:
    description: C(torchfleet_software) of the node, see M(torchfleet.cluster.stack_facts).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Where NVIDIA's packages are
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['torchfleet_software'] | torchfleet.cluster.nvidia_repository).url }}"
"""

RETURN = r"""
_value:
  description: The repository; C(refused) says why there is none.
  type: dict
  sample:
    refused: ""
    kind: apt
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64
    setup: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb
"""

from typing import Any, Callable, Dict, Mapping

from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import platform_of, vendor_repository


def nvidia_repository(software: Mapping[str, Any]) -> Dict[str, str]:
    """The repository as a plain mapping."""
    release = software.get("release") or {}
    platform = platform_of(str(release.get("id")), release.get("version"))
    if platform is None:
        name = release.get("name") or "this distribution"
        return {"refused": f"{name} is not known here", "kind": "", "url": "", "setup": ""}
    found = vendor_repository(platform, str(software.get("machine") or "x86_64"))
    return {"refused": "", "kind": found.kind, "url": found.url, "setup": found.setup}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"nvidia_repository": nvidia_repository}
