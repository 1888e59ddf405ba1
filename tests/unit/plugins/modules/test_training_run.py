# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module with real processes, on a node without systemd."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.modules import training_run
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _node_scripts
from ansible_collections.torchfleet.cluster.plugins.plugin_utils.node import agent

PATIENCE = 20  # seconds, for what takes milliseconds on an idle machine


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module for a run of a unique name, all of whose processes are ended with the test."""
    monkeypatch.setattr(training_run, "has_systemd", lambda: False)
    run_id = f"unit-{uuid.uuid4().hex[:12]}"
    run_dir = tmp_path / "root" / "runs" / run_id

    def run(state: str, *argv: str, check: bool = False, **more: Any) -> Any:
        plan = {"argv": argv, "env": {"TORCHFLEET_RUN_ID": run_id}, "cwd": "/", "files": more.pop("files", {})}
        params = {
            "state": state,
            "run_id": run_id,
            "run_dir": str(run_dir),
            "user": getpass.getuser(),
            "python": sys.executable,
            "plan": {} if state == "stopped" else {**plan, **more.pop("plan", {})},
            "scripts": _node_scripts.read(),
            "lib": str(tmp_path / "lib"),
            **more,
        }
        with patch_module_args({**params, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            training_run.main()
        return json.loads(capsys.readouterr().out)

    run.run_dir = run_dir  # type: ignore[attr-defined]
    run.pids = lambda: agent.members(run_id)  # type: ignore[attr-defined]
    umask = os.umask(0o022)
    yield run
    os.umask(umask)
    for pid in agent.members(run_id):
        os.kill(pid, 9)


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return value


def test_a_run_starts_ends_and_leaves_its_record(call: Any) -> None:
    assert call("started", "/bin/sh", "-c", "echo $TOKEN; exit 3", secret_env={"TOKEN": "hunter2"})["changed"]
    end = until(lambda: agent.read_json(str(call.run_dir / "exit.json")))
    assert end["code"] == 3
    assert (call.run_dir / "logs" / "launcher.log").read_text() == "hunter2\n"


def test_what_holds_secrets_is_for_the_user_alone_but_the_way_there_is_open(call: Any) -> None:
    os.umask(0o077)
    call("started", "/bin/true", files={str(call.run_dir / "hostfile"): "n1\n"})
    assert call.run_dir.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in call.run_dir.glob("*.json")} == {0}
    assert (call.run_dir / "hostfile").read_text() == "n1\n"
    assert [parent.stat().st_mode & 0o777 for parent in list(call.run_dir.parents)[:2]] == [0o755, 0o755]
    until(lambda: not call.pids())


def test_what_root_executes_is_not_in_the_users_folder(call: Any) -> None:
    command = call("started", "/bin/true")["agent"]
    assert not command[-1].startswith(str(call.run_dir))
    assert not list(call.run_dir.rglob("*.py"))
    assert Path(command[-1]).stat().st_mode & 0o777 == 0o644
    until(lambda: not call.pids())


@pytest.mark.parametrize("path", ["/etc/torchfleet-unit-test", "{run}/../other", "{run}-2/file"])
def test_no_file_is_written_outside_of_the_runs_folder(call: Any, path: str) -> None:
    path = path.format(run=call.run_dir)
    done = call("started", "/bin/true", files={path: "x"})
    assert done["failed"] and "outside of the run's folder" in done["msg"]
    assert not Path(path).exists()
    assert not call.run_dir.exists()


def test_a_run_of_the_same_name_is_not_overwritten(call: Any) -> None:
    call("started", "/bin/true")
    again = call("started", "/bin/false")
    assert again["failed"] and "choose another launch_run_id" in again["msg"]
    until(lambda: not call.pids())


RANK = {"argv": ["/bin/true"], "env": {"A": "b"}, "cwd": "/", "count": 1, "queued": False}


def test_what_was_laid_out_begins_once(call: Any) -> None:
    call("prepared", "/bin/sh", "-c", "exit 3", launch={"planned": 1.5})
    assert not call.pids()
    assert call("prepared", "/bin/true", launch={"planned": 1.5})["failed"]
    assert call("started", "/bin/true", launch={"planned": 2.5})["failed"], "another launch's files are not taken"
    call("started", "/bin/sh", "-c", "exit 3", launch={"planned": 1.5})
    assert call("started", "/bin/true", launch={"planned": 1.5})["failed"]
    end = until(lambda: agent.read_json(str(call.run_dir / "exit.json")))
    assert end["code"] == 3


def test_a_link_in_the_place_of_the_runs_folder_is_not_followed(call: Any, tmp_path: Path) -> None:
    call("prepared", "/bin/true")
    call.run_dir.rename(tmp_path / "aside")
    call.run_dir.symlink_to(tmp_path / "aside")
    assert call("started", "/bin/true")["failed"]
    assert not (tmp_path / "aside" / "agent.json").exists()


def test_ranks_that_the_head_starts_are_waited_for_with_root_owned_scripts(call: Any) -> None:
    call("prepared", plan={"rank": RANK}, secret_env={"TOKEN": "hunter2"})
    plan = agent.read_json(str(call.run_dir / "plan.json"))
    assert not Path(plan["argv"][2]).is_relative_to(call.run_dir) and Path(plan["argv"][2]).is_file()
    assert "TOKEN" not in plan["env"]
    assert agent.read_json(str(call.run_dir / "payload.json"))["env"]["TOKEN"] == "hunter2"
    call("started", plan={"rank": RANK})
    (call.run_dir / "ranks" / "rank-0.json").write_text(json.dumps({"pid": 2**22 + 1}))
    (call.run_dir / "ranks" / "rank-0.exit.json").write_text(json.dumps({"code": 5, "signal": None}))
    assert until(lambda: agent.read_json(str(call.run_dir / "exit.json")))["code"] == 5


def test_check_mode_starts_and_ends_nothing(call: Any) -> None:
    assert call("started", "/bin/true", check=True)["changed"]
    assert not call.run_dir.exists()
    call("started", "/bin/sleep", "1000")
    until(lambda: len(call.pids()) == 2)
    assert call("stopped", check=True)["changed"]
    assert len(call.pids()) == 2


def test_a_run_is_ended_politely_once(call: Any) -> None:
    call("started", "/bin/sleep", "1000")
    until(lambda: (call.run_dir / "agent.json").exists() and len(call.pids()) == 2)
    done = call("stopped")
    assert (done["changed"], done["left"], call.pids()) == (True, [], [])
    assert not call("stopped")["changed"]


def test_what_does_not_end_politely_is_killed_after_the_grace(call: Any) -> None:
    call("started", "/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: [path for path in call.run_dir.glob("logs/launcher.log") if "ready" in path.read_text()])
    assert call("stopped", stop_grace=0.2)["left"] == []
    until(lambda: not call.pids())


@pytest.mark.parametrize(("lines", "held"), [("echo $(cat pid)", True), ("echo 1", False), ("exit 9", False)])
def test_gpu_memory_that_outlives_its_process_is_named(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, held: bool
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\ncd {tmp_path}\n{lines}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(training_run, "SLACK", 0.6)
    call("started", "/bin/sleep", "1000")
    until(lambda: (call.run_dir / "agent.json").exists() and len(call.pids()) == 2)
    pid = call.pids()[0]
    (tmp_path / "pid").write_text(str(pid))
    done = call("stopped")
    assert call.pids() == []
    assert bool(done.get("failed")) is held
    if held:
        assert done["left"] == [pid]
        assert "GPU memory of run" in done["msg"]


@pytest.mark.parametrize("ours", [False, True])
def test_a_port_that_outlives_the_run_is_named(call: Any, ours: bool) -> None:
    """It is held by a process that left the run's environment behind, or by one of another run, which is none of ours."""
    server = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    env = {"TORCHFLEET_RUN_ID": "another"} if ours else {}
    command = [sys.executable, "-I", "-c", f"{server}; time.sleep(100)"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline())  # type: ignore[union-attr]
            call("started", "/bin/sleep", "1000")
            until(lambda: (call.run_dir / "agent.json").exists() and len(call.pids()) == 2)
            for _round in ("while it runs", "when it is over"):
                done = call("stopped", master_port=port)
                assert bool(done.get("failed")) is not ours
                if not ours:
                    assert done["left"] == [process.pid]
                    assert f"port {port} of run" in done["msg"]
                    assert f"process {process.pid} ({sys.executable}" in done["msg"]
        finally:
            process.kill()
    assert not call("stopped", master_port=port).get("failed")


def test_a_run_that_was_never_here_is_stopped_already(call: Any) -> None:
    assert not call("stopped")["changed"]
