#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done on the controller by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_bench
short_description: Plan and judge measurements of links, devices and collectives
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Says which nodes of the group named by C(torchfleet_group) measure what with whom, compares the figures with what
    the hardware can carry, with each other and with the run before, prints a table and the findings, and writes them
    as JSON and as one page of HTML.
  - Role C(bench) measures and calls this; it asks no node anything.
options:
  state:
    description:
      - V(planned) plans, and in check mode shows the plan. V(paired) says who meets whom at which port. V(gathered)
        takes the figures of a first pass and says what is to be measured again. V(judged) judges.
    type: str
    required: true
    choices: [planned, paired, gathered, judged]
  backend:
    description: What carries the all-reduce.
    type: str
    choices: [auto, nccl, gloo]
    default: auto
  measure:
    description: What is measured.
    type: list
    elements: str
    default: [links, disks, local, collective]
  most_bytes:
    description: Bytes of the largest message. V(0) is 64 MiB with gloo, 1 GiB with NCCL.
    type: int
    default: 0
  seconds:
    description: Seconds to send in each direction.
    type: float
    default: 1
  env:
    description: Variables that a run gets, name to value.
    type: dict
    default: {}
  nccl_tests:
    description: C(all_reduce_perf) on the nodes.
    type: path
  parameters:
    description: Parameters of the model whose training time is estimated.
    type: float
    default: 0
  gradient_bytes:
    description: Bytes of gradient for each parameter.
    type: float
    default: 2
  again:
    description: >-
      What V(gathered) returned as RV(again). V(paired) pairs only these; V(judged) calls no device or disk slow that
      was not measured twice.
    type: dict
  measured:
    description: What V(gathered) returned as RV(measured).
    type: dict
    default: {}
  dest:
    description: Folder for C(bench.json) and C(report.html). Without it nothing is written.
    type: path
  began:
    description: When the measurement began, as V(planned) returned it.
    type: float
    default: 0
attributes:
  check_mode:
    support: full
    description: It changes no node. In check mode V(planned) shows the plan.
  diff_mode:
    support: none
    description: It changes nothing.
  action:
    support: full
    description: Runs on the controller.
seealso:
  - module: torchfleet.cluster.link_bench
  - module: torchfleet.cluster.disk_bench
  - module: torchfleet.cluster.torch_bench
"""

EXAMPLES = r"""
- name: Judge
  torchfleet.cluster.cluster_bench:
    state: judged
    dest: reports
"""

RETURN = r"""
status:
  description: V(0), or V(1) where something is slow or was not measured.
  returned: when O(state=judged)
  type: int
  sample: 0
sentence:
  description: The verdict in a sentence.
  returned: when O(state=judged)
  type: str
  sample: "3 nodes: nothing is slow"
findings:
  description: What is slow.
  returned: when O(state=judged)
  type: list
  elements: dict
  sample:
    - check: slow-nic
      severity: warn
      nodes: [node31]
      sentence: "node31 sends 98 Mb/s on a 1 Gb/s NIC: node31's port negotiated 100 Mb/s, the others carry 940 Mb/s"
      remedy: "on node31: change the cable or the switch port of eno1, and let both ends negotiate"
cost:
  description: What the figures mean for a training step. V(null) without them.
  returned: when O(state=judged)
  type: dict
  sample: {"parameters": 7000000000.0, "seconds": 149.3, "healthy_seconds": 15.1}
files:
  description: What was written, C(json) and C(html).
  returned: when O(state=judged)
  type: dict
  sample: {"json": reports/bench.json, "html": reports/report.html}
began:
  description: When it began, in seconds since the epoch.
  returned: when O(state=planned)
  type: float
  sample: 1790000000.5
bench_id:
  description: A name for this measurement.
  returned: when O(state=planned)
  type: str
  sample: bench-1790000000500000000
nodes:
  description: For each host of the inventory, its name, interface, address and environment.
  returned: when O(state=planned)
  type: dict
  sample: {"node1": {"name": node1, "interface": eth1, "address": 10.0.1.11, "environment": {}}}
head:
  description: The head as the inventory calls it.
  returned: when O(state=planned)
  type: str
  sample: node1
sizes:
  description: Message sizes in bytes.
  returned: when O(state=planned)
  type: list
  elements: int
  sample: [1024, 8192]
nccl_tests:
  description: The command for nccl-tests. Empty where it is not run.
  returned: when O(state=planned)
  type: list
  elements: str
  sample: []
meetings:
  description: For each host of the inventory, whom it meets in which round.
  returned: when O(state=paired)
  type: dict
  sample: {"node1": [{"round": 0, "peer": node2, "opens": true, "address": 10.0.1.12, "port": 40123}]}
ranks:
  description: For each host of the inventory, the environments of its ranks.
  returned: when O(state=paired)
  type: dict
  sample: {"node1": [{"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": 10.0.1.11, "MASTER_PORT": "40124"}]}
rounds:
  description: Number of rounds.
  returned: when O(state=paired)
  type: int
  sample: 3
measured:
  description: The figures of the first pass.
  returned: when O(state=gathered)
  type: dict
  sample: {"links": {}}
again:
  description: What is to be measured again, C(pairs), C(local), C(disks) and C(collective).
  returned: when O(state=gathered)
  type: dict
  sample: {"pairs": [[node1, node3]], "local": [], "disks": [], "collective": false}
any:
  description: Whether there is anything to measure again.
  returned: when O(state=gathered)
  type: bool
  sample: true
"""
