# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
import yaml

from ansible_collections.torchfleet.cluster.plugins.module_utils._runtime import skipped_torch
from ansible_collections.torchfleet.cluster.plugins.modules import runtime_facts

MODULE = "ansible_collections.torchfleet.cluster.plugins.modules.runtime_facts"


def run(**options: Any) -> Dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, json.dumps({"ANSIBLE_MODULE_ARGS": options})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    answer: Dict[str, Any] = json.loads(done.stdout)
    return answer


def tool(path: Path, prints: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    found = run(python=sys.executable, environment={"PYTHONPATH": str(tmp_path)}, _ansible_check_mode=True)
    if found["packages"]["torch"]:
        pytest.skip("the tests' own interpreter has torch")
    assert found["changed"] is False
    assert found["python"]["status"] == "ok"
    assert found["torch"]["status"] == "not_installed"
    assert found["shadowed"] == []
    documented = yaml.safe_load(runtime_facts.RETURN)
    assert set(documented) - {"ansible_facts"} == set(found["ansible_facts"]["torchfleet_runtime"])
    assert set(documented["torch"]["contains"]) == set(skipped_torch(""))


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"python": "/nowhere/python"}, "no_interpreter"),
        ({"python": "/etc/hostname"}, "no_interpreter"),
    ],
)
def test_no_interpreter_is_a_result(options: Dict[str, Any], status: str) -> None:
    found = run(**options)
    assert not found.get("failed")
    assert (found["python"]["status"], found["torch"]["status"]) == (status, status)
    assert options["python"] in found["torch"]["problem"]


def test_a_program_that_is_no_python_is_a_result(tmp_path: Path) -> None:
    tool(tmp_path / "python", "hello")
    found = run(python=str(tmp_path / "python"))
    assert found["python"]["status"] == "failed"
    assert found["torch"]["status"] == "import_failed"


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        ("import os; os.abort()", {}, "crashed"),
        ("import time; time.sleep(60)", {"timeout": 1}, "timeout"),
        ("raise SystemExit('imported')", {"import_torch": False}, "skipped"),
    ],
)
def test_torch_that_does_not_import(tmp_path: Path, text: str, options: Dict[str, Any], status: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(text)
    found = run(python=sys.executable, environment={"PYTHONPATH": str(tmp_path)}, **options)
    assert not found.get("failed")
    assert found["torch"]["status"] == status


def test_compilers_and_nvcc(tmp_path: Path) -> None:
    tool(tmp_path / "cuda/bin/nvcc", "Cuda compilation tools, release 12.4, V12.4.131")
    tool(tmp_path / "site/nvidia/cu13/bin/nvcc", "Cuda compilation tools, release 13.0, V13.0.88")
    found = run(
        python=sys.executable,
        environment={"PYTHONPATH": str(tmp_path / "site"), "CUDA_HOME": str(tmp_path / "cuda")},
        import_torch=False,
    )
    first = found["nvcc"][0]
    assert (first["path"], first["version"], first["found_by"]) == (
        str(tmp_path / "cuda/bin/nvcc"),
        "12.4.131",
        "CUDA_HOME",
    )
    wheel = [item for item in found["nvcc"] if item["found_by"] == "wheel"]
    assert [item["version"] for item in wheel] == ["13.0.88"]
    assert set(found["compilers"]) == {"cc", "gcc", "g++", "clang"}


def test_a_timeout_of_nothing_is_refused() -> None:
    found = run(python=sys.executable, timeout=0)
    assert found["failed"]
    assert "timeout is 0" in found["msg"]
