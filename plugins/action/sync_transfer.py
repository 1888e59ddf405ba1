# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Follow one node until it has the tree. Ansible runs one of these per node at the same time.

A node that asks for it is fed from here, blob by blob over the task's own connection, whatever that is. The first of
the chain does; another one when nobody before it is left, or at once where the owner may not log in from node to node.
The followers of the nodes know of each other by files in one folder.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils import _sync_agent
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _sync
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import members

PLAN = "__sync_plan"
MODULE = "torchfleet.cluster.sync_node"
EVERY = 5.0  # seconds between two progress lines of a node
BLOB = 1 << 20  # bytes of the first blob; later ones are as large as half a second carries
MAX_BLOB = 1 << 25
AHEAD = 3  # blobs that the node has not yet read
SILENT = 20.0  # seconds without an answer after which a node counts as lost
STARTING = 120.0  # seconds that a module may take
STILL = 60.0  # seconds without a byte; less is what leaving a frozen parent for the next one takes
SPOOL = "/var/lib/torchfleet/spool"
WAITLESS = ("end", "still")  # files of the followers that wait for nobody


class _Silence(BaseException):
    """None that a connection plugin would catch, and try again."""


class ActionModule(ActionBase):
    TRANSFERS_FILES = True
    _requires_connection = True
    _supports_check_mode = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        self._vars = task_vars or {}
        args = self._task.args
        self._source: Mapping[str, Any] = args["source"]
        self._node_args: Mapping[str, Any] = args["node"]
        self._patience = float(args.get("patience") or 60)
        host = str(self._vars["inventory_hostname"])
        peers = members(self._vars, self._templar)
        names = {member["host"]: str(member["name"]) for member in peers}
        # The nodes reach each other as the user that role ssh_trust knows.
        own = next(str(member["ssh_user"] or "root") for member in peers if member["host"] == host)
        plans = {
            peer: self._vars["hostvars"][peer][PLAN]
            for peer in names
            if "plan" in (self._vars["hostvars"][peer].get(PLAN) or {})
        }
        # The node that has the tree goes first: what it copies for itself costs no link.
        plans = dict(sorted(plans.items(), key=lambda item: item[0] != self._source.get("host")))
        self._name = names[host]
        self._needy = [names[peer] for peer, entry in plans.items() if entry["plan"]["state"] == "planned"]
        self._folder = Path(str(self._source["folder"]))
        self._root = str(plans[host]["plan"]["root"])
        way = _sync.way(host, plans, self._source, names, trusted=str(self._node_args["user"]) == own)
        began = time.monotonic()
        try:
            status = self._follow(way)
        except (AnsibleConnectionFailure, AnsibleError, OSError) as error:
            status = {"state": "failed", "problem": f"it no longer answers: {str(error).strip()[:300]}"}
        seconds = time.monotonic() - began
        ok = status["state"] == "done"
        self._tell(status["state"])
        got = int(status.get("got") or 0)
        if ok:
            rate = got / max(float(status.get("seconds") or 0), 0.1)
            where = f", from {status['source']}" if status.get("source") else ""
            self._display.display(
                f"{self._name}: complete, {_sync.size(got)} at {_sync.size(rate)}/s{where}", color="green"
            )
        else:
            self._display.display(f"{self._name}: {status.get('problem')}", color="red")
        return {
            "changed": True,
            "node": self._name,
            "complete": ok,
            "problem": "" if ok else str(status.get("problem")),
            "bytes": got,
            "seconds": round(seconds, 1),
            "way": status.get("source", ""),
        }

    def _follow(self, way: Mapping[str, Any]) -> Dict[str, Any]:
        with self._within(STARTING):
            answer = self._execute_module(
                MODULE, module_args={**self._node_args, "state": "started", "way": way}, task_vars=self._vars
            )
        if answer.get("failed") or answer.get("unreachable"):
            return {"state": "failed", "problem": str(answer.get("msg"))}
        feed: Optional[Iterator[Optional[Dict[str, Any]]]] = None
        shown = time.monotonic()
        window = [(shown, 0)]
        heard, pause = shown, 0.1
        self._alone, self._moved = shown, (shown, -1)
        while True:
            fed = next(feed, None) if feed else None
            status = fed if fed is not None else self._poll()
            now = time.monotonic()
            if status:
                heard = now
            elif now - heard > SILENT:
                raise AnsibleError(f"no word in {SILENT:.0f} s")
            state = status.get("state")
            if state in ("done", "failed"):
                return status
            if feed is None and status.get("spooled") is not None:
                feed = self._feed()
            if status and "got" in status:
                window = [*window[-20:], (now, int(status["got"]))]
                late = [entry for entry in window if now - entry[0] < 2 * EVERY] or window[-1:]
                rate = (window[-1][1] - late[0][1]) / max(now - late[0][0], 0.1)
                if now - shown >= EVERY:
                    shown = now
                    self._display.display(_sync.progress(self._name, status, rate))
                if self._left_behind(status, rate, now):
                    return {
                        **status,
                        "state": "slow",
                        "problem": f"too slow: {_sync.progress(self._name, status, rate)}; nobody else is underway",
                    }
            if fed is None:
                time.sleep(pause)
                pause = min(pause * 1.5, 1.0)

    def _poll(self) -> Dict[str, Any]:
        with self._within(_sync_agent.IDLE):
            done = self._low_level_execute_command(f"cat {shlex.quote(self._root + '/status.json')}")
        return self._read(done)

    @contextlib.contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """To a machine without power a connection hangs until this kernel gives it up, a quarter of an hour later."""

        def give_up(_signal: int, _frame: Any) -> None:
            raise _Silence

        before = signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        except _Silence:
            # What is there cannot be tidied up either.
            self._connection._shell.tmpdir = None
            raise AnsibleConnectionFailure(f"no word in {seconds:.0f} s") from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @staticmethod
    def _read(done: Mapping[str, Any]) -> Dict[str, Any]:
        lines = str(done.get("stdout") or "").strip().splitlines()
        try:
            return dict(json.loads(lines[-1])) if lines and done["rc"] == 0 else {}
        except ValueError:
            return {}

    def _feed(self) -> Iterator[Optional[Dict[str, Any]]]:
        """Send what the node lacks; yields its status after each blob."""
        release = str(self._source["release"])
        spool = f"{SPOOL}/{release}"
        local = self._folder / f"{self._name}.blob"
        remote = self._connection._shell.join_path(self._make_tmp_path(), "blob")
        limit, number = BLOB, 0
        chunks = self._chunks()
        rest = next(chunks, None)
        while rest is not None:
            held = 0
            with local.open("wb") as stream:
                while rest is not None and (not held or held + len(rest) <= limit):
                    stream.write(rest)
                    held += len(rest)
                    rest = next(chunks, None)
            began = time.monotonic()
            with self._within(_sync_agent.IDLE):
                self._transfer_file(str(local), remote)
            took = time.monotonic() - began
            # Renamed into place: the node never reads half a blob.
            words = [remote, f"{spool}/{number:08d}", f"{spool}/{number - 2 * AHEAD:08d}", f"{self._root}/status.json"]
            sent, place, read, status_file = map(shlex.quote, words)
            script = (
                f"chmod 0640 {sent} && chgrp --reference={shlex.quote(spool)} {sent} && mv {sent} {place}.new && "
                f"mv {place}.new {place} && rm -f {read}; cat {status_file}"
            )
            with self._within(_sync_agent.IDLE):
                status = self._read(self._low_level_execute_command(script))
            yield status or None
            number += 1
            limit = min(MAX_BLOB, limit * 2) if took < 0.5 else max(BLOB, limit // 2)
            while status.get("state", "running") == "running" and number - int(status.get("spooled") or 0) > AHEAD:
                time.sleep(0.1)
                status = self._poll()
                yield status or None

    def _chunks(self) -> Iterator[bytes]:
        """Frames of the chunks that this node lacks, read from the tree on the controller."""
        entries = _sync_agent.unpack(_sync.manifest_path(str(self._source["release"])).read_bytes())
        chunks = _sync_agent.chunks_of(entries)
        done = self._low_level_execute_command(
            f"base64 -w0 {shlex.quote(self._root + '/' + str(self._source['release']) + '.have')}"
        )
        marks = _decode(str(done.get("stdout") or ""), len(chunks))
        top = Path(str(self._source["path"]))
        for number, chunk in enumerate(chunks):
            if not marks[number]:
                with (top / chunk.entry.path).open("rb") as stream:
                    stream.seek(chunk.offset)
                    data = stream.read(chunk.length)
                yield _sync_agent.FRAME.pack(_sync_agent.DATA, number, len(data)) + data

    def _tell(self, state: str) -> None:
        (self._folder / f"{self._name}.end").write_text(state, encoding="utf-8")

    def _left_behind(self, status: Mapping[str, Any], rate: float, now: float) -> bool:
        """Whether only slow nodes are left, and this one would keep all others waiting. Those that stand still wait for
        nobody: else two of them would wait for each other."""
        got, others = int(status["got"]), [name for name in self._needy if name != self._name]
        mark = self._folder / f"{self._name}.still"
        if got != self._moved[1]:
            self._moved = (now, got)
            mark.unlink(missing_ok=True)
        still = now - self._moved[0] > max(self._patience, STILL)
        if still:
            mark.touch()
        if not all(any((self._folder / f"{name}.{word}").exists() for word in WAITLESS) for name in others):
            self._alone = now
            return False
        if not others:
            return still
        left = (float(status["need"]) - float(status["got"])) / rate if rate > 0 else float("inf")
        return now - self._alone > self._patience / 2 and left > self._patience


def _decode(text: str, count: int) -> bytes:
    marks = base64.b64decode(text.strip())
    return marks if len(marks) == count else bytes(count)
