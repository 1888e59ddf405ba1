# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: torch_build
short_description: Choose the one torch build that runs on every node
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Takes the torch that the stack wishes, or the newest that fits, for the CUDA that it wishes, or the newest that
    every driver was made for and that has kernels for every GPU.
  - A driver older than all builds runs the oldest of them through minor-version compatibility, where CUDA allows it.
  - Where none of the nodes has a GPU and the stack asks for no CUDA, it is the CPU build.
  - Figures are for Linux on x86_64.
positional: nodes
options:
  _input:
    description: The stack, as keys or as the name of a set; see P(torchfleet.cluster.stack_problems#filter).
    type: raw
    required: true
  nodes:
    description: One mapping for each node; see P(torchfleet.cluster.stack_problems#filter).
    type: list
    elements: dict
    default: []
seealso:
  - plugin: torchfleet.cluster.stack_problems
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Choose the build that a V100 and an A100 share
  vars:
    build: "{{ {'torch': '2.9'} | torchfleet.cluster.torch_build(nodes) }}"
    nodes:
      - {name: gpu-a, driver: 580.95.05, gpus: [{model: NVIDIA A100-SXM4-80GB}]}
      - {name: gpu-b, driver: 580.95.05, gpus: [{model: Tesla V100-SXM2-32GB}]}
  ansible.builtin.debug:
    msg: "{{ build.refused or build.version }}"  # 2.9.1+cu128: CUDA 13 builds have no kernels for the V100
"""

RETURN = r"""
_value:
  description: The build, or why there is none.
  type: dict
  contains:
    refused:
      description: Why no build fits; empty where one does.
      type: str
    variable:
      description: The variable to change where it is refused.
      type: str
    torch:
      description: The torch release.
      type: str
      sample: 2.9.1
    version:
      description: The release with its build, as C(torch.__version__) reports it.
      type: str
      sample: 2.9.1+cu128
    cuda:
      description: The CUDA release that it is built for, or V(cpu).
      type: str
      sample: "12.8"
    tag:
      description: The build's name on the index.
      type: str
      sample: cu128
    index_url:
      description: The official index of the build.
      type: str
      sample: https://download.pytorch.org/whl/cu128
    requirements:
      description: What to hand to pip, with this index.
      type: list
      elements: str
      sample: [torch==2.9.1, torchvision==0.24.1, torchaudio==2.9.1]
    on_pypi:
      description: Whether the wheel on PyPI is this build.
      type: bool
    nccl:
      description: The NCCL that comes with it, empty where not known.
      type: str
      sample: 2.27.5
    cudnn:
      description: The cuDNN that comes with it, empty where not known.
      type: str
      sample: 9.10.2.21
    archs:
      description: The compute capabilities that it has kernels for.
      type: list
      elements: str
    reasons:
      description: Why this build, and why not the others.
      type: list
      elements: str
      sample:
        - "torch build: 2.9.1+cu128 (the newest that driver 580.95.05 was made for)"
        - "left out: cu130 (torch 2.9.1 for CUDA 13.0 has no kernels for Tesla V100-SXM2-32GB (sm_70))"
"""

from dataclasses import asdict
from typing import Any, Callable, Dict, Mapping, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import Refusal, cluster_torch_build


def torch_build(stack: Any, nodes: Sequence[Mapping[str, Any]] = ()) -> Dict[str, Any]:
    """The build as a plain mapping; `refused` says why there is none."""
    verdict = cluster_torch_build(stack, list(nodes or ()))
    reasons = verdict.rejected if isinstance(verdict, Refusal) else verdict.reasons
    plain: Dict[str, Any] = {"refused": "", "variable": "", "reasons": [str(reason) for reason in reasons]}
    if isinstance(verdict, Refusal):
        return {**plain, "refused": str(verdict), "variable": verdict.variable}
    build = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(verdict).items()}
    return {**build, **plain}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"torch_build": torch_build}
