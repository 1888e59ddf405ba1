# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a lab of three nodes: provision, its remote calls, and the time to the first training step against doing it by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "tfbench-launch"
FOLDER = ROOT / "inventories" / "lab-bench"
SCRIPT = ROOT / "examples" / "digits" / "train.py"
ROUNDS = 3


def playbook(name: str, *options: str, cwd: Path = ROOT, **variables: Any) -> tuple[float, str]:
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "playbooks" / f"{name}.yml"), *options]
    if not name.startswith("lab_"):
        command += ["-i", str(FOLDER / "hosts.yml")]
    environment = {
        **os.environ,
        "TORCHFLEET_LAB_PREFIX": PREFIX,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "PWD": str(cwd),
    }
    began = time.monotonic()
    done = subprocess.run(
        [*command, "-e", json.dumps(variables)], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout)
    return time.monotonic() - began, done.stdout


def remote_calls(output: str) -> Counter[str]:
    """Commands that reached each node, from the connection's own words at -vvv."""
    return Counter(re.findall(r"^<(\S+)> SSH: EXEC", output, re.MULTILINE))


def by_hand(nodes: dict[str, dict[str, Any]]) -> float:
    """What people do today: copy the script, and start torchrun on each node over ssh. Seconds to the first step."""
    key = ["-i", str(FOLDER / "id_ed25519"), "-o", f"UserKnownHostsFile={FOLDER / 'known_hosts'}"]
    master = next(iter(nodes.values()))["torchfleet_address"]
    began = time.time()
    running = []
    for rank, node in enumerate(nodes.values()):
        subprocess.run(["scp", "-q", *key, str(SCRIPT), f"root@{node['ansible_host']}:/root/train.py"], check=True)
        command = (
            f"GLOO_SOCKET_IFNAME=eth1 OMP_NUM_THREADS=1 /opt/torchfleet/venv/bin/python -m torch.distributed.run --nnodes={len(nodes)} "
            f"--nproc-per-node=1 --node-rank={rank} --master-addr={master} --master-port=29511 /root/train.py"
        )
        running.append(
            subprocess.Popen(
                ["ssh", *key, f"root@{node['ansible_host']}", command],
                stdout=subprocess.PIPE,
                text=True,
                stderr=subprocess.DEVNULL,
            )
        )
    outputs = [process.communicate(timeout=120)[0] for process in running]
    return first_step("".join(outputs)) - began


def first_step(text: str) -> float:
    found = re.search(r"first step done at ([\d.]+)", text)
    if found is None:
        raise SystemExit(f"no first step in:\n{text}")
    return float(found.group(1))


def measure() -> str:
    torch_index = [entry for entry in [os.environ.get("TORCH_INDEX", "")] if entry]
    try:
        playbook("lab_up", lab_inventory_dir=str(FOLDER))
        nodes = yaml.safe_load((FOLDER / "hosts.yml").read_text(encoding="utf-8"))["train"]["hosts"]
        settings = {"pytorch_extra_packages": ["scikit-learn==1.7.2"], "pytorch_extra_index_urls": torch_index}
        names_first, output = playbook("provision", "-t", "hosts,ssh_trust", "-vvv")
        calls = max(remote_calls(output).values())
        whole_first, _output = playbook("provision", **settings)
        whole_second, output = playbook("provision", **settings)
        changed = sorted(set(re.findall(r"^node\d+\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)))
        ours, hand = [], []
        for _round in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="torchfleet-bench-") as folder:
                began = time.time()
                _seconds, output = playbook("launch", cwd=Path(folder), launch_script=str(SCRIPT))
                ours.append(first_step(output) - began)
            hand.append(by_hand(nodes))
    finally:
        playbook("lab_down", lab_inventory_dir=str(FOLDER))
    return f"""## Provision and launch, three nodes

| what | figure |
| --- | --- |
| names and trust on bare nodes (`-t hosts,ssh_trust`) | {names_first:.1f} s |
| remote calls a node for that, the network's choice included, counted from `-vvv` | {calls} |
| whole provision, torch included | {whole_first:.0f} s |
| the same again, nothing to change (changed={", ".join(changed)} on every node) | {whole_second:.1f} s |
| `launch.yml` to the first training step, median of {ROUNDS} | {statistics.median(ours):.1f} s |
| by hand (scp and ssh, torchrun on each node) to the first training step, median of {ROUNDS} | {statistics.median(hand):.1f} s |
| difference, round by round | {", ".join(f"{one - other:+.1f} s" for one, other in zip(ours, hand))} |

By hand: `{shlex.join(["ssh", "node", "python -m torch.distributed.run ... train.py"])}` from a shell loop, no checks, no logs, no end
when a rank fails.
"""
