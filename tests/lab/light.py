# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Light nodes: containers of the lab's image with sshd alone, many of which fit on one machine. One network, one link each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

PODMAN = "/var/lib/torchfleet-lab/podman.sh"
LABEL = "torchfleet.lab"
REPOSITORY = "localhost/torchfleet-lab"
ROOT = Path(__file__).resolve().parents[2]

BOOT = r"""
set -e
umount /etc/hosts /etc/hostname 2>/dev/null || true
printf '127.0.0.1\tlocalhost\n127.0.1.1\tdebian\n' > /etc/hosts
echo debian > /etc/hostname; hostname debian
rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -A
mkdir -p -m 0755 /run/sshd; mkdir -p -m 0700 /root/.ssh
echo "$KEY" > /root/.ssh/authorized_keys2; chmod 0600 /root/.ssh/authorized_keys2
if [ -n "$RATE" ]; then tc qdisc replace dev eth0 root tbf rate "$RATE" burst 256kb latency 50ms; fi
exec /usr/sbin/sshd -D
"""


class LightNodes:
    """`with LightNodes(24, folder, prefix) as nodes:` brings them up, and takes down what it brought up."""

    def __init__(self, count: int, folder: Path, prefix: str, rate: str = "") -> None:
        self.count, self.folder, self.prefix, self.rate = count, folder, prefix, rate
        self.subnet = f"10.{100 + zlib.crc32(prefix.encode()) % 20}.0"
        self.names = [f"n{number:03d}" for number in range(1, count + 1)]
        self.address = {name: f"{self.subnet}.{10 + number}" for number, name in enumerate(self.names)}
        self.inventory = folder / "hosts.yml"
        self.key = folder / "id_ed25519"
        self.known = folder / "known_hosts"

    def podman(self, *args: str, check: bool = True) -> str:
        done = subprocess.run([PODMAN, *args], capture_output=True, text=True, check=False, timeout=300)
        if check and done.returncode:
            raise RuntimeError(f"podman {' '.join(args[:2])}: {done.stderr.strip()}")
        return done.stdout

    def base(self, playbook: str) -> None:
        """A lab of one node, up or down: it brings the engine and its image, and both stay while it is there."""
        settings = {
            "lab_prefix": f"{self.prefix}-base",
            "lab_node_count": 1,
            "lab_inventory_dir": str(self.folder / "base"),
        }
        ansible = str(Path(sys.executable).parent / "ansible-playbook")
        command = [ansible, str(ROOT / "playbooks" / f"{playbook}.yml"), "-e", json.dumps(settings)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{playbook}: {done.stdout[-3000:]}")

    def image(self) -> str:
        listed = ["images", "--filter", f"reference={REPOSITORY}:bookworm-*", "--format", "{{.Repository}}:{{.Tag}}"]
        return self.podman(*listed).split()[0]

    def __enter__(self) -> LightNodes:
        try:
            return self._bring_up()
        except BaseException:
            self.__exit__()
            raise

    def _bring_up(self) -> LightNodes:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.base("lab_up")
        self.take_down()
        image = self.image()
        if not self.key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        public = self.key.with_suffix(".pub").read_text(encoding="utf-8").strip()
        self.podman(
            "network",
            "create",
            "--disable-dns",
            "--label",
            f"{LABEL}={self.prefix}",
            "--subnet",
            f"{self.subnet}.0/24",
            self.prefix,
        )
        for name in self.names:
            self.podman(
                "run", "--detach", "--name", f"{self.prefix}-{name}", "--label", f"{LABEL}={self.prefix}", "--privileged", "--no-hosts",
                "--env", f"KEY={public}", "--env", f"RATE={self.rate}", "--network", f"{self.prefix}:ip={self.address[name]}",
                image, "sh", "-c", BOOT,
            )  # fmt: skip

        def host_keys(name: str) -> str:
            script = "until [ -e /run/sshd.pid ]; do sleep 0.2; done; cat /etc/ssh/ssh_host_*_key.pub"
            keys = self.podman("exec", f"{self.prefix}-{name}", "sh", "-c", script).splitlines()
            return "".join(f"{self.address[name]} {' '.join(key.split()[:2])}\n" for key in keys)

        with ThreadPoolExecutor(4) as pool:
            self.known.write_text("".join(pool.map(host_keys, self.names)), encoding="utf-8")
        self.write_inventory(self.names)
        return self

    def write_inventory(self, names: list[str], **variables: Any) -> None:
        """The inventory with these nodes alone."""
        options = f"-o UserKnownHostsFile={self.known} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
        hosts = {name: {"ansible_host": self.address[name], "torchfleet_address": self.address[name]} for name in names}
        settings = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": options,
            "ansible_python_interpreter": "/usr/bin/python3",
            **variables,
        }
        self.inventory.write_text(yaml.safe_dump({"train": {"hosts": hosts, "vars": settings}}), encoding="utf-8")

    def ssh(self, name: str) -> list[str]:
        """The start of a command line on a node, as a shell user would have it."""
        options = ["-i", str(self.key), "-o", f"UserKnownHostsFile={self.known}", "-o", "IdentitiesOnly=yes"]
        return ["ssh", *options, f"root@{self.address[name]}"]

    def take_down(self) -> None:
        listed = ["--filter", f"label={LABEL}={self.prefix}"]
        containers = self.podman("ps", "--all", *listed, "--format", "{{.Names}}").split()
        if containers:
            self.podman("rm", "--force", "--time", "0", *containers)
        for network in self.podman("network", "ls", *listed, "--format", "{{.Name}}").split():
            self.podman("network", "rm", "--force", network)

    def __exit__(self, *_error: object) -> None:
        if Path(PODMAN).exists():
            self.take_down()
        self.base("lab_down")
        for path in (self.inventory, self.key, self.key.with_suffix(".pub"), self.known):
            path.unlink(missing_ok=True)
        if self.folder.exists() and not os.listdir(self.folder):
            self.folder.rmdir()
