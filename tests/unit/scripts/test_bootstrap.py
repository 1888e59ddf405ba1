# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""scripts/bootstrap.sh: what is missing is one sentence with the command that cures it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("sh", "dirname", "cmp", "date", "grep", "tail", "rm", "cp", "cat", "id")


@pytest.fixture
def checkout(tmp_path):
    """A checkout without an environment, on a machine with nothing but a shell's tools."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "bootstrap.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return tmp_path


def put(checkout, name, text):
    path = checkout / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def bootstrap(checkout):
    done = subprocess.run(
        [str(checkout / "scripts" / "bootstrap.sh")],
        env={"PATH": str(checkout / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def test_no_python(checkout):
    assert bootstrap(checkout) == (
        1,
        "There is no python3 on this machine. Install Python 3.11 or later: apt-get install python3 python3-venv\n",
    )


def test_python_too_old(checkout):
    put(checkout, "python3", 'case "$1" in -V) echo Python 3.9.2 ;; *) exit 1 ;; esac')
    code, words = bootstrap(checkout)
    assert code == 1
    assert words == "python3 is Python 3.9.2, wanted Python 3.11 or later: make PYTHON=/path/to/python3.11 ...\n"


def test_missing_parts_are_named_with_the_command_where_they_cannot_be_installed(checkout):
    put(checkout, "python3", 'case "$2" in *version_info*) exit 0 ;; *ensurepip*) exit 1 ;; esac')
    put(checkout, "id", "echo 1000")
    code, words = bootstrap(checkout)
    assert code == 1
    assert words == (
        "Missing: python3-venv openssh-client. Install it first: sudo apt-get install python3-venv openssh-client\n"
    )


def test_no_package_index_is_one_sentence(checkout):
    put(checkout, "python3", "exit 0")
    for tool in ("ssh",):
        put(checkout, tool, "exit 0")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(
        "#!/bin/sh\necho 'ERROR: No matching distribution found for ansible-core' >&2\nexit 1\n", encoding="utf-8"
    )
    python.chmod(0o755)
    code, words = bootstrap(checkout)
    assert code == 1
    assert "No matching distribution found for ansible-core" in words
    assert "pip could not install requirements.txt: is a package index in reach?" in words
    assert not (checkout / ".venv" / "requirements.txt").exists()
