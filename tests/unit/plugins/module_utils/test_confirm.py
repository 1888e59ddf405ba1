# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node saw, and whether the supposed cause is there."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis import _confirm
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rules import RULES

IP = """1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
1: lo    inet6 ::1/128 scope host \\       valid_lft forever preferred_lft forever
2: eth0@if7    inet 10.1.0.11/24 brd 10.1.0.255 scope global eth0\\       valid_lft forever preferred_lft forever
3: docker0    inet 172.17.0.1/16 brd 172.17.255.255 scope global docker0\\       valid_lft forever
"""
SS = """LISTEN 0      128          0.0.0.0:22         0.0.0.0:*    users:(("sshd",pid=400,fd=3))
LISTEN 0      1024               *:29500            *:*    users:(("python3",pid=4711,fd=9),("python3",pid=4712,fd=9))
LISTEN 0      5          127.0.0.1:2950         0.0.0.0:*
"""
INTERFACES = _confirm.addresses_by_interface(IP)
GIB = 1 << 30


def test_interfaces_and_their_addresses():
    assert INTERFACES == {"lo": ["127.0.0.1", "::1"], "eth0": ["10.1.0.11"], "docker0": ["172.17.0.1"]}


@pytest.mark.parametrize(
    "port, who",
    [("29500", "process 4711 (python3)"), ("2950", "a process"), ("9500", None), ("22", "process 400 (sshd)")],
)
def test_listeners(port, who):
    assert _confirm.listener_of(SS, port) == who


@pytest.mark.parametrize(
    "text, found",
    [("29500", ["29500"]), ("eth7, eth9", ["eth7", "eth9"]), ("<port>", []), ("an interface", []), ("", []), ("?", [])],
)
def test_values_leave_out_what_the_log_did_not_name(text, found):
    assert _confirm.values({"x": text}, "x") == found


@pytest.mark.parametrize(
    "probe, parameters, reading, holds, words",
    [
        ("interfaces", {}, {"interfaces": INTERFACES}, False, "docker0 and eth0 have addresses"),
        ("interfaces", {}, {"interfaces": {"lo": ["::1"]}}, True, "no interface but loopback"),
        ("interface_exists", {"interface": "eth7"}, {"interfaces": INTERFACES}, True, "there is no interface eth7"),
        ("interface_exists", {"interface": "eth0"}, {"interfaces": INTERFACES}, False, "eth0 is there"),
        ("interface_exists", {"interface": "an interface"}, {"interfaces": INTERFACES}, None, ""),
        (
            "interface_reachable",
            {},
            {"interfaces": INTERFACES, "tried": {"docker0": {"n2": "timeout", "n3": "unreachable"}}},
            True,
            "from docker0 n2 and n3 cannot be reached",
        ),
        (
            "interface_reachable",
            {},
            {"interfaces": INTERFACES, "tried": {"eth0": {"n2": "open", "n3": "refused"}}},
            False,
            "all peers are reached from eth0",
        ),
        ("interface_reachable", {}, {"interfaces": INTERFACES, "tried": {"ib9": {}}}, True, "no interface ib9"),
        ("resolve_own_name", {}, {"name": "n1", "addresses": ["127.0.1.1"]}, True, "n1 resolves to 127.0.1.1"),
        ("resolve_own_name", {}, {"name": "n1", "addresses": ["10.1.0.11"]}, False, "n1 resolves to 10.1.0.11"),
        ("resolve_own_name", {}, {"name": "n1", "addresses": []}, True, "does not resolve"),
        ("resolve_name", {"name": "head"}, {"names": {"head": []}}, True, "head cannot be resolved"),
        ("resolve_name", {"name": "head"}, {"names": {"head": ["10.0.0.1"]}}, False, "head resolves to 10.0.0.1"),
        ("tcp_port_taken", {}, {"ports": {"29500": "process 4711 (python3)"}}, True, "port 29500 is held by process 4711"),
        ("tcp_port_taken", {}, {"ports": {"29500": None}}, False, "nobody listens on port 29500"),
        ("tcp_port_reachable", {}, {"places": {"10.0.0.2 port 9": "timeout"}}, True, "10.0.0.2 port 9 cannot be reached"),
        ("host_reachable", {}, {"places": {"n2": "refused", "n3": "open"}}, False, "n2 and n3 can be reached"),
        ("peer_ports", {}, {"places": {"n2 port 9": "timeout", "n3 port 9": "refused"}}, True, "n2 port 9 cannot be reached (no answer)"),
        ("peer_ports", {}, {"places": {"n2 port 9": "refused"}}, None, "n2 port 9 can be reached"),
        ("shm_free", {}, {"size": 8 * GIB, "free": 10 << 20}, True, "8192 MiB, of which 10 MiB are free"),
        ("shm_free", {}, {"size": 64 << 20, "free": 64 << 20}, True, "64 MiB"),
        ("shm_free", {}, {"size": 8 * GIB, "free": 7 * GIB}, False, "7168 MiB are free"),
        ("disk_free", {}, {"disks": {"/": {"free": 9 * GIB, "inodes": 0}, "/tmp": {"free": GIB, "inodes": 5}}}, True, "/ has"),
        ("disk_free", {}, {"disks": {"/": {"free": 9 * GIB, "inodes": 7}}}, False, "9216 MiB and more are free"),
        ("nofile", {}, {"limit": 1024}, True, "limited to 1024"),
        ("nofile", {}, {"limit": 1048576}, False, "limited to 1048576"),
        ("memlock", {}, {"limit": None}, False, "unlimited"),
        ("memlock", {}, {"limit": 8 << 20}, True, "limited to 8388608"),
        ("path_exists", {}, {"paths": {"/opt/x/python": False}}, True, "/opt/x/python is not there"),
        ("library_present", {}, {"paths": {"libnccl.so.2": True}}, False, "libnccl.so.2 is there"),
        ("kernel_oom", {}, {"log": "[1] a\n[2] Out of memory: Killed process 7 (python)\n"}, True, "Killed process 7"),
        ("kernel_oom", {}, {"log": "[1] a\n"}, False, "has no process killed"),
        ("kernel_oom", {}, {"log": None}, None, ""),
        ("xid", {}, {"log": "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."}, True, "79"),
        ("driver_loaded", {}, {"there": False}, True, "no NVIDIA module"),
        ("driver_versions", {}, {"said": "Failed to initialize NVML: Driver/library version mismatch"}, True, "mismatch"),
        ("driver_versions", {}, {"said": "GPU 0: NVIDIA H100 (UUID: GPU-1)"}, False, "H100"),
        ("fabric_manager", {}, {"there": True}, False, "is active"),
        ("link_state", {}, {"interface": "eth1", "state": "down", "changes": 8}, True, "eth1 is down, 8 changes"),
        ("rdma_ports", {}, {"ports": {"mlx5_0:1": "4: ACTIVE", "mlx5_1:1": "1: DOWN"}}, True, "mlx5_1:1 not active"),
        ("rdma_ports", {}, {"ports": {}}, None, "no RDMA device"),
        ("ssh_pairs", {}, {"logins": {"n2": "", "n3": "Permission denied (publickey)."}}, True, "no login to n3"),
        ("ssh_pairs", {}, {"logins": {"n2": ""}}, False, "logs in to n2"),
        ("gpu_count", {}, {"gpus": 0}, True, "there is no GPU"),
        ("gpu_count", {}, {"gpus": 4}, None, "4 GPUs are there"),
        ("ranks_alive", {}, {"processes": 0}, None, "no process of the run is alive"),
    ],
)  # fmt: skip
def test_judgement(probe, parameters, reading, holds, words):
    found = _confirm.judge(probe, parameters, reading)
    assert found[0] is holds
    assert words in found[1]


def test_every_probe_that_is_answered_is_asked_by_a_rule():
    assert set(_confirm.IDS) <= {rule.probe for rule in RULES}


def test_one_node_is_enough_to_confirm():
    answers = {
        "n1": {"holds": True, "sentence": "port 29500 is held by process 1 (x)"},
        "n2": {"holds": False, "sentence": "nobody listens on port 29500"},
    }
    told = _confirm.combine(answers)
    assert told["confirmed"] is True
    assert told["sentence"] == "n1: port 29500 is held by process 1 (x)"
    assert set(told["nodes"]) == {"n1", "n2"}


def test_what_no_node_has_is_not_so_and_who_is_silent_is_said():
    free = {"holds": False, "sentence": "it is free"}
    told = _confirm.combine({"n1": free, "n2": free}, ["n3"])
    assert (told["confirmed"], told["sentence"]) == (False, "n1 and n2: it is free; n3: no answer")


def test_nodes_that_cannot_tell_say_nothing():
    assert _confirm.combine({"n1": {"holds": None, "sentence": ""}}) is None
    told = _confirm.combine({"n1": {"holds": None, "sentence": "3 processes of the run are alive"}})
    assert told["confirmed"] is None
