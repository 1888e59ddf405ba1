#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_facts
short_description: Gather facts about a node on which training depends, beside GPUs, network and Python
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Looks, in one call, at names, disks, limits of ssh sessions, services, firewall, kernel log, pending reboots,
    automatic upgrades, PCIe links, processes of runs, the master port, and the code that lies on the node.
  - Logs in to every peer by ssh as the training user.
  - A node that cannot be reached is a result of this module, with RV(reached=false), not a failure.
  - What a tool or the kernel does not tell is missing from the result. Changes nothing on the node.
options:
  user:
    description: The training user, in whose name ssh logs in and whose home is looked into.
    type: str
    default: root
  names:
    description: Names that are resolved on the node. Its own host name is always among them.
    type: list
    elements: str
    default: []
  peers:
    description: Names to log in to.
    type: list
    elements: str
    default: []
  ssh_timeout:
    description: Seconds for one connection to a peer.
    type: int
    default: 5
  master_port:
    description: The port whose holders are looked for.
    type: int
    default: 29500
  paths:
    description: Paths whose file systems are looked at; of one that does not exist, the next folder above.
    type: list
    elements: path
    default: [/, /tmp, /var/lib/torchfleet]
  revision_roots:
    description: Folders of which each subfolder that is not hidden is a tree of code to compare.
    type: list
    elements: path
    default: [/var/lib/torchfleet/work]
  revision_paths:
    description: Trees to compare, of code or data.
    type: list
    elements: path
    default: []
  revision_seconds:
    description:
      - Seconds for reading trees. What is not read by then counts by names and sizes alone.
    type: float
    default: 3
  own:
    description: What checks of the inventory ask for, each with C(id) and either C(command) (a list) or C(file).
    type: list
    elements: dict
    default: []
  include:
    description:
      - What M(torchfleet.cluster.gpu_facts), M(torchfleet.cluster.nccl_facts) and M(torchfleet.cluster.runtime_facts)
        return is gathered, too, in this one call.
    type: list
    elements: str
    choices: [gpu, nccl, runtime]
    default: []
  python:
    description: The interpreter of the training, for O(include).
    type: path
    default: /opt/torchfleet/venv/bin/python
  environment:
    description: Variables that a run adds to its environment, for O(include).
    type: dict
    default: {}
  import_torch:
    description: Whether V(runtime) of O(include) imports torch.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: It changes nothing in any mode.
  diff_mode:
    support: none
    description: It changes nothing.
  action:
    support: full
    description: Measures the node's clock against the controller's, and turns an unreachable node into a result.
seealso:
  - module: torchfleet.cluster.cluster_check
  - module: torchfleet.cluster.gpu_facts
  - module: torchfleet.cluster.nccl_facts
  - module: torchfleet.cluster.runtime_facts
"""

EXAMPLES = r"""
- name: Look at the system
  torchfleet.cluster.system_facts:
    peers: "{{ groups['train'] }}"
  register: system

- name: Show what is in the kernel log about GPUs
  ansible.builtin.debug:
    var: system.xids
"""

RETURN = r"""
reached:
  description: Whether the node answered. Without it there is only RV(problem).
  returned: always
  type: bool
  sample: true
problem:
  description: Why the node did not answer.
  returned: always
  type: str
  sample: ""
clock:
  description: The node's clock minus the controller's and its uncertainty, in seconds. V(null) if not measured.
  returned: when reached
  type: dict
  sample: {"offset": 0.003, "uncertainty": 0.012}
hostname:
  description: Host name.
  returned: when reached
  type: str
  sample: node1
kernel:
  description: Release of the running kernel.
  returned: when reached
  type: str
  sample: 6.1.0-28-amd64
os:
  description: Name of the system.
  returned: when reached
  type: str
  sample: Debian GNU/Linux 12 (bookworm)
uptime:
  description: Seconds since the start.
  returned: when reached
  type: float
  sample: 86400.5
names:
  description: Addresses of each name. Empty if it does not resolve.
  returned: when reached
  type: dict
  sample: {"node1": ["10.0.1.11"]}
ssh:
  description:
    - For each peer whether the training user can log in (C(ok), C(why) not), what its shell printed by itself
      (C(noise)), and the limits of the session (C(memlock_soft), C(memlock_hard) in bytes, C(nofile_soft),
      C(nofile_hard), V(-1) being none) and its C(ld_library_path).
  returned: when reached
  type: dict
  sample: {"node2": {"ok": true, "why": "", "noise": "", "memlock_soft": -1}}
disks:
  description: File systems below O(paths), each once.
  returned: when reached
  type: list
  elements: dict
  sample:
    - {"path": "/", "mount": "/", "size_bytes": 107374182400, "free_bytes": 53687091200, "free_percent": 50.0,
       "inodes_free_percent": 91.2, "read_only": false}
reboot:
  description: C(pending) and C(why).
  returned: when reached
  type: dict
  sample: {"pending": false, "why": ""}
upgrades:
  description: What upgrades by itself (C(automatic)), and packages of the NVIDIA driver that it may replace.
  returned: when reached
  type: dict
  sample: {"automatic": "unattended-upgrades", "driver_packages": []}
services:
  description: State of services that GPUs and clocks depend on, as far as they are installed.
  returned: when reached
  type: dict
  sample: {"nvidia-persistenced": {"active": "active", "enabled": "enabled"}}
nvswitches:
  description: Number of NVSwitches on the PCI bus.
  returned: when reached
  type: int
  sample: 0
fabric_manager:
  description: Version of the fabric manager. Empty if there is none.
  returned: when reached
  type: str
  sample: ""
xids:
  description: Xid and SXid lines of the kernel log, once for each device and number.
  returned: when reached
  type: list
  elements: dict
  sample:
    - {"kind": "Xid", "pci": "0000:3b:00", "xid": 79, "count": 1, "text": "GPU has fallen off the bus.",
       "seconds_ago": 600}
firewall:
  description: Rules and policies for incoming packets that drop or reject (C(drops)).
  returned: when reached
  type: dict
  sample: {"drops": ["tcp dport 32768-60999 drop"]}
accelerate_configs:
  description: Default configurations of accelerate in the training user's caches.
  returned: when reached
  type: list
  elements: dict
  sample: [{"path": "/root/.cache/huggingface/accelerate/default_config.yaml", "lines": ["num_machines: 2"]}]
runs:
  description: Runs of this collection that have processes, with C(pids) and whether their supervisor lives (C(agent)).
  returned: when reached
  type: list
  elements: dict
  sample: [{"run_id": "digits-1", "pids": [4711], "agent": true}]
port:
  description: Who listens on O(master_port).
  returned: when reached
  type: dict
  sample:
    number: 29500
    holders: [{"pid": 4711, "user": "root", "command": "python train.py", "run_id": "", "gpu": false}]
processes:
  description: Processes that hold a GPU's device, belong to a run, or are Python programs, by process id.
  returned: when reached
  type: dict
  sample: {"4711": {"user": "root", "command": "python train.py", "run_id": "", "gpu": true}}
pcie:
  description: PCIe links of GPUs, network cards, NVMe disks and NVSwitches, with what card and slot both can.
  returned: when reached
  type: list
  elements: dict
  sample:
    - {"address": "0000:41:00.0", "kind": "network card", "width": 16, "width_max": 16, "speed": 16.0,
       "speed_max": 16.0}
gpu:
  description: What M(torchfleet.cluster.gpu_facts) returns, or C(failed) and C(msg).
  returned: when O(include) has V(gpu)
  type: dict
  sample: {"status": "ok", "gpus": []}
nccl:
  description: What M(torchfleet.cluster.nccl_facts) returns, or C(failed) and C(msg).
  returned: when O(include) has V(nccl)
  type: dict
  sample: {"interfaces": [], "rdma": []}
runtime:
  description: What M(torchfleet.cluster.runtime_facts) returns, or C(failed) and C(msg).
  returned: when O(include) has V(runtime)
  type: dict
  sample: {"python": {"status": "ok"}, "torch": {"status": "ok"}}
revisions:
  description: Hash of each tree, how many C(files) and C(bytes), and the hashes of its first 200 files (C(listing)).
  returned: when reached
  type: dict
  sample:
    /var/lib/torchfleet/work/digits:
      {"hash": "0a6f", "files": 1, "bytes": 3411, "by_size": 0, "listing": {"train.py": "77ab"}}
own:
  description: Answers to O(own) by id, with C(value) (text, without the last line's end) or C(problem).
  returned: when reached
  type: dict
  sample: {"firmware": {"value": "28.41.1000"}}
"""

import glob
import hashlib
import os
import pwd
import re
import socket
import subprocess
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import (
    _files,
    _gather_gpu,
    _gather_nccl,
    _gather_runtime,
    _mesh,
    _nvidia_smi,
    _system,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._xid import parse_log

SBIN = ["/sbin", "/usr/sbin", "/usr/local/sbin"]
TOOL_SECONDS = 5
NVIDIA_SMI_SECONDS = 15
TORCH_SECONDS = 60
TIMED_OUT = 124  # as timeout(1) has it
SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "systemd-timesyncd", "chrony", "chronyd", "ntpd")
# PCI classes, first two bytes: network, NVMe, and the GPU's and NVSwitch's of NVIDIA.
KINDS = {"0x02": "network card", "0x0108": "NVMe disk"}
LISTED_FILES = 200
MOST_FILES = 100000
LARGE_FILE = 64 << 20
NO_CODE = (".git", "__pycache__", ".venv", "runs")


def read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def listdir(*parts: str) -> List[str]:
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def find(tool: str) -> str:
    """Path of a tool, '' where it is not installed."""
    folders = [*os.environ.get("PATH", os.defpath).split(":"), *SBIN]
    return next((path for path in (os.path.join(f, tool) for f in folders) if os.access(path, os.X_OK)), "")


def run(argv: Sequence[str], timeout: float = TOOL_SECONDS) -> Tuple[int, str, str]:
    """Exit status, output and errors; 127 and nothing where the tool is missing, 124 where it does not end."""
    path = find(argv[0])
    if not path:
        return 127, "", ""
    try:
        done = subprocess.run(
            [path, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT, "", ""
    except OSError:
        return 127, "", ""
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


# ---- ssh


def gather_ssh(user: str, peers: Sequence[str], timeout: int) -> Dict[str, Any]:
    return {
        peer: {"ok": not login.why, "why": login.why, **({} if login.why else _system.read_ssh(login.out))}
        for peer, login in _mesh.log_in_to_all(user, peers, timeout, _system.SSH_SCRIPT).items()
    }


# ---- names, disks, services


def resolve(name: str) -> List[str]:
    try:
        return list(
            dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        )
    except OSError:
        return []


def gather_disks(paths: Sequence[str]) -> List[Dict[str, Any]]:
    mounts = [
        line.split()[1].replace("\\040", " ") for line in read("/proc/mounts").splitlines() if len(line.split()) > 1
    ]
    disks: Dict[int, Dict[str, Any]] = {}
    for path in paths:
        place = _files.nearest_folder(path)
        try:
            device, space = os.stat(place).st_dev, os.statvfs(place)
        except OSError:
            continue
        real = os.path.realpath(place)
        above = [mount for mount in mounts if real == mount or real.startswith(mount.rstrip("/") + "/")]
        disks.setdefault(
            device,
            {
                "path": path,
                "mount": max(above, key=len, default="/"),
                "size_bytes": space.f_frsize * space.f_blocks,
                "free_bytes": space.f_frsize * space.f_bavail,
                "free_percent": round(100 * space.f_bavail / space.f_blocks, 1) if space.f_blocks else None,
                # btrfs and others make inodes as they are needed, and count none.
                "inodes_free_percent": round(100 * space.f_favail / space.f_files, 1) if space.f_files else None,
                "read_only": bool(space.f_flag & os.ST_RDONLY),
            },
        )
    return list(disks.values())


def gather_reboot(kernel: str, root: str = "/") -> Dict[str, Any]:
    for place in ("run/reboot-required", "var/run/reboot-required"):
        if os.path.exists(os.path.join(root, place)):
            packages = sorted(set(read(root, f"{place}.pkgs").split()))
            return {"pending": True, "why": f"for {', '.join(packages[:4])}" if packages else f"/{place} is there"}
    installed = [name[len("vmlinuz-") :] for name in listdir(root, "boot") if name.startswith("vmlinuz-")]
    newer = _system.newer_kernel(kernel, installed)
    return {"pending": bool(newer), "why": f"kernel {newer} is installed and {kernel} runs" if newer else ""}


def gather_upgrades(root: str = "/") -> Dict[str, Any]:
    free, _held = _system.driver_packages(read(root, "var/lib/dpkg/status"))
    if os.path.exists(os.path.join(root, "usr/bin/unattended-upgrade")):
        automatic, left_alone = _system.apt_upgrades(run(["apt-config", "dump"])[1])
        packages = _system.without_blacklisted(free, left_alone)
        return {"automatic": "unattended-upgrades" if automatic else "", "driver_packages": packages}
    settings = read(root, "etc/dnf/automatic.conf")
    if re.search(r"^\s*apply_updates\s*=\s*(?:yes|true|1)", settings, re.MULTILINE | re.IGNORECASE):
        _code, out, _err = run(["rpm", "-qa", "--qf", "Package: %{NAME}\nStatus: install ok installed\n\n"])
        return {"automatic": "dnf-automatic", "driver_packages": _system.driver_packages(out)[0]}
    return {"automatic": "", "driver_packages": []}


def gather_xids(uptime: float) -> List[Dict[str, Any]]:
    code, out, _err = run(["dmesg"])
    if code:
        out = run(["journalctl", "-k", "-b", "--no-pager", "-q", "-g", "Xid"])[1]
    return parse_log(out, uptime)


def gather_firewall() -> Dict[str, Any]:
    # nft shows the rules of iptables too, where both are there.
    code, nft, _err = run(["nft", "list", "ruleset"])
    return {"drops": _system.parse_firewall(nft, "" if code == 0 else run(["iptables", "-S"])[1])}


def gather_accelerate(home: str) -> List[Dict[str, Any]]:
    folders = [os.path.join(home, ".cache/huggingface"), os.path.join(home, ".huggingface")]
    if os.environ.get("HF_HOME"):
        folders.append(os.environ["HF_HOME"])
    found = []
    for folder in dict.fromkeys(folders):
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "accelerate", "default_config.*"))):
            found.append({"path": path, "lines": _system.accelerate_lines(read(path))})
    return found


# ---- processes


def gather_processes(port: int, root: str = "/") -> Tuple[Dict[str, Any], List[Dict[str, Any]], List[Dict[str, Any]]]:
    """Processes worth knowing, the runs among them, and who listens on the port."""
    inodes: Dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        inodes.update(_system.listening_inodes(read(root, "proc/net", table), port))
    sockets = {f"socket:[{inode}]" for inode in inodes}
    known: Dict[str, Any] = {}
    runs: Dict[str, Dict[str, Any]] = {}
    holders = []
    own = {str(os.getpid()), str(os.getppid())}
    for pid in filter(str.isdigit, listdir(root, "proc")):
        command = read(root, "proc", pid, "cmdline").replace("\0", " ").strip()
        if not command or pid in own:  # a thread of the kernel has no command
            continue
        match = re.search(r"(?:^|\0)TORCHFLEET_RUN_ID=([^\0]+)", read(root, "proc", pid, "environ"))
        run_id = match.group(1) if match else ""
        open_files = descriptors(os.path.join(root, "proc", pid, "fd"))
        gpu = any(re.match(r"/dev/nvidia\d", name) for name in open_files)
        about = {"user": owner(os.path.join(root, "proc", pid)), "command": command[:160], "run_id": run_id, "gpu": gpu}
        program = os.path.basename(command.split(" ", 1)[0])
        if run_id or gpu or program.startswith("python"):
            known[pid] = about
        if run_id:
            entry = runs.setdefault(run_id, {"run_id": run_id, "pids": [], "agent": False})
            entry["pids"].append(int(pid))
            entry["agent"] = entry["agent"] or "agent.py run " in command
        if sockets & open_files:
            holders.append({"pid": int(pid), **about})
    if inodes and not holders:
        holders.append({"pid": None, "user": "", "command": "", "run_id": "", "gpu": False})
    return known, list(runs.values()), holders


def descriptors(folder: str) -> Set[str]:
    found = set()
    for name in listdir(folder):
        try:
            found.add(os.readlink(os.path.join(folder, name)))
        except OSError:
            continue
    return found


def owner(folder: str) -> str:
    try:
        uid = os.stat(folder).st_uid
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
    except OSError:
        return ""


# ---- PCIe


def gather_pcie(root: str = "/") -> Tuple[List[Dict[str, Any]], int]:
    """Links, and the number of NVSwitches."""
    base = os.path.join(root, "sys/bus/pci/devices")
    links, switches = [], 0
    for address in listdir(base):
        folder = os.path.join(base, address)
        kind, vendor = read(folder, "class").strip(), read(folder, "vendor").strip()
        name = next((label for prefix, label in KINDS.items() if kind.startswith(prefix)), "")
        if vendor == "0x10de" and kind.startswith("0x03"):
            name = "GPU"
        elif vendor == "0x10de" and kind.startswith("0x0680"):
            name, switches = "NVSwitch", switches + 1
        # A virtual function has no link of its own.
        if not name or os.path.lexists(os.path.join(folder, "physfn")):
            continue
        slot = os.path.dirname(os.path.realpath(folder))
        keys = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
        link = _system.pcie_link({key: read(folder, key) for key in keys}, {key: read(slot, key) for key in keys})
        if link["width"]:
            links.append({"address": address, "kind": name, **link})
    return links, switches


# ---- code and data


def tree_files(folder: str) -> Iterator[Tuple[str, str, os.stat_result]]:
    """Path below the folder, whole path, and what stat says, in an order that is the same everywhere."""
    if os.path.isfile(folder):
        yield os.path.basename(folder), folder, os.stat(folder)
        return
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in NO_CODE)
        for name in sorted(files):
            whole = os.path.join(place, name)
            try:
                about = os.stat(whole)
            except OSError:
                continue
            if not name.endswith(".pyc"):
                yield os.path.relpath(whole, folder), whole, about


def revision(folder: str, deadline: float) -> Optional[Dict[str, Any]]:
    """The tree's hash: by content, and of large files and what time does not suffice for by size alone."""
    if not os.path.exists(folder):
        return None
    total, count, size, by_size = hashlib.sha256(), 0, 0, 0
    listing: Dict[str, str] = {}
    for name, whole, about in tree_files(folder):
        count += 1
        size += about.st_size
        if count > MOST_FILES:
            break
        mark = f"{about.st_size} bytes"
        if about.st_size > LARGE_FILE or time.monotonic() > deadline:
            by_size += 1
        else:
            try:
                with open(whole, "rb") as stream:
                    mark = hashlib.sha256(stream.read()).hexdigest()[:16]
            except OSError:
                by_size += 1
        total.update(f"{name}\0{mark}\0".encode(errors="surrogateescape"))
        if len(listing) < LISTED_FILES:
            listing[name] = mark
    return {"hash": total.hexdigest(), "files": count, "bytes": size, "by_size": by_size, "listing": listing}


def gather_revisions(roots: Sequence[str], paths: Sequence[str], seconds: float) -> Dict[str, Any]:
    deadline = time.monotonic() + seconds
    # Hidden folders are where sync keeps its releases; the tree beside them is a link to the one in use.
    trees = [os.path.join(root, name) for root in roots for name in listdir(root) if not name.startswith(".")]
    found = {path: revision(path, deadline) for path in [*trees, *paths]}
    return {path: tree for path, tree in found.items() if tree is not None}


# ---- checks of the inventory


def answer(wanted: Dict[str, Any]) -> Dict[str, str]:
    if wanted.get("file"):
        try:
            with open(str(wanted["file"]), encoding="utf-8", errors="replace") as stream:
                return {"value": stream.read(65536).rstrip("\n")}
        except OSError as error:
            return {"problem": f"{wanted['file']}: {error.strerror}"}
    argv = [str(word) for word in wanted.get("command") or ()]
    code, out, err = run(argv) if argv else (127, "", "")
    if code == TIMED_OUT and not out + err:
        return {"problem": f"{' '.join(argv)[:160]} did not end in {TOOL_SECONDS} s"}
    if code:
        return {"problem": (err.strip().splitlines() or [f"{' '.join(argv)}: exit status {code}"])[-1][:200]}
    return {"value": out[:65536].rstrip("\n")}


# ---- what the other modules gather


class Asking:
    """The module as its gatherers know it, with their own options."""

    def __init__(self, module: AnsibleModule, **params: Any) -> None:
        self.params = params
        self.run_command = module.run_command
        self.get_bin_path = module.get_bin_path


def included(module: AnsibleModule) -> Dict[str, Any]:
    """Facts of the other modules. What goes wrong in one of them does not take the rest along."""
    given = module.params
    common = {"python": given["python"], "environment": given["environment"]}
    asking = {
        "gpu": lambda: _nvidia_smi.to_facts(
            _gather_gpu.gather(Asking(module, executable=None, timeout=NVIDIA_SMI_SECONDS))
        ),
        "nccl": lambda: _gather_nccl.gather(Asking(module, **common, home=None, vendor_tools=False)),
        "runtime": lambda: _gather_runtime.gather(
            Asking(module, **common, import_torch=given["import_torch"], timeout=TORCH_SECONDS)
        ),
    }
    found: Dict[str, Any] = {}
    for name in given["include"]:
        try:
            found[name] = asking[name]()
        except Exception as error:
            found[name] = {"failed": True, "msg": f"{type(error).__name__}: {error}"}
    return found


def gather(params: Dict[str, Any]) -> Dict[str, Any]:
    kernel, hostname = os.uname().release, socket.gethostname()
    uptime = float((read("/proc/uptime").split() or ["0"])[0])
    release = re.search(r'^PRETTY_NAME="?(.*?)"?$', read("/etc/os-release"), re.MULTILINE)
    known, runs, holders = gather_processes(params["master_port"])
    pcie, switches = gather_pcie()
    services = run(
        ["systemctl", "show", "-p", "Id,LoadState,ActiveState,UnitFileState", *[f"{s}.service" for s in SERVICES]]
    )
    try:
        home = pwd.getpwnam(params["user"]).pw_dir
    except KeyError:
        home = ""
    return {
        "hostname": hostname,
        "kernel": kernel,
        "os": release.group(1) if release else "",
        "uptime": uptime,
        "names": {name: resolve(name) for name in dict.fromkeys([hostname, *params["names"]])},
        "ssh": gather_ssh(params["user"], params["peers"], params["ssh_timeout"]),
        "disks": gather_disks([*params["paths"], *([home] if home else [])]),
        "reboot": gather_reboot(kernel),
        "upgrades": gather_upgrades(),
        "services": _system.parse_services(services[1]),
        "nvswitches": switches,
        "fabric_manager": _system.parse_fabric_manager("\n".join(run(["nv-fabricmanager", "--version"])[1:])),
        "xids": gather_xids(uptime),
        "firewall": gather_firewall(),
        "accelerate_configs": gather_accelerate(home) if home else [],
        "runs": runs,
        "port": {"number": params["master_port"], "holders": holders},
        "processes": known,
        "pcie": pcie,
        "revisions": gather_revisions(params["revision_roots"], params["revision_paths"], params["revision_seconds"]),
        "own": {str(wanted.get("id")): answer(wanted) for wanted in params["own"]},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "default": "root"},
            "names": {"type": "list", "elements": "str", "default": []},
            "peers": {"type": "list", "elements": "str", "default": []},
            "ssh_timeout": {"type": "int", "default": 5},
            "master_port": {"type": "int", "default": 29500},
            "paths": {"type": "list", "elements": "path", "default": ["/", "/tmp", "/var/lib/torchfleet"]},
            "revision_roots": {"type": "list", "elements": "path", "default": ["/var/lib/torchfleet/work"]},
            "revision_paths": {"type": "list", "elements": "path", "default": []},
            "revision_seconds": {"type": "float", "default": 3},
            "own": {"type": "list", "elements": "dict", "default": []},
            "include": {"type": "list", "elements": "str", "choices": ["gpu", "nccl", "runtime"], "default": []},
            "python": {"type": "path", "default": "/opt/torchfleet/venv/bin/python"},
            "environment": {"type": "dict", "default": {}},
            "import_torch": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, reached=True, problem="", **gather(module.params), **included(module))


if __name__ == "__main__":
    main()
