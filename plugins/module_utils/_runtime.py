# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What a Python interpreter loads: reading what `_probe_script` printed when that interpreter ran it."""

from __future__ import annotations

import json
import os.path
import re
import signal
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils import _probe_script
from ansible_collections.torchfleet.cluster.plugins.module_utils._probe_script import MARK

# Why torch is or is not there.
TORCH_STATUSES = (
    "ok",
    "not_installed",
    "missing_library",
    "symbol_mismatch",
    "import_failed",
    "crashed",
    "timeout",
    "skipped",
    "no_interpreter",
)
# Why torch.cuda.is_available() is false.
CUDA_REASONS = (
    "",
    "cpu_build",
    "no_driver",
    "driver_too_old",
    "library_mismatch",
    "no_gpu",
    "hidden",
    "not_initialized",
    "unsupported_gpu",
    "crashed",
    "timeout",
    "unknown_error",
)


@dataclass(frozen=True)
class LibraryCopy:
    """One file that holds a library, and all the `places` (links) it is met at. `origin`: `wheel torch conda system`.

    `packages` are the wheels that claim it (`name version`): two of them overwrote each other. `version` is '' where it
    was not asked or not answered, and `problem` says why.
    """

    path: str
    real_path: str
    origin: str
    places: Tuple[str, ...] = ()
    version: str = ""
    told_by: str = ""
    problem: str = ""
    packages: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """Which copy of a library the interpreter's programs load, and the others beside it.

    `found_by` is how: `preload`, `rpath`, `ld_library_path`, `runpath`, `wheel`, `cache`, `default`, or `mapped` where
    only a process that had loaded it could tell. `shadowed_by` names what put this copy before the wheel's own
    (`LD_LIBRARY_PATH`, `LD_PRELOAD`, `system`). `ahead` are copies in LD_LIBRARY_PATH: other programs take those even
    where torch does not.
    """

    name: str
    path: str = ""
    version: str = ""
    origin: str = ""
    found_by: str = ""
    shadowed_by: str = ""
    duplicate: bool = False
    ahead: Tuple[str, ...] = ()
    copies: Tuple[LibraryCopy, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Probe:
    """How a run of the probe ended: `status` is `ok`, `failed`, `crashed` or `timeout`; `report` what it got to."""

    status: str
    report: Mapping[str, Any]
    problem: str = ""


def probe_source() -> str:
    """The probe's text, from wherever this collection was imported (a folder or Ansible's zip)."""
    loader: Any = _probe_script.__loader__
    return str(loader.get_source(_probe_script.__name__))


def decode_version(code: int) -> str:
    """The number that ncclGetVersion or cudnnGetVersion returns.

    Up to NCCL 2.8 and cuDNN 8 it is 2708 -> 2.7.8, 8902 -> 8.9.2; since then 23203 -> 2.32.3, 92800 -> 9.28.0
    (NCCL_VERSION in nccl.h, CUDNN_VERSION in cudnn_version.h).
    """
    unit = 1000 if code < 10000 else 10000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def _ending(rc: int, stderr: str) -> Tuple[str, str]:
    if re.search(r"^Timeout \(\d+:\d+:\d+", stderr, re.M):
        frames = re.findall(r'^  File "([^"]+)", line (\d+) in (\S+)', stderr.partition("Timeout (")[2], re.M)
        where = f" in {frames[0][2]} ({frames[0][0]}:{frames[0][1]})" if frames else ""
        return "timeout", f"did not finish in time{where}"
    number = -rc if rc < 0 else rc - 128 if 128 < rc < 160 else 0
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return "crashed", f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    return "failed", lines[-1].strip() if lines else f"exit status {rc}"


def read_probe(rc: int, stdout: str, stderr: str) -> Probe:
    """The probe's last report, and how the interpreter ended. What torch or a site hook printed besides is left out."""
    report: Dict[str, Any] = {}
    for line in stdout.splitlines():
        if line.startswith(MARK):
            try:
                report = json.loads(line[len(MARK) :])
            except ValueError:
                continue  # cut while it was written
    if rc == 0 and report:
        return Probe("ok", report)
    status, problem = _ending(rc, stderr)
    return Probe(status, report, problem)


def _origin(paths: Sequence[str], report: Mapping[str, Any]) -> str:
    torch, python = report.get("torch") or {}, report.get("python") or {}
    folders = [("wheel", folder) for folder in report.get("wheel_dirs") or ()]
    folders += [("torch", torch["path"])] if torch.get("path") else []
    folders += [("conda", python["prefix"])] if python.get("is_conda") else []
    for origin, folder in folders:
        if any(path.startswith(f"{folder}/") for path in paths):
            return origin
    return "system"


def _version(name: str, real_path: str, report: Mapping[str, Any]) -> Tuple[str, str, str]:
    """Version, who told it, and the problem."""
    answer = (report.get("versions") or {}).get(real_path) or {}
    if "value" in answer:
        return decode_version(int(answer["value"])), "call", ""
    if "text" in answer:
        return ".".join(answer["text"].split(".")[:3]), answer.get("told_by", ""), ""
    numbered = re.search(r"\.so\.(\d+\.\d+[.\d]*)$", real_path)
    if numbered and not answer:
        return numbered.group(1), "file name", ""
    return "", "", str(answer.get("error", ""))


def _copies(name: str, report: Mapping[str, Any]) -> Tuple[LibraryCopy, ...]:
    found = []
    for raw in (report.get("libraries") or {}).get(name) or ():
        packages = raw.get("packages") or []
        version, told_by, problem = _version(name, raw["real_path"], report)
        if not version and not problem and len(packages) == 1:
            version, told_by = packages[0]["version"], "wheel"
        found.append(
            LibraryCopy(
                path=raw["path"],
                real_path=raw["real_path"],
                origin=_origin(raw["places"], report),
                places=tuple(raw["places"]),
                version=version,
                told_by=told_by,
                problem=problem,
                packages=tuple(f"{package['name']} {package['version']}" for package in packages),
            )
        )
    return tuple(found)


def _soname_rank(name: str) -> Tuple[int, int]:
    """Newest major version first, and of one major the name that programs ask for: libcudnn.so.9, not .so.9.1.0."""
    numbers = re.findall(r"\d+", name.partition(".so")[2])
    return (int(numbers[0]) if numbers else -1, -len(numbers))


def resolve(name: str, report: Mapping[str, Any]) -> Tuple[str, str]:
    """The path from which the dynamic linker takes a library, and how it gets there (ld.so(8), search order).

    With a torch that needs it: that torch's RPATH (if it has no RUNPATH), LD_LIBRARY_PATH, its RUNPATH, the linker's
    cache, the default folders. Without one, a program that looks into the wheels' folders by itself is assumed.
    """
    linking = (report.get("torch") or {}).get("linking") or {}
    places = {place for raw in (report.get("libraries") or {}).get(name) or () for place in raw["places"]}
    stem = f"lib{name}.so"
    needed = [soname for soname in linking.get("needed") or () if soname.startswith(stem)]
    of_torch = bool(needed)
    if not needed:
        needed = sorted({os.path.basename(place) for place in places}, key=_soname_rank)[-1:]
    if not needed:
        return "", ""
    soname = needed[0]
    for path in re.split(r"[:\s]+", str(report.get("ld_preload") or "")):
        if os.path.basename(path).startswith(stem):
            return path, "preload"
    rpath = linking.get("rpath") if of_torch and not linking.get("runpath") else ()
    steps: List[Tuple[str, Sequence[str]]] = [
        ("rpath", rpath or ()),
        ("ld_library_path", report.get("ld_library_path") or ()),
        ("runpath", (linking.get("runpath") or ()) if of_torch else ()),
        ("wheel", () if of_torch else report.get("wheel_dirs") or ()),
    ]
    for how, folders in steps:
        for folder in folders:
            if os.path.join(folder, soname) in places:
                return os.path.join(folder, soname), how
    cached = (report.get("cache") or {}).get(soname) or ()
    if cached:
        return str(cached[0]), "cache"
    for folder in report.get("system_dirs") or ():
        # CUDA's folders are no default of the linker; they count only through its cache.
        if os.path.join(folder, soname) in places and "/cuda" not in folder:
            return os.path.join(folder, soname), "default"
    if not of_torch:
        return "", ""
    # torch preloads the wheels' libraries itself where the linker finds none (torch/__init__.py).
    for folder in report.get("wheel_dirs") or ():
        if os.path.join(folder, soname) in places:
            return os.path.join(folder, soname), "wheel"
    return "", ""


def build_library(name: str, report: Mapping[str, Any], mapped: Iterable[str] = ()) -> Library:
    """The verdict on one library: which copy is loaded, by whom, and whether LD_LIBRARY_PATH put it there.

    `mapped` are the libraries that a process of that interpreter has really mapped; without it the linker's search is
    followed.
    """
    copies = _copies(name, report)
    path, how = resolve(name, report)
    mine = _copy_at(path, copies)
    loaded = next((path for path in mapped if re.match(rf"lib{name}[-.]", os.path.basename(path))), "")
    # The search names the way in; a process that has loaded the library has the last word on the file.
    if loaded and loaded not in (path, mine.real_path if mine else ""):
        path, how, mine = loaded, "mapped", _copy_at(loaded, copies)
    if not path:
        reason = "no copy is found" if not copies else "there are copies, and none is where the linker looks"
        return Library(name, duplicate=_duplicate(path, copies), copies=copies, problem=reason)
    folders = list(report.get("ld_library_path") or ())
    ahead = tuple(place for copy in copies for place in copy.places if os.path.dirname(place) in folders)
    origin = mine.origin if mine else _origin([path], report)
    wheel_has_one = any(copy.origin in ("wheel", "torch", "conda") for copy in copies)
    shadowed_by = ""
    if wheel_has_one and origin == "system":
        by_path = how == "ld_library_path" or os.path.dirname(path) in folders
        shadowed_by = "LD_PRELOAD" if how == "preload" else "LD_LIBRARY_PATH" if by_path else "system"
    return Library(
        name=name,
        path=path,
        version=mine.version if mine else _version(name, path, report)[0],
        origin=origin,
        found_by=how,
        shadowed_by=shadowed_by,
        duplicate=_duplicate(path, copies),
        ahead=ahead,
        copies=copies,
        problem=mine.problem if mine else "",
    )


def _copy_at(path: str, copies: Iterable[LibraryCopy]) -> Optional[LibraryCopy]:
    return next((copy for copy in copies if path == copy.real_path or path in copy.places), None)


def _duplicate(path: str, copies: Iterable[LibraryCopy]) -> bool:
    """Whether two files, or two wheels in one file, offer the major version that is loaded."""
    rivals = [copy for copy in copies if not path or _major([path]) in (_major(copy.places), -1)]
    return len(rivals) > 1 or any(len(copy.packages) > 1 for copy in rivals)


def _major(paths: Iterable[str]) -> int:
    """The major version in a library's names; -1 where only the name for the compiler (`.so`) is there."""
    return max(_soname_rank(os.path.basename(path))[0] for path in paths)


@dataclass(frozen=True)
class Plugin:
    """A network, tuner or profiler plugin of NCCL. `found_by_nccl`: whether a plain dlopen of its name finds it.
    `sha256` is empty where the file could not be read."""

    path: str
    kind: str
    name: str
    found_by_nccl: bool
    sha256: str = ""


def build_plugins(report: Mapping[str, Any]) -> Tuple[Plugin, ...]:
    """NCCL loads libnccl-net.so, or libnccl-net-<NCCL_NET_PLUGIN>.so, through the linker's own search."""
    cached = set(report.get("cached_plugins") or ())
    folders = list(report.get("ld_library_path") or ())
    linking = (report.get("torch") or {}).get("linking") or {}
    defaults = [
        folder for folder in report.get("system_dirs") or () if "/cuda" not in folder and "/local" not in folder
    ]
    found: Dict[str, Plugin] = {}
    for raw in report.get("plugins") or ():
        base = os.path.basename(raw["path"])
        kind = re.match(r"libnccl-(net|tuner|profiler)(?:-(.+?))?\.so", base)
        if not kind:
            continue
        reachable = base in cached or os.path.dirname(raw["path"]) in (*folders, *defaults, *linking.get("rpath", ()))
        plugin = Plugin(raw["path"], kind.group(1), kind.group(2) or "", reachable, raw.get("sha256") or "")
        known = found.get(raw["real_path"])
        # Of the links to one file the one that NCCL asks for counts: it ends in .so.
        if known is None or (reachable, base.endswith(".so")) > (known.found_by_nccl, known.path.endswith(".so")):
            found[raw["real_path"]] = plugin
    return tuple(found.values())


def net_plugins(plugins: Iterable[Plugin]) -> str:
    """The network plugins that NCCL can load, each with the beginning of its SHA-256: two builds may share a path."""
    found = [plugin for plugin in plugins if plugin.kind == "net" and plugin.found_by_nccl]
    return ", ".join(f"{plugin.path} ({plugin.sha256[:12] or 'unreadable'})" for plugin in found) or "none"


def _torch_failure(error_type: str, error: str) -> str:
    if re.search(r"cannot open shared object file|Error loading shared library|\.so\S*: .*No such file", error):
        return "missing_library"
    if re.search(r"undefined symbol|not defined in file|version `?\S+'? not found|Error relocating", error):
        return "symbol_mismatch"
    if error_type == "ModuleNotFoundError" and "'torch'" in error:
        return "not_installed"
    return "import_failed"


def _cuda_reason(torch: Mapping[str, Any], probe: Probe) -> Tuple[str, str]:
    """Why CUDA is not available: one of CUDA_REASONS, and the words of torch."""
    error = str(torch.get("cuda_error") or "")
    if not torch.get("cuda") and not torch.get("hip"):
        return "cpu_build", "this torch is built without CUDA"
    if "cuda_available" not in torch:
        return (probe.status if probe.status in ("crashed", "timeout") else "unknown_error"), probe.problem
    if torch.get("visible_devices") is not None and torch["visible_devices"].strip() in ("", "-1", "NoDevFiles"):
        return "hidden", f"CUDA_VISIBLE_DEVICES is {torch['visible_devices']!r}"
    rules = (
        (r"Found no NVIDIA driver", "no_driver"),
        (r"driver on your system is too old|CUDA driver version is insufficient|Error 35\b", "driver_too_old"),
        (r"Error 803|unsupported display driver|Error 804|forward compatibility", "library_mismatch"),
        (r"Error 802|system not yet initialized", "not_initialized"),
        (r"No CUDA GPUs are available|no (?:CUDA|ROCm)-capable device|Error 100\b|might not have a CUDA gpu", "no_gpu"),
    )
    for pattern, reason in rules:
        if re.search(pattern, error, re.I):
            return reason, error.splitlines()[0]
    return "unknown_error", error.splitlines()[0] if error else ""


def _nccl_of_torch(raw: Any) -> str:
    if isinstance(raw, int):
        return decode_version(raw)
    return ".".join(str(part) for part in raw) if raw else ""


def unsupported_devices(devices: Iterable[Mapping[str, Any]], arch_list: Sequence[str]) -> Tuple[str, ...]:
    """GPUs for which the build has neither machine code of the same major nor PTX (`compute_`) of an older one."""
    codes = [(int(word[3:-1]), int(word[-1])) for word in arch_list if re.match(r"sm_\d{2,3}$", word)]
    ptx = [(int(word[8:-1]), int(word[-1])) for word in arch_list if re.match(r"compute_\d{2,3}$", word)]
    found = []
    for device in devices:
        capability = tuple(device.get("capability") or ())
        if len(capability) != 2 or not arch_list:
            continue
        binary = any(major == capability[0] and minor <= capability[1] for major, minor in codes)
        exact = any(
            word in (f"sm_{capability[0]}{capability[1]}a", f"sm_{capability[0]}{capability[1]}f") for word in arch_list
        )
        if not binary and not exact and not any(code <= capability for code in ptx):
            found.append(f"{device.get('name')} (sm_{capability[0]}{capability[1]})")
    return tuple(found)


def skipped_torch(status: str, problem: str = "") -> Dict[str, Any]:
    """The facts about a torch that was not imported, all keys there and empty."""
    return {
        "status": status,
        "problem": problem,
        "version": "",
        "path": "",
        "cuda": None,
        "hip": None,
        "cudnn": "",
        "nccl": "",
        "nccl_built_with": "",
        "arch_list": [],
        "cxx11_abi": None,
        "distributed": None,
        "gloo": None,
        "import_seconds": None,
        "cuda_available": None,
        "cuda_reason": "",
        "cuda_message": "",
        "devices": [],
        "unsupported_devices": [],
    }


def build_torch(probe: Probe, installed: bool) -> Dict[str, Any]:
    """What the torch stage tells, with a typed status. `installed`: whether the packages stage saw a torch."""
    torch = probe.report.get("torch") or {}
    result = skipped_torch("ok")
    if not torch.get("imported"):
        if torch:
            result["status"] = _torch_failure(str(torch.get("error_type")), str(torch.get("error")))
            result["problem"] = f"{torch.get('error_type')}: {torch.get('error')}"
        else:
            result["status"] = probe.status if probe.status in ("crashed", "timeout") else "import_failed"
            result["problem"] = probe.problem
        if result["status"] == "not_installed" and installed:
            result["status"] = "import_failed"
        return result
    for key in ("version", "path", "cuda", "hip", "arch_list", "cxx11_abi", "distributed", "gloo"):
        result[key] = torch.get(key)
    result["import_seconds"] = torch.get("seconds")
    result["cudnn"] = decode_version(int(torch["cudnn"])) if torch.get("cudnn") else ""
    result["nccl_built_with"] = _nccl_of_torch(torch.get("nccl_built_with"))
    # A library linked into torch itself cannot be asked, and is the one it was built with.
    result["nccl"] = _nccl_of_torch(torch.get("nccl")) or result["nccl_built_with"]
    result["cuda_available"] = torch.get("cuda_available", False)
    if not result["cuda_available"]:
        result["cuda_reason"], result["cuda_message"] = _cuda_reason(torch, probe)
    result["devices"] = torch.get("devices") or []
    unfit = unsupported_devices(result["devices"], result["arch_list"]) if not torch.get("hip") else ()
    result["unsupported_devices"] = list(unfit)
    if unfit:
        result["cuda_reason"] = "unsupported_gpu"
        result["cuda_message"] = f"this torch has no code for {', '.join(unfit)}"
    return result


def compiler_version(text: str) -> str:
    """The version in the first lines of `gcc --version`, `clang --version` or `nvcc --version`; '' without one."""
    release = re.search(r"release (\d+\.\d+), V(\d+\.\d+\.\d+)", text)
    if release:
        return release.group(2)
    # Distributions put a version of their own in brackets before the compiler's.
    bare = re.sub(r"\([^)]*\)", " ", text.strip().partition("\n")[0])
    found = re.search(r"(?<![\w.-])\d+\.\d+(\.\d+)?", bare)
    return found.group() if found else ""


def nvcc_candidates(
    environment: Mapping[str, str], site_dirs: Iterable[str], prefix: str
) -> Tuple[Tuple[str, str], ...]:
    """Where nvcc may be, as (glob pattern, how), best first: what torch's and DeepSpeed's builds ask, then wheels."""
    found = [
        (os.path.join(environment[name], "bin", "nvcc"), name)
        for name in ("CUDA_HOME", "CUDA_PATH")
        if environment.get(name)
    ]
    found += [(os.path.join(folder, "nvcc"), "PATH") for folder in environment.get("PATH", "").split(":") if folder]
    found += [("/usr/local/cuda/bin/nvcc", "/usr/local/cuda"), ("/usr/local/cuda-*/bin/nvcc", "/usr/local")]
    found += [("/opt/cuda/bin/nvcc", "/opt"), ("/usr/lib/nvidia-cuda-toolkit/bin/nvcc", "distribution")]
    for site in site_dirs:
        found += [(os.path.join(site, "nvidia", where, "bin", "nvcc"), "wheel") for where in ("cu*", "cuda_nvcc")]
    if prefix:
        found.append((os.path.join(prefix, "bin", "nvcc"), "prefix"))
    return tuple(found)
