#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cause_probe
short_description: Ask a node whether the supposed cause of a failure is really there
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Takes the probes that findings of M(torchfleet.cluster.explain) carry, and answers each by a look at the node. That
    a port is taken, an interface reaches nobody or C(/dev/shm) is full can be seen, not only read in a log.
  - Each look is bounded in time. Nothing is changed.
options:
  probes:
    description: Probes as findings have them, each with C(id) and C(parameters). One that is not known is not answered.
    type: list
    elements: dict
    required: true
  peers:
    description: The other members, each with C(name), C(address) and C(port) (that of its sshd).
    type: list
    elements: dict
    default: []
  interface:
    description: The interface on the training network.
    type: str
    default: ""
  master_port:
    description: The port of runs, for a finding that does not name one.
    type: int
    default: 29500
  run_id:
    description: The run.
    type: str
    default: ""
  user:
    description: The training user.
    type: str
    default: root
  python:
    description: The interpreter of the training.
    type: path
    default: /opt/torchfleet/venv/bin/python
  paths:
    description: Folders that runs write to.
    type: list
    elements: path
    default: [/, /tmp, /var/lib/torchfleet]
  timeout:
    description: Seconds to wait for an answer of a peer.
    type: float
    default: 2
attributes:
  check_mode:
    description: Runs as usual in check mode, because it changes nothing.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Ask whether the port is really taken
  torchfleet.cluster.cause_probe:
    probes:
      - {id: tcp_port_taken, parameters: {port: "29500"}}
"""

RETURN = r"""
answers:
  description: One element for each probe, in order.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: The probe.
      type: str
      returned: always
      sample: tcp_port_taken
    holds:
      description: Whether the cause is there. V(null) where the node cannot tell.
      type: bool
      returned: always
      sample: true
    sentence:
      description: What was seen. Empty where the probe is not known.
      type: str
      returned: always
      sample: port 29500 is held by process 4711 (python3)
"""

import glob
import os
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis import _confirm

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The last part of the kernel's log is enough, and a bound.
KERNEL_LOG_BYTES = 1 << 20
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
AT_ONCE = 16


def resolved(name: str) -> List[str]:
    try:
        found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def limit(kind: int) -> Dict[str, Optional[int]]:
    soft = resource.getrlimit(kind)[0]
    return {"limit": None if soft == resource.RLIM_INFINITY else soft}


class Node:
    """Reads what each probe needs; the judgement is made elsewhere."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params

    def output(self, *argv: str) -> Optional[str]:
        binary = self.module.get_bin_path(argv[0], opt_dirs=["/sbin", "/usr/sbin"])
        if not binary:
            return None
        code, out, err = self.module.run_command([binary, *argv[1:]], environ_update={"LC_ALL": "C"})
        return str(out if not code else out + err)

    def connect(self, address: str, port: int, interface: str = "") -> str:
        """`open`, `refused` (somebody answered), `timeout` or `unreachable`."""
        try:
            family, kind, proto, _name, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, proto) as sock:
                sock.settimeout(self.params["timeout"])
                if interface:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
                sock.connect(place)
        except ConnectionRefusedError:
            return "refused"
        except (socket.timeout, TimeoutError):
            return "timeout"
        except OSError:
            return "unreachable"
        return "open"

    def interfaces(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        return {"interfaces": _confirm.addresses_by_interface(self.output("ip", "-o", "addr", "show", "up") or "")}

    def interface_reachable(self, parameters: Dict[str, Any]) -> Dict[str, Any]:
        found = self.interfaces(parameters)
        names = _confirm.values(parameters, "interface") or [self.params["interface"]]
        tried: Dict[str, Dict[str, str]] = {}
        for name in filter(None, names[:4]):
            tried[name] = {}
            if name in found["interfaces"]:
                tried[name] = {
                    peer["name"]: self.connect(peer["address"], int(peer.get("port") or 22), name)
                    for peer in self.params["peers"]
                }
        return {**found, "tried": tried}

    def own_name(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        name = socket.gethostname()
        return {"name": name, "addresses": resolved(name)}

    def names(self, parameters: Dict[str, Any]) -> Dict[str, Any]:
        return {"names": {name: resolved(name) for name in _confirm.values(parameters, "name")}}

    def ports(self, parameters: Dict[str, Any]) -> Dict[str, Any]:
        told = _confirm.values(parameters, "port") or [str(self.params["master_port"])]
        text = self.output("ss", "-Hltnp") or ""
        return {"ports": {port: _confirm.listener_of(text, port) for port in told if port.isdigit()}}

    def places(self, parameters: Dict[str, Any]) -> Dict[str, Any]:
        """Peers that a finding names, else all."""
        named = _confirm.values(parameters, "host")
        ports = [int(port) for port in _confirm.values(parameters, "port") if port.isdigit()]
        peers = {peer["name"]: peer for peer in self.params["peers"]}
        found = {}
        for host in named or [peer["address"] for peer in peers.values()]:
            known = next((peer for peer in peers.values() if host in (peer["name"], peer["address"])), {})
            for port in ports[:3] or [int(known.get("port") or 22)]:
                place = f"{host} port {port}" if ports else host
                found[place] = self.connect(str(known.get("address") or host), port)
        return {"places": found}

    def peer_ports(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        """A port of those that the kernel deals out, where nobody listens: a peer that is reached refuses."""
        low, high = (first_line(PORT_RANGE) or "32768 60999").split()
        port = (int(low) + int(high)) // 2
        peers = self.params["peers"]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda peer: self.connect(peer["address"], port), peers)
            return {"places": {f"{peer['name']} port {port}": how for peer, how in zip(peers, found)}}

    def shm(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        space = os.statvfs("/dev/shm")
        return {"size": space.f_blocks * space.f_frsize, "free": space.f_bavail * space.f_frsize}

    def disks(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        found = {}
        for path in self.params["paths"]:
            if os.path.isdir(path):
                space = os.statvfs(path)
                # File systems that make inodes as they need them tell 0 of 0.
                inodes = space.f_favail if space.f_files else 1
                found[path] = {"free": space.f_bavail * space.f_frsize, "inodes": inodes}
        return {"disks": found}

    def paths(self, parameters: Dict[str, Any]) -> Dict[str, Any]:
        def there(path: str) -> bool:
            folders = [os.path.dirname(self.params["python"]), *SYSTEM_PATH.split(":")]
            return any(os.path.exists(os.path.join(folder, path)) for folder in folders)

        return {"paths": {path: there(path) for path in _confirm.values(parameters, "path")}}

    def libraries(self, parameters: Dict[str, Any]) -> Dict[str, Any]:
        cache = self.output("ldconfig", "-p") or ""
        site = os.path.join(os.path.dirname(os.path.dirname(self.params["python"])), "lib")
        found = {}
        for name in _confirm.values(parameters, "library"):
            places = glob.glob(os.path.join(site, "python*", "site-packages", "nvidia", "*", "lib", name))
            found[name] = name in cache or bool(places)
        return {"paths": found}

    def kernel(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        text = self.output("dmesg", "--ctime") or self.output("dmesg")
        return {"log": text[-KERNEL_LOG_BYTES:] if text else None}

    def link(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        name = self.params["interface"]
        base = f"/sys/class/net/{name}"
        changes = first_line(f"{base}/carrier_changes")
        state = first_line(f"{base}/operstate") if name else ""
        return {"interface": name, "state": state, "changes": int(changes) if changes.isdigit() else 0}

    def rdma(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        found = {}
        for path in sorted(glob.glob("/sys/class/infiniband/*/ports/*/state")):
            parts = path.split("/")
            found[f"{parts[4]}:{parts[6]}"] = first_line(path)
        return {"ports": found}

    def logins(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        found = {}
        for peer in self.params["peers"][:8]:
            argv = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(self.params['timeout']))}"]
            argv += ["-p", str(peer.get("port") or 22), peer["name"], "true"]
            if os.geteuid() == 0 and self.params["user"] != "root":
                argv = ["runuser", "-u", self.params["user"], "--", *argv]
            code, _out, err = self.module.run_command(argv)
            words = err.strip().splitlines()
            found[peer["name"]] = (words[-1] if words else f"exit status {code}") if code else ""
        return {"logins": found}

    def processes(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        mark = f"TORCHFLEET_RUN_ID={self.params['run_id']}".encode()
        count = 0
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as stream:
                    count += mark in stream.read().split(b"\0")
            except OSError:
                continue
        return {"processes": count}

    def driver(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        return {"said": (self.output("nvidia-smi", "-L") or "").strip()}

    def module_loaded(self, name: str) -> Dict[str, Any]:
        return {"there": os.path.isdir(f"/sys/module/{name}")}

    def fabric_manager(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        return {"there": (self.output("systemctl", "is-active", "nvidia-fabricmanager") or "").strip() == "active"}

    def toolkit(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        return {"there": bool(self.module.get_bin_path("nvcc", opt_dirs=["/usr/local/cuda/bin"]))}

    def build_tools(self, _parameters: Dict[str, Any]) -> Dict[str, Any]:
        folder = os.path.dirname(self.params["python"])
        ninja = self.module.get_bin_path("ninja", opt_dirs=[folder])
        headers = glob.glob("/usr/include/python3*/Python.h")
        headers += glob.glob(os.path.join(os.path.dirname(folder), "include", "python3*", "Python.h"))
        return {"there": bool(ninja and headers)}

    def readers(self) -> Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]]:
        return {
            "interfaces": self.interfaces,
            "interface_exists": self.interfaces,
            "interface_reachable": self.interface_reachable,
            "resolve_own_name": self.own_name,
            "resolve_name": self.names,
            "tcp_port_taken": self.ports,
            "tcp_port_reachable": self.places,
            "host_reachable": self.places,
            "peer_ports": self.peer_ports,
            "shm_free": self.shm,
            "disk_free": self.disks,
            "nofile": lambda _parameters: limit(resource.RLIMIT_NOFILE),
            "memlock": lambda _parameters: limit(resource.RLIMIT_MEMLOCK),
            "path_exists": self.paths,
            "kernel_oom": self.kernel,
            "xid": self.kernel,
            "driver_loaded": lambda _parameters: self.module_loaded("nvidia"),
            "driver_versions": self.driver,
            "peermem_loaded": lambda _parameters: self.module_loaded("nvidia_peermem"),
            "fabric_manager": self.fabric_manager,
            "cuda_home": self.toolkit,
            "build_tools": self.build_tools,
            "library_present": self.libraries,
            "link_state": self.link,
            "rdma_ports": self.rdma,
            "ssh_pairs": self.logins,
            "ranks_alive": self.processes,
            "gpu_count": lambda _parameters: {"gpus": len(glob.glob("/dev/nvidia[0-9]*"))},
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "probes": {"type": "list", "elements": "dict", "required": True},
            "peers": {"type": "list", "elements": "dict", "default": []},
            "interface": {"type": "str", "default": ""},
            "master_port": {"type": "int", "default": 29500},
            "run_id": {"type": "str", "default": ""},
            "user": {"type": "str", "default": "root"},
            "python": {"type": "path", "default": "/opt/torchfleet/venv/bin/python"},
            "paths": {"type": "list", "elements": "path", "default": ["/", "/tmp", "/var/lib/torchfleet"]},
            "timeout": {"type": "float", "default": 2},
        },
        supports_check_mode=True,
    )
    readers = Node(module).readers()
    answers = []
    for probe in module.params["probes"]:
        name, parameters = str(probe.get("id") or ""), dict(probe.get("parameters") or {})
        holds, sentence = None, ""
        if name in readers:
            try:
                holds, sentence = _confirm.judge(name, parameters, readers[name](parameters))
            except OSError as error:
                sentence = f"cannot be looked at: {error.strerror}"
        answers.append({"id": name, "holds": holds, "sentence": sentence})
    module.exit_json(changed=False, answers=answers)


if __name__ == "__main__":
    main()
