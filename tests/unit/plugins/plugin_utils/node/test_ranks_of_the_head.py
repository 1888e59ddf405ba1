# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on a node beside the supervisor, as processes: attend, spawn, slurm, and the shim's own reading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.plugin_utils.node import attend, rank, slurm, spawn

PATIENCE = 20  # seconds, for what takes milliseconds on an idle machine


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return value


class Run:
    """A run's folder with what the ranks are given, and the processes that a test starts for it."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / f"unit-{uuid.uuid4().hex[:12]}"
        for name in ("logs", "ranks"):
            (self.folder / name).mkdir(parents=True)
        self.started: list[subprocess.Popen[bytes]] = []

    def payload(self, *argv: str, count: int = 1, queued: bool = False, **env: str) -> None:
        given = {"argv": argv, "env": env, "cwd": str(self.folder), "count": count, "queued": queued}
        (self.folder / "payload.json").write_text(json.dumps(given))

    def start(self, script: Any, *args: str, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, script.__file__, *args]
        bare = {"PATH": os.defpath, "TORCHFLEET_RUN_ID": self.folder.name}
        self.started.append(subprocess.Popen(command, env={**bare, **env}, stdout=subprocess.PIPE))
        return self.started[-1]

    def attend(self) -> subprocess.Popen[bytes]:
        return self.start(attend, str(self.folder))

    def rank(self, number: int = 0, **env: str) -> subprocess.Popen[bytes]:
        """A rank as a launcher on another node starts it: with nothing but its number."""
        return self.start(
            rank, str(self.folder), **{"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2", **env}
        )

    def record(self, name: str) -> Any:
        return json.loads((self.folder / "ranks" / f"{name}.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    for process in run.started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes]) -> int:
    return process.wait(PATIENCE)


# The shim


def test_a_rank_finds_its_command_environment_and_directory_on_its_node(run: Run) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['MINE'], os.getcwd() == os.environ['WHERE'])"
    run.payload(sys.executable, "-c", code, "two words", MINE="$x 'y'", WHERE=str(run.folder))
    assert ended(run.rank(0, MINE="of another node")) == 0
    assert (run.folder / "logs" / "rank-0.log").read_text() == "['two words'] $x 'y' True\n"


def test_what_the_launcher_adds_comes_behind_the_arguments(run: Run) -> None:
    run.payload(sys.executable, "-c", "import sys; print(sys.argv[1:])", "a")
    assert ended(run.start(rank, str(run.folder), "--local_rank=1", RANK="1", LOCAL_RANK="1", WORLD_SIZE="2")) == 0
    assert (run.folder / "logs" / "rank-1.log").read_text() == "['a', '--local_rank=1']\n"


WORLD = "import os; print(*(os.environ.get(n) for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')))"


@pytest.mark.parametrize(
    ("env", "world"),
    [
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            "3 1 4 2",
        ),
        ({"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, "3 1 4 2"),
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"}, "3 1 4 None"),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_SIZE": "2"}, "3 1 4 2"),
        # Under a launcher that runs inside a Slurm job its own numbers count.
        (
            {
                "RANK": "3",
                "LOCAL_RANK": "1",
                "WORLD_SIZE": "4",
                "LOCAL_WORLD_SIZE": "2",
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "1",
            },
            "3 1 4 2",
        ),
        # DeepSpeed counts local ranks modulo the slots.
        (
            {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3", "LOCAL_SIZE": "2", "TORCHFLEET_FIRST_RANK": "1"},
            "1 0 3 2",
        ),
    ],
)
def test_ranks_have_torchs_names_whoever_starts_them(run: Run, env: dict[str, str], world: str) -> None:
    assert ended(run.start(rank, str(run.folder), sys.executable, "-c", WORLD, **env)) == 0
    assert (run.folder / "logs" / f"rank-{world[0]}.log").read_text().strip() == world
    record = run.record(f"rank-{world[0]}")
    assert [record[name] for name in ("rank", "local_rank", "world_size")] == [int(part) for part in world.split()[:3]]


def test_a_rank_that_was_dealt_anew_leaves_no_record_of_its_old_number(run: Run) -> None:
    true = (sys.executable, "-c", "")
    for number in ("0", "1"):
        assert ended(run.start(rank, str(run.folder), *true, RANK=number, LOCAL_RANK="0", WORLD_SIZE="2")) == 0
    assert ended(run.start(rank, str(run.folder), *true, RANK="2", LOCAL_RANK="1", WORLD_SIZE="2")) == 0
    names = sorted(path.name for path in (run.folder / "ranks").iterdir())
    assert names == ["rank-1.exit.json", "rank-1.json", "rank-2.exit.json", "rank-2.json"]


# attend


@pytest.mark.parametrize(
    ("code", "status"), [("", 0), ("raise SystemExit(17)", 17), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_attending_ends_as_the_ranks_do(run: Run, code: str, status: int) -> None:
    run.payload(sys.executable, "-c", code)
    waiting = run.attend()
    ended(run.rank())
    assert ended(waiting) == status


def test_attending_waits_for_all_ranks(run: Run) -> None:
    run.payload(sys.executable, "-c", "", count=2)
    waiting = run.attend()
    assert ended(run.rank(0)) == 0
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.6)
    assert ended(run.rank(1)) == 0
    assert ended(waiting) == 0


def test_attending_passes_the_end_on_to_the_ranks(run: Run) -> None:
    run.payload(sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
    waiting, rank_process = run.attend(), run.rank()
    until(lambda: (run.folder / "logs" / "rank-0.log").exists() and (run.folder / "logs" / "rank-0.log").read_text())
    waiting.terminate()
    assert ended(rank_process) == -signal.SIGTERM
    assert ended(waiting) == 128 + signal.SIGTERM


def test_attending_before_any_rank_ends_when_told(run: Run) -> None:
    run.payload("true", queued=True)
    waiting = run.attend()
    until(lambda: b"attend" in Path(f"/proc/{waiting.pid}/cmdline").read_bytes())
    time.sleep(0.5)
    waiting.terminate()
    assert ended(waiting) in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_rank_that_vanished_with_its_shim_is_a_failure(run: Run) -> None:
    run.payload(sys.executable, "-c", "import time; time.sleep(60)")
    waiting, shim = run.attend(), run.rank()
    until(lambda: (run.folder / "ranks" / "rank-0.json").exists())
    shim.kill()
    assert ended(waiting) == 1


def test_attending_lets_what_started_the_ranks_finish(run: Run) -> None:
    run.payload(sys.executable, "-c", "")
    helper = subprocess.Popen(["sleep", "60"], env={"TORCHFLEET_RUN_ID": run.folder.name})
    run.started.append(helper)
    waiting = run.attend()
    assert ended(run.rank()) == 0
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.6)
    helper.kill()
    helper.wait()
    assert ended(waiting) == 0


def test_ranks_that_never_come_are_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.payload("true", count=2)
    monkeypatch.setattr(attend, "APPEAR_SECONDS", 0)
    monkeypatch.setattr(sys, "argv", ["attend.py", str(run.folder)])
    previous = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as end:
            attend.main()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), previous):
            signal.signal(number, handler)
    assert end.value.code == 1
    assert "0 of 2 ranks came up here" in capsys.readouterr().out


# spawn


def test_plain_ranks_have_their_numbers_and_share_one_status(run: Run) -> None:
    done = run.start(spawn, "2", "2", "4", sys.executable, "-c", f"{WORLD[:-1]}, flush=True)")
    out, _err = done.communicate(timeout=PATIENCE)
    assert sorted(out.decode().split("\n")) == ["", "2 0 4 2", "3 1 4 2"]
    assert done.returncode == 0


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(17)", 17), ("os.kill(os.getpid(), 9)", 137)])
def test_the_first_plain_rank_that_fails_ends_the_others(run: Run, code: str, status: int) -> None:
    program = f"import os, time\nif os.environ['RANK'] == '1':\n    {code}\ntime.sleep(60)"
    assert ended(run.start(spawn, "0", "3", "3", sys.executable, "-c", program)) == status


def test_an_end_is_passed_on_to_plain_ranks(run: Run) -> None:
    done = run.start(spawn, "0", "2", "2", sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
    assert done.stdout is not None
    assert [done.stdout.readline() for _ in range(2)] == [b"up\n", b"up\n"]
    done.terminate()
    assert ended(done) == 128 + signal.SIGTERM


@pytest.mark.parametrize(("first", "left"), [("0", False), ("1", True)])
def test_the_meeting_file_goes_with_the_run(run: Run, first: str, left: bool) -> None:
    """A file that stays makes a rerun fail or hang; only one node removes it, and after its ranks' end."""
    meeting = run.folder / "meeting"
    meeting.write_text("")
    assert ended(run.start(spawn, first, "1", "2", "true", INIT_METHOD=f"file://{meeting}")) == 0
    assert meeting.exists() == left


# slurm


@pytest.fixture
def tools(tmp_path: Path) -> Callable[..., list[str]]:
    """Stand-ins for Slurm's tools: squeue tells what is in a file, and scancel empties it."""

    def make(states: str, show: str, sbatch: str = "echo 42") -> list[str]:
        (tmp_path / "queue").write_text(states)
        texts = {
            "sbatch": sbatch,
            # One line a question, and the last one again and again.
            "squeue": f"cd {tmp_path}; head -n 1 queue; [ $(wc -l <queue) -le 1 ] || sed -i 1d queue",
            "scontrol": f"echo '{show}'",
            "scancel": f"echo CANCELLED None >{tmp_path}/queue; echo $1 >{tmp_path}/cancelled",
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        return ["/x/slurm.sh", *(str(tmp_path / name) for name in texts)]

    return make


@pytest.mark.parametrize(
    ("states", "show", "status"),
    [
        (
            "PENDING Resources\nRUNNING None\nCOMPLETED None\n",
            "JobId=42 JobState=COMPLETED Reason=None ExitCode=0:0",
            0,
        ),
        ("FAILED NonZeroExitCode\n", "JobId=42 JobState=FAILED Reason=NonZeroExitCode ExitCode=17:0", 17),
        ("FAILED None\n", "JobState=FAILED ExitCode=0:9", 137),
        ("NODE_FAIL None\n", "JobState=NODE_FAIL ExitCode=0:0", 1),
        ("TIMEOUT None\n", "JobState=TIMEOUT ExitCode=0:0", 1),
        ("COMPLETED None\n", "slurm_load_jobs error: Invalid job id specified", 1),
    ],
)
def test_a_slurm_job_ends_as_slurm_says(run: Run, tools: Any, states: str, show: str, status: int) -> None:
    done = run.start(slurm, *tools(states, show))
    out, _err = done.communicate(timeout=PATIENCE)
    assert done.returncode == status
    assert out.startswith(b"Slurm job 42\n")
    if "PENDING" in states:
        assert b"Slurm job 42 is PENDING (Resources)\nSlurm job 42 is RUNNING\n" in out


def test_a_slurm_job_is_ended_through_slurm(run: Run, tools: Any, tmp_path: Path) -> None:
    done = run.start(slurm, *tools("RUNNING None\n", "JobState=CANCELLED ExitCode=0:15"))
    assert done.stdout is not None
    while b"RUNNING" not in done.stdout.readline():
        pass
    done.terminate()
    assert ended(done) == 143
    assert (tmp_path / "cancelled").read_text() == "42\n"


def test_what_sbatch_refuses_is_said(run: Run, tools: Any) -> None:
    command = [sys.executable, slurm.__file__, *tools("", "", "echo 'invalid partition' >&2; exit 1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert "sbatch refuses the job: invalid partition" in done.stderr
