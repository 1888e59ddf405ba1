# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ansible", reason="the helper raises ansible-core's errors")

from ansible.errors import AnsibleActionFail

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import (
    cluster_from_task_vars,
    launch_problems,
    members,
    node_name,
)

GPUS = [{"index": 0, "uuid": "GPU-1"}, {"index": 1, "uuid": "GPU-2"}]


def task_vars(hosts: dict[str, dict[str, Any]], group: str = "train", **common: Any) -> dict[str, Any]:
    hostvars = {name: {**common, **own} for name, own in hosts.items()}
    first = next(iter(hosts), "n1")
    return {"groups": {group: list(hosts)}, "hostvars": hostvars or {first: common}, "inventory_hostname": first}


def choice(number: int, **more: Any) -> dict[str, Any]:
    return {"address": f"10.0.0.{number}", "interface": f"ens{number}", **more}


def test_a_host_without_any_setting_is_what_ansible_reaches_it_by() -> None:
    cluster = cluster_from_task_vars(
        task_vars({"n1": {"ansible_host": "10.1.0.1"}, "n2": {"ansible_host": "10.1.0.2"}})
    )
    assert [(n.name, n.address, n.ssh_user, n.ssh_port, n.slots) for n in cluster.nodes] == [
        ("n1", "10.1.0.1", "root", 22, 1),
        ("n2", "10.1.0.2", "root", 22, 1),
    ]
    assert (cluster.master_port, cluster.transport) == (29500, "tcp")


def test_what_is_set_outranks_what_ansible_uses() -> None:
    host = {
        "hosts_hostname": "node1",
        "ansible_host": "198.51.100.1",
        "ansible_user": "admin",
        "ansible_port": 2200,
        "torchfleet_address": "10.0.0.1",
        "torchfleet_user": "trainer",
        "torchfleet_ssh_port": 2222,
        "torchfleet_slots": 1,
        "torchfleet_gpus": GPUS,
        "torchfleet_python": "/opt/py/bin/python",
        "torchfleet_interface": "bond0",
    }
    node = cluster_from_task_vars(task_vars({"a": host})).head
    assert (node.name, node.address, node.interface) == ("node1", "10.0.0.1", "bond0")
    assert (node.ssh_user, node.ssh_host, node.ssh_port) == ("trainer", "198.51.100.1", 2222)
    assert (node.slots, len(node.gpus), node.gpus[1].uuid, node.python) == (1, 2, "GPU-2", "/opt/py/bin/python")


def test_the_chosen_network_outranks_the_address_that_ansible_uses() -> None:
    chosen = choice(1, hcas=["mlx5_0:1"], gid_index=3, transport="roce", reason="every pair connects, 100 Gb/s")
    cluster = cluster_from_task_vars(
        task_vars({"n1": {"ansible_host": "192.0.2.1", "torchfleet_network_choice": chosen}})
    )
    node = cluster.head
    assert (node.address, node.interface, node.hcas, node.gid_index) == ("10.0.0.1", "ens1", ("mlx5_0:1",), 3)
    assert cluster.transport == "roce"
    assert "network of n1: ens1 (every pair connects, 100 Gb/s)" in map(str, cluster.reasons)


def test_another_address_set_by_hand_drops_the_interface_of_the_choice() -> None:
    hosts = {"n1": {"torchfleet_address": "10.9.9.9", "torchfleet_network_choice": choice(1, hcas=["mlx5_0"])}}
    node = cluster_from_task_vars(task_vars(hosts)).head
    assert (node.address, node.interface, node.hcas) == ("10.9.9.9", None, ())


def test_one_node_without_rdma_makes_it_tcp_for_all() -> None:
    hosts = {
        "n1": {"torchfleet_network_choice": choice(1, transport="ib")},
        "n2": {"torchfleet_network_choice": choice(2, transport="tcp")},
    }
    assert cluster_from_task_vars(task_vars(hosts)).transport == "tcp"
    # As roles nccl_env and the network's choice advise; it is no transport, but the leave to choose one.
    assert cluster_from_task_vars(task_vars(hosts, torchfleet_transport="auto")).transport == "tcp"


@pytest.mark.parametrize("head", ["rack-b", "n2"])
def test_the_head_may_be_given_by_either_of_its_names(head: str) -> None:
    hosts = {
        "rack-a": {"hosts_hostname": "n1", "torchfleet_address": "10.0.0.1"},
        "rack-b": {"hosts_hostname": "n2", "torchfleet_address": "10.0.0.2"},
    }
    cluster = cluster_from_task_vars(task_vars(hosts, torchfleet_head=head))
    assert [node.name for node in cluster.nodes] == ["n2", "n1"]
    assert cluster.master_address == "10.0.0.2"


@pytest.mark.parametrize("aliases", [["left", "gpu-1"], "left gpu-1"])
def test_aliases_are_a_list_or_a_text(aliases: Any) -> None:
    hosts = {"n1": {"torchfleet_address": "10.0.0.1", "hosts_aliases": aliases}}
    assert cluster_from_task_vars(task_vars(hosts)).head.aliases == ("left", "gpu-1")


def test_another_group_and_overrides() -> None:
    variables = task_vars({"n1": {"torchfleet_address": "10.0.0.1"}}, group="lab", torchfleet_group="lab")
    assert cluster_from_task_vars(variables, master_port=30000).master_port == 30000
    assert [host["name"] for host in members(variables)] == ["n1"]


def test_node_name_is_the_name_in_the_cluster() -> None:
    assert node_name(task_vars({"rack-a": {"hosts_hostname": "n1"}})) == "n1"
    assert node_name(task_vars({"n7": {}})) == "n7"


@pytest.mark.parametrize(
    ("hosts", "common", "said"),
    [
        ({"n1": {"ansible_host": "gateway.example"}}, {}, ["n1 has no address on the training network"]),
        ({"n1": {}}, {"torchfleet_group": "gpus"}, ["the inventory has no group 'gpus'", "torchfleet_group"]),
        ({}, {}, ["the cluster has no nodes"]),
        (
            {"N1": {"torchfleet_address": "10.0.0.1"}, "n2": {"torchfleet_address": "10.0.0.1"}},
            {},
            ["'N1' is not a valid host name", "both have the address 10.0.0.1"],
        ),
        ({"n1": {"torchfleet_address": "10.0.0.1"}}, {"torchfleet_master_port": 80}, ["torchfleet_master_port is 80"]),
        (
            {"n1": {"torchfleet_address": "10.0.0.1", "ansible_port": 29500}},
            {},
            ["torchfleet_master_port 29500 is where sshd of n1 listens"],
        ),
        ({"n1": {"torchfleet_address": "10.0.0.1"}}, {"torchfleet_head": "n9"}, ["torchfleet_head is 'n9'"]),
        (
            {"n1": {"torchfleet_network_choice": "eth0"}},
            {},
            ["n1: torchfleet_network_choice is 'eth0', wanted a mapping"],
        ),
        (
            {"n1": {"torchfleet_network_choice": choice(1)}, "n2": {"ansible_host": "192.0.2.2"}},
            {},
            ["no network was chosen for n2", "run without --limit"],
        ),
        (
            {
                "n1": {"torchfleet_address": "10.0.0.1", "torchfleet_gpus": GPUS},
                "n2": {"torchfleet_address": "10.0.0.2"},
            },
            {},
            ["the GPUs of n2 are not known", "torchfleet_slots"],
        ),
    ],
)
def test_what_is_wrong_is_said(hosts: Any, common: Any, said: list[str]) -> None:
    with pytest.raises(AnsibleActionFail) as error:
        cluster_from_task_vars(task_vars(hosts, **common))
    for sentence in said:
        assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("hosts", "common", "said"),
    [
        ({"n1": {}, "n2": {}}, {"torchfleet_head": "n9"}, ["torchfleet_head is 'n9'"]),
        ({"n1": {}}, {"torchfleet_master_port": 99999}, ["torchfleet_master_port is 99999"]),
        ({"n1": {}}, {"torchfleet_root": "runs"}, ["torchfleet_root is 'runs', wanted an absolute path"]),
        ({"n1": {}}, {"torchfleet_root": "/srv/runs"}, []),
        ({"n1": {}, "n2": {"hosts_aliases": ["n1"]}}, {}, ["n2: 'n1' in hosts_aliases is a name of n1 too"]),
        ({"GPU_01": {}, "n2": {}}, {}, ["'GPU_01' is not a valid host name"]),
        ({"n1": {"torchfleet_address": "10.0.0.300"}}, {}, ["n1: torchfleet_address is '10.0.0.300'"]),
        (
            {"n1": {"torchfleet_slots": "x"}, "n2": {"torchfleet_python": "python"}},
            {},
            ["n1: torchfleet_slots is 'x'", "n2: torchfleet_python is 'python'"],
        ),
        ({"n1": {"torchfleet_network_choice": 3}}, {}, ["n1: torchfleet_network_choice is 3"]),
        # A launch chooses the address, and counts the GPUs, that the inventory does not tell.
        ({"n1": {"ansible_host": "gateway.example"}, "n2": {"ansible_host": "gateway.example"}}, {}, []),
        ({"n1": {"ansible_host": "10.0.0.9"}, "n2": {"ansible_host": "10.0.0.9"}}, {}, []),
        ({"n1": {"torchfleet_address": "10.0.0.1", "torchfleet_gpus": GPUS}, "n2": {}}, {}, []),
    ],
)
def test_what_a_launch_would_refuse(hosts: Any, common: Any, said: list[str]) -> None:
    found = launch_problems(task_vars(hosts, **common))
    assert len(found) == len(said)
    for problem, words in zip(found, said):
        assert words in problem
