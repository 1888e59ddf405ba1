# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _pip


@pytest.mark.parametrize(
    ("text", "bare", "secrets"),
    [
        ("https://user:token@mirror/simple", "https://mirror/simple", ["user:token@"]),
        ("https://token@mirror:8443/simple", "https://mirror:8443/simple", ["token@"]),
        ("https://user:a@b@mirror/", "https://mirror/", ["user:a@b@"]),
        ("https://mirror/simple/@scope", "https://mirror/simple/@scope", []),
        ("/srv/wheels@home", "/srv/wheels@home", []),
        ('["https://mirror", "me@home"]', '["https://mirror", "me@home"]', []),
    ],
)
def test_users_and_tokens_are_left_out(text: str, bare: str, secrets: list[str]) -> None:
    assert _pip.bare(text) == bare
    assert _pip.secrets([text]) == secrets


def test_extra_indexes_add_to_those_of_pip_s_own_setting(tmp_path: Path) -> None:
    indexes = ["--index-url", "file:///none/1", "--extra-index-url", "file:///none/3"]
    command, data = _pip.command(sys.executable, ["download", "--dest", str(tmp_path), *indexes, "no-such-package"])
    environment = {**os.environ, "PIP_CONFIG_FILE": "/dev/null", "PIP_EXTRA_INDEX_URL": "file:///none/2"}
    done = subprocess.run(command, input=data, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "Looking in indexes: file:///none/1, file:///none/2, file:///none/3" in done.stdout
