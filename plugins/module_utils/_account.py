# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The training user's rights in place of root's: for a child process for good, for a block of code for a while.

Runs on nodes: Python 3.8, standard library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
from typing import Callable, Iterator


def becoming(account: pwd.struct_passwd) -> Callable[[], None]:
    """What a child process does before its program (`preexec_fn`): it becomes this user, groups included.

    PermissionError in the child where it is neither root nor this user already.
    """
    return functools.partial(_become, account)


def _become(account: pwd.struct_passwd) -> None:
    if os.geteuid() != account.pw_uid:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)


@contextlib.contextmanager
def rights_of(account: pwd.struct_passwd) -> Iterator[None]:
    """Work as the user: root's rights in a folder that a user may rearrange could be turned against the machine."""
    if os.geteuid() != 0 or account.pw_uid == 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups(os.getgrouplist(account.pw_name, account.pw_gid))
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
