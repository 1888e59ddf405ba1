#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done on the controller by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_check
short_description: Judge the facts of all nodes, and report
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Compares all nodes of the group named by C(torchfleet_group) with each other and with what training needs, prints a
    table and the findings, and writes them as JSON and as one page of HTML.
  - Role C(check) gathers the facts and calls this; it asks no node anything.
options:
  state:
    description:
      - V(planned) says what the nodes are to be asked, V(paired) brings the listeners of the probe together, V(judged)
        judges.
    type: str
    required: true
    choices: [planned, paired, judged]
  checks_dir:
    description: Folder with the inventory's own checks.
    type: path
  checks_dir_set:
    description: The user chose O(checks_dir), which then has to be a folder; the default one may be absent.
    type: bool
    default: false
  skip:
    description: Ids of checks that are left out.
    type: list
    elements: str
    default: []
  severity:
    description: Severity in place of a check's own, by id.
    type: dict
    default: {}
  timeout:
    description: Seconds that a node may take to accept a connection; refused where it is less than one.
    type: int
    default: 5
  dest:
    description: Folder for C(check.json) and C(report.html). Without it nothing is written.
    type: path
  runs:
    description: Run folders whose timeline goes into the report.
    type: list
    elements: path
    default: []
  began:
    description: When the check began, as V(planned) returned it.
    type: float
    default: 0
  network:
    description: Networks in CIDR notation that the training may use.
    type: list
    elements: str
  ssh:
    description: Whom each node logs in to, V(all) members or, in a V(ring), the next one alone.
    type: str
    choices: [all, ring]
    default: all
attributes:
  check_mode:
    support: full
    description: It changes no node. The report is written in check mode, too.
  diff_mode:
    support: none
    description: It changes nothing.
  action:
    support: full
    description: Runs on the controller.
seealso:
  - module: torchfleet.cluster.system_facts
  - module: torchfleet.cluster.report
"""

EXAMPLES = r"""
- name: Judge
  torchfleet.cluster.cluster_check:
    state: judged
    dest: reports
"""

RETURN = r"""
status:
  description: V(0), V(1) with warnings, V(2) with failures.
  returned: when O(state=judged)
  type: int
  sample: 0
sentence:
  description: The verdict in a sentence.
  returned: when O(state=judged)
  type: str
  sample: "3 nodes, 77 checks: nothing is wrong"
findings:
  description: What was found, the gravest first.
  returned: when O(state=judged)
  type: list
  elements: dict
  sample:
    - check: shm-size
      area: limits
      severity: warn
      nodes: [node2]
      sentence: "node2: /dev/shm has 64 MiB, wanted 1 GiB: NCCL and DataLoader workers share memory there"
      remedy: mount -o remount,size=8g /dev/shm, and in /etc/fstab; of a container --shm-size=8g
      source: "NCCL user guide, Troubleshooting, Docker: --shm-size=1g"
files:
  description: What was written, C(json) and C(html).
  returned: when O(state=judged)
  type: dict
  sample: {"json": reports/check.json, "html": reports/report.html}
began:
  description: When the check began, in seconds since the epoch.
  returned: when O(state=planned)
  type: float
  sample: 1790000000.5
names:
  description: The names of all members, head first.
  returned: when O(state=planned)
  type: list
  elements: str
  sample: [node1, node2]
nodes:
  description: The name of each host of the inventory.
  returned: when O(state=planned)
  type: dict
  sample: {"node1": node1}
peers:
  description: For each host of the inventory, the names that it logs in to.
  returned: when O(state=planned)
  type: dict
  sample: {"node1": [node1, node2]}
probe_id:
  description: A name for the probe of this check.
  returned: when O(state=planned)
  type: str
  sample: check-1790000000500000000
own:
  description: What the inventory's own checks ask the nodes for.
  returned: when O(state=planned)
  type: list
  elements: dict
  sample: [{"id": firmware, "file": /etc/firmware}]
master_port:
  description: The port that has to be free on the head.
  returned: when O(state=planned)
  type: int
  sample: 29500
listeners:
  description: The listeners of all nodes by name.
  returned: when O(state=paired)
  type: dict
  sample: {}
"""
