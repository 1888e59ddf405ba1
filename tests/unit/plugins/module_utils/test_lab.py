# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import configparser
import json
import shlex
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._lab import (
    LabError,
    default_nodes,
    default_subnet,
    inherited_pip,
    inventory,
    known_hosts,
    parse_pip_config,
    plan_lab,
)

NETWORKS: list[dict[str, Any]] = [{"name": "mgmt"}, {"name": "train", "rate": "100mbit"}]


def problems_of(prefix: str = "lab", networks: Any = NETWORKS, nodes: Any = ({"name": "n1"},)) -> list[str]:
    with pytest.raises(LabError) as error:
        plan_lab(prefix, networks, list(nodes))
    return list(error.value.problems)


def test_a_lab_of_which_only_the_size_is_given() -> None:
    lab = plan_lab("lab", NETWORKS, default_nodes(3))
    assert [node.container for node in lab.nodes] == ["lab-node1", "lab-node2", "lab-node3"]
    assert [(net.full_name, net.internal, net.rate) for net in lab.networks] == [
        ("lab-mgmt", False, None),
        ("lab-train", True, "100mbit"),
    ]
    links = lab.nodes[2].links
    assert [(link.interface, link.network, link.rate, link.prefix_length) for link in links] == [
        ("eth0", "lab-mgmt", None, 24),
        ("eth1", "lab-train", "100mbit", 24),
    ]
    assert [link.address.rsplit(".", 1)[1] for link in links] == ["13", "13"]
    assert (lab.nodes[0].release, lab.nodes[0].user, lab.nodes[0].ssh_port) == ("bookworm", "root", 22)


def test_a_node_of_its_own_kind() -> None:
    node = {
        "name": "odd",
        "release": 13,
        "user": "trainer",
        "ssh_port": "2222",
        "networks": ["train", {"name": "mgmt", "interface": "enp5s0", "address": "10.1.0.77", "rate": "1gbit"}],
        "vars": {"torchfleet_slots": 2},
    }
    lab = plan_lab("lab", [{"name": "mgmt", "subnet": "10.1.0.0/24"}, {"name": "train", "internal": False}], [node])
    odd = lab.nodes[0]
    assert (odd.release, odd.user, odd.ssh_port, odd.variables) == ("trixie", "trainer", 2222, {"torchfleet_slots": 2})
    assert [(link.interface, link.network) for link in odd.links] == [("eth0", "lab-train"), ("enp5s0", "lab-mgmt")]
    assert (odd.links[1].address, odd.links[1].rate) == ("10.1.0.77", "1gbit")
    assert not any(network.internal for network in lab.networks)


def test_a_network_may_be_ipv6() -> None:
    lab = plan_lab("lab", [{"name": "six", "subnet": "fd00:7::/64"}], default_nodes(2))
    assert [(node.links[0].address, node.links[0].prefix_length) for node in lab.nodes] == [
        ("fd00:7::b", 64),
        ("fd00:7::c", 64),
    ]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prefix": "Lab"}, ["lab_prefix", "'Lab'"]),
        ({"prefix": "a;b"}, ["lab_prefix", "'a;b'"]),
        ({"networks": []}, ["lab_networks is empty"]),
        ({"nodes": []}, ["lab_nodes is empty"]),
        ({"nodes": default_nodes(17)}, ["lab_nodes", "17", "16"]),
        ({"networks": [{"name": "a_b"}]}, ["lab_networks", "'a_b'"]),
        ({"networks": [{"name": "a"}, {"name": "a", "subnet": "10.1.0.0/24"}]}, ["lab_networks", "'a'", "twice"]),
        ({"networks": [{"name": "a", "subnet": "10.0.0.7/24"}]}, ["lab_networks: a", "10.0.0.7/24"]),
        (
            {"networks": [{"name": "a", "subnet": "10.0.0.0/29"}], "nodes": []},
            ["lab_networks: a", "10.0.0.0/29", "too small"],
        ),
        ({"networks": [{"name": "a", "rate": "fast"}]}, ["lab_networks: a", "'fast'", "100mbit"]),
        ({"networks": [{"name": "a", "rate": "1gbit; reboot"}]}, ["lab_networks: a", "rate"]),
        ({"nodes": [{"name": "n1"}, {"name": "n1"}]}, ["lab_nodes", "'n1'", "twice"]),
        ({"nodes": [{"name": "Node"}]}, ["lab_nodes", "'Node'"]),
        ({"nodes": [{"name": "n1", "release": "sid"}]}, ["lab_nodes: n1", "'sid'", "bookworm"]),
        ({"nodes": [{"name": "n1", "networks": ["wifi"]}]}, ["lab_nodes: n1", "'wifi'", "lab_networks"]),
        ({"nodes": [{"name": "n1", "networks": [{"name": "mgmt", "rate": "1"}]}]}, ["lab_nodes: n1", "'1'"]),
        ({"nodes": [{"name": "n1", "networks": [{"name": "mgmt", "interface": "a b"}]}]}, ["n1", "interface", "'a b'"]),
        ({"nodes": [{"name": "n1", "networks": [{"name": "mgmt", "interface": "e" * 16}]}]}, ["n1", "interface", "15"]),
        ({"nodes": [{"name": "n1", "networks": [{"name": "mgmt", "address": "192.0.2.1"}]}]}, ["n1", "192.0.2.1"]),
        ({"nodes": [{"name": "n1", "networks": [{"name": "mgmt", "address": "here"}]}]}, ["n1", "here"]),
        ({"nodes": [{"name": "n1", "networks": [{"name": "mgmt", "address": "fd00::1"}]}]}, ["n1", "fd00::1"]),
        ({"nodes": [{"name": "n1", "ssh_port": "ssh"}]}, ["lab_nodes: n1", "ssh_port", "'ssh'"]),
        ({"nodes": [{"name": "n1", "ssh_port": 70000}]}, ["lab_nodes: n1", "ssh_port", "70000"]),
        ({"nodes": [{"name": "n1", "user": "a'b; reboot"}]}, ["lab_nodes: n1", "user"]),
        (
            {
                "networks": [{"name": "a", "subnet": "10.0.0.0/24"}],
                "nodes": [{"name": "n1"}, {"name": "n2", "networks": [{"name": "a", "address": "10.0.0.11"}]}],
            },
            ["n1 and n2", "10.0.0.11"],
        ),
    ],
)
def test_a_lab_that_cannot_be_built_says_why(asked: dict[str, Any], said: list[str]) -> None:
    problems = problems_of(**asked)
    assert any(all(words in problem for words in said) for problem in problems), problems


def test_more_nodes_than_a_subnet_has_addresses_for_are_named() -> None:
    networks = [{"name": "a", "subnet": "10.0.0.0/28"}]
    assert len(plan_lab("lab", networks, default_nodes(4)).nodes) == 4
    problems = problems_of(networks=networks, nodes=default_nodes(6))
    assert [problem.split(":")[1].strip() for problem in problems] == ["node5", "node6"]


def test_every_problem_is_said_at_once() -> None:
    problems = problems_of("Lab", [{"name": "A"}], [{"name": "N", "release": "x"}])
    assert len(problems) == 4


def test_labs_of_different_prefixes_get_different_networks() -> None:
    subnets = {default_subnet(f"lab{number}", index) for number in range(3) for index in range(2)}
    assert len(subnets) == 6


def test_labs_whose_prefixes_lead_to_one_network_do_not_meet() -> None:
    # The two prefixes come to one number: the lab of `make demo`, and that of a scenario.
    alone = default_subnet("tfm-releases", 0)
    assert alone == default_subnet("tflab", 0) == "10.227.0.0/24"
    assert default_subnet("tfm-releases", 0, ["192.0.2.0/24", "fd00::/64", alone]) == "10.228.0.0/24"
    # An address of the machine itself, and the end of the range.
    assert default_subnet("tfm-releases", 0, ["10.227.0.1/24", "10.228.0.0/14", "10.232.0.0/13"]) == "10.240.0.0/24"
    assert default_subnet("tfm-releases", 0, ["10.227.0.0/24", "10.224.0.0/11"]) == "10.128.0.0/24"


def test_a_machine_without_a_free_network_is_told_what_to_set() -> None:
    with pytest.raises(LabError, match=r"10\.128\.1\.0/24 to 10\.247\.1\.0/24.*set subnet in lab_networks"):
        default_subnet("lab", 1, ["10.0.0.0/8"])


def test_a_network_that_is_there_keeps_its_addresses() -> None:
    there = {"lab-mgmt": "10.9.0.0/24", "other-train": "10.10.0.0/24"}
    taken = ["10.9.0.0/24", default_subnet("lab", 1)]
    lab = plan_lab("lab", [*NETWORKS, {"name": "own", "subnet": "10.11.0.0/24"}], default_nodes(1), there, taken)
    assert lab.networks[0].subnet == "10.9.0.0/24"
    assert lab.networks[1].subnet not in taken
    assert lab.networks[2].subnet == "10.11.0.0/24"


# pip's own settings, as nodes take them over


PIP = r"""
:env:.index-url='https://mirror.example/simple'
global.extra-index-url='\nhttps://one.example/simple\nhttps://two.example/simple'
global.find-links='/srv/wheels file:///srv/more/'
global.index-url='https://pypi.example/simple'
global.timeout='60'
global.default-timeout='60'
install.no-compile='yes'
warning without a value
"""


def test_pip_settings_of_the_environment_win() -> None:
    settings = parse_pip_config(PIP)
    assert settings["index-url"] == "https://mirror.example/simple"
    assert settings["extra-index-url"] == "https://one.example/simple https://two.example/simple"
    assert parse_pip_config("") == {}


def test_what_nodes_need_of_pips_settings_is_written_and_mounted() -> None:
    text, mounts = inherited_pip(parse_pip_config(PIP))
    config = configparser.RawConfigParser()
    config.read_string(text)
    assert dict(config["global"]) == {
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "https://one.example/simple https://two.example/simple",
        "find-links": "/srv/wheels file:///srv/more/",
        "default-timeout": "60",
    }
    assert mounts == ("/srv/more", "/srv/wheels")


@pytest.mark.parametrize(
    ("settings", "mounts"),
    [
        ({}, ()),
        ({"index-url": "https://x/simple"}, ()),
        ({"index-url": "file:///srv/index/simple/"}, ("/srv/index",)),
        ({"index-url": "file:///srv/index/simple", "find-links": "/srv/index"}, ("/srv/index",)),
        ({"cert": "/opt/company/ca.pem"}, ("/opt/company/ca.pem",)),
        ({"cert": "/etc/ssl/certs/company.pem"}, ()),
        ({"proxy": "/no/path"}, ()),
    ],
)
def test_folders_of_the_controller_are_mounted_where_pip_needs_them(
    settings: dict[str, str], mounts: tuple[str, ...]
) -> None:
    text, found = inherited_pip(settings)
    assert found == mounts
    assert all(f"{option} = {value}\n" in text for option, value in settings.items())


def test_the_inventory_says_how_to_reach_each_node() -> None:
    nodes = [{"name": "n1", "ssh_port": 2222, "user": "trainer", "vars": {"torchfleet_slots": 2}}, {"name": "n2"}]
    networks = [{"name": "mgmt", "subnet": "10.1.0.0/24"}, {"name": "train", "subnet": "10.2.0.0/24"}]
    group = json.loads(json.dumps(inventory(plan_lab("lab", networks, nodes), "gpu")))["gpu"]
    assert group["hosts"]["n1"] == {
        "ansible_host": "10.1.0.11",
        "ansible_port": 2222,
        "ansible_user": "trainer",
        "torchfleet_address": "10.2.0.11",
        "torchfleet_slots": 2,
    }
    assert "StrictHostKeyChecking=yes" in group["vars"]["ansible_ssh_common_args"]


def test_a_folder_with_a_blank_stays_one_word_for_ansible_and_one_file_for_ssh() -> None:
    arguments = inventory(plan_lab("lab", NETWORKS, default_nodes(1)), "gpu")["gpu"]["vars"]["ansible_ssh_common_args"]
    words = shlex.split(arguments.replace("{{ inventory_dir }}", "/srv/my lab"))
    assert words[:2] == ["-o", 'UserKnownHostsFile="/srv/my lab/known_hosts"']


def test_known_hosts_has_the_address_that_ansible_uses() -> None:
    lab = plan_lab("lab", [{"name": "a", "subnet": "10.1.0.0/24"}], [{"name": "n1", "ssh_port": 2222}, {"name": "n2"}])
    text = known_hosts({"n1": ["ssh-rsa AAAA root@debian"], "n2": ["ssh-rsa BBBB", "ssh-ed25519 CCCC x"]}, lab)
    assert text == "[10.1.0.11]:2222 ssh-rsa AAAA\n10.1.0.12 ssh-rsa BBBB\n10.1.0.12 ssh-ed25519 CCCC\n"
