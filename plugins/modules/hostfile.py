#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: hostfile
short_description: Write the hostfile of DeepSpeed, Open MPI or Colossal-AI
version_added: 0.1.0
description:
  - Writes one line for each node of the cluster, in launch order, with the number of ranks it runs.
options:
  dest:
    description: Absolute path of the file on the node.
    type: path
    required: true
  format:
    description:
      - V(deepspeed) and V(openmpi) give C(host slots=N).
      - V(plain) gives the bare host, which is all that Colossal-AI and pdsh read.
    type: str
    choices: [deepspeed, openmpi, plain]
    default: deepspeed
  by:
    description:
      - Whether a node is listed by its name or by its address on the training network.
      - DeepSpeed and Open MPI cannot use an IPv6 address there.
    type: str
    choices: [name, address]
    default: name
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
- name: Write the hostfile that the deepspeed launcher reads
  torchfleet.cluster.hostfile:
    dest: /etc/torchfleet/hostfile
    mode: "0644"

- name: Write one for mpirun, by address
  torchfleet.cluster.hostfile:
    dest: /etc/torchfleet/hostfile.mpi
    format: openmpi
    by: address
    mode: "0644"
"""

RETURN = r"""
---
dest:
  description: Path of the file.
  returned: success
  type: str
  sample: /etc/torchfleet/hostfile
checksum:
  description: SHA-256 of the file's content, 64 hex digits.
  returned: success
  type: str
  sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
backup_file:
  description: Path of the copy of what was there before.
  returned: changed and O(backup=true)
  type: str
  sample: /etc/torchfleet/hostfile.2215.2026-01-20@22:09:12~
"""
