#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_identity_check
short_description: Refuse a machine that is not the one its peers know by that name
version_added: 0.1.0
description:
  - Compares the host keys and the cluster key of every member, as M(torchfleet.cluster.ssh_identity) reported them in
    this run, with those that the other members hold in their managed blocks. A difference fails, until it is accepted.
  - Members that nobody knows yet are newcomers, and pass.
options:
  accept:
    description: Host names of members that were reinstalled, whose new keys are taken in.
    type: list
    elements: str
attributes:
  check_mode:
    support: full
    description: It changes nothing in any mode.
  diff_mode:
    support: none
    description: It changes nothing.
  action:
    support: full
    description: Reads the inventory and what was collected, on the controller; no node is asked.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Take in a machine that was reinstalled
  torchfleet.cluster.ssh_identity_check:
    accept: [node3]
  run_once: true
"""

RETURN = r"""
accepted:
  description: Members with new keys that O(accept) names.
  returned: success
  type: list
  elements: str
  sample: [node3]
newcomers:
  description: Members that no other member knows yet.
  returned: success
  type: list
  elements: str
  sample: [node4]
"""
