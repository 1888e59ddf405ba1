# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._account import becoming, rights_of

OWN = pwd.getpwuid(os.geteuid())
OTHER = pwd.getpwnam("nobody")
ROOT = os.geteuid() == 0


def ids_of_a_child(account: pwd.struct_passwd) -> dict[str, list[int]]:
    """Real, effective, saved and file system's user and group, and the other groups, as the kernel has them."""
    told = subprocess.run(
        ["/bin/cat", "/proc/self/status"], check=True, capture_output=True, text=True, preexec_fn=becoming(account)
    ).stdout
    rows = (line.split(":", 1) for line in told.splitlines())
    return {key: sorted(map(int, value.split())) for key, value in rows if key in ("Uid", "Gid", "Groups")}


def test_a_child_of_ones_own_is_left_as_it_is() -> None:
    assert ids_of_a_child(OWN) == {
        "Uid": [os.geteuid()] * 4, "Gid": [os.getegid()] * 4, "Groups": sorted(os.getgroups()),
    }  # fmt: skip


def test_a_child_of_roots_becomes_the_user_for_good() -> None:
    if not ROOT:
        with pytest.raises(subprocess.SubprocessError):
            ids_of_a_child(OTHER)
        return
    groups = sorted(os.getgrouplist(OTHER.pw_name, OTHER.pw_gid))
    assert ids_of_a_child(OTHER) == {"Uid": [OTHER.pw_uid] * 4, "Gid": [OTHER.pw_gid] * 4, "Groups": groups}


def test_rights_are_lent_and_given_back(tmp_path: Path) -> None:
    before = os.geteuid(), os.getegid(), os.getgroups()
    with pytest.raises(ZeroDivisionError), rights_of(OTHER):
        if ROOT:
            assert (os.geteuid(), os.getegid()) == (OTHER.pw_uid, OTHER.pw_gid)
            with pytest.raises(PermissionError):
                (tmp_path / "file").touch()
        raise ZeroDivisionError
    assert (os.geteuid(), os.getegid(), os.getgroups()) == before
