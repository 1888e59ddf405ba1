# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's supervisor as processes: it runs small commands in the place of a launcher."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.plugin_utils.node import agent

SCRIPT = agent.__file__
SHIM = str(Path(SCRIPT).with_name("rank.py"))
PATIENCE = 20  # seconds, for what takes milliseconds on an idle machine


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return value


def gone(pid: int) -> bool:
    return agent.start_time(pid) is None


class Run:
    """A run's folder. Its run id is unique, so that nothing else on this machine is found or ended."""

    def __init__(self, parent: Path) -> None:
        self.run_id = f"unit-{uuid.uuid4().hex[:12]}"
        self.folder = parent / self.run_id
        for name in ("logs", "ranks"):
            (self.folder / name).mkdir(parents=True)
        self.started: list[subprocess.Popen[bytes]] = []

    def plan(self, *argv: str, **more: Any) -> None:
        env = {"PATH": os.defpath, "TORCHFLEET_RUN_ID": self.run_id, **more.pop("env", {})}
        plan = {"argv": argv, "env": env, "cwd": str(self.folder), "time_limit": 0, "stop_grace": 10, **more}
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def start(self, *argv: str, **more: Any) -> subprocess.Popen[bytes]:
        self.plan(*argv, **more)
        started = subprocess.Popen([sys.executable, "-I", SCRIPT, "run", str(self.folder)], env={"PATH": os.defpath})
        self.started.append(started)
        return started

    def beside(self, **env: str) -> subprocess.Popen[bytes]:
        """A process that the launcher did not start."""
        started = subprocess.Popen(["sleep", "1000"], env=env)
        self.started.append(started)
        until(lambda: Path(f"/proc/{started.pid}/comm").read_text() == "sleep\n")
        return started

    def end(self) -> Any:
        return agent.read_json(str(self.folder / "exit.json"))

    def log(self, name: str = "launcher.log") -> str:
        path = self.folder / "logs" / name
        return path.read_text() if path.exists() else ""

    def pids(self, count: int = 1) -> list[int]:
        """The process ids that the launcher printed, a line each, once there are that many."""
        return [int(line) for line in until(lambda: len(self.log().split()) >= count and self.log().split())]

    def follow(self, state: Any = None, wait: float = 0) -> Any:
        packed = base64.b64encode(json.dumps(state or {}).encode()).decode()
        command = [sys.executable, "-I", SCRIPT, "follow", str(self.folder), packed, str(wait)]
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
        return json.loads(zlib.decompress(base64.b64decode(done.stdout)))

    def sweep(self, *number: str) -> list[int]:
        command = [sys.executable, "-I", SCRIPT, "sweep", str(self.folder), *number]
        return list(json.loads(subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout))


@pytest.fixture
def run(tmp_path: Path) -> Any:
    made = Run(tmp_path)
    yield made
    for pid in agent.members(made.run_id):
        os.kill(pid, signal.SIGKILL)
    for started in made.started:
        started.kill()
        started.wait()


def text_of(answer: Any, name: str) -> bytes:
    return base64.b64decode(answer["chunks"].get(name, ""))


# run


@pytest.mark.parametrize("code", [0, 1, 17])
def test_the_launchers_end_is_kept_and_passed_on(run: Run, code: int) -> None:
    assert run.start("sh", "-c", f"echo out; echo err >&2; exit {code}").wait(PATIENCE) == code
    end = run.end()
    assert {key: end[key] for key in ("code", "signal", "stopped", "timed_out")} == {
        "code": code,
        "signal": None,
        "stopped": False,
        "timed_out": False,
    }
    assert end["started"] <= end["ended"]
    assert run.log() == "out\nerr\n"


def test_a_launcher_that_is_killed(run: Run) -> None:
    assert run.start("sh", "-c", "kill -9 $$").wait(PATIENCE) == 137
    assert (run.end()["code"], run.end()["signal"]) == (None, 9)


def test_the_launcher_has_the_plans_environment_directory_and_arguments_and_nothing_else(run: Run) -> None:
    code = "import json, os, sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:], sys.stdin.read()]))"
    argv = [sys.executable, "-c", code, "two words", "", "$HOME"]
    (run.folder / "work dir").mkdir()
    assert (
        run.start(*argv, env={"MINE": "a b\nc", "LC_ALL": "C.UTF-8"}, cwd=str(run.folder / "work dir")).wait(PATIENCE)
        == 0
    )
    env, cwd, args, stdin = json.loads(run.log())
    assert env == {"PATH": os.defpath, "TORCHFLEET_RUN_ID": run.run_id, "MINE": "a b\nc", "LC_ALL": "C.UTF-8"}
    assert (cwd, args, stdin) == (str(run.folder / "work dir"), ["two words", "", "$HOME"], "")


@pytest.mark.parametrize(
    ("argv", "more", "said"),
    [
        (["/no/such/launcher"], {}, "/no/such/launcher: No such file or directory"),
        (["/"], {}, "/: Permission denied"),
        (["true"], {"cwd": "/no/such/folder"}, "/no/such/folder: No such file or directory"),
    ],
)
def test_a_launcher_that_cannot_start(run: Run, argv: list[str], more: dict[str, Any], said: str) -> None:
    assert run.start(*argv, **more).wait(PATIENCE) == 127
    assert (run.end()["code"], run.end()["error"]) == (127, said)
    assert run.log() == f"cannot start: {said}\n"


def test_a_script_that_is_not_the_controllers_is_not_started(run: Run) -> None:
    path = run.folder / "train.py"
    path.write_text("x")
    good = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert run.start("true", sha256={str(path): good}).wait(PATIENCE) == 0
    path.write_text("y")
    assert run.start("true", sha256={str(path): good}).wait(PATIENCE) == 127
    assert run.end()["error"].startswith(f"{path}: is not the file that the controller has")


def test_the_time_limit_ends_the_launcher(run: Run) -> None:
    assert run.start("sleep", "1000", time_limit=0.1).wait(PATIENCE) == 128 + signal.SIGTERM
    assert (run.end()["signal"], run.end()["timed_out"]) == (signal.SIGTERM, True)


@pytest.mark.parametrize("grace", [0, 0.2])
def test_after_the_grace_all_that_the_launcher_started_is_killed(run: Run, grace: float) -> None:
    script = "trap '' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done"
    assert run.start("sh", "-c", script, time_limit=0.3, stop_grace=grace).wait(PATIENCE) == 128 + signal.SIGKILL
    assert (run.end()["signal"], run.end()["timed_out"]) == (signal.SIGKILL, True)
    until(lambda: gone(run.pids()[0]))


def test_an_ordered_end_is_recorded_though_the_launcher_has_to_be_killed(run: Run) -> None:
    agent = run.start("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done", stop_grace=0.2)
    until(run.pids)
    agent.terminate()
    assert agent.wait(PATIENCE) == 128 + signal.SIGKILL
    assert (run.end()["signal"], run.end()["stopped"]) == (signal.SIGKILL, True)


def test_a_launcher_without_ranks_has_not_the_whole_grace(run: Run) -> None:
    started = run.start("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done", stop_grace=10 * PATIENCE)
    until(run.pids)
    started.terminate()
    assert started.wait(PATIENCE) == 128 + signal.SIGKILL


def test_a_rank_that_saves_its_work_has_the_whole_grace(run: Run) -> None:
    saves = run.beside()
    (run.folder / "ranks" / "rank-0.json").write_text(json.dumps({"rank": 0, "pid": saves.pid}))
    grace = 2 * agent.WITHOUT_RANKS
    started = run.start("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.05; done", stop_grace=grace)
    until(run.pids)
    told = time.monotonic()
    started.terminate()
    assert started.wait(PATIENCE) == 128 + signal.SIGKILL
    assert time.monotonic() - told >= grace


def test_a_limit_that_is_not_reached_changes_nothing(run: Run) -> None:
    assert run.start("true", time_limit=1000).wait(PATIENCE) == 0
    assert run.end()["timed_out"] is False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_polite_end_reaches_the_launchers_whole_group(run: Run, number: int) -> None:
    script = "trap 'echo told; exit 3' TERM; sleep 1000 & echo $!; echo $$; while :; do sleep 0.05; done"
    started = run.start("sh", "-c", script)
    child = run.pids(2)[0]
    until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
    started.send_signal(number)
    assert started.wait(PATIENCE) == 3
    assert (run.end()["code"], run.end()["stopped"], run.end()["timed_out"]) == (3, True, False)
    until(lambda: gone(child))


def test_an_end_ordered_in_the_first_moments_is_not_lost(run: Run) -> None:
    for _ in range(5):
        (run.folder / "agent.json").unlink(missing_ok=True)
        started = run.start("sleep", "1000")
        until(lambda: (run.folder / "agent.json").exists())
        started.terminate()
        assert started.wait(PATIENCE) in (128 + signal.SIGTERM, -signal.SIGTERM)
        until(lambda: run.sweep() == [])


# follow


def test_follow_tells_of_the_launcher_from_its_start_to_its_end(run: Run) -> None:
    run.plan("true")
    assert run.follow()["status"] == "starting"
    started = run.start("sh", "-c", "echo said; exec sleep 1000")
    until(lambda: run.follow()["status"] == "running")
    state: Any = {}
    said = b""
    while True:
        answer = run.follow(state, 1)
        state, said = answer["state"], said + text_of(answer, "launcher.log")
        if said == b"said\n":
            break
    assert answer["status"] == "running"
    started.terminate()
    until(lambda: run.follow(state)["status"] == "exited")
    last = run.follow(state)
    assert (last["exit"]["signal"], last["exit"]["stopped"], last["chunks"]) == (signal.SIGTERM, True, {})
    assert abs(last["now"] - time.time()) < PATIENCE


def test_an_agent_that_is_killed_is_lost(run: Run) -> None:
    started = run.start("sleep", "1000")
    until(lambda: run.follow()["status"] == "running")
    started.kill()
    until(lambda: run.follow()["status"] == "lost")
    assert run.follow()["exit"] is None


def test_another_process_with_the_agents_number_is_not_the_agent(run: Run) -> None:
    run.plan("true")
    agent.write_json(str(run.folder / "agent.json"), {"pid": os.getpid(), "start_time": 1, "started": 0})
    assert run.follow()["status"] == "lost"


def test_an_agent_that_never_comes_up_is_not_waited_for_for_ever(run: Run) -> None:
    run.plan("true")
    assert run.follow()["status"] == "starting"
    long_ago = time.time() - agent.START_SECONDS - 1
    os.utime(run.folder / "plan.json", (long_ago, long_ago))
    answer = run.follow()
    assert (answer["status"], answer["exit"]["error"]) == ("lost", "the run's supervisor did not come up in 30 s")


def test_a_folder_that_was_removed_is_lost(run: Run) -> None:
    for name in ("logs", "ranks", ""):
        (run.folder / name).rmdir()
    assert run.follow()["status"] == "lost"


def test_ranks_are_told_of_with_their_ends(run: Run) -> None:
    shim = f"{sys.executable} {SHIM} {run.folder}"
    script = f"RANK=0 WORLD_SIZE=2 {shim} true; RANK=1 {shim} false"
    assert run.start("sh", "-c", script).wait(PATIENCE) == 1
    (run.folder / "ranks" / "rank-2.json.4711").write_text("{")  # being written
    (run.folder / "ranks" / "rank-3.json").write_text("")  # a disk that is full
    ranks = run.follow()["ranks"]
    assert {name: (entry["world_size"], entry["exit"]["code"]) for name, entry in ranks.items()} == {
        "rank-0": (2, 0),
        "rank-1": (None, 1),
    }


def test_nothing_is_lost_and_nothing_comes_twice_while_a_log_grows(run: Run) -> None:
    write = "for i in range(20000): print('line', i, '\\u20ac' * (i % 50), flush=i % 50 == 0)"
    script = f'RANK=0 {sys.executable} {SHIM} {run.folder} {sys.executable} -c "{write}"; echo done'
    run.start("sh", "-c", script, env={"PYTHONIOENCODING": "utf-8"})
    got = {"launcher.log": b"", "rank-0.log": b""}
    state: Any = {}
    polls = 0
    while True:
        answer = json.loads(zlib.decompress(base64.b64decode(agent.follow(str(run.folder), state, 0.2))))
        state, polls = answer["state"], polls + 1
        for name in answer["chunks"]:
            got[name] += text_of(answer, name)
        if answer["status"] == "exited" and not answer["more"]:
            break
    assert answer["exit"]["code"] == 0
    assert got["rank-0.log"] == b"".join(f"line {i} {chr(0x20AC) * (i % 50)}\n".encode() for i in range(20000))
    assert got["launcher.log"] == b"done\n"
    assert polls > 2


def test_much_text_comes_in_pieces_and_an_end_does_not_cut_it_off(run: Run) -> None:
    assert run.start("sh", "-c", "head -c 2500000 /dev/zero; echo end >&2").wait(PATIENCE) == 0
    (run.folder / "logs" / "rank-0.log").write_bytes(b"x" * 700000)
    sizes: list[int] = []
    answer: Any = {"more": True, "state": {}}
    while answer["more"]:
        answer = run.follow(answer["state"])
        assert answer["status"] == "exited"
        sizes.append(sum(len(base64.b64decode(chunk)) for chunk in answer["chunks"].values()))
    assert max(sizes) <= agent.CHUNK
    assert sum(sizes) == 2500000 + 4 + 700000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read what the user cannot")
def test_root_follows_no_link_out_of_a_users_folder(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "rank-0.log").write_text("hunter2")
    (secret / "rank-0.json").write_text('{"rank": 0, "world_size": "hunter2"}')
    (secret / "exit.json").write_text('{"code": "hunter2"}')
    run.plan("true")
    for name in ("logs", "ranks"):
        (run.folder / name).rmdir()
        (run.folder / name).symlink_to(secret)
    (run.folder / "exit.json").symlink_to(secret / "exit.json")
    assert "hunter2" in str(run.follow()["exit"])  # root's own folder
    for path in (tmp_path, *tmp_path.parents):
        if path != Path("/tmp") and path.is_relative_to("/tmp"):
            path.chmod(0o755)
    secret.chmod(0o700)
    os.chown(run.folder, 1234, 1234)
    code = f"import sys; sys.argv = ['', 'follow', {str(run.folder)!r}, 'e30=', '0']; import agent; agent.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=Path(SCRIPT).parent, check=False)
    assert b"hunter2" not in zlib.decompress(base64.b64decode(done.stdout)) if done.stdout else done.returncode


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives rights up")
@pytest.mark.parametrize(
    ("owner", "parent", "wanted"),
    [(0, 0, 0), (1234, 0, 1234), (1234, 1234, 1234), (0, 1234, agent.NOBODY), (None, 0, agent.NOBODY)],
)
def test_root_looks_at_a_folder_as_its_owner(tmp_path: Path, owner: int | None, parent: int, wanted: int) -> None:
    folder = tmp_path / "run"
    if owner is not None:
        folder.mkdir()
        os.chown(folder, owner, owner)
    os.chown(tmp_path, parent, parent)
    child = os.fork()
    if child == 0:
        agent.become_owner(str(folder))
        os._exit(0 if os.getresuid() == (wanted,) * 3 and (wanted == 0 or 0 not in os.getgroups()) else 1)
    assert os.waitpid(child, 0)[1] == 0


# watch


def test_a_lease_that_nobody_renews_ends_the_launcher_and_says_so(run: Run) -> None:
    assert run.start("sleep", "1000", lease=0.3).wait(PATIENCE) == 128 + signal.SIGTERM
    assert (run.end()["signal"], run.end()["timed_out"]) == (signal.SIGTERM, False)
    assert run.follow()["stop"].startswith("ended by its lease: no controller asked for 0 s")


@pytest.mark.parametrize(("asked", "ended"), [((), 60), ((10, 50, 100), 160), ((70,), 60)])
def test_who_asks_renews_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[int, ...], ended: int
) -> None:
    clock = [0.0]

    class Launcher:
        @staticmethod
        def wait(seconds: float) -> int:
            clock[0] += seconds
            for when in asked:
                if clock[0] >= when:
                    (tmp_path / "asked").touch()
                    os.utime(tmp_path / "asked", (when, when))
            raise subprocess.TimeoutExpired("launcher", seconds)

    monkeypatch.setattr(agent.time, "monotonic", lambda: clock[0])
    with pytest.raises(agent.LeaseExpired):
        agent.wait(Launcher(), str(tmp_path), {"argv": ["x"], "lease": 60}, [])
    assert ended <= clock[0] <= ended + 2 * agent.LOOK_SECONDS


def test_signs_of_life_are_lines_ranks_and_files_and_not_those_who_ask(run: Run) -> None:
    run.plan("true")
    (run.folder / "output").mkdir()
    long_ago = time.time() - 1000
    for path in (run.folder / "plan.json", *run.folder.iterdir()):
        os.utime(path, (long_ago, long_ago))
    assert abs(run.follow()["sign"] - long_ago) < 1
    assert abs(run.follow()["sign"] - long_ago) < 1
    for name in ("logs/rank-0.log", "ranks/rank-0.json", "output/model.pt"):
        (run.folder / name).write_text("x")
        assert run.follow()["sign"] > time.time() - PATIENCE
        (run.folder / name).unlink()
        os.utime((run.folder / name).parent, (long_ago, long_ago))


@pytest.mark.skipif(bool(shutil.which("py-spy")), reason="py-spy answers in place of the faulthandler")
def test_a_rank_that_may_die_says_where_it_is(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text("import time\ndef step():\n    print('in', flush=True)\n    time.sleep(1000)\nstep()\n")
    shim = f"{sys.executable} {SHIM} {run.folder} {sys.executable} -u {script}"
    run.start(
        "sh", "-c", f"RANK=0 {shim}; RANK=1 {sys.executable} {SHIM} {run.folder} true", env={"PYTHONFAULTHANDLER": "1"}
    )
    until(lambda: run.log("rank-0.log") == "in\n")
    assert agent.stacks(str(run.folder), abort=False) == {"rank-0": ""}
    found = agent.stacks(str(run.folder), abort=True)
    assert "line 4 in step" in found["rank-0"]
    until(lambda: run.end())


# list, tail and note


def test_runs_are_told_of_newest_first_with_the_plan_of_those_that_matter(tmp_path: Path) -> None:
    runs = [Run(tmp_path / "runs") for _ in range(3)]
    for number, each in enumerate(runs):
        each.plan("true")
        (each.folder / "launch.json").write_text(json.dumps({"number": number}))
        os.utime(each.folder / "plan.json", (1, 1))
        agent.write_json(str(each.folder / "exit.json"), {"code": number, "signal": None})
        time.sleep(0.02)
    (tmp_path / "runs" / "file").write_text("")
    (tmp_path / "runs" / "link").symlink_to(runs[0].folder)
    told = agent.list_runs(str(tmp_path / "runs"))
    assert [(run["exit"]["code"], run["launch"]) for run in told] == [(2, {"number": 2}), (1, None), (0, None)]
    (one,) = agent.list_runs(str(tmp_path / "runs"), runs[0].run_id)
    assert (one["state"], one["launch"]) == ("exited", {"number": 0})
    assert agent.list_runs(str(tmp_path / "none")) == []
    assert agent.list_runs(str(tmp_path / "runs"), "../runs") == []


def test_the_last_lines_are_what_a_terminal_would_show(run: Run) -> None:
    (run.folder / "logs" / "rank-0.log").write_text("one\n\n10%\r20%\r100%\nlast")
    (run.folder / "logs" / "rank-1.log").write_text("")
    (run.folder / "logs" / "rank-2.log").symlink_to("/etc/passwd")
    assert agent.tail(str(run.folder), 2) == {"rank-0.log": ["100%", "last"], "rank-1.log": []}


def test_the_first_reason_to_end_a_run_stands_and_is_told(run: Run) -> None:
    run.plan("true")
    assert run.follow()["stop"] == ""
    for reason in ("ended by ann", "ended by bob"):
        packed = base64.b64encode(reason.encode()).decode()
        subprocess.run([sys.executable, "-I", SCRIPT, "note", str(run.folder), packed], check=True)
    assert run.follow()["stop"] == "ended by ann"


# sweep


def test_sweep_finds_the_processes_of_this_run_and_no_other(run: Run) -> None:
    mine = [run.beside(TORCHFLEET_RUN_ID=run.run_id), run.beside(A="1", TORCHFLEET_RUN_ID=run.run_id, Z="1")]
    others = [
        run.beside(TORCHFLEET_RUN_ID=f"{run.run_id}-2"),
        run.beside(TORCHFLEET_RUN_ID=run.run_id[:-1]),
        run.beside(TORCHFLEET_RUN_ID=f"x{run.run_id}"),
        run.beside(XTORCHFLEET_RUN_ID=run.run_id),
        run.beside(NOTE=f"TORCHFLEET_RUN_ID={run.run_id}"),
        run.beside(TORCHFLEET_RUN_ID=""),
    ]
    assert sorted(run.sweep()) == sorted(started.pid for started in mine)
    assert run.sweep("0") == run.sweep()
    assert sorted(run.sweep("15")) == sorted(started.pid for started in mine)
    assert [started.wait(PATIENCE) for started in mine] == [-signal.SIGTERM] * 2
    assert run.sweep("9") == []
    assert [started.poll() for started in others] == [None] * len(others)


def test_a_process_that_ended_but_was_not_collected_is_no_member(run: Run) -> None:
    started = run.beside(TORCHFLEET_RUN_ID=run.run_id)
    started.kill()
    until(lambda: run.sweep() == [])
    assert Path(f"/proc/{started.pid}").exists()


def test_sweep_reaches_ranks_in_sessions_of_their_own(run: Run) -> None:
    started = run.start("sh", "-c", "setsid sleep 1000 & echo $!; echo $$; wait")
    rank, launcher = run.pids(2)[:2]
    started.kill()
    started.wait()
    assert sorted(run.sweep("9")) == sorted([rank, launcher])
    until(lambda: gone(rank) and gone(launcher))


def test_a_process_with_an_odd_name_has_a_start_time(run: Run, tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to(shutil.which("sleep") or "sleep")
    started = subprocess.Popen([str(odd), "1000"], env={"PATH": os.defpath, "TORCHFLEET_RUN_ID": run.run_id})
    run.started.append(started)
    until(lambda: "a) R" in Path(f"/proc/{started.pid}/comm").read_text())
    boot = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    assert abs(boot + agent.start_time(started.pid) / os.sysconf("SC_CLK_TCK") - time.time()) < PATIENCE


def test_the_nodes_that_a_launcher_reached_over_ssh_are_told_of_its_end(run: Run, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nshift 6\nprintf "%s\\n" "$@" > {tmp_path}/$1.told\n')
    ssh.chmod(0o755)
    run.plan("false", peers=["n2", "n3"], env={"TORCHFLEET_NODE": "the head"})
    env = {"PATH": f"{tmp_path}:{os.defpath}"}
    done = subprocess.run(
        [sys.executable, "-I", SCRIPT, "run", str(run.folder)], env=env, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1
    for name in ("n2", "n3"):
        line = f"{sys.executable} -I {SCRIPT} headless {run.folder} 'the head' 10"
        assert (tmp_path / f"{name}.told").read_text() == f"{name}\n{line}\n"


def test_a_node_that_cannot_be_told_does_not_hold_up_an_ordered_end(run: Run, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 1000\n")
    ssh.chmod(0o755)
    run.plan("sleep", "1000", peers=["n2", "n3"])
    started = subprocess.Popen(
        [sys.executable, "-I", SCRIPT, "run", str(run.folder)], env={"PATH": f"{tmp_path}:{os.defpath}"}
    )
    run.started.append(started)
    until(lambda: agent.node_state(str(run.folder))[0] == "running")
    started.terminate()
    until(run.end)
    ended = time.monotonic()
    started.wait(PATIENCE)
    assert time.monotonic() - ended < agent.TOLD_SECONDS


@pytest.fixture
def told(run: Run, tmp_path: Path) -> Callable[..., set[str]]:
    """Runs a plan to its end, with an ssh that keeps what it was to do, and says on which nodes it was to do it."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nshift 6\nprintf "%s\\n" "$@" > {tmp_path}/$1.told\n')
    ssh.chmod(0o755)
    code = f"import runpy, sys; sys.argv = [{SCRIPT!r}, 'run', {str(run.folder)!r}]; m = runpy.run_path({SCRIPT!r}); "
    code += "m['run'].__globals__.update(UNATTENDED=0.6, TURN=0); sys.exit(m['main']())"

    def start(*argv: str, **more: Any) -> set[str]:
        run.plan(*argv, others=["n2", "n3"], env={"TORCHFLEET_NODE": "n1"}, **more)
        env = {"PATH": f"{tmp_path}:{os.defpath}"}
        subprocess.run([sys.executable, "-I", "-c", code], env=env, timeout=PATIENCE, check=False)
        return {path.read_text().split()[4] + " on " + path.stem for path in tmp_path.glob("*.told")}

    return start


def test_a_failure_that_nobody_follows_is_told_to_all_nodes(told: Callable[..., set[str]]) -> None:
    assert told("false") == {"failed on n2", "failed on n3"}


@pytest.mark.parametrize("name", ["asked", "told", "stop.json"])
def test_a_failure_that_somebody_knows_of_is_told_to_nobody(run: Run, told: Callable[..., set[str]], name: str) -> None:
    script = f'(sleep 0.3; echo \'{{"reason": "x"}}\' > {name}) & exit 1'
    assert told("sh", "-c", script) == set()


@pytest.mark.parametrize("argv", [("true",), ("sleep", "1000")])
def test_a_run_that_ends_well_or_at_its_limit_is_told_to_nobody(told: Callable[..., set[str]], argv: Any) -> None:
    assert told(*argv, time_limit=0.3) == set()


def test_a_node_ends_with_one_that_failed_elsewhere_and_says_so(run: Run) -> None:
    started = run.start("sleep", "1000")
    until(lambda: agent.node_state(str(run.folder))[0] == "running")
    agent.failed_elsewhere(str(run.folder), "n3", 10)
    assert started.wait(PATIENCE) == 128 + signal.SIGTERM
    assert agent.stop_order(str(run.folder))["stop"] == "the launcher on n3 failed, and nobody followed the run"


def test_a_node_that_has_ended_remembers_that_it_was_told(run: Run) -> None:
    assert run.start("true").wait(PATIENCE) == 0
    agent.failed_elsewhere(str(run.folder), "n3", 10)
    assert (run.folder / "told").exists()
    assert agent.stop_order(str(run.folder))["stop"] == ""


def test_what_outlives_the_heads_launcher_is_ended_and_it_is_said_why(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "ABANDONED", 0.5)
    started = run.start("sleep", "1000")
    until(lambda: agent.node_state(str(run.folder))[0] == "running")
    agent.headless(str(run.folder), "n1", 10)
    assert started.wait(PATIENCE) == 128 + signal.SIGTERM
    assert agent.stop_order(str(run.folder))["stop"] == "the launcher on n1 has ended, but no rank came up here"


def test_what_has_ended_with_the_heads_launcher_is_left_in_peace(run: Run) -> None:
    assert run.start("true").wait(PATIENCE) == 0
    agent.headless(str(run.folder), "n1", 10)
    assert agent.stop_order(str(run.folder))["stop"] == ""
