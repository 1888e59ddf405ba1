# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""NVIDIA's Xid errors: what each asks for.

Source: NVIDIA, "Xid Errors", docs.nvidia.com/deploy/xid-errors, catalogue and recommended actions, as of driver r580.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

# What to do: nothing (a program's own fault, or an echo), restart the run, reset the GPU, reboot, replace.
ACTIONS: Dict[str, Tuple[str, str]] = {
    "ignore": ("info", "nothing on the machine: look at the program that ran then"),
    "watch": ("warn", "nothing yet; when it comes back, test the GPU with `dcgmi diag -r 3`"),
    "reset": (
        "fail",
        "end what runs on it and reset it: nvidia-smi --gpu-reset -i {pci}; if it comes back, reboot {node}",
    ),
    "reboot": ("fail", "reboot {node}; if it comes back, reseat the GPU and its power cables"),
    "replace": ("fail", "take {node} out of torchfleet_group, run `dcgmi diag -r 3`, and have the GPU replaced"),
}

# Xid: (what it means, action)
CATALOGUE: Dict[int, Tuple[str, str]] = {
    8: ("the GPU stopped processing", "reset"),
    11: ("an invalid push buffer stream", "reset"),
    12: ("the driver met an error of the GPU", "reset"),
    13: ("an exception in a program's kernel", "ignore"),
    16: ("the display engine hung", "reset"),
    25: ("an invalid or illegal push buffer stream", "reset"),
    31: ("a program's kernel touched memory that is not its own", "ignore"),
    32: ("an invalid or corrupted push buffer stream", "reset"),
    37: ("the driver met an error in a program's work", "ignore"),
    38: ("an error of the driver's firmware", "reboot"),
    42: ("an error in video processing", "ignore"),
    43: ("the GPU gave up a program's work", "ignore"),
    44: ("an error while a context was switched", "reset"),
    45: ("the work of a program was cleared away after an earlier error", "ignore"),
    46: ("the GPU stopped processing", "reset"),
    47: ("a video processor failed", "reset"),
    48: ("a double-bit ECC error", "reset"),
    54: ("the auxiliary power is not connected", "reboot"),
    56: ("an error of the display engine", "ignore"),
    57: ("an error while the memory was programmed", "reset"),
    58: ("unstable memory", "reset"),
    61: ("the GPU's microcontroller stopped at a breakpoint", "reset"),
    62: ("the GPU's microcontroller halted", "reset"),
    63: ("a memory page is retired, or a row remapped, at the next reset", "reset"),
    64: ("retiring a memory page, or remapping a row, failed", "replace"),
    65: ("an exception of the video processor", "ignore"),
    66: ("the driver denied an illegal access", "ignore"),
    67: ("the driver denied an illegal access", "ignore"),
    68: ("an exception of the video decoder", "ignore"),
    69: ("an exception in a program's graphics or compute class", "ignore"),
    73: ("an exception of the video encoder", "ignore"),
    74: ("an error of an NVLink", "reset"),
    78: ("the start of a virtual GPU failed", "reset"),
    79: ("the GPU has fallen off the bus", "reboot"),
    80: ("corrupted data was sent to the GPU", "reset"),
    81: ("an error of VGA", "reset"),
    82: ("an error while memory was scrubbed", "reset"),
    92: ("many single-bit ECC errors", "watch"),
    93: ("the infoROM was written without need", "ignore"),
    94: ("a memory error that was contained to one program", "reset"),
    95: ("a memory error that was not contained", "reset"),
    96: ("an exception of the video decoder", "ignore"),
    97: ("an exception of the video decoder", "ignore"),
    109: ("switching contexts timed out", "reset"),
    110: ("a security fault", "reboot"),
    112: ("a frame buffer error", "reset"),
    116: ("corrupted data of a memory copy", "reset"),
    118: ("an error of the media engine", "ignore"),
    119: ("the GPU's system processor (GSP) does not answer", "reset"),
    120: ("an error of the GPU's system processor (GSP)", "reset"),
    121: ("a corrected error of the link between CPU and GPU", "watch"),
    122: ("reading the infoROM failed", "reset"),
    123: ("reading the power controller failed", "reset"),
    136: ("an error while an NVLink was trained", "reset"),
    137: ("an NVLink access that was not allowed", "ignore"),
    138: ("a register write that was not allowed", "ignore"),
    140: ("an ECC error that was not corrected", "reset"),
    143: ("the GPU did not start", "reboot"),
    144: ("an error of NVLink (SAW)", "reset"),
    145: ("an error of NVLink (RLW)", "reset"),
    146: ("an error of NVLink (TLW)", "reset"),
    147: ("an error of NVLink (TREX)", "reset"),
    148: ("an error of NVLink (NVLPW_CTRL)", "reset"),
    149: ("an error of NVLink (NETIR)", "reset"),
    150: ("an error of NVLink (MSE)", "reset"),
    151: ("an error while keys were rotated", "reset"),
    154: ("the driver asks for recovery", "reset"),
    155: ("NVLinks went down", "reset"),
    156: ("resources of the GPU were retired", "reset"),
    157: ("an error of NVLink while it was set up", "reset"),
    158: ("an internal time-out of the GPU", "reset"),
    159: ("an internal error of the chip", "replace"),
    160: ("a memory channel was retired", "replace"),
    161: ("a memory channel is retired at the next reset", "reset"),
}
_UNKNOWN = ("an error that this catalogue does not have", "watch")

_LINE = re.compile(
    r"(?:\[\s*(?P<at>\d+\.\d+)\])?.*?NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+),?\s*(?P<text>.*)"
)
_SWITCH = re.compile(
    r"(?:\[\s*(?P<at>\d+\.\d+)\])?.*?nvswitch\d*: SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): "
    r"(?P<xid>\d+),?\s*(?P<text>.*)"
)
_RECOVERY = re.compile(r"changed from .* to \S+ \((?P<action>[^)]*)\)")
_ACTION_WORDS = (("none", "ignore"), ("reset", "reset"), ("reboot", "reboot"), ("drain", "reset"))


def parse_log(text: str, uptime: float) -> List[Dict[str, Any]]:
    """The Xid and SXid lines of a kernel log, once for each device and number: the last words, how often, how long ago.

    `seconds_ago` is None where the log has no times since boot (as journalctl's own format).
    """
    found: Dict[Tuple[str, str, int], Dict[str, Any]] = {}
    for line in text.splitlines():
        kind, match = "Xid", _LINE.match(line)
        if match is None:
            kind, match = "SXid", _SWITCH.match(line)
        if match is None:
            continue
        key = (kind, match.group("pci").lower(), int(match.group("xid")))
        entry = found.setdefault(key, {"kind": kind, "pci": key[1], "xid": key[2], "count": 0})
        at = match.group("at")
        entry["count"] += 1
        entry["text"] = match.group("text").strip()[:200]
        entry["seconds_ago"] = round(max(0.0, uptime - float(at))) if at else None
    return list(found.values())


def meaning(event: Mapping[str, Any]) -> Tuple[str, str]:
    """What an event of `parse_log` means, and its action."""
    text = str(event.get("text") or "")
    if event["kind"] == "SXid":
        # Non-fatal ones are corrected by the switch itself (Fabric Manager user guide, "SXid errors").
        fatal = "fatal" in text.lower() and "non-fatal" not in text.lower()
        return ("a fatal error of an NVSwitch", "reboot") if fatal else ("an error of an NVSwitch", "watch")
    what, action = CATALOGUE.get(int(event["xid"]), _UNKNOWN)
    recovery = _RECOVERY.search(text) if int(event["xid"]) == 154 else None
    if recovery:
        words = recovery.group("action").lower()
        action = next((name for word, name in _ACTION_WORDS if word in words), action)
    return what, action
