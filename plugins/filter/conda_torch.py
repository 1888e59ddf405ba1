# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: conda_torch
short_description: What conda is asked for to have a build of torch
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Names the packages of torch and its companions as conda-forge does, to the build.
positional: torch
options:
  _input:
    description: The build, see P(torchfleet.cluster.torch_build#filter).
    type: dict
    required: true
  torch:
    description: torch's version, where the build is refused as one that is not known here.
    type: str
    required: true
  cuda:
    description: The CUDA that it is built for, or V(cpu), in the same case. Without it, conda chooses.
    type: str
  companions:
    description: V(torchvision) and V(torchaudio), as far as they are wanted.
    type: list
    elements: str
    default: []
  blas:
    description: V(mkl), or V(generic) for OpenBLAS. Without it, conda chooses.
    type: str
"""

EXAMPLES = r"""
- name: Show the packages
  ansible.builtin.debug:
    msg: "{{ build | torchfleet.cluster.conda_torch('2.13.0', companions=['torchvision']) }}"
  vars:
    build: "{{ stack | torchfleet.cluster.torch_build([]) }}"
    stack: {torch: 2.13.0, torch_source: conda, torch_cuda: cpu}
"""

RETURN = r"""
_value:
  description: The packages.
  type: list
  elements: str
  sample: ["pytorch=2.13.0=cuda129*", "torchvision=0.28.0=cuda129*", "cuda-version=12.9"]
"""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible_collections.torchfleet.cluster.plugins.module_utils._conda import torch_specs


def conda_torch(
    build: Mapping[str, Any],
    torch: str,
    cuda: Optional[str] = None,
    companions: Sequence[str] = (),
    blas: Optional[str] = None,
) -> List[str]:
    """The packages; see `_conda.torch_specs`."""
    return torch_specs(build, torch, cuda, list(companions), blas)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"conda_torch": conda_torch}
