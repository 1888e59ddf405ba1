#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_facts
short_description: Gather facts about all that NCCL and gloo depend on
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Reads the node's network interfaces, routes and RDMA devices, the NCCL and cuDNN that an interpreter would load,
    NCCL's plugins, what GPUDirect needs, limits, shared memory, and the NCCL and gloo variables already set somewhere.
  - Interfaces are told apart by what they are, not by their names.
  - Missing hardware, a missing tool or a missing interpreter is a result of this module, never a failure of it.
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
      - Path of the interpreter that runs the training. It is asked which NCCL and cuDNN its programs would load.
      - Torch is not imported for this.
    type: path
    default: /opt/torchfleet/venv/bin/python
  environment:
    description:
      - Variables that a run adds to its environment, for example E(LD_LIBRARY_PATH). They decide what it loads.
    type: dict
    default: {}
  home:
    description:
      - Home directory in which to look for files that set variables.
      - If not given, that of the user who runs the module.
    type: path
  vendor_tools:
    description:
      - Whether to ask C(ibv_devinfo), C(show_gids), C(ibdev2netdev) and C(lspci) too, where they are installed.
      - The kernel's own files say the same, apart from the ports' active MTU. The tools take seconds on a node with
        many devices.
    type: bool
    default: false
notes:
  - The same values are returned as RV(ansible_facts.torchfleet_nccl) and at the top of the result.
  - Limits are those of the session in which the module runs. With C(become) that is a session of C(sudo).
seealso:
  - module: torchfleet.cluster.runtime_facts
  - module: torchfleet.cluster.gpu_facts
  - name: NCCL's environment variables
    description: The variables that NCCL reads, and its configuration files.
    link: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

EXAMPLES = r"""
- name: Gather facts about network, NCCL and limits
  torchfleet.cluster.nccl_facts:
  register: nccl

- name: Show which interfaces training could use
  ansible.builtin.debug:
    msg: "{{ nccl.interfaces | selectattr('is_candidate') | sort(attribute='rank') | map(attribute='name') }}"

- name: Find the library that a run with an LD_LIBRARY_PATH of its own would load
  torchfleet.cluster.nccl_facts:
    python: /opt/conda/envs/train/bin/python
    environment:
      LD_LIBRARY_PATH: /usr/local/cuda/lib64

- name: Name the files in which somebody has set NCCL variables
  ansible.builtin.debug:
    msg: "{{ ansible_facts['torchfleet_nccl'].variables | map(attribute='source') | unique }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    torchfleet_nccl:
      description: All of the values below, under the same names.
      returned: always
      type: dict
      sample: {"interfaces": [], "rdma": []}
interfaces:
  description: Network interfaces in the kernel's order.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name.
      type: str
      returned: always
      sample: enp65s0f0np0
    kind:
      description:
        - What it is. One of V(loopback), V(ethernet), V(infiniband), V(wireless), V(usb), V(bmc), V(bond), V(team),
          V(bridge), V(openvswitch), V(vlan), V(macvlan), V(ipvlan), V(veth), V(tun), V(wireguard), V(vxlan), V(tunnel),
          V(dummy), V(vrf), V(other).
      type: str
      returned: always
      sample: ethernet
    state:
      description: V(up) or V(down).
      type: str
      returned: always
      sample: up
    down_reason:
      description: Why it is down.
      type: str
      returned: always
      sample: no carrier
    addresses:
      description:
        - Addresses with RV(interfaces[].addresses[].address), C(prefix), C(family) (V(ipv4) or V(ipv6)), C(scope),
          C(peer) on a point-to-point link, C(link_local), C(usable) and C(flags).
      type: list
      elements: dict
      returned: always
      contains:
        address:
          description: The address.
          type: str
          returned: always
          sample: 10.0.0.1
      sample:
        - {"address": "10.0.0.1", "prefix": 24, "family": "ipv4", "scope": "global", "peer": null, "link_local": false,
           "usable": true, "flags": []}
    mtu:
      description: MTU in bytes.
      type: int
      returned: always
      sample: 9000
    speed_mbps:
      description: Speed in megabits a second. V(null) if the driver does not tell, or only tells a made-up figure.
      type: int
      returned: always
      sample: 100000
    mac:
      description: Hardware address.
      type: str
      returned: always
      sample: 02:00:00:00:00:01
    ifindex:
      description: The kernel's number.
      type: int
      returned: always
      sample: 2
    driver:
      description: Driver.
      type: str
      returned: always
      sample: mlx5_core
    bus:
      description: Bus of the device, V(pci), V(usb), V(virtio), V(vmbus) and so on.
      type: str
      returned: always
      sample: pci
    pci_address:
      description: PCI address of the device.
      type: str
      returned: always
      sample: "0000:41:00.0"
    numa_node:
      description: NUMA node. V(null) if there is none.
      type: int
      returned: always
      sample: 0
    master:
      description: The bond, bridge or VRF that it is a member of.
      type: str
      returned: always
      sample: bond0
    lower:
      description: Interfaces of this node that it stands on.
      type: list
      elements: str
      returned: always
      sample: [eno1, eno2]
    hardware:
      description: The real network cards at the bottom, itself included. Empty on a bridge for containers.
      type: list
      elements: str
      returned: always
      sample: [eno1, eno2]
    vlan_id:
      description: VLAN number.
      type: int
      returned: always
      sample: 2093
    bond_mode:
      description: Mode of a bond.
      type: str
      returned: always
      sample: 802.3ad
    peer_elsewhere:
      description: Whether its other end or parent is in another network namespace.
      type: bool
      returned: always
      sample: false
    rdma_device:
      description: RDMA device of the same port.
      type: str
      returned: always
      sample: mlx5_0
    alt_names:
      description: Other names.
      type: list
      elements: str
      returned: always
      sample: [enp4s0]
    is_virtual_function:
      description: Whether it is an SR-IOV virtual function.
      type: bool
      returned: always
      sample: false
    is_bmc:
      description: Whether it leads to the board's management controller.
      type: bool
      returned: always
      sample: false
    link_local_only:
      description: Whether all its addresses are link-local.
      type: bool
      returned: always
      sample: false
    is_candidate:
      description: Whether training could use it. Only a measurement tells whether peers can be reached.
      type: bool
      returned: always
      sample: true
    rank:
      description: How good its kind is, V(0) for real network cards and what stands on them.
      type: int
      returned: always
      sample: 0
    candidate_reason:
      description: Why it has that rank, or is no candidate.
      type: str
      returned: always
      sample: hardware
routes:
  description:
    - Routes of the main table, a multipath route once a hop. Each has C(destination) (a CIDR), C(interface), C(family),
      C(gateway), C(source), C(metric), C(scope) and C(protocol).
  returned: always
  type: list
  elements: dict
  sample:
    - {"destination": "0.0.0.0/0", "interface": "eno1", "family": "ipv4", "gateway": "10.0.0.254", "source": "",
       "metric": 100, "scope": "global", "protocol": "dhcp"}
rdma:
  description: RDMA devices, V(mlx5_2) before V(mlx5_10).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name.
      type: str
      returned: always
      sample: mlx5_0
    hca_type:
      description: Type as the driver names it.
      type: str
      returned: always
      sample: MT4129
    model:
      description: Model, if the type is known.
      type: str
      returned: always
      sample: ConnectX-7
    firmware:
      description: Firmware version.
      type: str
      returned: always
      sample: 28.41.1000
    board_id:
      description: Board identifier.
      type: str
      returned: always
      sample: MT_0000000838
    node_guid:
      description: GUID.
      type: str
      returned: always
      sample: "0002:c903:0000:0001"
    transport:
      description: V(ib), V(roce), V(iwarp) or V(other).
      type: str
      returned: always
      sample: ib
    driver:
      description: Driver.
      type: str
      returned: always
      sample: mlx5_core
    pci_address:
      description: PCI address.
      type: str
      returned: always
      sample: "0000:41:00.0"
    numa_node:
      description: NUMA node. V(null) if there is none.
      type: int
      returned: always
      sample: 0
    is_virtual_function:
      description: Whether it is an SR-IOV virtual function.
      type: bool
      returned: always
      sample: false
    is_soft:
      description: Whether it is emulated in software, as Soft-RoCE is.
      type: bool
      returned: always
      sample: false
    ports:
      description:
        - Ports with C(port), C(state) (V(ACTIVE), V(DOWN), V(INIT), V(ARMED)), C(phys_state), C(rate_gbps),
          C(link_layer), C(netdev), C(active_mtu) (only with O(vendor_tools=true)), C(nccl_name),
          C(roce_v2_gid_index) and C(gids).
        - Each GID has C(index), C(gid), C(type) (V(IB), V(RoCE v1) or V(RoCE v2)), C(ipv4), C(netdev) and
          C(link_local).
      type: list
      elements: dict
      returned: always
      sample:
        - {"port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "rate_gbps": 400.0, "link_layer": "Ethernet",
           "netdev": "enp65s0f0np0", "active_mtu": null, "roce_v2_gid_index": 3, "nccl_name": "mlx5_0:1",
           "gids": [{"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2",
                     "ipv4": "10.0.0.1", "netdev": "enp65s0f0np0", "link_local": false}]}
rdma_problems:
  description: Lines in which a vendor tool complained.
  returned: always
  type: list
  elements: str
  sample: ["ibpanic: [42] main: stat of IB device 'mlx5_8' failed: No such file or directory"]
python:
  description:
    - The interpreter. C(path), C(status) (V(ok), V(no_interpreter), V(failed), V(crashed) or V(timeout)), C(problem)
      and C(version).
  returned: always
  type: dict
  sample: {"path": "/opt/torchfleet/venv/bin/python", "status": "ok", "problem": "", "version": "3.11.7"}
nccl:
  description: The NCCL that programs of this interpreter load.
  returned: always
  type: dict
  contains: &library
    name:
      description: Name of the library.
      type: str
      returned: always
      sample: nccl
    path:
      description: Path from which it is loaded. Empty if none is.
      type: str
      returned: always
      sample: /opt/torchfleet/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2
    version:
      description: Version that the library itself tells, or its wheel.
      type: str
      returned: always
      sample: 2.27.5
    origin:
      description: V(wheel), V(torch), V(conda) or V(system).
      type: str
      returned: always
      sample: wheel
    found_by:
      description:
        - How the dynamic linker gets there, V(preload), V(rpath), V(ld_library_path), V(runpath), V(wheel), V(cache) or
          V(default). V(mapped) where only the process itself could tell.
      type: str
      returned: always
      sample: rpath
    shadowed_by:
      description:
        - What put this copy before the one that the interpreter's packages bring, V(LD_LIBRARY_PATH), V(LD_PRELOAD) or
          V(system). Empty if nothing did.
      type: str
      returned: always
      sample: ""
    duplicate:
      description: Whether another file, or another wheel in the same file, offers the same major version.
      type: bool
      returned: always
      sample: false
    ahead:
      description: Copies in E(LD_LIBRARY_PATH). Other programs take them even where torch does not.
      type: list
      elements: str
      returned: always
      sample: []
    copies:
      description:
        - All copies that were found, with C(path), C(real_path), C(places), C(origin), C(version), C(told_by),
          C(problem) and C(packages).
      type: list
      elements: dict
      returned: always
      sample: []
    problem:
      description: Why there is no path or no version.
      type: str
      returned: always
      sample: ""
cudnn:
  description: The cuDNN that programs of this interpreter load.
  returned: always
  type: dict
  contains: *library
plugins:
  description:
    - Network, tuner and profiler plugins of NCCL with C(path), C(kind), C(name) (what E(NCCL_NET_PLUGIN) would have to
      say, empty for the default), C(found_by_nccl) and C(sha256).
  returned: always
  type: list
  elements: dict
  sample:
    - path: /opt/amazon/ofi-nccl/lib/libnccl-net.so
      kind: net
      name: ""
      found_by_nccl: true
      sha256: 9f2c41d07be5...
net_plugins:
  description: The network plugins that NCCL can load, each with the beginning of its SHA-256; C(none) without any.
  returned: always
  type: str
  sample: /opt/amazon/ofi-nccl/lib/libnccl-net.so (9f2c41d07be5)
gpudirect:
  description:
    - C(peer_memory_module) is the kernel module that lets a network card reach GPU memory, if it is loaded; C(dmabuf)
      says whether the kernel's side of the other way is there (C(supported), V(null) if unknown, and C(reason));
      C(gdrcopy) whether GDRCopy's device is there.
  returned: always
  type: dict
  sample: {"peer_memory_module": "nvidia_peermem", "dmabuf": {"supported": true, "reason": ""}, "gdrcopy": false}
acs:
  description:
    - PCIe Access Control Services. C(status) is V(enabled) where some bridge sends peer traffic through the root
      complex, V(disabled), V(absent) or V(unknown) (only root can read it); C(reason), C(bridges) and C(redirecting).
  returned: always
  type: dict
  sample: {"status": "disabled", "reason": "", "bridges": 24, "redirecting": []}
iommu:
  description: C(status) is V(off), V(passthrough), V(translated) or V(unknown), with C(reason) and what it stands on.
  returned: always
  type: dict
  sample: {"status": "off", "reason": "no IOMMU is in use", "units": 0, "kernel_arguments": [], "group_types": []}
limits:
  description:
    - C(memlock) in bytes and C(nofile), each with C(soft) and C(hard) as this session has them, and C(systemd), what
      a unit gets that sets nothing. V(-1) is unlimited, V(null) unknown.
  returned: always
  type: dict
  sample:
    memlock: {"soft": -1, "hard": -1, "systemd": 8388608}
    nofile: {"soft": 1024, "hard": 1048576, "systemd": 524288}
shm:
  description: Size and free space of C(/dev/shm) in bytes and its file system. V(null) for each if there is none.
  returned: always
  type: dict
  sample: {"path": "/dev/shm", "size_bytes": 67108864, "free_bytes": 67108864, "filesystem": "tmpfs"}
ephemeral_ports:
  description: The kernel's range of ports for outgoing connections, and the ports it leaves out of it.
  returned: always
  type: dict
  sample: {"first": 32768, "last": 60999, "reserved": ""}
variables:
  description:
    - NCCL and gloo variables set anywhere, with C(name), C(value), C(source) (a file or V(environment)), C(line),
      C(dialect), C(effective) and C(note).
  returned: always
  type: list
  elements: dict
  sample:
    - {"name": "NCCL_IB_DISABLE", "value": "1", "source": "/etc/profile.d/nccl.sh", "line": 3, "dialect": "shell",
       "effective": true, "note": ""}
nccl_reads:
  description: The value of each variable as NCCL would see it in a process that got nothing from a shell's files.
  returned: always
  type: dict
  sample: {"NCCL_SOCKET_IFNAME": "=eno1"}
contradictions:
  description: Variables that different places set to different values, each with those places.
  returned: always
  type: dict
  sample: {}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._gather_nccl import gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "default": "/opt/torchfleet/venv/bin/python"},
            "environment": {"type": "dict", "default": {}},
            "home": {"type": "path"},
            "vendor_tools": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    facts = gather(module)
    module.exit_json(changed=False, ansible_facts={"torchfleet_nccl": facts}, **facts)


if __name__ == "__main__":
    main()
