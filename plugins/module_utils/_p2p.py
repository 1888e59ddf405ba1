# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What lets GPUs and NICs read each other's memory, or keeps them from it: GPUDirect, PCIe ACS and the IOMMU."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, Optional, Tuple

# PCI Express Base Specification, section 7.7.11: ACS is extended capability 0x000D, its control register at offset 6.
_ACS_CAPABILITY = 0x000D
_ACS_BITS = (
    (0x01, "source_validation"),
    (0x02, "translation_blocking"),
    (0x04, "request_redirect"),
    (0x08, "completion_redirect"),
    (0x10, "upstream_forwarding"),
    (0x20, "egress_control"),
    (0x40, "direct_translated"),
)
_LSPCI_BITS = {
    "SrcValid": "source_validation",
    "TransBlk": "translation_blocking",
    "ReqRedir": "request_redirect",
    "CmpltRedir": "completion_redirect",
    "UpstreamFwd": "upstream_forwarding",
    "EgressCtrl": "egress_control",
    "DirectTrans": "direct_translated",
}
# These send traffic between two devices up to the root complex instead of through the switch.
_REDIRECTS = ("request_redirect", "completion_redirect", "upstream_forwarding")


@dataclass(frozen=True)
class AcsBridge:
    """A PCI bridge with the ACS capability, and which of its controls are on."""

    pci_address: str
    controls: Tuple[str, ...]

    @property
    def redirects(self) -> bool:
        return any(control in _REDIRECTS for control in self.controls)


@dataclass(frozen=True)
class Acs:
    """ACS of the whole node. `status` is `enabled`, `disabled`, `absent` or `unknown`.

    Enabled means that some bridge redirects peer traffic: `redirecting` are those. `bridges` counts all.
    """

    status: str
    reason: str = ""
    bridges: int = 0
    redirecting: Tuple[AcsBridge, ...] = ()


@dataclass(frozen=True)
class Iommu:
    """`status` is `off`, `passthrough` (devices keep physical addresses), `translated` or `unknown`."""

    status: str
    reason: str = ""
    units: int = 0
    kernel_arguments: Tuple[str, ...] = ()
    group_types: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Dmabuf:
    """Whether the kernel side of GPUDirect over dmabuf is there. `supported` is None where that cannot be told."""

    supported: Optional[bool]
    reason: str


def acs_controls(config: bytes) -> Optional[Tuple[str, ...]]:
    """The ACS controls that are on in a device's configuration space; None where it has no ACS capability.

    Raises ValueError where only the first 64 or 256 bytes could be read (an ordinary user, or no PCIe).
    """
    if len(config) < 0x104:
        raise ValueError(f"{len(config)} bytes of configuration space, wanted 4096")
    offset, visited = 0x100, set()
    while 0x100 <= offset <= len(config) - 8 and offset not in visited:
        visited.add(offset)
        (header,) = struct.unpack_from("<I", config, offset)
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == _ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, offset + 6)
            return tuple(name for bit, name in _ACS_BITS if control & bit)
        offset = header >> 20 & 0xFFC
    return None


def acs_state(configs: Mapping[str, bytes]) -> Acs:
    """ACS from the configuration space of each PCI bridge (PCI address -> contents)."""
    found: List[AcsBridge] = []
    unread = 0
    for address, config in sorted(configs.items()):
        try:
            controls = acs_controls(config)
        except ValueError:
            unread += 1
            continue
        if controls is not None:
            found.append(AcsBridge(address, controls))
    return _acs(found, len(configs), unread)


def parse_lspci_acs(text: str) -> Acs:
    """ACS from `lspci -vvv`, all devices or one."""
    found: List[AcsBridge] = []
    address, bridges, unread = "", 0, 0
    for line in text.splitlines():
        head = re.match(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(.*)", line)
        if head:
            address = head.group(1)
            bridges += "PCI bridge" in head.group(2)
        elif "ACSCtl:" in line:
            words = dict(re.findall(r"(\w+)([+-])", line.partition("ACSCtl:")[2]))
            found.append(
                AcsBridge(address, tuple(name for word, name in _LSPCI_BITS.items() if words.get(word) == "+"))
            )
        elif "<access denied>" in line:
            unread += 1
    return _acs(found, bridges, unread if not found else 0)


def _acs(found: List[AcsBridge], bridges: int, unread: int) -> Acs:
    redirecting = tuple(bridge for bridge in found if bridge.redirects)
    if redirecting:
        reason = f"{len(redirecting)} of {bridges} PCI bridges send peer traffic through the root complex"
        return Acs("enabled", reason, bridges, redirecting)
    if unread:
        return Acs("unknown", "the configuration space can be read by root only", bridges)
    if not bridges:
        return Acs("absent", "no PCI bridge is visible", 0)
    if not found:
        return Acs("absent", "no PCI bridge has the ACS capability", bridges)
    return Acs("disabled", "", bridges)


def iommu_state(units: Iterable[str], cmdline: str, group_types: Iterable[str]) -> Iommu:
    """IOMMU from the entries of /sys/class/iommu, /proc/cmdline and /sys/kernel/iommu_groups/*/type."""
    names = sorted(units)
    arguments = tuple(
        word
        for word in cmdline.split()
        if re.match(r"(intel_iommu|amd_iommu|iommu|iommu\.passthrough|iommu\.strict)=", word)
    )
    types = tuple(sorted({word.strip() for word in group_types if word.strip()}))
    if not names and not types:
        return Iommu("off", "no IOMMU is in use", 0, arguments, types)
    if types and set(types) == {"identity"}:
        status, reason = "passthrough", "all devices use physical addresses"
    elif types:
        status, reason = "translated", f"devices are in domains of type {', '.join(types)}"
    elif {"iommu=pt", "iommu.passthrough=1"} & set(arguments):
        status, reason = "passthrough", "by the kernel's arguments"
    elif any(word.endswith("=off") or word == "iommu.passthrough=off" for word in arguments):
        status, reason = "off", "by the kernel's arguments"
    else:
        status, reason = "unknown", "the kernel does not tell its domain types"
    return Iommu(status, reason, len(names), arguments, types)


def loaded_modules(text: str) -> Tuple[str, ...]:
    """Names in /proc/modules."""
    return tuple(line.split()[0] for line in text.splitlines() if line.strip())


def peer_memory_module(modules: Iterable[str]) -> str:
    """The loaded kernel module that lets a NIC reach GPU memory: nvidia_peermem, its ancestor nv_peer_mem, or ''."""
    return next((name for name in ("nvidia_peermem", "nv_peer_mem") if name in set(modules)), "")


def dmabuf_state(kernel: str, config: Optional[str], driver_version: str, infiniband: bool) -> Dmabuf:
    """Whether dmabuf GPUDirect can work, from the kernel's side.

    It needs Linux 5.12 (RDMA registration of dmabuf), CONFIG_PCI_P2PDMA and CONFIG_DMA_SHARED_BUFFER, and NVIDIA's open
    kernel modules (NVIDIA GPUDirect RDMA guide). `config` is the kernel's build configuration if it is at hand;
    `driver_version` the text of /proc/driver/nvidia/version; `infiniband` whether the RDMA core is loaded.
    """
    found = re.match(r"(\d+)\.(\d+)", kernel)
    if not found:
        return Dmabuf(None, f"kernel version {kernel!r} is not understood")
    if (int(found.group(1)), int(found.group(2))) < (5, 12):
        return Dmabuf(False, f"kernel {kernel} is older than 5.12")
    if driver_version and "Open Kernel Module" not in driver_version:
        return Dmabuf(False, "the NVIDIA driver's proprietary kernel module is loaded, dmabuf needs the open one")
    for option in ("CONFIG_PCI_P2PDMA", "CONFIG_DMA_SHARED_BUFFER"):
        if config is not None and not re.search(rf"^{option}=y$", config, re.M):
            return Dmabuf(False, f"the kernel is built without {option}")
    if not driver_version:
        return Dmabuf(None, "no NVIDIA driver is loaded")
    if not infiniband:
        return Dmabuf(None, "no RDMA subsystem is loaded")
    if config is None:
        return Dmabuf(None, "the kernel's build configuration cannot be read")
    return Dmabuf(True, f"kernel {kernel}, open kernel module")


def parse_limits(text: str) -> Mapping[str, Any]:
    """`systemctl show --property DefaultLimitMEMLOCK …` as bytes or counts; -1 is unlimited."""
    found = {}
    for line in text.splitlines():
        name, _rest, value = line.strip().partition("=")
        if value in ("infinity", "18446744073709551615"):
            found[name] = -1
        elif value.isdigit():
            found[name] = int(value)
    return found
