# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of system_facts: the clock can be measured from here only, and who does not answer is a result."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.action.training_follow import NodeLost, within

# More than the module lets any of its parts take.
FACTS_SECONDS = 150


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result["changed"] = False
        patience = 2.0 * float(self._task.args.get("ssh_timeout") or 5)
        try:
            # The first exchange opens the connection, the second measures. One that an earlier play left open leads
            # nowhere when the node has died since, and ssh would wait on it for minutes.
            within(patience, self._ask_time)
            clock = within(patience, self._ask_time)
            facts = within(FACTS_SECONDS, lambda: self._execute_module(task_vars=task_vars))
        except (NodeLost, AnsibleError) as error:
            end_children()
            return {**result, "reached": False, "problem": one_line(error)}
        if facts.get("failed"):
            words = facts.get("msg") or facts.get("module_stderr") or "the module failed"
            return {**result, "reached": False, "problem": one_line(words)}
        return {**result, **facts, "clock": clock}

    def _ask_time(self) -> dict[str, float] | None:
        """The node's clock minus ours, and half of the time that asking took. None where date has no fractions."""
        before = time.time()
        done = self._low_level_execute_command("date +%s.%N", sudoable=False)
        after = time.time()
        match = re.search(r"^(\d+\.\d+)\s*$", done.get("stdout", ""), re.MULTILINE)
        if done.get("rc") or match is None:
            return None
        return {
            "offset": round(float(match.group(1)) - (before + after) / 2, 4),
            "uncertainty": round((after - before) / 2, 4),
        }


def end_children() -> None:
    """End what this worker still has running: the ssh that waits for an answer."""
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                parent = stream.read().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()):
                os.kill(int(pid), signal.SIGTERM)


def one_line(words: Any) -> str:
    """The last of the words that ssh or sudo said."""
    lines = [line.strip() for line in str(words).replace("\\r\\n", "\n").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no answer"
