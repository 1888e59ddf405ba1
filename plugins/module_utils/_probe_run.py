# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""How the facts modules run the probe. Takes the module as it is, so that this file needs nothing of Ansible."""

from __future__ import annotations

import os
import signal
from typing import Any, List, Mapping

from ansible_collections.torchfleet.cluster.plugins.module_utils._runtime import Probe, probe_source, read_probe

# Seconds beyond the probe's own limit, after which it is taken to hang in the kernel, where no signal ends it.
_GRACE = 5


class _TooSlow(Exception):
    pass


def run_probe(module: Any, python: str, stage: str, seconds: int, environment: Mapping[str, str]) -> Probe:
    """Run the probe's stage (`libraries`, `packages` or `torch`) with that interpreter; never raises, never hangs."""
    if not os.path.isfile(python) or not os.access(python, os.X_OK):
        what = "is not executable" if os.path.isfile(python) else "does not exist"
        return Probe("no_interpreter", {}, f"{python} {what}")
    started: List[Any] = []

    def give_up(_signal: int, _frame: Any) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds + _GRACE)
    try:
        rc, out, err = module.run_command(
            [python, "-", stage, str(seconds)],
            data=probe_source(),
            # Neither a folder named torch nor a core file of it in the way.
            cwd="/",
            errors="surrogate_then_replace",
            environ_update={"LC_ALL": "C", "PYTHONIOENCODING": "utf-8", **environment},
            before_communicate_callback=started.append,
            handle_exceptions=False,
        )
    except _TooSlow:
        for process in started:
            process.kill()
        return Probe("timeout", {}, f"{python} did not end within {seconds + _GRACE} seconds and was given up")
    except BrokenPipeError:
        return Probe("failed", {}, f"{python} ended without reading the script that it was given")
    except OSError as error:
        return Probe("no_interpreter", {}, f"{python} cannot be run: {error.strerror}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return read_probe(rc, out, err)
