# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What the system's own files and tools say, as far as training depends on it: text in, plain values out."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

# What an ssh session is asked; all before the first line is what the shell printed by itself.
SSH_MARK = "torchfleet-check"
SSH_SCRIPT = (
    f"exec /bin/sh -c 'echo {SSH_MARK}; ulimit -S -l; ulimit -H -l; ulimit -S -n; ulimit -H -n; "
    'echo "$LD_LIBRARY_PATH"\''
)
_NVIDIA_PACKAGE = re.compile(
    r"(?:nvidia-(?:driver|kernel|dkms|open|headless|fabricmanager|utils|compute)|libnvidia-(?:compute|gl|cfg|ml)|"
    r"cuda-drivers|kmod-nvidia|akmod-nvidia|xorg-x11-drv-nvidia|nvidia-tesla)\S*\Z"
)
_DROPS = re.compile(r"\b(?:drop|reject|DROP|REJECT|REJECT --reject-with \S+)\b")


def read_ssh(out: str) -> Dict[str, Any]:
    """The answer to SSH_SCRIPT: limits (memory in bytes; -1 is none), LD_LIBRARY_PATH, and what came unasked."""
    before, mark, after = out.partition(f"{SSH_MARK}\n")
    if not mark:
        return {"noise": before[:200]}
    lines = [*after.splitlines(), "", "", "", "", ""]
    return {
        "noise": before[:200],
        "memlock_soft": _limit(lines[0], 1024),
        "memlock_hard": _limit(lines[1], 1024),
        "nofile_soft": _limit(lines[2]),
        "nofile_hard": _limit(lines[3]),
        "ld_library_path": lines[4],
    }


def _limit(text: str, unit: int = 1) -> Optional[int]:
    text = text.strip()
    if text == "unlimited":
        return -1
    return int(text) * unit if text.isdigit() else None


def ssh_problem(err: str, code: int) -> str:
    """ssh's last words. A changed host key comes with a frame of at-signs and instructions; the fact is enough."""
    text = err.replace("\r", "")
    if "IDENTIFICATION HAS CHANGED" in text:
        where = re.search(r"Offending \S+ key in (\S+)", text)
        return "its host key has changed" + (f" (the known one is in {where.group(1)})" if where else "")
    words = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Warning:")]
    return words[-1][:200] if words else f"exit status {code}"


def parse_services(text: str) -> Dict[str, Dict[str, str]]:
    """`systemctl show -p Id,LoadState,ActiveState,UnitFileState a b`: the units that exist, without `.service`."""
    found = {}
    for block in text.split("\n\n"):
        entry = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if entry.get("Id") and entry.get("LoadState") not in (None, "not-found"):
            name = entry["Id"][: -len(".service")] if entry["Id"].endswith(".service") else entry["Id"]
            found[name] = {"active": entry.get("ActiveState", ""), "enabled": entry.get("UnitFileState", "")}
    return found


def parse_firewall(nft: str, iptables: str) -> List[str]:
    """Rules and policies of the way in that drop or reject, as they are written. Chains of containers are left out."""
    found: List[str] = []
    chain, is_input = "", False
    for raw in nft.splitlines():
        line = " ".join(raw.split())
        if line.startswith("chain "):
            chain, is_input = line.split()[1], line.split()[1].lower().startswith(("input", "in_", "filter_in", "ufw"))
        elif "hook " in line:
            is_input = "hook input" in line
            if is_input and "policy drop" in line:
                found.append(f"chain {chain}: policy drop")
        elif is_input and _DROPS.search(line) and "ct state invalid" not in line:
            found.append(_without_counter(line))
    for raw in iptables.splitlines():
        line = " ".join(raw.split())
        inwards = re.match(r"-A (?:INPUT|IN_\S+|ufw\S*input\S*) ", line) and "INVALID" not in line
        if re.match(r"-P INPUT (?:DROP|REJECT)\b", line) or (inwards and _DROPS.search(line)):
            found.append(line)
    return list(dict.fromkeys(found))[:20]


def _without_counter(line: str) -> str:
    return re.sub(r" ?counter packets \d+ bytes \d+", "", line).strip()


def driver_packages(status: str) -> Tuple[List[str], List[str]]:
    """NVIDIA's driver packages in /var/lib/dpkg/status: those that an upgrade may replace, and those on hold."""
    free: List[str] = []
    held: List[str] = []
    for block in status.split("\n\n"):
        name = re.search(r"^Package: (\S+)", block, re.MULTILINE)
        state = re.search(r"^Status: (\S+) \S+ (\S+)", block, re.MULTILINE)
        if name and state and state.group(2) == "installed" and _NVIDIA_PACKAGE.match(name.group(1)):
            (held if state.group(1) == "hold" else free).append(name.group(1))
    return free, held


def apt_upgrades(config: str) -> Tuple[bool, List[str]]:
    """`apt-config dump`: whether upgrades run by themselves, and the patterns of packages they leave alone."""
    values: Dict[str, List[str]] = {}
    for key, value in re.findall(r'^([\w:.-]+?)(?:::)? "(.*)";$', config, re.MULTILINE):
        values.setdefault(key.lower(), []).append(value)
    switch = (values.get("apt::periodic::unattended-upgrade") or ["0"])[-1]
    enabled = (values.get("apt::periodic::enable") or ["1"])[-1] != "0"
    return enabled and switch not in ("0", "", "never"), [
        value for value in values.get("unattended-upgrade::package-blacklist", []) if value
    ]


def without_blacklisted(packages: Iterable[str], patterns: Sequence[str]) -> List[str]:
    """Packages that no pattern names. unattended-upgrades takes patterns as regular expressions from the start on."""

    def named(package: str) -> bool:
        for pattern in patterns:
            try:
                if re.match(pattern, package):
                    return True
            except re.error:
                continue
        return False

    return [package for package in packages if not named(package)]


def newer_kernel(running: str, installed: Iterable[str]) -> str:
    """The newest installed kernel of the running one's flavour, '' where none is newer."""
    flavour = _flavour(running)
    rivals = [release for release in installed if _flavour(release) == flavour]
    newest = max([*rivals, running], key=_release_key)
    # A running kernel whose file is gone (a container, a kernel started from the network) tells nothing.
    return newest if newest != running and running in rivals else ""


def _flavour(release: str) -> str:
    return re.sub(r"[\d.+~_-]+", "-", release.partition("-")[2])


def _release_key(release: str) -> List[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def listening_inodes(table: str, port: int) -> Dict[str, str]:
    """/proc/net/tcp or tcp6: socket inode to local address (hex) of all that listen on the port."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            found[fields[9]] = fields[1].rpartition(":")[0]
    return found


def link_speed(text: str) -> Optional[float]:
    """`16.0 GT/s PCIe` to 16.0."""
    match = re.match(r"\s*([\d.]+)\s*GT/s", text)
    return float(match.group(1)) if match else None


def pcie_link(device: Mapping[str, str], slot: Mapping[str, str]) -> Dict[str, Any]:
    """What a link runs at, and the most that both its ends can. Width in lanes, speed in GT/s; None: not told."""

    def lanes(text: str) -> Optional[int]:
        text = text.strip()
        # 255 is how the kernel says that it does not know.
        return int(text) if text.isdigit() and 0 < int(text) < 255 else None

    def least(values: Sequence[Optional[float]]) -> Optional[float]:
        known = [value for value in values if value]
        return min(known) if known else None

    width_max = least([lanes(end.get("max_link_width", "")) for end in (device, slot)])
    return {
        "width": lanes(device.get("current_link_width", "")),
        "width_max": int(width_max) if width_max else None,
        "speed": link_speed(device.get("current_link_speed", "")),
        "speed_max": least([link_speed(end.get("max_link_speed", "")) for end in (device, slot)]),
    }


def parse_fabric_manager(text: str) -> str:
    """`nv-fabricmanager --version`: `Fabric Manager version is : 580.65.06`."""
    match = re.search(r"version\D*(\d+\.\d+(?:\.\d+)?)", text, re.IGNORECASE)
    return match.group(1) if match else ""


def accelerate_lines(text: str) -> List[str]:
    """What of a default configuration steers a run over several nodes."""
    wanted = (
        "num_machines",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "num_processes",
        "distributed_type",
    )
    found = []
    for line in re.split(r"[\n{},]", text):
        key, colon, value = line.strip().replace('"', "").partition(":")
        if colon and key.strip() in wanted and value.strip() not in ("", "null"):
            found.append(f"{key.strip()}: {value.strip()}")
    return found
