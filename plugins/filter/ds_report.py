# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ds_report
short_description: Judge DeepSpeed by what ds_report says
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Reads the output of C(ds_report) and says what is wrong with this DeepSpeed.
positional: stderr
options:
  _input:
    description: The output.
    type: str
    required: true
  stderr:
    description: What C(ds_report) said besides, the reason where it ended without a report.
    type: str
    default: ""
  version:
    description: The wanted release; without it, any.
    type: str
  ops:
    description: Ops that are to be built already.
    type: list
    elements: str
    default: []
  has_gpu:
    description: Whether the node has a GPU, for which nvcc and torch have to agree.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Judge
  ansible.builtin.debug:
    msg: "{{ (report.stdout | torchfleet.cluster.ds_report(report.stderr, ops=['cpu_adam'])).problems }}"
"""

RETURN = r"""
_value:
  description: The verdict.
  type: dict
  contains:
    problems:
      description: What is wrong, in sentences; empty where nothing is.
      type: list
      elements: str
    summary:
      description: What there is.
      type: str
      sample: "DeepSpeed 0.19.8 with torch 2.13.0+cpu, ops built: cpu_adam, 7 of 19 can be built on demand"
    unbuilt:
      description: Ops that were to be built already and are not, of those that there are.
      type: list
      elements: str
    deepspeed:
      description: The release.
      type: str
    torch:
      description: torch's version.
      type: str
    ops:
      description: Each op with C(installed) and C(compatible).
      type: dict
"""

from dataclasses import asdict
from typing import Any, Callable, Dict, Optional, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._ds_report import judge, parse


def ds_report(
    text: str, stderr: str = "", version: Optional[str] = None, ops: Sequence[str] = (), has_gpu: bool = False
) -> Dict[str, Any]:
    """The verdict and what it is about, as plain mappings."""
    verdict, found = judge(text, stderr, version, ops, has_gpu), asdict(parse(text))
    unbuilt = [name for name in ops if name in found["ops"] and not found["ops"][name]["installed"]]
    return {**found, "unbuilt": unbuilt, "problems": list(verdict.problems), "summary": verdict.summary}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"ds_report": ds_report}
