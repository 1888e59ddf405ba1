#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: training_summary
short_description: Judge a finished run over all its nodes
version_added: 0.1.0
description:
  - Holds what every node reported against the plan. A run succeeded where every planned rank came up in one world and
    ended with exit status 0; the launcher's own word is not enough.
  - Completes the run's C(manifest.json) with outcome, exit codes and times, tells people how the run ended, and fails
    where it failed. The rank that failed first is named, with the last lines of its log.
  - Reads what M(torchfleet.cluster.training_follow) returned for each node (role C(launch) registers it as
    C(__launch_follow)).
  - Runs on the controller. Call it with C(run_once), as it judges all nodes.
options:
  launch:
    description: What M(torchfleet.cluster.launch_plan) returned.
    type: dict
    required: true
  detached:
    description: The run goes on without a follower. Nothing is judged; the manifest and people are told.
    type: bool
    default: false
attributes:
  action:
    support: full
    description: Runs on the controller alone.
  check_mode:
    support: none
    description: There is no run to judge.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Judge the run
  torchfleet.cluster.training_summary:
    launch: "{{ __launch_plan }}"
  run_once: true
"""

RETURN = r"""
---
ok:
  description: Whether the run succeeded.
  returned: always
  type: bool
  sample: false
again:
  description: Whether the run failed in a way that another attempt may help against; nobody wished its end.
  returned: always
  type: bool
  sample: true
sentence:
  description: How the run ended, in one sentence.
  returned: always
  type: str
  sample: "rank 1 on node2 failed first: exit status 17"
folder:
  description: The run's folder on the controller, with logs and the manifest.
  returned: always
  type: str
  sample: runs/digits-20261121-101500
"""
