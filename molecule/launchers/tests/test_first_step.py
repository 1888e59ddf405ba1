"""Time to the first step, with launch.yml and with the same launcher by hand: for docs/benchmarks.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import time

import pytest
from lab import keep
from test_conformance import EQUAL, variables_of

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    print("first step done at", time.time(), "in a world of", dist.get_world_size(), flush=True)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""
PATH = "/tmp/by-hand.py"
BIN = "/opt/torchfleet/venv/bin"
PY = f"{BIN}/python"
MPI = "--allow-run-as-root --bind-to none --mca btl_tcp_if_include {net} --mca oob_tcp_if_include {net}"
BY_HAND = {  # what people type, on each node (`on each`) or on the first
    "torchrun": (True, f"{PY} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank {{rank}} "
                 f"--master-addr {{head}} --master-port 29511 {PATH}"),
    "python": (True, f"RANK={{rank}} WORLD_SIZE=2 MASTER_ADDR={{head}} MASTER_PORT=29511 {PY} {PATH}"),
    "accelerate": (True, f"ACCELERATE_USE_CPU=true {BIN}/accelerate launch --multi_gpu --num_machines 2 --num_processes 2 "
                   f"--machine_rank {{rank}} --main_process_ip {{head}} --main_process_port 29511 {PATH}"),
    "deepspeed": (True, f"DS_ACCELERATOR=cpu {BIN}/deepspeed --hostfile /tmp/by-hand.hosts --no_ssh --node_rank {{rank}} "
                  f"--master_addr {{head}} --master_port 29511 --no_local_rank {PATH}"),
    "deepspeed-pdsh": (False, f"DS_ACCELERATOR=cpu {BIN}/deepspeed --hostfile /tmp/by-hand.hosts --launcher pdsh "
                       f"--master_addr {{head}} --master_port 29511 --no_local_rank {PATH}"),
    "accelerate_pdsh": (False, f"DS_ACCELERATOR=cpu {BIN}/accelerate launch --use_deepspeed --num_machines 2 --num_processes 2 "
                        "--machine_rank 0 --deepspeed_multinode_launcher pdsh --deepspeed_hostfile /tmp/by-hand.hosts "
                        f"--main_process_ip {{head}} --main_process_port 29511 {PATH}"),
    "colossalai-cli": (False, f"{BIN}/colossalai run --nproc_per_node 1 --host node1,node2 --master_addr {{head}} "
                       f"--master_port 29511 --ssh-port 2222 {PATH}"),
    "mpirun": (False, f"mpirun -np 2 -H node1:1,node2:1 {MPI} -x MASTER_ADDR={{head}} -x MASTER_PORT=29511 "
               f"sh -c 'RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=2 exec {PY} {PATH}'"),
    "slurm": (False, "MASTER_ADDR={head} MASTER_PORT=29511 srun -N 2 -n 2 --exclusive "
              f"sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=2 exec {PY} {PATH}'"),
}  # fmt: skip
TRAPS = (".bashrc", ".deepspeed_env", ".cache/huggingface/accelerate/default_config.yaml")


@pytest.fixture(scope="module")
def plain(hosts, lab):
    """Without what prepare.yml laid out to trip launchers up: by hand, it does."""
    homes = {"node1": "/root", "node2": "/home/trainer"}
    for name, host in hosts.items():
        for trap in TRAPS:
            host.check_output(f"mv {homes[name]}/{trap} {homes[name]}/{trap}.away")
        host.check_output(
            "printf 'node1 slots=1\\nnode2 slots=1\\n' > /tmp/by-hand.hosts; chmod 644 /tmp/by-hand.hosts"
        )
    yield
    for name, host in hosts.items():
        for trap in TRAPS:
            host.check_output(f"mv {homes[name]}/{trap}.away {homes[name]}/{trap}; rm -f /tmp/.deepspeed_env")


def first_step(text):
    found = re.search(r"first step done at ([\d.]+) in a world of 2", text)
    assert found, text[-3000:]
    return float(found[1])


def by_hand(lab, path, everywhere, command):
    head = lab.nodes["node1"]["torchfleet_address"]
    network = re.sub(r"\d+$", "0/24", head)
    began, running = time.time(), []
    for rank, node in enumerate(lab.nodes.values()):
        options = ["-F", str(lab.folder / "ssh_config"), "-o", "ControlMaster=no", "-o", "ControlPath=none"]
        to = f"{node['ansible_user']}@{node['ansible_host']}"
        port = str(node["ansible_port"])
        subprocess.run(["scp", "-q", *options, "-P", port, str(path), f"{to}:{PATH}"], check=True)
        if everywhere or rank == 0:
            line = f"cd /tmp; export PATH={BIN}:$PATH OMP_NUM_THREADS=1; {command.format(rank=rank, head=head, net=network)}"
            running.append(
                subprocess.Popen(
                    ["ssh", *options, "-p", port, to, f"bash -c {shlex.quote(line)}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
    return first_step("".join(process.communicate(timeout=120)[0] for process in running)) - began


@pytest.mark.parametrize("launcher", BY_HAND)
def test_time_to_the_first_step(lab, tmp_path, plain, launcher):
    path = tmp_path / "first.py"
    path.write_text(SCRIPT, encoding="utf-8")
    began = time.time()
    done = lab.playbook("launch", cwd=tmp_path, launch_script=str(path), **{**variables_of(launcher), **EQUAL})
    assert done.code == 0, done.output[-3000:]
    ours = first_step(done.output) - began
    keep("first-step.json", {launcher: {"ours": ours, "by_hand": by_hand(lab, path, *BY_HAND[launcher])}})
