# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it costs to know a node and to choose the network: facts modules, the choice for 64 nodes, the probe of 24."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / "playbooks" / "collections"
RECORDED = ROOT / "tests" / "unit" / "fixtures" / "nvidia_smi"
MODULES = "ansible_collections.torchfleet.cluster.plugins.modules"
PREFIX = f"tfbench-{os.getpid()}-"
ROUNDS = 5

# One module as Ansible runs it on a node, in a process of its own.
CHILD = """
import importlib, json, sys
from ansible.module_utils.testing import patch_module_args
given = json.load(sys.stdin)
module = importlib.import_module(sys.argv[1])
with patch_module_args(given):
    module.main()
"""


def start(name: str, given: dict[str, Any], *prefix: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", CHILD, f"{MODULES}.{name}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
    )
    assert process.stdin is not None
    json.dump(given, process.stdin)
    process.stdin.close()
    return process


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    text = process.stdout.read()
    process.stdout.close()
    if process.wait():
        raise SystemExit(text)
    return dict(json.loads(text))


def cost(name: str, given: dict[str, Any]) -> tuple[float, float]:
    """Median seconds and peak MiB of a module, interpreter included. The peak is of the largest process it ran."""
    seconds = []
    for _round in range(ROUNDS):
        began = time.monotonic()
        # A child of its own, so that the peak is this module's and not of anything measured before.
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            answer(start(name, given))
            os.write(writer, str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        seconds.append(time.monotonic() - began)
        peak = int(os.read(reader, 64)) / 1024
        os.close(reader)
        os.close(writer)
    return statistics.median(seconds), peak


def eight_gpus(folder: Path) -> Path:
    """A stand-in for nvidia-smi that answers with a record of eight GPUs, made of the recorded two."""
    text = (RECORDED / "two_h100.xml").read_text(encoding="utf-8")
    blocks = re.findall(r"\s*<gpu id=.*?</gpu>", text, re.DOTALL)
    head, tail = text[: text.index(blocks[0])], text[text.rindex("</gpu>") + len("</gpu>") :]
    many = []
    for number in range(8):
        block = blocks[number % len(blocks)]
        bus = re.search(r'<gpu id="[0-9A-Fa-f]+:([0-9A-Fa-f]{2}):', block)
        if bus:
            block = block.replace(f":{bus.group(1)}:", f":{0x1B + number * 8:02X}:")
        block = re.sub(r"<minor_number>\d+<", f"<minor_number>{number}<", block)
        many.append(re.sub(r"GPU-[0-9a-f]{8}", f"GPU-{number:08x}", block))
    head = re.sub(r"<attached_gpus>\d+<", "<attached_gpus>8<", head)
    (folder / "query.xml").write_text(head + "".join(many) + tail, encoding="utf-8")
    script = folder / "nvidia-smi"
    script.write_text(
        f"#!/bin/sh\ncase \"$*\" in '-q -x') cat {folder}/query.xml ;; 'topo -m') cat {RECORDED}/two_h100.topo.txt ;; *) exit 2 ;; esac\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def choice_seconds() -> float:
    """64 nodes of six candidates each, of which the third and fourth network connect all."""
    from ansible_collections.torchfleet.cluster.plugins.module_utils._network_choice import choose_network

    speeds = (1000, 10000, 25000, 100000, 10000, 1000)
    nodes = [
        {
            "name": f"n{number}",
            "interfaces": [
                {
                    "name": f"eth{card}",
                    "kind": "ethernet",
                    "state": "up",
                    "speed_mbps": speed,
                    "addresses": [
                        {"address": f"10.{card}.0.{number + 1}", "prefix": 24, "family": "ipv4", "scope": "global"}
                    ],
                }
                for card, speed in enumerate(speeds)
            ],
        }
        for number in range(64)
    ]
    links = [
        {
            "source": f"n{one}",
            "source_address": f"10.{card}.0.{one + 1}",
            "target": f"n{other}",
            "target_address": f"10.{card}.0.{other + 1}",
            "ok": card in (2, 3),
            "why": "" if card in (2, 3) else "timeout",
        }
        for one in range(64)
        for other in range(64)
        if one != other
        for card in range(6)
    ]
    seconds = []
    for _round in range(ROUNDS):
        began = time.monotonic()
        choice = choose_network(nodes, links)
        seconds.append(time.monotonic() - began)
    assert {node.interface for node in choice.nodes} == {"eth3"}
    return statistics.median(seconds)


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """Light nodes on two bridges; the second leads nowhere on every other node."""
    bridge = f"{PREFIX}br"
    names = [f"{PREFIX}{number}" for number in range(count)]

    def ip(*args: str) -> None:
        subprocess.run(["ip", *args], check=True, capture_output=True)

    made = []
    try:
        ip("netns", "add", bridge)
        made.append(bridge)
        for card in range(2):
            ip("-n", bridge, "link", "add", f"br{card}", "type", "bridge")
            ip("-n", bridge, "link", "set", f"br{card}", "up")
        for number, name in enumerate(names):
            ip("netns", "add", name)
            made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
            for card in range(2):
                ip(
                    "-n",
                    name,
                    "link",
                    "add",
                    f"eth{card}",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    f"p{card}-{number}",
                    "netns",
                    bridge,
                )
                ip("-n", name, "addr", "add", f"10.{90 + card}.0.{number + 1}/24", "dev", f"eth{card}")
                ip("-n", name, "link", "set", f"eth{card}", "up")
                if card == 0 or number % 2:
                    ip("-n", bridge, "link", "set", f"p{card}-{number}", "master", f"br{card}")
                ip("-n", bridge, "link", "set", f"p{card}-{number}", "up")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def probe_seconds(count: int) -> float:
    with namespaces(count) as names:
        began = time.monotonic()

        def everywhere(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
            running = {}
            for name in names:
                own = {**given, "node": name, "probe_id": PREFIX}
                if given["state"] == "listening":
                    facts = json.loads(
                        subprocess.run(["ip", "-n", name, "-j", "addr"], check=True, capture_output=True).stdout
                    )
                    own["interfaces"] = [
                        {
                            "name": entry["ifname"],
                            "kind": "veth",
                            "state": "up",
                            "addresses": [
                                {
                                    "address": info["local"],
                                    "prefix": info["prefixlen"],
                                    "family": "ipv4",
                                    "scope": "global",
                                }
                                for info in entry["addr_info"]
                                if info["family"] == "inet"
                            ],
                        }
                        for entry in facts
                        if entry["ifname"] != "lo"
                    ]
                running[name] = start("network_probe", own, "ip", "netns", "exec", name)
            return {name: answer(process) for name, process in running.items()}

        listening = everywhere({"state": "listening"})
        listeners = {name: result["listener"] for name, result in listening.items()}
        probed = everywhere({"state": "probed", "listeners": listeners})
        everywhere({"state": "stopped", "listeners": listeners})
        seconds = time.monotonic() - began
        good = sum(
            link["ok"]
            for result in probed.values()
            for link in result["links"]
            if link["target_address"].startswith("10.90.")
        )
    if good < count * (count - 1):
        raise SystemExit(f"only {good} of {count * (count - 1)} pairs connected")
    return seconds


def measure() -> str:
    with tempfile.TemporaryDirectory(prefix="torchfleet-bench-") as folder:
        given = {
            "gpu_facts": {"executable": str(eight_gpus(Path(folder)))},
            "nccl_facts": {"python": sys.executable},
            "runtime_facts": {"python": sys.executable, "import_torch": False},
        }
        labelled = [(f"`{name}`", name, options) for name, options in given.items()]
        # What a check costs on a node: torch is imported to say what it loads.
        if importlib.util.find_spec("torch"):
            labelled.append(("`runtime_facts`, torch imported", "runtime_facts", {"python": sys.executable}))
        rows = [
            f"| {label} | {seconds:.2f} s | {peak:.0f} MiB |"
            for label, (seconds, peak) in ((label, cost(name, options)) for label, name, options in labelled)
        ]
    choice = choice_seconds()
    probe = probe_seconds(24) if os.geteuid() == 0 else None
    table = "\n".join(rows)
    probe_row = f"{probe:.1f} s" if probe is not None else "not measured: making network namespaces needs root"
    return f"""## Facts, choice and probe

Median of {ROUNDS}, interpreter start included; the peak is of the largest process. `gpu_facts` reads a record of eight GPUs.
`runtime_facts` does not import torch (`import_torch: false`), unless its row says so; that row is there where the interpreter
of the measurement has torch.

| module | time | peak memory |
| --- | --- | --- |
{table}

| what | figure | aim |
| --- | --- | --- |
| choice for 64 nodes with 6 candidates each (24,192 links) | {choice:.2f} s | under 1 s |
| probe of 24 nodes with 2 networks, one dead on every other node: listen, try all pairs, end | {probe_row} | under 15 s |
"""
