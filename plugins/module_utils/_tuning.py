# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Limits, shared memory and ports of a training node: what its files are to say, and what they say now."""

from __future__ import annotations

import re
from typing import Dict, Mapping, Optional, Tuple

LIMITS = "/etc/security/limits.d/90-torchfleet.conf"
SYSTEM = "/etc/systemd/system.conf.d/90-torchfleet.conf"
USER = "/etc/systemd/user.conf.d/90-torchfleet.conf"
SYSCTL = "/etc/sysctl.d/90-torchfleet.conf"
_HEADER = "# Written by torchfleet.cluster.node_tuning; the next provision overwrites it.\n"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
UNLIMITED = -1
_SERVICES = ("chrony", "chronyd", "ntp", "ntpd", "ntpsec", "openntpd", "systemd-timesyncd")


class TuningError(ValueError):
    """A setting that says nothing; the message names it and what is wanted."""


def parse_limit(value: object, name: str, unit: int = 1) -> int:
    """A limit: `unlimited` (-1) or a number, with k, m or g behind it where `unit` is not 1. Raises TuningError."""
    text = str(value).strip().lower()
    if text in ("unlimited", "infinity", "-1"):
        return UNLIMITED
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text)
    if not found or (found[2] and unit == 1):
        raise TuningError(f"{name} is {value!r}, wanted a number{' such as 64g' if unit > 1 else ''} or 'unlimited'")
    return int(found[1]) * _UNITS[found[2]]


def parse_ports(value: str) -> Tuple[int, int]:
    """`50000-51000`, both inclusive. Raises TuningError."""
    found = re.fullmatch(r"\s*(\d+)\s*[-: ]\s*(\d+)\s*", str(value))
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first < last <= 65535 or last - first < 255:
        raise TuningError(
            f"node_tuning_ports is {value!r}, wanted for example 50000-51000: two ports from 1024 to 65535, at least "
            "256 of them, as every connection of NCCL and gloo and every other program's takes one"
        )
    return first, last


def process_limits(text: str) -> Dict[str, int]:
    """The hard limits in /proc/PID/limits: `memlock` in bytes and `nofile`; -1 is unlimited."""
    found = {}
    for name, label in (("memlock", "Max locked memory"), ("nofile", "Max open files")):
        match = re.search(rf"^{label}\s+\S+\s+(\S+)", text, re.MULTILINE)
        if match:
            found[name] = UNLIMITED if match[1] == "unlimited" else int(match[1])
    return found


def limit_files(memlock: Optional[int], nofile: Optional[int]) -> Dict[str, str]:
    """The files for ssh sessions (pam_limits) and for units; none where neither limit is wanted."""
    wanted = [(name, value) for name, value in (("memlock", memlock), ("nofile", nofile)) if value is not None]
    if not wanted:
        return {}
    pam, units = [], []
    for name, value in wanted:
        # pam_limits counts memlock in KiB. A `*` does not cover root.
        number = "unlimited" if value == UNLIMITED else str(value // 1024 if name == "memlock" else value)
        pam += [f"{who} {kind} {name} {number}" for who in ("*", "root") for kind in ("soft", "hard")]
        units.append(f"DefaultLimit{name.upper()}={'infinity' if value == UNLIMITED else value}")
    manager = _HEADER + "[Manager]\n" + "\n".join(units) + "\n"
    return {LIMITS: _HEADER + "\n".join(pam) + "\n", SYSTEM: manager, USER: manager}


def port_file(ports: Tuple[int, int]) -> str:
    """NCCL and gloo take their ports from the kernel's range: it is the one place that confines both."""
    return f"{_HEADER}net.ipv4.ip_local_port_range = {ports[0]} {ports[1]}\n"


def shm_bytes(value: str, memory: int) -> int:
    """A size of /dev/shm in bytes; `50%` is a share of the memory. Raises TuningError."""
    found = re.fullmatch(r"\s*(\d{1,3})\s*%\s*", str(value))
    if found:
        if not 1 <= int(found[1]) <= 100:
            raise TuningError(f"node_tuning_shm_size is {value!r}, wanted 1% to 100%")
        return memory * int(found[1]) // 100
    size = parse_limit(value, "node_tuning_shm_size", 1024)
    if size < 1 << 20:
        raise TuningError(f"node_tuning_shm_size is {value!r}, wanted a size such as 64g or 50%")
    return size


def fstab_with_shm(fstab: str, size: str) -> str:
    """/etc/fstab with /dev/shm of this size; what else is said of it is kept."""
    lines, done = fstab.splitlines(), False
    for place, line in enumerate(lines):
        fields = line.split()
        if len(fields) < 4 or fields[0].startswith("#") or fields[1] != "/dev/shm":
            continue
        options = [one for one in fields[3].split(",") if not one.startswith("size=") and one != "defaults"]
        fields[3] = ",".join([*options, f"size={size}"])
        lines[place], done = "\t".join(fields), True
    if not done:
        lines.append(f"tmpfs\t/dev/shm\ttmpfs\tnosuid,nodev,size={size}\t0\t0")
    return "\n".join(lines) + "\n"


def memory_bytes(meminfo: str) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def same_size(one: int, other: int) -> bool:
    """The kernel rounds to pages, and counts a share of the memory a little differently."""
    return abs(one - other) <= max(one, other) // 100


def time_sync(timedatectl: str, services: Mapping[str, str]) -> Tuple[bool, str]:
    """Whether something keeps the clock, and what: `timedatectl show` and the states of services."""
    running = [name for name in _SERVICES if services.get(name) == "active"]
    values = dict(line.split("=", 1) for line in timedatectl.splitlines() if "=" in line)
    if running:
        return True, running[0]
    if values.get("NTPSynchronized") == "yes":
        return True, "the kernel says that its clock is synchronised"
    return False, "no service that synchronises the clock is running"


def time_services() -> Tuple[str, ...]:
    return _SERVICES
