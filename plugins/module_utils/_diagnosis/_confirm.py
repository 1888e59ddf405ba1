# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What a node's answers say about the cause of a failure: whether it is so now, and in which words.

A reading is what a node saw, plain values; `judge` turns it into (holds, sentence). `holds` is None where the node
cannot tell, True where the cause is there, False where it is not (any more).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

Answer = Tuple[Optional[bool], str]

MIB = 1 << 20
# NCCL takes about 10 MB for each pair of ranks of a node, a container starts with 64 MiB.
LEAST_SHM = 64 * MIB
LEAST_DISK = 100 * MIB
LEAST_NOFILE = 4096
LEAST_MEMLOCK = 1 << 30
_OOM = re.compile(r"Out of memory: Killed process|oom-kill:|Memory cgroup out of memory", re.IGNORECASE)
_XID = re.compile(r"NVRM: Xid|NVRM: GPU .* has fallen off", re.IGNORECASE)


def values(parameters: Mapping[str, Any], name: str) -> List[str]:
    """The values of a parameter; a rule that did not see any puts words or `<port>` in their place."""
    found = [part.strip() for part in str(parameters.get(name) or "").split(",")]
    return [part for part in found if part and " " not in part and not part.startswith("<") and part != "?"]


def addresses_by_interface(text: str) -> Dict[str, List[str]]:
    """Interface to addresses, from `ip -o addr show up`."""
    found: Dict[str, List[str]] = {}
    for name, address in re.findall(r"^\d+:\s+([^\s@:]+)\S*\s+inet6?\s+([0-9a-fA-F.:]+)", text, re.MULTILINE):
        found.setdefault(name, []).append(address)
    return found


def listener_of(text: str, port: str) -> Optional[str]:
    """Who listens on a port, from `ss -Hltnp`: `process 812 (python3)`, or `a process`; None where nobody does."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[3].rpartition(":")[2] == port:
            named = re.search(r'\(\("([^"]+)",pid=(\d+)', line)
            return f"process {named.group(2)} ({named.group(1)})" if named else "a process"
    return None


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "none"


def _usable(reading: Mapping[str, Any]) -> List[str]:
    return sorted(name for name in reading["interfaces"] if name != "lo")


def _interface_exists(parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    there = reading["interfaces"]
    wanted = values(parameters, "interface")
    missing = [name for name in wanted if name not in there]
    if missing:
        return True, f"there is no interface {_listed(missing)} with an address; {_listed(_usable(reading))} have one"
    return (False, f"{_listed(wanted)} is there and has an address") if wanted else (None, "")


def _interface_reachable(parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    holds: Optional[bool] = None
    told = []
    for name in reading["tried"]:
        if name not in reading["interfaces"]:
            holds = True
            told.append(f"there is no interface {name} with an address")
            continue
        peers = reading["tried"][name]
        lost = [peer for peer, how in peers.items() if how in ("timeout", "unreachable")]
        if not peers:
            continue
        if lost:
            holds = True
            told.append(f"from {name} {_listed(lost)} cannot be reached")
        else:
            holds = bool(holds)
            told.append(f"all peers are reached from {name}")
    return holds, "; ".join(told)


def _interfaces(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    usable = _usable(reading)
    return not usable, f"{_listed(usable)} have addresses" if usable else "no interface but loopback has an address"


def _own_name(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    name, found = reading["name"], reading["addresses"]
    if not found:
        return True, f"the own name {name} does not resolve"
    looped = [address for address in found if ipaddress.ip_address(address).is_loopback]
    return bool(looped), f"the own name {name} resolves to {_listed(looped or found)}"


def _name(parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    wanted = values(parameters, "name")
    lost = [name for name in wanted if not reading["names"].get(name)]
    if not wanted:
        return None, ""
    if lost:
        return True, f"{_listed(lost)} cannot be resolved"
    return False, "; ".join(f"{name} resolves to {_listed(reading['names'][name])}" for name in wanted)


def _port_taken(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    held = {port: who for port, who in reading["ports"].items() if who}
    if held:
        return True, "; ".join(f"port {port} is held by {who}" for port, who in held.items())
    return (False, f"nobody listens on port {_listed(list(reading['ports']))}") if reading["ports"] else (None, "")


def _reached(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    lost = {place: how for place, how in reading["places"].items() if how in ("timeout", "unreachable")}
    words = {"timeout": "no answer", "unreachable": "no route"}
    if lost:
        return True, "; ".join(f"{place} cannot be reached ({words[how]})" for place, how in lost.items())
    return (False, f"{_listed(list(reading['places']))} can be reached") if reading["places"] else (None, "")


def _peer_ports(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    """Peers without an answer explain ranks that wait; peers with one do not refute that they did."""
    lost, told = _reached(_parameters, reading)
    return True if lost else None, told


def _shm(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    size, free = reading["size"], reading["free"]
    words = f"/dev/shm has {size // MIB} MiB, of which {free // MIB} MiB are free"
    return free < LEAST_SHM or size <= LEAST_SHM, words


def _disk(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    full = [
        f"{path} has {space['free'] // MIB} MiB and {space['inodes']} inodes free"
        for path, space in reading["disks"].items()
        if space["free"] < LEAST_DISK or space["inodes"] == 0
    ]
    if full:
        return True, "; ".join(full)
    least = min((space["free"] for space in reading["disks"].values()), default=0)
    return False, f"{_listed(list(reading['disks']))}: {least // MIB} MiB and more are free"


def _limit(least: int, name: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Answer]:
    def judged(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
        limit = reading["limit"]
        if limit is None:
            return False, f"{name} is unlimited"
        return limit < least, f"{name} is limited to {limit}"

    return judged


def _path(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    lost = [path for path, there in reading["paths"].items() if not there]
    if lost:
        return True, f"{_listed(lost)} is not there"
    return (False, f"{_listed(list(reading['paths']))} is there") if reading["paths"] else (None, "")


def _kernel(pattern: re.Pattern[str], what: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Answer]:
    def judged(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
        if reading["log"] is None:
            return None, ""
        lines = [line.strip() for line in reading["log"].splitlines() if pattern.search(line)]
        return bool(lines), f"kernel log: {lines[-1][:160]}" if lines else f"the kernel log has no {what}"

    return judged


def _there(yes: str, no: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Answer]:
    """The cause is that something is missing."""

    def judged(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
        return not reading["there"], yes if reading["there"] else no

    return judged


def _link(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    name, state = reading["interface"], reading["state"]
    if not name or not state:
        return None, ""
    flaps = reading["changes"]
    return state not in ("up", "unknown"), f"{name} is {state}" + (f", {flaps} changes of its link" if flaps else "")


def _rdma(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    down = [port for port, state in reading["ports"].items() if "ACTIVE" not in state]
    if not reading["ports"]:
        return None, "there is no RDMA device"
    return bool(down), f"{_listed(down)} not active" if down else f"{_listed(list(reading['ports']))} active"


def _ssh(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    refused = {peer: why for peer, why in reading["logins"].items() if why}
    if refused:
        return True, "; ".join(f"no login to {peer} ({why})" for peer, why in refused.items())
    return (False, f"logs in to {_listed(list(reading['logins']))}") if reading["logins"] else (None, "")


def _driver(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    said = reading["said"]
    if not said:
        return None, ""
    return bool(re.search(r"mismatch|has failed|couldn't communicate", said, re.IGNORECASE)), said.splitlines()[0][:160]


def _alive(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    count = reading["processes"]
    return None, f"{count} processes of the run are alive" if count else "no process of the run is alive"


def _gpus(_parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    count = reading["gpus"]
    return (None, f"{count} GPUs are there") if count else (True, "there is no GPU (/dev/nvidia0)")


_JUDGES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Answer]] = {
    "interfaces": _interfaces,
    "interface_exists": _interface_exists,
    "interface_reachable": _interface_reachable,
    "resolve_own_name": _own_name,
    "resolve_name": _name,
    "tcp_port_taken": _port_taken,
    "tcp_port_reachable": _reached,
    "host_reachable": _reached,
    "peer_ports": _peer_ports,
    "shm_free": _shm,
    "disk_free": _disk,
    "nofile": _limit(LEAST_NOFILE, "the number of open files"),
    "memlock": _limit(LEAST_MEMLOCK, "locked memory (bytes)"),
    "path_exists": _path,
    "kernel_oom": _kernel(_OOM, "process killed for memory"),
    "xid": _kernel(_XID, "fault of a GPU"),
    "driver_loaded": _there("the NVIDIA module is loaded", "no NVIDIA module is loaded"),
    "driver_versions": _driver,
    "peermem_loaded": _there("nvidia_peermem is loaded", "nvidia_peermem is not loaded"),
    "fabric_manager": _there("nvidia-fabricmanager is active", "nvidia-fabricmanager is not active"),
    "cuda_home": _there("there is a CUDA toolkit", "there is no CUDA toolkit (nvcc)"),
    "build_tools": _there("ninja and Python.h are there", "ninja or Python.h is missing"),
    "library_present": _path,
    "link_state": _link,
    "rdma_ports": _rdma,
    "ssh_pairs": _ssh,
    "ranks_alive": _alive,
    "gpu_count": _gpus,
}
IDS = tuple(_JUDGES)


def judge(probe: str, parameters: Mapping[str, Any], reading: Mapping[str, Any]) -> Answer:
    return _JUDGES[probe](parameters, reading)


def combine(answers: Mapping[str, Mapping[str, Any]], silent: Sequence[str] = ()) -> Optional[Dict[str, Any]]:
    """All nodes' answers to one probe in one: `confirmed`, `sentence` and `nodes`. None where no node said anything.

    `answers` have `holds` and `sentence` by node; `silent` are nodes that did not answer.
    """
    told = {name: answer for name, answer in answers.items() if answer.get("sentence")}
    if not told:
        return None
    verdicts = {answer.get("holds") for answer in told.values()}
    confirmed = True if True in verdicts else False if verdicts == {False} else None
    shown = {name: answer for name, answer in told.items() if answer.get("holds") is True} if confirmed else told
    by_sentence: Dict[str, List[str]] = {}
    for name, answer in shown.items():
        by_sentence.setdefault(str(answer["sentence"]), []).append(name)
    words = [f"{_listed(names)}: {sentence}" for sentence, names in by_sentence.items()]
    words += [f"{_listed(list(silent))}: no answer"] if silent else []
    return {
        "confirmed": confirmed,
        "sentence": "; ".join(words),
        "nodes": {
            name: {"holds": answer.get("holds"), "sentence": answer["sentence"]} for name, answer in told.items()
        },
    }
