# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain DDP without a launcher: `spawn.py FIRST_RANK SLOTS WORLD_SIZE COMMAND ...` starts the node's ranks.

The first that fails ends the others here; its status is ours. Nobody but the run's supervisor ends those elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any, List

POLL = 0.1
GRACE_SECONDS = 10.0


def main() -> None:
    first, slots, world = (int(text) for text in sys.argv[1:4])
    command = sys.argv[4:]
    ranks: List[Any] = []

    def end(_number: int = 0, _frame: Any = None) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.terminate()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for local in range(slots):
        numbers = {"RANK": first + local, "LOCAL_RANK": local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": slots}
        env = {**os.environ, **{name: str(number) for name, number in numbers.items()}}
        ranks.append(subprocess.Popen(command, env=env))
    status, deadline = 0, float("inf")
    while None in [rank.poll() for rank in ranks]:
        failed = [rank.returncode for rank in ranks if rank.returncode]
        if failed and not status:
            status, deadline = failed[0], time.monotonic() + GRACE_SECONDS
            end()
        if time.monotonic() >= deadline:
            for rank in ranks:
                rank.kill()
        time.sleep(POLL)
    status = status or next((rank.returncode for rank in ranks if rank.returncode), 0)
    if first == 0 and os.environ.get("INIT_METHOD", "").startswith("file://"):
        with contextlib.suppress(OSError):
            os.unlink(os.environ["INIT_METHOD"][len("file://") :])
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
