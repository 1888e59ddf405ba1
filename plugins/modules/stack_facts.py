#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_facts
short_description: Gather facts about the software stack that a node has already
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - In one call what the roles of the software stack decide by. Distribution, kernel and its headers, C library,
    Python, compilers, CUDA toolkits, Secure Boot, GPUs and driver.
  - Finds the lines of shells' start files that put a CUDA toolkit on E(LD_LIBRARY_PATH), and default configurations
    of accelerate.
  - Changes nothing on the node.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.facts
attributes:
  check_mode:
    support: full
    details: The module changes nothing.
  diff_mode:
    support: none
  facts:
    support: full
  platform:
    support: full
    platforms: linux
options:
  name:
    description: The node's name in what is said of it.
    type: str
    default: ""
  python:
    description: The interpreter that the training's environment is made with.
    type: path
    default: /usr/bin/python3
  user:
    description: The user who trains. An unknown one is as one without files.
    type: str
    default: root
"""

EXAMPLES = r"""
- name: See what is there
  torchfleet.cluster.stack_facts:
    name: "{{ inventory_hostname }}"

- name: Show the CUDA toolkits
  ansible.builtin.debug:
    msg: "{{ ansible_facts['torchfleet_software'].toolkits | map(attribute='path') }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    torchfleet_software:
      description: What is installed.
      returned: always
      type: dict
      sample:
        release: {id: debian, version: "12", name: Debian 12}
        machine: x86_64
        kernel: 6.1.0-28-amd64
        kernel_headers: true
        glibc: "2.36"
        python_version: 3.11.2
        gcc_version: 12.2.0
        compilers: {/usr/bin/gcc: 12.2.0, /usr/bin/gcc-11: 11.3.0}
        toolkits:
          - {path: /usr/local/cuda-12.6, version: 12.6.3, default: true}
        secure_boot: false
        nvswitches: 0
        shell_lines:
          - {path: /root/.bashrc, number: 12, text: "export LD_LIBRARY_PATH=/usr/local/cuda/lib64"}
        accelerate_configs:
          - {path: /root/.cache/huggingface/accelerate/default_config.yaml, lines: ["num_machines: 2"]}
        firewall: nftables
        addresses: [192.0.2.11, 198.51.100.11]
        node: {name: gpu1, driver: 580.65.06, gpus: [], python: 3.11.2, glibc: "2.36"}
    torchfleet_gpu:
      description: As M(torchfleet.cluster.gpu_facts) returns it.
      returned: always
      type: dict
      sample: {"status": "not_installed", "gpus": []}
"""

import glob
import os
import pwd
import re
from typing import Any, Dict, List, Optional

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import (
    _fabric,
    _gather_gpu,
    _gather_nccl,
    _member_firewall,
    _nvidia_smi,
    _software,
    _system,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import to_dict

NVIDIA_SMI_SECONDS = 30
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHELL_FILES = ("/etc/profile", "/etc/profile.d/*", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/*")
HOME_FILES = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile")
COMPILERS = ("/usr/bin/gcc", "/usr/bin/gcc-[0-9]*", "/opt/rh/*/root/usr/bin/gcc")


def read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""


def read_bytes(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as stream:
            return stream.read(64)
    except OSError:
        return None


class Asking:
    """The module as the gatherer of GPU facts knows it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = {"executable": None, "timeout": NVIDIA_SMI_SECONDS}
        self.run_command = module.run_command
        self.get_bin_path = module.get_bin_path


def ask(module: AnsibleModule, *argv: str) -> str:
    try:
        code, out, err = module.run_command(list(argv), environ_update={"LC_ALL": "C"}, handle_exceptions=False)
    except OSError:
        return ""
    return (out or err).strip() if code == 0 else ""


def find_compilers(module: AnsibleModule) -> Dict[str, str]:
    paths = [path for pattern in COMPILERS for path in sorted(glob.glob(pattern))]
    named = [path for path in paths if os.path.basename(path).replace("gcc", "").strip("-0123456789") == ""]
    return {path: ask(module, path, "-dumpfullversion", "-dumpversion") for path in named}


def find_toolkits(module: AnsibleModule) -> List[Dict[str, Any]]:
    default = os.path.realpath("/usr/local/cuda")
    found: Dict[str, Dict[str, Any]] = {}
    for path in [*sorted(glob.glob("/usr/local/cuda-[0-9]*")), "/usr/local/cuda"]:
        real = os.path.realpath(path)
        nvcc = os.path.join(path, "bin", "nvcc")
        if real in found or not os.access(nvcc, os.X_OK):
            continue
        version = _software.toolkit_version(read(path, "version.json"), read(path, "version.txt"), "")
        version = version or _software.toolkit_version("", "", ask(module, nvcc, "--version"))
        found[real] = {"path": path, "version": version, "default": real == default}
    return list(found.values())


def find_shell_lines(home: str) -> List[Dict[str, Any]]:
    homes = ["/root", home]
    patterns = [*SHELL_FILES, *[os.path.join(glob.escape(one), name) for one in homes for name in HOME_FILES]]
    found: List[_software.ShellLine] = []
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern)}):
        found += _software.library_path_lines(path, read(path))
    found += _software.loader_folders("/etc/environment", read("/etc/environment"))
    return [to_dict(line) for line in found]


def find_accelerate(home: str) -> List[Dict[str, Any]]:
    folders = [os.path.join(home, ".cache/huggingface"), os.path.join(home, ".huggingface")]
    folders += [os.environ["HF_HOME"]] if os.environ.get("HF_HOME") else []
    paths = [p for one in folders for p in glob.glob(os.path.join(glob.escape(one), "accelerate", "default_config.*"))]
    return [{"path": path, "lines": _system.accelerate_lines(read(path))} for path in sorted(set(paths))]


def find_firewall(module: AnsibleModule) -> str:
    if ask(module, "systemctl", "is-active", "firewalld") == "active":
        return "firewalld"
    if re.search(r"^ENABLED=[\"']?yes", read("/etc/ufw/ufw.conf"), re.MULTILINE):
        return "ufw"
    nft = module.get_bin_path("nft", opt_dirs=["/usr/sbin", "/sbin"])
    return "nftables" if nft and _member_firewall.closing_chains(ask(module, nft, "list", "ruleset")) else ""


def find_addresses(module: AnsibleModule) -> List[str]:
    """Addresses by which other machines may reach the node: not those of bridges for its own containers."""
    links = _fabric.build_interfaces(_gather_nccl.gather_links(module), _gather_nccl.read_net())
    own = [one for one in links if one.hardware or one.peer_elsewhere or one.kind in ("macvlan", "ipvlan", "wireguard")]
    return sorted(_member_firewall.addresses(address.address for one in own for address in one.addresses))


def glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
    except (ValueError, OSError):
        return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": ""},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "user": {"type": "str", "default": "root"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        home = pwd.getpwnam(params["user"]).pw_dir
    except KeyError:
        home = "/nonexistent"
    gpu = _nvidia_smi.to_facts(_gather_gpu.gather(Asking(module)))
    python = ask(module, params["python"], "-I", "-c", "import platform; print(platform.python_version())")
    compilers = find_compilers(module)
    kernel, machine = os.uname().release, os.uname().machine
    software = {
        "release": to_dict(_software.read_release(read("/etc/os-release"))),
        "machine": machine,
        "kernel": kernel,
        "kernel_headers": os.path.exists(f"/lib/modules/{kernel}/build/Makefile"),
        "glibc": glibc(),
        "python_version": python,
        "gcc_version": compilers.get("/usr/bin/gcc", ""),
        "compilers": compilers,
        "toolkits": find_toolkits(module),
        "secure_boot": _software.secure_boot(read_bytes(SECURE_BOOT)),
        "nvswitches": _gather_gpu.count_nvswitches(),
        "shell_lines": find_shell_lines(home),
        "accelerate_configs": find_accelerate(home),
        "firewall": find_firewall(module),
        "addresses": find_addresses(module),
        "node": {
            "name": params["name"],
            "driver": gpu.get("driver_version"),
            "gpus": gpu.get("gpus") or [],
            "python": python,
            "glibc": glibc(),
        },
    }
    module.exit_json(changed=False, ansible_facts={"torchfleet_software": software, "torchfleet_gpu": gpu})


if __name__ == "__main__":
    main()
