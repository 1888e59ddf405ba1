#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done on the controller by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: explain_probes
short_description: Say what the live cluster says about the findings of explain
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Says which probes M(torchfleet.cluster.cause_probe) is to answer on each node, and then puts the nodes' answers into
    the findings.
options:
  state:
    description: V(planned) says what to ask, V(judged) takes the answers.
    type: str
    required: true
    choices: [planned, judged]
  path:
    description: The run's folder, or the logs.
    type: path
    required: true
  findings:
    description: The findings as M(torchfleet.cluster.explain) returned them.
    type: list
    elements: dict
    required: true
  dest:
    description: The file with the findings. Without it nothing is written.
    type: path
attributes:
  check_mode:
    support: full
    description: Writes nothing in check mode.
  diff_mode:
    support: none
    description: There is nothing to show.
  action:
    support: full
    description: Runs on the controller.
seealso:
  - module: torchfleet.cluster.explain
  - module: torchfleet.cluster.cause_probe
"""

EXAMPLES = r"""
- name: Say what the nodes are asked
  torchfleet.cluster.explain_probes:
    state: planned
    path: runs/digits-1
    findings: "{{ answer.findings }}"
"""

RETURN = r"""
probes:
  description: What is asked.
  returned: when O(state=planned)
  type: list
  elements: dict
  sample: [{id: tcp_port_taken, parameters: {port: "29500"}}]
nodes:
  description: For each host of the inventory, its name, interface and peers.
  returned: when O(state=planned)
  type: dict
  sample: {node1: {name: node1, interface: eth1, peers: []}}
run_id:
  description: The run.
  returned: when O(state=planned)
  type: str
  sample: digits-1
master_port:
  description: The port of the run.
  returned: when O(state=planned)
  type: int
  sample: 29500
results:
  description: What the cluster says, by finding.
  returned: when O(state=judged)
  type: list
  elements: dict
  sample:
    - label: port_in_use
      confirmed: true
      sentence: "node1: port 29500 is held by process 4711 (python3)"
      nodes: {node1: {holds: true, sentence: port 29500 is held by process 4711 (python3)}}
findings:
  description: The findings, with C(result) in the probe of each that was asked for.
  returned: when O(state=judged)
  type: list
  elements: dict
  sample: []
"""
