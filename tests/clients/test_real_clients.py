# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What we render, read by the programs that will read it.

Needs an environment with torch, accelerate, deepspeed and NCCL's wheel (no GPU), and mpirun: each test skips where its
client is absent. Run as `pytest tests/clients`.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _accelerate, _hostfile, _nccl_env
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, build_cluster


def installed(name: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(name) is not None
    return False


needs_accelerate = pytest.mark.skipif(not installed("accelerate"), reason="accelerate is not installed here")
needs_deepspeed = pytest.mark.skipif(not installed("deepspeed"), reason="deepspeed is not installed here")


def cluster(nodes: int = 3, gpus: int = 4, address: str = "10.0.0.{}", **own: Any) -> Cluster:
    return build_cluster(
        [
            {"name": f"n{i}", "address": address.format(i), "gpus": [{"index": g} for g in range(gpus)], **own}
            for i in range(1, nodes + 1)
        ],
        master_port=29611,
    )


# DeepSpeed


@needs_deepspeed
@pytest.mark.parametrize("fmt", ["deepspeed", "openmpi"])
@pytest.mark.parametrize("by", ["name", "address"])
def test_deepspeed_reads_every_hostfile(tmp_path: Path, fmt: str, by: str) -> None:
    from deepspeed.launcher.runner import fetch_hostfile

    of = build_cluster(
        [{"name": f"n{i}.lab", "address": f"10.0.0.{i}", "slots": i} for i in range(1, 65)], head="n9.lab"
    )
    path = tmp_path / "hostfile"
    path.write_text(_hostfile.render(of, fmt, by))
    pool = fetch_hostfile(str(path))
    assert list(pool.items()) == [(node.name if by == "name" else node.address, node.slots) for node in of.nodes]


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder for PATH whose pdsh writes down what it is told and whose ssh says yes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in (("pdsh", f'printf "%s\\0" "$@" > "{tmp_path}/pdsh.args"'), ("ssh", "exit 0")):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


@needs_deepspeed
def test_deepspeed_s_launcher_carries_what_we_wrote(tmp_path: Path, stand_ins: Path) -> None:
    of = cluster()
    extra = {"NCCL_DEBUG_FILE": "/tmp/n c l.%h", "NCCL_ALGO": "allreduce:tree;broadcast:ring", "NCCL_X": "it's"}
    settings = _nccl_env.cluster_travelling(of, extra)
    (tmp_path / "hostfile").write_text(_hostfile.render(of))
    before = "# a note\n\nWANDB_MODE=offline\n"
    (tmp_path / ".deepspeed_env").write_text(_nccl_env.merge_deepspeed_env(before, _nccl_env.deepspeed_env(settings)))
    (tmp_path / "train.py").write_text("")
    env = {"PATH": f"{stand_ins}:{os.environ['PATH']}", "HOME": str(tmp_path / "bin"), "DS_ACCELERATOR": "cpu"}
    options = ["--hostfile", "hostfile", "--launcher", "pdsh", "--master_addr", of.master_address]
    done = subprocess.run(
        [sys.executable, "-m", "deepspeed.launcher.runner", *options, "--master_port", str(of.master_port), "train.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    args = (tmp_path / "pdsh.args").read_text().split("\0")
    assert args[args.index("-w") + 1] == "n1,n2,n3"
    world = next(arg for arg in args if arg.startswith("--world_info="))
    assert json.loads(base64.urlsafe_b64decode(world.split("=", 1)[1])) == {n.name: [0, 1, 2, 3] for n in of.nodes}
    exports = next(arg for arg in args if arg.startswith("export "))
    seen = subprocess.run(["env", "-i", "/bin/sh", "-c", exports + "/usr/bin/env -0"], capture_output=True, check=True)
    remote = dict(item.split("=", 1) for item in seen.stdout.decode().split("\0") if item)
    wanted = {"NCCL_IB_DISABLE": "1", "WANDB_MODE": "offline", **extra}
    assert {name: remote.get(name) for name in wanted} == wanted


# Open MPI


def mpirun() -> str:
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("there is no mpirun here")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if "(Open MPI) 4." not in version and "(OpenRTE) 4." not in version:
        pytest.skip("this mpirun is not of Open MPI 4")
    return program


@pytest.mark.parametrize("by", ["name", "address"])
def test_mpirun_deals_the_ranks_as_planned(tmp_path: Path, by: str) -> None:
    of = build_cluster(
        [{"name": f"n{i}.lab", "address": f"10.0.0.{i}", "slots": slots} for i, slots in ((1, 2), (2, 1), (3, 3))],
        head="n2.lab",
    )
    (tmp_path / "hostfile").write_text(_hostfile.render(of, "openmpi", by))
    # Without the variable Open MPI cuts a name at its first dot.
    options = ["--allow-run-as-root", "--mca", "orte_keep_fqdn_hostnames", "1", "--hostfile", "hostfile"]
    shown = subprocess.run(
        [mpirun(), *options, "--display-map", "--do-not-launch", "-np", str(of.world_size), "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    nodes = [line.split()[3] for line in shown.splitlines() if line.startswith(" Data for node:")]
    assert nodes == [node.name if by == "name" else node.address for node in of.nodes]
    assert [int(count) for count in re.findall(r"Num slots: (\d+)", shown)] == [node.slots for node in of.nodes]
    assert shown.count("Process rank:") == of.world_size


# accelerate

GPU_CASES: List[Dict[str, Any]] = [
    {},
    {"mixed_precision": "bf16", "dynamo_backend": "inductor", "dynamo_mode": "max-autotune", "cpu_affinity": True},
    {"mixed_precision": "fp16", "debug": True},
    {"distributed_type": "FSDP", "fsdp_transformer_layer_cls": ["A", "B"], "fsdp_offload_params": True},
    {"distributed_type": "FSDP", "fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"},
    {"distributed_type": "FSDP", "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 1000},
    {"distributed_type": "DEEPSPEED", "zero_stage": 3, "zero3_init": True, "gradient_clipping": 1e-6},
    {"distributed_type": "DEEPSPEED", "zero_stage": 1, "offload_optimizer": "cpu", "mixed_precision": "fp16"},
]


def written(folder: Path, of: Cluster, node: str, raw: Dict[str, Any]) -> str:
    path = folder / f"{node}.yml"
    path.write_text(_accelerate.render(of, of.node(node), _accelerate.options(raw)), encoding="utf-8")
    return str(path)


def launched(path: str, *options: str) -> Namespace:
    """What `accelerate launch --config_file path` has decided before it starts anything."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    args = launch_command_parser().parse_args(["--config_file", path, *options, "train.py"])
    decided: Namespace = _validate_launch_command(args)[0]
    return decided


@needs_accelerate
@pytest.mark.parametrize("raw", GPU_CASES)
@pytest.mark.parametrize("address", ["10.0.0.{}", "fd00::{}"])
def test_accelerate_starts_each_node_s_share(
    tmp_path: Path, raw: Dict[str, Any], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

    of = cluster(address=address)
    for node in of.nodes:
        path = written(tmp_path, of, node.name, raw)
        loaded = load_config_from_file(path)
        assert loaded.distributed_type.value == raw.get("distributed_type", "MULTI_GPU")
        assert (loaded.num_processes, loaded.num_machines, loaded.machine_rank) == (12, 3, node.node_rank)

        args = launched(path)
        assert args.mixed_precision == raw.get("mixed_precision", "no")
        if args.use_deepspeed:
            args.deepspeed_fields_from_accelerate_config = ""
            command, env = prepare_deepspeed_cmd_env(args)
            assert command is None, "the standard launcher is torchrun's"
            assert env["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == str(raw["zero_stage"])
            assert env["ACCELERATE_DEEPSPEED_ZERO3_INIT"] == str(raw.get("zero3_init", False)).lower()
            if "gradient_clipping" in raw:
                assert float(env["ACCELERATE_GRADIENT_CLIPPING"]) == raw["gradient_clipping"]
        else:
            env = prepare_multi_gpu_env(args)
        if args.use_fsdp:
            check_fsdp(raw, env, monkeypatch)
        assert (args.nproc_per_node, args.nnodes, args.node_rank) == ("4", "3", node.node_rank)
        assert parse_rendezvous_endpoint(args.rdzv_endpoint, -1) == (of.master_address, 29611)
        assert env["ACCELERATE_MIXED_PRECISION"] == raw.get("mixed_precision", "no")
        if raw.get("dynamo_backend"):
            assert (env["ACCELERATE_DYNAMO_BACKEND"], env["ACCELERATE_DYNAMO_MODE"]) == ("INDUCTOR", "max-autotune")


def check_fsdp(raw: Dict[str, Any], env: Dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate's plugin, as a script would build it from the launcher's variables, takes every one of them."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    if raw.get("fsdp_version") == 1:  # its plugin asks for a GPU
        assert (env["FSDP_VERSION"], env["FSDP_SHARDING_STRATEGY"]) == ("1", raw["fsdp_sharding_strategy"])
        return
    for name, value in env.items():
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, True)
    if "fsdp_transformer_layer_cls" in raw:
        assert plugin.transformer_cls_names_to_wrap == raw["fsdp_transformer_layer_cls"]
    if "fsdp_min_num_params" in raw:
        assert plugin.min_num_params == raw["fsdp_min_num_params"]


@needs_accelerate
def test_accelerate_takes_the_fp8_backend(tmp_path: Path) -> None:
    args = launched(written(tmp_path, cluster(), "n1", {"mixed_precision": "fp8", "fp8_backend": "te"}))
    assert (args.mixed_precision, args.fp8_backend) == ("fp8", "te")


@needs_accelerate
@needs_deepspeed
@pytest.mark.parametrize("launcher", ["pdsh", "nossh"])
def test_accelerate_hands_the_hostfile_to_deepspeed(tmp_path: Path, launcher: str) -> None:
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    of = cluster()
    raw = {"distributed_type": "DEEPSPEED", "deepspeed_launcher": launcher, "deepspeed_hostfile": "/etc/t f/hostfile"}
    args = launched(written(tmp_path, of, "n1", raw))
    args.deepspeed_fields_from_accelerate_config = ""
    command, _env = prepare_deepspeed_cmd_env(args)
    assert command[:3] == ["deepspeed", "--hostfile", "/etc/t f/hostfile"]
    assert command[command.index("--num_gpus") + 1] == "4"
    assert command[command.index("--master_addr") + 1] == "10.0.0.1"
    assert command[command.index("--master_port") + 1] == "29611"
    assert ("--no_ssh" in command) == (launcher == "nossh")


@needs_accelerate
@needs_deepspeed
def test_a_deepspeed_file_does_not_collide_with_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.utils import DeepSpeedPlugin

    (tmp_path / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}})
    )
    raw = {"distributed_type": "DEEPSPEED", "deepspeed_config_file": str(tmp_path / "ds.json")}
    args = launched(written(tmp_path, cluster(), "n1", raw))
    # As launch_command has it: the fields that the configuration file set itself.
    fields = [key for key in _yaml_keys(args.config_file) if key != "deepspeed_config_file"]
    monkeypatch.setenv("ACCELERATE_CONFIG_DS_FIELDS", ",".join(fields))
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    plugin = DeepSpeedPlugin(hf_ds_config=args.deepspeed_config_file, zero3_init_flag=False)
    plugin._deepspeed_config_checks()
    assert plugin.deepspeed_config["zero_optimization"]["stage"] == 1


def _yaml_keys(path: str) -> List[str]:
    import yaml

    whole = yaml.safe_load(Path(path).read_text())
    return [*whole["deepspeed_config"], *(["mixed_precision"] if "mixed_precision" in whole else [])]


WORLD = """
import os
from accelerate import Accelerator
accelerator = Accelerator()
print(f"rank {accelerator.process_index} of {accelerator.num_processes}", flush=True)
accelerator.wait_for_everyone()
os._exit(0)
"""


@pytest.fixture
def free_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    yield port


@needs_accelerate
def test_cpu_nodes_come_up_as_one_world(tmp_path: Path, free_port: int) -> None:
    of = replace(cluster(nodes=2, gpus=0, slots=2), master_address="127.0.0.1", master_port=free_port)
    raw = {"distributed_type": "MULTI_CPU"}
    options, needed = _accelerate.launch_needs(of, _accelerate.options(raw))
    (tmp_path / "world.py").write_text(WORLD)
    env = {**os.environ, **needed, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HOME": str(tmp_path)}
    launch = [sys.executable, "-m", "accelerate.commands.launch"]
    running = [
        subprocess.Popen(
            [*launch, "--config_file", written(tmp_path, of, node.name, raw), *options, "world.py"],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in of.nodes
    ]
    printed = [process.communicate(timeout=240)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], printed
    for rank in range(4):
        assert f"rank {rank} of 4" in "".join(printed)


# NCCL


def nccl_library() -> str:
    """NCCL's shared library as its wheel brings it."""
    for entry in sys.path:
        for found in Path(entry or ".").glob("nvidia/nccl/lib/libnccl.so.2"):
            return str(found)
    pytest.skip("NCCL's wheel (nvidia-nccl-cu12, say) is not installed here")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NCCL is there for Linux alone")
def test_nccl_obeys_the_file_without_a_gpu(tmp_path: Path) -> None:
    library = nccl_library()
    of = cluster(interface="lo")
    block = _nccl_env.nccl_conf(_nccl_env.node_settings(of, of.head, {"NCCL_DEBUG": "INFO"}))
    (tmp_path / "nccl.conf").write_text(_nccl_env.merge_block("NCCL_SOCKET_IFNAME=none\n# note\n", block))
    code = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).ncclGetUniqueId((ctypes.c_char * 128)()))"
    shown = subprocess.run(
        [sys.executable, "-c", code, library],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NCCL_CONF_FILE": str(tmp_path / "nccl.conf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "NCCL_SOCKET_IFNAME set by environment to =lo" in shown.stdout
    assert "Bootstrap: Using lo:127.0.0.1" in shown.stdout
    assert shown.returncode == 0
