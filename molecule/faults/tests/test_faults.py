"""Everything that can go wrong with a run: how soon it is seen and cleaned up, and who is named."""

from __future__ import annotations

import re
import resource

import pytest
from faults import (
    ENDED,
    SCRIPT,
    Run,
    alive,
    cut_network,
    interrupt,
    kill_agent,
    kill_launcher,
    mend_network,
    on_rank_one,
    outlive_controller,
    power_off,
    reachable,
    small_disk,
    suffer,
    take_port,
    until,
)
from lab import keep

LINES = """
import os, sys, time
begun = time.time()
for number in range(int(sys.argv[1])):
    print(f"line {number} of rank {os.environ['RANK']} with some text as a training writes it", flush=True)
    late = begun + number * 0.003 - time.time()
    if late > 0:
        time.sleep(late)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "faulty.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "lines.py").write_text(LINES, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results():
    """The table for docs/benchmarks.md, written by tests/bench/bench_faults.py."""
    found: dict[str, dict[str, object]] = {}
    yield found
    keep("faults.json", found)


def kill_head(run):
    run.hosts["node1"].check_output("pkill -9 -u alice")


CASES = {
    "script raises on one rank": (on_rank_one("USR1"), "rank 1 on node2 failed first: exit status 1", ()),
    "kill -9 of a rank": (on_rank_one("KILL"), "rank 1 on node2 failed first: killed by SIGKILL", ()),
    "kill -9 of a node's launcher": (kill_launcher("node2"), "(rank|launcher).*node2", ()),
    "kill -9 of a node's supervisor": (kill_agent, "node2: the supervisor of the run was killed", ()),
    "kill -9 of all on the head": (kill_head, "(rank|launcher|supervisor).*node1|node1: the supervisor", ()),
    "exit 0 on one rank early": (on_rank_one("USR2"), "rank 1 on node2 had left with exit status 0 before", ()),
    "Ctrl-C": (interrupt, "ended by SIG(INT|TERM) on the controller", ()),
    "network of a node cut": (cut_network, "node2 no longer answers", ("node2",)),
    "node powered off": (power_off("node3"), "node3 no longer answers", ("node3",)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_seen_named_and_cleaned_up(lab, hosts, tmp_path, work, results, name):
    inject, words, gone = CASES[name]
    run = Run(lab, hosts, tmp_path, work / "faulty.py", "-", launch_user="alice")
    run.wait_for("node3:2 | step 20")
    try:
        results[name], said = suffer(run, inject, gone)
        assert results[name]["code"] == (99 if name == "Ctrl-C" else 2)
        assert re.search(words, said), said
        assert results[name]["clean"] - results[name]["seen"] < ENDED
        # Two polls and the grace, on a machine that is busy; a lost node is given 16 s to answer.
        assert results[name]["seen"] < (30 if gone else 10)
    finally:
        if name == "network of a node cut":
            mend_network(lab)
        if name == "node powered off":
            run.lab.podman("start", f"{lab.prefix}-node3")
        run.abandon()
    if gone:
        until(lambda: reachable(lab, gone[0]), 90, 1)
        until(lambda: not alive(hosts[gone[0]]), 60)


def test_a_run_outlives_a_killed_controller_and_is_stopped(lab, hosts, tmp_path, work, results):
    run = Run(lab, hosts, tmp_path, work / "faulty.py", "-", launch_user="alice")
    run.wait_for("node3:2 | step 20")
    results["controller killed with -9"] = outlive_controller(run, tmp_path)


def test_a_full_disk_is_named(lab, hosts, tmp_path, work, results):
    with small_disk(hosts["node2"]):
        run = Run(lab, hosts, tmp_path, work / "faulty.py", "full", launch_user="alice", launch_min_free_bytes=0)
        run.wait_for("node3:2 | step 20")
        results["disk full"], _said = suffer(run, on_rank_one("USR1"))
        assert results["disk full"]["named"] == "rank 1 on node2 failed first: exit status 1"
        assert "No space left on device" in run.said()


def test_a_taken_port_is_refused(lab, hosts, tmp_path, work, results):
    results["port taken by a foreign process"] = take_port(
        lab, hosts, tmp_path, work / "faulty.py", launch_user="alice"
    )


def test_a_thousand_lines_a_second_and_none_is_lost(lab, hosts, tmp_path, work, results):
    used = {}
    for count in (10, 6000):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        (tmp_path / str(count)).mkdir()
        run = Run(lab, hosts, tmp_path / str(count), work / "lines.py", str(count), launch_user="alice")
        assert run.process.wait(180) == 0, run.said()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used[count] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for rank in range(3):
            log = (run.run / f"node{rank + 1}" / f"rank-{rank}.log").read_text(encoding="utf-8").splitlines()
            wanted = [f"line {number} of rank {rank} with some text as a training writes it" for number in range(count)]
            assert log == wanted
    results["cost"] = {"lines": 18000, "seconds": 18, "cpu": used[6000] - used[10]}
