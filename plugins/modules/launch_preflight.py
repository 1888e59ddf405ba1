#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_preflight
short_description: Look whether a node can take its part in a run
version_added: 0.1.0
description:
  - Looks, in one call and well under a second, at what a run needs on the node; changes nothing and never fails for
    what it finds. Everything that stands in the way is one sentence in RV(problems).
options:
  python:
    description: The interpreter of the training.
    type: path
    required: true
  address:
    description: The node's address on the training network.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    default: root
  master_port:
    description: The port that must be free on the head; V(0) on the other nodes.
    type: int
    default: 0
  packages:
    description: Packages whose versions are reported; the first must be there.
    type: list
    elements: str
    default: [torch, numpy]
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
- name: Look at the node
  torchfleet.cluster.launch_preflight:
    python: /opt/torchfleet/venv/bin/python
    address: 10.0.1.11
"""

RETURN = r"""
problems:
  description: What stands in the way of a run, one sentence each.
  returned: success
  type: list
  elements: str
  sample: []
interface:
  description: The interface that carries the address.
  returned: success
  type: str
  sample: eth1
versions:
  description: Versions of Python and the packages, as the interpreter would load them.
  returned: success
  type: dict
  sample: {"python": "3.11.2", "torch": "2.13.0+cpu"}
rsync:
  description: Whether rsync is there.
  returned: success
  type: bool
  sample: true
"""

import errno
import json
import os
import pwd
import socket
import subprocess

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import normalise_address
from ansible_collections.torchfleet.cluster.plugins.module_utils._hosts_file import local_addresses, ownership_problem

VERSIONS = """
import importlib.metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def as_user(account: pwd.struct_passwd, command: list[str], seconds: float = 60) -> tuple[int, str, str]:
    """Exit status, output and errors of a command with the training user's rights: root runs nothing of that user's."""

    def become() -> None:
        if os.geteuid() != account.pw_uid:
            os.setgid(account.pw_gid)
            os.initgroups(account.pw_name, account.pw_gid)
            os.setuid(account.pw_uid)

    env = {"HOME": account.pw_dir, "USER": account.pw_name, "LC_ALL": "C.UTF-8", "PATH": os.defpath}
    try:
        # Not run_command, which becomes nobody else and knows no time limit.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds,
            env=env, cwd="/", preexec_fn=become, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer in {seconds:.0f} s"
    except (OSError, subprocess.SubprocessError) as error:
        return 126, "", str(error)
    return done.returncode, done.stdout, done.stderr


def port_holder(port: int) -> str:
    """Who listens on a TCP port, as `pid N (command)`, from /proc alone."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as stream:
                for line in stream.readlines()[1:]:
                    fields = line.split()
                    if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "0A":
                        inodes.add(f"socket:[{fields[9]}]")
        except OSError:
            continue
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
            if links & inodes:
                with open(f"/proc/{pid}/cmdline", "rb") as stream:
                    command = stream.read().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {pid} ({command[:120]})"
        except OSError:
            continue
    return "another process"


def port_problem(address: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return None
            return f"port {port} is held by {port_holder(port)}: end it, or set torchfleet_master_port to another port"
    return None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "address": {"type": "str", "required": True},
            "user": {"type": "str", "default": "root"},
            "master_port": {"type": "int", "default": 0},
            "packages": {"type": "list", "elements": "str", "default": ["torch", "numpy"]},
        },
        supports_check_mode=True,
    )
    params = module.params
    host = socket.gethostname()
    python = params["python"]
    problems = []
    versions: dict[str, str] = {}

    account = None
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        problems.append(f"there is no user {params['user']!r}: make it, or set torchfleet_user")
    if not os.access(python, os.X_OK):
        problems.append(f"there is no interpreter {python}: run provision.yml, or set torchfleet_python")
    elif account:
        code, out, err = as_user(account, [python, "-c", VERSIONS, *params["packages"]])
        if code:
            words = err.strip().splitlines()
            problems.append(f"{python} does not run: {words[-1] if words else code}")
        else:
            versions = json.loads(out)
            wanted = params["packages"][:1]
            problems += [f"{python} has no {name}: run provision.yml" for name in wanted if name not in versions]

    code, out, err = module.run_command([module.get_bin_path("ip", True, ["/sbin", "/usr/sbin"]), "-j", "addr"])
    local = local_addresses(out) if code == 0 else {}
    owner = ownership_problem(host, params["address"], local)
    if owner:
        problems.append(owner.partition(": ")[2])
    elif params["master_port"]:
        held = port_problem(params["address"], params["master_port"])
        if held:
            problems.append(held)
    module.exit_json(
        changed=False,
        problems=problems,
        versions=versions,
        interface=local.get(str(normalise_address(params["address"]))),
        rsync=module.get_bin_path("rsync") is not None,
    )


if __name__ == "__main__":
    main()
