# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a lab to which something happens, for the tests of all scenarios."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager

RUNS = "/var/lib/torchfleet/runs"
SCRIPT = """
import os, signal, sys, time
import torch
import torch.distributed as dist
def bad(*_):
    raise ValueError("boom")
def full(*_):
    with open(os.environ["TORCHFLEET_RUN_DIR"] + "/output/big", "wb") as stream:
        while True:
            stream.write(bytes(1 << 20))
            stream.flush()
signal.signal(signal.SIGUSR1, full if sys.argv[1] == "full" else bad)
signal.signal(signal.SIGUSR2, lambda *_: os._exit(0))
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(100000):
    dist.all_reduce(torch.ones(1))
    if step % 10 == 0:
        print("step", step, flush=True)
    time.sleep(0.02)
"""


class Run:
    """A run that trains until something happens to it."""

    def __init__(self, lab, hosts, folder, script, *args, **variables):
        self.lab, self.hosts, self.folder = lab, hosts, folder
        self.output = folder / "out"
        self.process = lab.start(
            "launch",
            self.output,
            cwd=folder,
            launch_script=str(script),
            launch_args=list(args),
            **variables,
        )

    def said(self):
        return self.output.read_text(encoding="utf-8")

    def wait_for(self, text, seconds=90):
        until(lambda: text in self.said() or self.process.poll() is not None, seconds)
        assert self.process.poll() is None, self.said()

    def abandon(self):
        """End what is left of the controller, where a test broke off."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    @property
    def run(self):
        return next(self.folder.glob("runs/*/manifest.json")).parent

    @property
    def manifest(self):
        return json.loads((self.run / "manifest.json").read_text(encoding="utf-8"))

    def rank(self, node, number):
        record = self.hosts[node].file(f"{RUNS}/{self.run.name}/ranks/rank-{number}.json").content_string
        return json.loads(record)["pid"]

    def detected(self, seconds=60):
        """When a follower first ordered the end."""
        until(lambda: (self.run / ".stop").exists() or self.process.poll() is not None, seconds, 0.02)
        return time.time()


# Seconds from a failure that was seen to the end of the run on all other nodes: 5, and as many for nodes that share two
# cores with each other and with the controller.
ENDED = 10


def until(condition, seconds, pause=0.1):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause)


def alive(host):
    return host.check_output("grep -lz '^TORCHFLEET_RUN_ID=' /proc/[0-9]*/environ 2>/dev/null || true")


def assert_clean(hosts):
    assert {name: alive(host) for name, host in hosts.items()} == dict.fromkeys(hosts, "")


def on_rank_one(number):
    def inject(run):
        run.hosts["node2"].check_output(f"kill -{number} {run.rank('node2', 1)}")

    return inject


def kill_launcher(node):
    def inject(run):
        agent = json.loads(run.hosts[node].file(f"{RUNS}/{run.run.name}/agent.json").content_string)
        run.hosts[node].check_output(f"pkill -9 -P {agent['pid']}")

    return inject


def kill_agent(run):
    agent = json.loads(run.hosts["node2"].file(f"{RUNS}/{run.run.name}/agent.json").content_string)
    run.hosts["node2"].check_output(f"kill -9 {agent['pid']}")


def set_links(lab, node, state):
    line = f'cd /sys/class/net; for link in e*; do ip link set "$link" {state}; done'
    lab.podman("exec", f"{lab.prefix}-{node}", "sh", "-c", line)


def cut_network(run):
    set_links(run.lab, "node2", "down")


def mend_network(lab):
    set_links(lab, "node2", "up")


def power_off(node):
    return lambda run: run.lab.podman("kill", f"{run.lab.prefix}-{node}")


def reachable(lab, node):
    subprocess.run(
        ["ssh", "-F", str(lab.folder / "ssh_config"), "-O", "exit", lab.nodes[node]["ansible_host"]],
        check=False,
        capture_output=True,
    )
    try:
        return lab.host(node).run("true").rc == 0
    except RuntimeError:
        return False


def interrupt(run):
    os.killpg(run.process.pid, signal.SIGINT)


def suffer(run, inject, gone=()):
    """Do it, and watch: when it was seen, when the nodes that are not `gone` were clean, the status, and who was named."""
    began = time.time()
    inject(run)
    seen = run.detected()
    rest = [host for node, host in run.hosts.items() if node not in gone]
    until(lambda: not any(alive(host) for host in rest), 60)
    clean = time.time()
    code = run.process.wait(120)
    manifest = run.manifest
    outcome = manifest.get("outcome") or {"sentence": manifest["state"], "problems": []}
    found = {"seen": seen - began, "clean": clean - began, "code": code, "named": outcome["sentence"]}
    return found, "; ".join([outcome["sentence"], *outcome["problems"]])


def outlive_controller(run, folder):
    """The controller is killed, the run goes on, and stop.yml ends it: how long that took."""
    os.killpg(run.process.pid, signal.SIGKILL)
    code = run.process.wait(60)
    time.sleep(3)
    assert all(alive(host) for host in run.hosts.values())
    began = time.time()
    done = run.lab.playbook("stop", cwd=folder)
    assert done.code == 0, done.output
    until(lambda: not any(alive(host) for host in run.hosts.values()), 60)
    named = "the run goes on; stop.yml ends it (time of that)"
    return {"seen": None, "clean": time.time() - began, "code": code, "named": named}


@contextmanager
def small_disk(host):
    """The folder of the node's runs on 16 MiB, for SCRIPT with the argument `full`."""
    host.check_output(f"mount -t tmpfs -o size=16m tmpfs {RUNS}")
    try:
        yield
    finally:
        host.check_output(f"umount {RUNS}")


def take_port(lab, hosts, folder, script, **variables):
    """A launch while a foreign process on the head holds its port: how long until that was said."""
    server = "import socket, time; s = socket.create_server(('', 29500)); time.sleep(600)"
    pid = hosts["node1"].check_output(f'nohup python3 -c "{server}" >/dev/null 2>&1 & echo $!')
    try:
        began = time.time()
        run = Run(lab, hosts, folder, script, "-", **variables)
        code = run.process.wait(120)
        assert code != 0
        assert f"port 29500 is held by process {pid}" in " ".join(run.said().split()), run.said()
        named = f"port 29500 is held by process {pid} (python3 ...): nothing was started"
        return {"seen": time.time() - began, "clean": 0, "code": code, "named": named}
    finally:
        hosts["node1"].check_output(f"kill {pid}")
