#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sync_summary
short_description: Say what came of a sync
version_added: 0.1.0
description:
  - Says how many nodes have the tree, and what moved how fast. Fails where a node has it not, and names each with the
    reason.
  - Reads what role C(sync) registered on every host of the play.
options:
  source:
    description: What M(torchfleet.cluster.sync_source) returned.
    type: dict
    required: true
  hosts:
    description: The hosts that were to get it. Without it, all of the play.
    type: list
    elements: str
  required:
    description: Fail where one has it not. V(false) names it, and that is all.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: It changes nothing in any mode.
  diff_mode:
    support: none
    description: It changes nothing.
  action:
    support: full
    description: No node is asked.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Say what came of it
  torchfleet.cluster.sync_summary:
    source: "{{ source }}"
  run_once: true
"""

RETURN = r"""
summary:
  description: One line.
  returned: always
  type: str
  sample: 3 of 3 nodes have the tree (12 files, 64.0 MiB, release 0123456789ab)
without:
  description: Nodes that have it not, with the reason.
  returned: always
  type: dict
  sample: {node3: it no longer answers}
"""
