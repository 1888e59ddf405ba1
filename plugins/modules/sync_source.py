#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sync_source
short_description: Say what belongs to a tree
version_added: 0.1.0
description:
  - Reads a folder, or one file, and makes the manifest of it, with a hash of every piece of every file. Files that look
    as they did the last time are not read again.
  - The tree lies on the controller, or on the node that the task runs on (O(remote)).
options:
  path:
    description: The folder or file, an absolute path.
    type: path
    required: true
  excludes:
    description: Patterns, as C(.gitignore) has them, of what is left out.
    type: list
    elements: str
    default: []
  remote:
    description: The tree lies on the node, not on the controller.
    type: bool
    default: false
  copy_to:
    description: Path on the controller for a readable copy of the manifest, a line for each name.
    type: path
attributes:
  check_mode:
    support: full
    description: It changes no node in any mode.
  diff_mode:
    support: none
    description: It changes no node.
  action:
    support: full
    description: Reads a tree of the controller's, and keeps the manifest there.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Read the tree
  torchfleet.cluster.sync_source:
    path: /home/me/project
    excludes: [.git/]
  register: source
  run_once: true
"""

RETURN = r"""
release:
  description: The id of what the tree holds now.
  returned: success
  type: str
  sample: 0123456789abcdef0123456789abcdef
files:
  description: Number of files.
  returned: success
  type: int
  sample: 20000
bytes:
  description: Their size.
  returned: success
  type: int
  sample: 81920000
path:
  description: The tree; of a single file, the folder that it is in.
  returned: success
  type: str
  sample: /home/me/project
host:
  description: The host of the inventory that has it; empty where it is the controller.
  returned: success
  type: str
  sample: ""
folder:
  description: A folder on the controller in which the nodes' followers tell each other how far they are.
  returned: success
  type: str
  sample: /tmp/torchfleet-sync-x1y2
"""

import base64
import os
import pwd
import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _sync_agent


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "excludes": {"type": "list", "elements": "str", "default": []},
            "remote": {"type": "bool", "default": False},
            "copy_to": {"type": "path"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    notes: list = []
    # Beside the tree no one may write; the user's cache is as good a place as any.
    cache_folder = os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".cache", "torchfleet")
    cache = os.path.join(cache_folder, f"sync-{path.strip('/').replace('/', '-')[-150:]}.digests")
    try:
        entries, fresh = _sync_agent.scan(path, module.params["excludes"], _sync_agent.read_cache(cache), notes)
        os.makedirs(cache_folder, exist_ok=True)
        _sync_agent.write_json(cache, fresh)
    except _sync_agent.SyncError as error:
        module.fail_json(msg=f"{socket.gethostname()}: {error}")
    except OSError as error:
        module.fail_json(msg=f"{socket.gethostname()}: {error.filename} cannot be read: {error.strerror}")
    for note in notes:
        module.warn(note)
    release, manifest = _sync_agent.pack(entries)
    top = path if os.path.isdir(path) else os.path.dirname(path)
    module.exit_json(changed=False, release=release, manifest=base64.b64encode(manifest).decode(), path=top)


if __name__ == "__main__":
    main()
