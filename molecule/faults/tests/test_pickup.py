"""A run outlives its controller, and any machine with the inventory picks it up."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from faults import assert_clean, until

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
print("up", rank, flush=True)
for step in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
    time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "steps.py").write_text(SCRIPT, encoding="utf-8")
    return folder / "steps.py"


def start(lab, tmp_path, script, steps, **variables):
    done = lab.playbook(
        "launch",
        cwd=tmp_path,
        launch_script=str(script),
        launch_args=[str(steps)],
        launch_detach=True,
        **{"launch_user": "alice", **variables},
    )
    assert done.code == 0, done.output
    folder = max(tmp_path.glob("runs/*/manifest.json"), key=lambda path: path.stat().st_mtime).parent
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["state"] == "detached"
    return folder.name


def test_a_detached_run_is_seen_followed_and_judged_from_elsewhere(lab, hosts, tmp_path, script):
    run_id = start(lab, tmp_path, script, 150)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    seen = lab.playbook("status", cwd=elsewhere)
    line = next(line for line in seen.output.splitlines() if line.startswith(run_id))
    assert line.split()[1:3] == ["alice", "running"]
    assert "node1,node2,node3" in line
    last = lab.playbook("logs", cwd=elsewhere, run_id=run_id, launch_logs_follow=False, launch_logs_lines=2)
    assert last.code == 0, last.output
    assert "step" in last.output
    assert not (elsewhere / "runs").exists()
    done = lab.playbook("logs", cwd=elsewhere)
    assert done.code == 0, done.output
    assert "node3:2 | step 149" in done.output
    log = (elsewhere / "runs" / run_id / "node2" / "rank-1.log").read_text(encoding="utf-8")
    assert [line for line in log.splitlines() if "step" in line] == [f"step {step}" for step in range(150)]
    manifest = json.loads((elsewhere / "runs" / run_id / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["state"] == "succeeded"
    assert " succeeded " in next(
        line for line in lab.playbook("status", cwd=elsewhere).output.splitlines() if line.startswith(run_id)
    )


ONE_FAILS = """
import os, sys, time
print("up", flush=True)
time.sleep(3 if os.environ["RANK"] == "1" else 600)
sys.exit(7)
"""


@pytest.mark.parametrize("launcher", ["python", "torchrun"])
def test_a_rank_that_fails_where_nobody_follows_ends_the_run_on_all_nodes(lab, hosts, tmp_path, launcher):
    """No rank waits for another here: that the others end is the supervisors' own doing. It takes a user of the mesh."""
    (tmp_path / "of-root").mkdir()  # on the nodes, what is called work is alice's
    script = tmp_path / "of-root" / "one.py"
    script.write_text(ONE_FAILS, encoding="utf-8")
    run_id = start(lab, tmp_path, script, 1, launch_launcher=launcher, launch_user="root")
    alive = f"grep -lzx TORCHFLEET_RUN_ID={run_id} /proc/[0-9]*/environ 2>/dev/null | wc -l"
    deadline = time.monotonic() + 60
    while any(int(host.run(alive).stdout) for host in hosts.values()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    seen = lab.playbook("status", cwd=tmp_path)
    line = next(line for line in seen.output.splitlines() if line.startswith(run_id))
    assert " failed " in line
    done = lab.playbook("logs", cwd=tmp_path, run_id=run_id)
    assert done.code != 0
    assert "rank 1 on node2 failed first: exit status 7" in " ".join(done.output.split())


def test_a_run_is_stopped_from_elsewhere_and_its_controller_is_told(lab, hosts, tmp_path, script):
    led = lab.start(
        "launch", tmp_path / "out", cwd=tmp_path, launch_script=str(script), launch_args=["1000"], launch_user="alice"
    )
    until(lambda: "step 3" in (tmp_path / "out").read_text(encoding="utf-8"), 60)
    stopped = lab.playbook("stop", cwd=tmp_path)
    assert stopped.code == 0, stopped.output
    assert led.wait(60) != 0
    assert "with stop.yml" in (tmp_path / "out").read_text(encoding="utf-8")
    manifest = json.loads(next(tmp_path.glob("runs/*/manifest.json")).read_text(encoding="utf-8"))
    assert manifest["outcome"]["sentence"].startswith("ended by ")
    assert_clean(hosts)


def test_looking_in_and_leaving_changes_nothing(lab, hosts, tmp_path, script):
    run_id = start(lab, tmp_path, script, 1000)
    looking = lab.start("logs", tmp_path / "out", cwd=tmp_path / "runs")
    until(lambda: "node3:2 | step" in (tmp_path / "out").read_text(encoding="utf-8"), 60)
    os.killpg(looking.pid, signal.SIGINT)
    looking.wait(60)
    time.sleep(2)
    for host in hosts.values():
        assert host.service(f"torchfleet-{run_id}").is_running
    stopped = lab.playbook("stop", run_id=run_id)
    assert stopped.code == 0, stopped.output
    assert_clean(hosts)
    again = lab.playbook("stop")
    assert again.code != 0
    assert "no run is running" in again.output


def test_a_run_of_another_user_is_neither_read_nor_ended_without_sudo(lab, hosts, tmp_path, script):
    run_id = start(lab, tmp_path, script, 1000)
    try:
        as_bob = {"ansible_become_user": "bob", "ansible_become_method": "ansible.builtin.su", "run_id": run_id}
        seen = lab.playbook("status", cwd=tmp_path, **as_bob)
        assert " private " in seen.output, seen.output
        for verb in ("logs", "stop"):
            done = lab.playbook(verb, cwd=tmp_path, **as_bob)
            assert done.code != 0
            assert f"run {run_id} is alice's, who alone can read or end it, beside root" in done.output
        for host in hosts.values():
            assert host.service(f"torchfleet-{run_id}").is_running
    finally:
        assert lab.playbook("stop", run_id=run_id).code == 0
    assert_clean(hosts)


def test_stop_does_not_hide_the_rank_that_had_failed(lab, hosts, tmp_path):
    """Alice is no user of the mesh: nobody tells the other nodes of the failure, and somebody ends the run."""
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "one.py"
    script.write_text(ONE_FAILS, encoding="utf-8")
    run_id = start(lab, tmp_path, script, 1, launch_launcher="python")
    until(lambda: "rank 1 on node2: exit status 7" in lab.playbook("status", cwd=tmp_path).output, 60)
    time.sleep(2)
    assert lab.playbook("stop", cwd=tmp_path, run_id=run_id).code == 0
    seen = next(line for line in lab.playbook("status", cwd=tmp_path).output.splitlines() if line.startswith(run_id))
    assert "rank 1 on node2: exit status 7; then ended by " in seen
    done = lab.playbook("logs", cwd=tmp_path, run_id=run_id)
    assert "rank 1 on node2 failed first: exit status 7; then ended by " in " ".join(done.output.split())
    assert_clean(hosts)
