# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nccl_facts on trees in the shape of /sys, /proc and /etc, and as a whole on the machine that runs the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import yaml

from ansible_collections.torchfleet.cluster.plugins.module_utils import _gather_nccl
from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric import build_interfaces
from ansible_collections.torchfleet.cluster.plugins.module_utils._rdma import build_rdma_devices
from ansible_collections.torchfleet.cluster.plugins.modules import nccl_facts

MODULE = "ansible_collections.torchfleet.cluster.plugins.modules.nccl_facts"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def add_device(root: Path, place: str, bus: str, driver: str, **files: str) -> Path:
    """A device in /sys/devices with its bus and driver."""
    device = root / "sys/devices" / place
    device.mkdir(parents=True, exist_ok=True)
    link(device / "subsystem", root / "sys/bus" / bus)
    link(device / "driver", root / "sys/bus" / bus / "drivers" / driver)
    for name, text in files.items():
        write(device / name, text)
    return device


def add_netdev(root: Path, name: str, **files: str) -> Path:
    folder = root / "sys/class/net" / name
    for key, text in {"type": "1\n", "flags": "0x1003\n", "operstate": "up\n", "carrier": "1\n", **files}.items():
        write(folder / key, text)
    return folder


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A bond of two ports of one card, a VLAN on it, a container bridge, the BMC's USB NIC, and an RDMA device."""
    for index in (0, 1):
        place = f"pci0000:40/0000:40:01.1/0000:41:00.{index}"
        device = add_device(tmp_path, place, "pci", "mlx5_core", numa_node="1\n")
        folder = add_netdev(
            tmp_path, f"p{index}", ifindex=f"{index + 2}\n", iflink=f"{index + 2}\n", speed="100000\n", mtu="9000\n"
        )
        link(folder / "device", device)
        link(folder / "master", tmp_path / "sys/class/net/agg")
        write(device / "net" / f"p{index}" / "dev_port", "0\n")
    bond = add_netdev(tmp_path, "agg", speed="200000\n", mtu="9000\n")
    write(bond / "bonding" / "mode", "802.3ad 4\n")
    vlan = add_netdev(tmp_path, "fabric", uevent="DEVTYPE=vlan\nINTERFACE=fabric\n", speed="200000\n")
    link(vlan / "lower_agg", bond)
    bridge = add_netdev(tmp_path, "lan9", speed="10000\n")
    (bridge / "bridge").mkdir()
    usb = "pci0000:00/0000:00:14.0/usb1/1-6/1-6:2.0"
    bmc = add_device(tmp_path, usb, "usb", "rndis_host", uevent="PRODUCT=46b/ffb0/100\n")
    link(add_netdev(tmp_path, "eth0") / "device", bmc)
    write(tmp_path / "sys/class/net/bonding_masters", "agg\n")

    port = tmp_path / "sys/class/infiniband/mlx5_bond_0/ports/1"
    for name, text in {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (2X NDR)",
        "link_layer": "Ethernet",
    }.items():
        write(port / name, text + "\n")
    gids = ["fe80:0000:0000:0000:0200:5eff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a14:5d01", "0000:" * 7 + "0000"]
    for index, gid in enumerate(gids):
        write(port / "gids" / str(index), gid + "\n")
        write(port / "gid_attrs/types" / str(index), "RoCE v2\n")
        write(port / "gid_attrs/ndevs" / str(index), "fabric\n")
    write(port.parents[1] / "hca_type", "MT4129\n")
    link(port.parents[1] / "device", tmp_path / "sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0")
    return tmp_path


def test_interfaces_of_a_tree(machine: Path) -> None:
    found = {item.name: item for item in build_interfaces([], _gather_nccl.read_net(str(machine)))}
    assert {name: (item.kind, item.hardware, item.speed_mbps) for name, item in found.items()} == {
        "p0": ("ethernet", ("p0",), 100000),
        "p1": ("ethernet", ("p1",), 100000),
        "agg": ("bond", ("p0", "p1"), 200000),
        "fabric": ("vlan", ("p0", "p1"), 200000),
        "lan9": ("bridge", (), None),
        "eth0": ("bmc", (), None),
    }
    port = found["p1"]
    assert (port.driver, port.bus, port.pci_address, port.numa_node) == ("mlx5_core", "pci", "0000:41:00.1", 1)
    assert (port.master, port.mtu, found["agg"].bond_mode) == ("agg", 9000, "802.3ad")


def test_rdma_of_a_tree(machine: Path) -> None:
    device = build_rdma_devices(_gather_nccl.read_rdma(str(machine)))[0]
    assert (device.name, device.transport, device.driver, device.pci_address) == (
        "mlx5_bond_0",
        "roce",
        "mlx5_core",
        "0000:41:00.0",
    )
    port = device.ports[0]
    assert [gid.index for gid in port.gids] == [0, 1]
    assert (port.netdev, port.roce_v2_gid_index) == ("fabric", 1)


def test_a_bare_tree_is_no_failure(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert _gather_nccl.read_net(root) == {}
    assert _gather_nccl.read_rdma(root) == {}
    assert _gather_nccl.read_bridges(root) == {}
    assert _gather_nccl.gather_gpudirect(root)["peer_memory_module"] == ""
    assert _gather_nccl.gather_iommu(root).status == "off"
    assert _gather_nccl.gather_ports(root) == {"first": None, "last": None, "reserved": ""}
    assert _gather_nccl.gather_shm(str(tmp_path / "none"))["size_bytes"] is None
    assert _gather_nccl.gather_settings("/home/u", {}, root) == ()


def test_kernel_side_of_a_tree(tmp_path: Path) -> None:
    write(tmp_path / "proc/modules", "nvidia_peermem 1 0 - Live 0x0\n")
    write(tmp_path / "proc/cmdline", "ro intel_iommu=on\n")
    write(tmp_path / "sys/kernel/iommu_groups/0/type", "DMA-FQ\n")
    write(tmp_path / "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    write(tmp_path / "proc/sys/net/ipv4/ip_local_reserved_ports", "29500-29509\n")
    write(tmp_path / "sys/bus/pci/devices/0000:00:01.0/class", "0x060400\n")
    write(tmp_path / "sys/bus/pci/devices/0000:00:01.0/config", "short")
    write(tmp_path / "sys/bus/pci/devices/0000:41:00.0/class", "0x020000\n")
    root = str(tmp_path)
    assert _gather_nccl.gather_gpudirect(root)["peer_memory_module"] == "nvidia_peermem"
    assert _gather_nccl.gather_iommu(root).status == "translated"
    assert _gather_nccl.gather_ports(root) == {"first": 32768, "last": 60999, "reserved": "29500-29509"}
    assert _gather_nccl.read_bridges(root) == {"0000:00:01.0": b"short"}


def test_every_file_that_sets_a_variable_is_named(tmp_path: Path) -> None:
    write(tmp_path / "etc/nccl.conf", "NCCL_DEBUG=WARN\n")
    write(tmp_path / "etc/environment", "NCCL_IB_DISABLE=1\n")
    write(tmp_path / "etc/profile.d/10-site.sh", "\nexport NCCL_SOCKET_IFNAME=docker0\n")
    write(tmp_path / "home/u/.bashrc", "export GLOO_SOCKET_IFNAME=eth0\n")
    write(tmp_path / "home/u/.deepspeed_env", "NCCL_P2P_DISABLE=1\n")
    write(tmp_path / "home/u/mine.conf", "NCCL_ALGO=Ring\n")
    write(tmp_path / "root/.bashrc", "export NCCL_DEBUG=TRACE\n")
    environment = {"NCCL_CONF_FILE": "/home/u/mine.conf", "NCCL_NET": "Socket"}
    found = _gather_nccl.gather_settings("/home/u", environment, str(tmp_path))
    places: List[Tuple[str, str, int]] = [(item.name, item.source, item.line) for item in found]
    assert places == [
        ("NCCL_CONF_FILE", "environment", 0),
        ("NCCL_NET", "environment", 0),
        ("NCCL_ALGO", "/home/u/mine.conf", 1),
        ("NCCL_DEBUG", "/etc/nccl.conf", 1),
        ("NCCL_IB_DISABLE", "/etc/environment", 1),
        ("NCCL_SOCKET_IFNAME", "/etc/profile.d/10-site.sh", 2),
        ("GLOO_SOCKET_IFNAME", "/home/u/.bashrc", 1),
        ("NCCL_P2P_DISABLE", "/home/u/.deepspeed_env", 1),
    ]


class FakeModule:
    """As much of AnsibleModule as the gatherers use: tools that answer what a table says."""

    def __init__(self, answers: Dict[Tuple[str, ...], str]) -> None:
        self.answers = answers

    def get_bin_path(self, name: str, opt_dirs: Any = None) -> Any:
        return name if any(argv[0] == name for argv in self.answers) else None

    def run_command(self, argv: List[str], **_options: Any) -> Tuple[int, str, str]:
        known = self.answers.get(tuple(argv))
        return (255, "", "unknown option") if known is None else (0, known, "")


IP_TEXT = (
    "2: eth0: <UP,LOWER_UP> mtu 1500 state UP\n    link/ether 02:00:5e:00:00:01\n    inet 10.0.0.7/24 scope global\n"
)
IFCONFIG = "eth0: flags=4163<UP,RUNNING>  mtu 1500\n        inet 10.0.0.7  netmask 255.255.255.0\n"


@pytest.mark.parametrize(
    "answers",
    [
        {("ip", "-d", "-j", "addr"): '[{"ifname": "eth0", "addr_info": [{"local": "10.0.0.7", "prefixlen": 24}]}]'},
        {("ip", "addr"): IP_TEXT},
        {("ifconfig", "-a"): IFCONFIG},
    ],
    ids=["ip -j", "ip of BusyBox", "ifconfig"],
)
def test_addresses_come_from_whatever_tool_there_is(answers: Dict[Tuple[str, ...], str]) -> None:
    found = build_interfaces(_gather_nccl.gather_links(FakeModule(answers)))
    assert [(item.name, item.addresses[0].address, item.addresses[0].prefix) for item in found] == [
        ("eth0", "10.0.0.7", 24)
    ]


def test_addresses_without_any_tool() -> None:
    found = {item.name: item for item in build_interfaces(_gather_nccl.gather_links(FakeModule({})))}
    assert "127.0.0.1" in [address.address for address in found["lo"].addresses]


def test_limits_of_units_are_those_of_systemd() -> None:
    argv = ("systemctl", "show", "-p", "DefaultLimitMEMLOCK", "-p", "DefaultLimitNOFILE")
    found = _gather_nccl.gather_limits(FakeModule({argv: "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=524288\n"}))
    assert (found["memlock"]["systemd"], found["nofile"]["systemd"]) == (8388608, 524288)
    assert _gather_nccl.gather_limits(FakeModule({}))["memlock"]["systemd"] is None


def run(**options: Any) -> Dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, json.dumps({"ANSIBLE_MODULE_ARGS": options})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: Dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_whole_module_on_this_machine(tmp_path: Path) -> None:
    write(tmp_path / ".nccl.conf", "NCCL_TORCHFLEET_TEST=1\n")
    found = run(python=sys.executable, home=str(tmp_path), _ansible_check_mode=True)
    assert found["changed"] is False
    loopback = next(item for item in found["interfaces"] if item["name"] == "lo")
    assert (loopback["kind"], loopback["is_candidate"]) == ("loopback", False)
    assert found["python"]["status"] == "ok"
    assert found["nccl_reads"]["NCCL_TORCHFLEET_TEST"] == "1"
    assert found["ansible_facts"]["torchfleet_nccl"]["interfaces"] == found["interfaces"]
    documented = set(yaml.safe_load(nccl_facts.RETURN)) - {"ansible_facts"}
    assert documented == set(found["ansible_facts"]["torchfleet_nccl"])


def test_an_interpreter_that_is_not_there_is_no_failure() -> None:
    found = run(python="/nowhere/python")
    assert found["python"]["status"] == "no_interpreter"
    assert found["interfaces"]
