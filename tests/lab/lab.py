# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab tests of all scenarios share: the inventory, testinfra hosts, and playbooks run as a user runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import testinfra
import yaml

ROOT = Path(__file__).resolve().parents[2]


# A node's own firewall with a closed way in.
NFTABLES = """\
flush ruleset
table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    iif lo accept
    ct state established,related accept
    ip saddr CONTROLLER accept
  }
}
"""


@dataclass(frozen=True)
class Done:
    """A finished playbook run."""

    code: int
    output: str

    def changed(self) -> dict[str, int]:
        """Changed tasks by node."""
        found = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", self.output, re.MULTILINE)
        return {name: int(count) for name, count in found if name != "localhost"}


def keep(name: str, found: dict[str, Any]) -> None:
    """For docs/benchmarks.md, by tests/bench. What was not measured this time stays."""
    path = ROOT / ".cache" / name
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**before, **found}, indent=1), encoding="utf-8")


def is_up(host: Any) -> bool:
    try:
        return host.run("systemctl is-system-running").stdout.strip() in ("running", "degraded")
    except RuntimeError:  # ssh finds no one there yet
        return False


class Lab:
    """A lab by the inventory that lab_up wrote for it."""

    def __init__(self, scenario: str) -> None:
        self.folder = ROOT / "inventories" / f"lab-{scenario}"
        self.inventory = yaml.safe_load((self.folder / "hosts.yml").read_text(encoding="utf-8"))
        self.nodes: dict[str, dict[str, Any]] = self.inventory["train"]["hosts"]
        self.prefix = os.environ.get("TORCHFLEET_LAB_PREFIX", f"tfm-{scenario}")

    @property
    def controller(self) -> str:
        """Its address as the nodes see it: the gateway of the network on which it manages them."""
        return str(next(iter(self.nodes.values()))["ansible_host"]).rpartition(".")[0] + ".1"

    def closed_firewall(self, way: str = "tcp dport 22") -> str:
        """/etc/nftables.conf of a node that lets in nobody but the controller, and that one by this way."""
        return NFTABLES.replace("CONTROLLER accept", " ".join(filter(None, (self.controller, way, "accept"))))

    def host(self, name: str) -> Any:
        """The node by testinfra, over ssh with the lab's own key and host keys, as root."""
        node = self.nodes[name]
        config = self.folder / "ssh_config"
        if not config.exists():
            config.write_text(
                f"Host *\n  IdentityFile {self.folder / 'id_ed25519'}\n  UserKnownHostsFile {self.folder / 'known_hosts'}\n"
                "  StrictHostKeyChecking yes\n  IdentitiesOnly yes\n  ControlMaster auto\n  ControlPersist 60\n"
                f"  ControlPath {self.folder}/cm-%C\n",
                encoding="utf-8",
            )
        user, port = node["ansible_user"], node["ansible_port"]
        return testinfra.get_host(
            f"ssh://{user}@{node['ansible_host']}:{port}", ssh_config=str(config), sudo=user != "root"
        )

    def hosts(self) -> dict[str, Any]:
        return {name: self.host(name) for name in self.nodes}

    def inventory_of(self, *names: str, **variables: dict[str, Any]) -> str:
        """A file beside the lab's own inventory with these nodes alone; `variables` are added by node."""
        hosts = {name: {**self.nodes[name], **variables.get(name, {})} for name in names}
        path = self.folder / f"{'-'.join(names)}.yml"
        path.write_text(yaml.safe_dump({"train": {**self.inventory["train"], "hosts": hosts}}), encoding="utf-8")
        return str(path)

    def _call(self, name: str, options: tuple[str, ...], cwd: Path, variables: dict[str, Any]) -> dict[str, Any]:
        command = [str(Path(sys.executable).parent / "ansible-playbook"), str(ROOT / "playbooks" / f"{name}.yml")]
        inventory = variables.pop("inventory", None) or str(self.folder / "hosts.yml")
        command += ["-i", inventory, *options]
        if variables:
            command += ["-e", json.dumps(variables)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        environment |= {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1", "PWD": str(cwd), "COLUMNS": "200"}
        return {
            "args": command,
            "cwd": cwd,
            "env": environment,
            "stdin": subprocess.DEVNULL,
            "stderr": subprocess.STDOUT,
            "text": True,
        }

    def playbook(self, name: str, *options: str, cwd: Path = ROOT, timeout: int = 600, **variables: Any) -> Done:
        """Run a playbook of the collection on the lab, or on another `inventory` of its nodes."""
        call = self._call(name, options, cwd, variables)
        done = subprocess.run(**call, stdout=subprocess.PIPE, timeout=timeout, check=False)
        return Done(done.returncode, done.stdout)

    def written(self, folder: Path, text: str) -> str:
        """A playbook of a test's own, by a name that `playbook` takes; Ansible finds the collection beside it."""
        (folder / "collections").symlink_to(ROOT / "playbooks" / "collections")
        (folder / "play.yml").write_text(text, encoding="utf-8")
        return str(folder / "play")

    def start(
        self, name: str, output: Path, *options: str, cwd: Path = ROOT, **variables: Any
    ) -> subprocess.Popen[str]:
        """Start a playbook in a process group of its own, as a shell does; its output goes to a file."""
        with output.open("w", encoding="utf-8") as stream:
            return subprocess.Popen(**self._call(name, options, cwd, variables), stdout=stream, start_new_session=True)

    def start_node(self, name: str) -> None:
        """Bring a stopped node back, until it has booted and answers by ssh."""
        self.podman("start", f"{self.prefix}-{name}")
        self.wait_up(name)

    def wait_up(self, name: str, seconds: float = 120) -> None:
        host, deadline = self.host(name), time.monotonic() + seconds
        while not is_up(host):
            assert time.monotonic() < deadline, f"{name} did not come back in {seconds:.0f} s"
            time.sleep(0.5)

    def podman(self, *args: str) -> str:
        """The engine of this lab, for what happens to a node from outside: a reboot, a power cut."""
        wrapper = "/var/lib/torchfleet-lab/podman.sh"
        return subprocess.run([wrapper, *args], capture_output=True, text=True, check=True, timeout=60).stdout
