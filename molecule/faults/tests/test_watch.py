"""Hangs, leases, further attempts, and files from all nodes."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from faults import alive, assert_clean, until

SCRIPT = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist
mode = sys.argv[1]
out = pathlib.Path(os.environ["TORCHFLEET_OUTPUT_DIR"])
dist.init_process_group("gloo")
rank = dist.get_rank()
def oversleep():
    time.sleep(1000)
def pause():
    time.sleep(45)
for step in range(6):
    if mode == "hang" and step == 3 and rank == 2:
        oversleep()
    if mode == "pause" and step == 3 and rank == 2:
        pause()
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
    if mode == "shards":
        (out / f"__{rank}_0.distcp").write_text(str(rank))
        (out / "same").write_text(str(rank))
    if mode == "resume":
        done = out / f"done-{rank}"
        before = int(done.read_text()) if done.exists() else 0
        done.write_text(str(before + 1))
        if before + 1 == 3 and rank == 1:
            sys.exit("a bad batch")
    time.sleep(100 if mode == "long" else 0.1)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "watched.py").write_text(SCRIPT, encoding="utf-8")
    return folder / "watched.py"


def launch(lab, tmp_path, script, mode, **variables):
    done = lab.playbook(
        "launch", cwd=tmp_path, launch_script=str(script), launch_args=[mode], launch_user="alice", **variables
    )
    manifests = {
        path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("runs/*/manifest.json")
    }
    return done, manifests


def test_a_hang_is_seen_its_late_rank_named_and_the_run_ended(lab, hosts, tmp_path, script):
    done, manifests = launch(lab, tmp_path, script, "hang", launch_stall_timeout=15, launch_stall_action="stop")
    assert done.code != 0
    (manifest,) = manifests.values()
    assert manifest["outcome"]["sentence"] == "ended by the hang watch after 15 s without progress"
    assert "rank 2 is at oversleep (watched.py:" in manifest["hang"]["sentence"], manifest["hang"]
    assert "rank 2 is at oversleep" in " ".join(done.output.split())
    assert_clean(hosts)


@pytest.fixture
def py_spy(hosts):
    pip = "/opt/torchfleet/venv/bin/pip"
    for host in hosts.values():
        host.check_output(f"{pip} install --quiet py-spy")
    yield
    for host in hosts.values():
        host.check_output(f"{pip} uninstall --quiet --yes py-spy")


def test_a_hang_is_reported_and_the_run_goes_on(lab, tmp_path, script, py_spy):
    """py-spy looks into ranks that may live; the late one comes back."""
    done, manifests = launch(lab, tmp_path, script, "pause", launch_stall_timeout=15)
    assert done.code == 0, done.output
    (manifest,) = manifests.values()
    assert "rank 2 is at pause (" in manifest["hang"]["sentence"], manifest["hang"]
    (folder,) = tmp_path.glob("runs/*")
    assert "pause" in (folder / "node3" / "rank-2.stack.txt").read_text(encoding="utf-8")


def test_a_lease_that_nobody_renews_ends_the_run(lab, hosts, tmp_path, script):
    led = lab.start(
        "launch",
        tmp_path / "out",
        cwd=tmp_path,
        launch_script=str(script),
        launch_args=["long"],
        launch_user="alice",
        launch_lease=60,
    )
    until(lambda: "node3:2 | step 0" in (tmp_path / "out").read_text(encoding="utf-8"), 90)
    os.killpg(led.pid, signal.SIGKILL)
    led.wait(60)
    began = time.monotonic()
    until(lambda: not any(alive(host) for host in hosts.values()), 120)
    assert time.monotonic() - began > 40
    seen = lab.playbook("status", cwd=tmp_path)
    assert "ended by its lease" in seen.output
    assert_clean(hosts)


def test_a_failed_run_is_begun_anew_and_goes_on_from_its_checkpoint(lab, hosts, tmp_path, script):
    done, manifests = launch(lab, tmp_path, script, "resume", launch_run_id="try", launch_restarts=2)
    assert done.code == 0, done.output
    assert {name: (entry["attempt"], entry["state"]) for name, entry in manifests.items()} == {
        "try": (1, "failed"),
        "try-2": (2, "succeeded"),
    }
    assert hosts["node2"].file("/var/lib/torchfleet/runs/try/output/done-1").content_string == "9"


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("head", ["__0_0.distcp", "same"]),
        ("all", ["__0_0.distcp", "node2/__1_0.distcp", "node2/same", "node3/__2_0.distcp", "node3/same", "same"]),
        ("merged", ["__0_0.distcp", "__1_0.distcp", "__2_0.distcp", "same"]),
    ],
)
def test_files_come_back_from_the_nodes(lab, tmp_path, script, place, found):
    done, manifests = launch(
        lab, tmp_path, script, "shards", launch_collect=["*.distcp", "same"], launch_collect_from=place
    )
    assert done.code == 0, done.output
    output = tmp_path / "runs" / next(iter(manifests)) / "output"
    assert sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()) == found
    assert (output / "same").read_text() == "0"
