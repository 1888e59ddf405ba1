#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rendered_file
short_description: Write a file that was rendered on the controller
version_added: 0.1.0
description:
  - What M(ansible.builtin.copy) does with O(content), in one call to the node in place of four or five.
  - M(torchfleet.cluster.hostfile), M(torchfleet.cluster.accelerate_config) and M(torchfleet.cluster.ssh_config)
    write by it.
options:
  content:
    description: The text of the file.
    type: str
    required: true
  dest:
    description: Absolute path of the file. Its folder has to be there.
    type: path
    required: true
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.backup
  - ansible.builtin.files
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    platforms: posix
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Write a hostfile from a template of your own
  torchfleet.cluster.rendered_file:
    content: "{{ lookup('ansible.builtin.template', 'hostfile.j2') }}"
    dest: /etc/hostfile
    mode: "0644"
"""

RETURN = r"""
dest:
  description: Path of the file.
  returned: success
  type: str
  sample: /etc/hostfile
checksum:
  description: SHA-256 of the file's content, 64 hex digits.
  returned: success
  type: str
  sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
backup_file:
  description: Path of the copy of what was there before.
  returned: changed and O(backup=true)
  type: str
  sample: /etc/hostfile.2215.2026-01-20@22:09:12~
"""

import hashlib
import os
import tempfile
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "content": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "backup": {"type": "bool", "default": False},
        },
        add_file_common_args=True,
        supports_check_mode=True,
    )
    dest, new = module.params["dest"], module.params["content"].encode()
    if os.path.isdir(dest):
        module.fail_json(msg=f"{dest} is a folder: dest has to be the path of a file")
    if not os.path.isdir(os.path.dirname(dest)):
        module.fail_json(msg=f"the folder {os.path.dirname(dest)} of {dest} is not there: make it first")
    old = None
    if os.path.exists(dest):
        with open(dest, "rb") as stream:
            old = stream.read()
    result: Dict[str, Any] = {"changed": old != new, "dest": dest, "checksum": hashlib.sha256(new).hexdigest()}
    if module._diff:
        before = (old or b"").decode(errors="replace")
        result["diff"] = {"before_header": dest, "before": before, "after_header": dest, "after": new.decode()}
    if result["changed"] and not module.check_mode:
        if module.params["backup"] and old is not None:
            result["backup_file"] = module.backup_local(dest)
        handle, written = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "wb") as stream:
            stream.write(new)
        module.atomic_move(written, dest, unsafe_writes=module.params["unsafe_writes"])
    if os.path.exists(dest):
        attributes = module.load_file_common_arguments(module.params)
        result["changed"] = module.set_fs_attributes_if_different(attributes, result["changed"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
