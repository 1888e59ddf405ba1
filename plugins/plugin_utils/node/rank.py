# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every launcher starts in place of the training script: `rank.py RUN_DIR COMMAND ...`.

Keeps one log and one exit record per rank, whatever the launcher is, and notes the world that really came up. The
command runs as a child in its own right: its signals, exit status and death by SIGKILL are seen and passed on.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, List, Optional, Sequence

# Launchers name the same things differently; the first that is set counts.
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
LOCAL_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")
WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")
LOCAL_WORLD_VARIABLES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_SIZE")
TORCH_VARIABLES = (
    ("RANK", RANK_VARIABLES),
    ("LOCAL_RANK", LOCAL_VARIABLES),
    ("WORLD_SIZE", WORLD_VARIABLES),
    ("LOCAL_WORLD_SIZE", LOCAL_WORLD_VARIABLES),
)
PAYLOAD = "payload.json"

REDRAW_SECONDS = 1.0  # a progress bar keeps one state a second
DRAIN_SECONDS = 2.0  # what a grandchild that holds the pipe open may delay the end
RESERVE = 65536  # bytes
ERROR_LENGTH = 2000  # characters of an exception
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4

# A \r at the very end may be the first half of \r\n.
LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


def number(names: Sequence[str]) -> Optional[int]:
    for name in names:
        value = os.environ.get(name, "")
        if value.lstrip("-").isdigit():
            return int(value)
    return None


def write_json(path: str, data: Any) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(data, stream)
    os.rename(temporary, path)


def join_unit(run_dir: str) -> None:
    """Into the control group of the run's unit, with which a rank that came over ssh then ends. Only root may."""
    try:
        with open(os.path.join(run_dir, "agent.json"), encoding="utf-8") as stream:
            agent = json.load(stream)["pid"]
        with open(f"/proc/{agent}/cgroup", encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except (OSError, ValueError, KeyError):
        return
    mounts = {"": ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"), "name=systemd": ("/sys/fs/cgroup/systemd",)}
    for _number, controllers, path in (line.split(":", 2) for line in lines):
        for mount in mounts.get(controllers, ()) if "/torchfleet-" in path else ():
            try:
                with open(f"{mount}{path}/cgroup.procs", "w", encoding="utf-8") as stream:
                    stream.write(str(os.getpid()))
            except OSError:
                continue


def take_payload(run_dir: str, command: List[str]) -> List[str]:
    """The rank's command. Where the launcher cannot carry it unharmed it lies on the node, with all that belongs to it.

    What the launcher adds (`--local_rank=1`) comes after it.
    """
    try:
        with open(os.path.join(run_dir, PAYLOAD), encoding="utf-8") as stream:
            payload = json.load(stream)
    except FileNotFoundError:
        return command
    if not payload["queued"]:
        join_unit(run_dir)
    os.environ.update(payload["env"])
    os.chdir(payload["cwd"])
    return [*payload["argv"], *command]


def name_ranks() -> None:
    """The names that torch reads, beside those of MPI and Slurm."""
    for name, others in TORCH_VARIABLES:
        value = number(others)
        if value is not None:
            os.environ[name] = str(value)
    first, rank = number(("TORCHFLEET_FIRST_RANK",)), number(RANK_VARIABLES)
    if first is not None and rank is not None:
        os.environ["LOCAL_RANK"] = str(rank - first)


def forget_others(run_dir: str, label: str, local_rank: Optional[int]) -> None:
    """Drop the records of ranks that held this place on the node before: an elastic launcher deals ranks anew."""
    folder = os.path.join(run_dir, "ranks")
    for name in os.listdir(folder) if local_rank is not None else []:
        if name.endswith(".exit.json") or not name.endswith(".json") or name == label + ".json":
            continue
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as stream:
                held = json.load(stream)
            gone = not os.path.exists(f"/proc/{held['pid']}")
            for old in (path[: -len("json")] + "exit.json", path) if held["local_rank"] == local_rank and gone else ():
                if os.path.exists(old):
                    os.unlink(old)
        except (OSError, ValueError, KeyError):
            continue


class Thinner:
    """Lines as they are; of a progress bar's states (text ended by a carriage return) one a second and the last."""

    def __init__(self, write: Callable[[bytes], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.write = write
        self.clock = clock
        self.rest = b""
        self.pending: Optional[bytes] = None
        self.last_redraw = float("-inf")
        self.ended = True  # what was written last ends a line

    def feed(self, data: bytes) -> None:
        self.rest += data
        out = []
        start = 0
        for found in LINE_END.finditer(self.rest):
            line, end = self.rest[start : found.start()], found.group()
            start = found.end()
            if end != b"\r":
                # A bar that is redrawn starts with \r: an empty line then closes the last state.
                if not line and self.pending is not None:
                    line = self.pending
                self.pending = None
                out.append(line + b"\n")
            elif line:
                self.pending = line
                if self.clock() - self.last_redraw >= REDRAW_SECONDS:
                    self.last_redraw = self.clock()
                    out.append(line + b"\r")
                    self.pending = None
        self.rest = self.rest[start:]
        if len(self.rest) > 65536:  # no line end in sight: do not hold it back for ever
            out.append(self.rest)
            self.rest = b""
        if out:
            self.ended = out[-1].endswith(b"\n")
            self.write(b"".join(out))

    def close(self) -> None:
        tail = self.rest.rstrip(b"\r") or self.pending or b""
        if tail or not self.ended:
            self.write(tail + b"\n")


def reserve(path: str) -> None:
    """Room for a rank's last words and its exit record, should the disk be full by then."""
    with contextlib.suppress(OSError), open(path, "wb") as stream:
        stream.write(b"\0" * RESERVE)


def give_room(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def keep(log: int, data: bytes, room: str) -> None:
    """Into the log, or nowhere: a full disk must not block the rank or take its end from us."""
    while data:
        try:
            data = data[os.write(log, data) :]
        except OSError:
            if not give_room(room):
                return


def exception_in(path: str) -> Optional[str]:
    """The exception in torch's error file, in its own words; None where the script does not use torch's @record."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            message = json.load(stream)["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(message["message"] if isinstance(message, dict) and "message" in message else message)[:ERROR_LENGTH]


def pump(source: int, thinner: Thinner) -> None:
    while True:
        data = os.read(source, 65536)
        if not data:
            return
        thinner.feed(data)


def die_with_parent() -> None:
    # Without it a killed shim would leave its rank training on.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    run_dir = sys.argv[1]
    command = take_payload(run_dir, sys.argv[2:])
    name_ranks()
    rank = number(RANK_VARIABLES)
    label = f"rank-{rank}" if rank is not None else f"rank-unknown-{os.getpid()}"
    if rank is not None:
        forget_others(run_dir, label, number(LOCAL_VARIABLES))
    record = os.path.join(run_dir, "ranks", label)
    log = os.open(os.path.join(run_dir, "logs", label + ".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    owner = os.stat(run_dir)
    if os.geteuid() == 0 and owner.st_uid:  # Slurm starts all ranks as the head's user
        os.fchown(log, owner.st_uid, owner.st_gid)
    room = f"{record}.room"
    reserve(room)
    thinner = Thinner(lambda data: keep(log, data, room))

    reader, writer = os.pipe()
    if os.path.exists(record + ".exit.json"):  # of an attempt before this one
        os.unlink(record + ".exit.json")
    child: Optional[subprocess.Popen[bytes]] = None
    early: List[int] = []

    def pass_on(number: int, _frame: Any) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), pass_on)
    # Where torch's @record puts an exception: torchrun names a place, other launchers none.
    errors = os.environ.setdefault("TORCHELASTIC_ERROR_FILE", record + ".error")
    with contextlib.suppress(OSError):
        os.unlink(errors)
    started = time.time()
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, preexec_fn=die_with_parent
        )
    except OSError as error:
        keep(log, f"cannot start: {error.filename or command[0]}: {error.strerror}\n".encode(), room)
    os.close(writer)
    if child is not None:
        for early_number in early:
            child.send_signal(early_number)
    write_json(
        record + ".json",
        {
            "rank": rank,
            "local_rank": number(LOCAL_VARIABLES),
            "world_size": number(WORLD_VARIABLES),
            "master_addr": os.environ.get("MASTER_ADDR"),
            "master_port": os.environ.get("MASTER_PORT"),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "attempt": number(("TORCHELASTIC_RESTART_COUNT",)) or 0,
            "pid": child.pid if child else None,
            "started": started,
        },
    )
    reading = threading.Thread(target=pump, args=(reader, thinner), daemon=True)
    reading.start()
    status = child.wait() if child else 127
    ended = time.time()
    reading.join(DRAIN_SECONDS)
    thinner.close()
    give_room(room)
    with contextlib.suppress(OSError):  # without a record it counts as vanished; its status is passed on all the same
        write_json(
            record + ".exit.json",
            {
                "code": status if status >= 0 else None,
                "signal": -status if status < 0 else None,
                "ended": ended,
                "error": exception_in(errors) if status else None,
            },
        )
    if status < 0:
        # The launcher must see the same end as we did, but no core file of ours is to replace the rank's.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
        os._exit(128 - status)
    os._exit(status)


if __name__ == "__main__":
    main()
