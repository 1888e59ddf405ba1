#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_facts
short_description: Gather facts about what a Python interpreter really loads
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Lets the interpreter that runs the training say which torch, CUDA, cuDNN and NCCL it loads, from which paths,
    whether CUDA is available and why not, and which packages, compilers and C(nvcc) are there.
  - Torch is imported in a process of its own. An import that fails, crashes or hangs is a result of this module.
  - No GPU, no torch and no interpreter are results of this module too, never a failure of it.
  - Changes nothing on the node.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.facts
attributes:
  check_mode:
    support: full
    details: The module changes nothing.
  diff_mode:
    support: none
  facts:
    support: full
  platform:
    support: full
    platforms: linux
options:
  python:
    description:
      - Path of the interpreter.
    type: path
    default: /opt/torchfleet/venv/bin/python
  environment:
    description:
      - Variables that a run adds to its environment, for example E(LD_LIBRARY_PATH) or E(CUDA_VISIBLE_DEVICES).
    type: dict
    default: {}
  import_torch:
    description:
      - Whether to import torch, which takes seconds.
      - Without it RV(torch.status) is V(skipped), and the libraries are those that the dynamic linker's search gives.
    type: bool
    default: true
  timeout:
    description:
      - Seconds that the import of torch and the start of CUDA may take together.
    type: int
    default: 120
notes:
  - The same values are returned as RV(ansible_facts.torchfleet_runtime) and at the top of the result.
seealso:
  - module: torchfleet.cluster.nccl_facts
  - module: torchfleet.cluster.gpu_facts
"""

EXAMPLES = r"""
- name: Gather facts about the interpreter of the training
  torchfleet.cluster.runtime_facts:
  register: runtime

- name: Stop where torch cannot use the GPUs
  ansible.builtin.assert:
    that: runtime.torch.cuda_available
    fail_msg: "{{ runtime.torch.cuda_reason }}: {{ runtime.torch.cuda_message }}"

- name: See what an LD_LIBRARY_PATH does to the libraries
  torchfleet.cluster.runtime_facts:
    python: /opt/conda/envs/train/bin/python
    environment:
      LD_LIBRARY_PATH: /usr/local/cuda/lib64

- name: Look at versions only, quickly
  torchfleet.cluster.runtime_facts:
    import_torch: false
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    torchfleet_runtime:
      description: All of the values below, under the same names.
      returned: always
      type: dict
      sample: {"python": {"status": "ok"}, "torch": {"status": "not_installed"}}
python:
  description:
    - The interpreter. C(path), C(status) (V(ok), V(no_interpreter), V(failed), V(crashed) or V(timeout)), C(problem),
      C(executable), C(version), C(implementation), C(prefix), C(base_prefix), C(is_conda), C(libc) and C(headers)
      (whether extensions can be compiled).
  returned: always
  type: dict
  sample:
    {"path": "/opt/torchfleet/venv/bin/python", "status": "ok", "problem": "", "version": "3.11.7",
     "executable": "/opt/torchfleet/venv/bin/python", "implementation": "CPython", "prefix": "/opt/torchfleet/venv",
     "base_prefix": "/usr", "is_conda": false, "libc": "glibc 2.36", "headers": true}
torch:
  description: What the import of torch gave.
  returned: always
  type: dict
  contains:
    status:
      description:
        - V(ok), V(not_installed), V(missing_library), V(symbol_mismatch), V(import_failed), V(crashed), V(timeout),
          V(skipped) or V(no_interpreter).
      type: str
      returned: always
      sample: ok
    problem:
      description: What went wrong, in Python's or the system's words.
      type: str
      returned: always
      sample: ""
    version:
      description: Version, with its local part.
      type: str
      returned: always
      sample: 2.9.1+cu128
    path:
      description: Directory from which it was imported.
      type: str
      returned: always
      sample: /opt/torchfleet/venv/lib/python3.11/site-packages/torch
    cuda:
      description: CUDA version it was built with. V(null) for a build without CUDA.
      type: str
      returned: always
      sample: "12.8"
    hip:
      description: ROCm version it was built with. V(null) for a build without ROCm.
      type: str
      returned: always
      sample: null
    cudnn:
      description: cuDNN version it runs with.
      type: str
      returned: always
      sample: 9.10.2
    nccl:
      description: NCCL version that the loaded library tells.
      type: str
      returned: always
      sample: 2.27.5
    nccl_built_with:
      description: NCCL version it was compiled with, which is what C(torch.cuda.nccl.version()) answers.
      type: str
      returned: always
      sample: 2.27.5
    arch_list:
      description: GPU architectures it has code for.
      type: list
      elements: str
      returned: always
      sample: [sm_80, sm_90]
    cxx11_abi:
      description: Whether it was built with the C++11 ABI. Extensions must agree.
      type: bool
      returned: always
      sample: true
    distributed:
      description: Whether torch.distributed is there.
      type: bool
      returned: always
      sample: true
    gloo:
      description: Whether its gloo backend is there.
      type: bool
      returned: always
      sample: true
    import_seconds:
      description: Seconds that the import took.
      type: float
      returned: always
      sample: 2.1
    cuda_available:
      description: What C(torch.cuda.is_available()) says. V(null) if it was not asked.
      type: bool
      returned: always
      sample: true
    cuda_reason:
      description:
        - Why CUDA is not available, or not for every GPU. V(cpu_build), V(no_driver), V(driver_too_old),
          V(library_mismatch), V(no_gpu), V(hidden), V(not_initialized), V(unsupported_gpu), V(crashed), V(timeout) or
          V(unknown_error).
      type: str
      returned: always
      sample: ""
    cuda_message:
      description: The same in a sentence.
      type: str
      returned: always
      sample: ""
    devices:
      description: GPUs as torch sees them, with C(index), C(name) and C(capability).
      type: list
      elements: dict
      returned: always
      sample: [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "capability": [9, 0]}]
    unsupported_devices:
      description: GPUs that this build has no code for.
      type: list
      elements: str
      returned: always
      sample: []
packages:
  description:
    - Version and location of torch, torchvision, torchaudio, accelerate, deepspeed, colossalai, transformers, triton
      and numpy, as their metadata tell. V(null) for each that is not installed.
  returned: always
  type: dict
  sample:
    {"torch": {"version": "2.9.1", "location": "/opt/torchfleet/venv/lib/python3.11/site-packages"}, "numpy": null}
libraries:
  description:
    - The library that is loaded for each of nccl, cudnn, cublas, cublasLt, cudart and nvJitLink, as
      M(torchfleet.cluster.nccl_facts) describes RV(torchfleet.cluster.nccl_facts#module:nccl). If torch could be
      imported, paths are those that the process really mapped.
  returned: always
  type: dict
  sample:
    nccl:
      {"name": "nccl", "path": "/opt/torchfleet/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2",
       "version": "2.27.5", "origin": "wheel", "found_by": "rpath", "shadowed_by": "", "duplicate": false, "ahead": [],
       "copies": [], "problem": ""}
shadowed:
  description: Names of the libraries for which something outside comes before the copy that the packages bring.
  returned: always
  type: list
  elements: str
  sample: []
mapped:
  description: CUDA's libraries, the driver's C(libcuda) too, that the process had mapped after the import of torch.
  returned: always
  type: list
  elements: str
  sample: [/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06]
ld_library_path:
  description: Directories of E(LD_LIBRARY_PATH) as the interpreter got it.
  returned: always
  type: list
  elements: str
  sample: [/usr/local/cuda/lib64]
compilers:
  description: The compilers C(cc), C(gcc), C(g++) and C(clang), each with C(path) and C(version), or V(null).
  returned: always
  type: dict
  sample: {"gcc": {"path": "/usr/bin/gcc", "version": "12.2.0"}, "clang": null}
nvcc:
  description: Each C(nvcc) found, best first, with C(path), C(version) and C(found_by).
  returned: always
  type: list
  elements: dict
  sample: [{"path": "/usr/local/cuda/bin/nvcc", "version": "12.8.93", "found_by": "/usr/local/cuda"}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._gather_runtime import gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "default": "/opt/torchfleet/venv/bin/python"},
            "environment": {"type": "dict", "default": {}},
            "import_torch": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg=f"timeout is {module.params['timeout']}, wanted seconds, 1 or more")
    facts = gather(module)
    module.exit_json(changed=False, ansible_facts={"torchfleet_runtime": facts}, **facts)


if __name__ == "__main__":
    main()
