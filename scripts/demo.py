#!/usr/bin/env python3
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From nothing to a trained model on three container nodes: lab_up, provision, launch, and a summary."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "runs" / "demo-logs"
TORCH = "2.13.0"
EXTRA_PACKAGES = ["scikit-learn==1.7.2"]


def stage(number: int, title: str, playbook: str, *options: str, live: bool = False) -> tuple[float, str]:
    """Run a playbook; its output goes to a file, and to the terminal where `live`. Exits with its words on failure."""
    log = LOGS / f"{number}-{playbook}.log"
    print(f"[{number}/3] {title} ...", flush=True)
    began = time.monotonic()
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        str(ROOT / "playbooks" / f"{playbook}.yml"),
        *options,
    ]
    lines = []
    show = False
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            stream.write(line)
            stream.flush()
            lines.append(line)
            if line.startswith(("TASK ", "PLAY ")):
                show = live and ("Plan what" in line or "Follow" in line or "Judge" in line)
            elif show and not line.startswith(("ok: ", "changed: ", "skipping: ")) and line.strip():
                print(f"      {line}", end="", flush=True)
        code = process.wait()
    seconds = time.monotonic() - began
    if code:
        print("".join(lines[-25:]))
        sys.exit(f"{playbook} failed after {seconds:.0f} s; all of its output is in {log}")
    print(f"      done in {seconds:.0f} s", flush=True)
    return seconds, "".join(lines)


def recap(output: str) -> dict[str, int]:
    """Changed tasks by node, from Ansible's closing lines."""
    return {name: int(count) for name, count in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)}


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    os.environ["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    inventory = ("-i", str(ROOT / "inventories" / "lab" / "hosts.yml"))

    lab, _output = stage(1, "Bringing up a lab of three container nodes", "lab_up")
    settings: dict[str, object] = {"pytorch_version": TORCH, "pytorch_extra_packages": EXTRA_PACKAGES}
    if os.environ.get("TORCH_INDEX"):
        settings["pytorch_extra_index_urls"] = [os.environ["TORCH_INDEX"]]
    provision, output = stage(
        2,
        "Provisioning: names, trust, PyTorch (downloads the first time)",
        "provision",
        *inventory,
        "-e",
        json.dumps(settings),
    )
    changed = recap(output)
    launch, _output = stage(
        3,
        "Training one model over all three nodes",
        "launch",
        *inventory,
        "-e",
        json.dumps(
            {"launch_script": str(ROOT / "examples/digits/train.py"), "launch_collect": ["model.pt", "metrics.json"]}
        ),
        live=True,
    )

    folder = max(
        (path.parent for path in (ROOT / "runs").glob("*/manifest.json")),
        key=lambda path: (path / "manifest.json").stat().st_mtime,
    )
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    metrics = json.loads((folder / "output" / "metrics.json").read_text(encoding="utf-8"))
    nodes = [node["node"] for node in manifest["plan"]["nodes"]]
    losses = metrics["losses"]
    versions = manifest["versions"][nodes[0]]
    print(
        f"""
Done: one model, trained by {metrics["world_size"]} processes on {len(nodes)} nodes
  Nodes          {", ".join(nodes)} (torch {versions.get("torch")}, Python {versions.get("python")})
  World size     {metrics["world_size"]} (gradients by gloo over {manifest["plan"]["nodes"][0]["env"].get("GLOO_SOCKET_IFNAME")})
  Loss           {" > ".join(f"{losses[at]:.3f}" for at in sorted({0, len(losses) // 4, len(losses) // 2, len(losses) - 1}))}
  Accuracy       {metrics["accuracy"]:.1%} on digits it never saw (wanted: 95%)
  Trained model  {(folder / "output" / "model.pt").relative_to(ROOT)}
  Logs           {folder.relative_to(ROOT)}/<node>/rank-<n>.log, manifest.json beside them
  Provision      {", ".join(f"{name}: changed={count}" for name, count in changed.items())}
  Time           lab {lab:.0f} s, provision {provision:.0f} s, launch {launch:.0f} s, all {time.monotonic() - began:.0f} s

Next: run it again (provision then reports changed=0), train your own script with
  .venv/bin/ansible-playbook playbooks/launch.yml -e launch_script=/path/to/train.py
or take the lab down with: make clean"""
    )


if __name__ == "__main__":
    main()
