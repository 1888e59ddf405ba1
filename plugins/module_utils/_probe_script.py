# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A script that an interpreter runs to say what it would load, or does load.

Its text goes to `<python> - <stage> <seconds>` (see `_runtime`), so it needs nothing but the standard library and is
never imported for its functions. It prints one marked line of JSON each time it knows more, so that a crash later on
loses nothing; `_runtime` reads the last one.
"""

# pylint: disable=unnecessary-lambda  # looking the name up may fail too, so it is guarded with the call
from __future__ import annotations

import ctypes
import faulthandler
import glob
import hashlib
import importlib
import json
import os
import platform
import re
import signal
import struct
import subprocess
import sys
import sysconfig
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

MARK = "@@torchfleet-probe@@"
# Library -> the word in the name of the wheel that ships it.
LIBRARIES = {
    "nccl": "nccl",
    "cudnn": "cudnn",
    "cublas": "cublas",
    "cublasLt": "cublas",
    "cudart": "cuda_runtime",
    "nvJitLink": "nvjitlink",
}
PACKAGES = (
    "torch",
    "torchvision",
    "torchaudio",
    "accelerate",
    "deepspeed",
    "colossalai",
    "transformers",
    "triton",
    "numpy",
)
PLUGINS = ("libnccl-net*.so*", "libnccl-tuner*.so*", "libnccl-profiler*.so*")
# Where vendors install NCCL's network plugins, besides what the dynamic linker searches.
PLUGIN_DIRS = (
    "/opt/*/lib",
    "/opt/*/lib64",
    "/opt/*/*/lib",
    "/usr/local/lib",
    "/usr/local/gib/lib64",
    "/var/lib/tcpx*/lib64",
)
SYSTEM_DIRS = (
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda-*/lib64",
)


def emit(report: Dict[str, Any]) -> None:
    sys.stdout.write("\n" + MARK + json.dumps(report) + "\n")
    sys.stdout.flush()


def elf_info(path: str) -> Optional[Dict[str, Any]]:
    """Machine, NEEDED, RPATH and RUNPATH of a 64-bit little-endian ELF file; None where it is no such file."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(64)
            if head[:4] != b"\x7fELF" or head[4] != 2 or head[5] != 1:
                return None
            machine = struct.unpack_from("<H", head, 18)[0]
            (offset,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            stream.seek(offset)
            table = stream.read(size * count)
            segments = [struct.unpack_from("<IIQQQQ", table, at * size) for at in range(count)]
            entries: List[Tuple[int, int]] = []
            for kind, _flags, start, _address, _physical, length in segments:
                if kind == 2:  # PT_DYNAMIC
                    stream.seek(start)
                    entries = list(struct.iter_unpack("<qQ", stream.read(length // 16 * 16)))
            values = dict(reversed(entries))
            found: Dict[str, Any] = {"machine": machine, "needed": [], "rpath": [], "runpath": []}
            if 5 not in values:  # DT_STRTAB
                return found
            base = next(
                (start + values[5] - address for kind, _f, start, address, _p, length in segments
                 if kind == 1 and address <= values[5] < address + length),
                None,
            )  # fmt: skip
            if base is None:
                return found
            stream.seek(base)
            strings = stream.read(values.get(10, 0))  # DT_STRSZ
    except (OSError, struct.error, ValueError):
        return None
    for tag, value in entries:
        if tag == 0:
            break
        if tag in (1, 15, 29):  # DT_NEEDED, DT_RPATH, DT_RUNPATH
            text = strings[value : strings.find(b"\0", value)].decode("utf-8", "replace")
            if tag == 1:
                found["needed"].append(text)
            else:
                origin = os.path.dirname(path)
                text = text.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
                words = [os.path.normpath(word) for word in text.split(":") if word]
                found["rpath" if tag == 15 else "runpath"] = words
    return found


def own_machine() -> int:
    """The ELF machine number that this interpreter can load."""
    info = elf_info(os.path.realpath(sys.executable))
    return int(info["machine"]) if info else 62


def site_dirs() -> List[str]:
    """Folders of sys.path in which packages are installed, in import order, each once."""
    found: List[str] = []
    for path in sys.path:
        if path and os.path.isdir(path) and os.path.realpath(path) not in [os.path.realpath(other) for other in found]:
            found.append(path)
    return found


def linker_cache() -> Dict[str, List[str]]:
    """Soname -> paths, as `ldconfig -p` prints them."""
    for binary in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            # There is no AnsibleModule in the interpreter that runs this.
            text = subprocess.run(  # pylint: disable=ansible-bad-function
                [binary, "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
            ).stdout
        except OSError:
            continue
        found: Dict[str, List[str]] = {}
        for name, path in re.findall(r"^\s+(\S+) \(.*\) => (\S+)$", text.decode("utf-8", "replace"), re.M):
            found.setdefault(name, []).append(path)
        return found
    return {}


def library_path() -> List[str]:
    """Folders of LD_LIBRARY_PATH; an empty entry is the working directory."""
    value = os.environ.get("LD_LIBRARY_PATH", "")
    return [os.path.normpath(word or ".") for word in re.split("[:;]", value)] if value else []


def owners(path: str, word: str) -> List[Dict[str, str]]:
    """The wheels that claim a file below a site-packages folder; there are two where one overwrote the other."""
    site, _rest, rest = path.partition("/nvidia/")
    found = []
    for folder in sorted(glob.glob(os.path.join(glob.escape(site), "nvidia_*.dist-info"))):
        name, _rest, version = os.path.basename(folder)[: -len(".dist-info")].partition("-")
        if word not in name:
            continue
        try:
            with open(os.path.join(folder, "RECORD"), encoding="utf-8") as stream:
                if any(line.startswith("nvidia/" + rest + ",") for line in stream):
                    found.append({"name": name.replace("_", "-"), "version": version})
        except OSError:
            continue
    return found


def call_version(path: str, function: str) -> Dict[str, Any]:
    """Ask a library for its version in a child, so that a bad library costs this process nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # the watchdog's thread is not in this process
        try:
            library = ctypes.CDLL(path)
            if function == "cudnnGetVersion":
                library.cudnnGetVersion.restype = ctypes.c_size_t
                answer = {"value": int(library.cudnnGetVersion())}
            else:
                number = ctypes.c_int()
                library.ncclGetVersion(ctypes.byref(number))
                answer = {"value": number.value}
        except Exception as error:
            answer = {"error": str(error)}  # type: ignore[dict-item]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    status = os.waitpid(child, 0)[1]
    if not text:
        return {"error": f"loading it ended with signal {status & 0x7F}"}
    answered: Dict[str, Any] = json.loads(text.decode())
    return answered


def copies_of(name: str, folders: Sequence[str], cache: Dict[str, List[str]], machine: int) -> List[Dict[str, Any]]:
    """Every copy of lib<name>.so* that a program of this node could meet, each real file once, all its places named."""
    preloaded = re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", ""))
    paths = [path for path in preloaded if os.path.basename(path).startswith(f"lib{name}.so")]
    paths += [
        path for folder in folders for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"lib{name}.so*")))
    ]
    paths += [path for soname in sorted(cache) if soname.startswith(f"lib{name}.so") for path in cache[soname]]
    found: Dict[str, Dict[str, Any]] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real not in found:
            info = elf_info(real)
            if not info or info["machine"] != machine:
                continue
            found[real] = {"path": path, "real_path": real, "places": [], "packages": []}
            if "/nvidia/" in path:
                found[real]["packages"] = owners(path, LIBRARIES[name])
        if path not in found[real]["places"]:
            found[real]["places"].append(path)
    return list(found.values())


def torch_linking(sites: Sequence[str]) -> Optional[Dict[str, Any]]:
    """How the torch of the first site folder that has one finds its libraries; None without torch."""
    for site in sites:
        folder = os.path.join(site, "torch")
        if not os.path.isfile(os.path.join(folder, "__init__.py")):
            continue
        found: Dict[str, Any] = {"path": folder, "lib": os.path.join(folder, "lib"), "object": "", "linking": None}
        for name in ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_cpu.so", "libtorch.so"):
            info = elf_info(os.path.join(folder, "lib", name))
            if info:
                found["object"], found["linking"] = name, info
                break
        return found
    return None


def expand(patterns: Sequence[str]) -> List[str]:
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern))]


def digest(path: str) -> str:
    """SHA-256 of a file; empty where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return ""


def about_python() -> Dict[str, Any]:
    include = sysconfig.get_paths().get("include") or ""
    return {
        "executable": sys.executable,
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "is_conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "libc": " ".join(platform.libc_ver()).strip(),
        "headers": os.path.isfile(os.path.join(include, "Python.h")),
    }


def find_libraries(names: Sequence[str]) -> Dict[str, Any]:
    sites, cache, machine = site_dirs(), linker_cache(), own_machine()
    torch, ahead = torch_linking(sites), library_path()
    linking = (torch or {}).get("linking") or {}
    multiarch = "/usr/lib/" + (sysconfig.get_config_var("MULTIARCH") or platform.machine() + "-linux-gnu")
    system = [multiarch, *expand(SYSTEM_DIRS)]
    wheels = [
        folder for site in sites for folder in sorted(glob.glob(os.path.join(glob.escape(site), "nvidia", "*", "lib")))
    ]
    folders = linking.get("rpath", []) + ahead + linking.get("runpath", []) + wheels
    folders += ([torch["lib"]] if torch else []) + [os.path.join(sys.prefix, "lib")] + system
    wanted = r"lib({})\.so".format("|".join(names))
    report: Dict[str, Any] = {
        "python": about_python(),
        "site_dirs": sites,
        "wheel_dirs": wheels,
        "system_dirs": system,
        "ld_library_path": ahead,
        "ld_preload": os.environ.get("LD_PRELOAD", ""),
        "torch": torch,
        "cache": {name: paths for name, paths in cache.items() if re.match(wanted, name)},
        "libraries": {name: copies_of(name, folders, cache, machine) for name in names},
        "versions": {},
    }
    plugins = []
    for folder in [*folders, *expand(PLUGIN_DIRS)]:
        for pattern in PLUGINS:
            plugins += sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
    plugins += [
        path for name in sorted(cache) if re.match(r"libnccl-(net|tuner|profiler)", name) for path in cache[name]
    ]
    report["plugins"] = [
        {"path": path, "real_path": os.path.realpath(path), "sha256": digest(path)}
        for path in dict.fromkeys(plugins)
        if os.path.exists(path)
    ]
    report["cached_plugins"] = [name for name in cache if name.startswith("libnccl-")]
    return report


def ask_versions(report: Dict[str, Any]) -> None:
    """NCCL is asked by a call. cuDNN's call maps 70 MB of kernels: it is made only where no name tells the version."""
    for copy in report["libraries"]["nccl"]:
        report["versions"][copy["real_path"]] = call_version(copy["real_path"], "ncclGetVersion")
    for copy in report["libraries"]["cudnn"]:
        numbered = re.search(r"\.so\.(\d+\.\d+\.\d+)", copy["real_path"])
        if numbered:
            answer: Dict[str, Any] = {"text": numbered.group(1), "told_by": "file name"}
        elif len(copy["packages"]) == 1:
            answer = {"text": copy["packages"][0]["version"], "told_by": "wheel"}
        else:
            answer = call_version(copy["real_path"], "cudnnGetVersion")
        report["versions"][copy["real_path"]] = answer


def find_packages() -> Dict[str, Any]:
    """Version and place of each package, without importing it."""
    from importlib import metadata

    found: Dict[str, Any] = {}
    for name in PACKAGES:
        try:
            distribution = metadata.distribution(name)
            found[name] = {"version": distribution.version, "location": str(distribution.locate_file(""))}
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def mapped_libraries() -> List[str]:
    """CUDA's libraries among the files that this process has mapped, each once, in address order."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
        paths = [line.split(None, 5)[5].strip() for line in stream if line.count("/")]
    wanted = re.compile(
        r"/lib(cublas|cublasLt|cudnn|nccl|cudart|nvJitLink|cuda|rccl|amdhip64|torch_cuda|torch_hip)[-.][^/]*$"
    )
    return [path for path in dict.fromkeys(paths) if wanted.search(path)]


def _guarded(function: Any) -> Any:
    try:
        return function()
    except Exception:
        return None


def load_torch(report: Dict[str, Any]) -> None:
    """Import torch and look at what came with it; the report is printed after each step."""
    began = time.time()
    try:
        torch: Any = importlib.import_module("torch")
    except BaseException as error:
        report["torch"] = {"imported": False, "error_type": type(error).__name__, "error": str(error)}
        emit(report)
        return
    found: Dict[str, Any] = {
        "imported": True,
        "seconds": round(time.time() - began, 2),
        "version": str(torch.__version__),
        "path": os.path.dirname(torch.__file__ or ""),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "git": getattr(torch.version, "git_version", None),
        "cxx11_abi": _guarded(lambda: bool(torch._C._GLIBCXX_USE_CXX11_ABI)),
        "distributed": _guarded(lambda: torch.distributed.is_available()),
        "gloo": _guarded(lambda: torch.distributed.is_gloo_available()),
        # torch.cuda.get_arch_list is empty without a GPU; the build's own list is not.
        "arch_list": (_guarded(lambda: torch._C._cuda_getArchFlags()) or "").split(),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    report["torch"] = found
    found["mapped"] = mapped_libraries()
    emit(report)
    if found["cuda"] or found["hip"]:
        found["cudnn"] = _guarded(lambda: torch.backends.cudnn.version())
        # torch's own answer is the version it was compiled with; the library that is loaded may be another.
        version = _guarded(lambda: torch.cuda.nccl.version())
        found["nccl_built_with"] = list(version) if isinstance(version, tuple) else version
        loaded = [path for path in mapped_libraries() if os.path.basename(path).startswith("libnccl.so")]
        if loaded:
            found["nccl"] = call_version(loaded[0], "ncclGetVersion").get("value")
        emit(report)
    available = _guarded(lambda: torch.cuda.is_available())
    found["cuda_available"] = available
    if not available:
        try:
            torch.cuda.init()
        except BaseException as error:
            found["cuda_error"] = str(error)
    else:
        found["devices"] = [
            {
                "index": index,
                "name": _guarded(lambda at=index: torch.cuda.get_device_name(at)),
                "capability": list(_guarded(lambda at=index: torch.cuda.get_device_capability(at)) or ()),
            }
            for index in range(torch.cuda.device_count())
        ]
    found["mapped"] = mapped_libraries()
    emit(report)


def main(stage: str, seconds: float) -> None:
    # Both write what Python was doing to stderr; the second ends a hung import from a thread of its own.
    faulthandler.enable()
    if seconds > 0:
        faulthandler.dump_traceback_later(seconds, exit=True)
    if stage == "torch":
        load_torch({})
        return
    report = find_libraries(("nccl", "cudnn") if stage == "libraries" else tuple(LIBRARIES))
    if stage == "packages":
        report["packages"] = find_packages()
    emit(report)
    ask_versions(report)
    emit(report)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
