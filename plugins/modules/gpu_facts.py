#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Gather facts about the NVIDIA GPUs of a node and their health
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Reads what C(nvidia-smi) tells of the GPUs, of the driver and of the ways between GPUs and network cards.
  - Says in whole sentences what is unhealthy.
  - A node without a GPU, without a driver or with a broken one is a result of this module, never a failure of it.
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
  executable:
    description:
      - Path of C(nvidia-smi).
      - If not given, it is looked for in E(PATH), and then in C(/usr/lib/wsl/lib), C(/opt/bin),
        C(/usr/local/nvidia/bin) and C(/run/nvidia/driver/usr/bin).
    type: path
  timeout:
    description:
      - Seconds that each call of C(nvidia-smi) may take.
      - A call that takes longer is given up, even where the process cannot be killed because it hangs in the driver.
    type: float
    default: 30
notes:
  - The same values are returned as RV(ansible_facts.torchfleet_gpu) and at the top of the result.
seealso:
  - name: nvidia-smi
    description: The manual of the tool, its fields and its exit codes.
    link: https://docs.nvidia.com/deploy/nvidia-smi/
"""

EXAMPLES = r"""
- name: Gather facts about the GPUs
  torchfleet.cluster.gpu_facts:
  register: gpu

- name: Stop at a node whose GPUs are not healthy
  ansible.builtin.assert:
    that: gpu.problems | length == 0
    fail_msg: "{{ gpu.problems | join('\n') }}"

- name: Show the memory of each GPU in GiB
  ansible.builtin.debug:
    msg: "{{ ansible_facts['torchfleet_gpu'].gpus | map(attribute='memory_bytes') | map('human_readable') }}"

- name: Ask a node whose driver answers slowly because persistence mode is off
  torchfleet.cluster.gpu_facts:
    timeout: 120
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    torchfleet_gpu:
      description: All of the values below, under the same names.
      returned: always
      type: dict
      sample: {"status": "ok", "gpus": []}
status:
  description:
    - What is the matter with the driver.
    - V(ok), the driver answers for all its GPUs. They may still be unhealthy, see RV(problems).
    - V(partial), it answers for some of them. Others are lost, or what C(nvidia-smi) printed was incomplete.
    - V(not_installed), there is no C(nvidia-smi). RV(pci_gpus) tells whether there is a GPU to drive.
    - V(not_loaded), the kernel module is not loaded or does not answer.
    - V(library_mismatch), kernel module and libraries are of different versions, as after an upgrade without a reboot.
    - V(library_missing), C(nvidia-smi) is there and C(libnvidia-ml.so.1) is not.
    - V(no_permission), access is denied.
    - V(no_devices), the driver answers and has no GPU.
    - V(gpu_lost), a GPU has fallen off the bus, and C(nvidia-smi) therefore tells nothing at all.
    - V(timeout), C(nvidia-smi) did not answer in time.
    - V(unknown_error), anything else. RV(reason) has the words of C(nvidia-smi).
  returned: always
  type: str
  sample: ok
reason:
  description: The status in a sentence, with the words of C(nvidia-smi) where it failed.
  returned: always
  type: str
  sample: the driver answers for all its 8 GPUs
driver_version:
  description: Version of the driver (of its kernel module, which driver 610 and later call KMD). V(null) if unknown.
  returned: always
  type: str
  sample: 580.65.06
cuda_version:
  description: Newest version of CUDA that the driver supports (from driver 610 on called CUDA UMD). V(null) if unknown.
  returned: always
  type: str
  sample: "13.0"
attached_gpus:
  description: Number of GPUs that C(nvidia-smi) announces. V(null) if it announces none.
  returned: always
  type: int
  sample: 8
gpus:
  description:
    - The GPUs in the order of their index. What the driver does not tell is V(null).
    - The index is the place by PCI address, which is how C(nvidia-smi) and, with E(CUDA_DEVICE_ORDER=PCI_BUS_ID), CUDA
      count. If GPUs are missing from the record, the minor numbers tell the index of those that are left.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: Index of the GPU as C(nvidia-smi) counts.
      returned: always
      type: int
      sample: 0
    uuid:
      description: UUID of the GPU. Empty if it cannot be read.
      returned: always
      type: str
      sample: GPU-5f1c0c58-1a53-4cb0-9e3f-0d5a4c7b6e21
    model:
      description: Name of the product. Empty if it cannot be read.
      returned: always
      type: str
      sample: NVIDIA H100 80GB HBM3
    architecture:
      description: Architecture. Empty for drivers before 495, which do not tell.
      returned: always
      type: str
      sample: Hopper
    memory_bytes:
      description: Total of the frame buffer. V(0) if it cannot be read.
      returned: always
      type: int
      sample: 85520809984
    memory_used_bytes:
      description: Frame buffer in use.
      returned: always
      type: int
      sample: 4194304
    pci_address:
      description: PCI address as C(/sys/bus/pci/devices) has it.
      returned: always
      type: str
      sample: "0000:1b:00.0"
    minor_number:
      description: The number N of C(/dev/nvidiaN).
      returned: always
      type: int
      sample: 0
    serial:
      description: Serial number of the board.
      returned: always
      type: str
      sample: "1650523000000"
    brand:
      description: Brand of the product.
      returned: always
      type: str
      sample: NVIDIA
    vbios:
      description: Version of the VBIOS.
      returned: always
      type: str
      sample: 96.00.74.00.01
    virtualization:
      description: Virtualization mode, V(None) on bare metal.
      returned: always
      type: str
      sample: Pass-Through
    lost:
      description: Whether the driver can no longer reach the GPU. Such a GPU cannot take part in a run.
      returned: always
      type: bool
      sample: false
    persistence:
      description: Whether persistence mode is on.
      returned: always
      type: bool
      sample: true
    compute_mode:
      description: Compute mode.
      returned: always
      type: str
      sample: Default
    performance_state:
      description: Performance state, V(P0) is the fastest.
      returned: always
      type: str
      sample: P0
    mig:
      description: MIG mode now (C(current)) and after the next reset (C(pending)), and the instances.
      returned: always
      type: dict
      sample:
        current: true
        pending: true
        instances:
          - index: 0
            gpu_instance_id: 1
            compute_instance_id: 0
            profile: 3g.40gb
            uuid: MIG-2a1c5b1e-8a0f-5d0f-9b4f-6a6e9d0c7f10
            memory_bytes: 42144366592
            multiprocessors: 60
    ecc:
      description:
        - ECC mode now and after the next reset, counts of errors since the driver was loaded (C(volatile)) and over the
          GPU's life (C(aggregate)), rows remapped and pages retired because of them.
      returned: always
      type: dict
      sample:
        current: true
        pending: true
        volatile: {corrected: 0, uncorrected: 0}
        aggregate: {corrected: 3, uncorrected: 0}
        row_remap: {corrected: 0, uncorrected: 0, pending: false, failure: false}
        retired_pages: {single_bit: null, double_bit: null, pending: null}
    clocks:
      description: Clocks in MHz.
      returned: always
      type: dict
      sample: {graphics: 1980, sm: 1980, memory: 2619, video: 1545}
    clocks_max:
      description: The fastest clocks in MHz.
      returned: always
      type: dict
      sample: {graphics: 1980, sm: 1980, memory: 2619, video: 1545}
    throttle_reasons:
      description: Names of the reasons that hold the clocks down now.
      returned: always
      type: list
      elements: str
      sample: [gpu_idle]
    power:
      description: Draw and limits in watts, and the power state.
      returned: always
      type: dict
      sample: {draw: 71.3, limit: 700.0, default_limit: 700.0, min_limit: 200.0, max_limit: 700.0, state: P0}
    temperature:
      description: Temperatures of GPU and memory, and those at which it slows down and shuts down, in degrees Celsius.
      returned: always
      type: dict
      sample: {gpu: 31, memory: 40, slowdown: 87, shutdown: 92}
    processes:
      description: Processes on the GPU. C(kind) is V(C) for compute, V(G) for graphics, V(C+G) for both.
      returned: always
      type: list
      elements: dict
      sample:
        - pid: 4711
          kind: C
          name: /opt/torchfleet/venv/bin/python
          memory_bytes: 17179869184
          gpu_instance_id: null
          compute_instance_id: null
    fabric:
      description: State of the NVLink fabric of NVSwitch systems.
      returned: always
      type: dict
      sample: {state: Completed, status: Success, clique_id: 0, cluster_uuid: null, health: {bandwidth: Full}}
    nvlink:
      description: Number of NVLinks that are up and in all, and the speed of each in GB/s. V(null) if it has none.
      returned: always
      type: dict
      sample: {active: 2, total: 2, speeds: [26.562, 26.562]}
    pcie:
      description: Generation and width of the PCIe link. The generation falls when the GPU is idle.
      returned: always
      type: dict
      sample: {generation: 5, generation_max: 5, width: 16, width_max: 16}
    numa_node:
      description: NUMA node that the GPU is attached to.
      returned: always
      type: int
      sample: 0
    cpu_affinity:
      description: CPUs close to the GPU.
      returned: always
      type: str
      sample: 0-51,104-155
    problems:
      description: What is unhealthy, each a predicate that follows the GPU's name.
      returned: always
      type: list
      elements: str
      sample: ["has failed to remap bad memory rows: replace it"]
    notes:
      description: What is worth knowing and is no fault.
      returned: always
      type: list
      elements: str
      sample: [ECC is switched on at the next reset]
topology:
  description:
    - The matrix of C(nvidia-smi topo -m). V(null) if there is none.
    - C(links) has the code of the way from each device to each other, C(nics) the names of RDMA devices that the matrix
      calls NIC0 and so on, C(complete) whether no row and no cell was missing.
  returned: always
  type: dict
  sample:
    devices: [GPU0, NIC0]
    links: {GPU0: {GPU0: X, NIC0: PIX}, NIC0: {GPU0: PIX, NIC0: X}}
    cpu_affinity: {GPU0: 0-51}
    numa_affinity: {GPU0: "0"}
    gpu_numa_id: {}
    nics: {NIC0: mlx5_0}
    legend: {PIX: Connection traversing at most a single PCIe bridge}
    complete: true
pci_gpus:
  description:
    - NVIDIA GPUs on the PCI bus, whether a driver knows them or not. C(driver) is the kernel driver bound to each,
      C(known_to_driver) whether the NVIDIA driver lists it under C(/proc/driver/nvidia/gpus).
  returned: always
  type: list
  elements: dict
  sample:
    - address: "0000:1b:00.0"
      driver: nvidia
      numa_node: 0
      cpu_affinity: 0-51
      known_to_driver: true
problems:
  description: Everything that is unhealthy, of the driver and of each GPU, in sentences. Empty on a healthy node.
  returned: always
  type: list
  elements: str
  sample: ["GPU 3 (0000:5d:00.0) has had 2 uncorrected ECC errors since its driver was loaded: reset it"]
notes:
  description: What is worth knowing and is no fault, in sentences.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _nvidia_smi
from ansible_collections.torchfleet.cluster.plugins.module_utils._gather_gpu import gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "executable": {"type": "path"},
            "timeout": {"type": "float", "default": 30},
        },
        supports_check_mode=True,
    )
    if module.params["timeout"] <= 0:
        module.fail_json(msg=f"timeout is {module.params['timeout']:g}, wanted seconds above 0")
    facts = _nvidia_smi.to_facts(gather(module))
    module.exit_json(changed=False, ansible_facts={"torchfleet_gpu": facts}, **facts)


if __name__ == "__main__":
    main()
