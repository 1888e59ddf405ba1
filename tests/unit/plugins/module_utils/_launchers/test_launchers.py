# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    ClusterError,
    Job,
    LaunchPlan,
    build_cluster,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import LAUNCHERS, plan

HOSTS: list[dict[str, Any]] = [
    {"name": "n1", "address": "10.0.0.1", "interface": "eth1", "slots": 2, "python": "/opt/a/bin/python"},
    {"name": "n2", "address": "10.0.0.2", "interface": "enp9s0", "slots": 2, "python": "/opt/b/bin/python3"},
]
ALIKE = [{**host, "python": "/opt/a/bin/python"} for host in HOSTS]


def make(*hosts: dict[str, Any], **more: Any) -> LaunchPlan:
    job = {
        "run_id": "r1",
        "run_dir": "/runs/r1",
        "workdir": "/work/my code",
        "script": "train.py",
        "lib": "/lib",
        **more,
    }
    return plan(build_cluster(list(hosts or HOSTS)), Job(**job))


def test_torchruns_command_to_the_last_argument() -> None:
    made = make(args=("--lr", "0.1", "two words", ""))
    assert made.node("n2").argv == (
        "/opt/b/bin/python3",
        "-m",
        "torch.distributed.run",
        "--nnodes=2",
        "--nproc-per-node=2",
        "--node-rank=1",
        "--master-addr=10.0.0.1",
        "--master-port=29500",
        "--max-restarts=0",
        "--no-python",
        "/opt/b/bin/python3",
        "-u",
        "/lib/rank.py",
        "/runs/r1",
        "/opt/b/bin/python3",
        "-u",
        "train.py",
        "--lr",
        "0.1",
        "two words",
        "",
    )
    assert made.node("n2").cwd == "/work/my code"


def test_a_module_is_run_with_m() -> None:
    argv = make(script=None, module="pkg.train", args=("x",)).node("n1").argv
    assert argv[-5:] == ("/opt/a/bin/python", "-u", "-m", "pkg.train", "x")


@pytest.mark.parametrize("slots", [(1, 1), (2, 2), (1, 3), (4, 1)])
def test_each_node_starts_as_many_ranks_as_it_has_slots(slots: tuple[int, int]) -> None:
    made = make(*({**host, "slots": count} for host, count in zip(HOSTS, slots)))
    assert [node.argv[4] for node in made.nodes] == [f"--nproc-per-node={count}" for count in slots]
    assert [node.argv[5] for node in made.nodes] == ["--node-rank=0", "--node-rank=1"]
    assert made.world_size == len(made.ranks) == sum(slots)
    assert [rank.rank for rank in made.ranks if rank.node == "n2"] == list(range(slots[0], sum(slots)))


def test_every_node_is_told_the_same_meeting_point() -> None:
    made = make(*HOSTS, {"name": "n3", "address": "10.0.0.3"})
    assert {node.argv[3] for node in made.nodes} == {"--nnodes=3"}
    assert {node.argv[6:8] for node in made.nodes} == {("--master-addr=10.0.0.1", "--master-port=29500")}
    assert (made.master_address, made.master_port) == ("10.0.0.1", 29500)


def test_a_nodes_environment_is_its_own() -> None:
    one, two = make().nodes
    assert (one.env["GLOO_SOCKET_IFNAME"], two.env["GLOO_SOCKET_IFNAME"]) == ("eth1", "enp9s0")
    assert one.env["PATH"].split(":")[0] == "/opt/a/bin"
    assert "/usr/bin" in one.env["PATH"].split(":")
    assert {name: two.env[name] for name in two.env if name.startswith("TORCHFLEET_")} == {
        "TORCHFLEET_RUN_ID": "r1",
        "TORCHFLEET_NODE": "n2",
        "TORCHFLEET_RUN_DIR": "/runs/r1",
        "TORCHFLEET_OUTPUT_DIR": "/runs/r1/output",
        "TORCHFLEET_ATTEMPT": "1",
    }


def test_the_jobs_environment_wins_over_ours() -> None:
    env = make(env={"OMP_NUM_THREADS": "8", "GLOO_SOCKET_IFNAME": "eth9", "MINE": "a b"}).node("n1").env
    assert (env["OMP_NUM_THREADS"], env["GLOO_SOCKET_IFNAME"], env["MINE"]) == ("8", "eth9", "a b")


def test_every_value_of_the_environment_is_text() -> None:
    assert {type(value) for node in make().nodes for value in node.env.values()} == {str}


def test_no_value_of_a_secret_can_be_in_a_plan() -> None:
    assert "TOKEN" not in make(secret_env=("TOKEN",)).node("n1").env


@pytest.mark.parametrize("name", ["", "Torchrun", "mpi", "torchrun "])
def test_an_unknown_launcher_is_named_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ClusterError) as error:
        make(launcher=name)
    assert error.value.problems[0].startswith(f"launch_launcher is {name!r}, wanted one of: ")
    for known in LAUNCHERS:
        assert known in error.value.problems[0]


@pytest.mark.parametrize("name", sorted(LAUNCHERS))
def test_a_plan_bears_its_launchers_name(name: str) -> None:
    assert make(*ALIKE, launcher=name).launcher == name


@pytest.mark.parametrize("name", ["accelerate_pdsh", "mpirun", "slurm"])
def test_a_launcher_on_the_head_starts_our_shim_alone_on_all_nodes(name: str) -> None:
    made = make(*ALIKE, launcher=name, env={"A": "b"}, args=("two words",))
    assert [bool(node.argv) for node in made.nodes] == [True, False]
    told = " ".join([*made.nodes[0].argv, *made.nodes[0].files.values()])
    assert "/lib/rank.py /runs/r1" in told and "two words" not in told
    assert [node.rank and node.rank.argv[-1] for node in made.nodes] == ["two words"] * 2
    assert [(node.rank_env["A"], "A" in node.env) for node in made.nodes] == [("b", False)] * 2


@pytest.mark.parametrize("name", ["accelerate_pdsh", "mpirun", "slurm"])
def test_a_launcher_on_the_head_wants_the_same_interpreter_everywhere(name: str) -> None:
    with pytest.raises(ClusterError, match="torchfleet_python differs"):
        make(launcher=name)
