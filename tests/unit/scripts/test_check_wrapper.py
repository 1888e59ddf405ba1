# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wrapper around check.yml: its exit status is the report's, or Ansible's own where there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check.sh"


@pytest.mark.parametrize("ansible, status, code", [(0, 0, 0), (0, 1, 1), (2, 2, 2), (4, 0, 4), (250, 1, 250)])
def test_exit_status(tmp_path, ansible, status, code):
    tool = tmp_path / "bin" / "ansible-playbook"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\nmkdir -p reports\n"
        f'printf \'{{\\n  "schema": 1,\\n  "status": {status},\\n  "nodes": []\\n}}\\n\' > reports/check.json\nexit {ansible}\n'
    )
    tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    done = subprocess.run([str(SCRIPT), "-i", "hosts.yml"], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == code
