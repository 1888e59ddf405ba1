#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: retire_member
short_description: Take a member out of what a node knows
version_added: 0.1.0
description:
  - Takes the lines of one member out of the managed blocks in C(/etc/hosts), C(authorized_keys), C(known_hosts) and
    C(~/.ssh/config), and, where they are there, out of the hostfile and the configuration of accelerate. The member
    itself is not asked, and need not be in the inventory.
  - On the member itself, with O(whole), takes out all that the collection wrote there to make it one.
options:
  name:
    description: The member's host name.
    type: str
    required: true
  user:
    description: The training user of this node.
    type: str
    required: true
  whole:
    description: Take out every member, the node's own cluster key and the other files of the collection.
    type: bool
    default: false
  hosts_path:
    description: The hosts file.
    type: path
    default: /etc/hosts
  hostfile:
    description: The hostfile. Without it none is touched.
    type: path
  accelerate_config:
    description: The configuration of accelerate. Without it none is touched.
    type: path
  node:
    description: This node's own host name. Filled in from the inventory.
    type: str
  left:
    description: The members that are left, in launch order. Filled in from the inventory.
    type: list
    elements: str
    default: []
  addresses:
    description: The member's addresses as far as the inventory has them. Filled in from there.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Nothing is written.
  diff_mode:
    support: full
    description: Shows every file that changes.
  action:
    support: full
    description: Reads the inventory on the controller.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Forget node4
  torchfleet.cluster.retire_member:
    name: node4
    user: root
"""

RETURN = r"""
files:
  description: The files that this call changed or removed.
  returned: success
  type: list
  elements: str
  sample: [/etc/hosts, /root/.ssh/authorized_keys]
addresses:
  description: Addresses of that member and of no other, as this node and the inventory knew them.
  returned: success
  type: list
  elements: str
  sample: [198.51.100.14]
"""

import os
import pwd
import socket
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _retire
from ansible_collections.torchfleet.cluster.plugins.module_utils._ssh_trust import KEY_FILE

# What else makes a machine a member: the cluster key, sshd's limit, the answer to cloud-init.
OWN_FILES = ("/etc/ssh/sshd_config.d/10-torchfleet.conf", "/etc/cloud/cloud.cfg.d/99-torchfleet.cfg")


def without(path: str, now: str, hosts: str, params: Dict[str, Any]) -> str:
    if path == params["hostfile"]:
        return _retire.hostfile(now, params["name"])
    training = _retire.addresses(hosts)
    # Who is in the inventory and was not provisioned yet is no machine of that file.
    left = [name for name in params["left"] if name in training] or params["left"]
    return _retire.accelerate(now, params["node"], left, training[left[0]][0] if left and training else "")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "whole": {"type": "bool", "default": False},
            "hosts_path": {"type": "path", "default": "/etc/hosts"},
            "hostfile": {"type": "path"},
            "accelerate_config": {"type": "path"},
            "node": {"type": "str"},
            "left": {"type": "list", "elements": "str", "default": []},
            "addresses": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    host = socket.gethostname()
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        module.fail_json(msg=f"{host}: there is no user {params['user']!r}: set torchfleet_user")
    paths = {"hosts": params["hosts_path"]}
    paths.update(
        {form: os.path.join(account.pw_dir, ".ssh", form) for form in ("authorized_keys", "known_hosts", "config")}
    )
    texts = {form: _files.read(path) for form, path in paths.items()}
    known = _retire.addresses(texts["hosts"], texts["authorized_keys"])
    changes = []
    for form, path in paths.items():
        now = texts[form]
        wanted = _retire.without_block(now) if params["whole"] else _retire.without_member(form, now, params["name"])
        if wanted != now:
            changes.append((path, now, wanted))
    rendered = [path for path in (params["hostfile"], params["accelerate_config"]) if path and os.path.exists(path)]
    for path in () if params["whole"] else rendered:
        now = _files.read(path)
        wanted = without(path, now, texts["hosts"], params)
        if wanted != now:
            changes.append((path, now, wanted))
    key = os.path.join(account.pw_dir, KEY_FILE)
    own = (key, key + ".pub", *OWN_FILES, *rendered)
    gone = [path for path in own if params["whole"] and os.path.exists(path)]
    if not module.check_mode:
        try:
            for path, _now, wanted in changes:
                _files.replace(path, wanted)
            for path in gone:
                os.unlink(path)
        except OSError as error:
            module.fail_json(msg=f"{host}: {error.filename} could not be written ({error.strerror}); it is as it was")
    module.exit_json(
        changed=bool(changes or gone),
        files=[change[0] for change in changes] + gone,
        addresses=sorted(_retire.of_it_alone(known, params["name"]).union(params["addresses"])),
        diff=[
            {"before_header": path, "after_header": path, "before": now, "after": wanted}
            for path, now, wanted in changes
        ],
    )


if __name__ == "__main__":
    main()
