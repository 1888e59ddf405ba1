#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: explain
short_description: Say why a training run failed, from its logs
version_added: 0.1.0
description:
  - Reads the logs of a run on the controller, of one rank or of all, finds the first cause among the echoes and says
    what to change.
  - Files of any size are read piece by piece. Nothing is run and no node is asked.
options:
  path:
    description:
      - A log, or a folder in which all C(*.log), C(*.out), C(*.err) and C(*.txt) files are read, rotated and packed
        ones (C(.1), C(.gz), C(.bz2), C(.xz)) too.
      - In the folder of a run the nodes are taken in the order of its C(manifest.json).
    type: path
  runs_dir:
    description: Folder of all runs. The newest one is read where O(path) is not given.
    type: path
  dest:
    description:
      - File for the findings as JSON.
      - Where it is not given they go to C(findings.json) in the folder; for a single file they are not written.
    type: path
  show:
    description: Whether the answer is printed as text.
    type: bool
    default: true
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
attributes:
  action:
    support: full
  async:
    support: none
  bypass_host_loop:
    support: none
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    platforms: posix
seealso:
  - plugin: torchfleet.cluster.explain
    plugin_type: filter
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Explain the newest run
  torchfleet.cluster.explain:
    runs_dir: runs

- name: Explain a log from elsewhere
  torchfleet.cluster.explain:
    path: /tmp/slurm-4711.out
  register: answer

- name: Fail with the cause
  ansible.builtin.fail:
    msg: "{{ answer.findings[0].cause }} {{ answer.findings[0].fix }}"
  when: answer.findings[0].label != 'none'
"""

RETURN = r"""
---
schema:
  description: Version of this form of answer.
  returned: success
  type: int
  sample: 1
path:
  description: What was read.
  returned: success
  type: str
  sample: /home/user/runs/digits-20261121-101500
files:
  description: The logs, in the order in which they were read.
  returned: success
  type: list
  elements: str
  sample: [/home/user/runs/digits-20261121-101500/n1/rank-0.log]
findings:
  description: The findings, the best first, one for each label, as P(torchfleet.cluster.explain#filter) gives them.
  returned: success
  type: list
  elements: dict
  sample:
    - label: cuda_oom
      cause: A rank ran out of GPU memory; what other ranks report is the echo.
      fix: Smaller micro batch, activation checkpointing or sharding (ZeRO, FSDP).
      evidence: [{file: n1/rank-3.log, line: 812, text: "torch.OutOfMemoryError: CUDA out of memory."}]
      confidence: 0.9
      rule: cuda_oom
      ranks: ["3"]
      hosts: [n1]
      probe: {id: gpu_processes, parameters: {}}
dest:
  description: The file that holds the findings, or none.
  returned: success
  type: str
  sample: /home/user/runs/digits-20261121-101500/findings.json
"""
