# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What is slow beside the links: GPUs, PCIe, NVLink, disks, the all-reduce; what it costs; what has changed."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import (
    bus_factor,
    link_rate,
    median,
    pcie_gbps,
    peer_gbps,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._bench_links import Finding

# Slow below this share of its equals' median. Processors share memory and other work with the rest of the machine.
GPU_SHARE = 0.85
CPU_SHARE = 0.5
DISK_SHARE = 0.4
# Of what a bus carries by its width and generation, a copy of large blocks gets more than this.
BUS_SHARE = 0.6
# Of what the slowest link carries, an all-reduce of large messages gets more than this.
COLLECTIVE_SHARE = 0.5
# gloo adds up on the processor; more is not asked of it (Mb/s).
GLOO_MBPS = 2000.0
# A figure that has fallen by less than this since the last run is the same.
CHANGED = 0.25
# Adam in mixed precision: weights, gradients apart, moments and a master copy, bytes a parameter.
CHECKPOINT_BYTES = 14


def judge_compute(devices: Sequence[Mapping[str, Any]]) -> List[Finding]:
    """GPUs, or processors, that are slower than others of the same model.

    Each device has `node`, `index` (None: the processor), `model`, `dtype` and `tflops`.
    """
    findings = []
    groups: Dict[Tuple[str, str], List[Mapping[str, Any]]] = {}
    for device in devices:
        if device.get("tflops"):
            groups.setdefault((str(device["model"]), str(device["dtype"])), []).append(device)
    for (model, dtype), group in groups.items():
        for device in group:
            rest = [float(other["tflops"]) for other in group if other is not device]
            gpu = device["index"] is not None
            if not rest or float(device["tflops"]) >= median(rest) * (GPU_SHARE if gpu else CPU_SHARE):
                continue
            name = f"GPU {device['index']} of {device['node']}" if gpu else f"the processor of {device['node']}"
            findings.append(
                Finding(
                    "slow-gpu" if gpu else "slow-processor",
                    "warn",
                    (str(device["node"]),),
                    f"{name} ({model}) multiplies {dtype} matrices at {device['tflops']:.3g} TFLOP/s, others of its "
                    f"kind at {median(rest):.3g}: every step waits for it",
                    f"on {device['node']}: nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE -i {device['index']} "
                    "(throttling, power limit, clocks), then what else runs there"
                    if gpu
                    else f"on {device['node']}: look for other work (top), frequency limits and the power profile",
                )
            )
    return findings


def judge_buses(
    node: str, gpus: Sequence[Mapping[str, Any]], topology: Optional[Mapping[str, Any]], local: Mapping[str, Any]
) -> List[Finding]:
    """Copies from the host and between GPUs of a node against what its PCIe links and NVLinks carry."""
    findings = []
    by_index = {int(gpu["index"]): gpu for gpu in gpus}
    for device in local.get("devices") or ():
        gpu = by_index.get(-1 if device["index"] is None else int(device["index"]))
        carries = pcie_gbps(gpu.get("pcie")) if gpu else None
        if gpu and carries and device.get("from_host_gbps") and device["from_host_gbps"] < BUS_SHARE * carries:
            pcie = gpu["pcie"]
            findings.append(
                Finding(
                    "slow-pcie",
                    "warn",
                    (node,),
                    f"GPU {device['index']} of {node} gets {device['from_host_gbps']:.3g} GB/s from the host, its PCIe "
                    f"link (generation {pcie.get('generation_max')}, {pcie.get('width')} lanes) carries {carries:.3g}",
                    f"on {node}: nvidia-smi -q -i {device['index']} | grep -A9 'GPU Link Info', reseat the card or its "
                    "riser, and look at the slot's setting in the firmware",
                )
            )
    links = (topology or {}).get("links") or {}
    for copy in local.get("peers") or ():
        one, other = by_index.get(int(copy["source"])), by_index.get(int(copy["target"]))
        if not one or not other:
            continue
        way = str((links.get(f"GPU{copy['source']}") or {}).get(f"GPU{copy['target']}", ""))
        carries = peer_gbps(one, other, way)
        if carries and copy["gbps"] < BUS_SHARE * carries:
            findings.append(
                Finding(
                    "slow-peer",
                    "warn",
                    (node,),
                    f"GPU {copy['source']} to GPU {copy['target']} of {node}: {copy['gbps']:.3g} GB/s, the way between "
                    f"them ({way or 'PCIe'}) carries {carries:.3g}",
                    f"on {node}: nvidia-smi nvlink -s, nvidia-smi topo -m; with PCIe, access control (ACS) and the "
                    "IOMMU send it through the processor",
                )
            )
    return findings


def judge_disks(disks: Sequence[Mapping[str, Any]]) -> List[Finding]:
    """Folders that are slower than the same ones of other nodes. Each has `node`, `path`, `write_mbps`, `read_mbps`
    (megabytes a second)."""
    findings = []
    for way in ("write", "read"):
        for disk in disks:
            rate = disk.get(f"{way}_mbps")
            rest = [
                float(other[f"{way}_mbps"])
                for other in disks
                if other is not disk and other["path"] == disk["path"] and other.get(f"{way}_mbps")
            ]
            if rate and rest and rate < DISK_SHARE * median(rest):
                verb = "writes" if way == "write" else "reads"
                findings.append(
                    Finding(
                        "slow-disk",
                        "warn",
                        (str(disk["node"]),),
                        f"{disk['node']} {verb} {rate:.0f} MB/s in {disk['path']}, others {median(rest):.0f} MB/s",
                        f"on {disk['node']}: see what {disk['path']} lies on (findmnt -T), how full and how busy it is "
                        "(iostat -x 1)",
                    )
                )
    return findings


def collective_expected(
    backend: str, slowest_mbps: Optional[float], rdma: Sequence[Optional[float]]
) -> Optional[float]:
    """Mb/s of bus bandwidth that an all-reduce over all nodes should reach with large messages."""
    ports = [rate for rate in rdma if rate]
    if backend == "nccl" and ports and len(ports) == len(rdma):
        return min(ports)
    if slowest_mbps is None:
        return None
    return slowest_mbps if backend == "nccl" else min(slowest_mbps, GLOO_MBPS)


def judge_collective(sweep: Sequence[Mapping[str, float]], backend: str, wanted: Optional[float]) -> List[Finding]:
    """The best bus bandwidth of a sweep against what the links carry."""
    best = 8000 * max((row["busbw_gbps"] for row in sweep), default=0.0)
    if not sweep or not wanted or best >= COLLECTIVE_SHARE * wanted:
        return []
    return [
        Finding(
            "slow-all-reduce",
            "warn",
            (),
            f"all-reduce ({backend}) reaches {link_rate(best)} of bus bandwidth, the links carry {link_rate(wanted)}",
            "launch once with launch_env: {NCCL_DEBUG: INFO} and see in the log which interface and transport it takes"
            if backend == "nccl"
            else "see which interface gloo takes (GLOO_SOCKET_IFNAME) and what else the processors do",
        )
    ]


def at_size(sweep: Sequence[Mapping[str, float]], size: float) -> float:
    """Seconds of one all-reduce of so many bytes, by the sweep; beyond it at its last rate."""
    rows = sorted(sweep, key=lambda row: row["bytes"])
    for below, above in zip(rows, rows[1:]):
        if below["bytes"] <= size <= above["bytes"]:
            part = (size - below["bytes"]) / (above["bytes"] - below["bytes"])
            return float(below["seconds"] + part * (above["seconds"] - below["seconds"]))
    row = rows[-1] if size > rows[-1]["bytes"] else rows[0]
    return float(row["seconds"]) * (size / row["bytes"] if size > row["bytes"] else 1.0)


def cost(
    parameters: float,
    gradient_bytes: float,
    world: int,
    sweep: Sequence[Mapping[str, float]],
    slowest_mbps: Optional[float],
    healthy_mbps: Optional[float],
    write_mbps: Optional[float],
) -> Optional[Dict[str, Any]]:
    """What the measured figures mean for a model of so many parameters.

    `seconds` is the all-reduce of all gradients of one step, not hidden behind computation; `healthy_seconds` is the
    same if the slowest link carried what the usual one does. `checkpoint_seconds` is one node writing weights and
    optimiser.
    """
    # One rank sends nothing; what it saves takes its time all the same.
    if not parameters or not (write_mbps if world < 2 else sweep or slowest_mbps):
        return None
    size = parameters * gradient_bytes
    if world < 2:
        seconds = 0.0
    elif sweep:
        seconds = at_size(sweep, size)
    else:
        seconds = 8e-6 * size * bus_factor(world) / float(slowest_mbps or 1)
    healthy = seconds
    if slowest_mbps and healthy_mbps and healthy_mbps > slowest_mbps:
        healthy = seconds * slowest_mbps / healthy_mbps
    words = f"{_short(parameters)} parameters: {_size(size)} of gradients a step take {_time(seconds)} to all-reduce"
    if healthy < 0.8 * seconds:
        words += f"; {_time(healthy)} if the slowest link were as quick as the others"
    saving = 1e-6 * parameters * CHECKPOINT_BYTES / write_mbps if write_mbps else None
    if world < 2:
        words = f"{_short(parameters)} parameters on one rank: nothing to all-reduce"
    if saving is not None:
        words += f". A checkpoint of {_size(parameters * CHECKPOINT_BYTES)} takes {_time(saving)} to write"
    return {
        "parameters": parameters,
        "gradient_bytes": size,
        "seconds": round(seconds, 4),
        "healthy_seconds": round(healthy, 4),
        "checkpoint_seconds": None if saving is None else round(saving, 2),
        "sentence": words,
    }


def _short(number: float) -> str:
    for factor, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {letter}"
    return f"{number:.0f}"


def _size(count: float) -> str:
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def _time(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s" if seconds >= 0.1 else f"{1e3 * seconds:.2g} ms"


def figures(report: Mapping[str, Any]) -> Dict[str, Tuple[float, str]]:
    """All figures of a report of which more is better, by which two runs are compared: name to value and unit."""
    found: Dict[str, Tuple[float, str]] = {}
    for link in report.get("links") or ():
        if link.get("mbps"):
            found[f"{link['source']} to {link['target']}"] = (float(link["mbps"]), "Mb/s")
    for node in report.get("nodes") or ():
        for device in node.get("devices") or ():
            if device.get("tflops"):
                where = "processor" if device["index"] is None else f"GPU {device['index']}"
                found[f"{where} of {node['name']}"] = (float(device["tflops"]), "TFLOP/s")
        for disk in node.get("disks") or ():
            for way in ("write", "read"):
                if disk.get(f"{way}_mbps"):
                    found[f"{way} in {disk['path']} of {node['name']}"] = (float(disk[f"{way}_mbps"]), "MB/s")
    reduced = report.get("all_reduce") or {}
    # One rank moves bytes in its memory only.
    if reduced.get("sweep") and reduced["world_size"] > 1:
        # Another world is another figure.
        name = f"all-reduce ({reduced['backend']}, {reduced['world_size']} ranks), bus bandwidth"
        found[name] = (8000 * max(row["busbw_gbps"] for row in reduced["sweep"]), "Mb/s")
    return found


def compared(report: Mapping[str, Any], previous: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """What is slower and what is quicker than in the run before; None without one."""
    if not previous or previous.get("schema") != 1 or previous.get("kind") != "bench":
        return None
    now, before = figures(report), figures(previous)
    told: Dict[str, List[str]] = {"slower": [], "quicker": []}
    for name, (value, unit) in now.items():
        old = before.get(name, (0.0, ""))[0]
        if old and abs(value - old) > CHANGED * max(value, old):
            told["slower" if value < old else "quicker"].append(f"{name}: {old:.4g} before, now {value:.4g} {unit}")
    reduced, reduced_before = (one.get("all_reduce") or {} for one in (report, previous))
    alike = all(reduced.get(key) == reduced_before.get(key) for key in ("backend", "world_size"))
    return {
        "ended": previous.get("ended"),
        **told,
        "sweep": (reduced_before.get("sweep") or []) if alike else [],
        "figures": {name: value for name, (value, _unit) in before.items()},
    }
