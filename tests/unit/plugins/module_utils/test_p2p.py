# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import struct
from typing import List, Optional

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._p2p import (
    acs_controls,
    acs_state,
    dmabuf_state,
    iommu_state,
    loaded_modules,
    parse_limits,
    parse_lspci_acs,
    peer_memory_module,
)

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
CONFIG = "CONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\n"


def config_space(control: Optional[int]) -> bytes:
    """4096 bytes of a bridge: an AER capability, and ACS behind it where it has one."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 2 << 16 | (0x148 << 20 if control is not None else 0))
    if control is not None:
        struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x5F, control)
    return bytes(space)


def test_acs_controls_of_a_bridge() -> None:
    assert acs_controls(config_space(0x1D)) == (
        "source_validation",
        "request_redirect",
        "completion_redirect",
        "upstream_forwarding",
    )
    assert acs_controls(config_space(0)) == ()
    assert acs_controls(config_space(None)) is None


def test_a_capability_list_that_points_to_itself_ends() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    assert acs_controls(bytes(space)) is None


@pytest.mark.parametrize(
    ("spaces", "status"),
    [
        ([config_space(0x1D), config_space(0)], "enabled"),
        # Source validation alone redirects nothing.
        ([config_space(0x01)], "disabled"),
        ([config_space(0), config_space(None)], "disabled"),
        ([config_space(None)], "absent"),
        ([], "absent"),
        ([config_space(0)[:64]], "unknown"),
        ([b""], "unknown"),
        # One that could be read is enough to know that it is on.
        ([config_space(0x1D), b""], "enabled"),
    ],
)
def test_acs_state(spaces: List[bytes], status: str) -> None:
    found = acs_state({f"0000:00:{index:02x}.0": space for index, space in enumerate(spaces)})
    assert found.status == status
    assert found.bridges == len(spaces)


LSPCI = """0000:00:01.0 PCI bridge: Example Root Port (prog-if 00 [Normal decode])
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{0} CmpltRedir{0} UpstreamFwd{0} EgressCtrl- DirectTrans-
0000:01:00.0 Ethernet controller: Example
"""


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (LSPCI.format("+"), "enabled"),
        (LSPCI.format("-"), "disabled"),
        ("00:01.0 PCI bridge: Example\n\tCapabilities: <access denied>\n", "unknown"),
        ("", "absent"),
    ],
)
def test_lspci(text: str, status: str) -> None:
    found = parse_lspci_acs(text)
    assert found.status == status
    if status == "enabled":
        assert found.redirecting[0].pci_address == "0000:00:01.0"


@pytest.mark.parametrize(
    ("units", "cmdline", "types", "status"),
    [
        ([], "ro quiet", [], "off"),
        (["dmar0"], "ro intel_iommu=on", ["DMA\n", "DMA-FQ\n", "identity\n"], "translated"),
        (["ivhd0"], "ro iommu=pt", ["identity\n"], "passthrough"),
        (["ivhd0"], "ro iommu=pt", [], "passthrough"),
        (["dmar0"], "ro intel_iommu=off", [], "off"),
        (["dmar0"], "ro", [], "unknown"),
    ],
)
def test_iommu(units: List[str], cmdline: str, types: List[str], status: str) -> None:
    assert iommu_state(units, cmdline, types).status == status


def test_iommu_keeps_the_arguments_it_rests_on() -> None:
    assert iommu_state(["dmar0"], "BOOT_IMAGE=/v ro intel_iommu=on iommu=pt", []).kernel_arguments == (
        "intel_iommu=on",
        "iommu=pt",
    )


@pytest.mark.parametrize(
    ("kernel", "config", "driver", "infiniband", "supported"),
    [
        ("6.8.0-45-generic", CONFIG, OPEN, True, True),
        ("5.4.0-100-generic", CONFIG, OPEN, True, False),
        ("5.11.0", CONFIG, OPEN, True, False),
        ("6.8.0", CONFIG, CLOSED, True, False),
        ("6.8.0", "# CONFIG_PCI_P2PDMA is not set\nCONFIG_DMA_SHARED_BUFFER=y\n", OPEN, True, False),
        ("6.8.0", None, OPEN, True, None),
        ("6.8.0", CONFIG, "", True, None),
        ("6.8.0", CONFIG, OPEN, False, None),
        ("", CONFIG, OPEN, True, None),
    ],
)
def test_dmabuf(kernel: str, config: Optional[str], driver: str, infiniband: bool, supported: Optional[bool]) -> None:
    found = dmabuf_state(kernel, config, driver, infiniband)
    assert found.supported is supported
    assert found.reason


def test_peer_memory_module() -> None:
    text = "nvidia_peermem 16384 0 - Live 0x0\nnvidia 56000000 1 nvidia_peermem, Live 0x0 (POE)\n"
    assert peer_memory_module(loaded_modules(text)) == "nvidia_peermem"
    assert peer_memory_module(loaded_modules("nv_peer_mem 1 0 - Live 0x0\n")) == "nv_peer_mem"
    assert peer_memory_module(loaded_modules("nvidia 1 0 - Live 0x0\n")) == ""


def test_limits_of_systemd() -> None:
    text = "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=infinity\nDefaultLimitCORE=\n"
    assert parse_limits(text) == {"DefaultLimitMEMLOCK": 8388608, "DefaultLimitNOFILE": -1}
    assert parse_limits("") == {}
