# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shim around each rank: its Thinner, and the script itself as a process."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.plugin_utils.node import rank as shim

SCRIPT = shim.__file__
CORES_IN_PLACE = Path("/proc/sys/kernel/core_pattern").read_text().strip() in ("core", "core.%p")
PATIENCE = 20  # seconds, for what takes milliseconds on an idle machine


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := true()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return value


# The thinner


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def thin(*chunks: bytes, step: float = 0.0) -> bytes:
    """What is written of the chunks, of which one comes every `step` seconds."""
    out: list[bytes] = []
    clock = Clock()
    thinner = shim.Thinner(out.append, clock)
    for chunk in chunks:
        thinner.feed(chunk)
        clock.now += step
    thinner.close()
    return b"".join(out)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (b"", b""),
        (b"one\ntwo\n", b"one\ntwo\n"),
        (b"\n\none\n\n", b"\n\none\n\n"),
        (b"no end", b"no end\n"),
        (b"crlf\r\nx\r\n", b"crlf\nx\n"),
        (b"a\r", b"a\n"),
        (b"\r\r\r", b""),
        # The first state of a burst and the last; a line that overwrites a bar; a bar that a line end closes.
        (b"\r10%\r20%\r30%\n", b"10%\r30%\n"),
        (b"10%\r20%\r30%\r\n", b"10%\r30%\n"),
        (b"10%\r20%\r30%\r", b"10%\r30%\n"),
        (b"10%\r20%\r30%", b"10%\r30%\n"),
        (b"10%\r20%\rerror: x\nnext\n", b"10%\rerror: x\nnext\n"),
        (b"10%\r20%\r\nnext\n", b"10%\r20%\nnext\n"),
        (b"10%\r20%\r30%\r\r\nnext\n", b"10%\r30%\nnext\n"),
        (b"tqdm: \xe2\x96\x88\xff\n", b"tqdm: \xe2\x96\x88\xff\n"),
    ],
)
def test_lines_stay_and_bars_are_thinned_however_the_text_is_cut(data: bytes, kept: bytes) -> None:
    assert thin(data) == kept
    assert thin(*(data[at : at + 1] for at in range(len(data)))) == kept
    for cut in range(len(data)):
        assert thin(data[:cut], data[cut:]) == kept


def test_a_bar_keeps_one_state_a_second_and_the_last() -> None:
    states = [b"\r%d%%" % number for number in range(101)]
    kept = thin(*states, b"\n", step=0.1).split(b"\r")
    assert 10 <= len(kept) <= 12  # ten seconds
    assert kept[-1] == b"100%\n"


def test_a_bar_that_ends_on_a_state_just_written_still_ends_its_line() -> None:
    assert thin(b"99%\r", b"100%\r", b"", step=5.0) == b"99%\r100%\n"
    assert thin(b"100%\r\r") == b"100%\r\n"


def test_two_bars_do_not_hide_the_lines_between_them() -> None:
    bars = [b"\repoch %d: %d%%" % (epoch, done) for epoch in range(3) for done in range(0, 101, 5)]
    text = b"".join(bar + (b"\nloss\n" if bar.endswith(b"100%") else b"") for bar in bars)
    assert thin(text).count(b"loss\n") == 3
    for epoch in range(3):
        assert b"epoch %d: 100%%\n" % epoch in thin(text)


def test_text_without_any_end_is_not_held_back() -> None:
    out: list[bytes] = []
    thinner = shim.Thinner(out.append)
    for _ in range(100):
        thinner.feed(b"x" * 4096)
    assert sum(map(len, out)) > 300000
    thinner.close()
    assert b"".join(out) == b"x" * 409600 + b"\n"


def test_no_line_is_ever_lost() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        lines = [b"line %d" % number for number in range(20)]
        text = b"".join(
            b"".join(chance.choices([b"\r", b"\r5%", b"6%\r", b""], k=3)) + b"\r" * chance.randrange(2) + line + end
            for line, end in ((line, chance.choice([b"\n", b"\r\n"])) for line in lines)
        )
        cuts = sorted(chance.choices(range(len(text)), k=5))
        kept = thin(*(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])), step=chance.random())
        shown = [line.rpartition(b"\r")[2] for line in kept.split(b"\n")]
        assert [word[word.find(b"line") :] for word in shown if b"line" in word] == lines, seed


# The script


class Run:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("logs", "ranks"):
            (folder / name).mkdir()
        self.shims: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        world = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
        started = subprocess.Popen(
            [sys.executable, SCRIPT, str(self.folder), *command],
            env={"PATH": os.defpath, **world, **env},
            cwd=self.folder,
        )
        self.shims.append(started)
        return started

    def record(self, name: str = "rank-3.json") -> Any:
        path = self.folder / "ranks" / name
        return json.loads(path.read_text()) if path.exists() else None

    def end(self) -> Any:
        return self.record("rank-3.exit.json")

    def log(self, name: str = "rank-3.log") -> bytes:
        path = self.folder / "logs" / name
        return path.read_bytes() if path.exists() else b""

    def started(self, word: bytes = b"ready") -> int:
        """The pid of the rank, once it said the word."""
        until(lambda: word in self.log() and self.record())
        return int(self.record()["pid"])


@pytest.fixture
def run(tmp_path: Path) -> Any:
    made = Run(tmp_path)
    yield made
    for started in made.shims:
        started.kill()
        started.wait()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("code", [0, 1, 17, 255])
def test_the_exit_status_is_passed_on_and_kept(run: Run, code: int) -> None:
    before = time.time()
    assert run.start("sh", "-c", f"echo out; echo err >&2; exit {code}").wait(PATIENCE) == code
    end = run.end()
    assert (end["code"], end["signal"]) == (code, None)
    assert before <= run.record()["started"] <= end["ended"] <= time.time()
    assert run.log() == b"out\nerr\n"


def test_the_world_that_came_up_is_noted(run: Run) -> None:
    assert run.start("true", TORCHELASTIC_RESTART_COUNT="2").wait(PATIENCE) == 0
    record = run.record()
    assert (record["rank"], record["local_rank"], record["world_size"], record["attempt"]) == (3, 1, 8, 2)
    assert (record["master_addr"], record["master_port"]) == ("10.0.0.1", "29500")


@pytest.mark.parametrize(
    ("content", "code", "error"),
    [
        ('{"message": {"message": "ValueError: boom", "extraInfo": {}}}', 1, "ValueError: boom"),
        ('{"message": "RuntimeError: plain"}', 1, "RuntimeError: plain"),
        ('{"message": {"message": "of an earlier attempt"}}', 0, None),
        ("no json", 1, None),
        ("[]", 1, None),
        (None, 1, None),
    ],
)
def test_the_exception_in_torchs_error_file_is_kept(
    run: Run, content: str | None, code: int, error: str | None
) -> None:
    write = f"printf %s '{content}' > \"$TORCHELASTIC_ERROR_FILE\"; " if content else ""
    assert run.start("sh", "-c", f"{write}exit {code}").wait(PATIENCE) == code
    assert run.end()["error"] == error


def test_an_error_file_that_the_launcher_names_is_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.json"
    path.write_text('{"message": "of an earlier attempt"}')
    assert run.start("false", TORCHELASTIC_ERROR_FILE=str(path)).wait(PATIENCE) == 1
    assert run.end()["error"] is None


@pytest.mark.parametrize(
    ("env", "world"),
    [
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"}, (3, 1, 8)),
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, (3, 1, 8)),
        ({"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "8"}, (3, 1, 8)),
        ({"OMPI_COMM_WORLD_RANK": "3", "PMI_RANK": "7", "PMI_SIZE": "8"}, (3, None, 8)),
    ],
)
def test_other_launchers_name_the_world_differently(
    run: Run, env: dict[str, str], world: tuple[int | None, ...]
) -> None:
    empty = {"RANK": "", "LOCAL_RANK": "", "WORLD_SIZE": ""}
    assert run.start("true", **empty, **env).wait(PATIENCE) == 0
    record = run.record()
    assert (record["rank"], record["local_rank"], record["world_size"]) == world


@pytest.mark.parametrize("value", ["", "none", "-", "1.5"])
def test_processes_that_are_told_no_rank_do_not_overwrite_each_other(run: Run, value: str) -> None:
    shims = [run.start("sh", "-c", f"echo {number}; exit {number}", RANK=value) for number in range(2)]
    assert [started.wait(PATIENCE) for started in shims] == [0, 1]
    for number, started in enumerate(shims):
        name = f"rank-unknown-{started.pid}"
        assert run.record(f"{name}.json")["rank"] is None
        assert run.record(f"{name}.exit.json")["code"] == number
        assert run.log(f"{name}.log") == b"%d\n" % number


def test_arguments_reach_the_command_as_they_are(run: Run) -> None:
    odd = ["", "two words", "$HOME", "--", "-x", "*", "new\nline", "ünï"]
    assert run.start(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *odd).wait(PATIENCE) == 0
    assert run.log().decode() == ascii(odd) + "\n"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGUSR1"])
def test_death_by_a_signal_is_passed_on_as_the_same_signal(run: Run, name: str) -> None:
    number = getattr(signal, name)
    assert run.start("sh", "-c", f"echo before; kill -{number} $$").wait(PATIENCE) == -number
    end = run.end()
    assert (end["code"], end["signal"]) == (None, number)
    assert run.log() == b"before\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signals_reach_the_rank_which_may_end_as_it_likes(run: Run, name: str) -> None:
    script = f"trap 'echo got it; exit 7' {name[3:]}; echo ready; while :; do sleep 0.05; done"
    started = run.start("sh", "-c", script)
    run.started()
    started.send_signal(getattr(signal, name))
    assert started.wait(PATIENCE) == 7
    assert run.end()["code"] == 7
    assert run.log() == b"ready\ngot it\n"


def test_a_shim_that_is_killed_takes_its_rank_with_it(run: Run) -> None:
    started = run.start("sh", "-c", "echo ready; exec sleep 1000")
    pid = run.started()
    assert not gone(pid)
    started.kill()
    until(lambda: gone(pid))
    assert run.end() is None


def test_a_grandchild_that_holds_the_pipe_does_not_delay_the_end_for_ever(run: Run, tmp_path: Path) -> None:
    started = run.start("sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; echo said; exit 5")
    assert started.wait(PATIENCE) == 5
    assert run.end()["code"] == 5
    assert run.log() == b"said\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_everything_said_before_the_end_is_in_the_log(run: Run) -> None:
    code = (
        "import os, sys\nfor i in range(20000): print('line', i, 'x' * 50)\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
    )
    assert run.start(sys.executable, "-c", code).wait(PATIENCE) == -9
    lines = run.log().splitlines()
    assert (len(lines), lines[0][:6], lines[-1][:10]) == (20000, b"line 0", b"line 19999")


def test_the_log_of_a_bar_is_short_and_has_its_last_state(run: Run) -> None:
    code = r"for i in range(5001): print(f'\r{i}/5000', end='', flush=i % 100 == 0)" + "\nprint()"
    assert run.start(sys.executable, "-c", code).wait(PATIENCE) == 0
    assert run.log().endswith(b"5000/5000\n")
    assert run.log().count(b"\r") < PATIENCE


def test_a_second_attempt_adds_to_the_log_and_forgets_the_first_ones_end(run: Run) -> None:
    assert run.start("sh", "-c", "echo first; exit 1").wait(PATIENCE) == 1
    assert run.end()["code"] == 1
    started = run.start("sh", "-c", "echo ready; exec sleep 1000", TORCHELASTIC_RESTART_COUNT="1")
    run.started()
    assert (run.record()["attempt"], run.end()) == (1, None)
    started.terminate()
    assert started.wait(PATIENCE) == -signal.SIGTERM
    assert run.end()["signal"] == signal.SIGTERM
    assert run.log() == b"first\nready\n"


@pytest.mark.parametrize("command", ["/no/such/command", "."])
def test_a_command_that_cannot_start_says_so_and_has_an_end(run: Run, command: str) -> None:
    assert run.start(command).wait(PATIENCE) == 127
    assert (run.end()["code"], run.record()["pid"]) == (127, None)
    assert run.log().startswith(b"cannot start: " + command.encode())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_neither_blocks_the_rank_nor_hides_its_end(run: Run) -> None:
    (run.folder / "logs" / "rank-3.log").symlink_to("/dev/full")
    code = "import sys\nfor i in range(20000): print('line', i, 'x' * 50)\nsys.exit(6)"
    assert run.start(sys.executable, "-c", code).wait(PATIENCE) == 6
    assert run.end()["code"] == 6


@pytest.mark.skipif(not CORES_IN_PLACE, reason="cores are not written into the working directory here")
def test_the_shims_own_core_does_not_replace_the_ranks(run: Run, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        started = run.start("sh", "-c", "ulimit -c 0; kill -ABRT $$")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert started.wait(PATIENCE) == -signal.SIGABRT
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("core")] == []


def test_logs_are_for_the_user_alone(run: Run) -> None:
    assert run.start("true").wait(PATIENCE) == 0
    assert (run.folder / "logs" / "rank-3.log").stat().st_mode & 0o077 == 0


def test_no_temporary_file_is_left(run: Run) -> None:
    assert run.start("true").wait(PATIENCE) == 0
    assert sorted(path.name for path in (run.folder / "ranks").iterdir()) == ["rank-3.exit.json", "rank-3.json"]
