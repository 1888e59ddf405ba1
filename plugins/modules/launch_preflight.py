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
  - Looks, in one call, at what a run needs on the node, and never fails for what it finds. Everything that stands in
    the way is one sentence in RV(problems).
  - Ends processes of O(user) that are left of runs whose supervisor is gone; changes nothing else.
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
    description: Packages whose versions are reported.
    type: list
    elements: str
    default: [torch, numpy]
  required:
    description: Packages that must be there.
    type: list
    elements: str
    default: []
  port_auto:
    description: Take another port where O(master_port) is held.
    type: bool
    default: false
  overlap:
    description: Allow other runs on the node.
    type: bool
    default: false
  gpus:
    description: The node's GPUs, with their processes, as M(torchfleet.cluster.gpu_facts) lists them.
    type: list
    elements: dict
    default: []
  busy_gpus:
    description: Allow processes of others on the GPUs.
    type: bool
    default: false
  slots:
    description: Ranks that are planned on the node; V(0) is one for each GPU.
    type: int
    default: 0
  names:
    description: Names of members that must not resolve to loopback.
    type: list
    elements: str
    default: []
  ssh_peers:
    description: Nodes that O(user) has to reach over ssh from here.
    type: list
    elements: str
    default: []
  paths:
    description: Folders, or folders to be, for logs and checkpoints.
    type: list
    elements: path
    default: []
  min_free_bytes:
    description: Bytes that must be free at each of O(paths).
    type: int
    default: 0
  programs:
    description: Tools of launchers whose paths are reported.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: What is left of dead runs is named, and not ended.
  diff_mode:
    support: none
    description: There is no text to compare.
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
warnings_found:
  description: What may go wrong later, one sentence each.
  returned: success
  type: list
  elements: str
  sample: []
ended:
  description: Processes that were left of dead runs and were ended.
  returned: success
  type: list
  elements: str
  sample: []
master_port:
  description: The port to use; another than O(master_port) where that is held and O(port_auto) is set.
  returned: success
  type: int
  sample: 29500
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
interpreter_sha256:
  description: SHA-256 of the file that the interpreter is, 64 hex digits; empty where it does not run.
  returned: success
  type: str
  sample: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
programs:
  description: Absolute paths of the tools that are there.
  returned: success
  type: dict
  sample: {"mpirun": "/usr/bin/mpirun"}
"""

import errno
import json
import os
import pwd
import shutil
import signal
import socket
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _mesh, _preflight, _system
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import normalise_address
from ansible_collections.torchfleet.cluster.plugins.module_utils._hosts_file import local_addresses, ownership_problem
from ansible_collections.torchfleet.cluster.plugins.module_utils._ports import port_holder
from ansible_collections.torchfleet.cluster.plugins.module_utils._units import memlock

VERSIONS = """
import hashlib, importlib.metadata, json, os, platform, sys
with open(os.path.realpath(sys.executable), "rb") as file:
    interpreter = hashlib.sha256(file.read()).hexdigest()
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps([interpreter, found]))
"""


def is_held(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def processes() -> list[_preflight.Process]:
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                command = stream.read()
            with open(f"/proc/{pid}/environ", "rb") as stream:
                environ = stream.read()
        except OSError:
            continue
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        found.append(_preflight.read_process(pid, user, command, environ))
    return found


def end(stale: list[_preflight.Process]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in stale:
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and any(os.path.exists(f"/proc/{process.pid}/exe") for process in stale):
            time.sleep(0.05)


def resolve(names: list[str]) -> dict[str, list[str]]:
    found = {}
    for name in names:
        try:
            found[name] = [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        except OSError:
            found[name] = []
    return found


def free_bytes(path: str) -> int:
    return shutil.disk_usage(_files.nearest_folder(path)).free


def ssh_problems(user: str, logins: dict[str, _mesh.Login]) -> list[str]:
    return [
        f"{user} cannot log in to {peer}: {login.why}: run provision.yml -t ssh_trust"
        for peer, login in logins.items()
        if login.why
    ]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "address": {"type": "str", "required": True},
            "user": {"type": "str", "default": "root"},
            "master_port": {"type": "int", "default": 0},
            "packages": {"type": "list", "elements": "str", "default": ["torch", "numpy"]},
            "required": {"type": "list", "elements": "str", "default": []},
            "port_auto": {"type": "bool", "default": False},
            "overlap": {"type": "bool", "default": False},
            "gpus": {"type": "list", "elements": "dict", "default": []},
            "busy_gpus": {"type": "bool", "default": False},
            "slots": {"type": "int", "default": 0},
            "names": {"type": "list", "elements": "str", "default": []},
            "ssh_peers": {"type": "list", "elements": "str", "default": []},
            "paths": {"type": "list", "elements": "path", "default": []},
            "min_free_bytes": {"type": "int", "default": 0},
            "programs": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    host = socket.gethostname()
    python = params["python"]
    problems = []
    interpreter, versions = "", {}

    account = None
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        problems.append(f"there is no user {params['user']!r}: make it, or set torchfleet_user")
    if not os.access(python, os.X_OK):
        problems.append(f"there is no interpreter {python}: run provision.yml, or set torchfleet_python")
    elif account:
        code, out, err = _mesh.as_user(account, [python, "-c", VERSIONS, *params["packages"], *params["required"]], 60)
        if code:
            words = err.strip().splitlines()
            problems.append(f"{python} does not run: {words[-1] if words else code}")
        else:
            interpreter, versions = json.loads(out)
            missing = [name for name in params["required"] if name not in versions]
            problems += [f"{python} has no {name}: run provision.yml" for name in missing]

    logins = _mesh.log_in_to_all(account.pw_name, params["ssh_peers"], 5, _system.SSH_SCRIPT) if account else {}
    problems += ssh_problems(params["user"], logins)
    seen = processes()
    live, stale = _preflight.split_runs(seen)
    ended = []
    for run_id, left in stale.items():
        if left[0].user != params["user"]:
            problems.append(f"{left[0]} is left of run {run_id}: it is for {left[0].user} to end")
        elif not module.check_mode:
            end(left)
        ended += [f"{process}, left of run {run_id}" for process in left if process.user == params["user"]]
    if not params["overlap"]:
        problems += _preflight.overlap_problems(live)
    if not params["busy_gpus"]:
        by_pid = {process.pid: process for process in seen}
        problems += _preflight.gpu_problems(params["gpus"], params["slots"], by_pid, params["overlap"])
    problems += _preflight.name_problems(resolve(params["names"]))
    problems += _preflight.space_problems(
        {path: free_bytes(path) for path in params["paths"]}, params["min_free_bytes"]
    )
    shm = free_bytes("/dev/shm") if os.path.isdir("/dev/shm") else None
    rdma = os.path.isdir("/sys/class/infiniband")
    warnings = _preflight.memory_warnings(shm, rdma, memlock())
    warnings += _preflight.session_warnings(rdma, {peer: login.out for peer, login in logins.items()})

    code, out, err = module.run_command([module.get_bin_path("ip", True, ["/sbin", "/usr/sbin"]), "-j", "addr"])
    local = local_addresses(out) if code == 0 else {}
    owner = ownership_problem(host, params["address"], local)
    if owner:
        problems.append(owner.partition(": ")[2])
    port = params["master_port"]
    if port and not owner and is_held(params["address"], port):
        others = (other for other in range(port + 1, min(port + 200, 65536)) if not is_held(params["address"], other))
        free = next(others, None)
        holder = str(port_holder(port) or "another process")
        if params["port_auto"] and free:
            warnings.append(f"port {port} is held by {holder}: port {free} is taken in its place")
            port = free
        else:
            problems.append(_preflight.port_problem(port, holder, free))
    module.exit_json(
        changed=bool(ended),
        problems=problems,
        warnings_found=warnings,
        ended=ended,
        master_port=port,
        versions=versions,
        interpreter_sha256=interpreter,
        interface=local.get(str(normalise_address(params["address"]))),
        programs={name: path for name, path in ((n, module.get_bin_path(n)) for n in params["programs"]) if path},
    )


if __name__ == "__main__":
    main()
