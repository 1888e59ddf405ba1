#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_nodes
short_description: Start or remove the container nodes of a lab
version_added: 0.1.0
description:
  - Brings up container nodes that behave like freshly installed servers, with systemd as PID 1 and sshd,
    wrong host names, no trust between them and no Python packages, on one or more networks of their own.
  - Runs on the machine that carries the lab, as root, with podman.
options:
  state:
    description: Whether the lab is to be there.
    type: str
    choices: [present, absent]
    default: present
  prefix:
    description: Begins the name of everything the lab makes, so that two labs on one machine do not meet.
    type: str
    required: true
  executable:
    description: The podman command of this lab (role C(lab) writes a wrapper).
    type: path
    required: true
  networks:
    description:
      - The networks. Each has C(name), and optionally C(subnet) (a CIDR; without it, one that nobody on the machine
        uses), C(rate) (as tc writes it, V(100mbit)) and C(internal) (no way out; the default for all but the first).
    type: list
    elements: dict
    default: []
  nodes:
    description:
      - The nodes. Each has C(name), and optionally C(release) (Debian 11, 12, 13 or their code names), C(ssh_port),
        C(user) (made with sudo rights), C(networks) (a list of C(name), C(interface), C(address), C(rate)) and C(vars)
        (host variables for the inventory).
    type: list
    elements: dict
    default: []
  count:
    description: The number of nodes, C(node1) to C(nodeN), where O(nodes) is empty.
    type: int
    default: 3
  images:
    description: The image of each Debian release that the nodes use.
    type: dict
    default: {}
  public_key:
    description: The controller's public key. It goes into C(authorized_keys2), so that C(authorized_keys) is untouched.
    type: str
    default: ""
  pip_config:
    description:
      - The output of C(pip config list) on the controller. Nodes take over its index, mirror and wheel folders.
    type: str
    default: ""
  group:
    description: The inventory group of the nodes.
    type: str
    default: train
  boot_timeout:
    description: Seconds that the nodes may take to boot.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
    description: Nothing is started or removed.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Start two nodes on a management and a training network
  torchfleet.cluster.lab_nodes:
    prefix: demo
    executable: /var/lib/torchfleet-lab/podman.sh
    networks:
      - name: mgmt
      - name: train
        rate: 1gbit
    nodes:
      - name: node1
      - name: node2
        release: trixie
    images:
      bookworm: localhost/torchfleet-lab:bookworm
      trixie: localhost/torchfleet-lab:trixie
    public_key: "{{ lookup('file', 'id_ed25519.pub') }}"
"""

RETURN = r"""
inventory:
  description: The lab as an Ansible inventory.
  returned: when state is present
  type: dict
  sample: {"train": {"hosts": {"node1": {"ansible_host": "10.140.0.11"}}}}
known_hosts:
  description: The text of a known_hosts file with the nodes' real host keys.
  returned: when state is present
  type: str
  sample: "10.140.0.11 ssh-ed25519 AAAA..."
started:
  description: Names of the nodes that this call made.
  returned: when state is present
  type: list
  elements: str
  sample: [node1, node2]
removed:
  description: Names of the containers and networks that this call removed.
  returned: when state is absent
  type: list
  elements: str
  sample: [demo-node1, demo-mgmt]
"""

import ipaddress
import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._lab import (
    Lab,
    LabError,
    LabNode,
    default_nodes,
    inherited_pip,
    inventory,
    known_hosts,
    parse_pip_config,
    plan_lab,
)

LABEL = "torchfleet.lab"


class Podman:
    """The engine's commands that a lab needs. `call` fails the module with the engine's own words."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.executable = module.params["executable"]

    def run(self, *args: str, data: str | None = None) -> Tuple[int, str, str]:
        code, out, err = self.module.run_command([self.executable, *args], data=data, binary_data=False)
        return code, out, err

    def call(self, *args: str, data: str | None = None) -> str:
        code, out, err = self.run(*args, data=data)
        if code:
            words = (err or out).strip().splitlines()
            self.module.fail_json(
                msg=f"podman {args[0]} failed: {words[-1] if words else code}", cmd=list(args), stderr=err
            )
        return out

    def names(self, kind: str, prefix: str) -> List[str]:
        """Names of the lab's containers or networks; found by label, so that nothing of others is touched."""
        if kind == "container":
            out = self.call("ps", "--all", "--filter", f"label={LABEL}={prefix}", "--format", "{{.Names}}")
        else:
            out = self.call("network", "ls", "--filter", f"label={LABEL}={prefix}", "--format", "{{.Name}}")
        return sorted(out.split())

    def subnets(self) -> Dict[str, List[str]]:
        """Subnets of all networks of the engine, by the network's name."""
        names = self.call("network", "ls", "--quiet").split()
        found = json.loads(self.call("network", "inspect", *names)) if names else []
        return {network["name"]: [subnet["subnet"] for subnet in network.get("subnets") or []] for network in found}

    def host_subnets(self) -> List[str]:
        """Subnets that the machine itself has an interface in, bridges of the engine among them."""
        tool = self.module.get_bin_path("ip", opt_dirs=["/sbin", "/usr/sbin"])
        code, out, _err = self.module.run_command([tool, "-json", "address"]) if tool else (1, "", "")
        interfaces = json.loads(out) if code == 0 and out.strip() else []
        return [
            f"{address['local']}/{address['prefixlen']}"
            for interface in interfaces
            for address in interface.get("addr_info", [])
            if address.get("local")
        ]


def setup_script(node: LabNode, public_key: str, pip_conf: str) -> str:
    """The first boot of a node: what an installer would have asked."""
    quote = shlex.quote
    home = "/root" if node.user == "root" else f"/home/{node.user}"
    lines = [
        "set -e",
        # As installers leave it: a name that is not unique, and the loopback trap beside it.
        "echo debian > /etc/hostname; hostname debian",
        "printf '127.0.0.1\\tlocalhost\\n127.0.1.1\\tdebian\\n\\n::1\\tlocalhost ip6-localhost ip6-loopback\\n' "
        "> /etc/hosts",
        f"printf '%s' {quote(pip_conf)} > /etc/pip.conf",
    ]
    if node.user != "root":
        lines += [
            f"id {quote(node.user)} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {quote(node.user)}",
            f"echo '{node.user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/lab; chmod 0440 /etc/sudoers.d/lab",
        ]
    lines += [
        f"install -d -m 0700 -o {quote(node.user)} -g {quote(node.user)} {home}/.ssh",
        f"printf '%s\\n' {quote(public_key)} > {home}/.ssh/authorized_keys2",
        f"chown {node.user}: {home}/.ssh/authorized_keys2; chmod 0600 {home}/.ssh/authorized_keys2",
    ]
    if node.ssh_port != 22:
        # The main file: Debian 11's sshd takes the first Port it reads, drop-ins included, and a role may add one.
        lines.append(
            f"sed -i '/^#\\?Port /d' /etc/ssh/sshd_config; echo 'Port {node.ssh_port}' >> /etc/ssh/sshd_config"
        )
    lines.append("systemctl restart ssh")
    return "\n".join(lines)


def shape_script(node: LabNode) -> str:
    """Rates of the node's links. The burst is what tbf needs to reach the rate at a 250 Hz kernel."""
    lines = ["set -e"]
    for link in node.links:
        if link.rate:
            lines.append(f"tc qdisc replace dev {link.interface} root tbf rate {link.rate} burst 256kb latency 50ms")
        else:
            lines.append(f"tc qdisc del dev {link.interface} root 2>/dev/null || true")
    return "\n".join(lines)


def hardware_address(address: str) -> str:
    """The same at every start, as a machine's is, so that nobody waits for its neighbours to forget the old one."""
    return "02:00:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)


def create(podman: Podman, lab: Lab, node: LabNode, image: str, mounts: Tuple[str, ...]) -> None:
    args = ["run", "--detach", "--name", node.container, "--hostname", "debian", "--label", f"{LABEL}={lab.prefix}"]
    args += ["--privileged", "--systemd=always", "--shm-size=1g", "--no-hosts"]
    for link in node.links:
        mac = hardware_address(link.address)
        args += ["--network", f"{link.network}:ip={link.address},mac={mac},interface_name={link.interface}"]
    for mount in ("/etc/ssl/certs", *mounts):
        args += ["--volume", f"{mount}:{mount}:ro"]
    podman.call(*args, image, "/usr/local/sbin/lab-init")


def wait_booted(podman: Podman, node: LabNode, deadline: float) -> None:
    state = "unknown"
    while time.monotonic() < deadline:
        _code, out, _err = podman.run("exec", node.container, "systemctl", "is-system-running")
        state = out.strip() or state
        if state in ("running", "degraded"):
            return
        time.sleep(0.3)
    podman.module.fail_json(msg=f"{node.name} did not boot in time: systemd says {state!r} (raise boot_timeout)")


def host_keys(podman: Podman, node: LabNode) -> List[str]:
    out = podman.call("exec", node.container, "sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub")
    return [line for line in out.splitlines() if line.strip()]


def bring_up(module: AnsibleModule, podman: Podman, lab: Lab) -> Dict[str, Any]:
    params = module.params
    existing = set(podman.names("container", lab.prefix))
    missing = [node for node in lab.nodes if node.container not in existing]
    absent_images = sorted({node.release for node in missing} - set(params["images"]))
    if absent_images:
        module.fail_json(msg=f"no image for Debian {', '.join(absent_images)}: add it to 'images'")
    if module.check_mode:
        return {"changed": bool(missing), "started": [node.name for node in missing]}

    pip_conf, mounts = inherited_pip(parse_pip_config(params["pip_config"]))
    networks = set(podman.names("network", lab.prefix))
    for network in lab.networks:
        if network.full_name not in networks:
            options = ["--internal"] if network.internal else []
            podman.call(
                "network", "create", "--label", f"{LABEL}={lab.prefix}", "--disable-dns", *options,
                "--subnet", network.subnet, network.full_name,
            )  # fmt: skip
    for node in missing:
        # One after the other: concurrent creates contend for the engine's lock and for addresses.
        create(podman, lab, node, params["images"][node.release], mounts)
    deadline = time.monotonic() + params["boot_timeout"]

    def finish(node: LabNode) -> List[str]:
        if node.container in existing:
            podman.run("start", node.container)
        wait_booted(podman, node, deadline)
        if node.container not in existing:
            podman.call(
                "exec", "-i", node.container, "sh", "-s", data=setup_script(node, params["public_key"], pip_conf)
            )
        podman.call("exec", "-i", node.container, "sh", "-s", data=shape_script(node))
        return host_keys(podman, node)

    with ThreadPoolExecutor(max_workers=4) as pool:
        keys = dict(zip([node.name for node in lab.nodes], pool.map(finish, lab.nodes)))
    return {
        "changed": bool(missing),
        "started": [node.name for node in missing],
        "inventory": inventory(lab, params["group"]),
        "known_hosts": known_hosts(keys, lab),
    }


def take_down(module: AnsibleModule, podman: Podman, prefix: str) -> Dict[str, Any]:
    containers = podman.names("container", prefix)
    networks = podman.names("network", prefix)
    if not module.check_mode:
        remove = ("rm", "--force", "--time", "0", "--volumes")
        # crun does not find a process that ends at that very moment; the next call finds the container without it.
        if containers and podman.run(*remove, *containers)[0]:
            time.sleep(2)
            left = podman.names("container", prefix)
            if left:
                podman.call(*remove, *left)
        if networks:
            podman.call("network", "rm", "--force", *networks)
    return {"changed": bool(containers or networks), "removed": containers + networks}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "prefix": {"type": "str", "required": True},
            "executable": {"type": "path", "required": True},
            "networks": {"type": "list", "elements": "dict", "default": []},
            "nodes": {"type": "list", "elements": "dict", "default": []},
            "count": {"type": "int", "default": 3},
            "images": {"type": "dict", "default": {}},
            "public_key": {"type": "str", "default": "", "no_log": False},
            "pip_config": {"type": "str", "default": ""},
            "group": {"type": "str", "default": "train"},
            "boot_timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    podman = Podman(module)
    if module.params["state"] == "absent":
        module.exit_json(**take_down(module, podman, module.params["prefix"]))
    try:
        nodes = module.params["nodes"] or default_nodes(module.params["count"])
        prefix = module.params["prefix"]
        there = podman.subnets()
        existing = {name: subnets[0] for name, subnets in there.items() if subnets}
        taken = [*podman.host_subnets(), *(subnet for subnets in there.values() for subnet in subnets)]
        lab = plan_lab(prefix, module.params["networks"], nodes, existing, taken)
    except LabError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**bring_up(module, podman, lab))


if __name__ == "__main__":
    main()
