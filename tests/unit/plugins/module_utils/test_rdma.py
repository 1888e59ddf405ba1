# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric import build_interfaces
from ansible_collections.torchfleet.cluster.plugins.module_utils._gather_nccl import read_rdma
from ansible_collections.torchfleet.cluster.plugins.module_utils._rdma import (
    RdmaDevice,
    attach,
    build_rdma_devices,
    parse_ibdev2netdev,
    parse_ibstat,
    parse_ibstatus,
    parse_ibv_devinfo,
    parse_show_gids,
    phys_state,
    port_state,
    rate_gbps,
    supplement,
)

SHARED = Path(__file__).resolve().parents[4].parent / "shared" / "fixtures" / "ib"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared samples of real output are not here")

FE80 = "fe80:0000:0000:0000:0200:5eff:fe00:0001"
V4 = "0000:0000:0000:0000:0000:ffff:0a00:0007"
ULA = "fd00:0000:0000:0000:0200:5eff:fe00:0001"


def roce(gids: Dict[int, Any], netdevs: Any = (("eth2", "0"),)) -> Dict[str, Any]:
    """A RoCE device with one port; `gids` are index -> (gid, type, netdev)."""
    return {
        "hca_type": "MT4129\n",
        "fw_ver": "28.41.1000\n",
        "board_id": "MT_0000000838\n",
        "node_guid": "0200:5eff:fe00:0001\n",
        "node_type": "1: CA\n",
        "device": "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0",
        "driver": "mlx5_core",
        "numa_node": "1\n",
        "netdevs": dict(netdevs),
        "ports": {
            1: {
                "state": "4: ACTIVE\n",
                "phys_state": "5: LinkUp\n",
                "rate": "400 Gb/sec (4X NDR)\n",
                "link_layer": "Ethernet\n",
                "gids": {index: gid for index, (gid, _kind, _netdev) in gids.items()},
                "types": {index: kind for index, (_gid, kind, _netdev) in gids.items()},
                "ndevs": {index: netdev for index, (_gid, _kind, netdev) in gids.items()},
            }
        },
    }


USUAL = {
    0: (FE80, "IB/RoCE v1\n", "eth2\n"),
    1: (FE80, "RoCE v2\n", "eth2\n"),
    2: (V4, "IB/RoCE v1\n", "eth2\n"),
    3: (V4, "RoCE v2\n", "eth2\n"),
}


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("4: ACTIVE\n", "ACTIVE"),
        ("Active", "ACTIVE"),
        ("PORT_ACTIVE (4)", "ACTIVE"),
        ("1: DOWN", "DOWN"),
        ("PORT_DOWN (1)", "DOWN"),
        ("Initializing", "INIT"),
        ("2: INIT", "INIT"),
        ("PORT_ARMED (3)", "ARMED"),
        ("5: ACTIVE_DEFER", "ACTIVE_DEFER"),
        ("", ""),
    ],
)
def test_port_state(text: str, state: str) -> None:
    assert port_state(text) == state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("5: LinkUp\n", "LinkUp"),
        ("LINK_UP (5)", "LinkUp"),
        ("Disabled", "Disabled"),
        ("DISABLED (3)", "Disabled"),
        ("2: Polling", "Polling"),
        ("LinkErrorRecovery", "LinkErrorRecovery"),
        ("4: PortConfigurationTraining", "PortConfigurationTraining"),
    ],
)
def test_phys_state(text: str, state: str) -> None:
    assert phys_state(text) == state


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400 Gb/sec (4X NDR)\n", 400.0), ("2.5 Gb/sec (1X SDR)", 2.5), ("200", 200.0), ("", None)],
)
def test_rate(text: str, rate: Optional[float]) -> None:
    assert rate_gbps(text) == rate


def test_device_from_sysfs() -> None:
    device = build_rdma_devices({"mlx5_0": roce(USUAL)})[0]
    assert (device.transport, device.model, device.firmware) == ("roce", "ConnectX-7", "28.41.1000")
    assert (device.driver, device.pci_address, device.numa_node) == ("mlx5_core", "0000:41:00.0", 1)
    port = device.ports[0]
    assert (port.state, port.phys_state, port.rate_gbps, port.link_layer) == ("ACTIVE", "LinkUp", 400.0, "Ethernet")
    assert (port.netdev, port.nccl_name, port.roce_v2_gid_index) == ("eth2", "mlx5_0:1", 3)
    assert [(gid.index, gid.type, gid.ipv4) for gid in port.gids] == [
        (0, "RoCE v1", None),
        (1, "RoCE v2", None),
        (2, "RoCE v1", "10.0.0.7"),
        (3, "RoCE v2", "10.0.0.7"),
    ]


@pytest.mark.parametrize(
    ("gids", "index"),
    [
        (USUAL, 3),
        # BlueField sub-functions have RoCE v2 only.
        ({0: (FE80, "RoCE v2", "p0"), 1: (V4, "RoCE v2", "p0")}, 1),
        # In a pod the host's entries are empty and the pod's come behind them.
        (
            {
                4: (FE80, "IB/RoCE v1", "n"),
                5: (FE80, "RoCE v2", "n"),
                6: (V4, "IB/RoCE v1", "n"),
                7: (V4, "RoCE v2", "n"),
            },
            7,
        ),
        # Without an IPv4 address a global IPv6 one, never a link-local one.
        ({0: (FE80, "RoCE v2", "p"), 2: (ULA, "IB/RoCE v1", "p"), 5: (ULA, "RoCE v2", "p")}, 5),
        ({1: (ULA, "RoCE v2", "p"), 5: (V4, "RoCE v2", "p")}, 5),
        ({0: (FE80, "IB/RoCE v1", "p"), 1: (FE80, "RoCE v2", "p")}, None),
        ({1: ("0000:0000:0000:0000:0000:ffff:a9fe:0001", "RoCE v2", "p")}, None),
        ({}, None),
        # The VLAN's entries do not stand for the port itself.
        ({1: (FE80, "RoCE v2", "p"), 3: (V4, "RoCE v2", "p.7"), 5: (V4[:-1] + "8", "RoCE v2", "p")}, 5),
    ],
)
def test_roce_v2_gid_index(gids: Dict[int, Any], index: Optional[int]) -> None:
    assert build_rdma_devices({"mlx5_0": roce(gids)})[0].ports[0].roce_v2_gid_index == index


def test_infiniband_needs_no_gid_index() -> None:
    raw = roce({0: (FE80, "IB/RoCE v1", "")}, netdevs=(("ib0", "0"), ("ib1", "1")))
    raw["ports"][1]["link_layer"] = "InfiniBand\n"
    device = build_rdma_devices({"mlx5_0": raw})[0]
    port = device.ports[0]
    assert (device.transport, port.gids[0].type, port.roce_v2_gid_index, port.netdev) == ("ib", "IB", None, "ib0")


def test_iwarp_and_efa_are_neither_ib_nor_roce() -> None:
    iwarp = {**roce({}), "node_type": "4: RNIC\n"}
    efa = roce({})
    efa["ports"][1]["link_layer"] = "Unspecified\n"
    usnic = {**roce({}), "node_type": "6: usNIC UDP\n"}
    found = {
        device.name: device.transport
        for device in build_rdma_devices({"irdma0": iwarp, "efa_0": efa, "usnic_0": usnic})
    }
    assert found == {"irdma0": "iwarp", "efa_0": "other", "usnic_0": "other"}


@pytest.mark.parametrize(
    ("transport", "layer", "expected"),
    [
        ("InfiniBand (0)", "InfiniBand", "ib"),
        ("InfiniBand (0)", "Ethernet", "roce"),
        ("InfiniBand (0)", "", "other"),
        ("iWARP (1)", "Ethernet", "iwarp"),
        ("usNIC UDP (3)", "Ethernet", "other"),
        ("unspecified (4)", "InfiniBand", "other"),  # EFA, as rdma-core before version 33 printed it
        ("unspecified (4)", "Unspecified", "other"),
        ("invalid transport (7)", "Ethernet", "other"),
        ("", "InfiniBand", "ib"),
    ],
)
def test_ibv_devinfo_tells_the_transport_apart_from_the_link_layer(transport: str, layer: str, expected: str) -> None:
    head = f"hca_id:\tdev_0\n\ttransport:\t\t\t{transport}\n" if transport else "hca_id:\tdev_0\n"
    text = f"{head}\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tlink_layer:\t\t{layer}\n"
    assert parse_ibv_devinfo(text).devices[0].transport == expected


def test_the_tools_word_for_efa_does_not_make_it_infiniband() -> None:
    raw = roce({})
    raw["ports"][1]["link_layer"] = "Unknown\n"
    said = "hca_id: efa_0\n transport: unspecified (4)\n port: 1\n state: PORT_ACTIVE (4)\n link_layer: InfiniBand\n"
    devices = supplement(build_rdma_devices({"efa_0": raw}), parse_ibv_devinfo(said).devices)
    assert [device.transport for device in devices] == ["other"]


@pytest.mark.parametrize(
    ("width", "speed", "rate"),
    [
        ("4X (2)", "50.0 Gbps (64)", 200.0),
        ("1X (1)", "25.0 Gbps (32)", 25.0),
        ("4X (2)", "100.0 Gbps (128)", 400.0),
        ("2X (16)", "14.0 Gbps (16)", 28.0),
        ("4X (2)", "invalid speed (0)", None),
        ("invalid width (0)", "25.0 Gbps (32)", None),
    ],
)
def test_ibv_devinfo_v_tells_the_rate_by_lane(width: str, speed: str, rate: Optional[float]) -> None:
    text = f"hca_id: mlx5_0\n port: 1\n state: PORT_ACTIVE (4)\n active_width: {width}\n active_speed: {speed}\n"
    second = "hca_id: mlx5_1\n port: 1\n active_speed: 25.0 Gbps (32)\n"
    assert [device.ports[0].rate_gbps for device in parse_ibv_devinfo(text + second).devices] == [rate, None]


def test_order_is_by_number() -> None:
    assert [device.name for device in build_rdma_devices({"mlx5_10": {}, "mlx5_bond_0": {}, "mlx5_2": {}})] == [
        "mlx5_2",
        "mlx5_10",
        "mlx5_bond_0",
    ]


def test_interfaces_know_their_rdma_device() -> None:
    links = [{"ifname": name, "flags": ["UP", "LOWER_UP"], "parentbus": "pci"} for name in ("eth1", "eth2")]
    found = attach(build_interfaces(links), build_rdma_devices({"mlx5_0": roce(USUAL)}))
    assert [(item.name, item.rdma_device, item.speed_mbps) for item in found] == [
        ("eth1", "", None),
        ("eth2", "mlx5_0", 400000),
    ]


def test_ibstat_with_two_ports_and_a_device_that_cannot_be_opened() -> None:
    text = (
        "CA 'ibp12s0'\n\tCA type: MT4119\n\tNumber of ports: 2\n\tFirmware version: 16.35.2000\n"
        "\tPort 1:\n\t\tState: Initializing\n\t\tPhysical state: LinkUp\n\t\tRate: 100\n\t\tLink layer: InfiniBand\n"
        "\tPort 2:\n\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\n\t\tLink layer: InfiniBand\n"
        "ibpanic: [7] main: stat of IB device 'ibp13s0' failed: No such file or directory\n"
    )
    report = parse_ibstat(text)
    assert [(port.port, port.state, port.phys_state) for port in report.devices[0].ports] == [
        (1, "INIT", "LinkUp"),
        (2, "DOWN", "Polling"),
    ]
    assert [device.name for device in report.devices] == ["ibp12s0"]
    assert report.problems[0].startswith("ibpanic:")


@pytest.mark.parametrize("text", ["", "ibstat: command not found\n", "No IB devices found\n"])
@pytest.mark.parametrize("parse", [parse_ibstat, parse_ibstatus, parse_ibv_devinfo])
def test_no_device_is_a_result(parse: Any, text: str) -> None:
    assert parse(text).devices == ()


def test_ibv_devinfo_v() -> None:
    text = (
        "hca_id:\tmlx5_3\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.41.1000\n\tvendor_part_id:\t\t\t4129\n"
        "\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
        "\t\t\tactive_mtu:\t\t4096 (5)\n\t\t\tlink_layer:\t\tEthernet\n\t\t\tphys_state:\t\tLINK_UP (5)\n"
        f"\t\t\tGID[  0]:\t\t{FE80}, RoCE v1\n\t\t\tGID[  3]:\t\t::ffff:10.0.0.7, RoCE v2\n"
    )
    device = parse_ibv_devinfo(text).devices[0]
    port = device.ports[0]
    assert (device.name, device.hca_type, port.active_mtu, port.phys_state) == ("mlx5_3", "MT4129", 4096, "LinkUp")
    assert (port.roce_v2_gid_index, port.gids[1].ipv4) == (3, "10.0.0.7")


def test_show_gids_without_address_interface_or_end() -> None:
    text = (
        "DEV\tPORT\tINDEX\tGID\t\tIPv4\tVER\tDEV\n---\t----\t-----\t---\t---\t---\t---\n"
        f"mlx5_0\t1\t0\t{FE80}\t\tv1\teth2\n"
        f"mlx5_0\t1\t3\t{V4}\t10.0.0.7\tv2\teth2\n"
        f"mlx5_1\t1\t0\t{FE80}\t\tv1\t\n"
        "mlx5_1\t1\t1\tfe80:0000:0000\n"
        "n_gids_found=4\n"
    )
    rows = parse_show_gids(text)
    assert [(row.device, row.gid.index, row.gid.type, row.gid.ipv4, row.gid.netdev) for row in rows] == [
        ("mlx5_0", 0, "RoCE v1", None, "eth2"),
        ("mlx5_0", 3, "RoCE v2", "10.0.0.7", "eth2"),
        ("mlx5_1", 0, "RoCE v1", None, ""),
    ]


def test_ibdev2netdev_v() -> None:
    text = (
        "0000:41:00.0 mlx5_0 (MT4129 - MCX75310AAS) ConnectX-7 card (single port) fw 28.41.1000 port 1 (ACTIVE) "
        "==> ibp65s0 (Up)\n"
        "mlx5_bond_0 port 1 ==> bond0 (Up)\n"
    )
    found = parse_ibdev2netdev(text)
    assert [(row.device, row.port, row.netdev, row.up) for row in found] == [
        ("mlx5_0", 1, "ibp65s0", True),
        ("mlx5_bond_0", 1, "bond0", True),
    ]
    assert (found[0].pci_address, found[0].firmware) == ("0000:41:00.0", "28.41.1000")


def test_tools_fill_gaps_and_change_nothing_else() -> None:
    bare = roce({}, netdevs=())
    devices = build_rdma_devices({"mlx5_0": bare})
    gids = parse_show_gids(f"mlx5_0 1 3 {V4} 10.0.0.7 v2 eth2\n")
    report = parse_ibv_devinfo("hca_id: mlx5_0\n port: 1\n state: PORT_DOWN (1)\n active_mtu: 4096 (5)\n")
    port = supplement(devices, report.devices, gids, parse_ibdev2netdev("mlx5_0 port 1 ==> eth2 (Up)"))[0].ports[0]
    assert (port.state, port.active_mtu, port.roce_v2_gid_index, port.netdev) == ("ACTIVE", 4096, 3, "eth2")


# ---- real output and its ground truth


def ground_truth(*kinds: str) -> List[Any]:
    if not SHARED.is_dir():
        return []
    with (SHARED / "INDEX.tsv").open() as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["kind"] in kinds]
    return [pytest.param(row, id=row["file"]) for row in rows]


def counted(text: str) -> Dict[str, int]:
    """`Activex9, Downx3` as a dict."""
    pairs = [item.strip().rpartition("x") for item in text.split(",") if item.strip()]
    return {value: int(count) for value, _x, count in pairs if count.isdigit()}


def ports_of(devices: Any) -> List[Any]:
    return [port for device in devices for port in device.ports]


@needs_shared
@pytest.mark.parametrize("row", ground_truth("ibstat"))
def test_real_ibstat(row: Dict[str, str]) -> None:
    report = parse_ibstat((SHARED / row["file"]).read_text())
    devices: List[RdmaDevice] = list(report.devices)
    assert [device.name for device in devices] == row["names"].split(",")
    if row["ca_type"]:
        assert {device.hca_type for device in devices} == set(row["ca_type"].split(","))
        assert {device.firmware for device in devices} == set(row["firmware"].split(","))
        ports = ports_of(devices)
        assert Counter(port.state for port in ports) == {k.upper(): v for k, v in counted(row["state"]).items()}
        assert Counter(port.phys_state for port in ports) == counted(row["physical"])
        assert Counter(f"{port.rate_gbps:g}" for port in ports) == counted(row["rate"])
        assert Counter(port.link_layer for port in ports) == counted(row["link_layer"])
    assert bool(report.problems) == ("ibpanic" in row["notes"])


@needs_shared
def test_real_ibstat_excerpt() -> None:
    ports = ports_of(parse_ibstat((SHARED / "t_ncclt128_ibstat_excerpt.txt").read_text()).devices)
    assert [(port.state, port.phys_state) for port in ports] == [("ACTIVE", "LinkUp"), ("DOWN", "Disabled")]


@needs_shared
def test_real_ibstatus() -> None:
    devices = parse_ibstatus((SHARED / "gpud__ibstatus.39.0.a100.all.active.0.txt").read_text()).devices
    assert [device.name for device in devices] == [f"mlx5_{index}" for index in range(9)]
    ports = ports_of(devices)
    assert Counter((port.state, port.rate_gbps, port.link_layer) for port in ports) == {
        ("ACTIVE", 200.0, "InfiniBand"): 8,
        ("ACTIVE", 40.0, "Ethernet"): 1,
    }
    assert all(port.gids[0].link_local for port in ports[:8])


@needs_shared
@pytest.mark.parametrize(
    ("name", "v2"),
    [
        ("t_nccl1131_show_gids.txt", {"mlx5_0": 3, "mlx5_1": 3}),
        ("t_nccl1573_show_gids_macvlan.txt", {"mlx5_0": 7, "mlx5_1": 7}),
        ("t_multus1100_show_gids_podA.txt", {"mlx5_4": 5}),
        # The last row is cut before mlx5_1's RoCE v2 entry.
        ("t_find8905082393_show_gids.txt", {"mlx5_0": None, "mlx5_1": None}),
        ("t_find30983209827_show_gids_bluefield_sf.txt", {"mlx5_2": 1, "mlx5_3": None}),
    ],
)
def test_real_show_gids(name: str, v2: Dict[str, Optional[int]]) -> None:
    rows = parse_show_gids((SHARED / name).read_text())
    devices = build_rdma_devices({device: roce({}, netdevs=()) for device in {row.device for row in rows}})
    found = supplement(devices, gids=rows)
    assert {device.name: device.ports[0].roce_v2_gid_index for device in found} == v2


@needs_shared
def test_real_ibv_devinfo() -> None:
    cut = parse_ibv_devinfo((SHARED / "t_nccl769_ibv_devinfo_v_excerpt.txt").read_text()).devices[0]
    assert (cut.name, cut.ports[0].phys_state, cut.ports[0].roce_v2_gid_index) == ("", "LinkUp", 3)
    assert cut.ports[0].gids[3].ipv4 == "200.0.209.6"
    bond = parse_ibv_devinfo((SHARED / "t_nccl426_ibv_devinfo_bond.txt").read_text()).devices[0]
    assert (bond.name, bond.firmware, bond.transport) == ("mlx5_bond_0", "16.28.2006", "roce")
    assert (bond.ports[0].state, bond.ports[0].active_mtu) == ("ACTIVE", 1024)
    down = parse_ibv_devinfo((SHARED / "t_deepep38_ibv_devinfo_down_excerpt.txt").read_text()).devices[0]
    assert (down.name, down.ports[0].state, down.transport) == ("mlx5_0", "DOWN", "ib")


@needs_shared
def test_real_ibdev2netdev() -> None:
    rows = parse_ibdev2netdev((SHARED / "t_finds_ibdev2netdev_4.txt").read_text())
    assert [(row.device, row.netdev, row.up) for row in rows] == [
        ("mlx5_0", "ens3np0", False),
        ("mlx5_1", "enp77s0np0", False),
        ("mlx5_2", "ens9f0np0", True),
        ("mlx5_3", "ens9f1np1", True),
    ]


@needs_shared
def test_real_sysfs(tmp_path: Path) -> None:
    (tmp_path / "sys" / "class").mkdir(parents=True)
    (tmp_path / "sys" / "class" / "infiniband").symlink_to(SHARED / "sysfs-h100")
    devices = build_rdma_devices(read_rdma(str(tmp_path)))
    assert [device.name for device in devices] == [*(f"mlx5_{n}" for n in (0, 1, 4, 5, 6, 7, 8, 9)), "mlx5_bond_0"]
    assert {device.hca_type for device in devices} == {"MT4129", "MT41692"}
    assert {device.firmware for device in devices} == {"28.41.1000", "32.38.3056"}
    assert Counter((port.state, port.phys_state, port.rate_gbps, port.link_layer) for port in ports_of(devices)) == {
        ("ACTIVE", "LinkUp", 400.0, "InfiniBand"): 8,
        ("ACTIVE", "LinkUp", 200.0, "Ethernet"): 1,
    }
    assert devices[-1].model == "BlueField-3"
