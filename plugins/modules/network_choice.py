#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: network_choice
short_description: Choose the network that training can really use
version_added: 0.1.0
description:
  - Takes the facts of all nodes and the links that M(torchfleet.cluster.network_probe) measured, and chooses one
    interface per node so that every node reaches every other one at its chosen address, both ways.
  - Real interfaces come before virtual ones and tunnels. Of several networks the one whose slowest link is fastest
    wins. Interface names may differ from node to node.
  - Chooses InfiniBand or RoCE where every node has active ports, and the RoCE v2 GID index where NCCL does not choose
    that itself.
  - Fails with the matrix of who reaches whom, and with one sentence on what to change, where no choice connects all.
  - Runs on the controller and connects to no node. Use it with C(run_once).
options:
  nodes:
    description:
      - One element for each node, with C(name), C(interfaces) and where known C(rdma) (the RDMA devices) and
        C(nccl_version), as M(torchfleet.cluster.nccl_facts) returns them.
      - C(interface) and C(address) are the user's own choice for this node. They win, and are checked.
    type: list
    elements: dict
    required: true
  links:
    description: What M(torchfleet.cluster.network_probe) returned as RV(torchfleet.cluster.network_probe#module:links),
      of all nodes in one list.
    type: list
    elements: dict
    required: true
  network:
    description: Networks in CIDR notation that the addresses must be in. Unset, all are considered.
    type: list
    elements: str
  transport:
    description: What NCCL is to use. V(auto) takes InfiniBand, RoCE or TCP, in this order, as the nodes can.
    type: str
    choices: [auto, tcp, ib, roce]
    default: auto
attributes:
  action:
    description: Runs on the controller.
    support: full
  check_mode:
    description: Changes nothing, in check mode or out of it.
    support: full
  diff_mode:
    description: There is nothing to show, because nothing changes.
    support: none
author:
  - The torchfleet authors (@torchfleet)
seealso:
  - module: torchfleet.cluster.network_probe
"""

EXAMPLES = r"""
- name: Choose the network
  torchfleet.cluster.network_choice:
    nodes: "{{ ansible_play_hosts | map('extract', hostvars, '__network_node') | list }}"
    links: "{{ ansible_play_hosts | map('extract', hostvars, ['__probed', 'links']) | flatten(levels=1) }}"
    network: "{{ torchfleet_network | default(omit) }}"
  run_once: true
  register: __network
"""

RETURN = r"""
nodes:
  description: What each node uses, by node name.
  returned: success
  type: dict
  sample:
    node1:
      name: node1
      interface: eth1
      address: 10.0.0.1
      hcas: ["mlx5_0:1"]
      gid_index: 3
      path_mtu: 9000
transport:
  description: V(ib), V(roce) or V(tcp).
  returned: success
  type: str
  sample: roce
slowest_mbps:
  description: Megabits a second of the slowest ordered pair, measured or nominal. Empty for a single node.
  returned: success
  type: float
  sample: 100000
reasons:
  description: Why each choice was made.
  returned: success
  type: list
  elements: dict
  sample:
    - subject: node1 interface
      choice: eth1 10.0.0.1
      because: every other node reaches it and is reached from it; slowest link 100000 Mb/s (nominal, node1 to node2)
cautions:
  description: Sentences on what works and should be better. Shown as warnings too.
  returned: success
  type: list
  elements: str
  sample: []
problems:
  description: Sentences on what stands in the way. The first one says what to change.
  returned: failure
  type: list
  elements: str
  sample: ["torchfleet_interface of node1 is eth9, which cannot be used (there is no such interface)"]
matrix:
  description: Who reaches whom, as text.
  returned: failure
  type: str
  sample: ""
"""
