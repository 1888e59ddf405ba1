# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What is to be done about a node's NVIDIA driver: what is there, and what is wanted, in; a plan out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_torch import architecture_of, gpu_capability
from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import (
    DriverPackages,
    PackageError,
    Platform,
    fabric_manager,
    packages_for,
    vendor_driver,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import parse_driver

METHODS = ("repository", "distribution", "run")


@dataclass(frozen=True)
class Plan:
    """`action`: `none` (nothing to drive), `keep`, `install`, `reboot` (installed, and not what runs). `reason` why."""

    action: str
    reason: str


def plan(gpu: Mapping[str, Any], wanted: Any, force: bool = False) -> Plan:
    """By the facts of gpu_facts. `wanted` is a branch (580) or a version, None for any. `force`: also without a GPU."""
    there = len(gpu.get("pci_gpus") or gpu.get("gpus") or ())
    status, version = str(gpu.get("status") or ""), gpu.get("driver_version")
    if not there and not force:
        return Plan("none", "there is no NVIDIA GPU")
    if status == "library_mismatch":
        return Plan("reboot", "the driver was upgraded and its kernel module is still the old one")
    if status in ("not_installed", "library_missing") or not version:
        return Plan("install", str(gpu.get("reason") or "there is no driver"))
    have, want = parse_driver(version), parse_driver(wanted)
    if want is None or have is None or want.covers(have) or want.same(have):
        return Plan("keep", f"driver {version} is there" + (f", {wanted} is wanted" if wanted else ""))
    return Plan("install", f"driver {version} is there, {wanted} is wanted")


def kernel_modules(gpus: Sequence[Mapping[str, Any]], wanted: str = "auto") -> Tuple[str, str]:
    """`open` or `proprietary` for all the cards of a node, and what is wrong with that. Unknown cards take open.

    From Blackwell on there are open modules alone, before Turing proprietary ones alone.
    """
    need_open: List[str] = []
    need_closed: List[str] = []
    for gpu in gpus:
        model = str(gpu.get("model") or "a GPU")
        capability = gpu_capability(model, str(gpu.get("architecture") or ""), gpu.get("compute_capability"))
        row = architecture_of(capability) if capability else None
        if row and row.modules == ("open",):
            need_open.append(model)
        elif row and row.modules == ("proprietary",):
            need_closed.append(model)
    if need_open and need_closed:
        return "open", f"{need_open[0]} needs open kernel modules and {need_closed[0]} proprietary ones"
    if wanted == "auto":
        return ("proprietary" if need_closed else "open"), ""
    against = need_closed if wanted == "open" else need_open
    return wanted, f"{against[0]} is not driven by {wanted} kernel modules" if against else ""


def driver_packages(
    platform: Platform, method: str, branch: Any, modules: str, nvswitch: bool = False, version: Optional[str] = None
) -> DriverPackages:
    """Packages for a method, with fabric manager where there is NVSwitch. Raises PackageError."""
    if method == "repository":
        found = vendor_driver(platform, branch, modules)
    else:
        parsed = parse_driver(branch)
        number = parsed.release[0] if parsed else 0
        if platform.packages["driver_distribution"] and number not in platform.driver_branches:
            branches = ", ".join(map(str, platform.driver_branches))
            raise PackageError(
                f"{platform.key} has driver branch {branches} of its own, not {number}: set "
                "torchfleet_stack.driver to it, or nvidia_driver_method to repository"
            )
        found = DriverPackages(packages_for(platform, "driver_distribution", driver=branch, modules=modules))
    extra = fabric_manager(platform, version or branch) if nvswitch else ()
    return replace(found, packages=(*found.packages, *extra))


def secure_boot_problem(secure_boot: Optional[bool], accepted: bool) -> str:
    """Why nothing is tried with Secure Boot on: the kernel refuses an unsigned module after all else went well."""
    if not secure_boot or accepted:
        return ""
    return (
        "Secure Boot is on: the kernel loads modules that are signed by a key it knows, and a driver built here is "
        "not. Turn Secure Boot off in the firmware; or enrol a key (mokutil --import), which needs somebody at the "
        "console at the next start, let DKMS sign with it, and set nvidia_driver_secure_boot_ok"
    )
