# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Checks of GPUs, PCIe and what GPUs and network cards need to reach each other."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks import _xid
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import Check, Cluster, Hit, get, size

_SMI = "nvidia-smi's own words; see NVIDIA's manual of nvidia-smi"
# Problems that hold a GPU back without endangering the run.
_MILD = ("is slowed down", "lanes")


def driver_answers(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        gpu = get(node, "gpu", {})
        idle = gpu.get("status") in ("not_installed", "no_devices") and not gpu.get("pci_gpus")
        if gpu and gpu.get("status") != "ok" and not idle:
            yield Hit((str(node["name"]),), {"value": gpu.get("reason") or gpu.get("status")})


def gpus_missing(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        on_bus, known = len(get(node, "gpu.pci_gpus", [])), len(get(node, "gpu.gpus", []))
        if get(node, "gpu.status") == "ok" and on_bus > known:
            yield Hit((str(node["name"]),), {"value": on_bus, "known": known})


def unhealthy(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for gpu in get(node, "gpu.gpus", []):
            for problem in gpu.get("problems") or ():
                what, _colon, remedy = str(problem).partition(": ")
                yield Hit(
                    (str(node["name"]),),
                    {"index": gpu.get("index"), "pci": gpu.get("pci_address"), "value": what, "advice": remedy},
                    remedy="{advice}" if remedy else "",
                    severity="warn" if any(word in problem for word in _MILD) else "",
                )


def xid_events(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for event in get(node, "system.xids", []):
            what, action = _xid.meaning(event)
            severity, remedy = _xid.ACTIONS[action]
            yield Hit(
                (str(node["name"]),),
                {
                    "kind": event["kind"],
                    "xid": event["xid"],
                    "pci": event["pci"],
                    "what": what,
                    "text": event.get("text") or "",
                    "ago": _ago(event.get("seconds_ago")),
                    "node": node["name"],
                },
                remedy=remedy,
                severity=severity,
            )


def _ago(seconds: Any) -> str:
    if seconds is None:
        return "since the last boot"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit} ago"
    return f"{int(seconds)} s ago"


def fabric_manager(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        if not get(node, "system.nvswitches", 0):
            continue
        driver, version = get(node, "gpu.driver_version"), get(node, "system.fabric_manager")
        state = get(node, "system.services", {}).get("nvidia-fabricmanager", {})
        values = {"driver": driver, "value": version}
        if state.get("active") != "active":
            yield Hit(
                (str(node["name"]),),
                values,
                sentence="{nodes}: NVSwitches are there and nvidia-fabricmanager does not run",
            )
        elif version and driver and version != driver:
            yield Hit((str(node["name"]),), values)


def foreign_processes(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        known: Mapping[str, Any] = get(node, "system.processes", {})
        told = set()
        for gpu in get(node, "gpu.gpus", []):
            for process in gpu.get("processes") or ():
                if process.get("kind") == "G":
                    continue
                pid = str(process.get("pid"))
                about = known.get(pid) or {}
                if about.get("run_id"):
                    continue
                told.add(pid)
                yield _foreign(node, pid, about, f"GPU {gpu.get('index')}", process)
        for pid, about in known.items():
            if about.get("gpu") and not about.get("run_id") and pid not in told and not _of_the_driver(about):
                yield _foreign(node, pid, about, "a GPU", {})


def _of_the_driver(about: Mapping[str, Any]) -> bool:
    return any(
        name in str(about.get("command")) for name in ("nvidia-persistenced", "nv-hostengine", "nv-fabricmanager")
    )


def _foreign(
    node: Mapping[str, Any], pid: str, about: Mapping[str, Any], where: str, process: Mapping[str, Any]
) -> Hit:
    memory = process.get("memory_bytes")
    return Hit(
        (str(node["name"]),),
        {
            "pid": pid,
            "where": where,
            "command": about.get("command") or process.get("name") or "its command cannot be read",
            "user": about.get("user") or "an unknown user",
            "memory": f", {size(memory)}" if memory else "",
        },
    )


def pcie_links(cluster: Cluster) -> Iterator[Hit]:
    """Links below what card and slot both can. Generation is judged on what does not save power: not on GPUs."""
    for node in cluster.nodes:
        for link in get(node, "system.pcie", []):
            base = {"kind": link["kind"], "address": link["address"]}
            if link.get("width") and link.get("width_max") and link["width"] < link["width_max"]:
                yield Hit(
                    (str(node["name"]),), {**base, "value": f"x{link['width']}", "wanted": f"x{link['width_max']}"}
                )
            speed, speed_max = link.get("speed"), link.get("speed_max")
            if link["kind"] != "GPU" and speed and speed_max and speed < speed_max:
                yield Hit((str(node["name"]),), {**base, "value": f"{speed:g} GT/s", "wanted": f"{speed_max:g} GT/s"})
        seen = {link["address"] for link in get(node, "system.pcie", [])}
        for gpu in get(node, "gpu.gpus", []):
            pcie = gpu.get("pcie") or {}
            if (
                gpu.get("pci_address") not in seen
                and pcie.get("width")
                and pcie["width"] < (pcie.get("width_max") or 0)
            ):
                yield Hit(
                    (str(node["name"]),),
                    {
                        "kind": f"GPU {gpu.get('index')}",
                        "address": gpu.get("pci_address"),
                        "value": f"x{pcie['width']}",
                        "wanted": f"x{pcie['width_max']}",
                    },
                )


def peer_access(cluster: Cluster) -> Iterator[Hit]:
    """ACS and the IOMMU matter where a GPU has a peer: another GPU, or an RDMA device."""
    for node in cluster.nodes:
        gpus, rdma = len(get(node, "gpu.gpus", [])), len(get(node, "nccl.rdma", []))
        if gpus < 1 or gpus + rdma < 2:
            continue
        acs, iommu = get(node, "nccl.acs", {}), get(node, "nccl.iommu", {})
        if acs.get("status") == "enabled":
            yield Hit(
                (str(node["name"]),),
                {"value": len(acs.get("redirecting") or ())},
                sentence="{nodes}: PCIe ACS sends traffic between devices through the processor, at {value} bridges",
                remedy="switch ACS off in the firmware (BIOS) setup, or at each boot with setpci on those bridges",
            )
        if iommu.get("status") == "translated":
            yield Hit(
                (str(node["name"]),),
                sentence="{nodes}: the IOMMU translates the devices' addresses",
                remedy="add iommu=pt to the kernel's command line, or switch the IOMMU off, and reboot",
            )


def _alike(id: str, title: str, reads: str, severity: str, remedy: str, source: str) -> Check:
    return Check(
        id=id,
        area="gpu",
        title=title,
        reads=reads,
        rule={"same": "whole"},
        severity=severity,
        sentence="{nodes} {has} " + title + " {value}, {others} {others_have} {usual}",
        remedy=remedy,
        source=source,
        where="gpu.gpus" if reads.startswith("gpu.gpus[]") else "gpu",
    )


CHECKS = (
    Check(
        id="gpu-driver",
        area="gpu",
        title="driver answers",
        reads="gpu.status",
        rule=driver_answers,
        severity="fail",
        sentence="{nodes}: {value}",
        remedy="see the driver's state above; after an upgrade of the driver, reboot",
        source=_SMI,
    ),
    Check(
        id="gpus-missing",
        area="gpu",
        title="all GPUs of the bus",
        reads="gpu.pci_gpus",
        rule=gpus_missing,
        severity="fail",
        sentence="{nodes}: {value} GPUs are on the PCI bus and the driver has {known} of them",
        remedy="look for Xid lines in the kernel log, reboot, then reseat the GPU",
        source="/sys/bus/pci against nvidia-smi",
    ),
    Check(
        id="gpu-health",
        area="gpu",
        title="health of each GPU",
        reads="gpu.gpus[].problems",
        rule=unhealthy,
        severity="fail",
        sentence="{nodes}: GPU {index} ({pci}) {value}",
        remedy="look into nvidia-smi -q on that node",
        source=_SMI + " (ECC, row remapping, throttling, NVLink, fabric, MIG)",
    ),
    Check(
        id="xid",
        area="gpu",
        title="Xid lines in the kernel log",
        reads="system.xids",
        rule=xid_events,
        severity="fail",
        sentence="{nodes}: {kind} {xid} of GPU {pci}, {ago}: {what} ({text})",
        remedy="",
        source="NVIDIA, Xid Errors, catalogue and recommended actions",
    ),
    _alike(
        "same-gpu-count",
        "GPUs:",
        "gpu.gpus.count",
        "warn",
        "look why GPUs are missing; if it is meant so: torchfleet_slots for each node, check_skip: [same-gpu-count]",
        "launchers deal one rank a GPU",
    ),
    _alike(
        "same-gpu-model",
        "GPU model",
        "gpu.gpus[].model",
        "info",
        "none is needed; the slowest GPU sets the pace of all",
        "every step of synchronous training waits for the slowest rank",
    ),
    _alike(
        "same-mig",
        "MIG mode",
        "gpu.gpus[].mig.current",
        "fail",
        "nvidia-smi -mig 0 (or 1) on every node, then reset the GPUs",
        "NVIDIA, MIG user guide: NCCL does not work between MIG instances",
    ),
    _alike(
        "same-ecc",
        "ECC",
        "gpu.gpus[].ecc.current",
        "warn",
        "nvidia-smi -e 1 (or 0) on every node, then reboot",
        "ECC takes memory and bandwidth on GPUs without HBM",
    ),
    _alike(
        "same-nvlinks",
        "active NVLinks:",
        "gpu.gpus[].nvlink.active",
        "warn",
        "look at nvidia-smi nvlink -s; reset the GPU, then reseat the bridge",
        "links of one machine type are all up",
    ),
    Check(
        id="persistence",
        area="gpu",
        title="persistence mode",
        reads="gpu.gpus[].persistence",
        rule={"equals": True},
        severity="warn",
        sentence="{nodes}: persistence mode is {value} on GPU {item[index]}: every start of CUDA loads the driver anew",
        remedy="systemctl enable --now nvidia-persistenced",
        source="NVIDIA, Driver Persistence",
    ),
    Check(
        id="fabric-manager",
        area="gpu",
        title="fabric manager",
        reads="system.fabric_manager",
        rule=fabric_manager,
        severity="fail",
        sentence="{nodes}: fabric manager {value} is not of the driver's version {driver}",
        remedy="install nvidia-fabricmanager {driver} and systemctl enable --now nvidia-fabricmanager",
        source="NVIDIA, Fabric Manager user guide: its version has to be the driver's",
    ),
    Check(
        id="gpu-process",
        area="gpu",
        title="foreign processes on GPUs",
        reads="gpu.gpus[].processes",
        rule=foreign_processes,
        severity="warn",
        sentence="{nodes}: {where} is in use by process {pid} of {user} ({command}{memory})",
        remedy="end it: kill {pid}",
        source="a rank needs the GPU's memory and time for itself",
    ),
    Check(
        id="pcie-link",
        area="gpu",
        title="PCIe width and generation",
        reads="system.pcie",
        rule=pcie_links,
        severity="warn",
        sentence="{nodes}: the PCIe link of {kind} {address} runs at {value}; card and slot can {wanted}",
        remedy="reseat the card, look at riser and slot, and at the slot's settings in the firmware (BIOS)",
        source="max_link_speed and max_link_width of card and slot in sysfs; GPUs lower their generation when idle",
    ),
    Check(
        id="peer-access",
        area="gpu",
        title="ACS and IOMMU",
        reads="nccl.acs",
        rule=peer_access,
        severity="warn",
        sentence="",
        remedy="",
        source="NVIDIA, NCCL user guide, Troubleshooting, PCI Access Control Services",
    ),
)
