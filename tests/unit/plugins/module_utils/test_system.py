# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _system

NFT = """table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state invalid counter packets 3 bytes 120 drop
		ct state established,related accept
		tcp dport 22 accept
		tcp dport 32768-60999 counter packets 5 bytes 300 drop
		reject with icmpx admin-prohibited
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
table ip nat {
	chain DOCKER {
		iifname "docker0" counter packets 0 bytes 0 drop
	}
}
"""
IPTABLES = """-P INPUT ACCEPT
-P FORWARD DROP
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -p tcp -m tcp --dport 29500 -j REJECT --reject-with icmp-port-unreachable
-A DOCKER -j DROP
"""
CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /root/.ssh/known_hosts:7
Host key for node2 has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    "out, wanted",
    [
        (
            "torchfleet-check\n64\nunlimited\n1024\n1048576\n/usr/local/cuda/lib64\n",
            ("", 65536, -1, 1024, 1048576, "/usr/local/cuda/lib64"),
        ),
        (
            "Welcome\nto it\ntorchfleet-check\nunlimited\nunlimited\n1024\n4096\n\n",
            ("Welcome\nto it\n", -1, -1, 1024, 4096, ""),
        ),
        ("torchfleet-check\n", ("", None, None, None, None, "")),
    ],
)
def test_ssh_answer(out, wanted):
    told = _system.read_ssh(out)
    assert (
        told["noise"],
        told["memlock_soft"],
        told["memlock_hard"],
        told["nofile_soft"],
        told["nofile_hard"],
        told["ld_library_path"],
    ) == wanted


@pytest.mark.parametrize(
    "err, words",
    [
        (CHANGED, "its host key has changed (the known one is in /root/.ssh/known_hosts:7)"),
        (
            "Warning: Permanently added 'x'.\r\nroot@node2: Permission denied (publickey).\r\n",
            "root@node2: Permission denied (publickey).",
        ),
        ("", "exit status 255"),
    ],
)
def test_ssh_problem(err, words):
    assert _system.ssh_problem(err, 255) == words


def test_services_that_exist():
    text = (
        "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=chrony.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
    )
    assert _system.parse_services(text) == {"nvidia-persistenced": {"active": "active", "enabled": "enabled"}}
    assert _system.parse_services("") == {}


def test_rules_of_the_way_in():
    assert _system.parse_firewall(NFT, "") == [
        "chain input: policy drop",
        "tcp dport 32768-60999 drop",
        "reject with icmpx admin-prohibited",
    ]
    assert _system.parse_firewall("", IPTABLES) == [
        "-A INPUT -p tcp -m tcp --dport 29500 -j REJECT --reject-with icmp-port-unreachable"
    ]
    assert _system.parse_firewall("", "-P INPUT DROP\n") == ["-P INPUT DROP"]


STATUS = """Package: nvidia-driver-580-server
Status: install ok installed

Package: libnvidia-compute-580
Status: hold ok installed

Package: nvidia-cuda-toolkit
Status: install ok installed

Package: cuda-drivers
Status: deinstall ok config-files

Package: bash
Status: install ok installed
"""


def test_driver_packages():
    assert _system.driver_packages(STATUS) == (["nvidia-driver-580-server"], ["libnvidia-compute-580"])


@pytest.mark.parametrize(
    "config, wanted",
    [
        ('APT::Periodic::Unattended-Upgrade "1";\n', (True, [])),
        ('APT::Periodic::Unattended-Upgrade "0";\n', (False, [])),
        ('APT::Periodic::Enable "0";\nAPT::Periodic::Unattended-Upgrade "1";\n', (False, [])),
        (
            'APT::Periodic::Unattended-Upgrade "1";\nUnattended-Upgrade::Package-Blacklist "";\n'
            'Unattended-Upgrade::Package-Blacklist:: "nvidia-";\n',
            (True, ["nvidia-"]),
        ),
        ("", (False, [])),
    ],
)
def test_apt_upgrades(config, wanted):
    assert _system.apt_upgrades(config) == wanted


def test_packages_that_are_left_alone():
    packages = ["nvidia-driver-580", "libnvidia-compute-580", "cuda-drivers"]
    assert _system.without_blacklisted(packages, ["nvidia-", "lib(nvidia", "cuda-drivers$"]) == [
        "libnvidia-compute-580"
    ]


@pytest.mark.parametrize(
    "running, installed, newer",
    [
        ("6.1.0-28-amd64", ["6.1.0-28-amd64", "6.1.0-30-amd64"], "6.1.0-30-amd64"),
        ("6.1.0-9-amd64", ["6.1.0-9-amd64", "6.1.0-10-amd64"], "6.1.0-10-amd64"),
        ("6.1.0-30-amd64", ["6.1.0-28-amd64", "6.1.0-30-amd64"], ""),
        ("6.1.0-28-amd64", ["6.1.0-28-amd64", "6.1.0-30-rt-amd64"], ""),
        ("6.18.44", ["6.1.0-28-amd64"], ""),
        ("6.18.44", [], ""),
        ("5.14.0-427.el9.x86_64", ["5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64"], "5.14.0-503.el9.x86_64"),
    ],
)
def test_newer_kernel(running, installed, newer):
    assert _system.newer_kernel(running, installed) == newer


def test_sockets_that_listen():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n"
        "   1: 0100007F:733C 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n"
        "   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1\n"
    )
    assert _system.listening_inodes(table, 29500) == {"4711": "00000000"}


def test_link_is_held_against_card_and_slot():
    device = {
        "current_link_width": "8\n",
        "max_link_width": "16\n",
        "current_link_speed": "8.0 GT/s PCIe\n",
        "max_link_speed": "32.0 GT/s PCIe",
    }
    slot = {"max_link_width": "8\n", "max_link_speed": "16.0 GT/s PCIe"}
    assert _system.pcie_link(device, slot) == {"width": 8, "width_max": 8, "speed": 8.0, "speed_max": 16.0}
    assert _system.pcie_link({"current_link_width": "255", "max_link_width": "255"}, {})["width"] is None


@pytest.mark.parametrize("text, version", [("Fabric Manager version is : 580.65.06\n", "580.65.06"), ("", "")])
def test_fabric_manager(text, version):
    assert _system.parse_fabric_manager(text) == version


@pytest.mark.parametrize(
    "text",
    [
        "num_machines: 2\nmain_process_ip: 10.0.0.9\nmixed_precision: 'no'\n",
        '{\n  "num_machines": 2,\n  "main_process_ip": "10.0.0.9"\n}',
    ],
)
def test_accelerate_lines(text):
    assert _system.accelerate_lines(text) == ["num_machines: 2", "main_process_ip: 10.0.0.9"]
