# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Who measures with whom, what a link ought to carry, and what NICs and tools say about it."""

from __future__ import annotations

import json
import re
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

# One TCP stream from Python carries about so much before the processor is what is measured (Mb/s).
PROCESSOR_MBPS = 10000.0
# Payload of a full packet over what it takes on the wire, at an MTU of 1500: 1448 of 1538 bytes.
TCP_SHARE = 0.94
# GB/s of one PCIe lane after line coding: PCI-SIG, generations 1 to 6.
PCIE_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}

# Bits of the kernel's link modes (include/uapi/linux/ethtool.h), Mb/s to the bits that mean it.
_LINK_MODES: Dict[int, Tuple[int, ...]] = {
    10: (0, 1),
    100: (2, 3, 67, 90, 91),
    1000: (4, 5, 17, 41, 68),
    2500: (15, 47),
    5000: (48,),
    10000: (12, 18, 19, 42, 43, 44, 45, 46),
    20000: (21, 22),
    40000: (23, 24, 25, 26),
    56000: (27, 28, 29, 30),
    25000: (31, 32, 33),
    50000: (34, 35, 40, 52, 53, 54, 55, 56),
    100000: (36, 37, 38, 39, 57, 58, 59, 60, 61, 75, 76, 77, 78, 79),
    200000: (62, 63, 64, 65, 66, 80, 81, 82, 83, 84),
    400000: (69, 70, 71, 72, 73, 85, 86, 87, 88, 89),
}
_SHAPED = re.compile(r"\b(?:rate|maxrate|bandwidth) ([\d.]+)([KMGT]?)i?(bit|bps)\b", re.IGNORECASE)
_UNITS = {"": 1e-6, "k": 1e-3, "m": 1.0, "g": 1e3, "t": 1e6}


def rounds(names: Sequence[str]) -> List[List[Tuple[str, str]]]:
    """All unordered pairs in rounds of disjoint ones: as many rounds as nodes, or one less where that is even.

    The first of each pair opens the connection; who does so alternates, so that no node does it always.
    """
    circle: List[Optional[str]] = list(names)
    if len(circle) % 2:
        circle.append(None)
    found = []
    for number in range(len(circle) - 1):
        pairs = []
        for one, other in zip(circle[: len(circle) // 2], reversed(circle[len(circle) // 2 :])):
            if one is not None and other is not None:
                pairs.append((one, other) if number % 2 else (other, one))
        found.append(pairs)
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return [pairs for pairs in found if pairs]


def meetings(schedule: Sequence[Sequence[Tuple[str, str]]], node: str) -> List[Dict[str, Any]]:
    """What one node does in each round that it takes part in: `round`, `peer`, and whether it `opens`."""
    return [
        {"round": number, "peer": pair[1] if pair[0] == node else pair[0], "opens": pair[0] == node}
        for number, pairs in enumerate(schedule)
        for pair in pairs
        if node in pair
    ]


def fastest_mode(words: Sequence[int]) -> Optional[int]:
    """Mb/s of the fastest of the kernel's supported link modes, given as 32-bit words, lowest bits first."""
    bits = {32 * place + bit for place, word in enumerate(words) for bit in range(32) if word >> bit & 1}
    return max((speed for speed, modes in _LINK_MODES.items() if bits.intersection(modes)), default=None)


# struct ethtool_link_settings of the same header; the tenth field is the number of mask words.
_LINK_SETTINGS = struct.Struct("=II7Bb4B7I")
_LINK_SETTINGS_COMMAND = 0x4C
_MASK_WORDS = 9


def link_settings_request(mask_words: int = 0) -> bytes:
    """What the kernel is asked with: first without a number of mask words, which it then tells as a negative one."""
    fields = [0] * 21
    fields[0], fields[_MASK_WORDS] = _LINK_SETTINGS_COMMAND, mask_words
    return _LINK_SETTINGS.pack(*fields) + bytes(4 * 3 * 127)


def read_link_settings(answer: bytes) -> Tuple[int, Tuple[int, ...]]:
    """The number of mask words (negative: ask again with so many) and the words of the supported modes."""
    count = int(_LINK_SETTINGS.unpack(answer[: _LINK_SETTINGS.size])[_MASK_WORDS])
    if count <= 0:
        return count, ()
    return count, struct.unpack_from(f"={count}I", answer, _LINK_SETTINGS.size)


def shaped_mbps(text: str) -> Optional[float]:
    """The least rate that `tc qdisc show` and `tc class show` set for an interface, in Mb/s; None where none is set."""
    found = []
    for number, unit, what in _SHAPED.findall(text):
        rate = float(number) * _UNITS[unit.lower()] * (1 if what.lower() == "bit" else 8)
        if rate > 0:
            found.append(rate)
    return min(found, default=None)


def link_rate(mbps: float) -> str:
    """`98 Mb/s`, `9.4 Gb/s`"""
    if mbps >= 1000:
        gbps = mbps / 1000
        return f"{gbps:.0f} Gb/s" if gbps >= 100 or abs(gbps - round(gbps)) < 0.005 else f"{gbps:.2g} Gb/s"
    return f"{mbps:.0f} Mb/s" if mbps >= 10 else f"{mbps:.2g} Mb/s"


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def pcie_gbps(pcie: Optional[Mapping[str, Any]]) -> Optional[float]:
    """GB/s that the PCIe link of a GPU can carry in one direction, as it is trained; the generation falls at rest."""
    if not pcie:
        return None
    lane = PCIE_LANE_GBPS.get(int(pcie.get("generation_max") or pcie.get("generation") or 0))
    width = int(pcie.get("width") or 0)
    return lane * width if lane and width else None


def nvlink_gbps(nvlink: Optional[Mapping[str, Any]]) -> Optional[float]:
    """GB/s that the NVLinks of a GPU carry together in one direction."""
    total = sum(float(speed) for speed in (nvlink or {}).get("speeds") or ())
    return total or None


def peer_gbps(one: Mapping[str, Any], other: Mapping[str, Any], way: str) -> Optional[float]:
    """GB/s from one GPU to another of the same node, by the code that `nvidia-smi topo -m` has for the way."""
    if way.startswith("NV"):
        rates = [rate for rate in (nvlink_gbps(one.get("nvlink")), nvlink_gbps(other.get("nvlink"))) if rate]
        # Without a switch a GPU's links are shared out among its peers: the code tells how many lead to this one.
        shares = []
        for gpu, rate in zip((one, other), rates):
            total = int((gpu.get("nvlink") or {}).get("active") or 0)
            links = int(way[2:]) if way[2:].isdigit() else total
            shares.append(rate * min(1.0, links / total) if total else rate)
        return min(shares, default=None)
    rates = [rate for rate in (pcie_gbps(one.get("pcie")), pcie_gbps(other.get("pcie"))) if rate]
    return min(rates, default=None)


def rdma_mbps(devices: Sequence[Mapping[str, Any]], hcas: Sequence[str]) -> Optional[float]:
    """Mb/s of the chosen RDMA ports of a node together."""
    wanted = {hca if ":" in hca else f"{hca}:1" for hca in hcas}
    rates = [
        1000 * float(port["rate_gbps"])
        for device in devices
        for port in device.get("ports") or ()
        if port.get("rate_gbps") and f"{device['name']}:{port.get('port')}" in wanted
    ]
    return sum(rates) or None


def bus_factor(world: int) -> float:
    """Bus bandwidth over algorithm bandwidth of an all-reduce (nccl-tests, doc/PERFORMANCE.md)."""
    return 2 * (world - 1) / world if world > 1 else 1.0


def sweep_row(size: int, seconds: float, world: int) -> Dict[str, float]:
    """One line of the sweep: bytes, seconds, and both bandwidths in GB/s."""
    algorithm = size / seconds / 1e9 if seconds > 0 else 0.0
    return {
        "bytes": size,
        "seconds": round(seconds, 9),
        "algbw_gbps": round(algorithm, 4),
        "busbw_gbps": round(algorithm * bus_factor(world), 4),
    }


def read_nccl_tests(text: str) -> List[Dict[str, float]]:
    """The sweep that all_reduce_perf printed: of the out-of-place columns, sizes once each.

    Lines: size count type redop root time algbw busbw #wrong ... (older versions have no root; time is microseconds).
    """
    found: Dict[int, Dict[str, float]] = {}
    for line in text.splitlines():
        # mpirun may put a tag before each line.
        words = re.sub(r"^\[\d+,\d+\]<std(?:out|err)>:\s*", "", line).split()
        if len(words) < 7 or not words[0].isdigit() or not words[1].isdigit():
            continue
        place = 5 if re.fullmatch(r"-?\d+", words[4]) else 4
        try:
            micros, algorithm, bus = (float(word) for word in words[place : place + 3])
        except ValueError:
            continue
        if int(words[0]) and micros > 0:
            found[int(words[0])] = {
                "bytes": int(words[0]),
                "seconds": micros * 1e-6,
                "algbw_gbps": algorithm,
                "busbw_gbps": bus,
            }
    return [found[size] for size in sorted(found)]


def read_marked(mark: str, text: str) -> Dict[str, Any]:
    """The last line of JSON that a script printed behind its mark; empty without one."""
    found: Dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith(mark):
            try:
                found = json.loads(line[len(mark) :])
            except ValueError:
                continue  # cut while it was written
    return found
