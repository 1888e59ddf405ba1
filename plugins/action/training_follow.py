# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Follow one node of a run to its end: live lines, logs, and the end of the whole run when something fails.

Ansible runs one of these per node at the same time. Each polls its node over the task's own connection; the first that
sees a failure orders the end, and the others carry it out on their nodes.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import threading
import time
import zlib
from collections import deque
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR

from ansible_collections.torchfleet.cluster.plugins.module_utils import _hang, _outcome
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _runs
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import members

WAIT = 1.0  # seconds that a node holds a poll back when there is nothing new: bounds how late a stop order is seen
ANSWER = 15.0  # seconds for one poll's answer, beyond WAIT; a cut link shows nothing at all
STACKS = 15.0  # seconds for the stacks of a node's ranks
HUNG = _outcome.HANG_WATCH
ROOM = 65536  # free bytes below which a disk is full
CLEAR = "\r\033[K"  # to the line's beginning, and nothing in it
INTERRUPTED = " on the controller"
ABANDONED = 8.0  # seconds that ranks may take to end after the launcher on the head that started them
COLOURS = ("bright blue", "bright green", "bright cyan", "bright yellow", "bright magenta", "bright purple")

T = TypeVar("T")


class NodeLost(Exception):
    """The node no longer answers."""


class Unreadable(AnsibleError):
    """The node answers, but not about the run."""


def within(seconds: float, call: Callable[[], T]) -> T:
    """The call's result, or NodeLost: a connection whose link is cut would block for minutes."""
    box: Dict[str, Any] = {}

    def work() -> None:
        try:
            box["result"] = call()
        except Exception as error:
            box["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if "result" in box:
        return box["result"]
    raise NodeLost(str(box.get("error") or f"no answer in {seconds:.0f} s")) from box.get("error")


class LineSink:
    """A log on the controller, and its lines on the terminal. A progress bar's states go to `redraw`, if anywhere."""

    def __init__(
        self,
        path: Path,
        label: str,
        show: Callable[[str], None],
        hold: Optional[int] = None,
        redraw: Optional[Callable[[str], None]] = None,
    ) -> None:
        """`hold`: until `release`, keep lines back, and then show that many of them."""
        self.path = path
        self.stream = path.open("ab", buffering=0)
        self.kept = True
        self.label = label
        self.show = show
        self.redraw = redraw
        self.rest = b""
        self.held: Optional[deque[str]] = None if hold is None else deque(maxlen=hold)

    def release(self) -> None:
        held, self.held = self.held, None
        for line in held or ():
            self.show(line)

    def _keep(self, data: bytes) -> None:
        """A disk that is full here must not end the watch over the run."""
        if self.kept:
            try:
                self.stream.write(data)
            except OSError as error:
                self.kept = False
                self.show(f"{self.label} | {self.path} is cut off here: {error.strerror}")

    def feed(self, data: bytes) -> None:
        self._keep(data)
        self.rest += data
        *lines, self.rest = self.rest.split(b"\n")
        for line in lines:
            text = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace").rstrip()
            if text:
                line = f"{self.label} | {text}"
                self.show(line) if self.held is None else self.held.append(line)
        if b"\r" in self.rest:
            state = self.rest.rstrip(b"\r").rpartition(b"\r")[2]
            if self.redraw and self.held is None and state.strip():
                self.redraw(f"{self.label} | {state.decode(errors='replace').rstrip()}")

    def close(self) -> None:
        if self.rest:
            self.feed(b"\n")
        self.release()
        self.stream.close()


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        self._vars = task_vars or {}
        launch: Mapping[str, Any] = self._task.args["launch"]
        host = str(self._vars["inventory_hostname"])
        self._launch = launch
        self._agent: List[str] = []
        self._node = str(launch["nodes"][host]["node"])
        self._folder = Path(str(launch["folder"]))
        self._plan = _runs.plan_of(_runs.read_manifest(self._folder))
        self._hangs = self._full = False
        self._sinks: Dict[str, LineSink] = {}
        self._offset = 0.0
        # Who looks in later has not to see all again, and does not end a run that only this machine cannot reach.
        self._leads = bool(self._task.args.get("lead", True))
        self._hold: Optional[int] = None if self._leads else int(self._task.args.get("lines", 20))
        rank = list(launch["nodes"]).index(host)
        self._colour = COLOURS[rank % len(COLOURS)]

        started = self._vars.get("__launch_start") or {}
        if started.get("failed") or started.get("unreachable") or "unit" not in started:
            words = str(started.get("msg") or "no answer").strip()
            if self._leads:
                _runs.order_stop(self._folder, f"{self._node} did not start its part")
                # All that this node has to say: explain reads it beside the others' logs.
                log = self._folder / self._node / "launcher.log"
                log.parent.mkdir(exist_ok=True)
                log.write_text(f"{words}\n", encoding="utf-8")
            return self._result("not_started", {}, f"{self._node}: its part of the run was not started: {words}")
        self._agent = [str(word) for word in started["agent"]]
        numbers = (signal.SIGINT, signal.SIGTERM) if self._leads else ()
        if self._leads:
            self._check_peers(host)
        previous = [signal.signal(number, self._interrupted) for number in numbers]
        try:
            return self._follow()
        finally:
            reason = _runs.stop_reason(self._folder)
            if self._leads and reason.endswith(INTERRUPTED):
                # Ansible does not wait for a verdict then.
                outcome = {"ok": False, "sentence": reason, "first": None, "problems": []}
                _runs.update_manifest(self._folder, state="interrupted", outcome=outcome)
            for number, handler in zip(numbers, previous):
                signal.signal(number, handler)
            for sink in self._sinks.values():
                sink.close()

    def _check_peers(self, host: str) -> None:
        """A peer that failed or vanished before the start has no follower to say so."""
        for peer in members(self._vars, self._templar):
            if peer["host"] == host or peer["host"] not in self._launch["nodes"]:
                continue
            report = self._vars["hostvars"][peer["host"]].get("__launch_start") or {}
            if report.get("failed") or report.get("unreachable") or "unit" not in report:
                _runs.order_stop(self._folder, f"{peer['name']} did not start its part")

    def _interrupted(self, number: int, _frame: Any) -> None:
        _runs.order_stop(self._folder, f"{_outcome.ENDED_BY}{signal.Signals(number).name}{INTERRUPTED}")

    def _follow(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {}
        answer: Dict[str, Any] = {}
        stopped = False
        parent = os.getppid()
        while True:
            if os.getppid() != parent and not _runs.stop_reason(self._folder):
                # Ansible was killed, and this worker, in a session of its own, was not. The run goes on without us.
                return self._result("unreachable", answer, "the controller was killed")
            try:
                answer = within(WAIT + ANSWER, lambda state=state: self._poll(state))
            except (NodeLost, AnsibleConnectionFailure) as error:
                problem = f"{self._node} no longer answers: {' '.join(str(error).split())[:200]}"
                if self._leads and not self._bearable():
                    _runs.order_stop(self._folder, problem)
                if isinstance(error.__cause__, Unreadable):  # the node itself is there
                    self._stop()
                return self._result("unreachable", answer, problem)
            state = answer["state"]
            self._take(answer)
            if stopped and answer["status"] == "lost":
                # Killed by our own order, with nothing written: that is no cause of anything.
                answer.update(status="exited", exit={"signal": signal.SIGKILL, "stopped": True})
            if not self._full and answer["free"] is not None and answer["free"] < ROOM:
                self._full = True
                self._display.warning(f"{self._node}: the disk is full: lines of the run are lost there from now on")
            if answer["stop"]:  # by another controller
                _runs.order_stop(self._folder, answer["stop"])
            failure = self._failure(answer) or self._abandoned(answer)
            if failure:
                _runs.order_stop(self._folder, failure)
            if answer["status"] in ("exited", "lost") and not answer["more"]:
                break
            elif answer["status"] == "running":
                self._watch(float(answer["sign"]))
            if not stopped and _runs.stop_reason(self._folder):
                stopped = True
                self._stop()
        left = self._stop()
        problem = self._loss(answer) if answer["status"] == "lost" else ""
        return self._result(answer["status"], answer, problem or left)

    def _poll(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        packed = base64.b64encode(json.dumps(state).encode()).decode()
        run_dir = str(self._launch["run_dir"])
        command = shlex.join([*self._agent, "follow", run_dir, packed, str(WAIT)])
        asked = time.time()
        done = self._low_level_execute_command(command)
        if done["rc"] != 0:  # once more: what kills the run's processes may have hit the poll too
            asked = time.time()
            done = self._low_level_execute_command(command)
        if done["rc"] != 0:
            raise Unreadable(f"the run's folder cannot be read: {done['stderr'].strip()[-300:]}")
        answer: Dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(done["stdout"].strip().split()[-1])))
        # Good to half a poll; enough to tell the first failure from its echoes, which take longer.
        self._offset = answer["now"] - min(time.time(), asked + WAIT)
        return answer

    def _take(self, answer: Mapping[str, Any]) -> None:
        for name, data in answer["chunks"].items():
            sink = self._sinks.get(name)
            if sink is None:
                redraw = self._redraw if ANSIBLE_COLOR else None
                stem = name[: -len(".log")]
                label = f"{self._node}:{stem[len('rank-') :]}" if stem.startswith("rank-") else f"{self._node}:{stem}"
                sink = LineSink(self._folder / self._node / name, label, self._show, self._hold, redraw)
                self._sinks[name] = sink
            sink.feed(base64.b64decode(data))
        if self._hold is not None and not answer["more"]:
            self._hold = None
            for sink in self._sinks.values():
                sink.release()

    def _show(self, line: str) -> None:
        self._display.display(f"{CLEAR}{line}" if ANSIBLE_COLOR else line, color=self._colour)

    def _redraw(self, line: str) -> None:
        """Over the terminal's last line, in which the bars of all ranks take turns."""
        width = shutil.get_terminal_size().columns - 1
        self._display.display(f"{CLEAR}{line[:width]}", color=self._colour, newline=False)

    def _failure(self, answer: Mapping[str, Any]) -> str:
        """Why the run has to end, from what this node alone shows."""
        end = _outcome.node_end(self._node, answer, self._offset)
        world = [] if self._plan.elastic else _outcome.world_problems(self._plan, end.ranks)
        if world:
            return world[0]
        # An elastic launcher deals the ranks of a failed round anew.
        failed = [rank for rank in end.ranks if rank.failed and not self._launch["elastic"]]
        if failed:
            return f"rank {failed[0].rank} on {self._node} failed ({_outcome.how(failed[0].code, failed[0].signal)})"
        if end.status == "lost":
            return "" if self._bearable() else self._loss(answer)
        if end.status == "exited" and (end.code or end.signal is not None):
            return f"the launcher on {self._node} failed ({_outcome.how(end.code, end.signal)})"
        return ""

    def _watch(self, sign: float) -> None:
        """Where no node shows a sign of life any more, ask the ranks where they are."""
        timeout = float(self._launch.get("stall_timeout") or 0)
        if not timeout or self._hangs:
            return
        _runs.note_sign(self._folder, self._node, sign - self._offset)
        if time.time() - _runs.last_sign(self._folder) < timeout and HUNG not in _runs.stop_reason(self._folder):
            return
        self._hangs = True
        stop = self._leads and self._launch["stall_action"] == "stop"
        command = [*self._agent, "stacks", str(self._launch["run_dir"]), "1" if stop else "0"]
        if stop:  # before a rank that is aborted counts as the first failure
            _runs.order_stop(self._folder, f"{_outcome.ENDED_BY}{HUNG} after {timeout:.0f} s without progress")
        try:
            done = within(STACKS, lambda: self._low_level_execute_command(shlex.join(command)))
            stacks = {name: str(text) for name, text in json.loads(done["stdout"].strip().splitlines()[-1]).items()}
        except (NodeLost, AnsibleConnectionFailure, ValueError, IndexError):
            stacks = {}
        _runs.note_stacks(self._folder, self._node, stacks)
        for name, text in stacks.items():
            (self._folder / self._node / f"{name}.stack.txt").write_text(text, encoding="utf-8")
        if self._node != next(iter(self._launch["nodes"].values()))["node"]:
            return
        places = {
            int(name[len("rank-") :]): _hang.innermost(text)
            for name, text in _runs.all_stacks(self._folder, len(self._launch["nodes"]), STACKS).items()
            if name[len("rank-") :].isdigit()
        }
        finding = _hang.sentence(places, timeout)
        _runs.update_manifest(self._folder, hang={"sentence": finding, "places": places, "time": time.time()})
        self._display.warning(finding)

    def _bearable(self) -> bool:
        """Note that this node is gone, and say whether the run can go on without."""
        gone = _runs.note(self._folder, _runs.LOST, self._node)
        return self._launch["elastic"] and len(self._launch["nodes"]) - len(gone) >= self._launch["min_nodes"]

    def _abandoned(self, answer: Mapping[str, Any]) -> str:
        """Where the head starts all ranks: why this node's have to end when its launcher is gone without them."""
        head, *others = self._launch["nodes"].values()
        if not others or any(node["argv"] for node in others):
            return ""
        if self._node == head["node"]:
            if answer["status"] == "exited":
                _runs.note(self._folder, _runs.HEAD_ENDED, self._node)
            return ""
        seconds = _runs.noted_ago(self._folder, _runs.HEAD_ENDED, str(head["node"]))
        if answer["status"] != "running" or seconds is None or seconds < ABANDONED:
            return ""
        began = len(answer["ranks"])
        what = f"{began} ranks that it started on {self._node} run on" if began else f"no rank came up on {self._node}"
        return f"the launcher on {head['node']} has ended, but {what}"

    def _loss(self, answer: Mapping[str, Any]) -> str:
        return f"{self._node}: {(answer['exit'] or {}).get('error') or 'the supervisor of the run was killed'}"

    def _stop(self) -> str:
        """End the run on this node, and say what could not be ended."""
        args = {
            "state": "stopped",
            "run_id": self._launch["run_id"],
            "run_dir": self._launch["run_dir"],
            "lib": str(Path(self._agent[-1]).parent),
            "stop_grace": self._launch["stop_grace"],
            "reason": _runs.stop_reason(self._folder),
            "master_port": self._plan.master_port if self._node == self._plan.nodes[0].node else 0,
        }
        try:
            done = within(
                float(self._launch["stop_grace"]) + 30,
                lambda: self._execute_module("torchfleet.cluster.training_run", module_args=args, task_vars=self._vars),
            )
        except (NodeLost, AnsibleConnectionFailure) as error:
            return f"{self._node} could not be told to end: {error}"
        return str(done.get("msg", "")) if done.get("failed") else ""

    def _result(self, status: str, answer: Mapping[str, Any], problem: str) -> Dict[str, Any]:
        logs: List[str] = sorted(str(self._folder / self._node / name) for name in self._sinks)
        answer = {**answer, "status": status}
        for bulky in ("chunks", "state", "more"):
            answer.pop(bulky, None)
        return {
            "changed": True,
            "node": self._node,
            "answer": answer,
            "problem": problem,
            "offset": self._offset,
            "logs": logs,
        }
