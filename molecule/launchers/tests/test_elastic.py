"""torchrun's elastic rendezvous: ranks are dealt anew after a failure, and a run goes on without a node that is gone."""

from __future__ import annotations

import json

from faults import Run, kill_agent, until
from test_conformance import assert_nothing_left

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
round = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(int(sys.argv[1])):
    dist.all_reduce(torch.ones(1))
    print("round", round, "world", world, "step", step, flush=True)
    if sys.argv[2] == "fail" and round == 0 and rank == 1 and step == 3:
        sys.exit(17)
    time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


def test_a_rank_that_fails_is_dealt_anew(lab, hosts, tmp_path):
    (tmp_path / "elastic.py").write_text(SCRIPT, encoding="utf-8")
    done = lab.playbook(
        "launch",
        cwd=tmp_path,
        launch_script=str(tmp_path / "elastic.py"),
        launch_args=["10", "fail"],
        launch_max_restarts=2,
    )
    assert done.code == 0, done.output[-4000:]
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    assert (
        json.loads(manifest.read_text(encoding="utf-8"))["outcome"]["sentence"]
        == "all 3 ranks ended with exit status 0"
    )
    logs = "".join(path.read_text(encoding="utf-8") for path in manifest.parent.glob("*/rank-*.log"))
    assert "round 0 world 3 step 3" in logs
    assert logs.count("world 3 step 9") == 3
    assert_nothing_left(hosts, manifest.parent.name)


def test_a_run_goes_on_without_a_node(lab, hosts, tmp_path):
    (tmp_path / "elastic.py").write_text(SCRIPT, encoding="utf-8")
    run = Run(
        lab,
        hosts,
        tmp_path,
        tmp_path / "elastic.py",
        "200",
        "-",
        launch_min_nodes=1,
        launch_max_restarts=3,
        launch_launcher_options={"last_call_timeout": 5},
    )
    until(lambda: "world 3 step 10" in run.said() or run.process.poll() is not None, 90)
    kill_agent(run)
    assert run.process.wait(240) == 0, run.said()[-4000:]
    assert "world 2 step 199" in run.said()
    outcome = run.manifest["outcome"]
    assert outcome["sentence"] == "all 2 ranks ended with exit status 0"
    assert "node2: the supervisor of the run was killed" in outcome["problems"]
    assert_nothing_left(hosts, run.run.name)
