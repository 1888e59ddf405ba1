# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every launcher's plan to the last argument, and what each refuses before anything is started."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    ClusterError,
    Job,
    LaunchPlan,
    build_cluster,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import LAUNCHERS, plan
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import network_of

PY = "/opt/v/bin/python"
LIB = "/var/lib/torchfleet/lib"
RANK = (PY, "-u", f"{LIB}/rank.py", "/runs/r1")
PAYLOAD = (PY, "-u", "train.py", "--x", "a b")
META = ("10.0.0.1", "29500")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def hosts(slots: tuple[int, ...] = (2, 1), **more: Any) -> list[dict[str, Any]]:
    return [
        {"name": f"n{i}", "address": f"10.0.0.{i}", "interface": f"eth{i}", "slots": count, "python": PY, **more}
        for i, count in enumerate(slots, 1)
    ]


def make(launcher: str, members: list[dict[str, Any]] | None = None, **more: Any) -> LaunchPlan:
    job = {
        "run_id": "r1",
        "run_dir": "/runs/r1",
        "workdir": "/work/my code",
        "script": "train.py",
        "args": ("--x", "a b"),
    }
    return plan(build_cluster(members or hosts()), Job(**{**job, "launcher": launcher, **more}))


def problems(launcher: str, members: list[dict[str, Any]] | None = None, **more: Any) -> str:
    with pytest.raises(ClusterError) as error:
        make(launcher, members, **more)
    return "\n".join(error.value.problems)


# To the last argument


def test_torchrun_c10d() -> None:
    made = make("torchrun", max_restarts=3, min_nodes=1, options={"join_timeout": 60, "last_call_timeout": "5"})
    assert made.node("n2").argv == (
        PY,
        "-m",
        "torch.distributed.run",
        "--nnodes=1:2",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=10.0.0.1:29500",
        "--rdzv-id=r1",
        "--rdzv-conf=is_host=false,join_timeout=60,last_call_timeout=5",
        "--local-addr=10.0.0.2",
        "--max-restarts=3",
        "--no-python",
        *RANK,
        *PAYLOAD,
    )
    assert "--rdzv-conf=is_host=true,join_timeout=60,last_call_timeout=5" in made.node("n1").argv
    assert made.node("n1").env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert (made.elastic, made.min_nodes) == (True, 1)


def test_torchrun_is_static_unless_something_needs_c10d() -> None:
    assert not make("torchrun").elastic
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in make("torchrun").node("n1").env
    assert make("torchrun", via="c10d").node("n1").argv[3] == "--nnodes=2:2"
    assert "--rdzv-conf=timeout=60" in make("torchrun", options={"join_timeout": 60}).node("n1").argv


def test_an_ipv6_endpoint_has_brackets() -> None:
    members = [{"name": "n1", "address": "fd00::1"}, {"name": "n2", "address": "fd00::2"}]
    assert "--rdzv-endpoint=[fd00::1]:29500" in make("torchrun", members, via="c10d").node("n2").argv
    assert make("python", members).node("n2").env["INIT_METHOD"] == "tcp://[fd00::1]:29500"


def test_accelerate() -> None:
    made = make("accelerate", hosts((2, 2)))
    command = (PY, "-m", "accelerate.commands.launch", "--config_file", "/runs/r1/accelerate.yaml", "--multi_gpu")
    assert made.node("n2").argv == (*command, "--no_python", *RANK, *PAYLOAD)
    assert made.node("n2").env["ACCELERATE_USE_CPU"] == "true"
    text = made.node("n2").files["/runs/r1/accelerate.yaml"]
    for line in ("machine_rank: 1", "num_processes: 4", 'main_process_ip: "10.0.0.1"', "main_process_port: 29500"):
        assert line in text.splitlines()
    assert any(str(reason).startswith("distributed_type: MULTI_CPU (no GPU is known") for reason in made.reasons)


def test_accelerate_takes_gpus_where_they_are_known() -> None:
    made = make("accelerate", hosts((2, 2), gpus=[{"index": 0}, {"index": 1}]), options={"mixed_precision": "bf16"})
    assert "--multi_gpu" not in made.node("n1").argv
    assert 'distributed_type: "MULTI_GPU"' in made.node("n1").files["/runs/r1/accelerate.yaml"]
    assert 'mixed_precision: "bf16"' in made.node("n1").files["/runs/r1/accelerate.yaml"]


def test_accelerate_with_deepspeed_without_ssh_has_its_hostfile() -> None:
    chosen = {"distributed_type": "DEEPSPEED", "deepspeed_launcher": "nossh"}
    made = make("accelerate", hosts((2, 2)), options=chosen, env={"MINE": "1"})
    files = made.node("n2").files
    assert files["/runs/r1/hostfile"] == "n1 slots=2\nn2 slots=2\n"
    assert 'deepspeed_hostfile: "/runs/r1/hostfile"' in files["/runs/r1/accelerate.yaml"]
    # Else DeepSpeed puts --local_rank between the interpreter and its arguments.
    assert files["/runs/r1/bin/deepspeed"].endswith(f'exec {PY} -m deepspeed.launcher.runner --no_local_rank "$@"\n')
    node = made.node("n2")
    assert node.env["PATH"].startswith("/runs/r1/bin:/opt/v/bin:")
    # Else accelerate writes the ranks' environment into the working directory.
    assert "MINE" not in node.env and node.cwd == "/runs/r1"
    assert node.rank is not None
    assert (node.rank.argv, node.rank.cwd, node.rank.env["MINE"]) == (PAYLOAD, "/work/my code", "1")
    assert node.argv[-2:] == (f"{LIB}/rank.py", "/runs/r1")


def test_accelerate_pdsh() -> None:
    made = make("accelerate_pdsh", hosts((2, 2)))
    command = (PY, "-m", "accelerate.commands.launch", "--config_file", "/runs/r1/accelerate.yaml")
    assert made.node("n1").argv == (*command, f"{LIB}/rank.py", "/runs/r1")
    env = made.node("n1").env
    assert env["PATH"] == f"/runs/r1/bin:/opt/v/bin:{SYSTEM_PATH}"
    # Neither ~/.deepspeed_env nor the one in the working directory is read or grown.
    assert env["DS_ENV_FILE"] == "/runs/r1/deepspeed_env"
    wrapper = made.node("n1").files["/runs/r1/bin/deepspeed"]
    assert wrapper == f'#!/bin/sh\nexec {PY} -m deepspeed.launcher.runner --no_ssh_check "$@"\n'
    assert made.node("n1").files["/runs/r1/hostfile"] == "n1 slots=2\nn2 slots=2\n"
    assert 'deepspeed_multinode_launcher: "pdsh"' in made.node("n1").files["/runs/r1/accelerate.yaml"]


def test_deepspeed_on_every_node() -> None:
    made = make("deepspeed")
    runner = (PY, "-m", "deepspeed.launcher.runner", "--hostfile", "/runs/r1/hostfile", "--no_ssh", "--node_rank", "1")
    meeting = ("--master_addr", META[0], "--master_port", META[1])
    assert made.node("n2").argv == (*runner, *meeting, "--no_local_rank", "--no_python", *RANK, *PAYLOAD)
    assert made.node("n2").files == {"/runs/r1/hostfile": "n1 slots=2\nn2 slots=1\n"}
    assert made.node("n2").env["DS_ACCELERATOR"] == "cpu"
    assert made.node("n2").env["TORCHFLEET_FIRST_RANK"] == "2"
    assert "DS_ACCELERATOR" not in make("deepspeed", hosts((1, 1), gpus=[{"index": 0}])).node("n1").env


def test_deepspeed_passes_local_ranks_as_arguments_where_asked() -> None:
    made = make("deepspeed", options={"local_rank_argument": "yes"})
    assert "--no_local_rank" not in made.node("n1").argv
    assert "TORCHFLEET_FIRST_RANK" not in made.node("n1").env


def test_deepspeed_by_pdsh() -> None:
    made = make("deepspeed", via="pdsh")
    assert made.node("n1").argv == (
        *(PY, "-m", "deepspeed.launcher.runner", "--hostfile", "/runs/r1/hostfile", "--no_ssh_check"),
        *("--launcher", "pdsh", "--master_addr", META[0], "--master_port", META[1], "--no_local_rank"),
        *(f"{LIB}/rank.py", "/runs/r1"),
    )
    assert made.node("n1").files["/runs/r1/deepspeed_env"] == "TORCHFLEET_RUN_ID=r1\n"


MPI = (
    *("--allow-run-as-root", "--bind-to", "none", "--map-by", "slot"),
    *("--mca", "btl_tcp_if_include", "10.0.0.0/30", "--mca", "oob_tcp_if_include", "10.0.0.0/30"),
    *("--mca", "plm_rsh_args", "-oBatchMode=yes"),
    *("--mca", "orte_launch_agent", "/usr/bin/env TORCHFLEET_RUN_ID=r1 orted", "-x", "TORCHFLEET_RUN_ID=r1"),
)


def test_deepspeed_by_openmpi() -> None:
    made = make("deepspeed", via="openmpi")
    argv = made.node("n1").argv
    # A network of ours in place of its eth0; one word, for it begins with a dash.
    assert f"--launcher_args={shlex.join(MPI)}" in argv
    assert argv[-2:] == (f"{LIB}/rank.py", "/runs/r1")
    rank = made.node("n2").rank
    assert rank and (rank.env["MASTER_ADDR"], rank.env["MASTER_PORT"]) == META


def test_mpirun() -> None:
    made = make("mpirun", options={"arguments": ["--mca", "pml", "ob1"]})
    command = ("mpirun", "-np", "3", "--hostfile", "/runs/r1/hostfile")
    assert made.node("n1").argv == (*command, *MPI, "--mca", "pml", "ob1", *RANK)
    assert made.node("n1").files["/runs/r1/hostfile"] == "n1 slots=2\nn2 slots=1\n"


def test_mpirun_finds_its_daemons_without_a_path() -> None:
    cluster = [{**host, "slots": 1} for host in hosts()]
    from dataclasses import replace

    built = build_cluster(cluster)
    nodes = tuple(replace(node, programs={"mpirun": "/opt/mpi/bin/mpirun"}) for node in built.nodes)
    made = plan(
        replace(built, nodes=nodes),
        Job(run_id="r1", run_dir="/runs/r1", workdir="/w", script="t.py", launcher="mpirun"),
    )
    argv = made.node("n1").argv
    assert argv[0] == "/opt/mpi/bin/mpirun"
    assert argv[argv.index("--prefix") + 1] == "/opt/mpi"


def test_python() -> None:
    made = make("python")
    assert made.node("n2").argv == (PY, "-u", f"{LIB}/spawn.py", "2", "1", "3", *RANK, *PAYLOAD)
    env = made.node("n2").env
    assert (env["INIT_METHOD"], env["MASTER_ADDR"], env["MASTER_PORT"]) == ("tcp://10.0.0.1:29500", *META)


def test_python_meets_at_a_file_that_no_earlier_run_can_have_left() -> None:
    env = make("python", via="file", options={"shared_folder": "/nfs/x"}).node("n1").env
    assert env["INIT_METHOD"] == "file:///nfs/x/torchfleet-r1"


def test_colossalai() -> None:
    assert make("colossalai").node("n2").argv == make("torchrun").node("n2").argv
    argv = make("colossalai", hosts((2, 2), ssh_port=2222), via="cli").node("n1").argv
    assert argv == (
        *("/opt/v/bin/colossalai", "run", "--nproc_per_node", "2", "--host", "n1,n2"),
        *("--master_addr", META[0], "--master_port", META[1], "--ssh-port", "2222", f"{LIB}/rank.py", "/runs/r1"),
    )


def test_slurm() -> None:
    made = make("slurm", options={"partition": "gpu", "time": "1:00:00", "arguments": ["--mem=0"]})
    tools = ("sbatch", "squeue", "scontrol", "scancel")
    assert made.node("n1").argv == (PY, "-u", f"{LIB}/slurm.py", "/runs/r1/slurm.sh", *tools)
    assert made.node("n1").files["/runs/r1/slurm.sh"].splitlines() == [
        "#!/bin/sh",
        "#SBATCH --job-name=torchfleet-r1",
        "#SBATCH --nodes=2",
        "#SBATCH --nodelist=n1,n2",
        "#SBATCH --ntasks=3",
        "#SBATCH --output=/runs/r1/logs/slurm.log",
        "#SBATCH --chdir=/runs/r1",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=1:00:00",
        "#SBATCH --exclusive",
        "#SBATCH --mem=0",
        "#SBATCH --no-requeue",
        "export SLURM_HOSTFILE=/runs/r1/slurm.hosts",
        "exec srun --distribution=arbitrary --ntasks=3 --kill-on-bad-exit=1 --unbuffered " + " ".join(RANK),
    ]
    # Every node has the files: the batch script runs where Slurm's own order begins.
    assert made.node("n2").files["/runs/r1/slurm.hosts"] == "n1\nn1\nn2\n"
    rank = made.node("n2").rank
    assert rank and rank.queued and rank.env["MASTER_ADDR"] == META[0]
    assert "--exclusive" not in make("slurm", options={"exclusive": False}).node("n1").files["/runs/r1/slurm.sh"]


# What holds for all

FROM_HEAD = {
    "accelerate_pdsh": {},
    "deepspeed-pdsh": {"via": "pdsh"},
    "deepspeed-openmpi": {"via": "openmpi"},
    "mpirun": {},
    "colossalai": {"via": "cli"},
    "slurm": {},
}


@pytest.mark.parametrize("form", sorted(FROM_HEAD))
def test_what_goes_through_other_nodes_shells_is_the_shims_path_alone(form: str) -> None:
    env = {"MINE": "a $HOME \"b\" 'c' `d`", "NCCL_DEBUG": "INFO"}
    made = make(form.split("-")[0], hosts((2, 2)), env=env, secret_env=("TOKEN",), **FROM_HEAD[form])
    head, other = made.nodes
    assert head.argv and not other.argv
    for node in made.nodes:
        assert node.rank is not None
        assert (node.rank.argv, node.rank.cwd, node.rank.count) == (PAYLOAD, "/work/my code", 2)
        assert node.rank.env["MINE"] == env["MINE"]
        assert node.rank.env["LOCAL_WORLD_SIZE"] == "2"
        assert node.rank.env["GLOO_SOCKET_IFNAME"] == {"n1": "eth1", "n2": "eth2"}[node.node]
        assert node.rank_env["TORCHFLEET_NODE"] == node.node
    shown = " ".join((*head.argv, *head.env.values(), *head.files.values()))
    for text in ("train.py", "my code", "b.c d", "$HOME", "eth1"):
        assert text not in shown
    assert not {"MINE", "TOKEN", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & set(head.env)


@pytest.mark.parametrize("form", sorted(FROM_HEAD))
@pytest.mark.parametrize(
    ("more", "changed", "words"),
    [
        (
            {"run_dir": "/my runs/r1"},
            {},
            r"'/my runs/r1' has characters that the remote shells of .* set launch_remote_root",
        ),
        (
            {},
            {"python": "/opt/b/bin/python"},
            r"torchfleet_python differs \(/opt/v/bin/python on n1, /opt/b/bin/python on n2\)",
        ),
    ],
)
def test_what_a_remote_shell_would_harm_is_refused(form: str, more: Any, changed: Any, words: str) -> None:
    one, two = hosts((2, 2))
    said = problems(form.split("-")[0], [one, {**two, **changed}], **FROM_HEAD[form], **more)
    assert re.search(words, said) and "torchrun" in said


@pytest.mark.parametrize("launcher", sorted(set(LAUNCHERS) - {"torchrun"}))
@pytest.mark.parametrize(
    ("more", "variable"), [({"max_restarts": 1}, "launch_max_restarts"), ({"min_nodes": 1}, "launch_min_nodes")]
)
def test_only_torchrun_deals_ranks_anew(launcher: str, more: Any, variable: str) -> None:
    assert f"{variable} works with launch_launcher torchrun alone" in problems(launcher, hosts((2, 2)), **more)


@pytest.mark.parametrize(
    ("launcher", "more", "words"),
    [
        ("accelerate", {}, "slots differ: n1 has 2, n2 has 1. Set launch_launcher to torchrun"),
        ("accelerate_pdsh", {}, "slots differ: n1 has 2, n2 has 1. Set launch_launcher to torchrun"),
        ("colossalai", {"via": "cli"}, "slots differ: n1 has 2, n2 has 1. Set launch_launcher to torchrun"),
        ("accelerate", {"options": {"deepspeed_launcher": "pdsh"}}, "set launch_launcher to accelerate_pdsh"),
        ("accelerate_pdsh", {"options": {"distributed_type": "FSDP"}}, "set launch_launcher to accelerate"),
        (
            "accelerate_pdsh",
            {"options": {"deepspeed_hostfile": "/x"}},
            "deepspeed_hostfile is accelerate_pdsh's own: remove it",
        ),
        (
            "torchrun",
            {"via": "static", "max_restarts": 2},
            "static rendezvous, which never recovers: unset launch_torchrun_via",
        ),
        ("torchrun", {"min_nodes": 3}, "launch_min_nodes is 3, and there are 2 nodes"),
        ("torchrun", {"options": {"last_call_timeout": 3}}, "last_call_timeout is c10d's"),
        (
            "torchrun",
            {"options": {"join_timeot": 3}},
            "torchrun has no option 'join_timeot': did you mean join_timeout?",
        ),
        ("torchrun", {"options": {"join_timeout": 0}}, "join_timeout is 0, wanted whole seconds, 1 or more"),
        ("deepspeed", {"via": "ssh"}, "launch_deepspeed_via is 'ssh', wanted one of: no_ssh, pdsh, openmpi"),
        (
            "deepspeed",
            {"via": "openmpi", "options": {"local_rank_argument": True}},
            "set launch_deepspeed_via to no_ssh",
        ),
        ("python", {"via": "file"}, "shared_folder: /path}, which all nodes mount"),
        ("python", {"options": {"shared_folder": "/x"}}, "read with launch_python_via file only"),
        ("python", {"via": "file", "options": {"shared_folder": "x"}}, "shared_folder is 'x', wanted an absolute path"),
        ("slurm", {"options": {"partition": "a\nb"}}, "wanted text on one line"),
        ("mpirun", {"options": {"arguments": "-v"}}, "arguments is '-v', wanted a list of arguments"),
        ("colossalai", {"options": {"x": 1}}, "colossalai has no option 'x': it has none"),
    ],
)
def test_what_a_launcher_cannot_do_is_refused_with_the_way_out(launcher: str, more: Any, words: str) -> None:
    assert words in problems(launcher, **more)


def test_deepspeed_gives_no_local_rank_that_it_counts_wrong() -> None:
    """Its local rank is the rank modulo the slots: 1 and 0 on a second node of two slots behind a first of one."""
    said = problems("deepspeed", hosts((1, 2)), options={"local_rank_argument": True})
    assert "counts local ranks from the wrong one on n2" in said
    assert make("deepspeed", hosts((1, 2))).node("n2").env["TORCHFLEET_FIRST_RANK"] == "1"


def test_colossalai_has_one_ssh_port() -> None:
    one, two = hosts((2, 2))
    said = problems("colossalai", [one, {**two, "ssh_port": 2222}], via="cli")
    assert "theirs are 22, 2222: set launch_colossalai_via to torchrun" in said


def test_accelerate_starts_no_world_of_one() -> None:
    assert "set launch_launcher to torchrun" in problems("accelerate", hosts((1,)))


@pytest.mark.parametrize(
    ("launcher", "more", "missing"),
    [
        ("accelerate", {}, ["n1: /opt/v/bin/python has no accelerate", "n2: /opt/v/bin/python has no accelerate"]),
        ("accelerate_pdsh", {}, ["n2: /opt/v/bin/python has no deepspeed", "n1: there is no pdsh: install pdsh"]),
        ("deepspeed", {}, ["n1: /opt/v/bin/python has no deepspeed: add deepspeed to pytorch_extra_packages"]),
        ("deepspeed", {"via": "pdsh"}, ["n1: there is no pdsh"]),
        ("mpirun", {}, ["n1: there is no mpirun: install openmpi-bin", "n2: there is no mpirun"]),
        ("colossalai", {"via": "cli"}, ["n2: /opt/v/bin/python has no colossalai"]),
        ("slurm", {}, ["n1: there is no sbatch", "n1: there is no scancel", "n2: there is no srun"]),
    ],
)
def test_what_is_not_installed_is_refused_node_by_node(launcher: str, more: Any, missing: list[str]) -> None:
    from dataclasses import replace

    built = build_cluster(hosts((2, 2)))
    bare = replace(built, nodes=tuple(replace(node, programs={}, packages={"torch": "2"}) for node in built.nodes))
    with pytest.raises(ClusterError) as error:
        plan(bare, Job(run_id="r1", run_dir="/runs/r1", workdir="/w", script="t.py", launcher=launcher, **more))
    for words in missing:
        assert any(problem.startswith(words) for problem in error.value.problems), words


def test_the_preflight_looks_for_all_that_a_plan_asks_for() -> None:
    role = (Path(__file__).resolve().parents[5] / "roles" / "launch" / "vars" / "main.yml").read_text(encoding="utf-8")
    sources = Path(__file__).resolve().parents[5] / "plugins" / "module_utils" / "_launchers"
    text = "".join(path.read_text(encoding="utf-8") for path in sources.glob("*.py"))
    asked = set(re.findall(r'programs\([^)]*?"(\w+)"\)', text)) | {"sbatch", "squeue", "scontrol", "scancel"}
    asked |= set(re.findall(r'missing_packages\(cluster, "(\w+)"', text))
    assert asked >= {"mpirun", "pdsh", "srun", "accelerate", "deepspeed", "colossalai"}
    for name in asked:
        assert re.search(rf"\b{name}\b", role), name


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (("10.0.0.1", "10.0.0.2"), "10.0.0.0/30"),
        (("10.0.0.1", "10.0.1.1"), "10.0.0.0/23"),
        (("10.0.0.7",), "10.0.0.7/32"),
        (("fd00::1", "fd00::ff"), "fd00::/120"),
    ],
)
def test_the_network_that_mpi_is_told_holds_all_nodes(addresses: tuple[str, ...], network: str) -> None:
    cluster = build_cluster([{"name": f"n{i}", "address": address} for i, address in enumerate(addresses)])
    assert network_of(cluster) == network
