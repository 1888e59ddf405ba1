# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Which versions of the software stack belong together: facts and where each one is from. No logic.

All figures are for Linux on x86_64. Extend a table at its end, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

_RELEASE_NOTES = "CUDA 13.2 release notes, table of toolkit drivers and table of minor-version compatibility"
_EXTENSION = "torch/utils/cpp_extension.py, CUDA_GCC_VERSIONS"
_INSTALL_GUIDE = "CUDA installation guide for Linux, host compilers"
_MATRIX = "pytorch RELEASE.md, release compatibility matrix (as of 2.14)"
_PYPI = "PyPI metadata of the linux x86_64 wheels"


@dataclass(frozen=True)
class Cuda:
    """A CUDA release. `driver`: the oldest driver that is made for it (Linux, x86_64, first update of the release).

    `compatible_driver`: the oldest driver that runs programs built with it, through minor-version compatibility; None
    where the release knows no such thing. `gcc_min` is inclusive, `gcc_below` exclusive (majors).
    """

    release: str
    driver: str
    compatible_driver: Optional[str]
    gcc_min: int
    gcc_below: int
    source: str


def _cuda(release: str, driver: str, compatible: Optional[str], gcc: Tuple[int, int], gcc_source: str) -> Cuda:
    return Cuda(release, driver, compatible, gcc[0], gcc[1], f"{_RELEASE_NOTES}; {gcc_source}")


# One row a minor, with the driver of its first release: updates ask for a little more, and run on that one too through
# minor-version compatibility. There is no toolkit 12.7.
CUDA: Tuple[Cuda, ...] = (
    _cuda("10.2", "440.33", None, (5, 9), _INSTALL_GUIDE),
    _cuda("11.0", "450.51.05", "450.80.02", (5, 10), _EXTENSION),
    _cuda("11.1", "455.23", "450.80.02", (5, 11), _EXTENSION),
    _cuda("11.2", "460.27.03", "450.80.02", (5, 11), _EXTENSION),
    _cuda("11.3", "465.19.01", "450.80.02", (5, 11), _EXTENSION),
    _cuda("11.4", "470.42.01", "450.80.02", (6, 12), _EXTENSION),
    _cuda("11.5", "495.29.05", "450.80.02", (6, 12), _EXTENSION),
    _cuda("11.6", "510.39.01", "450.80.02", (6, 12), _EXTENSION),
    _cuda("11.7", "515.43.04", "450.80.02", (6, 12), _EXTENSION),
    _cuda("11.8", "520.61.05", "450.80.02", (6, 12), _INSTALL_GUIDE + " (torch's own table has no 11.8)"),
    _cuda("12.0", "525.60.13", "525.60.13", (6, 13), _EXTENSION),
    _cuda("12.1", "530.30.02", "525.60.13", (6, 13), _EXTENSION),
    _cuda("12.2", "535.54.03", "525.60.13", (6, 13), _EXTENSION),
    _cuda("12.3", "545.23.06", "525.60.13", (6, 14), _EXTENSION),
    _cuda("12.4", "550.54.14", "525.60.13", (6, 14), _EXTENSION),
    _cuda("12.5", "555.42.02", "525.60.13", (6, 14), _EXTENSION),
    _cuda("12.6", "560.28.03", "525.60.13", (6, 14), _EXTENSION),
    _cuda("12.8", "570.26", "525.60.13", (6, 15), _EXTENSION + " (an earlier revision: below 14)"),
    _cuda("12.9", "575.51.03", "525.60.13", (6, 15), _EXTENSION + " (an earlier revision: below 14)"),
    _cuda("13.0", "580.65.06", "580.65.06", (6, 16), _EXTENSION),
    _cuda("13.1", "590.44.01", "580.65.06", (6, 16), _EXTENSION + ", as for 13.0: none is listed for 13.1"),
    _cuda("13.2", "595.45.04", "580.65.06", (6, 16), _EXTENSION + ", as for 13.0: none is listed for 13.2"),
)


@dataclass(frozen=True)
class Torch:
    """A torch release.

    `builds`: CUDA releases that the official index documents. `more_builds`: in use from that index but not in the
    compatibility matrix: taken when asked for, never chosen. `pypi_cuda`: what PyPI's wheel is built for; `nccl`,
    `cudnn` and `triton` are what that wheel pins. `pythons`: first and last CPython minor with a wheel. `glibc`: the
    oldest C library that the wheels load with. `gcc_min`: the oldest compiler its headers are good for. `channel`: the
    conda channel whose builds these are; empty for wheels.
    """

    version: str
    torchvision: str
    torchaudio: str
    pypi_cuda: str
    builds: Tuple[str, ...]
    pythons: Tuple[str, str]
    nccl: str
    cudnn: str
    triton: str
    glibc: str
    gcc_min: int
    source: str
    more_builds: Tuple[str, ...] = ()
    channel: str = ""


_OLD = ("2.17", 5)  # manylinux2014; C++14
_CPP17 = ("2.17", 9)  # manylinux2014; C++17, README: gcc 9.4 or newer
_M228 = ("2.28", 9)  # manylinux_2_28; C++17
_CPP20 = ("2.28", 11)  # manylinux_2_28; C++20 since 2.13, CMakeLists: GCC 11.3 or newer


def _torch(
    version: str,
    companions: Tuple[str, str],
    builds: Tuple[str, ...],
    pypi_cuda: str,
    pythons: Tuple[str, str],
    pins: Tuple[str, str, str],
    platform: Tuple[str, int],
    more_builds: Tuple[str, ...] = (),
    note: str = "",
) -> Torch:
    source = f"{_MATRIX}; {_PYPI}{note}"
    return Torch(
        version, companions[0], companions[1], pypi_cuda, builds, pythons, *pins, *platform, source, more_builds
    )


_121 = ("11.8", "12.1")
_124 = ("11.8", "12.1", "12.4")
_LEGACY_130 = ("12.6", "12.8", "13.0")
_LEGACY_132 = ("12.6", "13.0", "13.2")
_NO_AUDIO_PIN = "; torchaudio has had no torch pin since 2.11.0, its newest release"

TORCH: Tuple[Torch, ...] = (
    _torch("1.13.1", ("0.14.1", "0.13.1"), ("11.6", "11.7"), "11.7", ("3.7", "3.11"), ("", "8.5.0.96", ""), _OLD),
    _torch(
        "2.0.0", ("0.15.1", "2.0.1"), ("11.7", "11.8"), "11.7", ("3.8", "3.11"), ("2.14.3", "8.5.0.96", "2.0.0"), _OLD
    ),
    _torch(
        "2.0.1", ("0.15.2", "2.0.2"), ("11.7", "11.8"), "11.7", ("3.8", "3.11"), ("2.14.3", "8.5.0.96", "2.0.0"), _OLD
    ),
    _torch("2.1.0", ("0.16.0", "2.1.0"), _121, "12.1", ("3.8", "3.11"), ("2.18.1", "8.9.2.26", "2.1.0"), _CPP17),
    _torch("2.1.1", ("0.16.1", "2.1.1"), _121, "12.1", ("3.8", "3.11"), ("2.18.1", "8.9.2.26", "2.1.0"), _CPP17),
    _torch("2.1.2", ("0.16.2", "2.1.2"), _121, "12.1", ("3.8", "3.11"), ("2.18.1", "8.9.2.26", "2.1.0"), _CPP17),
    _torch("2.2.0", ("0.17.0", "2.2.0"), _121, "12.1", ("3.8", "3.12"), ("2.19.3", "8.9.2.26", "2.2.0"), _CPP17),
    _torch("2.2.1", ("0.17.1", "2.2.1"), _121, "12.1", ("3.8", "3.12"), ("2.19.3", "8.9.2.26", "2.2.0"), _CPP17),
    _torch("2.2.2", ("0.17.2", "2.2.2"), _121, "12.1", ("3.8", "3.12"), ("2.19.3", "8.9.2.26", "2.2.0"), _CPP17),
    _torch("2.3.0", ("0.18.0", "2.3.0"), _121, "12.1", ("3.8", "3.12"), ("2.20.5", "8.9.2.26", "2.3.0"), _CPP17),
    _torch("2.3.1", ("0.18.1", "2.3.1"), _121, "12.1", ("3.8", "3.12"), ("2.20.5", "8.9.2.26", "2.3.1"), _CPP17),
    _torch("2.4.0", ("0.19.0", "2.4.0"), _124, "12.1", ("3.8", "3.12"), ("2.20.5", "9.1.0.70", "3.0.0"), _CPP17),
    _torch("2.4.1", ("0.19.1", "2.4.1"), _124, "12.1", ("3.8", "3.12"), ("2.20.5", "9.1.0.70", "3.0.0"), _CPP17),
    _torch("2.5.0", ("0.20.0", "2.5.0"), _124, "12.4", ("3.9", "3.13"), ("2.21.5", "9.1.0.70", "3.1.0"), _CPP17),
    _torch("2.5.1", ("0.20.1", "2.5.1"), _124, "12.4", ("3.9", "3.13"), ("2.21.5", "9.1.0.70", "3.1.0"), _CPP17),
    _torch(
        "2.6.0",
        ("0.21.0", "2.6.0"),
        ("11.8", "12.4", "12.6"),
        "12.4",
        ("3.9", "3.13"),
        ("2.21.5", "9.1.0.70", "3.2.0"),
        _CPP17,
    ),
    _torch(
        "2.7.0",
        ("0.22.0", "2.7.0"),
        ("11.8", "12.6", "12.8"),
        "12.6",
        ("3.9", "3.13"),
        ("2.26.2", "9.5.1.17", "3.3.0"),
        _M228,
    ),
    _torch(
        "2.7.1",
        ("0.22.1", "2.7.1"),
        ("11.8", "12.6", "12.8"),
        "12.6",
        ("3.9", "3.13"),
        ("2.26.2", "9.5.1.17", "3.3.1"),
        _M228,
    ),
    _torch(
        "2.8.0",
        ("0.23.0", "2.8.0"),
        ("12.6", "12.8", "12.9"),
        "12.8",
        ("3.9", "3.13"),
        ("2.27.3", "9.10.2.21", "3.4.0"),
        _M228,
    ),
    _torch(
        "2.9.0",
        ("0.24.0", "2.9.0"),
        _LEGACY_130,
        "12.8",
        ("3.10", "3.14"),
        ("2.27.5", "9.10.2.21", "3.5.0"),
        _M228,
        more_builds=("12.9",),
    ),
    _torch(
        "2.9.1",
        ("0.24.1", "2.9.1"),
        _LEGACY_130,
        "12.8",
        ("3.10", "3.14"),
        ("2.27.5", "9.10.2.21", "3.5.1"),
        _M228,
        more_builds=("12.9",),
    ),
    _torch(
        "2.10.0",
        ("0.25.0", "2.10.0"),
        _LEGACY_130,
        "12.8",
        ("3.10", "3.14"),
        ("2.27.5", "9.10.2.21", "3.6.0"),
        _M228,
        more_builds=("12.9",),
    ),
    _torch(
        "2.11.0",
        ("0.26.0", "2.11.0"),
        _LEGACY_130,
        "13.0",
        ("3.10", "3.14"),
        ("2.28.9", "9.19.0.56", "3.6.0"),
        _M228,
        more_builds=("12.9",),
    ),
    _torch(
        "2.12.0",
        ("0.27.0", "2.11.0"),
        _LEGACY_132,
        "13.0",
        ("3.10", "3.14"),
        ("2.29.7", "9.20.0.48", "3.7.0"),
        _M228,
        note=_NO_AUDIO_PIN,
    ),
    _torch(
        "2.12.1",
        ("0.27.1", "2.11.0"),
        _LEGACY_132,
        "13.0",
        ("3.10", "3.14"),
        ("2.29.7", "9.20.0.48", "3.7.1"),
        _M228,
        note=_NO_AUDIO_PIN,
    ),
    _torch(
        "2.13.0",
        ("0.28.0", "2.11.0"),
        _LEGACY_132,
        "13.0",
        ("3.10", "3.14"),
        ("2.29.7", "9.20.0.48", "3.7.1"),
        _CPP20,
        more_builds=("12.9",),
        note=_NO_AUDIO_PIN,
    ),
    _torch(
        "2.14.0",
        ("0.29.0", "2.11.0"),
        _LEGACY_132,
        "13.0",
        ("3.10", "3.14"),
        ("2.30.7", "9.24.0.43", "3.8"),
        _CPP20,
        note=_NO_AUDIO_PIN,
    ),
    _torch(
        "2.14.1",
        ("0.29.1", "2.11.0"),
        _LEGACY_132,
        "13.0",
        ("3.10", "3.14"),
        ("2.30.7", "9.24.0.43", "3.8"),
        _CPP20,
        note=_NO_AUDIO_PIN + "; torchvision 0.29.1 pins torch>=2.14.0 only",
    ),
    _torch(
        "2.15.0",
        ("0.29.2", "2.11.0"),
        ("13.0", "13.2"),
        "13.2",
        ("3.11", "3.15"),
        ("2.30.7", "9.26.0.51", "3.9"),
        _CPP20,
        note=_NO_AUDIO_PIN
        + "; torchvision 0.29.2 pins torch>=2.14.0 only; CUDA builds: pytorch/pytorch#190385, 12.6 dropped",
    ),
)

# cuDNN and NCCL of builds other than PyPI's, as (torch minor, CUDA): (cudnn, nccl). _MATRIX; "" where it says nothing.
BUILD_LIBRARIES: Mapping[Tuple[str, str], Tuple[str, str]] = {
    ("2.0", "11.8"): ("8.7.0.84", ""),
    ("2.1", "11.8"): ("8.7.0.84", ""),
    ("2.2", "11.8"): ("8.7.0.84", ""),
    ("2.3", "11.8"): ("8.7.0.84", ""),
    ("2.4", "11.8"): ("9.1.0.70", ""),
    ("2.4", "12.4"): ("9.1.0.70", ""),
    ("2.5", "11.8"): ("9.1.0.70", ""),
    ("2.5", "12.1"): ("9.1.0.70", ""),
    ("2.6", "11.8"): ("9.1.0.70", ""),
    ("2.6", "12.6"): ("9.5.1.17", ""),
    ("2.7", "11.8"): ("9.1.0.70", ""),
    ("2.7", "12.8"): ("9.7.1.26", ""),
    ("2.8", "12.6"): ("9.10.2.21", ""),
    ("2.8", "12.9"): ("9.10.2.21", ""),
    ("2.9", "12.6"): ("9.10.2.21", ""),
    ("2.9", "13.0"): ("9.13.0.50", ""),
    ("2.10", "12.6"): ("9.10.2.21", "2.27.5"),
    ("2.10", "13.0"): ("9.15.1.9", "2.28.9"),
    ("2.11", "12.6"): ("9.10.2.21", "2.28.9"),
    ("2.11", "12.8"): ("9.17.1.4", "2.28.9"),
    ("2.12", "12.6"): ("9.10.2.21", "2.29.3"),
    ("2.12", "13.2"): ("9.20.0.48", "2.29.7"),
    ("2.13", "12.6"): ("9.10.2.21", "2.29.3"),
    ("2.13", "13.2"): ("9.20.0.48", "2.29.7"),
    ("2.14", "12.6"): ("9.10.2.21", "2.29.3"),
    ("2.14", "13.2"): ("9.24.0.43", "2.30.7"),
}


@dataclass(frozen=True)
class Kernels:
    """GPU code in the official wheels: of torch minors `first` to `last` for one CUDA. `+PTX` serves newer GPUs too."""

    first: str
    last: str
    cuda: str
    archs: str
    source: str


_CU13 = "7.5 8.0 8.6 9.0 10.0 12.0+PTX"
_BUILD_SCRIPT = "pytorch .ci/manywheel/build_cuda.sh"
_BUILDER = "pytorch/builder manywheel/build_cuda.sh; arch lists that the wheels report"
_CUDA_MATRIX = "pytorch RELEASE.md, CUDA support matrix"

KERNELS: Tuple[Kernels, ...] = (
    Kernels("1.13", "1.13", "11.6", "3.7 5.0 6.0 7.0 7.5 8.0 8.6", _BUILDER),
    Kernels("1.13", "2.0", "11.7", "3.7 5.0 6.0 7.0 7.5 8.0 8.6", _BUILDER),
    Kernels("2.0", "2.7", "11.8", "3.7 5.0 6.0 7.0 7.5 8.0 8.6 9.0", _BUILDER),
    Kernels("2.1", "2.5", "12.1", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", _BUILDER),
    Kernels("2.4", "2.6", "12.4", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", _BUILDER + "; pytorch/pytorch#167244"),
    Kernels("2.6", "2.14", "12.6", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", f"{_BUILD_SCRIPT}; {_CUDA_MATRIX}"),
    Kernels("2.7", "2.7", "12.8", "7.5 8.0 8.6 9.0 10.0 12.0+PTX", "moi90/pytorch_compute_capabilities table"),
    Kernels("2.8", "2.10", "12.8", "7.0 7.5 8.0 8.6 9.0 10.0 12.0", f"{_BUILD_SCRIPT}; pytorch/pytorch#157517"),
    Kernels("2.11", "2.11", "12.8", "7.5 8.0 8.6 9.0 10.0 12.0", f"{_CUDA_MATRIX}; pytorch/pytorch#172352"),
    Kernels("2.8", "2.10", "12.9", "7.0 7.5 8.0 8.6 9.0 10.0 12.0+PTX", _BUILD_SCRIPT),
    Kernels("2.11", "2.13", "12.9", "7.5 8.0 8.6 9.0 10.0 12.0", "taken as 12.8 of torch 2.11: not documented"),
    Kernels("2.9", "2.15", "13.0", _CU13, f"{_CUDA_MATRIX}; pytorch/pytorch#190385"),
    Kernels("2.12", "2.15", "13.2", _CU13, f"{_CUDA_MATRIX}; pytorch/pytorch#190385"),
)


# conda-forge's builds of each release, which PyTorch's own channel ended with 2.5.
# Source: conda-forge/pytorch-cpu-feedstock, .ci_support and recipe/build.sh over its history, linux-64.
CONDA_BUILDS: Mapping[str, Tuple[str, ...]] = {
    "2.5.1": ("12.6",),
    "2.6.0": ("12.6",),
    "2.7.0": ("12.6",),
    "2.7.1": ("12.6", "12.9"),
    "2.8.0": ("12.9",),
    "2.9.0": ("12.9",),
    "2.9.1": ("12.9",),
    "2.10.0": ("12.9", "13.0"),
    "2.11.0": ("12.9", "13.0"),
    "2.12.0": ("12.9", "13.0"),
    "2.12.1": ("12.9", "13.0"),
    "2.13.0": ("12.9", "13.0"),
}
_RECIPE = "conda-forge/pytorch-cpu-feedstock, recipe/build.sh"
CONDA_KERNELS: Tuple[Kernels, ...] = (
    Kernels("2.5", "2.6", "12.6", "5.0 6.0 6.1 7.0 7.5 8.0 8.6 8.9 9.0+PTX", _RECIPE),
    Kernels("2.7", "2.7", "12.6", "5.0 6.0 7.0 7.5 8.0 8.6 9.0+PTX", f"{_RECIPE}, what its revisions have in common"),
    Kernels("2.7", "2.13", "12.9", "5.0 6.0 7.0 7.5 8.0 8.6 9.0 10.0 12.0+PTX", _RECIPE),
    Kernels("2.10", "2.13", "13.0", "7.5 8.0 8.6 9.0 10.0 11.0 12.0+PTX", _RECIPE),
)


@dataclass(frozen=True)
class Architecture:
    """A compute capability, and who serves it: CUDA toolkits `cuda_first` to `cuda_last`, driver branches likewise.

    None for the last one: still served. `modules`: the kernel modules that drive it, `open` or `proprietary`.
    """

    capability: str
    family: str
    cuda_first: str
    cuda_last: Optional[str]
    driver_first: int
    driver_last: Optional[int]
    modules: Tuple[str, ...]
    source: str


_BOTH = ("open", "proprietary")
_OFF = "CUDA 13.0 release notes: compilation and libraries for Maxwell to Volta end with CUDA 12"
_R580 = "NVIDIA Unix deprecation schedule: R580 is the last branch for Maxwell, Pascal and Volta, R470 for Kepler"
_NVCC = "nvcc --list-gpu-arch of the releases; release notes 'new architectures'"
_OPEN = "driver installation guide, kernel modules: open from Turing on, open only from Blackwell on"

ARCHITECTURES: Tuple[Architecture, ...] = (
    Architecture("3.0", "Kepler", "6.0", "10.2", 319, 470, ("proprietary",), f"{_NVCC}; {_R580}"),
    Architecture("3.5", "Kepler", "6.0", "11.8", 319, 470, ("proprietary",), f"{_NVCC}; {_R580}"),
    Architecture("3.7", "Kepler", "6.5", "11.8", 340, 470, ("proprietary",), f"{_NVCC}; {_R580}"),
    Architecture("5.0", "Maxwell", "6.5", "12.9", 340, 580, ("proprietary",), f"{_OFF}; {_R580}"),
    Architecture("5.2", "Maxwell", "6.5", "12.9", 346, 580, ("proprietary",), f"{_OFF}; {_R580}"),
    Architecture("6.0", "Pascal", "8.0", "12.9", 367, 580, ("proprietary",), f"{_OFF}; {_R580}"),
    Architecture("6.1", "Pascal", "8.0", "12.9", 367, 580, ("proprietary",), f"{_OFF}; {_R580}"),
    Architecture("7.0", "Volta", "9.0", "12.9", 384, 580, ("proprietary",), f"{_OFF}; {_R580}"),
    Architecture("7.5", "Turing", "10.0", None, 410, None, _BOTH, f"{_NVCC}; {_OPEN}"),
    Architecture("8.0", "Ampere", "11.0", None, 450, None, _BOTH, f"{_NVCC}; {_OPEN}"),
    Architecture("8.6", "Ampere", "11.1", None, 455, None, _BOTH, f"{_NVCC}; {_OPEN}"),
    Architecture("8.7", "Ampere", "11.4", None, 470, None, _BOTH, f"{_NVCC}; {_OPEN}"),
    Architecture("8.9", "Ada Lovelace", "11.8", None, 520, None, _BOTH, f"{_NVCC}; {_OPEN}"),
    Architecture("9.0", "Hopper", "11.8", None, 520, None, _BOTH, f"{_NVCC}; {_OPEN}"),
    Architecture("10.0", "Blackwell", "12.8", None, 570, None, ("open",), f"{_NVCC}; {_OPEN}"),
    Architecture("10.3", "Blackwell", "12.9", None, 575, None, ("open",), f"{_NVCC}; {_OPEN}"),
    Architecture("11.0", "Blackwell", "13.0", None, 580, None, ("open",), f"{_NVCC}; {_OPEN}"),
    Architecture("12.0", "Blackwell", "12.8", None, 570, None, ("open",), f"{_NVCC}; {_OPEN}"),
    Architecture("12.1", "Blackwell", "12.9", None, 580, None, ("open",), f"{_NVCC}; {_OPEN}"),
)

# Model names as the driver prints them -> compute capability. The first match wins, so the narrower pattern stands
# first. Source: NVIDIA's list of CUDA GPUs.
MODELS: Tuple[Tuple[str, str], ...] = (
    (r"\bG?B300\b", "10.3"),
    (r"\bG?B[12]00\b", "10.0"),
    (r"\bGB10\b", "12.1"),
    (r"\bThor\b", "11.0"),
    (r"\b(?:Orin|AGX Orin)\b", "8.7"),
    (r"\bXavier\b", "7.2"),
    (r"\bBlackwell\b", "12.0"),
    (r"\bRTX 50[5-9]0\b", "12.0"),
    (r"\b(?:GH200|H200|H100|H800|H20|GH100)\b", "9.0"),
    (r"\bAda\b|\bRTX 40[5-9]0\b|\bL40[SG]?\b|\bL4\b|\bL20\b|\bL2\b", "8.9"),
    (r"\b(?:A100[A-Z]?|A800|A30X?|PG506|PG509|CMP 170HX|DRIVE-PG199-PROD)\b", "8.0"),
    (r"\bRTX A\d{3,4}\b|\bA(?:40|16|10[GM]?|2|5500|6000|5000|4500|4000|2000)\b|\bCMP [79]0HX\b", "8.6"),
    (r"\bRTX 30[5-9]0\b|\bRTX 2050\b|\bMX570\b", "8.6"),
    (r"\bRTX 20[678]0\b|\bGTX 16[356]0\b|\bTITAN RTX\b|\bQuadro RTX\b|\bRTX [34568]000\b|\bTesla T4G?\b|\bT4\b", "7.5"),
    (r"\bT(?:400|550|600|1000|1200|500)\b|\bT40\b|\bT10\b|\bMX[45]50\b|\bCMP [345]0HX\b", "7.5"),
    (r"\bV100S?\b|\bTITAN V\b|\bGV100\b|\bPG503\b", "7.0"),
    (r"\bP100\b|\bGP100\b", "6.0"),
    (r"\bP(?:40|4|6|10)\b|\bGTX 10[1-8]0\b|\bGT 10[13]0\b|\bMX(?:1[135]0|2[35]0|3[35]0)\b|\bTITAN Xp\b", "6.1"),
    (r"\bTITAN X \(Pascal\)|\bQuadro P\d{3,4}\b|\bP106\b|\bP104\b|\bP102\b", "6.1"),
    (r"\bGTX TITAN X\b|\bGTX 9[5-8]0\b|\bM(?:40|60|4|6)\b|\bQuadro M[456]000\b", "5.2"),
    (r"\bM10\b|\bGTX 7(?:45|50)\b|\bQuadro (?:K(?:620|1200|2200)|M[12]000M|M\d{3}M)\b|\b9[234]0MX?\b", "5.0"),
    (r"\bK80\b", "3.7"),
    (r"\bK40[cmst]*\b|\bK20[Xcms]*\b|\bGTX TITAN\b|\bGTX 780\b|\bQuadro K(?:5200|6000)\b", "3.5"),
    (r"\bK10\b|\bK520\b|\bGTX 6[5-9]0\b|\bGTX 7[67]0\b|\bQuadro K\d{4}\b", "3.0"),
)

# The family alone, where neither capability nor model is known: the member whose kernels run on the whole family, or,
# for Blackwell, what a data centre holds.
FAMILIES: Mapping[str, str] = {
    "kepler": "3.5",
    "maxwell": "5.0",
    "pascal": "6.0",
    "volta": "7.0",
    "turing": "7.5",
    "ampere": "8.0",
    "ada": "8.9",
    "ada lovelace": "8.9",
    "hopper": "9.0",
    "blackwell": "10.0",
}

# Sets by name for `torchfleet_stack`. Each satisfies every table above (a test holds it to that); README says which
# of them have been run, and on what. A driver of one number is a branch.
SETS: Mapping[str, Mapping[str, str]] = {
    "torch-2.15-cu132": {"driver": "595", "cuda": "13.2", "torch": "2.15.0", "python": "3.12", "gcc": "13"},
    "torch-2.13-cu130": {"driver": "580", "cuda": "13.0", "torch": "2.13.0", "python": "3.12", "gcc": "13"},
    "torch-2.13-cu126": {"driver": "580", "cuda": "12.6", "torch": "2.13.0", "python": "3.12", "gcc": "12"},
    "torch-2.10-cu128": {"driver": "580", "cuda": "12.8", "torch": "2.10.0", "python": "3.12", "gcc": "13"},
    "torch-2.10-cu126": {"driver": "580", "cuda": "12.6", "torch": "2.10.0", "python": "3.12", "gcc": "12"},
    "torch-2.7-cu126": {"driver": "570", "cuda": "12.6", "torch": "2.7.1", "python": "3.11", "gcc": "12"},
    "torch-2.7-cu118": {"driver": "535", "cuda": "11.8", "torch": "2.7.1", "python": "3.11", "gcc": "11"},
    "torch-2.5-cu121": {"driver": "535", "cuda": "12.1", "torch": "2.5.1", "python": "3.11", "gcc": "11"},
    "torch-2.1-cu118": {"driver": "470", "cuda": "11.8", "torch": "2.1.2", "python": "3.10", "gcc": "11"},
    "torch-2.13-cpu": {"cuda": "cpu", "torch": "2.13.0", "python": "3.12", "gcc": "13"},
}

# Driver branches that NVIDIA keeps for long, fit to be proposed. Source: data center driver documentation, lifecycle.
PRODUCTION_BRANCHES: Tuple[int, ...] = (470, 535, 550, 570, 580, 595)

# What torchfleet_stack may hold, and what each key says.
STACK_KEYS: Dict[str, str] = {
    "set": "name of a set that the other keys override",
    "driver": "NVIDIA driver to install, a branch (580) or a version; null keeps what a node has",
    "cuda": "CUDA toolkit (12.8), or cpu for a stack without one; null installs none",
    "torch": "torch release, a minor (2.10) for its newest patch, or null for the newest that fits",
    "torch_source": "where torch comes from, pip or conda; null is pip",
    "torch_cuda": "CUDA that torch is built for; null follows cuda, or takes the newest that fits",
    "torchvision": "null takes the release that belongs to torch",
    "torchaudio": "null takes the release that belongs to torch",
    "python": "Python minor of the environment; null takes the node's",
    "gcc": "GCC major for extension builds; null takes one that suits cuda and torch",
    "nccl": "NCCL package beside the one that torch bundles; null installs none",
    "cudnn": "cuDNN package beside the one that torch bundles; null installs none",
    "deepspeed": "DeepSpeed release; null takes the newest",
    "accelerate": "accelerate release; null takes the newest",
    "colossalai": "Colossal-AI release; null takes the newest",
    "allow_unlisted": "true takes torch and CUDA releases that the tables do not know yet, unchecked",
}
