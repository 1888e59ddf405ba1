#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: download
short_description: Bring a verified file to a node, fetched once for all
version_added: 0.1.0
description:
  - The controller fetches the file into a cache, once however many nodes want it, verifies it, and copies it to the
    node. The node needs no internet.
  - A file that is broken, cut off or not the wanted one leaves the node as it was. A fetch that was cut off is
    continued by the next call.
options:
  url:
    description: Where the file is. Exclusive with O(src).
    type: str
  src:
    description: The file on the controller, where there is no internet at all.
    type: path
  sha256:
    description:
      - The SHA-256 of the file, as hex digits. Without it https alone vouches for a file, and O(url) is asked anew once
        an hour.
      - Required with O(src).
    type: str
  dest:
    description: Absolute path of the file on the node. Its folder must be there.
    type: path
    required: true
  cache:
    description: Folder of the controller that keeps what was fetched.
    type: path
    default: ~/.cache/torchfleet
  mode:
    description: Mode of the file.
    type: raw
    default: "0644"
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
    details: Fetches nothing.
  diff_mode:
    support: none
  platform:
    platforms: posix
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Bring the installer
  torchfleet.cluster.download:
    url: https://example.org/Miniforge3-Linux-x86_64.sh
    sha256: 6c5f9f7f0a0d3f3f8f1a9e8b2a9d8c7b6a5f4e3d2c1b0a9f8e7d6c5b4a392817
    dest: /opt/torchfleet/downloads/Miniforge3-Linux-x86_64.sh
    mode: "0755"
"""

RETURN = r"""
---
dest:
  description: Path of the file.
  returned: success
  type: str
  sample: /opt/torchfleet/downloads/Miniforge3-Linux-x86_64.sh
fetched_bytes:
  description: Bytes that this call fetched from the network. V(0) where the cache or the node had the file.
  returned: success
  type: int
  sample: 91750400
"""
