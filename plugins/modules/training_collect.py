#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: training_collect
short_description: Bring files that a run wrote from its nodes
version_added: 0.1.0
description:
  - Brings the files of the run's output folder that the plan's C(collect) names to the controller, over the task's own
    connection. The node needs nothing for it but Python.
  - Files appear whole. Modes, times of change and links inside the folder are kept; what came before is not brought
    again.
  - Never fails, as it says nothing about the run; M(torchfleet.cluster.training_summary) tells what could not be
    brought.
options:
  launch:
    description: What M(torchfleet.cluster.launch_plan) returned.
    type: dict
    required: true
  dest:
    description: Folder on the controller.
    type: path
    required: true
  keep:
    description: Leave a file of the same name alone.
    type: bool
    default: false
attributes:
  action:
    support: full
    description: Runs on the controller, over the task's own connection.
  check_mode:
    support: none
    description: There is no run to bring files from.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Bring the head's files
  torchfleet.cluster.training_collect:
    launch: "{{ __launch_plan }}"
    dest: "{{ __launch_plan.folder }}/output"
  register: __launch_collected
"""

RETURN = r"""
---
node:
  description: Name of the node.
  returned: always
  type: str
  sample: node1
files:
  description: How many files of the node the patterns name.
  returned: always
  type: int
  sample: 2
bytes:
  description: Their size.
  returned: always
  type: int
  sample: 35149
unmatched:
  description: Patterns that name nothing there.
  returned: always
  type: list
  elements: str
  sample: []
problem:
  description: Why not all came; empty where all did.
  returned: always
  type: str
  sample: ""
"""
