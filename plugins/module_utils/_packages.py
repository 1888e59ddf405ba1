# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What the software stack's packages and repositories are called on each distribution, and which compiler to take.

Names only: nothing here knows which versions fit together (see `_compat`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_torch import GccBounds
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import (
    parse_cuda,
    parse_driver,
    parse_version,
)

VENDOR_URL = "https://developer.download.nvidia.com/compute/cuda/repos"
EPEL_URL = "https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm"
# From this branch on the vendor's Debian and Ubuntu repositories have no packages per branch: a pin chooses it. Before,
# the packages of a branch want others in its release or a newer one, and would bring the newest branch along.
# Source: NVIDIA driver installation guide, version locking, and recent updates.
PINNED_FROM = 590
# What belongs to a driver and has its version. A pattern that takes in more does no harm: it holds for that version.
_DRIVER_PARTS = {"apt": ("*nvidia*", "cuda-drivers*", "libcuda*", "libnv*", "libxnvctrl*"), "dnf": ("*nvidia*",)}


@dataclass(frozen=True)
class Platform:
    """A distribution release.

    `key` is also the name of the vendor's repository. `packages`: purpose -> names, with {branch}, {open}, {cuda}
    (`12-8`), {cuda_major}, {kernel}, {python} to fill in. `repositories`: purpose -> what must be switched on for it
    (components of apt, `epel`, `crb`). `gccs`: GCC majors to be had, the system's own first. `pythons`: minors to
    be had, the preferred first. `driver_branches`: those of `driver_distribution`.
    """

    key: str
    family: str
    gccs: Tuple[int, ...]
    pythons: Tuple[str, ...]
    packages: Mapping[str, Tuple[str, ...]]
    repositories: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    driver_branches: Tuple[int, ...] = ()

    @property
    def manager(self) -> str:
        return "apt" if self.family == "Debian" else "dnf"


# What every role may ask for. A platform has a row for each, empty where there is no such package.
PURPOSES: Tuple[str, ...] = (
    "driver_distribution",
    "kernel_headers",
    "dkms",
    "cuda_toolkit",
    "cudnn",
    "cudnn8",
    "nccl",
    "build",
    "python",
    "pdsh",
    "libaio",
    "ninja",
    "time",
)

_APT: Dict[str, Tuple[str, ...]] = {
    "kernel_headers": ("linux-headers-{kernel}",),
    "dkms": ("dkms",),
    "cuda_toolkit": ("cuda-toolkit-{cuda}",),
    "cudnn": ("libcudnn9-cuda-{cuda_major}", "libcudnn9-dev-cuda-{cuda_major}"),
    "cudnn8": ("libcudnn8", "libcudnn8-dev"),
    "nccl": ("libnccl2", "libnccl-dev"),
    "build": ("build-essential",),
    "python": ("python3", "python3-venv", "python3-pip", "python3-dev"),
    "pdsh": ("pdsh",),
    "libaio": ("libaio-dev",),
    "ninja": ("ninja-build",),
    "time": ("chrony",),
}
_DNF: Dict[str, Tuple[str, ...]] = {
    "driver_distribution": (),
    "kernel_headers": ("kernel-devel={kernel}", "kernel-headers"),
    "dkms": ("dkms",),
    "cuda_toolkit": ("cuda-toolkit-{cuda}",),
    "cudnn": ("libcudnn9-cuda-{cuda_major}", "libcudnn9-devel-cuda-{cuda_major}"),
    "cudnn8": ("libcudnn8", "libcudnn8-devel"),
    "nccl": ("libnccl", "libnccl-devel"),
    "build": ("gcc", "gcc-c++", "make"),
    "python": ("python{python}", "python{python}-pip", "python{python}-devel"),
    "pdsh": ("pdsh", "pdsh-rcmd-ssh"),
    "libaio": ("libaio-devel",),
    "ninja": ("ninja-build",),
    "time": ("chrony",),
}
# RHEL 10 has one Python, under its plain name.
_DNF10 = {**_DNF, "python": ("python3", "python3-pip", "python3-devel")}
_EL_REPOSITORIES = {"dkms": ("epel",), "pdsh": ("epel",), "ninja": ("crb",)}
_DEBIAN_DRIVER = ("nvidia-driver", "nvidia-smi", "nvidia-persistenced", "firmware-misc-nonfree")
_UBUNTU_DRIVER = ("nvidia-headless-{branch}-server{open}", "nvidia-utils-{branch}-server")


def _debian(key: str, gccs: Tuple[int, ...], python: str, components: Tuple[str, ...], branch: int) -> Platform:
    packages = {**_APT, "driver_distribution": _DEBIAN_DRIVER}
    return Platform(key, "Debian", gccs, (python,), packages, {"driver_distribution": components}, (branch,))


def _ubuntu(key: str, gccs: Tuple[int, ...], python: str, branches: Tuple[int, ...]) -> Platform:
    packages = {**_APT, "driver_distribution": _UBUNTU_DRIVER}
    universe = dict.fromkeys(("pdsh", "ninja"), ("universe",))
    components = {"driver_distribution": ("restricted",), **universe}
    return Platform(key, "Debian", gccs, (python,), packages, components, branches)


PLATFORMS: Mapping[str, Platform] = {
    one.key: one
    for one in (
        # packages.debian.org of each release; driver branches likewise.
        _debian("debian11", (10, 9), "3.9", ("contrib", "non-free"), 470),
        _debian("debian12", (12, 11), "3.11", ("contrib", "non-free", "non-free-firmware"), 535),
        _debian("debian13", (14, 13, 12), "3.13", ("contrib", "non-free", "non-free-firmware"), 550),
        # packages.ubuntu.com of each release; branches: those of nvidia-graphics-drivers-*-server.
        _ubuntu("ubuntu2204", (11, 12, 10, 9), "3.10", (470, 535, 550, 570, 580)),
        _ubuntu("ubuntu2404", (13, 14, 12, 11, 10, 9), "3.12", (535, 550, 570, 580)),
        # Application streams life cycle of RHEL 8, 9 and 10: gcc-toolset-N and pythonX.Y.
        Platform("rhel8", "RedHat", (8, 14, 13, 12, 11, 10, 9), ("3.12", "3.11", "3.9"), _DNF, _EL_REPOSITORIES),
        Platform("rhel9", "RedHat", (11, 14, 13, 12), ("3.12", "3.11"), _DNF, _EL_REPOSITORIES),
        Platform(
            "rhel10",
            "RedHat",
            (14,),
            ("3.12",),
            _DNF10,
            _EL_REPOSITORIES,
        ),
    )
}
_EL = ("redhat", "rhel", "rocky", "almalinux", "centos", "oraclelinux", "ol")


@dataclass(frozen=True)
class VendorRepository:
    """NVIDIA's network repository: for apt the package that brings source and key, for dnf the repository file."""

    url: str
    setup: str
    kind: str


@dataclass(frozen=True)
class DriverPackages:
    """What to install for a driver. `stream` is the dnf module stream to enable.

    `parts` are patterns of all that comes with it, and `version` what they are to be kept to; empty where nothing is.
    """

    packages: Tuple[str, ...]
    stream: str = ""
    parts: Tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True)
class Compiler:
    """A GCC to build extensions with, by absolute path. `packages` is empty for none to install."""

    major: int
    packages: Tuple[str, ...]
    cc: str
    cxx: str


class PackageError(ValueError):
    """There is no such package on this platform; the message says what there is."""


def platform_of(distribution: str, version: Any) -> Optional[Platform]:
    """The platform of `ansible_facts['distribution']` and its version (`12`, `22.04`, `9.4`); None if not known."""
    name, parsed = str(distribution).strip().lower(), parse_version(version)
    if parsed is None:
        return None
    major = parsed.release[0]
    if name == "ubuntu":
        minor = parsed.release[1] if len(parsed.release) > 1 else 4
        return PLATFORMS.get(f"ubuntu{major}{minor:02d}")
    return PLATFORMS.get(f"rhel{major}" if name in _EL else f"{name}{major}")


def vendor_repository(platform: Platform, machine: str = "x86_64") -> VendorRepository:
    """Where NVIDIA's packages for the platform are. `machine` is `uname -m`; Arm servers have one of their own."""
    url = f"{VENDOR_URL}/{platform.key}/{'sbsa' if machine in ('aarch64', 'arm64') else machine}"
    if platform.manager == "apt":
        return VendorRepository(url, f"{url}/cuda-keyring_1.1-1_all.deb", "apt")
    return VendorRepository(url, f"{url}/cuda-{platform.key}.repo", "dnf")


def epel_release(platform: Platform) -> str:
    """The package that switches EPEL on; empty on a platform that has no use for it."""
    return EPEL_URL.format(major=platform.key[len("rhel") :]) if platform.manager == "dnf" else ""


def packages_for(platform: Platform, purpose: str, **values: Any) -> Tuple[str, ...]:
    """The packages for a purpose, filled in from `driver`, `cuda`, `kernel` and `python` as far as it asks for them.

    `cudnn` and `nccl` are versions: the packages then are of that one, as `name=version`. Raises PackageError where the
    platform has none, or a value is missing.
    """
    if purpose == "cudnn" and values.get("cudnn"):
        purpose = _cudnn_purpose(values["cudnn"])
    names = platform.packages[purpose]
    if not names:
        raise PackageError(f"{platform.key} has no package for {purpose} of its own: take the vendor's repository")
    cuda, driver = parse_cuda(values.get("cuda")), parse_driver(values.get("driver"))
    known = {
        "cuda": cuda.minor.replace(".", "-") if cuda and len(cuda.release) > 1 else None,
        "cuda_major": str(cuda.release[0]) if cuda else None,
        "branch": str(driver.release[0]) if driver else None,
        "kernel": _kernel(platform, values.get("kernel")),
        "python": values.get("python") or platform.pythons[0],
        "open": "-open" if values.get("modules") == "open" else "",
    }
    filled = []
    for name in names:
        missing = [key for key, value in known.items() if value is None and "{" + key + "}" in name]
        if missing:
            raise PackageError(f"the package {name} of {platform.key} needs a value for {', '.join(missing)}")
        filled.append(name.format(**known))
    pin = _library_pin(platform, purpose, known["cuda_major"], values)
    return tuple(name + pin for name in filled)


def _kernel(platform: Platform, release: Any) -> Any:
    """`uname -r` as the packages write it: the RedHat family's has the machine at its end."""
    return re.sub(r"\.(x86_64|aarch64)$", "", str(release)) if release and platform.manager == "dnf" else release


def _cudnn_purpose(version: Any) -> str:
    """cuDNN 8 and 9 are packages of other names, and a program is built for one of them."""
    parsed = parse_version(version)
    purpose = {8: "cudnn8", 9: "cudnn"}.get(parsed.release[0]) if parsed else None
    if purpose is None:
        raise PackageError(f"cuDNN {version} is not known here, but 8 and 9 are")
    return purpose


def _library_pin(platform: Platform, purpose: str, cuda_major: Optional[str], values: Mapping[str, Any]) -> str:
    """`=version` of cuDNN or NCCL where one is asked for; with a release of its own (2.27.5-1+cuda12.9) as it is.

    cuDNN 9 has the CUDA in its name; cuDNN 8 and NCCL have it in their version (8.9.7.29-1+cuda12.2, on the RedHat
    family 8.9.7.29-1.cuda12.2). Source: NVIDIA's CUDA container images.
    """
    key, parts = {"cudnn": ("cudnn", 2), "cudnn8": ("cudnn", 4), "nccl": ("nccl", 3)}.get(purpose, ("", 0))
    text = str(values.get(key) or "").strip()
    if not key or not text:
        return ""
    parsed = parse_version(text.partition("-")[0])
    if parsed is None or len(parsed.release) < parts:
        like = {"cudnn": "9.10.2.21", "cudnn8": "8.9.7.29", "nccl": "2.27.5"}[purpose]
        raise PackageError(f"{key} {text} is not a full version: write it as {like}")
    if "-" in text:
        return f"={text}"
    if purpose == "cudnn":
        return f"={text}-*" if len(parsed.release) > 3 else f"={text}.*"
    if cuda_major is None:
        raise PackageError(f"the packages of {key} {text} need a value for cuda")
    return f"={text}-1{'.' if purpose == 'cudnn8' and platform.manager == 'dnf' else '+'}cuda{cuda_major}.*"


def vendor_driver(platform: Platform, branch: Any, modules: str = "open") -> DriverPackages:
    """The packages of NVIDIA's repository for a driver branch or version, with what keeps it there.

    modules: `open` or `proprietary`; see `_compat_data.ARCHITECTURES` for which card takes which.
    """
    parsed = parse_driver(branch)
    if parsed is None:
        raise PackageError(f"driver {branch!r} is not a branch: write 580")
    number = parsed.release[0]
    meta = "nvidia-open" if modules == "open" else "cuda-drivers"
    full = len(parsed.release) > 1
    version = f"{parsed.text}-*" if full else f"{number}.*"
    parts = _DRIVER_PARTS[platform.manager]
    if platform.manager == "apt" and number < PINNED_FROM:
        name = f"{meta}-{number}"
        return DriverPackages((f"{name}={version}" if full else name,), "", parts, version)
    if platform.key in ("rhel8", "rhel9"):
        stream = f"nvidia-driver:{number}-{'open' if modules == 'open' else 'dkms'}"
        return (
            DriverPackages((f"{meta}={version}",), stream, parts, version) if full else DriverPackages((meta,), stream)
        )
    return DriverPackages((f"{meta}={version}",), "", parts, version)


def fabric_manager(platform: Platform, driver: Any) -> Tuple[str, ...]:
    """The fabric manager of exactly this driver, for the package manager. Its version must equal the driver's."""
    parsed = parse_driver(driver)
    if parsed is None or len(parsed.release) < 2:
        raise PackageError(
            f"driver {driver!r} is not a full version, and the node has NVSwitch: fabric manager has to match it to "
            "the last digit. Name it in full in torchfleet_stack.driver, or set nvidia_driver_nvswitch to false"
        )
    number = parsed.release[0]
    if platform.manager == "apt":
        name = "nvidia-fabricmanager" if number >= PINNED_FROM else f"nvidia-fabricmanager-{number}"
    else:
        # The packaging templates call it nvidia-fabric-manager; releases from 590 on write the name as one word.
        name = "nvidia-fabricmanager" if number >= PINNED_FROM else "nvidia-fabric-manager"
    return (f"{name}={parsed.text}-*",)


def compiler_for(platform: Platform, bounds: Optional[GccBounds]) -> Optional[Compiler]:
    """The system's own GCC if it is within the bounds, else the newest of the distribution that is; None if none is."""
    own = platform.gccs[0]
    fit = [major for major in platform.gccs if bounds is None or bounds.allows(major)]
    if not fit:
        return None
    return _compiler(platform, own if own in fit else max(fit))


def _compiler(platform: Platform, major: int) -> Compiler:
    """Packages and paths of a major; the system's own is found under its own name, and no other takes its place."""
    if platform.manager == "apt":
        return Compiler(major, (f"gcc-{major}", f"g++-{major}"), f"/usr/bin/gcc-{major}", f"/usr/bin/g++-{major}")
    if major == platform.gccs[0]:
        return Compiler(major, ("gcc", "gcc-c++"), "/usr/bin/gcc", "/usr/bin/g++")
    root = f"/opt/rh/gcc-toolset-{major}/root/usr/bin"
    names = (f"gcc-toolset-{major}-gcc", f"gcc-toolset-{major}-gcc-c++")
    return Compiler(major, names, f"{root}/gcc", f"{root}/g++")


_EXACT_DEPENDENCY = re.compile(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*\(=\s*([^)\s]+)\)\s*(?=,|$)")

# --- asking and telling the package manager ---------------------------------------------------------------------------


def installed_apt(status: str) -> Dict[str, str]:
    """From `dpkg-query -W -f '${Package}\\t${Version}\\t${db:Status-Abbrev}\\n'`: what is installed, by version."""
    found = {}
    for line in status.splitlines():
        name, _tab, rest = line.partition("\t")
        version, _tab, state = rest.partition("\t")
        # The second letter is what the package is; the first, what it is to be (a held one: h).
        if len(state) > 1 and state[1] == "i":
            found[name] = version
    return found


def installed_rpm(listing: str) -> Dict[str, str]:
    """From `rpm -q --qf '%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n'`; what is not installed is told in words."""
    found = {}
    for line in listing.splitlines():
        name, tab, version = line.partition("\t")
        if tab:
            found[name] = version[2:] if version.startswith("0:") else version
    return found


def names_for_rpm(wanted: Sequence[str]) -> Tuple[str, ...]:
    """What to ask `rpm -q` for: of a package in several versions, as a kernel's, the one that is wanted."""
    return tuple(one.replace("=", "-", 1) if not one.endswith("*") else split_name(one)[0] for one in wanted)


def apt_preferences(packages: Sequence[str], version: str) -> str:
    """What keeps packages to a version, also where that is an older one than the one there."""
    return (
        "# Written by torchfleet.cluster; the next provision overwrites it.\n"
        f"Package: {' '.join(packages)}\nPin: version {version}\nPin-Priority: 1001\n"
    )


def lock_patterns(packages: Sequence[str], version: str) -> Tuple[str, ...]:
    """Patterns of dnf's locks on any version of that shape (`580.95.05-*`: any with three digits at its begin)."""
    shape = re.sub(r"\d", "[0-9]", version.partition(".")[0])
    return tuple(f"{one}-*{shape}.*" for one in packages)


def split_name(wanted: str) -> Tuple[str, str]:
    """Name and version of `name=version`; the version is empty where none is asked for, and may end in `*`."""
    name, _equals, version = wanted.partition("=")
    return name, version


def version_matches(wanted: str, found: Optional[str]) -> bool:
    """Whether an installed version is the wanted one: exact, or by a glob's prefix, with or without the epoch."""
    if found is None:
        return False
    if not wanted:
        return True
    for version in (found, found.partition(":")[2] or found):
        if version == wanted or (wanted.endswith("*") and version.startswith(wanted[:-1])):
            return True
    return False


def missing_packages(wanted: Sequence[str], installed: Mapping[str, str]) -> Tuple[str, ...]:
    """Those of `name` and `name=version` that are not met."""
    return tuple(one for one in wanted if not version_matches(split_name(one)[1], installed.get(split_name(one)[0])))


def offered_apt(madison: str) -> Dict[str, Tuple[str, ...]]:
    """From `apt-cache madison`: the versions of each package that the repositories have, the newest first."""
    found: Dict[str, Dict[str, None]] = {}
    for line in madison.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and not parts[2].endswith("Sources"):
            found.setdefault(parts[0], {})[parts[1]] = None
    return {name: tuple(versions) for name, versions in found.items()}


def offered_dnf(listing: str) -> Dict[str, Tuple[str, ...]]:
    """From `dnf repoquery --qf '%{name}\t%{evr}\n'`, which begins with the oldest: as offered_apt."""
    found: Dict[str, Dict[str, None]] = {}
    for line in reversed(listing.splitlines()):
        name, tab, version = line.strip().partition("\t")
        if tab:
            found.setdefault(name, {})[version[2:] if version.startswith("0:") else version] = None
    return {name: tuple(versions) for name, versions in found.items()}


def refused_versions(wanted: Sequence[str], offered: Mapping[str, Sequence[str]]) -> str:
    """What the repositories lack of `name=version`, and what they have in its place; empty where all is there."""
    problems = []
    for name, version in map(split_name, wanted):
        there = offered.get(name, ())
        if version and not any(version_matches(version, one) for one in there):
            has = f"they have {', '.join(there[:5])}{' and older' if there[5:] else ''}" if there else "nor any other"
            problems.append(f"the repositories have no {name} {version}, {has}")
    return "; ".join(problems)


def newest_match(version: str, there: Sequence[str]) -> str:
    """The version that a package manager takes for one that may end in `*`; `there` begins with the newest."""
    return next((one for one in there if version_matches(version, one)), version)


def exact_dependencies(show: str) -> Tuple[str, ...]:
    """From `apt-cache show`: `name=version` of what is wanted in exactly one version, which apt does not look for."""
    found: Dict[str, None] = {}
    for line in show.splitlines():
        field_name, _colon, value = line.partition(":")
        if field_name in ("Depends", "Pre-Depends"):
            found.update(dict.fromkeys(f"{a}={b}" for a, b in _EXACT_DEPENDENCY.findall(value)))
    return tuple(found)


def repository_commands(platform: Platform, needs: Iterable[str]) -> Tuple[Tuple[str, ...], ...]:
    """What switches on, on the RedHat family, the repositories that packages need: `epel`, `crb`."""
    if platform.manager != "dnf":
        return ()
    commands: List[Tuple[str, ...]] = []
    for need in dict.fromkeys(needs):
        if need == "epel":
            commands.append(("dnf", "-y", "install", epel_release(platform)))
        elif need == "crb":
            name = "powertools" if platform.key == "rhel8" else "crb"
            commands += [
                ("dnf", "-y", "install", "dnf-plugins-core"),
                ("dnf", "config-manager", "--set-enabled", name),
            ]
    return tuple(commands)


def choose_compiler(
    platform: Platform, wanted: Any, bounds: Optional[GccBounds], strict: bool = False
) -> Tuple[Optional[Compiler], str]:
    """The compiler to install and why; or none, and why not.

    `wanted` is a GCC major or None. One that the platform does not have is replaced by one that suits, unless `strict`.
    """
    parsed = parse_version(wanted)
    limits = f"{bounds}" if bounds else "any"
    there = ", ".join(str(major) for major in sorted(platform.gccs))
    if parsed is not None:
        major = parsed.release[0]
        if bounds is not None and not bounds.allows(major):
            return None, f"GCC {major} does not suit: wanted {limits} ({'; '.join(map(str, bounds.reasons))})"
        if major in platform.gccs:
            return _compiler(platform, major), f"GCC {major}, as asked for"
        if strict:
            return None, f"{platform.key} has no GCC {major}: it has {there}"
    found = compiler_for(platform, bounds)
    if found is None:
        return None, f"{platform.key} has GCC {there}, and {limits} is wanted: take another torchfleet_stack.cuda"
    instead = f", as {platform.key} has no GCC {parsed.release[0]}" if parsed is not None else ""
    return found, f"GCC {found.major}, which suits ({limits}){instead}"
