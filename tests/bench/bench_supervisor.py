# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it costs the controller to follow a run that prints 1,000 lines a second in all, on few and on many nodes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))
from light import LightNodes

SIZES = (3, 24)
RATE = 1000  # lines a second, of all ranks
SECONDS = 30
PREFIX = "tfbench-supervisor"
TEXT = "with some text as a training writes it, loss 0.1234 lr 3e-4"
SCRIPT = f"""
import os, sys, time
rank, count, pause = os.environ["RANK"], int(sys.argv[1]), float(sys.argv[2])
begun = time.time()
for number in range(count):
    print(f"line {{number}} of rank {{rank}} {TEXT}", flush=True)
    late = begun + number * pause - time.time()
    if late > 0:
        time.sleep(late)
"""


def launch(nodes: LightNodes, folder: Path, lines: int, pause: float) -> tuple[float, float, int]:
    """CPU seconds of the controller, seconds of the clock, and lines lost."""
    folder.mkdir()
    (folder / "lines.py").write_text(SCRIPT, encoding="utf-8")
    settings = {
        "launch_script": str(folder / "lines.py"),
        "launch_args": [str(lines), str(pause)],
        "launch_launcher": "python",
        "launch_packages": [],
        "torchfleet_python": "/usr/bin/python3",
        "launch_runs_dir": str(folder / "runs"),
        "launch_run_id": folder.name,
    }
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "playbooks" / "launch.yml")]
    command += ["-i", str(nodes.inventory), "--forks", str(nodes.count), "-e", json.dumps(settings)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stdout[-5000:])
    lost = 0
    for rank, name in enumerate(nodes.names):
        log = (folder / "runs" / folder.name / name / f"rank-{rank}.log").read_text(encoding="utf-8").splitlines()
        lost += len({f"line {number} of rank {rank} {TEXT}" for number in range(lines)} - set(log))
        lost += sum(f"{name}:{rank} | {line}" not in done.stdout for line in (log[0], log[-1]))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds, lost


def measure() -> str:
    rows = []
    with tempfile.TemporaryDirectory(prefix="torchfleet-bench-") as temporary:
        folder = Path(temporary)
        for count in SIZES:
            with LightNodes(count, folder / "lab", PREFIX) as nodes:
                options = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(nodes.inventory)]
                names = [*options, str(ROOT / "playbooks" / "provision.yml"), "-t", "hosts,ssh_trust", "--forks", "12"]
                environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
                subprocess.run(names, check=True, env=environment, stdout=subprocess.DEVNULL)
                each = RATE / count
                idle, quiet, _lost = launch(nodes, folder / f"quiet-{count}", 2, float(SECONDS))
                cpu, seconds, lost = launch(nodes, folder / f"busy-{count}", int(each * SECONDS), 1 / each)
                if lost:
                    raise SystemExit(f"{lost} lines of {count} nodes were lost")
                rows.append((count, int(each * SECONDS) * count, seconds, quiet, cpu, idle, lost))
    return "\n".join(
        [
            f"## Following {RATE:,} lines a second, light nodes",
            "",
            f"One rank a node, no torch; {SECONDS} s of lines, all shown and kept, beside a run as long that prints two lines a rank. The",
            "nodes, which share this machine's cores, are not in the CPU time.",
            "",
            "| nodes | lines | lost | whole playbook, busy | quiet | controller CPU, busy | quiet | for the lines alone |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *(
                f"| {count} | {lines:,} | {lost} | {busy:.0f} s | {quiet:.0f} s | {cpu:.1f} s | {idle:.1f} s | "
                f"{100 * (cpu - idle) / SECONDS:.0f} % of a core |"
                for count, lines, busy, quiet, cpu, idle, lost in rows
            ),
        ]
    )


if __name__ == "__main__":
    print(measure())
