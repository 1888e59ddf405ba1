#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: training_follow
short_description: Follow a run on its node to the end
version_added: 0.1.0
description:
  - Prints the lines of every rank as C(node:rank) while they are written, and keeps each rank's log on the controller.
  - The first failure seen on any node ends the run on all of them. So do Ctrl-C and SIGTERM on the controller, and a
    node that no longer answers.
  - All nodes are followed at once, so Ansible must run as many forks as there are nodes.
  - Reads what M(torchfleet.cluster.training_run) returned for each node (role C(launch) registers it as
    C(__launch_start)). Never fails for how the run ended; M(torchfleet.cluster.training_summary) judges that.
options:
  launch:
    description: What M(torchfleet.cluster.launch_plan) returned.
    type: dict
    required: true
  lead:
    description:
      - Whether this controller leads the run. One that only looks in does not end it when it is interrupted or cannot
        reach a node, and shows no more than O(lines) of what was written before.
    type: bool
    default: true
  lines:
    description: How many lines of each log that were written before are shown, where O(lead) is false.
    type: int
    default: 20
attributes:
  action:
    support: full
    description: Runs on the controller, over the task's own connection.
  check_mode:
    support: none
    description: There is no run to follow.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Follow the run to its end
  torchfleet.cluster.training_follow:
    launch: "{{ __launch_plan }}"
  register: __launch_follow
  failed_when: false
  ignore_unreachable: true
"""

RETURN = r"""
---
node:
  description: Name of the node.
  returned: always
  type: str
  sample: node1
answer:
  description:
    - The node's last word. C(status) is V(exited), V(lost) (its supervisor was killed), V(unreachable) or
      V(not_started); C(exit) is how the launcher ended and C(ranks) how each rank did, where that is known.
  returned: always
  type: dict
  sample:
    status: exited
    exit: {"code": 0, "signal": null, "stopped": false, "timed_out": false}
    ranks: {"rank-0": {"rank": 0, "world_size": 3, "exit": {"code": 0, "signal": null}}}
problem:
  description: What was wrong beside the run itself, in one sentence; empty where nothing was.
  returned: always
  type: str
  sample: "node2 no longer answers: no answer in 16 s"
offset:
  description: Seconds by which the node's clock is ahead of the controller's.
  returned: always
  type: float
  sample: 0.02
logs:
  description: The node's logs on the controller.
  returned: always
  type: list
  elements: str
  sample: [runs/digits-20261121-101500/node1/launcher.log, runs/digits-20261121-101500/node1/rank-0.log]
"""
