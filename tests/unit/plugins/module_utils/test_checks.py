# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every check over the facts of a healthy cluster: silent there, and heard when its one thing is wrong."""

from __future__ import annotations

import copy
import re
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks import _check, _facts, _user, _xid
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import Check, evaluate, sameness
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._rules import CHECKS

NAMES = ("gpu1", "gpu2", "gpu3")
GIB = 1 << 30
Nodes = Dict[str, Dict[str, Any]]


def address(name: str) -> str:
    return f"10.0.1.{10 + int(name[-1])}"


def gpu(index: int) -> Dict[str, Any]:
    return {
        "index": index,
        "model": "NVIDIA H100",
        "pci_address": f"0000:{index + 1}b:00.0",
        "memory_used_bytes": 0,
        "memory_bytes": 80 * GIB,
        "persistence": True,
        "mig": {"current": False},
        "ecc": {"current": True},
        "nvlink": {"active": 18, "total": 18},
        "pcie": {"width": 16, "width_max": 16},
        "processes": [],
        "problems": [],
    }


def healthy(name: str) -> Dict[str, Any]:
    """What the modules return for a node of two GPUs and one RoCE port."""
    interface = {
        "name": "eth1",
        "kind": "ethernet",
        "state": "up",
        "mtu": 9000,
        "speed_mbps": 100000,
        "addresses": [{"address": address(name), "prefix": 24, "family": "ipv4", "scope": "global", "usable": True}],
        "is_candidate": True,
        "rank": 0,
    }
    return {
        "system": {
            "reached": True,
            "hostname": name,
            "kernel": "6.1.0-28-amd64",
            "os": "Debian GNU/Linux 12 (bookworm)",
            "uptime": 86400.0,
            "clock": {"offset": 0.01, "uncertainty": 0.01},
            "names": {other: [address(other)] for other in NAMES},
            "ssh": {
                other: {
                    "ok": True,
                    "why": "",
                    "noise": "",
                    "memlock_soft": -1,
                    "memlock_hard": -1,
                    "nofile_soft": 1024,
                    "nofile_hard": 1048576,
                }
                for other in NAMES
            },
            "disks": [
                {
                    "path": "/",
                    "mount": "/",
                    "size_bytes": 500 * GIB,
                    "free_bytes": 200 * GIB,
                    "free_percent": 40.0,
                    "inodes_free_percent": 90.0,
                    "read_only": False,
                }
            ],
            "reboot": {"pending": False, "why": ""},
            "upgrades": {"automatic": "unattended-upgrades", "driver_packages": []},
            "services": {"nvidia-fabricmanager": {"active": "active", "enabled": "enabled"}},
            "nvswitches": 4,
            "fabric_manager": "580.65.06",
            "xids": [],
            "firewall": {"drops": ["chain input: policy drop"]},
            "accelerate_configs": [],
            "runs": [],
            "port": {"number": 29500, "holders": []},
            "processes": {"700": {"user": "root", "command": "nvidia-persistenced", "run_id": "", "gpu": True}},
            "pcie": [
                {
                    "address": "0000:41:00.0",
                    "kind": "network card",
                    "width": 16,
                    "width_max": 16,
                    "speed": 16.0,
                    "speed_max": 16.0,
                }
            ],
            "has_gpu": True,
            "revisions": {"/var/lib/torchfleet/work/digits": {"hash": "aa" * 32, "listing": {"train.py": "77ab"}}},
            "own": {},
        },
        "gpu": {
            "status": "ok",
            "driver_version": "580.65.06",
            "gpus": [gpu(0), gpu(1)],
            "pci_gpus": [{"address": "0000:1b:00.0"}, {"address": "0000:2b:00.0"}],
        },
        "nccl": {
            "interfaces": [interface],
            "rdma": [
                {
                    "name": "mlx5_0",
                    "ports": [
                        {
                            "state": "ACTIVE",
                            "rate_gbps": 100.0,
                            "roce_v2_gid_index": 3,
                            "gids": [{"type": "RoCE v1"}, {"type": "RoCE v2"}],
                        }
                    ],
                }
            ],
            "net_plugins": "/opt/ofi/lib/libnccl-net.so (1234567890ab)",
            "acs": {"status": "disabled"},
            "iommu": {"status": "passthrough"},
            "limits": {"memlock": {"soft": 8 << 20, "hard": 8 << 20}, "nofile": {"soft": 1024, "hard": 4096}},
            "shm": {"size_bytes": 64 * GIB, "free_bytes": 64 * GIB},
            "nccl_reads": {"NCCL_SOCKET_IFNAME": "=eth1", "NCCL_IB_HCA": f"={name}", "NCCL_DEBUG": name},
            "contradictions": {},
        },
        "runtime": {
            "python": {"status": "ok", "version": "3.11.7", "path": "/opt/torchfleet/venv/bin/python"},
            "torch": {
                "status": "ok",
                "version": "2.13.0+cu128",
                "cuda": "12.8",
                "cuda_available": True,
                "cuda_reason": "",
            },
            "packages": {
                package: {"version": "1.2.3"}
                for package in (
                    "torch",
                    "torchvision",
                    "accelerate",
                    "deepspeed",
                    "colossalai",
                    "transformers",
                    "triton",
                    "numpy",
                )
            },
            "libraries": {
                "nccl": {"version": "2.27.5", "path": "/w/libnccl.so.2", "shadowed_by": "", "ahead": []},
                "cudnn": {"version": "9.10.2", "path": "/w/libcudnn.so.9", "shadowed_by": "", "ahead": []},
            },
            "compilers": {"gcc": {"version": "12.2.0"}},
            "nvcc": [{"version": "12.8.93"}],
        },
        "probed": {
            "links": [
                {
                    "source": name,
                    "source_address": address(name),
                    "target": other,
                    "target_address": address(other),
                    "ok": True,
                    "path_mtu": 9000,
                    "bandwidth_mbps": 9000.0,
                }
                for other in NAMES
                if other != name
            ]
        },
    }


def cluster(change: Callable[[Nodes], None] = lambda nodes: None, by_hand: bool = True) -> _check.Cluster:
    nodes = {name: healthy(name) for name in NAMES}
    change(nodes)
    members = [{"name": name, "address": address(name), "interface": None, "by_hand": by_hand} for name in NAMES]
    return _facts.assemble(members, nodes, {"master_port": 29500})


def set_(path: str, value: Any, *names: str) -> Callable[[Nodes], None]:
    """Set what a path leads to (numbers are places in lists) on some nodes, gpu2 by default."""

    def change(nodes: Nodes) -> None:
        for name in names or ("gpu2",):
            place: Any = nodes[name]
            *keys, last = [int(key) if key.isdigit() else key for key in path.split("/")]
            for key in keys:
                place = place[key]
            place[last] = copy.deepcopy(value)

    return change


def both(*changes: Callable[[Nodes], None]) -> Callable[[Nodes], None]:
    def change(nodes: Nodes) -> None:
        for one in changes:
            one(nodes)

    return change


SSH2 = "system/ssh/gpu2"
XID = {
    "kind": "Xid",
    "pci": "0000:1b:00",
    "xid": 79,
    "count": 1,
    "text": "GPU has fallen off the bus.",
    "seconds_ago": 700,
}
CPU_BUILD = {
    "status": "ok",
    "cuda": None,
    "cuda_available": False,
    "cuda_reason": "cpu_build",
    "cuda_message": "no CUDA",
}
HOLDER = {"pid": 4711, "user": "ann", "command": "python old.py", "run_id": "", "gpu": False}
RUN = {"run_id": "digits-1", "pids": [11, 12], "agent": True}
LINK = "probed/links/0"

# id, what is changed, severity, words of the sentence, words of the remedy
FOUND: List[Tuple[str, Callable[[Nodes], None], str, str, str]] = [
    (
        "unreachable",
        set_("system", {"reached": False, "problem": "No route to host"}),
        "fail",
        r"^gpu2 cannot be looked at: No route",
        "torchfleet_group",
    ),
    ("unreachable", set_("system", {}), "fail", r"gpu2 .*no answer", ""),
    (
        "not-measured",
        set_("nccl", {"failed": True, "msg": "it broke"}),
        "warn",
        r"gpu2: nccl_facts gave no facts: it broke",
        "",
    ),
    (
        "name-loopback",
        set_("system/names/gpu2", ["127.0.1.1"]),
        "fail",
        r"gpu2: the name gpu2 resolves to 127\.0\.1\.1",
        "-t hosts",
    ),
    ("name-loopback", set_("system/names/gpu2", ["::1"]), "fail", r"resolves to ::1", "-t hosts"),
    ("name-resolves", set_("system/names/gpu1", []), "warn", r"gpu2 does not resolve the name gpu1", "-t hosts"),
    (
        "name-resolves",
        set_("system/names/gpu1", ["192.168.0.1"], "gpu2", "gpu3"),
        "warn",
        r"gpu2 and gpu3: gpu1 resolves to 192\.168\.0\.1; .*10\.0\.1\.11",
        "-t hosts",
    ),
    (
        "host-name",
        set_("system/hostname", "localhost"),
        "warn",
        r"gpu2 bears the host name localhost",
        "hosts_hostname: localhost",
    ),
    (
        "ssh",
        set_(SSH2, {"ok": False, "why": "Permission denied (publickey)."}, *NAMES),
        "fail",
        r"gpu1, gpu2 and gpu3 cannot log in to gpu2: Permission",
        "ssh_trust",
    ),
    (
        "ssh",
        set_(SSH2, {"ok": False, "why": "its host key has changed"}, "gpu1"),
        "fail",
        r"gpu1 cannot log in to gpu2",
        "^gpu2 has another host key",
    ),
    (
        "ssh",
        set_(SSH2, {"ok": False, "why": "connect to host gpu2 port 22: Connection refused"}, "gpu1"),
        "fail",
        "refused",
        "enable --now ssh on gpu2",
    ),
    (
        "shell-noise",
        set_(f"{SSH2}/noise", "Welcome {you}\nto it\n", *NAMES),
        "fail",
        r"^gpu2: .*\(Welcome \{you\}\)",
        "esac",
    ),
    (
        "address",
        set_("nccl/interfaces/0/addresses/0/address", "10.0.1.99"),
        "fail",
        r"gpu2 does not own 10\.0\.1\.12",
        r"torchfleet_address to one of eth1 10\.0\.1\.99",
    ),
    (
        "reachability",
        both(set_(f"{LINK}/ok", False, "gpu2"), set_(f"{LINK}/why", "timeout", "gpu2")),
        "fail",
        r"gpu2 does not reach gpu1 at 10\.0\.1\.11 on eth1 \(no answer\)",
        r"gpu1 has the rule `chain input: policy drop`",
    ),
    (
        "reachability",
        both(
            set_(f"{LINK}/ok", False, "gpu2", "gpu3"),
            set_(f"{LINK}/why", "mtu", "gpu2", "gpu3"),
            set_(f"{LINK}/path_mtu", 1400, "gpu2", "gpu3"),
        ),
        "fail",
        r"gpu2, gpu3 do not reach gpu1 .*above 1400 bytes",
        r"MTU of eth1 on all nodes to 1400,",
    ),
    (
        "path-mtu",
        set_(f"{LINK}/path_mtu", 1500),
        "warn",
        r"packets of 1500 bytes at most go from gpu2 to gpu1, where both interfaces are set to 9000",
        "1500",
    ),
    (
        "same-mtu",
        set_("nccl/interfaces/0/mtu", 1500),
        "warn",
        r"gpu2: .* MTU 1500, gpu1 and gpu3 have 9000",
        "mtu 9000",
    ),
    (
        "same-speed",
        set_("nccl/interfaces/0/speed_mbps", 100),
        "warn",
        r"gpu2: the network card runs at 100 Mb/s, gpu1 and gpu3 have 100000",
        "cable",
    ),
    (
        "slow-link",
        both(*(set_(f"probed/links/{n}/bandwidth_mbps", 95.0) for n in (0, 1))),
        "warn",
        r"^gpu2 sends 95 Mb/s at best with any peer, where 9\.0 Gb/s are usual",
        "cable",
    ),
    (
        "slow-link",
        both(
            set_("probed/links/0/bandwidth_mbps", 95.0, "gpu1"),
            set_("probed/links/1/bandwidth_mbps", 95.0, "gpu3"),
        ),
        "warn",
        r"^gpu2 receives 95 Mb/s at best with any peer",
        "cable",
    ),
    (
        "slow-link",
        set_(f"{LINK}/bandwidth_mbps", 95.0),
        "warn",
        r"^gpu2 to gpu1 carries 95 Mb/s, where 9\.0 Gb/s are usual",
        "cable",
    ),
    (
        "firewall-port",
        set_("system/firewall/drops", ["tcp dport 29500 drop"], "gpu1"),
        "warn",
        r"gpu1: .* master port 29500: tcp dport 29500 drop",
        "torchfleet_master_port",
    ),
    (
        "same-rdma-ports",
        set_("nccl/rdma/0/ports/0/state", "DOWN"),
        "fail",
        r"gpu2 has 0 active RDMA ports, gpu1 and gpu3 have 1",
        "torchfleet_transport: tcp",
    ),
    (
        "same-rdma-rates",
        set_("nccl/rdma/0/ports/0/rate_gbps", 40.0),
        "warn",
        r"gpu2: the RDMA ports run at 40 Gb/s, gpu1 and gpu3 have 100",
        "ibstat",
    ),
    (
        "same-gid-types",
        set_("nccl/rdma/0/ports/0/gids", [{"type": "RoCE v1"}]),
        "fail",
        r"gpu2: .* type RoCE v1, gpu1 and gpu3 have RoCE v1, RoCE v2",
        "IPv4",
    ),
    ("same-gid-index", set_("nccl/rdma/0/ports/0/roce_v2_gid_index", 5), "info", r"gpu2: .* GID is 5", "nccl_env"),
    (
        "nccl-contradiction",
        set_(
            "nccl/contradictions",
            {
                "NCCL_IB_DISABLE": [
                    {"value": "0", "source": "/etc/nccl.conf", "line": 2},
                    {"value": "1", "source": "environment", "line": 0},
                ]
            },
        ),
        "warn",
        r"gpu2: NCCL_IB_DISABLE is set to 0 by /etc/nccl\.conf:2 and 1 by environment",
        r"nccl_env_extra: \{NCCL_IB_DISABLE",
    ),
    (
        "same-nccl-variables",
        set_("nccl/nccl_reads/NCCL_ALGO", "Tree"),
        "fail",
        r"gpu2: NCCL reads NCCL_ALGO=Tree, on the other nodes not set",
        "nccl_env",
    ),
    (
        "nccl-interface",
        set_("nccl/nccl_reads/NCCL_SOCKET_IFNAME", "ib"),
        "fail",
        r"gpu2: NCCL_SOCKET_IFNAME is ib, and there is no such interface",
        "nccl_env",
    ),
    (
        "nccl-interface",
        both(
            set_("nccl/nccl_reads/NCCL_SOCKET_IFNAME", "=lo"),
            lambda nodes: nodes["gpu2"]["nccl"]["interfaces"].append({"name": "lo", "kind": "loopback", "state": "up"}),
        ),
        "fail",
        r"is =lo, which no peer can reach",
        "nccl_env",
    ),
    (
        "nccl-interface",
        both(
            set_("nccl/nccl_reads/NCCL_SOCKET_IFNAME", "docker0"),
            lambda nodes: nodes["gpu2"]["nccl"]["interfaces"].append(
                {"name": "docker0", "kind": "bridge", "state": "down"}
            ),
        ),
        "warn",
        r"is docker0; the training network is on eth1",
        "nccl_env",
    ),
    (
        "interpreter",
        set_("runtime/python", {"status": "no_interpreter", "problem": "/x/python does not exist"}),
        "fail",
        r"gpu2: .*/x/python does not exist",
        "torchfleet_python",
    ),
    (
        "torch-loads",
        set_("runtime/torch", {"status": "not_installed"}),
        "fail",
        r"/opt/torchfleet/venv/bin/python of gpu2 has no torch",
        "-t pytorch",
    ),
    (
        "torch-loads",
        set_("runtime/torch", {"status": "missing_library", "problem": "libnccl.so.2: cannot open {it}"}),
        "fail",
        r"gpu2: torch cannot be imported: libnccl\.so\.2: cannot open \{it\}",
        "-t pytorch",
    ),
    (
        "same-torch",
        set_("runtime/packages/torch/version", "1.2.4"),
        "fail",
        r"gpu2 has torch 1\.2\.4, gpu1 and gpu3 have 1\.2\.3",
        r"`pytorch_version: 1\.2\.3`",
    ),
    *[
        (
            f"same-{name}",
            set_(f"runtime/packages/{name}/version", "9"),
            severity,
            rf"gpu2 has {name} 9",
            rf"'{name}==1\.2\.3'",
        )
        for name, severity in (
            ("torchvision", "warn"),
            ("accelerate", "fail"),
            ("deepspeed", "fail"),
            ("colossalai", "fail"),
            ("transformers", "warn"),
            ("triton", "warn"),
            ("numpy", "warn"),
        )
    ],
    (
        "same-packages",
        set_("runtime/packages/deepspeed", None),
        "warn",
        r"gpu2 does not have deepspeed, which is on gpu1 and gpu3",
        r"pytorch_extra_packages: \[deepspeed\]",
    ),
    (
        "same-python",
        set_("runtime/python/version", "3.12.1"),
        "fail",
        r"gpu2 has Python 3\.12, gpu1 and gpu3 have 3\.11",
        "torchfleet_python",
    ),
    ("same-torch-cuda", set_("runtime/torch/cuda", "13.0"), "fail", r"gpu2 has CUDA of torch 13\.0", "-t pytorch"),
    (
        "same-nccl",
        set_("runtime/libraries/nccl/version", "2.18.1"),
        "fail",
        r"gpu2 has NCCL as loaded 2\.18\.1",
        "LD_LIBRARY_PATH",
    ),
    ("same-cudnn", set_("runtime/libraries/cudnn/version", "8.9.2"), "warn", r"cuDNN as loaded 8\.9\.2", "-t pytorch"),
    (
        "same-net-plugin",
        set_("nccl/net_plugins", "/opt/ofi/lib/libnccl-net.so (ba0987654321)"),
        "fail",
        r"gpu2 has NCCL network plugin /opt/ofi/lib/libnccl-net\.so \(ba0987654321\)",
        r"nccl_env_extra: \{NCCL_NET_PLUGIN: none\}",
    ),
    (
        "same-net-plugin",
        set_("nccl/net_plugins", "none"),
        "fail",
        r"gpu2 has NCCL network plugin none",
        "nccl_env_extra",
    ),
    (
        "same-compiler",
        set_("runtime/compilers/gcc/version", "13.1.0"),
        "warn",
        r"gpu2 has gcc 13\.1, gpu1 and gpu3 have 12\.2",
        "compiler",
    ),
    ("same-nvcc", set_("runtime/nvcc/0/version", "11.8.89"), "warn", r"gpu2 has nvcc 11\.8", "toolkit"),
    (
        "same-driver",
        set_("gpu/driver_version", "550.1"),
        "warn",
        r"gpu2 has driver 550\.1, gpu1 and gpu3 have 580\.65\.06",
        r"580\.65\.06",
    ),
    (
        "torch-sees-gpus",
        set_("runtime/torch", CPU_BUILD),
        "fail",
        r"gpu2 has GPUs that torch cannot use: no CUDA",
        "pytorch_extra_index_urls",
    ),
    (
        "driver-against-cuda",
        both(set_("gpu/driver_version", "450.1"), set_("runtime/torch/cuda_available", None)),
        "fail",
        r"gpu2: driver 450\.1 is too old for CUDA 12\.8",
        "newer driver",
    ),
    (
        "library-shadowed",
        set_("runtime/libraries/nccl/shadowed_by", "LD_LIBRARY_PATH"),
        "fail",
        r"gpu2: LD_LIBRARY_PATH puts /w/libnccl\.so\.2 before the nccl that torch brings",
        "LD_LIBRARY_PATH",
    ),
    (
        "library-shadowed",
        set_("runtime/libraries/cudnn/ahead", ["/usr/local/cuda/lib64/libcudnn.so.9"]),
        "warn",
        r"gpu2: LD_LIBRARY_PATH leads to /usr/local/cuda",
        "LD_LIBRARY_PATH",
    ),
    ("same-kernel", set_("system/kernel", "6.12"), "info", r"gpu2 has kernel 6\.12", "upgrade"),
    ("same-os", set_("system/os", "Ubuntu 24.04"), "info", r"gpu2 has Ubuntu 24\.04", ""),
    (
        "gpu-driver",
        set_("gpu", {"status": "library_mismatch", "reason": "module and libraries differ"}),
        "fail",
        r"gpu2: module and libraries differ",
        "reboot",
    ),
    (
        "gpu-driver",
        set_("gpu", {"status": "not_installed", "reason": "no driver", "pci_gpus": [{"address": "0"}]}),
        "fail",
        r"gpu2: no driver",
        "",
    ),
    (
        "gpus-missing",
        set_("gpu/pci_gpus", [{}, {}, {}]),
        "fail",
        r"gpu2: 3 GPUs are on the PCI bus and the driver has 2 of them",
        "Xid",
    ),
    (
        "gpu-health",
        set_("gpu/gpus/1/problems", ["has failed to remap bad memory rows: replace it"]),
        "fail",
        r"gpu2: GPU 1 \(0000:2b:00\.0\) has failed to remap bad memory rows",
        "^replace it$",
    ),
    (
        "gpu-health",
        set_("gpu/gpus/1/problems", ["is slowed down by the driver because it is too hot: check fans and airflow"]),
        "warn",
        r"too hot",
        "fans",
    ),
    (
        "xid",
        set_("system/xids", [XID]),
        "fail",
        r"gpu2: Xid 79 of GPU 0000:1b:00, 11 minutes ago: the GPU has fallen off the bus",
        "^reboot gpu2",
    ),
    (
        "xid",
        set_("system/xids", [dict(XID, xid=13)]),
        "info",
        r"an exception in a program's kernel",
        "nothing on the machine",
    ),
    (
        "xid",
        set_("system/xids", [dict(XID, xid=64, seconds_ago=None)]),
        "fail",
        r"since the last boot: retiring",
        "replaced",
    ),
    ("xid", set_("system/xids", [dict(XID, xid=94)]), "fail", r"contained", "--gpu-reset -i 0000:1b:00"),
    (
        "same-gpu-count",
        set_("gpu/gpus", [gpu(0)]),
        "warn",
        r"gpu2 has GPUs: 1, gpu1 and gpu3 have 2",
        "torchfleet_slots",
    ),
    (
        "same-gpu-model",
        set_("gpu/gpus/0/model", "NVIDIA A100"),
        "info",
        r"gpu2 has GPU model NVIDIA A100, NVIDIA H100",
        "",
    ),
    (
        "same-mig",
        both(set_("gpu/gpus/0/mig/current", True), set_("gpu/gpus/1/mig/current", True)),
        "fail",
        r"gpu2 has MIG mode on, gpu1 and gpu3 have off",
        "-mig 0",
    ),
    ("same-ecc", set_("gpu/gpus/0/ecc/current", False), "warn", r"gpu2 has ECC off, on", "-e 1"),
    ("same-nvlinks", set_("gpu/gpus/0/nvlink/active", 17), "warn", r"gpu2 has active NVLinks: 17, 18", "nvlink -s"),
    (
        "persistence",
        set_("gpu/gpus/1/persistence", False),
        "warn",
        r"gpu2: persistence mode is off on GPU 1",
        "nvidia-persistenced",
    ),
    (
        "fabric-manager",
        set_("system/fabric_manager", "575.1"),
        "fail",
        r"gpu2: fabric manager 575\.1 is not of the driver's version 580\.65\.06",
        r"nvidia-fabricmanager 580\.65\.06",
    ),
    (
        "fabric-manager",
        set_("system/services", {}),
        "fail",
        r"gpu2: NVSwitches are there and nvidia-fabricmanager does not run",
        "enable --now",
    ),
    (
        "gpu-process",
        both(
            set_("gpu/gpus/0/processes", [{"pid": 4711, "kind": "C", "name": "python", "memory_bytes": 17 * GIB}]),
            set_("system/processes", {"4711": HOLDER}),
        ),
        "warn",
        r"gpu2: GPU 0 is in use by process 4711 of ann \(python old\.py, 17 GiB\)",
        "kill 4711",
    ),
    (
        "gpu-process",
        set_("system/processes", {"9": dict(HOLDER, gpu=True)}),
        "warn",
        r"gpu2: a GPU is in use by process 9 of ann",
        "kill 9",
    ),
    (
        "pcie-link",
        set_("system/pcie/0/width", 8),
        "warn",
        r"gpu2: the PCIe link of network card 0000:41:00\.0 runs at x8; card and slot can x16",
        "reseat",
    ),
    ("pcie-link", set_("system/pcie/0/speed", 8.0), "warn", r"runs at 8 GT/s; card and slot can 16 GT/s", "reseat"),
    ("pcie-link", set_("gpu/gpus/1/pcie/width", 8), "warn", r"PCIe link of GPU 1 0000:2b:00\.0 runs at x8", "reseat"),
    (
        "peer-access",
        set_("nccl/acs", {"status": "enabled", "redirecting": [1, 2]}),
        "warn",
        r"gpu2: PCIe ACS .* at 2 bridges",
        "setpci",
    ),
    ("peer-access", set_("nccl/iommu/status", "translated"), "warn", r"gpu2: the IOMMU translates", "iommu=pt"),
    ("clock", set_("system/clock/offset", 40.0), "fail", r"gpu2: the clock is 40\.0 s ahead of that", "timesync"),
    ("clock", set_("system/clock/offset", -2.5), "warn", r"gpu2: the clock is 2\.5 s behind that", "timesync"),
    (
        "disk-space",
        set_("system/disks/0/free_bytes", GIB),
        "fail",
        r"gpu2: 1 GiB are free on / \(/\), wanted 2 GiB",
        "torchfleet_root",
    ),
    ("disk-inodes", set_("system/disks/0/inodes_free_percent", 0.5), "fail", r"gpu2: 0\.5 % of the inodes", "df -i"),
    (
        "disk-read-only",
        set_("system/disks/0/read_only", True),
        "fail",
        r"gpu2: / \(/\) is mounted read-only",
        "remount,rw /",
    ),
    ("shm-size", set_("nccl/shm/size_bytes", 64 << 20), "warn", r"gpu2: /dev/shm has 64 MiB, wanted 1 GiB", "shm-size"),
    ("shm-free", set_("nccl/shm/free_bytes", 1 << 20), "fail", r"gpu2: 1 MiB are free in /dev/shm", "ls -l /dev/shm"),
    (
        "memlock-rdma",
        set_(f"{SSH2}/memlock_soft", 65536, *NAMES),
        "fail",
        r"gpu2: ssh sessions may lock 64 KiB of memory, and RDMA needs it without limit",
        "unlimited",
    ),
    (
        "same-memlock",
        set_(f"{SSH2}/memlock_soft", 65536, *NAMES),
        "warn",
        r"gpu2: ssh sessions may lock 64 KiB of memory, on gpu1 and gpu3 unlimited",
        "unlimited",
    ),
    ("nofile", set_(f"{SSH2}/nofile_hard", 1024, *NAMES), "warn", r"gpu2: ssh sessions may open 1024 files", "1048576"),
    (
        "nofile-soft",
        set_(f"{SSH2}/nofile_soft", 256, *NAMES),
        "warn",
        r"gpu2: ssh sessions start with 256 open files",
        "1048576",
    ),
    (
        "master-port",
        set_("system/port/holders", [HOLDER], "gpu1"),
        "fail",
        r"gpu1: port 29500 is held by process 4711 of ann \(python old\.py\)",
        "torchfleet_master_port: 29501",
    ),
    (
        "stale-run",
        set_("system/runs", [dict(RUN, agent=False)]),
        "fail",
        r"gpu2: 2 processes of run digits-1 are left without their supervisor \(11 and 12\)",
        "torchfleet-digits-1",
    ),
    (
        "stale-run",
        set_("system/runs", [RUN]),
        "fail",
        r"gpu2: run digits-1 goes on here, and no longer on the other nodes",
        "systemctl stop",
    ),
    (
        "stale-run",
        set_("system/runs", [RUN], *NAMES),
        "info",
        r"gpu1, gpu2 and gpu3: run digits-1 is going on",
        "nothing",
    ),
    (
        "accelerate-default",
        set_("system/accelerate_configs", [{"path": "/root/.cache/x.yaml", "lines": ["num_machines: 2"]}]),
        "warn",
        r"gpu2: /root/\.cache/x\.yaml steers .*num_machines: 2",
        "remove /root",
    ),
    (
        "revision",
        set_(
            "system/revisions", {"/var/lib/torchfleet/work/digits": {"hash": "bb" * 32, "listing": {"train.py": "1"}}}
        ),
        "fail",
        r"gpu2: /var/lib/torchfleet/work/digits differs from the other nodes in train\.py",
        "launch",
    ),
    ("revision", set_("system/revisions", {}), "fail", r"gpu2 does not have /var/lib/torchfleet/work/digits", "launch"),
    (
        "reboot",
        set_("system/reboot/pending", True, *NAMES),
        "warn",
        r"gpu1, gpu2 and gpu3 are waiting for a reboot",
        "reboot",
    ),
    (
        "unattended-upgrades",
        set_("system/upgrades/driver_packages", ["nvidia-driver"]),
        "warn",
        r"gpu2: unattended-upgrades may replace the driver .*\(nvidia-driver\)",
        "apt-mark hold nvidia-driver",
    ),
]

# What comes near and is no fault.
SILENT: List[Tuple[str, Callable[[Nodes], None]]] = [
    ("name-loopback", set_("system/names", {})),
    ("name-resolves", set_("system/names/gpu1", [address("gpu1"), "fd00::1"])),
    ("ssh", set_("system/ssh", {})),
    ("shell-noise", set_(f"{SSH2}/noise", "")),
    ("address", set_("nccl/interfaces", [])),
    ("reachability", set_("probed", {})),
    # Every node has the same bridge for its own containers: nobody answers there, and nobody should.
    (
        "reachability",
        lambda nodes: [
            node["nccl"]["interfaces"].append(
                {
                    "name": "docker0",
                    "kind": "bridge",
                    "state": "up",
                    "addresses": [{"address": "172.17.0.1", "prefix": 16, "family": "ipv4", "usable": True}],
                }
            )
            or node["probed"]["links"].extend(
                {
                    "source": name,
                    "source_address": "172.17.0.1",
                    "target": other,
                    "target_address": "172.17.0.1",
                    "ok": False,
                    "why": "own_address",
                }
                for other in NAMES
                if other != name
            )
            for name, node in nodes.items()
        ],
    ),
    ("path-mtu", set_(f"{LINK}/path_mtu", None)),
    ("same-speed", set_("nccl/interfaces/0/speed_mbps", None)),
    ("slow-link", set_(f"{LINK}/bandwidth_mbps", 5000.0)),
    ("firewall-port", set_("system/firewall/drops", ["tcp dport 29500 drop"], "gpu2")),
    ("firewall-port", set_("system/firewall/drops", ["tcp dport 295 drop"], "gpu1")),
    ("same-gid-types", set_("nccl/rdma", [])),
    ("same-nccl-variables", set_("nccl/nccl_reads/NCCL_DEBUG_FILE", "/tmp/x")),
    ("nccl-interface", set_("nccl/nccl_reads/NCCL_SOCKET_IFNAME", "^docker0,lo")),
    ("nccl-interface", set_("nccl/nccl_reads/NCCL_SOCKET_IFNAME", "eth")),
    ("nccl-interface", set_("nccl/nccl_reads/NCCL_SOCKET_IFNAME", "=eth0,eth1")),
    ("torch-loads", set_("runtime/torch", {"status": "skipped"})),
    ("same-python", set_("runtime/python/version", "3.11.2")),
    ("same-nccl", set_("runtime/libraries/nccl/version", "")),
    ("same-packages", set_("runtime/packages/deepspeed", None, *NAMES)),
    ("torch-sees-gpus", both(set_("runtime/torch", CPU_BUILD), set_("gpu", {"status": "not_installed", "gpus": []}))),
    ("driver-against-cuda", set_("runtime/torch/cuda_available", None)),
    ("gpu-driver", set_("gpu", {"status": "not_installed", "gpus": [], "pci_gpus": []})),
    ("gpus-missing", set_("gpu/pci_gpus", [])),
    ("fabric-manager", both(set_("system/services", {}), set_("system/nvswitches", 0))),
    (
        "gpu-process",
        both(
            set_("gpu/gpus/0/processes", [{"pid": 5, "kind": "C"}]),
            set_("system/processes", {"5": dict(HOLDER, run_id="r")}),
        ),
    ),
    ("gpu-process", set_("gpu/gpus/0/processes", [{"pid": 5, "kind": "G", "name": "Xorg"}])),
    ("pcie-link", both(set_("system/pcie/0/kind", "GPU"), set_("system/pcie/0/speed", 2.5))),
    ("pcie-link", set_("system/pcie/0/width_max", None)),
    ("peer-access", both(set_("nccl/acs/status", "enabled"), set_("gpu/gpus", []))),
    ("clock", set_("system/clock", {"offset": 1.4, "uncertainty": 0.6})),
    ("clock", set_("system/clock/offset", 90.0, *NAMES)),
    ("clock", set_("system/clock", None)),
    ("disk-space", set_("system/disks/0/free_bytes", 2 * GIB)),
    ("disk-inodes", set_("system/disks/0/inodes_free_percent", None)),
    ("shm-size", set_("nccl/shm/size_bytes", GIB)),
    ("memlock-rdma", both(set_(f"{SSH2}/memlock_soft", 65536, *NAMES), set_("nccl/rdma", []))),
    ("nofile", set_(f"{SSH2}/nofile_hard", 4096, *NAMES)),
    ("nofile", set_(f"{SSH2}/nofile_hard", -1, *NAMES)),
    ("master-port", set_("system/port/holders", [HOLDER], "gpu2")),
    ("master-port", set_("system/port/holders", [dict(HOLDER, run_id="digits-1")], "gpu1")),
    ("revision", set_("system/revisions", {}, *NAMES)),
    (
        "unattended-upgrades",
        both(set_("system/upgrades/automatic", ""), set_("system/upgrades/driver_packages", ["x"])),
    ),
]


def found_by(check: str, change: Callable[[Nodes], None]) -> List[_check.Finding]:
    return [finding for finding in evaluate(CHECKS, cluster(change)) if finding.check == check]


def test_a_healthy_cluster_gives_no_finding():
    assert evaluate(CHECKS, cluster()) == []


@pytest.mark.parametrize(
    "check, change, severity, words, remedy", FOUND, ids=[f"{i}-{case[0]}" for i, case in enumerate(FOUND)]
)
def test_found(check, change, severity, words, remedy):
    findings = found_by(check, change)
    assert len(findings) == 1, findings
    assert findings[0].severity == severity
    assert re.search(words, findings[0].sentence), findings[0].sentence
    assert re.search(remedy, findings[0].remedy), findings[0].remedy


@pytest.mark.parametrize("check, change", SILENT, ids=[f"{i}-{case[0]}" for i, case in enumerate(SILENT)])
def test_silent(check, change):
    assert found_by(check, change) == []


def test_every_check_is_in_the_table():
    shown = {case[0] for case in FOUND} | {"inventory", "network-choice"}
    assert {check.id for check in CHECKS} == shown


def test_no_sentence_shows_a_field_that_nothing_filled():
    for _check_id, change, *_rest in FOUND:
        for finding in evaluate(CHECKS, cluster(change)):
            for text in (finding.sentence, finding.remedy):
                assert not re.search(r"\{(?!you\}|it\}|NCCL_|\d)", text), text


def test_what_a_launch_would_refuse_is_found():
    problems = [
        "torchfleet_head is 'n9', which is not one of the nodes gpu1, gpu2, gpu3",
        "gpu2: 'gpu1' in hosts_aliases is a name of gpu1 too: take one of them out",
        "gpu3: torchfleet_slots is '{x}', wanted a whole number of ranks, 1 or more",
    ]
    settings = {"inventory_problems": problems}
    findings = evaluate(CHECKS, _check.Cluster(nodes=cluster().nodes, settings=settings))
    assert [(one.check, one.severity, one.sentence) for one in findings] == [
        ("inventory", "fail", problem) for problem in problems
    ]
    assert [one.nodes for one in findings] == [(), ("gpu1", "gpu2"), ("gpu3",)]
    assert [one.remedy.partition(" in the inventory")[0] for one in findings] == [
        "correct torchfleet_head",
        "correct hosts_aliases",
        "correct torchfleet_slots",
    ]


def test_no_network_for_all_is_said_where_none_is_set_by_hand():
    def change(nodes: Nodes) -> None:
        for node in nodes.values():
            for link in node["probed"]["links"]:
                link.update(ok=False, why="timeout")

    findings = [one for one in evaluate(CHECKS, cluster(change, by_hand=False)) if one.check == "network-choice"]
    assert len(findings) == 1
    assert "no network connects all nodes" in findings[0].sentence


def test_the_gravest_come_first():
    findings = evaluate(
        CHECKS, cluster(both(set_("system/reboot/pending", True), set_("system/disks/0/free_bytes", 1)))
    )
    assert [finding.severity for finding in findings] == ["fail", "warn"]
    assert _check.status_of(findings) == 2
    assert _check.status_of(findings[1:]) == 1
    assert _check.status_of([]) == 0


def test_facts_of_a_node_that_are_missing_break_no_check():
    for name in ("gpu", "nccl", "runtime", "probed"):
        findings = evaluate(CHECKS, cluster(lambda nodes, name=name: nodes["gpu2"].pop(name)))
        assert {finding.severity for finding in findings} <= {"info", "warn", "fail"}


def test_sameness_marks_the_odd_one():
    rows = {row.check: row for row in sameness(CHECKS, cluster(set_("runtime/packages/torch/version", "2.12.0")))}
    assert rows["same-torch"].values == {"gpu1": "1.2.3", "gpu2": "2.12.0", "gpu3": "1.2.3"}
    assert rows["same-torch"].odd == ("gpu2",)
    assert rows["same-numpy"].odd == ()


def test_limits_are_those_of_ssh_and_else_of_the_session():
    assert cluster().nodes[1]["limits"]["nofile_hard"] == 1048576
    without = cluster(lambda nodes: [node["system"]["ssh"].clear() for node in nodes.values()])
    assert without.nodes[1]["limits"]["nofile_hard"] == 4096


@pytest.mark.parametrize(
    "names, text",
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (list("abc"), "a, b and c"),
        ([str(n) for n in range(24)], "0, 1, 2, 3, 4 and 19 more"),
    ],
)
def test_names_are_listed(names, text):
    assert _check.listed(names) == text


@pytest.mark.parametrize(
    "count, text", [(-1, "unlimited"), (65536, "64 KiB"), (1 << 30, "1 GiB"), (12, "12 B"), (5 << 50, "5120 TiB")]
)
def test_sizes(count, text):
    assert _check.size(count) == text


# ---- the kernel log


LOG = """[    1.0] Linux version 6.1
[  700.250000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
[  800.250000] NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.
Nov 21 09:00:00 gpu1 kernel: NVRM: Xid (PCI:0000:86:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
[  900.000000] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
[  901.000000] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 24007, Fatal, Link 28 sourcetrack TCEN0 crumbstore DBE
"""


def test_xid_lines_are_gathered_by_device_and_number():
    events = _xid.parse_log(LOG, 1000.0)
    assert [(e["kind"], e["pci"], e["xid"], e["count"], e["seconds_ago"]) for e in events] == [
        ("Xid", "0000:3b:00", 79, 2, 200),
        ("Xid", "0000:86:00", 154, 1, None),
        ("SXid", "0000:c5:00.0", 12028, 1, 100),
        ("SXid", "0000:c5:00.0", 24007, 1, 99),
    ]
    assert [_xid.meaning(event)[1] for event in events] == ["reboot", "reboot", "watch", "reboot"]


@pytest.mark.parametrize(
    "xid, action",
    [
        (13, "ignore"),
        (31, "ignore"),
        (48, "reset"),
        (63, "reset"),
        (64, "replace"),
        (74, "reset"),
        (79, "reboot"),
        (119, "reset"),
        (999, "watch"),
    ],
)
def test_catalogue(xid, action):
    assert _xid.meaning({"kind": "Xid", "xid": xid, "text": ""})[1] == action


# ---- checks of an inventory


def own(*checks: Dict[str, Any]) -> _user.UserChecks:
    return _user.read_checks({"mine.yml": list(checks)}, CHECKS)


def with_own(check: Dict[str, Any], values: Dict[str, Any]) -> List[_check.Finding]:
    def change(nodes: Nodes) -> None:
        for name, value in values.items():
            nodes[name]["system"]["own"][check["id"]] = value

    read = own(check)
    return [one for one in evaluate(read.checks, cluster(change)) if one.check in (check["id"], "not-measured")]


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ({"equals": "a"}, "a", "b"),
        ({"equals": 5}, "5", "6"),
        ({"equals": 0.5}, "0.50", "0.5 s"),
        ({"equals": 9007199254740993}, "9007199254740993", "9007199254740992"),
        ({"equals": "5"}, 5, 6),
        ({"differs_from": 5}, "6", "5"),
        ({"one_of": [5, "b"]}, "5", "6"),
        ({"none_of": [5, "b"]}, "6", "5"),
        ({"differs_from": "a"}, "b", "a"),
        ({"one_of": ["a", "b"]}, "b", "c"),
        ({"none_of": ["a", "b"]}, "c", "b"),
        ({"at_least": 5}, "5", "4.9"),
        ({"at_most": 5}, 5, "6"),
        ({"version_at_least": "28.41"}, "28.41.1000", "28.39"),
        ({"matches": "^x"}, "xy", "y"),
        ({"lacks": "error"}, "fine", "an error"),
        ({"empty": True}, "", "x"),
        ({"empty": False}, "x", ""),
    ],
)
def test_rules_of_an_own_check(rule, good, bad):
    check = {"id": "mine", "command": ["true"], "rule": rule, "sentence": "{nodes}: {value} not {wanted}"}
    assert with_own(check, {"gpu1": {"value": good}, "gpu2": {"value": good}}) == []
    findings = with_own(check, {"gpu1": {"value": good}, "gpu2": {"value": bad}})
    assert [finding.nodes for finding in findings] == [("gpu2",)]


def test_an_own_check_compares():
    findings = with_own(
        {"id": "rack", "file": "/etc/rack", "rule": {"same": True}, "severity": "fail"},
        {"gpu1": {"value": "r1"}, "gpu2": {"value": "r1"}, "gpu3": {"value": "r2"}},
    )
    assert [(one.severity, one.sentence) for one in findings] == [("fail", "gpu3: rack is r2")]


def test_an_own_check_that_got_no_answer_is_said():
    findings = with_own(
        {"id": "rack", "file": "/etc/rack", "rule": {"same": True}}, {"gpu1": {"problem": "/etc/rack: No such file"}}
    )
    assert [one.sentence for one in findings] == ["gpu1: check rack gave no facts: /etc/rack: No such file"]


def test_an_own_check_reads_facts_and_asks_nothing():
    read = own({"id": "driver-branch", "reads": "gpu.driver_version", "rule": {"version_at_least": "590"}})
    assert read.asked == ()
    assert [one.sentence for one in evaluate(read.checks, cluster())] == [
        "gpu1, gpu2 and gpu3: driver-branch is 580.65.06"
    ]


def test_a_built_in_check_takes_another_threshold():
    read = own({"id": "shm-size", "rule": {"at_least": 128 * GIB}})
    findings = evaluate(read.checks, cluster())
    assert [one.check for one in findings] == ["shm-size"]
    assert findings[0].remedy.startswith("mount -o remount,size=128g /dev/shm")
    assert findings[0].remedy.endswith("--shm-size=128g")
    assert len(read.checks) == len(CHECKS)


@pytest.mark.parametrize(
    "wanted, size", [(GIB, "8g"), (8 * GIB, "8g"), (8 * GIB + 1, "9g"), (str(32 * GIB), "32g"), ("x", "8g")]
)
def test_room_in_memory_is_what_is_wanted(wanted, size):
    assert _check.room(wanted) == size


def test_a_broken_template_is_shown_as_it_is():
    assert _check.fill("{nodes} {oops} {value", {"nodes": "gpu1"}) == "{nodes} {oops} {value"


def test_every_built_in_check_can_be_weighed_anew():
    read = own(*({"id": check.id, "severity": "info", "remedy": None} for check in CHECKS))
    assert {check.severity for check in read.checks} == {"info"}
    assert [check.remedy for check in read.checks] == [check.remedy for check in CHECKS]


def test_fields_that_are_filled_are_taken():
    read = own(
        {
            "id": "power",
            "reads": "gpu.gpus[].power.limit",
            "rule": {"at_least": 700},
            "sentence": "{nodes} {has} {does} {is} {value} {wanted} {item[index]} {{braces}}",
            "remedy": "set {wanted} of GPU {item[index]} for port {settings[master_port]}",
        },
        {"id": "rack", "file": "/r", "rule": {"same": True}, "sentence": "{nodes} {others} {others_have} {usual}"},
    )
    assert len(read.checks) == len(CHECKS) + 2


@pytest.mark.parametrize(
    "raw, problem",
    [
        ({"rule": {"same": True}}, "mine.yml, check 1 has no id"),
        ({"id": "a", "file": "/x"}, "check a: it has no rule"),
        ({"id": "a", "rule": {"same": True}}, "it reads nothing"),
        ({"id": "a", "file": "/x", "rule": {"equal": 1}}, "wanted a mapping with one of same, equals"),
        ({"id": "a", "file": "/x", "rule": {"same": "hole"}}, "rule.same is 'hole'"),
        ({"id": "a", "file": "/x", "rule": {"at_least": "many"}}, "wanted a number"),
        ({"id": "a", "fiel": "/x", "rule": {"same": True}}, "fiel is unknown: did you mean file?"),
        ({"id": "a", "file": "/x", "rule": {"same": True}, "severity": "bad"}, "severity is 'bad', wanted one of fail"),
        ({"id": "a", "command": "cat x", "rule": {"same": True}}, "wanted a list of words"),
        ({"id": 5, "file": "/x", "rule": {"same": True}}, "mine.yml, check 1: id is 5, wanted a text"),
        ({"id": ["a"], "file": "/x", "rule": {"same": True}}, "id is ['a'], wanted a text"),
        ({"id": "a", "reads": 5, "rule": {"same": True}}, "check a: reads is 5, wanted a text"),
        ({"id": "a", "file": "/x", "rule": {"same": True}, "sentence": {"nodes": None}}, "sentence is {'nodes': None}"),
        ({"id": "a", "file": "/x", "rule": {"same": False}}, "rule.same is False, wanted true, or one of whole"),
        ({"id": "a", "file": "/x", "rule": {"matches": "("}}, "rule.matches is '(', wanted a regular expression (miss"),
        ({"id": "a", "file": "/x", "rule": {"lacks": "*"}}, "rule.lacks is '*', wanted a regular expression (nothing"),
        ({"id": "a", "file": "/x", "rule": {"one_of": "abc"}}, "rule.one_of is 'abc', wanted a list"),
        ({"id": "a", "file": "/x", "rule": {"none_of": 5}}, "rule.none_of is 5, wanted a list"),
        ({"id": "a", "file": "/x", "rule": {"equals": True}}, "rule.equals is True, wanted a text or a number"),
        ({"id": "a", "file": "/x", "rule": {"one_of": ["a", None]}}, "wanted a text or a number: None is none"),
        (
            {"id": "a", "file": "/x", "rule": {"version_at_least": "new"}},
            "rule.version_at_least is 'new', wanted a ver",
        ),
        ({"id": "a", "file": "/x", "rule": {"at_least": True}}, "rule.at_least is True, wanted a number"),
        ({"id": "a", "file": "/x", "rule": {"empty": "no"}}, "rule.empty is 'no', wanted true or false"),
        ({"id": "clock", "rule": {"at_most": 5}}, "check clock: its rule is a function of all nodes"),
        (
            {"id": "a", "file": "/x", "rule": {"equals": "1"}, "sentence": "{node} is bad"},
            "check a: sentence has {node}, which nothing fills: wanted one of does, has, is, nodes, settings, value",
        ),
        (
            {"id": "a", "file": "/x", "rule": {"equals": "1"}, "remedy": "flash {usual}"},
            "remedy has {usual}, which nothing fills",
        ),
        ({"id": "a", "file": "/x", "rule": {"same": True}, "remedy": "mend {nodes}"}, "remedy has {nodes}"),
        ({"id": "a", "file": "/x", "rule": {"equals": "1"}, "sentence": "{item[x]}"}, "sentence has {item[x]}"),
        (
            {"id": "a", "file": "/x", "rule": {"same": True}, "sentence": "a {value"},
            "sentence is 'a {value', which has",
        ),
        ({"id": "same-torch", "rule": {"equals": "2.13.0"}}, "check same-torch: sentence has {others}"),
    ],
)
def test_what_is_wrong_with_an_own_check_is_said(raw, problem):
    with pytest.raises(_user.CheckError) as caught:
        own(raw)
    assert problem in str(caught.value)


def test_skip_and_severity():
    chosen = _check.chosen(CHECKS, ["reboot"], {"clock": "info"})
    assert "reboot" not in {check.id for check in chosen}
    assert next(check for check in chosen if check.id == "clock").severity == "info"
    for skip, severity, words in (
        (["rebot"], {}, "check_skip names rebot"),
        ([], {"clock": "bad"}, "check_severity.clock"),
    ):
        with pytest.raises(ValueError, match=words):
            _check.chosen(CHECKS, skip, severity)


def test_severity_of_the_user_holds_for_hits_that_bring_their_own():
    chosen: List[Check] = _check.chosen(CHECKS, [], {"clock": "info"})
    findings = evaluate(chosen, cluster(set_("system/clock/offset", 40.0)))
    assert [finding.severity for finding in findings] == ["info"]


def test_a_head_outside_of_those_that_were_asked_is_none_of_them():
    members = [{"name": name, "address": address(name), "interface": None, "by_hand": True} for name in NAMES[1:]]
    nodes = {name: healthy(name) for name in NAMES[1:]}
    judged = _facts.assemble(members, nodes, {"master_port": 29500}, head="gpu1")
    assert [node["head"] for node in judged.nodes] == [False, False]
    assert judged.peers == ("gpu2", "gpu3")
