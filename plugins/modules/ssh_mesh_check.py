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

import os
import pwd
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

# All members do this at the same time, and a handshake costs both sides.
PARALLEL = 4


def in_turn(peers: list[str], own: str) -> list[str]:
    """From the one after this node on, so that not all begin with the same."""
    start = peers.index(own) + 1 if own in peers else 0
    return peers[start:] + peers[:start]


def log_in(ssh: str, account: pwd.struct_passwd, peer: str, timeout: int, again: bool = True) -> str | None:
    """Why the peer cannot be logged in to, or None. `again`: what answers and is busy is asked twice."""

    def become() -> None:
        if os.geteuid() != account.pw_uid:
            os.setgid(account.pw_gid)
            os.initgroups(account.pw_name, account.pw_gid)
            os.setuid(account.pw_uid)

    command = [ssh, "-n", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout}", "--", peer, "true"]
    try:
        # Not run_command: it knows no time limit, and all peers are tried at once, in threads.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout + 5,
            env={"HOME": account.pw_dir, "USER": account.pw_name, "LC_ALL": "C", "PATH": os.defpath},
            cwd="/",
            preexec_fn=become,
            check=False,
        )
    except subprocess.TimeoutExpired:
        if again and log_in(ssh, account, peer, timeout, again=False) is None:
            return None
        return f"no answer in {timeout + 5} s"
    if done.returncode == 0:
        return None
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return words[-1] if words else f"exit status {done.returncode}"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "peers": {"type": "list", "elements": "str", "required": True},
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    account = pwd.getpwnam(module.params["user"])
    ssh = module.get_bin_path("ssh", True)
    host = socket.gethostname()
    peers = in_turn(module.params["peers"], host)
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        answers = list(pool.map(lambda peer: log_in(ssh, account, peer, module.params["timeout"]), peers))
    failed = {peer: why for peer, why in zip(peers, answers) if why}
    if failed:
        module.fail_json(
            msg="; ".join(
                f"{host} cannot log in to {peer} as {account.pw_name}: {why}" for peer, why in sorted(failed.items())
            ),
            reached=sorted(set(peers) - set(failed)),
        )
    module.exit_json(changed=False, reached=sorted(peers))


if __name__ == "__main__":
    main()
