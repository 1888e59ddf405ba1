# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stack_problems
short_description: Say what makes a software stack impossible on a set of nodes
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Checks C(torchfleet_stack) against the compatibility tables of this collection and against what the nodes have.
  - Driver against CUDA and GPUs, CUDA against GPUs and compiler, torch against CUDA, Python, C library and GPUs,
    torchvision and torchaudio against torch. Versions that YAML has shortened (C(2.10) read as C(2.1)) are found too.
  - Runs on the controller and asks no machine anything.
positional: nodes
options:
  _input:
    description:
      - The stack, as keys or as the name of a set. Keys are C(set), C(driver), C(cuda), C(torch), C(torch_source),
        C(torch_cuda), C(torchvision), C(torchaudio), C(python), C(gcc), C(nccl), C(cudnn), C(deepspeed), C(accelerate),
        C(colossalai) and C(allow_unlisted).
    type: raw
    required: true
  nodes:
    description:
      - A list with one mapping for each node.
      - C(name) is the host; C(driver) the driver that it has, which counts where the stack installs none; C(gpus) a
        list of mappings with C(model), C(architecture) and C(compute_capability) as far as known; C(python) and
        C(gcc) those that will be used where the stack brings none; C(glibc) the version of its C library.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Refuse an impossible stack before anything is installed
  vars:
    problems: "{{ torchfleet_stack | torchfleet.cluster.stack_problems(nodes) }}"
    nodes:
      - name: gpu-a
        driver: 535.183.01
        gpus:
          - model: Tesla V100-SXM2-32GB
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems | map(attribute='text') | join('\n') }}"
"""

RETURN = r"""
_value:
  description: One entry for each problem; empty where the stack is possible.
  type: list
  elements: dict
  contains:
    text:
      description: The whole finding as one line.
      type: str
    hosts:
      description: The nodes that it holds for; empty where it concerns the stack itself.
      type: list
      elements: str
    what:
      description: What cannot be.
      type: str
    found:
      description: The value found.
      type: str
    wanted:
      description: The value wanted.
      type: str
    variable:
      description: The variable to change.
      type: str
    advice:
      description: What to set.
      type: str
    nearest:
      description: The possible stack that changes least; empty where nothing fits these nodes.
      type: str
  sample:
    - text: >-
        gpu-a: CUDA 13.0 cannot compile for Tesla V100-SXM2-32GB (sm_70) (found CUDA 13.0, wanted CUDA 12.9 or older):
        set torchfleet_stack.cuda to 12.9 or older. Nearest set that fits every node: cuda 12.8, torch 2.9.1.
      hosts: [gpu-a]
      what: CUDA 13.0 cannot compile for Tesla V100-SXM2-32GB (sm_70)
      found: CUDA 13.0
      wanted: CUDA 12.9 or older
      variable: torchfleet_stack.cuda
      advice: set torchfleet_stack.cuda to 12.9 or older
      nearest: cuda 12.8, torch 2.9.1
"""

from dataclasses import asdict
from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import validate_stack


def stack_problems(stack: Any, nodes: Sequence[Mapping[str, Any]] = ()) -> List[Dict[str, Any]]:
    """The problems as plain mappings, each with its sentence as `text`."""
    return [
        {"text": str(one), **asdict(one), "hosts": list(one.hosts)} for one in validate_stack(stack, list(nodes or ()))
    ]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"stack_problems": stack_problems}
