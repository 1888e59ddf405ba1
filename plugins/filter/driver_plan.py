# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_plan
short_description: What is to be done about a node's NVIDIA driver
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Compares what is there with what is wanted, and says what to install and why, or why not.
positional: software
options:
  _input:
    description: C(torchfleet_gpu) of the node, see M(torchfleet.cluster.gpu_facts).
    type: dict
    required: true
  software:
    description: C(torchfleet_software) of the node, see M(torchfleet.cluster.stack_facts).
    type: dict
    required: true
  wanted:
    description: The driver, a branch (V(580)) or a version.
    type: str
  method:
    description: V(repository), V(distribution) or V(run).
    type: str
    default: repository
  modules:
    description: Kernel modules, V(open), V(proprietary) or V(auto).
    type: str
    default: auto
  packages:
    description: Packages by name in place of those that are known.
    type: list
    elements: str
  nvswitch:
    description: Whether fabric manager is needed.
    type: bool
    default: false
  secure_boot_ok:
    description: Whether modules are signed by a key that is enrolled.
    type: bool
    default: false
  force:
    description: Install it also where there is no GPU.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: What to do
  ansible.builtin.debug:
    msg: >-
      {{ ansible_facts['torchfleet_gpu']
         | torchfleet.cluster.driver_plan(ansible_facts['torchfleet_software'], wanted='580') }}
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  sample:
    action: install
    reason: there is no nvidia-smi
    problem: ""
    modules: open
    packages: [nvidia-open-580]
    stream: ""
    pin: {name: nvidia-driver, packages: ["*nvidia*", "cuda-drivers*"], version: 580.*}
"""

from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils import _driver
from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import PackageError, platform_of


def driver_plan(
    gpu: Mapping[str, Any],
    software: Mapping[str, Any],
    wanted: Optional[str] = None,
    method: str = "repository",
    modules: str = "auto",
    packages: Optional[Sequence[str]] = None,
    nvswitch: bool = False,
    secure_boot_ok: bool = False,
    force: bool = False,
) -> Dict[str, Any]:
    """The plan as a plain mapping; `problem` says why it cannot be carried out."""
    chosen = _driver.plan(gpu, wanted, force)
    kind, problem = _driver.kernel_modules(gpu.get("gpus") or (), modules)
    answer: Dict[str, Any] = {"action": chosen.action, "reason": chosen.reason, "modules": kind, "packages": []}
    answer.update(problem="", stream="", pin=None)
    if chosen.action in ("none", "keep", "reboot"):
        return answer
    answer["problem"] = problem or _driver.secure_boot_problem(software.get("secure_boot"), secure_boot_ok)
    if method == "run" or answer["problem"]:
        return answer
    if packages is not None:
        return {**answer, "packages": list(packages)}
    release = software.get("release") or {}
    platform = platform_of(str(release.get("id")), release.get("version"))
    if platform is None:
        return {**answer, "problem": f"{release.get('name')} is not known here: set nvidia_driver_packages"}
    try:
        found = _driver.driver_packages(platform, method, wanted, kind, nvswitch)
    except PackageError as error:
        return {**answer, "problem": str(error)}
    pin = {"name": "nvidia-driver", "packages": list(found.parts), "version": found.version} if found.parts else None
    return {**answer, "packages": list(found.packages), "stream": found.stream, "pin": pin}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"driver_plan": driver_plan}
