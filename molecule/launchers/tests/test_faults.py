"""What goes wrong under a launcher is seen, named and cleaned up the same way whichever it is."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, contextmanager

import pytest
from faults import (
    ENDED,
    RUNS,
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
from test_conformance import EQUAL, assert_nothing_left, variables_of


def kill_head(run):
    """All of the run there at once, the supervisor with it."""
    pids = re.findall(r"^/proc/(\d+)/", alive(run.hosts["node1"]), re.MULTILINE)
    run.hosts["node1"].run(f"kill -9 {' '.join(pids)}")


LAUNCHERS = [
    "torchrun",
    "python",
    "mpirun",
    "accelerate",
    "accelerate_pdsh",
    "deepspeed",
    "deepspeed-pdsh",
    "deepspeed-openmpi",
    "colossalai-cli",
    "slurm",
]
CASES = {
    "script raises on one rank": (on_rank_one("USR1"), "rank 1 on node2 failed first: exit status 1"),
    "kill -9 of a rank": (on_rank_one("KILL"), "rank 1 on node2 failed first: killed by SIGKILL"),
    "kill -9 of the head's launcher": (kill_launcher("node1"), "node1"),
    "exit 0 on one rank early": (on_rank_one("USR2"), "rank 1 on node2 had left with exit status 0 before"),
    "kill -9 of a node's supervisor": (kill_agent, "node2: the supervisor of the run was killed"),
    "kill -9 of all on the head": (kill_head, "(rank|launcher|supervisor).*node1|node1: the supervisor"),
    "Ctrl-C": (interrupt, "ended by SIG(INT|TERM) on the controller"),
}


def ready(hosts, launcher):
    """Slurm sets a node aside that was away; an administrator brings it back."""
    if launcher == "slurm":
        head = hosts["node1"]
        state = "scontrol -o show node node2 | grep -Eo 'State=[^ ]*'"
        head.run("scontrol update nodename=node2 state=resume")
        until(lambda: head.run(state).stdout.strip() == "State=IDLE", 90, 1)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("work") / "faulty.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


@contextmanager
def training(lab, hosts, folder, script, launcher, argument="-", **more):
    """A run under that launcher that is on its way."""
    run = Run(lab, hosts, folder, script, argument, **{**variables_of(launcher), **EQUAL, **more})
    try:
        run.wait_for("node2:1 | step 20", 120)
        yield run
    finally:
        run.abandon()


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_seen_named_and_cleaned_up(lab, hosts, tmp_path, script, name, launcher):
    inject, words = CASES[name]
    with training(lab, hosts, tmp_path, script, launcher) as run:
        found, said = suffer(run, inject)
        keep("faults-launchers.json", {f"{launcher}: {name}": found})
        assert found["code"] == (99 if name == "Ctrl-C" else 2)
        assert re.search(words, said), said
        assert found["seen"] < 10
        assert found["clean"] - found["seen"] < ENDED
        assert_nothing_left(hosts, run.run.name)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_node_behind_a_cut_link_is_named(lab, hosts, tmp_path, script, launcher):
    with training(lab, hosts, tmp_path, script, launcher) as run, ExitStack() as afterwards:
        afterwards.callback(mend_network, lab)
        found, said = suffer(run, cut_network, ("node2",))
        keep("faults-launchers.json", {f"{launcher}: network of a node cut": found})
        assert found["code"] == 2
        assert "node2 no longer answers" in said
        assert "once it answers, end what it still runs: stop.yml -e run_id=" in " ".join(run.said().split())
        assert found["seen"] < 30
        assert found["clean"] - found["seen"] < ENDED
    until(lambda: reachable(lab, "node2"), 90, 1)
    # Ranks that wait for a peer hear nothing of its end that a dead link swallowed.
    assert lab.playbook("stop", cwd=tmp_path, run_id=run.run.name).code == 0
    until(lambda: not alive(hosts["node2"]), 10)
    ready(hosts, launcher)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_node_without_power_is_named(lab, hosts, tmp_path, script, launcher):
    with training(lab, hosts, tmp_path, script, launcher) as run, ExitStack() as afterwards:
        afterwards.callback(lab.start_node, "node2")
        found, said = suffer(run, power_off("node2"), ("node2",))
        keep("faults-launchers.json", {f"{launcher}: node powered off": found})
        assert found["code"] == 2
        assert "node2 no longer answers" in said
        assert found["seen"] < 30
        assert found["clean"] - found["seen"] < ENDED
    until(lambda: reachable(lab, "node2"), 90, 1)
    assert not alive(hosts["node2"])
    ready(hosts, launcher)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_run_outlives_a_killed_controller_and_is_stopped(lab, hosts, tmp_path, script, launcher):
    with training(lab, hosts, tmp_path, script, launcher) as run:
        keep("faults-launchers.json", {f"{launcher}: controller killed with -9": outlive_controller(run, tmp_path)})
        assert_nothing_left(hosts, run.run.name)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_full_disk_is_named(lab, hosts, tmp_path, script, launcher):
    with small_disk(hosts["node2"]), training(
        lab, hosts, tmp_path, script, launcher, "full", launch_min_free_bytes=0
    ) as run:
        found, _said = suffer(run, on_rank_one("USR1"))
        keep("faults-launchers.json", {f"{launcher}: disk full": found})
        assert found["named"] == "rank 1 on node2 failed first: exit status 1"
        assert "No space left on device" in run.said()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_taken_port_is_refused(lab, hosts, tmp_path, script, launcher):
    found = take_port(lab, hosts, tmp_path, script, **{**variables_of(launcher), **EQUAL})
    keep("faults-launchers.json", {f"{launcher}: port taken by a foreign process": found})


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("mpirun", " failed "),  # its daemons end the ranks themselves
        ("deepspeed-pdsh", "the launcher on node1 has ended, but 1 ranks that it started run on here"),
        ("colossalai-cli", "the launcher on node1 has ended, but 1 ranks that it started run on here"),
    ],
)
def test_nobody_follows_and_the_launcher_dies(lab, hosts, tmp_path, script, launcher, words):
    variables = {**variables_of(launcher), **EQUAL, "launch_detach": True, "launch_run_id": f"alone-{launcher}"}
    for host in hosts.values():
        host.check_output(f"rm -rf /var/lib/torchfleet/runs/alone-{launcher}")
    done = lab.playbook("launch", cwd=tmp_path, launch_script=str(script), launch_args=["-"], **variables)
    assert done.code == 0, done.output
    log = hosts["node2"].file(f"{RUNS}/alone-{launcher}/logs/rank-1.log")
    until(lambda: log.exists and "step 20" in log.content_string, 90)
    agent = json.loads(hosts["node1"].file(f"{RUNS}/alone-{launcher}/agent.json").content_string)
    hosts["node1"].check_output(f"pkill -9 -P {agent['pid']}")
    until(lambda: not any(alive(host) for host in hosts.values()), 60)
    done = lab.playbook("status", cwd=tmp_path, run_id=f"alone-{launcher}")
    assert words in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("launcher", ["deepspeed-pdsh", "accelerate_pdsh"])
def test_a_killed_pdsh_is_no_success(lab, hosts, tmp_path, script, launcher):
    """DeepSpeed's runner then ends with 0, and the ranks train on."""
    with training(lab, hosts, tmp_path, script, launcher) as run:
        # Debian's is a wrapper of pdsh.bin.
        found, said = suffer(run, lambda run: hosts["node1"].check_output("pkill -9 '^pdsh'"))
        keep("faults-launchers.json", {f"{launcher}: kill -9 of pdsh": found})
        assert found["code"] != 0
        assert re.search("launcher on node1|node1.*launcher|rank", said), said
        assert_nothing_left(hosts, run.run.name)
