"""Role launch with torchrun: one world over three nodes, and the right end of every run."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UNITS = "systemctl list-units --all --no-legend 'torchfleet-*'"
RUN = "/var/lib/torchfleet/runs"

FAULTY = """
import os, sys, time
import torch
import torch.distributed as dist
mode = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
print("up", rank, repr(sys.argv[2:]), os.environ.get("SHOWN"), flush=True)
print("secret has", len(os.environ.get("HIDDEN", "")), "characters", flush=True)
for step in range(100):
    dist.all_reduce(torch.ones(1))
    if step == 5 and rank == 1:
        if mode == "raise":
            raise ValueError("boom on rank one")
        if mode == "exit17":
            os._exit(17)
        if mode == "kill":
            os.kill(os.getpid(), 9)
        if mode == "leave":
            os._exit(0)
    if step == 8 and mode == "fine":
        break
    time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work") / "my code"
    folder.mkdir()
    (folder / "faulty.py").write_text(FAULTY, encoding="utf-8")
    return folder / "faulty.py"


def launch(lab, tmp_path, script, *options, **variables):
    done = lab.playbook("launch", *options, cwd=tmp_path, launch_script=str(script), **variables)
    manifests = sorted(tmp_path.glob("runs/*/manifest.json"))
    manifest = json.loads(manifests[-1].read_text(encoding="utf-8")) if manifests else None
    return done, manifest, manifests[-1].parent if manifests else None


def assert_nothing_left(hosts, run_id):
    for name, host in hosts.items():
        found = host.check_output(f"grep -lz 'TORCHFLEET_RUN_ID={run_id}' /proc/[0-9]*/environ 2>/dev/null || true")
        # The looking shell itself is no process of the run.
        assert found == "", f"{name}: {found}"
        assert host.check_output(UNITS) == ""
        assert not host.socket("tcp://0.0.0.0:29500").is_listening
        assert not host.socket("tcp://:::29500").is_listening


def test_the_example_trains_one_model_over_all_nodes(lab, hosts, tmp_path):
    before = {name: transmitted(host) for name, host in hosts.items()}
    done, manifest, folder = launch(
        lab, tmp_path, ROOT / "examples/digits/train.py", launch_collect=["model.pt", "metrics.json"]
    )
    assert done.code == 0, done.output
    metrics = json.loads((folder / "output" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["world_size"] == 3
    assert metrics["accuracy"] >= 0.95
    assert metrics["losses"][-1] < metrics["losses"][0] / 5
    assert (folder / "output" / "model.pt").stat().st_size > 100_000
    assert "train.py" in (folder / "code.manifest").read_text(encoding="utf-8")
    # The gradients crossed the network: 15 epochs of 14 steps, 0.2 MB each.
    for name, host in hosts.items():
        assert transmitted(host) - before[name] > 20e6
    assert manifest["state"] == "succeeded"
    assert manifest["plan"]["world_size"] == 3
    assert {rank["code"] for node in manifest["nodes"] for rank in node["ranks"]} == {0}
    assert all("2.13.0" in versions["torch"] for versions in manifest["versions"].values())
    assert re.search(r"^\s*node1:0 \| epoch 15  loss", done.output, re.MULTILINE)
    run_id, words = manifest["run_id"], " ".join(done.output.split())
    assert f"Run {run_id}: torchrun on 3 nodes, world size 3 (node1 x1, node2 x1, node3 x1), torch 2.13.0" in words
    assert re.search(
        r"Network: \S+, master \S+:29500, interfaces eth1 on node1, eth1 on node2, eth1 on node3, because \S+", words
    )
    assert words.count(f"Logs: {folder}") == 1
    assert re.search(rf"Run {run_id} succeeded after \d+ s: all 3 ranks ended with exit status 0", words)
    assert "node2: launcher exit status 0; rank 1: exit status 0" in words
    assert "epoch 15" in (folder / "node1" / "rank-0.log").read_text(encoding="utf-8")
    assert_nothing_left(hosts, manifest["run_id"])


def transmitted(host):
    return int(host.file("/sys/class/net/eth1/statistics/tx_bytes").content_string)


def test_check_mode_shows_the_plan_and_starts_nothing(lab, hosts, tmp_path):
    (tmp_path / "never copied").mkdir()
    script = tmp_path / "never copied" / "fine.py"
    script.write_text(FAULTY, encoding="utf-8")
    done, manifest, _folder = launch(
        lab, tmp_path, script, "--check", "--diff", launch_args=["a b", "it's"], launch_secret_env={"HIDDEN": "s3cr3t"}
    )
    assert done.code == 0, done.output
    assert manifest is None
    assert "--nnodes=3 --nproc-per-node=1 --node-rank=2" in done.output
    assert "cd '/var/lib/torchfleet/work/never copied'" in done.output
    assert "GLOO_SOCKET_IFNAME=eth1" in done.output
    assert """'a b' 'it'"'"'s'""" in done.output
    assert "s3cr3t" not in done.output
    for host in hosts.values():
        assert not host.file("/var/lib/torchfleet/work/never copied").exists


def test_arguments_environment_and_slots_arrive_as_they_are(lab, hosts, tmp_path, script):
    arguments = ["fine", "two words", 'a "quote"', "$(touch /tmp/owned)", "semi;colon"]
    done, manifest, folder = launch(
        lab,
        tmp_path,
        script,
        "-vvv",
        launch_args=arguments,
        launch_env={"SHOWN": "50% $HOME 'x'"},
        launch_secret_env={"HIDDEN": "s3cr3t-value"},
        torchfleet_slots=2,
    )
    assert done.code == 0, done.output
    assert manifest["plan"]["world_size"] == 6
    assert sorted(path.name for path in folder.glob("*/rank-*.log")) == [f"rank-{rank}.log" for rank in range(6)]
    log = (folder / "node2" / "rank-2.log").read_text(encoding="utf-8")
    assert f"up 2 {arguments[1:]!r} 50% $HOME 'x'" in log
    assert "secret has 12 characters" in log
    assert "s3cr3t-value" not in done.output
    assert "s3cr3t-value" not in (folder / "manifest.json").read_text(encoding="utf-8")
    for host in hosts.values():
        assert not host.file("/tmp/owned").exists
        assert host.file(f"{RUN}/{manifest['run_id']}").mode == 0o700


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("raise", "rank 1 on node2 failed first"),
        ("exit17", "rank 1 on node2 failed first: exit status 17"),
        ("kill", "rank 1 on node2 failed first: killed by SIGKILL"),
        ("leave", "rank 1 on node2 had left with exit status 0 before"),
    ],
)
def test_a_failing_rank_ends_the_run_everywhere_and_is_named(lab, hosts, tmp_path, script, mode, words):
    done, manifest, _folder = launch(lab, tmp_path, script, launch_args=[mode])
    assert done.code != 0
    assert words in done.output
    assert manifest["state"] == "failed"
    ends = [rank["ended"] for node in manifest["nodes"] for rank in node["ranks"]]
    assert None not in ends
    words = " ".join(done.output.split())
    assert re.search(rf"Run {manifest['run_id']} failed after \d+ s: rank", words)
    if mode == "raise":
        assert "Its exception: ValueError: boom on rank one" in words
        assert manifest["outcome"]["first"]["exception"] == "ValueError: boom on rank one"
        assert any("boom on rank one" in line for line in manifest["outcome"]["first"]["last_lines"])
    if mode == "exit17":
        assert re.search(r"node2: launcher (exit status|killed by) \w+; rank 1: exit status 17", words)
    if mode != "leave":
        assert manifest["outcome"]["first"]["rank"] == 1
    assert_nothing_left(hosts, manifest["run_id"])


def test_ctrl_c_ends_the_run_on_every_node(lab, hosts, tmp_path, script):
    process = lab.start("launch", tmp_path / "out", cwd=tmp_path, launch_script=str(script), launch_args=["long"])
    wait_for(lambda: "up 2" in (tmp_path / "out").read_text(encoding="utf-8"), 60)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    # Ansible goes 5 s after the interrupt at the latest; its followers end the run in their own time.
    path = next(tmp_path.glob("runs/*/manifest.json"))
    wait_for(lambda: json.loads(path.read_text(encoding="utf-8"))["state"] == "interrupted", 30)
    wait_for(lambda: not any(host.check_output(UNITS) for host in hosts.values()), 30)
    assert_nothing_left(hosts, path.parent.name)


def test_a_run_outlives_its_controller(lab, hosts, tmp_path, script):
    process = lab.start("launch", tmp_path / "out", cwd=tmp_path, launch_script=str(script), launch_args=["long"])
    wait_for(lambda: "up 2" in (tmp_path / "out").read_text(encoding="utf-8"), 60)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    run_id = next(tmp_path.glob("runs/*/manifest.json")).parent.name
    record = f"{RUN}/{run_id}/exit.json"
    wait_for(lambda: all(host.file(record).exists for host in hosts.values()), 60)
    assert all(json.loads(host.file(record).content_string)["code"] == 0 for host in hosts.values())


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def test_a_time_limit_ends_the_run(lab, hosts, tmp_path, script):
    done, manifest, _folder = launch(lab, tmp_path, script, launch_args=["long"], launch_time_limit=6)
    assert done.code != 0
    assert "launch_time_limit" in manifest["outcome"]["sentence"]
    assert_nothing_left(hosts, manifest["run_id"])


def test_a_taken_port_is_refused_and_its_holder_named(lab, hosts, tmp_path, script):
    host = hosts["node1"]
    server = 'import socket,time; s=socket.create_server((\\"\\",29500)); time.sleep(60)'
    pid = host.check_output(f'nohup python3 -c "{server}" >/dev/null 2>&1 & echo $!')
    time.sleep(1)
    try:
        done, manifest, _folder = launch(lab, tmp_path, script, launch_args=["fine"])
        assert done.code != 0
        assert manifest is None
        assert f"port 29500 is held by process {pid} (python3" in " ".join(done.output.split())
        done, manifest, _folder = launch(lab, tmp_path, script, launch_args=["fine"], torchfleet_master_port=29600)
        assert done.code == 0, done.output
        assert manifest["plan"]["master_port"] == 29600
    finally:
        host.run(f"kill {pid}")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"launch_script": "/nowhere/train.py"}, "there is no folder /nowhere on this controller"),
        (
            {"launch_launcher": "magic"},
            "launch_launcher is 'magic', wanted one of: accelerate, accelerate_pdsh, colossalai, deepspeed",
        ),
        ({"torchfleet_slots": 0}, "torchfleet_slots is 0, wanted a whole number of ranks"),
        ({"torchfleet_master_port": 22}, "torchfleet_master_port is 22, wanted an unprivileged port"),
        (
            {"torchfleet_python": "/opt/none/bin/python"},
            "there is no interpreter /opt/none/bin/python: run provision.yml",
        ),
        ({"launch_env": {"A B": "x"}}, "is not a name that an environment variable can have"),
    ],
)
def test_bad_input_is_refused_before_the_start(lab, hosts, tmp_path, script, variables, words):
    done, manifest, _folder = launch(
        lab,
        tmp_path,
        **{"script": script, **variables}
        if "launch_script" not in variables
        else {"script": variables["launch_script"]},
    )
    assert done.code != 0
    assert manifest is None
    assert words in " ".join(done.output.split())


def test_playbooks_run_from_any_directory(lab, tmp_path):
    done = lab.playbook("provision", "--check", "-t", "hosts", cwd=tmp_path)
    assert done.code == 0, done.output
