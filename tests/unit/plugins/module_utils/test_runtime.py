# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._probe_script import MARK
from ansible_collections.torchfleet.cluster.plugins.module_utils._runtime import (
    CUDA_REASONS,
    TORCH_STATUSES,
    Probe,
    build_library,
    build_plugins,
    build_torch,
    compiler_version,
    decode_version,
    net_plugins,
    nvcc_candidates,
    probe_source,
    read_probe,
    skipped_torch,
    unsupported_devices,
)

SITE = "/venv/lib/python3.11/site-packages"
WHEEL = f"{SITE}/nvidia/nccl/lib"
CUDNN = f"{SITE}/nvidia/cudnn/lib"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
MINE = "/opt/mine"


def copy(*places: str, real: str = "", packages: Tuple[str, ...] = ()) -> Dict[str, Any]:
    owners = [
        {"name": name, "version": version} for name, _blank, version in (item.partition(" ") for item in packages)
    ]
    return {"path": places[0], "real_path": real or places[0], "places": list(places), "packages": owners}


def report(libraries: Dict[str, Any], **more: Any) -> Dict[str, Any]:
    return {
        "python": {"prefix": "/venv", "is_conda": False},
        "wheel_dirs": [WHEEL, CUDNN],
        "system_dirs": [SYSTEM, "/usr/local/cuda/lib64"],
        "libraries": libraries,
        **more,
    }


def torch(rpath: Any = (), runpath: Any = (), needed: Any = ("libnccl.so.2", "libcudnn.so.9")) -> Dict[str, Any]:
    linking = {"needed": list(needed), "rpath": list(rpath), "runpath": list(runpath)}
    return {"path": f"{SITE}/torch", "lib": f"{SITE}/torch/lib", "object": "libtorch_cuda.so", "linking": linking}


BUNDLED = copy(f"{WHEEL}/libnccl.so.2", packages=("nvidia-nccl-cu12 2.27.5",))
OWN = copy(f"{MINE}/libnccl.so.2", f"{MINE}/libnccl.so", real=f"{MINE}/libnccl.so.2.21.5")
PACKAGED = copy(f"{SYSTEM}/libnccl.so.2", real=f"{SYSTEM}/libnccl.so.2.19.3")
CACHE = {"libnccl.so.2": [f"{SYSTEM}/libnccl.so.2"]}


@pytest.mark.parametrize(
    ("code", "version"),
    [
        (2708, "2.7.8"),
        (2402, "2.4.2"),
        (20908, "2.9.8"),
        (21003, "2.10.3"),
        (22105, "2.21.5"),
        (23203, "2.32.3"),
        (30001, "3.0.1"),
        (7605, "7.6.5"),
        (8902, "8.9.2"),
        (90100, "9.1.0"),
        (91002, "9.10.2"),
        (92800, "9.28.0"),
    ],
)
def test_version_codes(code: int, version: str) -> None:
    assert decode_version(code) == version


@pytest.mark.parametrize(
    ("more", "copies", "path", "found_by", "shadowed_by"),
    [
        ({"torch": torch(rpath=[WHEEL])}, [BUNDLED], f"{WHEEL}/libnccl.so.2", "rpath", ""),
        # DT_RPATH comes before LD_LIBRARY_PATH, DT_RUNPATH behind it: ld.so(8).
        (
            {"torch": torch(rpath=[WHEEL]), "ld_library_path": [MINE]},
            [OWN, BUNDLED],
            f"{WHEEL}/libnccl.so.2",
            "rpath",
            "",
        ),
        (
            {"torch": torch(runpath=[WHEEL]), "ld_library_path": [MINE]},
            [OWN, BUNDLED],
            f"{MINE}/libnccl.so.2",
            "ld_library_path",
            "LD_LIBRARY_PATH",
        ),
        ({"torch": torch(runpath=[WHEEL])}, [BUNDLED, PACKAGED], f"{WHEEL}/libnccl.so.2", "runpath", ""),
        # With both, the linker ignores DT_RPATH.
        (
            {"torch": torch(rpath=[WHEEL], runpath=[WHEEL]), "ld_library_path": [MINE]},
            [OWN, BUNDLED],
            f"{MINE}/libnccl.so.2",
            "ld_library_path",
            "LD_LIBRARY_PATH",
        ),
        ({"torch": torch(), "cache": CACHE}, [BUNDLED, PACKAGED], f"{SYSTEM}/libnccl.so.2", "cache", "system"),
        ({"torch": torch(), "cache": CACHE}, [PACKAGED], f"{SYSTEM}/libnccl.so.2", "cache", ""),
        ({"torch": torch()}, [PACKAGED], f"{SYSTEM}/libnccl.so.2", "default", ""),
        # torch looks into the wheels itself where the linker finds nothing.
        ({"torch": torch()}, [BUNDLED], f"{WHEEL}/libnccl.so.2", "wheel", ""),
        ({"torch": None}, [BUNDLED], f"{WHEEL}/libnccl.so.2", "wheel", ""),
        (
            {"torch": None, "ld_library_path": [MINE]},
            [OWN, BUNDLED],
            f"{MINE}/libnccl.so.2",
            "ld_library_path",
            "LD_LIBRARY_PATH",
        ),
        (
            {"torch": torch(rpath=[WHEEL]), "ld_preload": f"/x/libfoo.so:{MINE}/libnccl.so.2"},
            [OWN, BUNDLED],
            f"{MINE}/libnccl.so.2",
            "preload",
            "LD_PRELOAD",
        ),
        # LD_LIBRARY_PATH that names the wheel's own folder shadows nothing.
        (
            {"torch": torch(runpath=[WHEEL]), "ld_library_path": [WHEEL]},
            [BUNDLED],
            f"{WHEEL}/libnccl.so.2",
            "ld_library_path",
            "",
        ),
        # A CUDA toolkit's folder is searched only if the cache or a variable names it.
        ({"torch": None}, [copy("/usr/local/cuda/lib64/libnccl.so.2")], "", "", ""),
    ],
)
def test_which_copy_is_loaded(
    more: Dict[str, Any], copies: List[Any], path: str, found_by: str, shadowed_by: str
) -> None:
    found = build_library("nccl", report({"nccl": copies}, **more))
    assert (found.path, found.found_by, found.shadowed_by) == (path, found_by, shadowed_by)
    assert found.duplicate is (len(copies) > 1)
    assert bool(found.problem) is (not path)


def test_a_copy_in_ld_library_path_that_torch_ignores_is_still_named() -> None:
    more = {"torch": torch(rpath=[WHEEL]), "ld_library_path": [MINE]}
    found = build_library("nccl", report({"nccl": [OWN, BUNDLED]}, **more))
    assert found.ahead == (f"{MINE}/libnccl.so.2", f"{MINE}/libnccl.so")


def test_what_the_process_mapped_has_the_last_word() -> None:
    more = {"torch": torch(rpath=[WHEEL]), "ld_library_path": [MINE]}
    mapped = ["/x/libnccl-net.so", f"{MINE}/libnccl.so.2.21.5"]
    found = build_library("nccl", report({"nccl": [BUNDLED, OWN]}, **more), mapped[1:])
    assert (found.path, found.found_by, found.shadowed_by) == (mapped[1], "mapped", "LD_LIBRARY_PATH")
    same = build_library("nccl", report({"nccl": [BUNDLED, OWN]}, **more), [f"{WHEEL}/libnccl.so.2"])
    assert (same.found_by, same.shadowed_by) == ("rpath", "")


def test_versions_and_who_told_them() -> None:
    versions = {
        BUNDLED["real_path"]: {"value": 22705},
        OWN["real_path"]: {"error": "/opt/mine/libnccl.so.2: undefined symbol: ncclGetVersion"},
        f"{CUDNN}/libcudnn.so.9": {"text": "9.10.2.21", "told_by": "wheel"},
    }
    data = report({"nccl": [BUNDLED, OWN], "cudnn": [copy(f"{CUDNN}/libcudnn.so.9")]}, versions=versions)
    nccl = build_library("nccl", data)
    assert [(item.version, item.told_by, bool(item.problem)) for item in nccl.copies] == [
        ("2.27.5", "call", False),
        ("", "", True),
    ]
    assert (nccl.version, nccl.origin) == ("2.27.5", "wheel")
    assert build_library("cudnn", data).version == "9.10.2"


def test_two_wheels_in_one_file_are_a_duplicate() -> None:
    both = copy(f"{WHEEL}/libnccl.so.2", packages=("nvidia-nccl-cu12 2.27.5", "nvidia-nccl-cu13 2.28.3"))
    found = build_library("nccl", report({"nccl": [both]}))
    assert found.duplicate
    assert found.copies[0].packages == ("nvidia-nccl-cu12 2.27.5", "nvidia-nccl-cu13 2.28.3")


def test_another_major_version_is_no_duplicate() -> None:
    old = copy(f"{SYSTEM}/libcudnn.so.8", f"{SYSTEM}/libcudnn.so", real=f"{SYSTEM}/libcudnn.so.8.9.2")
    found = build_library("cudnn", report({"cudnn": [copy(f"{CUDNN}/libcudnn.so.9"), old]}, torch=torch(rpath=[CUDNN])))
    assert (found.path, found.duplicate) == (f"{CUDNN}/libcudnn.so.9", False)


def test_no_library_at_all() -> None:
    found = build_library("nccl", {})
    assert (found.path, found.version, found.duplicate) == ("", "", False)
    assert found.problem


def test_plugins() -> None:
    data = report(
        {},
        ld_library_path=["/opt/ofi/lib"],
        cached_plugins=["libnccl-net-rdma.so"],
        plugins=[
            {"path": "/opt/ofi/lib/libnccl-net.so.0", "real_path": "/opt/ofi/lib/libnccl-net.so.0.0.0"},
            {
                "path": "/opt/ofi/lib/libnccl-net.so",
                "real_path": "/opt/ofi/lib/libnccl-net.so.0.0.0",
                "sha256": "0a" * 32,
            },
            {"path": "/opt/hpcx/lib/libnccl-net.so", "real_path": "/opt/hpcx/lib/libnccl-net.so"},
            {"path": "/x/libnccl-net-rdma.so", "real_path": "/x/libnccl-net-rdma.so"},
            {"path": "/opt/ofi/lib/libnccl-tuner.so", "real_path": "/opt/ofi/lib/libnccl-tuner.so"},
        ],
    )
    assert [(item.path, item.kind, item.name, item.found_by_nccl) for item in build_plugins(data)] == [
        ("/opt/ofi/lib/libnccl-net.so", "net", "", True),
        ("/opt/hpcx/lib/libnccl-net.so", "net", "", False),
        ("/x/libnccl-net-rdma.so", "net", "rdma", True),
        ("/opt/ofi/lib/libnccl-tuner.so", "tuner", "", True),
    ]
    assert net_plugins(build_plugins(data)) == (
        "/opt/ofi/lib/libnccl-net.so (0a0a0a0a0a0a), /x/libnccl-net-rdma.so (unreadable)"
    )
    assert net_plugins(()) == "none"


HANG = """Timeout (0:00:02)!
Thread 0x00007f (most recent call first):
  File "/venv/torch/__init__.py", line 7 in <module>
  File "<stdin>", line 400 in load_torch
"""


@pytest.mark.parametrize(
    ("rc", "stderr", "status", "words"),
    [
        (1, HANG, "timeout", "<module> (/venv/torch/__init__.py:7)"),
        (-11, "Fatal Python error: Segmentation fault\n", "crashed", "SIGSEGV"),
        (139, "", "crashed", "SIGSEGV"),
        (-9, "", "crashed", "memory"),
        (1, "Traceback …\nSyntaxError: future feature annotations is not defined\n", "failed", "SyntaxError"),
        (3, "", "failed", "exit status 3"),
    ],
)
def test_how_a_probe_ended(rc: int, stderr: str, status: str, words: str) -> None:
    before = MARK + json.dumps({"torch": {"imported": True}})
    probe = read_probe(rc, f"noise\n{before}\n{MARK}" + '{"torch": {"imp', stderr)
    assert probe.status == status
    assert words in probe.problem
    assert probe.report == {"torch": {"imported": True}}


def test_the_last_report_counts_and_noise_does_not() -> None:
    probe = read_probe(
        0, f"hello\n{MARK}{json.dumps({'a': 1})}\nNumPy warning {MARK}\n{MARK}{json.dumps({'a': 2})}\n", ""
    )
    assert (probe.status, probe.report) == ("ok", {"a": 2})


def test_an_interpreter_that_says_nothing_has_failed() -> None:
    assert read_probe(0, "", "").status == "failed"


def imported(**more: Any) -> Dict[str, Any]:
    return {"torch": {"imported": True, "version": "2.9.1+cu128", "cuda": "12.8", "hip": None, "arch_list": [], **more}}


def not_imported(error_type: str, error: str) -> Probe:
    return Probe("ok", {"torch": {"imported": False, "error_type": error_type, "error": error}})


def unavailable(error: str, **more: Any) -> Dict[str, Any]:
    return {"cuda_available": False, "cuda_error": error, **more}


@pytest.mark.parametrize(
    ("probe", "installed", "status"),
    [
        (Probe("ok", imported(cuda_available=True)), True, "ok"),
        (not_imported("ImportError", "libcudnn.so.9: cannot open shared object file"), True, "missing_library"),
        (
            not_imported("ImportError", "Error loading shared library libstdc++.so.6: No such file or directory"),
            True,
            "missing_library",
        ),
        (
            not_imported("FileNotFoundError", "[Errno 2] No such file or directory: '/nonexistent/cache'"),
            True,
            "import_failed",
        ),
        (
            not_imported(
                "OSError", "libx.so.11: symbol f, version liby.so.11 not defined in file liby.so.11 with link"
            ),
            True,
            "symbol_mismatch",
        ),
        (
            not_imported("ImportError", "/x/libtorch_cuda.so: undefined symbol: ncclCommRegister"),
            True,
            "symbol_mismatch",
        ),
        (
            not_imported("ImportError", "/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found"),
            True,
            "symbol_mismatch",
        ),
        (not_imported("ModuleNotFoundError", "No module named 'torch'"), False, "not_installed"),
        (not_imported("ModuleNotFoundError", "No module named 'typing_extensions'"), True, "import_failed"),
        (Probe("crashed", {}, "killed by SIGSEGV"), True, "crashed"),
        (Probe("timeout", {}, "did not finish in time"), True, "timeout"),
        (Probe("failed", {}, "exit status 3"), True, "import_failed"),
    ],
)
def test_torch_status(probe: Probe, installed: bool, status: str) -> None:
    found = build_torch(probe, installed)
    assert found["status"] == status
    assert status in TORCH_STATUSES
    assert bool(found["problem"]) is (status != "ok")
    assert set(found) == set(skipped_torch(""))


@pytest.mark.parametrize(
    ("torch_report", "ending", "reason"),
    [
        ({"cuda_available": True}, "ok", ""),
        (unavailable("Torch not compiled with CUDA enabled", cuda=None), "ok", "cpu_build"),
        (unavailable("Found no NVIDIA driver on your system. Please check …"), "ok", "no_driver"),
        (unavailable("The NVIDIA driver on your system is too old (found version 11040)."), "ok", "driver_too_old"),
        (unavailable("No CUDA GPUs are available"), "ok", "no_gpu"),
        (unavailable("No CUDA GPUs are available", visible_devices=""), "ok", "hidden"),
        (unavailable("No CUDA GPUs are available", visible_devices="-1"), "ok", "hidden"),
        (unavailable("No CUDA GPUs are available", visible_devices="7"), "ok", "no_gpu"),
        (unavailable("Error 802: system not yet initialized"), "ok", "not_initialized"),
        (unavailable("Error 804: forward compatibility was attempted"), "ok", "library_mismatch"),
        (
            unavailable("Error 803: system has unsupported display driver / cuda driver combination"),
            "ok",
            "library_mismatch",
        ),
        (
            unavailable("CUDA unknown error - this may be due to an incorrectly set up environment"),
            "ok",
            "unknown_error",
        ),
        ({}, "crashed", "crashed"),
        ({}, "timeout", "timeout"),
        ({"cuda": None, "hip": "6.2", "cuda_available": True}, "ok", ""),
    ],
)
def test_why_cuda_is_not_available(torch_report: Dict[str, Any], ending: str, reason: str) -> None:
    found = build_torch(Probe(ending, imported(**torch_report), "words"), True)
    assert found["cuda_reason"] == reason
    assert reason in CUDA_REASONS
    assert bool(found["cuda_available"]) is (reason == "")
    assert bool(found["cuda_message"]) is (reason != "")


@pytest.mark.parametrize(
    ("capability", "arch_list", "fits"),
    [
        ([8, 0], ["sm_80", "sm_90"], True),
        ([8, 9], ["sm_80", "sm_90"], True),
        ([7, 0], ["sm_75", "sm_80"], False),
        ([12, 0], ["sm_80", "sm_90"], False),
        ([12, 0], ["sm_80", "sm_90", "compute_90"], True),
        ([9, 0], ["sm_90a"], True),
        ([10, 0], ["sm_100", "sm_120"], True),
        ([9, 0], [], True),
    ],
)
def test_gpus_without_code_in_this_build(capability: List[int], arch_list: List[str], fits: bool) -> None:
    device = {"name": "GPU", "capability": capability}
    assert (unsupported_devices([device], arch_list) == ()) is fits
    report = imported(cuda_available=True, devices=[device], arch_list=arch_list)
    assert (build_torch(Probe("ok", report), True)["cuda_reason"] == "") is fits


def test_the_loaded_nccl_is_not_the_one_torch_was_built_with() -> None:
    found = build_torch(Probe("ok", imported(nccl=23203, nccl_built_with=[2, 27, 5], cudnn=91002)), True)
    assert (found["nccl"], found["nccl_built_with"], found["cudnn"]) == ("2.32.3", "2.27.5", "9.10.2")
    static = build_torch(Probe("ok", imported(nccl=None, nccl_built_with=2708)), True)
    assert (static["nccl"], static["nccl_built_with"]) == ("2.7.8", "2.7.8")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\nCopyright", "11.4.0"),
        ("gcc (GCC) 8.5.0 20210514 (Red Hat 8.5.0-4)\n", "8.5.0"),
        ("gcc-4.8 (SUSE Linux) 4.8.5\n", "4.8.5"),
        ("x86_64-conda-linux-gnu-c++ (conda-forge gcc 12.3.0-5) 12.3.0\n", "12.3.0"),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1\n", "14.0.0"),
        ("Cuda compilation tools, release 12.4, V12.4.131\nBuild cuda_12.4.r12.4\n", "12.4.131"),
        ("", ""),
        ("sh: not found", ""),
    ],
)
def test_compiler_version(text: str, version: str) -> None:
    assert compiler_version(text) == version


def test_nvcc_is_looked_for_where_builds_look_first() -> None:
    found = nvcc_candidates({"CUDA_HOME": "/cuda", "PATH": "/usr/bin:"}, [SITE], "/venv")
    assert [how for _pattern, how in found][:3] == ["CUDA_HOME", "PATH", "/usr/local/cuda"]
    assert (f"{SITE}/nvidia/cu*/bin/nvcc", "wheel") in found


def test_the_probe_is_sent_as_its_text() -> None:
    assert "def load_torch" in probe_source()
