# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fault tables, as the molecule scenarios `faults` and `launchers` measured them last; runs those that never did."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "faults.json"
LAUNCHERS = ROOT / ".cache" / "faults-launchers.json"


def row(name: str, found: dict[str, Any]) -> str:
    seen = "-" if found["seen"] is None else f"{found['seen']:.1f} s"
    return f"| {name} | {seen} | {found['clean']:.1f} s | {found['code']} | {' '.join(found['named'].split())} |"


def results(scenario: str, path: Path) -> dict[str, Any]:
    if not path.exists():
        subprocess.run([str(ROOT / "scripts" / "molecule.sh"), scenario], check=True)
    return dict(json.loads(path.read_text(encoding="utf-8")))


def measure() -> str:
    found = results("faults", RESULTS)
    others = results("launchers", LAUNCHERS)
    cost = found.pop("cost", None)
    lines = [
        "## Faults, torchrun on three nodes",
        "",
        "Times are from the fault to the order that ends the run everywhere, and to the moment when no process of it is left",
        "on any node that can be reached, as the test sees it. A node that does not answer is given 16 s before it counts as",
        "lost (the node that is powered off here is a container, whose connections the kernel closes at once); a node behind a cut link is clean when the link is back. The status is that of `launch.yml`.",
        "",
        "| fault | seen after | clean after | status | named |",
        "| --- | --- | --- | --- | --- |",
        *(row(name, each) for name, each in found.items()),
    ]
    if cost:
        lines += [
            "",
            f"Following {cost['lines']:,} lines from three nodes in {cost['seconds']} s took {cost['cpu']:.1f} s of the "
            "controller's CPU beyond a run that prints nothing; no line was lost.",
        ]
    lines += [
        "",
        "The same under every launcher, on two nodes with one rank each:",
        "",
        "| launcher and fault | seen after | clean after | status | named |",
        "| --- | --- | --- | --- | --- |",
        *(row(name, each) for name, each in sorted(others.items())),
    ]
    return "\n".join(lines)
