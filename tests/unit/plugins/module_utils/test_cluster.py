# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    Reason,
    build_cluster,
    check_members,
    is_hostname,
    normalise_address,
    planned_ranks,
    to_dict,
)


def host(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"n{number}", "address": f"10.0.0.{number}", **more}


def problems_of(*hosts: dict[str, Any], **options: Any) -> list[str]:
    with pytest.raises(ClusterError) as error:
        build_cluster(list(hosts), **options)
    return list(error.value.problems)


def job(**more: Any) -> Job:
    return Job(**{"run_id": "r1", "run_dir": "/runs/r1", "workdir": "/work", "script": "train.py", **more})


# The cluster


def test_ranks_are_dealt_node_by_node_and_slots_may_differ() -> None:
    cluster = build_cluster([host(1, slots=2), host(2, slots="1"), host(3, gpus=[{"index": 0}, {"index": 1}])])
    assert [(rank.rank, rank.local_rank, rank.node) for rank in planned_ranks(cluster)] == [
        (0, 0, "n1"),
        (1, 1, "n1"),
        (2, 0, "n2"),
        (3, 0, "n3"),
        (4, 1, "n3"),
    ]
    assert cluster.world_size == 5
    assert [cluster.first_rank(node) for node in cluster.nodes] == [0, 2, 3]


@pytest.mark.parametrize(("head", "order"), [(None, "n1 n2 n3"), ("n1", "n1 n2 n3"), ("n3", "n3 n1 n2")])
def test_the_head_comes_first_and_the_others_keep_their_order(head: str | None, order: str) -> None:
    cluster = build_cluster([host(1), host(2), host(3)], head=head)
    assert [node.name for node in cluster.nodes] == order.split()
    assert [node.node_rank for node in cluster.nodes] == [0, 1, 2]
    assert cluster.master_address == cluster.head.address == f"10.0.0.{order[1]}"
    assert cluster.reasons[0].choice == cluster.head.name


def test_what_the_host_has_is_in_the_node() -> None:
    gpu = {"index": 0, "uuid": "GPU-1", "model": "H100", "architecture": "hopper", "memory_bytes": 85, "fan": 30}
    node = build_cluster(
        [
            host(
                1,
                address=" 2001:DB8:0::1 ",
                ssh_user="trainer",
                ssh_host="gw",
                ssh_port="2222",
                gpus=[gpu],
                hcas=["mlx5_0:1"],
                gid_index=3,
                interface="eth1",
                python="/opt/py",
                aliases=["left"],
            )
        ]
    ).head
    assert (node.address, node.ssh_user, node.ssh_host, node.ssh_port) == ("2001:db8::1", "trainer", "gw", 2222)
    assert (node.slots, node.gpus[0].model, node.hcas, node.gid_index) == (1, "H100", ("mlx5_0:1",), 3)
    assert (node.interface, node.python, node.aliases) == ("eth1", "/opt/py", ("left",))


def test_what_is_not_given_has_a_value_that_works() -> None:
    node = build_cluster([host(1)]).head
    assert (node.ssh_user, node.ssh_host, node.ssh_port, node.slots) == ("root", "10.0.0.1", 22, 1)
    assert node.python.startswith("/")


def test_reasons_are_kept_and_readable() -> None:
    cluster = build_cluster([host(1)], reasons=[Reason("network of n1", "eth1", "fastest")])
    assert list(map(str, cluster.reasons)) == ["head: n1 (first host of the group)", "network of n1: eth1 (fastest)"]


def test_nodes_are_found_by_name() -> None:
    cluster = build_cluster([host(1), host(2)])
    assert cluster.node("n2").address == "10.0.0.2"
    with pytest.raises(KeyError):
        cluster.node("n3")


def test_a_cluster_is_fit_for_json() -> None:
    cluster = build_cluster([host(1, gpus=[{"index": 0}]), host(2)])
    assert json.loads(json.dumps(to_dict(cluster)))["nodes"][1]["name"] == "n2"


# A sentence names the host, the value found, what is wanted, and the variable to change.


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"slots": 0}, ["n2", "torchfleet_slots", "0", "1 or more"]),
        ({"slots": -1}, ["n2", "torchfleet_slots", "-1", "1 or more"]),
        ({"slots": "two"}, ["n2", "torchfleet_slots", "'two'", "1 or more"]),
        ({"slots": 1.5}, ["n2", "torchfleet_slots", "1.5", "1 or more"]),
        ({"slots": True}, ["n2", "torchfleet_slots", "True", "1 or more"]),
        ({"slots": "²"}, ["n2", "torchfleet_slots", "'²'", "1 or more"]),
        ({"slots": ""}, ["n2", "torchfleet_slots", "''", "1 or more"]),
        ({"slots": [2]}, ["n2", "torchfleet_slots", "[2]", "1 or more"]),
        ({"gpus": 2}, ["n2", "torchfleet_gpus", "2", "torchfleet_slots"]),
        ({"gpus": ["GPU-1"]}, ["n2", "torchfleet_gpus", "['GPU-1']", "gpu_facts"]),
        ({"gpus": [{"uuid": "GPU-1"}]}, ["n2", "torchfleet_gpus", "GPU-1", "gpu_facts"]),
        ({"ssh_port": 0}, ["n2", "ssh port", "0", "1 to 65535", "ansible_port"]),
        ({"ssh_port": 65536}, ["n2", "ssh port", "65536", "1 to 65535", "ansible_port"]),
        ({"ssh_port": "ssh"}, ["n2", "ssh port", "'ssh'", "1 to 65535", "ansible_port"]),
        ({"ssh_port": 22.9}, ["n2", "ssh port", "22.9", "1 to 65535", "ansible_port"]),
        ({"ssh_port": float("inf")}, ["n2", "ssh port", "inf", "1 to 65535", "ansible_port"]),
        ({"python": "python3"}, ["n2", "torchfleet_python", "'python3'", "absolute path"]),
        ({"python": "/usr/bin/py\nthon"}, ["n2", "torchfleet_python", "absolute path"]),
        ({"address": None}, ["n2", "no address", "torchfleet_address"]),
        ({"address": ""}, ["n2", "no address", "torchfleet_address"]),
        ({"address": "n2.example.org"}, ["n2", "torchfleet_address", "'n2.example.org'", "IP address"]),
        ({"address": "10.0.0.300"}, ["n2", "torchfleet_address", "'10.0.0.300'", "IP address"]),
        ({"address": "10.0.0.2/24"}, ["n2", "torchfleet_address", "'10.0.0.2/24'", "IP address"]),
        ({"address": 167772162}, ["n2", "torchfleet_address", "'167772162'", "IP address"]),
        ({"address": "127.0.1.1"}, ["n2", "torchfleet_address", "127.0.1.1", "no peer can reach"]),
        ({"address": "::1"}, ["n2", "torchfleet_address", "::1", "no peer can reach"]),
        ({"address": "0.0.0.0"}, ["n2", "torchfleet_address", "0.0.0.0", "no peer can reach"]),
        ({"address": "224.0.0.1"}, ["n2", "torchfleet_address", "224.0.0.1", "no peer can reach"]),
        ({"address": "fe80::2"}, ["n2", "torchfleet_address", "fe80::2", "link-local"]),
        ({"address": "10.0.0.1"}, ["n1 and n2", "10.0.0.1", "torchfleet_address"]),
        ({"name": "n1"}, ["'n1'", "more than one host", "hosts_hostname"]),
        ({"name": "N2"}, ["'N2'", "not a valid host name", "hosts_hostname"]),
        ({"name": "localhost"}, ["'localhost'", "loopback", "hosts_hostname"]),
        ({"name": "localhost.localdomain"}, ["'localhost.localdomain'", "loopback", "hosts_hostname"]),
        ({"aliases": ["a b"]}, ["n2", "'a b'", "hosts_aliases"]),
        ({"aliases": ["localhost"]}, ["n2", "'localhost'", "hosts_aliases"]),
        ({"aliases": ["n1"]}, ["n2", "'n1'", "hosts_aliases", "name of n1 too"]),
        ({"aliases": ["left"]}, ["n2", "'left'", "hosts_aliases", "name of n1 too"]),
    ],
)
def test_one_bad_host_is_one_sentence_that_names_it(more: dict[str, Any], said: list[str]) -> None:
    problems = problems_of(host(1, aliases=["left"]), host(2, **more))
    assert len(problems) == 1
    for words in said:
        assert words in problems[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"head": "n7"}, ["torchfleet_head", "'n7'", "n1, n2"]),
        ({"head": ""}, ["torchfleet_head", "''", "n1, n2"]),
        ({"transport": "rdma"}, ["torchfleet_transport", "'rdma'", "tcp, ib, roce"]),
        ({"master_port": 80}, ["torchfleet_master_port", "80", "1024 to 65535"]),
        ({"master_port": 70000}, ["torchfleet_master_port", "70000", "1024 to 65535"]),
        ({"master_port": "29500x"}, ["torchfleet_master_port", "'29500x'", "1024 to 65535"]),
        ({"master_port": None}, ["torchfleet_master_port", "None", "1024 to 65535"]),
        ({"master_port": True}, ["torchfleet_master_port", "True", "1024 to 65535"]),
        ({"master_port": float("nan")}, ["torchfleet_master_port", "nan", "1024 to 65535"]),
        ({"master_port": "2222"}, ["torchfleet_master_port", "2222", "sshd of n2"]),
    ],
)
def test_one_bad_choice_is_one_sentence(options: dict[str, Any], said: list[str]) -> None:
    problems = problems_of(host(1), host(2, ssh_port=2222), **options)
    assert len(problems) == 1
    for words in said:
        assert words in problems[0]


def test_every_culprit_is_named_at_once() -> None:
    problems = problems_of(host(1, slots=0), {"name": "B!", "address": "x"}, host(3, ssh_port=-1), transport="ipoac")
    assert len(problems) == 5
    for words in ("'B!' is not a valid", "B!: torchfleet_address", "n1: torchfleet_slots", "n3: ssh port", "'ipoac'"):
        assert any(words in problem for problem in problems)


def test_a_name_used_three_times_is_said_once() -> None:
    hosts = [{"name": "n1", "address": f"10.0.0.{number}"} for number in (1, 2, 3)]
    assert len(check_members(hosts)) == 1


def test_an_empty_group_says_what_to_do() -> None:
    assert problems_of() == ["the cluster has no nodes: put hosts into the group named by torchfleet_group"]


def test_an_alias_may_be_given_twice_to_its_own_host() -> None:
    assert check_members([host(1, aliases=["left", "left", "n1"])]) == []


def test_the_same_address_in_two_spellings_is_one_address() -> None:
    problems = check_members([host(1, address="fd00::1"), host(2, address="FD00:0:0::0001")])
    assert problems == ["n1 and n2 both have the address fd00::1: set torchfleet_address of one of them"]


@pytest.mark.parametrize("name", ["n1", "a", "gpu-01", "rack1.gpu-01", "1st", "n1.example.org", "a" * 63])
def test_names_that_hosts_have(name: str) -> None:
    assert is_hostname(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-n1",
        "n1-",
        "n1.",
        ".n1",
        "n..1",
        "N1",
        "n_1",
        "n 1",
        "n1\n",
        "n1;rm",
        "$(x)",
        "123",
        "10.0.0.1",
        "a" * 64,
        "nöde",
    ],
)
def test_names_that_no_host_may_have(name: str) -> None:
    assert not is_hostname(name)


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.1", "10.0.0.1"), (" fd00:0::1\n", "fd00::1"), ("n1", None), (None, None), ("", None), ("10.1", None)],
)
def test_normalise_address(text: Any, address: str | None) -> None:
    assert normalise_address(text) == address


# The job


def test_a_job_runs_a_script_or_a_module() -> None:
    assert job(args=("--lr", "0.1")).payload == ("train.py", "--lr", "0.1")
    assert job(script=None, module="pkg.train", args=("x",)).payload == ("-m", "pkg.train", "x")


@pytest.mark.parametrize("run_id", ["r", "digits-20261121-101500", "a.b_c-d", "9", "x" * 63])
def test_run_ids(run_id: str) -> None:
    assert job(run_id=run_id).run_id == run_id


@pytest.mark.parametrize("arg", ["", "two words", "$(reboot)", "; rm -rf /", "new\nline", "'\"", "--", "*", "ünï"])
def test_any_argument_a_shell_would_trip_over_is_passed_on(arg: str) -> None:
    assert job(args=(arg,), env={"X": arg}).payload[-1] == arg


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"run_id": ""}, ["''", "launch_run_id"]),
        ({"run_id": "../up"}, ["'../up'", "launch_run_id"]),
        ({"run_id": ".hidden"}, ["'.hidden'", "launch_run_id"]),
        ({"run_id": "-rf"}, ["'-rf'", "launch_run_id"]),
        ({"run_id": "a b"}, ["'a b'", "launch_run_id"]),
        ({"run_id": "a\n"}, ["launch_run_id"]),
        ({"run_id": "x" * 64}, ["launch_run_id"]),
        ({"run_id": "%n"}, ["'%n'", "launch_run_id"]),
        ({"script": None}, ["launch_script", "launch_module"]),
        ({"module": "m"}, ["launch_script", "launch_module"]),
        ({"workdir": "work"}, ["working directory", "'work'", "absolute"]),
        ({"workdir": "/a\nb"}, ["working directory", "one line"]),
        ({"run_dir": "runs"}, ["run directory", "'runs'", "absolute"]),
        ({"env": {"A=B": "x"}}, ["launch_env", "'A=B'"]),
        ({"env": {"": "x"}}, ["launch_env", "''"]),
        ({"env": {"1A": "x"}}, ["launch_env", "'1A'"]),
        ({"env": {"A\n": "x"}}, ["launch_env"]),
        ({"env": {"A": "x\0y"}}, ["launch_env", "A", "NUL"]),
        ({"env": {"TORCHFLEET_RUN_ID": "other"}}, ["launch_env", "TORCHFLEET_RUN_ID"]),
        ({"secret_env": ("bad name",)}, ["launch_secret_env", "'bad name'"]),
        ({"secret_env": ("TORCHFLEET_RUN_ID",)}, ["launch_secret_env", "TORCHFLEET_RUN_ID"]),
        ({"env": {"TOKEN": "x"}, "secret_env": ("TOKEN",)}, ["TOKEN", "launch_env", "launch_secret_env"]),
        ({"args": ("a\0b",)}, ["NUL"]),
        ({"time_limit": -1}, ["launch_time_limit", "-1", "seconds"]),
        ({"time_limit": float("inf")}, ["launch_time_limit", "inf", "seconds"]),
        ({"stop_grace": float("nan")}, ["launch_stop_grace", "nan", "seconds"]),
    ],
)
def test_a_job_that_cannot_be_run_says_why(more: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ClusterError) as error:
        job(**more)
    assert len(error.value.problems) == 1
    for words in said:
        assert words in error.value.problems[0]


def test_a_cluster_error_is_one_text_with_a_line_per_problem() -> None:
    assert str(ClusterError(["one", "two"])) == "one\ntwo"


def test_planned_ranks_of_a_single_node() -> None:
    cluster: Cluster = build_cluster([host(1)])
    assert [(rank.rank, rank.node) for rank in planned_ranks(cluster)] == [(0, "n1")]
