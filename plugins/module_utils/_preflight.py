# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What stands in the way of a run on a node, judged from what was read there; one sentence per culprit."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils import _system

SHM_BYTES = 64 << 20  # what a container engine gives; a DataLoader with workers needs more than that


@dataclass(frozen=True)
class Process:
    """A process as /proc tells of it. `run_id` is the run that it belongs to; `supervises`: it is that run's agent."""

    pid: int
    user: str
    command: str
    run_id: str = ""
    supervises: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command[:120]}) of {self.user}"


def read_process(pid: int, user: str, command: bytes, environ: bytes) -> Process:
    """From the NUL-separated texts of /proc/PID/cmdline and /proc/PID/environ."""
    words = command.decode(errors="replace").rstrip("\0").split("\0")
    run_id = ""
    for entry in environ.split(b"\0"):
        if entry.startswith(b"TORCHFLEET_RUN_ID="):
            run_id = entry.partition(b"=")[2].decode(errors="replace")
    supervises = any(word.endswith("/agent.py") for word in words[:4]) and "run" in words[2:5]
    return Process(pid, user, " ".join(words).strip(), run_id, bool(run_id) and supervises)


def split_runs(processes: Sequence[Process]) -> Tuple[Dict[str, List[Process]], Dict[str, List[Process]]]:
    """Processes of runs by run id: of those that are supervised, and of those whose supervisor is gone."""
    living = {process.run_id for process in processes if process.supervises}
    live: Dict[str, List[Process]] = {}
    stale: Dict[str, List[Process]] = {}
    for process in processes:
        if process.run_id:
            (live if process.run_id in living else stale).setdefault(process.run_id, []).append(process)
    return live, stale


def overlap_problems(live: Mapping[str, Sequence[Process]]) -> List[str]:
    return [
        f"run {run_id} of {processes[0].user} is running here: end it with stop.yml -e run_id={run_id}, or set "
        "launch_allow_overlap"
        for run_id, processes in sorted(live.items())
    ]


def gpu_problems(
    gpus: Sequence[Mapping[str, Any]], slots: int, processes: Mapping[int, Process], overlap: bool
) -> List[str]:
    """`gpus` as gpu_facts lists them. Processes of runs that are allowed beside this one do not count."""
    problems = [f"the driver has lost GPU {gpu.get('index')}: reset it or reboot" for gpu in gpus if gpu.get("lost")]
    there = sum(not gpu.get("lost") for gpu in gpus)
    if gpus and slots > there:
        problems.append(f"{slots} ranks are planned, and there are {there} GPUs: set torchfleet_slots to {there}")
    for gpu in gpus:
        for entry in gpu.get("processes") or ():
            if entry.get("kind") == "G":  # a desktop's
                continue
            pid = int(entry["pid"])
            holder = processes.get(pid)
            if holder is not None and holder.run_id and overlap:
                continue
            who = str(holder) if holder else f"process {pid} ({entry.get('name') or '?'})"
            problems.append(f"GPU {gpu.get('index')} is in use by {who}: end it, or set launch_allow_busy_gpus")
    return problems


def uneven_gpus(gpus: Mapping[str, Optional[int]], reasons: Mapping[str, str]) -> List[str]:
    """Nodes without a GPU that can be used beside nodes with some: one backend serves all ranks.

    `gpus`: how many each node has; None where the user sets the node's slots, or nobody looked.
    """
    some = ", ".join(name for name, count in gpus.items() if count)
    return [
        f"{name}: no GPU can be used ({reasons.get(name) or 'no reason is known'}), and there are some on {some}: "
        "repair it, leave it out of the group, or set torchfleet_slots"
        for name, count in gpus.items()
        if count == 0 and some
    ]


def port_problem(port: int, holder: str, free: Optional[int]) -> str:
    other = f"torchfleet_master_port to {free}, which is free" if free else "torchfleet_master_port to another port"
    return f"port {port} is held by {holder}: end it, or set {other}, or let launch_port_auto take one"


def name_problems(addresses: Mapping[str, Sequence[str]]) -> List[str]:
    """`addresses` are those that a node's resolver gives for members' names; none for a name that it does not know."""
    return [
        f"{name} resolves to {address}, where torch and gloo would listen to themselves: run provision.yml -t hosts"
        for name, found in addresses.items()
        for address in found[:1]
        if ipaddress.ip_address(address.partition("%")[0]).is_loopback
    ]


def space_problems(free: Mapping[str, int], wanted: int) -> List[str]:
    """`free` bytes by folder."""
    return [
        f"{size(left)} are free at {path}, wanted {size(wanted)} for logs and checkpoints: make room, or set "
        "launch_min_free_bytes"
        for path, left in free.items()
        if left < wanted
    ]


def memory_warnings(shm_free: Optional[int], rdma: bool, memlock: float) -> List[str]:
    """`memlock`: the limit that the run's processes can have, in bytes."""
    warnings = []
    if shm_free is None:
        warnings.append("there is no /dev/shm: NCCL and DataLoader workers need it")
    elif shm_free < SHM_BYTES:
        warnings.append(f"{size(shm_free)} are free in /dev/shm: a DataLoader with workers may die of a bus error")
    if rdma and memlock != float("inf"):
        warnings.append(_memlock_warning(memlock))
    return warnings


def session_warnings(rdma: bool, answers: Mapping[str, str]) -> List[str]:
    """`answers`: what ssh sessions to the nodes said to SSH_SCRIPT. Ranks that come over ssh have their limits."""
    limits = {peer: _system.read_ssh(out).get("memlock_hard") for peer, out in answers.items()}
    return [
        f"over ssh to {peer}, {_memlock_warning(limit)}"
        for peer, limit in limits.items()
        if rdma and limit is not None and limit >= 0
    ]


def _memlock_warning(limit: float) -> str:
    return f"no more than {size(int(limit))} of memory can be locked: RDMA fails with that; use role node_tuning"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def version_problems(versions: Mapping[str, Mapping[str, str]], packages: Sequence[str]) -> List[str]:
    """Versions that differ between nodes, by the node's name: ranks then hang or fail in the first collective."""
    problems = []
    told = {node: found for node, found in versions.items() if found}
    for package in ("python", *packages):
        groups: Dict[str, List[str]] = {}
        for node, found in told.items():
            version = found.get(package, "none")
            groups.setdefault(".".join(version.split(".")[:2]) if package == "python" else version, []).append(node)
        if len(groups) > 1:
            odd = "; ".join(f"{version} on {', '.join(nodes)}" for version, nodes in sorted(groups.items()))
            problems.append(f"{package} differs between the nodes ({odd}): run provision.yml")
    return problems


def interpreter_note(digests: Mapping[str, str]) -> str:
    """Interpreters that are not the same file, where their versions are: no reason to refuse, as mixed releases of the
    distribution have them, and the place to look when one node alone behaves otherwise."""
    groups: Dict[str, List[str]] = {}
    for node, digest in digests.items():
        if digest:
            groups.setdefault(digest, []).append(node)
    if len(groups) < 2:
        return ""
    odd = "; ".join(f"sha256 {digest[:12]} on {', '.join(nodes)}" for digest, nodes in groups.items())
    return f"the interpreter is not the same file on all nodes ({odd})"
