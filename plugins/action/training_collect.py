# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring files of a run's output folder from one node to the controller, over the task's own connection."""

from __future__ import annotations

import base64
import json
import shlex
import time
import zlib
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.action.training_follow import NodeLost, within
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _collect

FIRST, LAST = 1 << 20, 32 << 20  # bytes of one answer
PATIENCE = 60.0  # seconds for one answer
QUICK = 0.5  # seconds: an answer that took less may be larger next time
NAMES = 65536  # characters of paths in one question
WORDS_EVERY = 5.0  # seconds between two words on how far it is


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        launch: Mapping[str, Any] = self._task.args["launch"]
        host = str(variables["inventory_hostname"])
        self._node = str(launch["nodes"][host]["node"])
        self._launch = launch
        self._done = 0
        result: Dict[str, Any] = {
            "changed": False,
            "node": self._node,
            "files": 0,
            "bytes": 0,
            "unmatched": [],
            "problem": "",
        }
        started = variables.get("__launch_start") or {}
        if "agent" not in started:
            return {**result, "problem": f"{self._node}: its part of the run was not started"}
        self._agent = [str(word) for word in started["agent"]]
        receiver = _collect.Receiver(Path(str(self._task.args["dest"])), bool(self._task.args.get("keep")))
        try:
            listed = json.loads(zlib.decompress(base64.b64decode(self._ask("output"))))
            wanted, result["unmatched"] = _collect.chosen(_collect.entries(listed), list(launch["collect"]))
            missing = [entry for entry in wanted if not receiver.has(entry)]
            self._bring(receiver, missing)
            result.update(changed=bool(missing), files=len(wanted), bytes=sum(entry.size for entry in wanted))
        except (NodeLost, AnsibleConnectionFailure, AnsibleError, _collect.Changed, OSError) as error:
            left = f"what launch_collect names is still in {launch['output_dir']} on it"
            result["problem"] = f"{self._node}: {str(error).strip()[:300]}; {left}"
        return result

    def _ask(self, verb: str, *words: str) -> str:
        command = shlex.join(
            [*self._agent, verb, str(self._launch["run_dir"]), str(self._launch["output_dir"]), *words]
        )
        done = within(PATIENCE, lambda: self._low_level_execute_command(command))
        if done["rc"] != 0:
            raise AnsibleError(f"the output folder cannot be read: {done['stderr'].strip()[-200:]}")
        return str(done["stdout"].strip().splitlines()[-1])

    def _bring(self, receiver: _collect.Receiver, missing: List[_collect.Entry]) -> None:
        for entry in missing:
            if entry.target is not None:
                receiver.link(entry)
        waiting = [entry for entry in missing if entry.target is None]
        whole, room = sum(entry.size for entry in waiting), FIRST
        offset, part = 0, None
        began = said = time.monotonic()
        while waiting:
            places: List[Any] = []
            for number, entry in enumerate(waiting):
                places.append([entry.path, 0 if number else offset])
                if sum(len(place[0]) for place in places) > NAMES:
                    break
            asked = time.monotonic()
            pieces = json.loads(self._ask("read", str(room), base64.b64encode(json.dumps(places).encode()).decode()))
            took = time.monotonic() - asked
            room = min(room * 2, LAST) if took < QUICK else max(room // 2, FIRST) if took > 4 * QUICK else room
            for piece in pieces:
                entry = waiting[0]
                if piece.startswith("!"):
                    raise AnsibleError(f"{entry.path}: {piece[1:]}")
                data = base64.b64decode(piece)
                part = part or receiver.begin(entry)
                offset += len(data)
                self._done += len(data)
                if receiver.add(entry, part, data):
                    waiting.pop(0)
                    offset, part = 0, None
            now = time.monotonic()
            if now - said >= WORDS_EVERY:
                said = now
                rate = self._done / (now - began)
                left = (whole - self._done) / rate if rate else 0
                self._display.display(
                    f"{self._node}: {self._done >> 20} of {whole >> 20} MiB, {rate / 1e6:.0f} MB/s, {left:.0f} s left",
                    color="cyan",
                )
