#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_names
short_description: Give a node its name and let it know all members
version_added: 0.1.0
description:
  - Sets the host name, at once and for the next boot, and writes all members into one managed block of C(/etc/hosts).
  - Takes the node's names off loopback lines (C(127.0.1.1 <hostname>)), which make gloo and torch advertise loopback.
  - The members come from the inventory group named by C(torchfleet_group). A duplicate or invalid host name, a
    duplicate or missing address, and an address that the node does not own fail before anything is changed.
  - Proves itself by resolving every member.
options:
  name:
    description: The node's host name. Filled in from the inventory.
    type: str
  members:
    description: All members with C(name), C(address) and C(aliases). Filled in from the inventory.
    type: list
    elements: dict
    default: []
  replace_conflicts:
    description:
      - Take members' names out of the user's own lines where these map them to another address.
      - Without it such a line is an error that names the line.
    type: bool
    default: false
  path:
    description: The hosts file.
    type: path
    default: /etc/hosts
attributes:
  check_mode:
    support: full
    description: Everything is checked and nothing is changed.
  diff_mode:
    support: full
    description: Shows the host name and the hosts file.
  action:
    support: full
    description: Reads the inventory on the controller.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Name the nodes
  torchfleet.cluster.host_names:
"""

RETURN = r"""
interface:
  description: The interface that carries the node's address on the training network.
  returned: success
  type: str
  sample: eth1
previous_name:
  description: The host name before.
  returned: success
  type: str
  sample: debian
"""

import os
import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _hosts_file
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import normalise_address

HOSTNAME_FILE = "/etc/hostname"
CLOUD_DIR = "/etc/cloud/cloud.cfg.d"
CLOUD_FILE = CLOUD_DIR + "/99-torchfleet.cfg"
# cloud-init would set both anew at every boot.
CLOUD_TEXT = "# Written by torchfleet.cluster.hosts\npreserve_hostname: true\nmanage_etc_hosts: false\n"


def write(module: AnsibleModule, path: str, text: str) -> None:
    try:
        _files.replace(path, text)
    except OSError as error:
        module.fail_json(msg=f"{path} could not be written ({error.strerror}); it is as it was")


def unresolved(members: list[dict[str, str]]) -> list[str]:
    """Members that the system's resolver maps to anything but their own address."""
    problems = []
    for member in members:
        wanted = normalise_address(member["address"])
        try:
            answers = socket.getaddrinfo(member["name"], None, proto=socket.IPPROTO_TCP)
            found = sorted({str(answer[4][0]) for answer in answers})
        except OSError as error:
            found = [str(error)]
        if found != [wanted]:
            problems.append(f"{member['name']} resolves to {', '.join(found)}, wanted {wanted}")
    return problems


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str"},
            "members": {"type": "list", "elements": "dict", "default": []},
            "replace_conflicts": {"type": "bool", "default": False},
            "path": {"type": "path", "default": "/etc/hosts"},
        },
        supports_check_mode=True,
    )
    name, members, path = module.params["name"], module.params["members"], module.params["path"]
    mine = next((member for member in members if member["name"] == name), None)
    if mine is None:
        module.fail_json(msg=f"{name!r} is not among the members")

    code, out, err = module.run_command(
        [module.get_bin_path("ip", required=True, opt_dirs=["/sbin", "/usr/sbin"]), "-j", "addr"],
        environ_update={"LC_ALL": "C"},
    )
    if code:
        module.fail_json(msg=f"'ip -j addr' failed: {err.strip()}")
    local = _hosts_file.local_addresses(out)
    problem = _hosts_file.ownership_problem(name, mine["address"], local)
    if problem:
        module.fail_json(msg=problem)

    text = _files.read(path)
    if not module.params["replace_conflicts"]:
        clashes = [
            f"{path} line {clash.line} maps {clash.name} to {clash.address}, wanted {clash.wanted}"
            for clash in _hosts_file.conflicts(text, members)
        ]
        if clashes:
            module.fail_json(
                msg=f"{name}: {'; '.join(clashes)}: remove the line, "
                "or set hosts_replace_conflicts to have the name taken out"
            )

    previous = socket.gethostname()
    wanted = _hosts_file.update(text, members, [name, previous], module.params["replace_conflicts"])
    hostname_text = _files.read(HOSTNAME_FILE)
    cloud_wanted = os.path.isdir(CLOUD_DIR) and _files.read(CLOUD_FILE) != CLOUD_TEXT
    changed = bool(wanted != text or previous != name or hostname_text.strip() != name or cloud_wanted)
    if changed and not module.check_mode:
        if wanted != text:
            write(module, path, wanted)
        if hostname_text.strip() != name:
            write(module, HOSTNAME_FILE, name + "\n")
        if previous != name:
            socket.sethostname(name)
        if cloud_wanted:
            write(module, CLOUD_FILE, CLOUD_TEXT)
    if not module.check_mode:
        problems = unresolved(members)
        if problems:
            module.fail_json(msg=f"{name}: {'; '.join(problems)}: look at 'hosts' in /etc/nsswitch.conf and at {path}")
    module.exit_json(
        changed=changed,
        interface=local[str(normalise_address(mine["address"]))],
        previous_name=previous,
        diff=[
            {"before_header": path, "after_header": path, "before": text, "after": wanted},
            {
                "before_header": "host name",
                "after_header": "host name",
                "before": f"{previous}\n",
                "after": f"{name}\n",
            },
        ]
        if changed
        else [],
    )


if __name__ == "__main__":
    main()
