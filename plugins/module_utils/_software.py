# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What of the software stack is on a node already: text of its files and tools in, plain values out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple


@dataclass(frozen=True)
class Release:
    """A distribution: `id` and `version` as `_packages.platform_of` takes them, `name` for people."""

    id: str
    version: str
    name: str


@dataclass(frozen=True)
class ShellLine:
    """A line of a file that every shell reads, which puts CUDA before what torch brings along."""

    path: str
    number: int
    text: str


def read_release(text: str) -> Release:
    """/etc/os-release."""
    values = dict(re.findall(r"^(\w+)=[\"']?(.*?)[\"']?\s*$", text, re.MULTILINE))
    name = str(values.get("NAME") or values.get("ID") or "unknown").replace(" GNU/Linux", "")
    version = values.get("VERSION_ID", "")
    return Release(values.get("ID", ""), version, f"{name} {version}".strip())


def toolkit_version(version_json: str, version_txt: str, nvcc: str) -> str:
    """A CUDA toolkit's version from version.json (11.1 and later), version.txt (before) or `nvcc --version`."""
    try:
        found = str(json.loads(version_json)["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        found = ""
    for pattern, text in ((r"CUDA Version (\d+\.\d+(?:\.\d+)?)", version_txt), (r"release (\d+\.\d+)", nvcc)):
        if not found:
            match = re.search(pattern, text)
            found = match.group(1) if match else ""
    return found


_SETS_PATH = re.compile(r"""(?:^|[\s;&])(?:export\s+|setenv\s+|set\s+-\S+\s+)?LD_LIBRARY_PATH(?:\s*\+?=|\s)""")


def library_path_lines(path: str, text: str) -> List[ShellLine]:
    """Lines that put a CUDA toolkit on LD_LIBRARY_PATH: torch then loads that toolkit's cuBLAS in place of its own."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split(" #")[0].strip()
        if code.startswith("#") or not _SETS_PATH.search(code):
            continue
        if re.search(r"cuda|cudnn|nvidia", code.partition("LD_LIBRARY_PATH")[2], re.IGNORECASE):
            found.append(ShellLine(path, number, code[:200]))
    return found


def loader_folders(path: str, text: str) -> List[ShellLine]:
    """The same of a file in /etc/environment's form or pam_env's, which has no comments within a line."""
    return library_path_lines(path, re.sub(r"^(LD_LIBRARY_PATH)\s+DEFAULT=", r"\1=", text, flags=re.MULTILINE))


def secure_boot(variable: Optional[bytes]) -> Optional[bool]:
    """The EFI variable SecureBoot: four bytes of attributes, then one of value. None where there is no EFI."""
    return None if variable is None or len(variable) < 5 else variable[4] == 1


def describe_node(software: Mapping[str, Any], gpu: Mapping[str, Any]) -> str:
    """A node's stack in one line, without its name."""
    parts = [str((software.get("release") or {}).get("name") or "unknown system")]
    for label, key in (("Python", "python_version"), ("GCC", "gcc_version")):
        parts.append(f"{label} {software[key]}" if software.get(key) else f"no {label}")
    toolkits = [str(one["version"]) for one in software.get("toolkits") or () if one.get("version")]
    parts.append(f"CUDA {', '.join(toolkits)}" if toolkits else "no CUDA toolkit")
    parts.append(_describe_gpus(gpu))
    return ", ".join(parts)


def _describe_gpus(gpu: Mapping[str, Any]) -> str:
    models: Dict[str, int] = {}
    for one in gpu.get("gpus") or ():
        name = str(one.get("model") or "unknown GPU")
        models[name] = models.get(name, 0) + 1
    cards = " and ".join(f"{count} x {name}" for name, count in models.items())
    if cards:
        return f"driver {gpu.get('driver_version') or 'unknown'} for {cards}"
    on_bus = len(gpu.get("pci_gpus") or ())
    if on_bus:
        return f"{on_bus} GPU(s) without a working driver ({gpu.get('reason') or gpu.get('status')})"
    return "no GPU"


def report(nodes: Sequence[Mapping[str, Any]]) -> Tuple[str, ...]:
    """One line for all nodes that are alike. Each node has the facts torchfleet_software and torchfleet_gpu."""
    lines: Dict[str, List[str]] = {}
    for node in nodes:
        software = node.get("torchfleet_software") or {}
        name = str((software.get("node") or {}).get("name") or "unnamed")
        lines.setdefault(describe_node(software, node.get("torchfleet_gpu") or {}), []).append(name)
    return (*(f"{', '.join(names)}: {text}" for text, names in lines.items()), *shell_problems(nodes))


def shell_problems(nodes: Sequence[Mapping[str, Any]]) -> Tuple[str, ...]:
    """The lines of shells' start files that make torch load another toolkit's libraries, a sentence for each."""
    found: Dict[str, List[str]] = {}
    for node in nodes:
        software = node.get("torchfleet_software") or {}
        name = str((software.get("node") or {}).get("name") or "unnamed")
        for line in software.get("shell_lines") or ():
            found.setdefault(f"{line['path']}:{line['number']} ({line['text']})", []).append(name)
    return tuple(
        f"{', '.join(names)}: {where} makes torch load that folder's libraries in place of its own in every shell: "
        "take the line out"
        for where, names in found.items()
    )
