# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What supervises one run on one node, beside the launcher.

`agent.py run RUN_DIR`             the main process of the run's unit: starts the launcher, keeps its output and its end
`agent.py follow RUN_DIR STATE S`  prints what is new since STATE, at the latest after S seconds
`agent.py sweep RUN_DIR [SIGNAL]`  finds (and signals) every process of the run on this node, whoever started it

`agent.py list RUNS_DIR [RUN_ID]`  tells of the runs that this node has seen
`agent.py tail RUN_DIR LINES`      prints the last lines of each log
`agent.py note RUN_DIR REASON`     writes down why the run is to end (base64)
`agent.py headless RUN_DIR HEAD S` ends what the head's launcher started here, after S seconds' grace, when that is gone
`agent.py stacks RUN_DIR ABORT`    prints where each rank is; with ABORT 1 it may cost the ranks their lives
`agent.py output RUN_DIR FOLDER`   lists the files in the run's output folder
`agent.py read RUN_DIR FOLDER BYTES PLACES`  prints pieces of them, that many bytes at the most

The run's folder is the training user's. What root does with it, it does with that user's rights alone.

Standard library only, Python 3.8 and later.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import pwd
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
import zlib
from typing import Any, Dict, List, Optional, Tuple

CHUNK = 1 << 20  # bytes of log in one answer
NOBODY = 65534
LOOK_SECONDS = 0.5  # between two looks at the time
STACK_SECONDS = 5.0  # for a rank that was told to print its stack
RESERVE = 65536  # bytes
ABANDONED = 8.0  # seconds that ranks may take to end after the launcher on the head that started them
TOLD_SECONDS = 10.0  # for an ssh that brings word to another node
TOLD_AT_THE_END = 2.0  # the same once the end was ordered: whoever ordered it told the others, too
WITHOUT_RANKS = 2.0  # seconds of the grace for a launcher whose ranks here are gone: it has nothing to save
UNATTENDED = 10.0  # seconds in which whoever follows the run asks for it again, several times over
TURN = 0.5  # seconds between two nodes that would tell all others the same
LISTED = 50  # runs that are told of
START_SECONDS = 30  # from the plan's arrival to the agent's first word


def become_owner(run_dir: str) -> None:
    """From root to the user whose folder it is: a link in it then leads nowhere that this user could not go alone."""
    if os.geteuid() != 0:
        return
    uid, gid = NOBODY, NOBODY
    try:
        folder = os.lstat(run_dir)
        # A folder of root's below one of another user's is a trap.
        ours = folder.st_uid != 0 or os.stat(os.path.dirname(run_dir)).st_uid == 0
        if stat.S_ISDIR(folder.st_mode) and ours:
            uid, gid = folder.st_uid, folder.st_gid
    except OSError:
        pass
    if uid == 0:
        return
    try:
        account = pwd.getpwuid(uid)
        os.setgid(account.pw_gid)
        os.initgroups(account.pw_name, account.pw_gid)
    except KeyError:
        os.setgroups([])
        os.setgid(gid)
    os.setuid(uid)


def write_json(path: str, data: Any) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(data, stream)
    os.rename(temporary, path)


def read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def start_time(pid: int) -> Optional[int]:
    """Clock ticks after boot at which the process began: with its pid, that names it for good. None: there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def raise_limits() -> None:
    """Soft limits up to the hard ones: RDMA registers memory, and every connection is a file."""
    for name in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE):
        _soft, hard = resource.getrlimit(name)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(name, (hard, hard))


def check_files(wanted: Dict[str, str]) -> None:
    """Raises OSError where a file is not the one that was planned with, by its SHA-256."""
    for path, digest in wanted.items():
        with open(path, "rb") as stream:
            if hashlib.sha256(stream.read()).hexdigest() != digest:
                raise OSError(errno.EINVAL, "is not the file that the controller has: it was changed meanwhile", path)


def run(run_dir: str) -> int:
    plan = read_json(os.path.join(run_dir, "plan.json"))
    started = time.time()
    ending = {"stopped": False, "timed_out": False}
    grace: List[float] = []  # when it is over, once the end was ordered
    launcher: Optional[subprocess.Popen[bytes]] = None

    def end(_number: int, _frame: Any) -> None:
        ending["stopped"] = True
        if not grace:
            grace.append(time.monotonic() + float(plan.get("stop_grace", 10)))
        # Ranks that came over ssh are told here: some launchers pass nothing on.
        for pid in living_ranks(run_dir) if plan.get("peers") else ():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            if launcher is not None:
                os.killpg(launcher.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    # From here on others know whom to tell.
    write_json(
        os.path.join(run_dir, "agent.json"),
        {"pid": os.getpid(), "start_time": start_time(os.getpid()), "started": started},
    )
    room = os.path.join(run_dir, "room")
    with contextlib.suppress(OSError), open(room, "wb") as stream:
        stream.write(b"\0" * RESERVE)  # for the exit record, should the disk be full by then
    raise_limits()
    log = open(os.path.join(run_dir, "logs", "launcher.log"), "ab", buffering=0)  # noqa: SIM115 (to the very end)
    try:
        check_files(plan.get("sha256") or {})
        launcher = subprocess.Popen(
            plan["argv"],
            env=plan["env"],
            cwd=plan["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        words = "{}: {}".format(error.filename or plan["argv"][0], error.strerror or error)
        log.write((f"cannot start: {words}\n").encode())
        write_json(
            os.path.join(run_dir, "exit.json"),
            {"code": 127, "signal": None, "started": started, "ended": time.time(), "error": words},
        )
        return 127

    if ending["stopped"]:  # told so before there was a launcher to tell
        end(0, None)
    try:
        status = wait(launcher, run_dir, plan, grace)
    except subprocess.TimeoutExpired as expired:
        if isinstance(expired, LeaseExpired):
            note(run_dir, f"ended by its lease: no controller asked for {plan['lease']:.0f} s (launch_lease)")
        else:
            ending["timed_out"] = True
        end(0, None)
        status = wait(launcher, run_dir, plan, grace)
    ended = time.time()
    record = {
        "code": status if status >= 0 else None,
        "signal": -status if status < 0 else None,
        "started": started,
        "ended": ended,
    }
    record.update(ending)
    with contextlib.suppress(OSError):
        os.unlink(room)
    write_json(os.path.join(run_dir, "exit.json"), record)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if plan.get("peers"):  # nobody else may be there to see that the launcher which started their ranks is gone
        call(run_dir, plan, plan["peers"], "headless", TOLD_AT_THE_END if ending["stopped"] else TOLD_SECONDS)
    elif status and not ending["stopped"] and plan.get("others") and unattended(run_dir, ended, plan):
        call(run_dir, plan, plan["others"], "failed")
    return status if status >= 0 else 128 - status


def unattended(run_dir: str, since: float, plan: Dict[str, Any]) -> bool:
    """Whether nobody has asked for the run since, ordered its end, or told this node that it has failed elsewhere."""
    deadline = time.monotonic() + UNATTENDED + TURN * plan.get("turn", 0)
    while time.monotonic() < deadline:
        if stop_order(run_dir)["stop"] or os.path.exists(os.path.join(run_dir, "told")):
            return False
        with contextlib.suppress(OSError):
            if os.stat(os.path.join(run_dir, "asked")).st_mtime > since:
                return False
        time.sleep(0.2)
    return True


def call(run_dir: str, plan: Dict[str, Any], nodes: List[str], verb: str, patience: float = TOLD_SECONDS) -> None:
    """Say to other nodes what has become of this one's launcher, over ssh, all at the same time. One that cannot be
    reached costs so many seconds; what was told in time is done there without us."""
    node = plan["env"].get("TORCHFLEET_NODE", "")
    words = [sys.executable, "-I", os.path.abspath(__file__), verb, run_dir, node, str(plan.get("stop_grace", 10))]
    line = " ".join(shlex.quote(word) for word in words)
    ssh = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={TOLD_SECONDS:.0f}", "--"]
    null = subprocess.DEVNULL
    told = []
    with contextlib.suppress(OSError):
        for other in nodes:
            told.append(subprocess.Popen([*ssh, other, line], stdin=null, stdout=null, stderr=null))
    deadline = time.monotonic() + patience
    for process in told:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def living_ranks(run_dir: str) -> List[int]:
    return [
        record["pid"]
        for record in rank_records(run_dir).values()
        if record["exit"] is None and record.get("pid") and start_time(record["pid"]) is not None
    ]


def headless(run_dir: str, head: str, grace: float) -> None:
    """On another node than the head: end what outlives the launcher there."""
    deadline = time.monotonic() + ABANDONED
    while time.monotonic() < deadline:
        if node_state(run_dir)[0] != "running":
            return
        time.sleep(0.2)
    began = len(living_ranks(run_dir))
    what = f"{began} ranks that it started run on here" if began else "no rank came up here"
    end_here(run_dir, f"the launcher on {head} has ended, but {what}", grace)


def failed_elsewhere(run_dir: str, node: str, grace: float) -> None:
    """On another node than the one that failed, where nobody follows the run: end it here too."""
    with contextlib.suppress(OSError), open(os.path.join(run_dir, "told"), "w"):
        pass
    if node_state(run_dir)[0] == "running":
        end_here(run_dir, f"the launcher on {node} failed, and nobody followed the run", grace)


def end_here(run_dir: str, reason: str, grace: float) -> None:
    note(run_dir, reason)
    agent = read_json(os.path.join(run_dir, "agent.json")) or {}
    with contextlib.suppress(OSError, KeyError):
        os.kill(agent["pid"], signal.SIGTERM)
    deadline = time.monotonic() + grace
    while node_state(run_dir)[0] == "running" and time.monotonic() < deadline:
        time.sleep(0.2)
    sweep(run_dir, signal.SIGKILL)


class LeaseExpired(subprocess.TimeoutExpired):
    """No controller asked for too long."""


def wait(launcher: Any, run_dir: str, plan: Dict[str, Any], grace: List[float]) -> int:
    """The launcher's status; it is killed where it outlives the grace. While no end is ordered, raises TimeoutExpired
    at the time limit, LeaseExpired where nobody asks any more.
    """
    limit, lease = plan.get("time_limit") or float("inf"), plan.get("lease") or float("inf")
    begun = asked = time.monotonic()
    mark = None
    alone = None  # since when, after the order to end, no rank lives here
    while True:
        now = time.monotonic()
        if grace and not living_ranks(run_dir):
            alone = alone or now
            grace[0] = min(grace[0], alone + WITHOUT_RANKS)
        if grace and now >= grace[0]:
            # Here, and not by systemd, which would take this process too, and with it the word of how the run ended.
            launcher.kill()
            sweep(run_dir, signal.SIGKILL)  # its ranks may have sessions of their own
            return int(launcher.wait())
        if grace:
            limit = lease = float("inf")
        try:
            changed = os.stat(os.path.join(run_dir, "asked")).st_mtime
        except OSError:
            changed = None
        if changed != mark:
            mark, asked = changed, now
        if now - begun >= limit:
            raise subprocess.TimeoutExpired(plan["argv"], limit)
        if now - asked >= lease:
            raise LeaseExpired(plan["argv"], lease)
        try:
            seconds = min(LOOK_SECONDS, limit - (now - begun), lease - (now - asked), *(end - now for end in grace))
            status: int = launcher.wait(seconds)
            return status
        except subprocess.TimeoutExpired:
            continue


def note(run_dir: str, reason: str) -> None:
    """Why the run is to end. The first reason stands."""
    if not stop_order(run_dir)["stop"]:
        write_json(os.path.join(run_dir, "stop.json"), {"reason": reason, "time": time.time()})


def last_sign(run_dir: str) -> float:
    """When the run last showed a sign of life here: a line, a rank that came or went, an output file."""
    newest = 0.0
    for name in ("", "logs", "ranks", "output"):
        folder = os.path.join(run_dir, name)
        try:
            with os.scandir(folder) as entries:
                stamps = [entry.stat(follow_symlinks=False).st_mtime for entry in entries if entry.name != "asked"]
            newest = max([newest, *stamps, os.stat(folder).st_mtime if name else 0.0])
        except OSError:
            continue
    return newest


def free_bytes(run_dir: str) -> Optional[int]:
    try:
        return shutil.disk_usage(run_dir).free
    except OSError:
        return None


def log_from(path: str, offset: int) -> str:
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(CHUNK).decode(errors="replace")
    except OSError:
        return ""


def stacks(run_dir: str, abort: bool) -> Dict[str, str]:
    """Each living rank's Python stack: by py-spy where that is to be had, else from its own faulthandler on SIGABRT."""
    found: Dict[str, str] = {}
    dying = {}
    path = ((read_json(os.path.join(run_dir, "plan.json")) or {}).get("env") or {}).get("PATH", os.defpath)
    py_spy = shutil.which("py-spy", path=path)
    for name, record in rank_records(run_dir).items():
        pid = record.get("pid")
        if record["exit"] is not None or not pid or start_time(pid) is None:
            continue
        found[name] = ""
        if py_spy:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run([py_spy, "dump", "--pid", str(pid)], capture_output=True, timeout=10, check=False)
                found[name] = done.stdout.decode(errors="replace")
        if not found[name] and abort:
            log = os.path.join(run_dir, "logs", name + ".log")
            dying[name] = (log, os.path.getsize(log) if os.path.exists(log) else 0)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGABRT)
    deadline = time.monotonic() + STACK_SECONDS
    while dying and time.monotonic() < deadline:
        time.sleep(0.1)
        for name, (log, offset) in list(dying.items()):
            # Looked at first: with the exit record, the log is whole.
            ended = os.path.exists(os.path.join(run_dir, "ranks", name + ".exit.json"))
            found[name] = log_from(log, offset)
            if ended:
                del dying[name]
    return found


def node_state(run_dir: str) -> Tuple[str, Any]:
    """running, exited (there is an exit record), lost (the agent is gone without one, or never came) or starting."""
    record = read_json(os.path.join(run_dir, "exit.json"))
    if record is not None:
        return "exited", record
    agent = read_json(os.path.join(run_dir, "agent.json"))
    if agent is None:
        try:
            waited = time.time() - os.path.getmtime(os.path.join(run_dir, "plan.json"))
        except OSError:
            waited = START_SECONDS
        if waited >= START_SECONDS:
            return "lost", {"error": f"the run's supervisor did not come up in {START_SECONDS} s"}
        return "starting", None
    if start_time(agent["pid"]) == agent["start_time"]:
        return "running", None
    # It may have written its record between the two looks.
    record = read_json(os.path.join(run_dir, "exit.json"))
    return ("exited", record) if record is not None else ("lost", None)


def rank_records(run_dir: str) -> Dict[str, Any]:
    folder = os.path.join(run_dir, "ranks")
    records = {}
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
        if name.endswith(".exit.json") or not name.endswith(".json"):
            continue
        record = read_json(os.path.join(folder, name))
        if record is not None:
            record["exit"] = read_json(os.path.join(folder, name[: -len("json")] + "exit.json"))
            records[name[: -len(".json")]] = record
    return records


def new_text(run_dir: str, offsets: Dict[str, int]) -> Tuple[Dict[str, str], Dict[str, int], bool]:
    """What each log holds beyond its offset, and the new offsets."""
    chunks = {}
    folder = os.path.join(run_dir, "logs")
    room = CHUNK
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
        offset = offsets.get(name, 0)
        path = os.path.join(folder, name)
        if room <= 0:
            break
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
                stream.seek(offset)
                data = stream.read(room) or b""
        except OSError:  # what the user put there in place of a log
            continue
        if not data:
            continue
        room -= len(data)
        chunks[name] = base64.b64encode(data).decode()
        offsets[name] = offset + len(data)
    return chunks, offsets, room <= 0


def stop_order(run_dir: str) -> Dict[str, Any]:
    """`stop`: why somebody ended the run, on this node's word; empty where nobody did. `stop_time`: when."""
    order = read_json(os.path.join(run_dir, "stop.json")) or {}
    return {"stop": str(order.get("reason", "")), "stop_time": order.get("time")}


def tell(run_dir: str) -> Dict[str, Any]:
    """A run as this node saw it."""
    status, record = node_state(run_dir)
    ranks = rank_records(run_dir)
    return {
        "state": status,
        "exit": record,
        "started": (read_json(os.path.join(run_dir, "agent.json")) or {}).get("started"),
        "ranks": ranks,
        **stop_order(run_dir),
        "launch": read_json(os.path.join(run_dir, "launch.json")),
    }


def tell_as_owner(run_dir: str) -> Dict[str, Any]:
    """The same in a child that has the owner's rights alone."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become_owner(run_dir)
            with open(writer, "w", encoding="utf-8") as stream:
                if os.access(run_dir, os.R_OK | os.X_OK):
                    json.dump(tell(run_dir), stream)
                else:
                    json.dump({"state": "private"}, stream)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"state": "unreadable"}


def list_runs(runs_dir: str, wanted: str = "") -> List[Dict[str, Any]]:
    """The runs of this node, or one of them, newest first. The plan comes with the first, and with those that run."""
    found = []
    for name in os.listdir(runs_dir) if os.path.isdir(runs_dir) else []:
        path = os.path.join(runs_dir, name)
        try:
            about = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISDIR(about.st_mode) and wanted in ("", name):
            found.append((about.st_ctime, name, about.st_uid))
    runs: List[Dict[str, Any]] = []
    for _time, name, uid in sorted(found, reverse=True)[:LISTED]:
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        run: Dict[str, Any] = {
            "run_id": name,
            "user": user,
            "launch": None,
            "stop": "",
            "stop_time": None,
            "ranks": {},
            "exit": None,
            "started": None,
        }
        run.update(tell_as_owner(os.path.join(runs_dir, name)))
        if runs and name != wanted and run["state"] not in ("running", "starting"):
            run["launch"] = None
        runs.append(run)
    return runs


def tail(run_dir: str, count: int) -> Dict[str, List[str]]:
    """The last lines of each log; of a progress bar what a terminal would show."""
    folder = os.path.join(run_dir, "logs")
    lines = {}
    for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
        try:
            with open(os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - count * 1000))
                text = (stream.read(count * 1000) or b"").decode(errors="replace")
        except OSError:
            continue
        whole = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        lines[name] = [line for line in whole if line.strip()][-count:] if count else []
    return lines


def packed(answer: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(answer).encode(), 1)).decode()


def list_output(folder: str) -> List[List[Any]]:
    """Path, bytes, mode and time of change of each file; of a link its target stands in place of the bytes."""
    found: List[List[Any]] = []
    for top, _folders, names in os.walk(folder):
        for name in _folders + names:
            path = os.path.join(top, name)
            with contextlib.suppress(OSError):
                about = os.lstat(path)
                relative = os.path.relpath(path, folder)
                if stat.S_ISLNK(about.st_mode):
                    found.append([relative, os.readlink(path), 0, about.st_mtime])
                elif stat.S_ISREG(about.st_mode):
                    found.append([relative, about.st_size, stat.S_IMODE(about.st_mode), about.st_mtime])
    return sorted(found)


def read_output(folder: str, room: int, places: List[List[Any]]) -> List[str]:
    """What stands at each place, a path and an offset, as base64, until there is no more room; `!` and why not."""
    pieces = []
    for path, offset in places:
        if room <= 0:
            break
        try:
            descriptor = os.open(os.path.join(folder, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as stream:
                stream.seek(offset)
                data = stream.read(room) or b""
        except OSError as error:
            pieces.append("!" + str(error.strerror))
            continue
        room -= len(data)
        pieces.append(base64.b64encode(data).decode())
    return pieces


def follow(run_dir: str, state: Dict[str, Any], wait: float) -> str:
    deadline = time.monotonic() + wait
    with contextlib.suppress(OSError), open(os.path.join(run_dir, "asked"), "w"):
        pass  # a full disk takes no lease away: the file's time changes all the same
    offsets, seen = state.get("offsets", {}), state.get("seen")
    while True:
        status, record = node_state(run_dir)  # before the logs: what it wrote at its end is then read with it
        chunks, offsets, more = new_text(run_dir, offsets)
        ranks = rank_records(run_dir)
        mark = [status, sorted((name, entry["exit"] is not None) for name, entry in ranks.items())]
        if chunks or json.dumps(mark) != seen or status in ("exited", "lost") or time.monotonic() >= deadline:
            answer = {
                "status": status, "exit": record, "ranks": ranks, "chunks": chunks, "more": more, "now": time.time(),
                **stop_order(run_dir), "sign": last_sign(run_dir),
                "free": free_bytes(run_dir),
                "state": {"offsets": offsets, "seen": json.dumps(mark)},
            }  # fmt: skip
            if status == "exited":  # that somebody knows of it, see unattended
                with contextlib.suppress(OSError):
                    os.utime(os.path.join(run_dir, "asked"))
            return packed(answer)
        time.sleep(0.05)


def members(run_id: str) -> List[int]:
    """Processes of the run: those whose environment names it, this one and its parents apart."""
    needle = (f"\0TORCHFLEET_RUN_ID={run_id}\0").encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                if needle in b"\0" + stream.read() + b"\0" and start_time(int(name)) is not None:
                    found.append(int(name))
        except OSError:
            continue
    return found


def sweep(run_dir: str, number: int) -> str:
    pids = members(os.path.basename(run_dir.rstrip("/")))
    for pid in pids if number else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return json.dumps(pids)


def main() -> None:
    verb, run_dir = sys.argv[1], sys.argv[2].rstrip("/")
    if verb == "run":
        sys.exit(run(run_dir))
    if verb == "follow":
        become_owner(run_dir)
        print(follow(run_dir, json.loads(base64.b64decode(sys.argv[3]) or b"{}"), float(sys.argv[4])))
    elif verb == "list":
        print(json.dumps(list_runs(run_dir, sys.argv[3] if len(sys.argv) > 3 else "")))
    elif verb == "tail":
        become_owner(run_dir)
        print(json.dumps(tail(run_dir, int(sys.argv[3]))))
    elif verb == "note":
        become_owner(run_dir)
        note(run_dir, base64.b64decode(sys.argv[3]).decode())
    elif verb == "headless":
        become_owner(run_dir)
        headless(run_dir, sys.argv[3], float(sys.argv[4]))
    elif verb == "failed":
        become_owner(run_dir)
        failed_elsewhere(run_dir, sys.argv[3], float(sys.argv[4]))
    elif verb == "stacks":
        become_owner(run_dir)
        print(json.dumps(stacks(run_dir, sys.argv[3] == "1")))
    elif verb == "output":
        become_owner(run_dir)
        print(packed(list_output(sys.argv[3])))
    elif verb == "read":
        become_owner(run_dir)
        print(json.dumps(read_output(sys.argv[3], int(sys.argv[4]), json.loads(base64.b64decode(sys.argv[5])))))
    elif verb == "sweep":
        print(sweep(run_dir, int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    else:
        sys.exit(f"unknown verb {verb}")


if __name__ == "__main__":
    main()
