#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: training_pickup
short_description: Find a run on its nodes and take it up from this controller
version_added: 0.1.0
description:
  - Puts together what M(torchfleet.cluster.training_run_info) reported of every node (role C(launch) registers it as
    C(__launch_runs)), so that a run can be seen, followed and ended from any machine with the inventory, also after the
    controller that started it died.
  - A run of which nodes are outside of C(--limit) is shown, and neither ended (O(running)) nor followed (O(runs_dir)).
  - Runs on the controller. Call it with C(run_once).
options:
  run_id:
    description: The run. Without it, the one that is running, or the newest.
    type: str
  running:
    description: It is to be ended. Without O(run_id), take no run that is over.
    type: bool
    default: false
  show:
    description: Print the runs, and take up none.
    type: bool
    default: false
  runs_dir:
    description:
      - Folder on this controller in which the run gets its own folder for logs and its manifest. Where a living
        controller of this machine has it already, a temporary folder serves.
    type: path
attributes:
  action:
    support: full
    description: Runs on the controller alone.
  check_mode:
    support: full
    description: No folder is written.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Take up the run
  torchfleet.cluster.training_pickup:
    run_id: digits-20261121-101500
    runs_dir: runs
  register: __launch_plan
  run_once: true
"""

RETURN = r"""
---
run_id:
  description: Name of the run.
  returned: when O(show) is false
  type: str
  sample: digits-20261121-101500
run_dir:
  description: The run's folder on the nodes.
  returned: when O(show) is false
  type: str
  sample: /var/lib/torchfleet/runs/digits-20261121-101500
folder:
  description: The run's folder on the controller; empty without O(runs_dir).
  returned: when O(show) is false
  type: str
  sample: runs/digits-20261121-101500
state:
  description: How the run stands, V(running), V(succeeded), V(failed) or V(lost).
  returned: when O(show) is false
  type: str
  sample: running
stop_grace:
  description: Seconds between the polite and the forced end.
  returned: when O(show) is false
  type: float
  sample: 10
time_limit:
  description: Seconds after which the run is ended.
  returned: when O(show) is false
  type: float
  sample: 0
lease:
  description: Seconds after which a node ends the run where no controller asks for it any more.
  returned: when O(show) is false
  type: float
  sample: 0
stall_timeout:
  description: Seconds without any sign of progress after which the run is said to hang.
  returned: when O(show) is false
  type: float
  sample: 0
stall_action:
  description: What is done then.
  returned: when O(show) is false
  type: str
  sample: report
collect:
  description: Files of the output folder that come back after the run.
  returned: when O(show) is false
  type: list
  elements: str
  sample: [model.pt]
output_dir:
  description: The folder on the nodes for what the script leaves.
  returned: when O(show) is false
  type: str
  sample: /var/lib/torchfleet/runs/digits-20261121-101500/output
elastic:
  description: Whether the launcher deals the ranks to the nodes itself, and anew after a failure.
  returned: when O(show) is false
  type: bool
  sample: false
min_nodes:
  description: With how few nodes an elastic run goes on.
  returned: when O(show) is false
  type: int
  sample: 0
nodes:
  description: The run's nodes by the hosts' names in the inventory, in launch order.
  returned: when O(show) is false
  type: dict
  sample: {"node1": {"node": "node1", "argv": ["/opt/torchfleet/venv/bin/python", "-m", "torch.distributed.run"]}}
runs:
  description: The runs that were printed.
  returned: when O(show) is true
  type: list
  elements: dict
  sample: [{"run_id": "digits-20261121-101500", "user": "ml", "state": "running", "nodes": ["node1"]}]
silent:
  description: Nodes that did not answer or were not asked, a sentence each.
  returned: when O(show) is true
  type: list
  elements: str
  sample: []
"""
