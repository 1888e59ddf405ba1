# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time to the first step, as the molecule scenario `launchers` measured it last; runs the scenario where it never did."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "first-step.json"


def measure() -> str:
    if not RESULTS.exists():
        subprocess.run([str(ROOT / "scripts" / "molecule.sh"), "launchers"], check=True)
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return "\n".join(
        [
            "## Launch to first step, by launcher",
            "",
            "Two nodes with one rank each, gloo. `launch.yml` looks at the network and every node, copies the code, and starts; by hand",
            "is `scp` of the script and the launcher's own command over ssh, with nothing looked at, kept or ended. One round each.",
            "",
            "| launcher | `launch.yml` | by hand | difference |",
            "| --- | --- | --- | --- |",
            *(
                f"| {name} | {each['ours']:.1f} s | {each['by_hand']:.1f} s | {each['ours'] - each['by_hand']:+.1f} s |"
                for name, each in found.items()
            ),
        ]
    )
