#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh_check
short_description: Log in from this node to every member
version_added: 0.1.0
description:
  - Runs C(ssh -o BatchMode=yes peer true) as the training user for every peer, itself included, several at a time.
options:
  user:
    description: The training user.
    type: str
    required: true
  peers:
    description: Names to log in to.
    type: list
    elements: str
    required: true
  timeout:
    description: Seconds for one connection.
    type: int
    default: 10
attributes:
  check_mode:
    support: full
    description: It changes nothing in any mode.
  diff_mode:
    support: none
    description: It changes nothing.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Prove the mesh
  torchfleet.cluster.ssh_mesh_check:
    user: root
    peers: "{{ groups['train'] }}"
"""

RETURN = r"""
reached:
  description: The peers that could be logged in to.
  returned: success
  type: list
  elements: str
  sample: [node1, node2]
"""

import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _mesh


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "peers": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    user, peers, timeout = (module.params[name] for name in ("user", "peers", "timeout"))
    answers = _mesh.log_in_to_all(user, peers, timeout)
    failed = {peer: login.why for peer, login in answers.items() if login.why}
    if failed:
        host = socket.gethostname()
        module.fail_json(
            msg="; ".join(f"{host} cannot log in to {peer} as {user}: {why}" for peer, why in sorted(failed.items())),
            reached=sorted(set(peers) - set(failed)),
        )
    module.exit_json(changed=False, reached=sorted(peers))


if __name__ == "__main__":
    main()
