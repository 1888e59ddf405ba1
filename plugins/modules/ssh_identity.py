#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_identity
short_description: Make a node's cluster key and report who the node is to ssh
version_added: 0.1.0
description:
  - Makes an ed25519 key for the training user on the node, where there is none. The private key never leaves the node.
  - Returns the public key, the node's host public keys and its addresses, for M(torchfleet.cluster.ssh_mesh), and what
    the node knows of the other members, for M(torchfleet.cluster.ssh_identity_check).
options:
  user:
    description: The training user.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: No key is made; RV(public_key) is empty where there is none.
  diff_mode:
    support: none
    description: Keys are not shown.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Make the cluster key of root
  torchfleet.cluster.ssh_identity:
    user: root
"""

RETURN = r"""
public_key:
  description: The user's cluster key.
  returned: success
  type: str
  sample: ssh-ed25519 AAAA... torchfleet:root@node1
host_keys:
  description: sshd's public host keys.
  returned: success
  type: list
  elements: str
  sample: [ssh-ed25519 AAAA...]
addresses:
  description: All addresses of the node but loopback and link-local ones.
  returned: success
  type: list
  elements: str
  sample: [10.0.0.11, 10.0.1.11]
known:
  description: The keys that the node holds of each member in its managed blocks.
  returned: success
  type: dict
  sample: {node2: {public_key: ssh-ed25519 AAAA..., host_keys: [ssh-ed25519 AAAA...]}}
"""

import glob
import ipaddress
import os
import pwd
import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _managed_block
from ansible_collections.torchfleet.cluster.plugins.module_utils._hosts_file import local_addresses
from ansible_collections.torchfleet.cluster.plugins.module_utils._ssh_trust import KEY_FILE, clean_key, records


def host_keys(module: AnsibleModule) -> list[str]:
    keys = []
    for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub")):
        try:
            keys.append(clean_key(_files.read(path)))
        except ValueError:
            module.warn(f"{path} holds no public key; it is left out")
    if not keys:
        module.fail_json(
            msg=f"{socket.gethostname()}: no public host key in /etc/ssh: "
            "install openssh-server, or run 'ssh-keygen -A'"
        )
    return keys


def main() -> None:
    module = AnsibleModule(argument_spec={"user": {"type": "str", "required": True}}, supports_check_mode=True)
    user = module.params["user"]
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        module.fail_json(msg=f"{socket.gethostname()}: there is no user {user!r}: make it, or set torchfleet_user")
    code, out, err = module.run_command([module.get_bin_path("ip", True, ["/sbin", "/usr/sbin"]), "-j", "addr"])
    if code:
        module.fail_json(msg=f"'ip -j addr' failed: {err.strip()}")
    addresses = [address for address in local_addresses(out) if not ipaddress.ip_address(address).is_loopback]

    private = os.path.join(account.pw_dir, KEY_FILE)
    missing = not (os.path.exists(private) and os.path.exists(private + ".pub"))
    keys = host_keys(module)
    if missing and not module.check_mode:
        folder = os.path.dirname(private)
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
            os.chown(folder, account.pw_uid, account.pw_gid)
        keygen = module.get_bin_path("ssh-keygen", True)
        if os.path.exists(private):  # cut off between the two files
            code, out, err = module.run_command([keygen, "-y", "-f", private])
            if code:
                module.fail_json(msg=f"{private} is not a usable key ({err.strip()}): remove it and run again")
            _files.replace(private + ".pub", out)
        else:
            # Made under another name and renamed: a key that was cut off is never taken for a whole one.
            temporary = f"{private}.{os.getpid()}"
            comment = f"torchfleet:{user}@{socket.gethostname()}"
            module.run_command([keygen, "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", temporary], check_rc=True)
            os.rename(temporary + ".pub", private + ".pub")
            os.rename(temporary, private)
        for path in (private, private + ".pub"):
            os.chown(path, account.pw_uid, account.pw_gid)
    public = _files.read(private + ".pub").strip()
    authorized, known = (
        _managed_block.split(_files.read(os.path.join(account.pw_dir, ".ssh", name)))[1]
        for name in ("authorized_keys", "known_hosts")
    )
    module.exit_json(
        changed=missing,
        public_key=public,
        host_keys=keys,
        addresses=addresses,
        known={
            name: {"public_key": record.public_key, "host_keys": list(record.host_keys)}
            for name, record in records(authorized, known).items()
        },
    )


if __name__ == "__main__":
    main()
