# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe is run as the modules run it: its text on the standard input of an interpreter."""

from __future__ import annotations

import _ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _probe_script
from ansible_collections.torchfleet.cluster.plugins.module_utils._runtime import (
    Probe,
    build_library,
    build_torch,
    probe_source,
    read_probe,
)

# Any shared object will do in the place of a library that cannot be had everywhere.
SOME_LIBRARY = getattr(_ctypes, "__file__", "")
pytestmark = pytest.mark.skipif(not SOME_LIBRARY, reason="this interpreter has ctypes built in")


def probe(stage: str, site: Path, seconds: int = 20, **environment: str) -> Probe:
    done = subprocess.run(
        [sys.executable, "-", stage, str(seconds)],
        input=probe_source(),
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
    )
    return read_probe(done.returncode, done.stdout, done.stderr)


def wheel(site: Path, name: str = "nvidia_nccl_cu12", version: str = "2.27.5") -> Path:
    """A site folder with a wheel's libnccl.so.2 and its metadata."""
    library = site / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOME_LIBRARY, library)
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text("nvidia/nccl/lib/libnccl.so.2,sha256=x,1\n")
    return library


def fake_torch(site: Path, text: str) -> None:
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text(text)


def test_elf_file(tmp_path: Path) -> None:
    found = _probe_script.elf_info(SOME_LIBRARY)
    assert found is not None
    assert found["machine"] == _probe_script.own_machine()
    assert any(name.startswith("libc.so") for name in found["needed"])
    (tmp_path / "text.so").write_text("INPUT(libnccl.so.2)")
    (tmp_path / "cut.so").write_bytes(Path(SOME_LIBRARY).read_bytes()[:70])
    assert _probe_script.elf_info(str(tmp_path / "text.so")) is None
    assert _probe_script.elf_info(str(tmp_path / "cut.so")) in (
        None,
        {**found, "needed": [], "rpath": [], "runpath": []},
    )
    assert _probe_script.elf_info(str(tmp_path / "nowhere")) is None


def test_a_wheel_is_found_with_its_owner(tmp_path: Path) -> None:
    library = wheel(tmp_path)
    found = build_library("nccl", probe("libraries", tmp_path).report)
    assert (found.path, found.origin, found.shadowed_by) == (str(library), "wheel", "")
    assert found.copies[0].packages == ("nvidia-nccl-cu12 2.27.5",)
    # It is no NCCL, and says so.
    assert "ncclGetVersion" in found.problem


def test_ld_library_path_shadows_the_wheel(tmp_path: Path) -> None:
    wheel(tmp_path / "site")
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    shutil.copy(SOME_LIBRARY, ahead / "libnccl.so.2")
    found = build_library("nccl", probe("libraries", tmp_path / "site", LD_LIBRARY_PATH=f"/nowhere:{ahead}").report)
    assert (found.path, found.shadowed_by) == (str(ahead / "libnccl.so.2"), "LD_LIBRARY_PATH")
    assert found.duplicate


def test_two_wheels_that_overwrote_each_other(tmp_path: Path) -> None:
    wheel(tmp_path)
    wheel(tmp_path, "nvidia_nccl_cu13", "2.28.3")
    found = build_library("nccl", probe("libraries", tmp_path).report)
    assert len(found.copies) == 1
    assert found.duplicate


def test_a_file_that_is_no_library_of_this_machine_is_passed_over(tmp_path: Path) -> None:
    library = wheel(tmp_path)
    content = bytearray(library.read_bytes())
    content[18:20] = b"\xb7\x00" if content[18:20] != b"\xb7\x00" else b"\x3e\x00"
    library.write_bytes(bytes(content))
    assert build_library("nccl", probe("libraries", tmp_path).report).path != str(library)


def test_packages_are_read_without_an_import(tmp_path: Path) -> None:
    fake_torch(tmp_path, "raise SystemExit('imported')")
    metadata = tmp_path / "torch-2.9.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    found = probe("packages", tmp_path)
    assert found.status == "ok"
    assert found.report["packages"]["torch"] == {"version": "2.9.1", "location": str(tmp_path)}
    assert found.report["packages"]["colossalai"] is None
    assert found.report["torch"]["path"] == str(tmp_path / "torch")


WORKING = """
import sys, types
print("a greeting that nobody asked for")
__version__ = "9.9.9"
version = types.SimpleNamespace(cuda="12.8", hip=None)
class cuda:
    is_available = staticmethod(lambda: {available})
    @staticmethod
    def init():
        {init}
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda index: "GPU")
    get_device_capability = staticmethod(lambda index: (9, 0))
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WORKING.format(available=True, init="pass"), {"status": "ok", "cuda_available": True, "cuda_reason": ""}),
        (
            WORKING.format(available=False, init="raise RuntimeError('Found no NVIDIA driver on your system.')"),
            {"status": "ok", "version": "9.9.9", "cuda_available": False, "cuda_reason": "no_driver"},
        ),
        # What was known before the crash is kept.
        (
            WORKING.format(available=False, init="import os; os.abort()"),
            {"status": "ok", "version": "9.9.9", "cuda_available": False, "cuda_reason": "crashed"},
        ),
        ("import os\nos.abort()", {"status": "crashed", "problem": "killed by SIGABRT"}),
        ("raise SystemExit(3)", {"status": "import_failed", "problem": "SystemExit: 3"}),
        ("import nosuchmodule", {"status": "import_failed"}),
        ("import os\nos._exit(0)", {"status": "import_failed"}),
    ],
)
def test_torch_in_every_mood(tmp_path: Path, text: str, expected: Dict[str, Any]) -> None:
    fake_torch(tmp_path, text)
    found = build_torch(probe("torch", tmp_path), True)
    assert {key: found[key] for key in expected} == expected


def test_an_import_that_hangs_is_ended_and_located(tmp_path: Path) -> None:
    fake_torch(tmp_path, "import time\ntime.sleep(60)\n")
    found = build_torch(probe("torch", tmp_path, seconds=1), True)
    assert found["status"] == "timeout"
    assert str(tmp_path / "torch" / "__init__.py:2") in found["problem"]
