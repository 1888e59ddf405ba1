# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One Slurm job as a process: `slurm.py BATCH_SCRIPT SBATCH SQUEUE SCONTROL SCANCEL`.

Submits the script, says what the job waits for, ends it when told to end, and ends as it does.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from typing import List, Optional, Tuple

POLL = 1.0
ATTEMPTS = 30  # a controller that restarts answers nothing for a while


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def state(squeue: str, job: str) -> Optional[Tuple[str, ...]]:
    """The job's state and reason; nothing once it has left the queue, None where Slurm does not answer."""
    done = ask(squeue, "--noheader", f"--jobs={job}", "--states=all", "--format=%T %r")
    if done.returncode:
        return () if "Invalid job id" in done.stderr else None
    return tuple(done.stdout.split(None, 1))


def exit_status(scontrol: str, job: str) -> int:
    shown = ask(scontrol, "--oneliner", "show", "job", job).stdout
    found = re.search(r"JobState=(\S+).*ExitCode=(\d+):(\d+)", shown)
    if found is None:
        return 1
    name, code, number = found[1], int(found[2]), int(found[3])
    return code or (128 + number if number else 0 if name == "COMPLETED" else 1)


def main() -> None:
    script, sbatch, squeue, scontrol, scancel = sys.argv[1:]
    told: List[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: told.append(number))
    done = ask(sbatch, "--parsable", script)
    if done.returncode:
        sys.exit(f"sbatch refuses the job: {done.stderr.strip()}")
    job = done.stdout.strip().partition(";")[0]
    print(f"Slurm job {job}", flush=True)
    seen: Optional[Tuple[str, ...]] = None
    silent, cancelled = 0, False
    while True:
        if told and not cancelled:
            cancelled = True
            ask(scancel, job)
        now = state(squeue, job)
        silent = silent + 1 if now is None else 0
        if silent >= ATTEMPTS:
            ask(scancel, job)
            sys.exit(f"Slurm does not answer about job {job}")
        if now not in (None, (), seen):
            seen = now
            reason = "" if len(now) < 2 or now[1].strip() == "None" else f" ({now[1].strip()})"
            print(f"Slurm job {job} is {now[0]}{reason}", flush=True)
        if now == () or (now and now[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED")):
            sys.exit(143 if cancelled else exit_status(scontrol, job))
        time.sleep(POLL)


if __name__ == "__main__":
    main()
