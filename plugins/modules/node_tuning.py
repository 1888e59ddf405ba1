#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tuning
short_description: Limits, shared memory and ports of a training node
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Sets memlock and nofile for ssh sessions (pam_limits) and for units (systemd), the size of /dev/shm, and the range
    of ports that NCCL and gloo listen on; says whether the clock is kept in step.
  - A limit that the node's kernel or container does not grant is lowered to what it grants, and RV(notices) says so.
    One that cannot be set would lock everybody out of ssh.
options:
  name:
    description: The node's name in what is said of it. By default its host name.
    type: str
  memlock:
    description: Locked memory, V(unlimited) or bytes (V(64g)). RDMA needs it. Without it, left alone.
    type: str
  nofile:
    description: Open files. Without it, left alone.
    type: str
  shm_size:
    description: Size of /dev/shm, V(64g) or V(50%) of the memory. Without it, left alone.
    type: str
  shm_least:
    description: Bytes below which RV(notices) names /dev/shm; through it the ranks of a node exchange data.
    type: int
    default: 1073741824
  ports:
    description: First and last port for outgoing and unnamed ports (V(50000-51000)). Without it, left alone.
    type: str
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Let RDMA lock its memory
  torchfleet.cluster.node_tuning:
    memlock: unlimited
    nofile: "1048576"
"""

RETURN = r"""
memlock:
  description: The limit in bytes that was set, V(-1) for unlimited; V(null) if it was left alone.
  returned: success
  type: int
  sample: -1
nofile:
  description: The limit that was set; V(null) if it was left alone.
  returned: success
  type: int
  sample: 1048576
time_sync:
  description: What keeps the clock in step, or that nothing does.
  returned: success
  type: str
  sample: chrony
time_kept:
  description: Whether something keeps the clock in step.
  returned: success
  type: bool
  sample: true
notices:
  description: What could not be set as wanted, and what to mind.
  returned: success
  type: list
  elements: str
  sample: ["nofile 1048576 is not granted here: 20000 was set"]
"""

import os
import resource
import socket
from typing import Any, Dict, List, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _tuning

RESOURCES = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE}
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
SHM = "/dev/shm"


def grants(name: str, value: int) -> bool:
    """Whether root may set the limit here: in a child, as it cannot be undone."""
    wanted = resource.RLIM_INFINITY if value == _tuning.UNLIMITED else value
    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(RESOURCES[name], (wanted, wanted))
            os._exit(0)
        except (OSError, ValueError):
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def granted_limit(name: str, wanted: Optional[str], notices: List[str]) -> Optional[int]:
    """The wanted limit, or the one of PID 1 where more is not granted."""
    if wanted is None:
        return None
    value = _tuning.parse_limit(wanted, f"node_tuning_{name}", 1 if name == "nofile" else 1024)
    if grants(name, value):
        return value
    most = _tuning.process_limits(_files.read("/proc/1/limits")).get(name)
    lower = most if most is not None and grants(name, most) else resource.getrlimit(RESOURCES[name])[1]
    notices.append(f"{name} {wanted} is not granted here: {lower} was set")
    return lower


def shm_now() -> int:
    space = os.statvfs(SHM)
    return space.f_frsize * space.f_blocks


def ask(module: AnsibleModule, *argv: str) -> str:
    try:
        return str(module.run_command(list(argv), environ_update={"LC_ALL": "C"}, handle_exceptions=False)[1])
    except OSError:
        return ""


def do(module: AnsibleModule, *argv: str) -> None:
    code, out, err = module.run_command(list(argv), environ_update={"LC_ALL": "C"})
    if code:
        module.fail_json(msg=f"{socket.gethostname()}: {' '.join(argv)}: {(err or out).strip()}")


def wanted_files(params: Dict[str, Any], memlock: Optional[int], nofile: Optional[int]) -> Dict[str, str]:
    files = _tuning.limit_files(memlock, nofile)
    if params["ports"] is not None:
        files[_tuning.SYSCTL] = _tuning.port_file(_tuning.parse_ports(params["ports"]))
    if params["shm_size"] is not None:
        _tuning.shm_bytes(params["shm_size"], 1)
        files["/etc/fstab"] = _tuning.fstab_with_shm(_files.read("/etc/fstab"), params["shm_size"])
    return files


def apply_now(module: AnsibleModule, changed: List[str]) -> List[str]:
    """What is running is made the same as the files; what had to be changed for that."""
    params, done = module.params, []
    if _tuning.SYSTEM in changed:
        if not module.check_mode:
            do(module, "systemctl", "daemon-reexec")
        done.append("the limits of units")
    if params["ports"] is not None:
        first, last = _tuning.parse_ports(params["ports"])
        if _files.read(PORT_RANGE).split() != [str(first), str(last)]:
            if not module.check_mode:
                with open(PORT_RANGE, "w", encoding="ascii") as stream:
                    stream.write(f"{first} {last}\n")
            done.append("ip_local_port_range")
    if params["shm_size"] is not None:
        memory = _tuning.memory_bytes(_files.read("/proc/meminfo"))
        if not _tuning.same_size(shm_now(), _tuning.shm_bytes(params["shm_size"], memory)):
            if not module.check_mode:
                do(module, "mount", "-o", f"remount,size={params['shm_size']}", SHM)
            done.append(SHM)
    return done


def clock(module: AnsibleModule) -> Tuple[bool, str]:
    names = _tuning.time_services()
    states = ask(module, "systemctl", "is-active", *names).split()
    return _tuning.time_sync(ask(module, "timedatectl", "show"), dict(zip(names, states)))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str"},
            "memlock": {"type": "str"},
            "nofile": {"type": "str"},
            "shm_size": {"type": "str"},
            "shm_least": {"type": "int", "default": 1 << 30},
            "ports": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    notices: List[str] = []
    try:
        limits = {name: granted_limit(name, params[name], notices) for name in RESOURCES}
        files = wanted_files(params, limits["memlock"], limits["nofile"])
    except _tuning.TuningError as error:
        module.fail_json(msg=f"{socket.gethostname()}: {error}")
    before = {path: _files.read(path) for path in files}
    changed = [path for path, text in files.items() if before[path] != text]
    for path in changed:
        if not module.check_mode:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _files.replace(path, files[path])
    running = apply_now(module, changed)
    if not any(
        "pam_limits.so" in _files.read(f"/etc/pam.d/{name}") for name in ("sshd", "common-session", "password-auth")
    ):
        notices.append("PAM's sshd knows no pam_limits: limits do not hold in ssh sessions")
    if params["shm_size"] is None and shm_now() < params["shm_least"]:
        notices.append(
            f"/dev/shm has {shm_now() >> 20} MiB, too few for the ranks of a node: "
            "set node_tuning_shm_size, for example to 50%"
        )
    virtual = ask(module, "systemd-detect-virt", "--container").strip()
    kept, words = (True, f"{virtual}: the machine's own") if virtual not in ("", "none") else clock(module)
    if not kept:
        notices.append(f"{words}: clocks that differ break certificates and mix up logs; install chrony, for example")
    for notice in notices if changed or not kept else ():
        module.warn(f"{params['name'] or socket.gethostname()}: {notice}")
    module.exit_json(
        changed=bool(changed or running),
        memlock=limits["memlock"],
        nofile=limits["nofile"],
        time_kept=kept,
        time_sync=words,
        notices=notices,
        diff=[
            {"before_header": path, "after_header": path, "before": before[path], "after": files[path]}
            for path in changed
        ]
        + [{"prepared": f"{one} is brought up to date"} for one in running],
    )


if __name__ == "__main__":
    main()
