#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: launch_plan
short_description: Plan a training run to the last argument
version_added: 0.1.0
description:
  - Builds the Cluster from the inventory group that C(torchfleet_group) names, takes in what
    M(torchfleet.cluster.launch_preflight) saw on every node (role C(launch) registers it as C(__launch_preflight)), and
    has the launcher work out command, environment and directory of each node.
  - Everything that stands in the way of the run on any node stops it here, before anything is started. One message
    names every culprit.
  - Outside check mode it makes the run's folder on the controller and writes the plan into its C(manifest.json).
  - Runs on the controller. Call it with C(run_once), as the plan holds every node.
options:
  script:
    description:
      - The training script on the controller, relative to O(workdir) or to the current folder.
      - Exactly one of O(script) and O(module) is set.
    type: path
  module:
    description: A Python module of O(workdir) that is run with C(-m).
    type: str
  args:
    description: Arguments of the script.
    type: list
    elements: str
    default: []
  env:
    description: Environment of the ranks, name to value.
    type: dict
    default: {}
  secret_env:
    description:
      - Names of further variables, whose values are in no plan. M(torchfleet.cluster.training_run) brings them to the
        node.
    type: list
    elements: str
    default: []
  workdir:
    description: Folder on the controller in which the script runs. Without it, the script's own folder.
    type: path
  launcher:
    description: What starts the ranks.
    type: str
    default: torchrun
  via:
    description: Which of the launcher's own ways to start is taken. Without it, its default.
    type: str
  launcher_options:
    description: Further options of the launcher, name to value.
    type: dict
    default: {}
  max_restarts:
    description: How often an elastic launcher deals the ranks anew after a failure.
    type: int
    default: 0
  min_nodes:
    description: With how few nodes an elastic launcher goes on. Without it, all.
    type: int
  run_id:
    description: Name of the run. Without it, one is made of the script's name and the time.
    type: str
  runs_dir:
    description: Folder on the controller in which the run gets its own folder.
    type: path
    required: true
  remote_root:
    description: Folder on the nodes for working directories and runs.
    type: path
    required: true
  time_limit:
    description: Seconds after which the run is ended; V(0) is none.
    type: float
    default: 0
  stop_grace:
    description: Seconds between the polite and the forced end of the run.
    type: float
    default: 0
  packages:
    description: Packages whose versions have to be the same on all nodes.
    type: list
    elements: str
    default: [torch]
  skip_preflight:
    description:
      - Start in spite of what M(torchfleet.cluster.launch_preflight) found. It is shown, and kept in the manifest.
    type: bool
    default: false
  lease:
    description: Seconds after which a node ends the run where no controller asks for it any more; V(0) is none.
    type: float
    default: 0
  stall_timeout:
    description: Seconds without any sign of progress after which the run is said to hang; V(0) is none.
    type: float
    default: 0
  stall_action:
    description: What is done then.
    type: str
    choices: [report, stop]
    default: report
  collect:
    description: Files of the output folder that come back after the run.
    type: list
    elements: str
    default: []
  attempt:
    description:
      - Which attempt it is. From the second on, O(run_id) names the first, whose output folder it shares; its own name
        is that with the number.
    type: int
    default: 1
attributes:
  action:
    support: full
    description: Runs on the controller alone.
  check_mode:
    support: full
    description: The plan is made and returned; no folder and no manifest is written.
  diff_mode:
    support: full
    description: Prints the plan, for each node the directory, the environment and the command.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Plan a run
  torchfleet.cluster.launch_plan:
    script: train.py
    args: [--epochs, "3"]
    runs_dir: runs
    remote_root: /var/lib/torchfleet
  register: __launch_plan
  run_once: true
"""

RETURN = r"""
---
run_id:
  description: Name of the run.
  returned: success
  type: str
  sample: digits-20261121-101500
run_dir:
  description: The run's folder on the nodes.
  returned: success
  type: str
  sample: /var/lib/torchfleet/runs/digits-20261121-101500
folder:
  description: The run's folder on the controller, for logs and the manifest.
  returned: success
  type: str
  sample: runs/digits-20261121-101500
local_workdir:
  description: The folder on the controller that holds the code.
  returned: success
  type: str
  sample: /home/user/digits
remote_workdir:
  description: The folder on the nodes in which the code runs.
  returned: success
  type: str
  sample: /var/lib/torchfleet/work/digits
time_limit:
  description: Seconds after which the run is ended.
  returned: success
  type: float
  sample: 0
lease:
  description: Seconds after which a node ends the run where no controller asks for it any more.
  returned: success
  type: float
  sample: 0
stall_timeout:
  description: Seconds without any sign of progress after which the run is said to hang.
  returned: success
  type: float
  sample: 0
stall_action:
  description: What is done then.
  returned: success
  type: str
  sample: report
collect:
  description: Files of the output folder that come back after the run.
  returned: success
  type: list
  elements: str
  sample: [model.pt]
output_dir:
  description: The folder on the nodes for what the script leaves.
  returned: success
  type: str
  sample: /var/lib/torchfleet/runs/digits-20261121-101500/output
stop_grace:
  description: Seconds between the polite and the forced end.
  returned: success
  type: float
  sample: 10
manifest:
  description: The manifest as it was written; it has no value of a secret.
  returned: success, outside check mode
  type: dict
  sample: {"schema": 1, "run_id": "digits-20261121-101500", "state": "planned"}
elastic:
  description: Whether the launcher deals the ranks to the nodes itself, and anew after a failure.
  returned: success
  type: bool
  sample: false
min_nodes:
  description: With how few nodes an elastic run goes on.
  returned: success
  type: int
  sample: 0
nodes:
  description:
    - What each node executes, by the host's name in the inventory, in launch order. C(node) is the node's name; C(argv)
      is empty where the launcher reaches the node from the head; C(env) is the launcher's whole added environment but
      for secrets; C(files) maps paths to contents that must be there before the start; C(rank) is what each rank is
      given on the node itself, where it does not come through the launcher.
  returned: success
  type: dict
  sample:
    node1:
      node: node1
      argv: [/opt/torchfleet/venv/bin/python, -m, torch.distributed.run, --nnodes=1, train.py]
      env: {"MASTER_ADDR": "10.0.1.11"}
      cwd: /var/lib/torchfleet/work/digits
      files: {}
      rank: null
"""
