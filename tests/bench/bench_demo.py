# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make demo` from a fresh clone, and again: wall time by stage."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "tfbench-demo"


def demo(clone: Path) -> tuple[float, str]:
    environment = {**os.environ, "TORCHFLEET_LAB_PREFIX": PREFIX}
    for name in ("MAKEFLAGS", "MAKELEVEL", "ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    environment["PATH"] = ":".join(part for part in environment["PATH"].split(":") if not part.startswith(str(ROOT)))
    began = time.monotonic()
    done = subprocess.run(["make", "demo"], cwd=clone, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return time.monotonic() - began, done.stdout


def forget_images() -> None:
    """A fresh machine has no base image. One that a lab is using stays, and the section says so by its time."""
    images = subprocess.run(
        ["podman", "images", "-q", "--filter", "reference=localhost/torchfleet-lab"],
        capture_output=True,
        text=True,
        check=False,
    )
    for image in set(images.stdout.split()):
        subprocess.run(["podman", "rmi", image], capture_output=True, check=False)


def measure() -> str:
    forget_images()
    rows = []
    with tempfile.TemporaryDirectory(prefix="torchfleet-bench-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        try:
            for label in ("first, fresh clone", "second"):
                seconds, output = demo(clone)
                environment = re.search(r"Environment ready after (\d+) s", output)
                stages = re.search(r"Time\s+lab (\d+) s, provision (\d+) s, launch (\d+) s", output)
                changed = re.findall(r"(\w+): changed=(\d+)", output)
                assert stages is not None
                cells = [environment.group(1) if environment else "0", *stages.groups(), f"{seconds:.0f}"]
                counts = ", ".join(count for _name, count in changed)
                rows.append(f"| {label} | {' | '.join(cells)} | {counts} |")
        finally:
            subprocess.run(
                ["make", "clean"],
                cwd=clone,
                env={**os.environ, "TORCHFLEET_LAB_PREFIX": PREFIX},
                capture_output=True,
                check=False,
            )
    table = "\n".join(rows)
    return f"""## make demo, three nodes

Seconds. Nearly all of the first environment, lab (base image from packages) and provision (torch and scikit-learn on
three nodes) is downloading and unpacking; the second run is what is ours.

| run | environment | lab | provision | launch | all | changed by node |
| --- | --- | --- | --- | --- | --- | --- |
{table}
"""
