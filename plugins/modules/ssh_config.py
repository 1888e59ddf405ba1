#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ssh_config
short_description: Write ssh client entries for all nodes
version_added: 0.1.0
description:
  - Writes an entry for each node of the cluster under its name and its address on the training network, with the user,
    the port and the key, so that a launcher's bare C(ssh) reaches it. Host keys are always checked.
  - The whole file is ours. Give it a place of its own and include it, as C(/etc/ssh/ssh_config.d/) does by itself.
options:
  dest:
    description: Absolute path of the file on the node.
    type: path
    required: true
  identity_file:
    description:
      - Private key to use, an absolute path or one that begins with C(~/). No other key is then tried.
      - Left out, ssh chooses.
    type: str
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.backup
  - ansible.builtin.files
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
    support: full
  platform:
    platforms: posix
notes:
  - The nodes are the hosts of the group that O(ignore:torchfleet_group) names (default V(train)), in its order, the one
    that O(ignore:torchfleet_head) names first. What is wrong with them stops the task, every culprit named.
  - Rendered on the controller and written by M(torchfleet.cluster.rendered_file).
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Let every launcher reach every node
  torchfleet.cluster.ssh_config:
    dest: /etc/ssh/ssh_config.d/50-torchfleet.conf
    identity_file: ~/.ssh/id_ed25519
    mode: "0644"
  become: true
"""

RETURN = r"""
---
dest:
  description: Path of the file.
  returned: success
  type: str
  sample: /etc/ssh/ssh_config.d/50-torchfleet.conf
checksum:
  description: SHA-256 of the file's content, 64 hex digits.
  returned: success
  type: str
  sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
backup_file:
  description: Path of the copy of what was there before.
  returned: changed and O(backup=true)
  type: str
  sample: /etc/ssh/ssh_config.d/50-torchfleet.conf.2215.2026-01-20@22:09:12~
"""
