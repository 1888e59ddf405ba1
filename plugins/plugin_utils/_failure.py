# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What an action that runs on the controller refuses, as a result of its task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleActionFail

Run = Callable[..., dict[str, Any]]


def as_result(run: Run) -> Run:
    """What `run` raises, as a failed result: without a result ansible-core does not look at `failed_when`."""

    @functools.wraps(run)
    def answered(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return run(*args, **kwargs)
        except (AnsibleActionFail, OSError) as error:
            return {"failed": True, "changed": False, "msg": str(error)}

    return answered
