#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sync_transfer
short_description: Bring a tree to a node, and follow it
version_added: 0.1.0
description:
  - Starts the process that fetches what the node lacks, prints how far it is, and ends when it has all.
  - The first node of the chain is fed by the controller, or by the node that has the tree; each other node fetches from
    the one before it, over the training network, while that one is still receiving. Where that one is dead, frozen or
    slow, the node takes the one before, and where nobody is left, the controller.
  - Run it on all nodes at once, with as many forks as nodes.
options:
  source:
    description: What M(torchfleet.cluster.sync_source) returned.
    type: dict
    required: true
  node:
    description: The arguments of M(torchfleet.cluster.sync_node).
    type: dict
    required: true
  patience:
    description:
      - Seconds. When all other nodes have ended, or stand still, one that would take longer than this is named as slow,
        and left to a later call.
    type: float
    default: 60
attributes:
  check_mode:
    support: none
    description: There is nothing to follow.
  diff_mode:
    support: none
    description: Trees are not shown.
  action:
    support: full
    description: Sends the data, and prints how far the node is.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Bring the tree
  torchfleet.cluster.sync_transfer:
    source: "{{ source }}"
    node: {dest: /data/set, user: ml, release: "{{ source.release }}"}
  become: true
"""

RETURN = r"""
complete:
  description: Whether the node has all of the tree.
  returned: always
  type: bool
  sample: true
problem:
  description: Why it has not.
  returned: always
  type: str
  sample: ""
bytes:
  description: What it received.
  returned: always
  type: int
  sample: 67108864
seconds:
  description: The time that took.
  returned: always
  type: float
  sample: 5.4
way:
  description: Whom it fetched from last.
  returned: always
  type: str
  sample: node1
"""
