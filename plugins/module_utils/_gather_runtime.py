# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""How facts about what Python loads are gathered on a node. Takes the module as it is, to need nothing of Ansible."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, List, Mapping, Optional

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import to_dict
from ansible_collections.torchfleet.cluster.plugins.module_utils._probe_run import run_probe
from ansible_collections.torchfleet.cluster.plugins.module_utils._probe_script import LIBRARIES
from ansible_collections.torchfleet.cluster.plugins.module_utils._runtime import (
    Probe,
    build_library,
    build_torch,
    compiler_version,
    nvcc_candidates,
    skipped_torch,
)

PACKAGES_SECONDS = 20
COMPILERS = ("cc", "gcc", "g++", "clang")


def version_of(module: Any, binary: str) -> str:
    try:
        _rc, out, err = module.run_command(
            [binary, "--version"],
            environ_update={"LC_ALL": "C"},
            errors="surrogate_then_replace",
            handle_exceptions=False,
        )
    except OSError:
        return ""
    return compiler_version(out or err)


def find_compilers(module: Any) -> Dict[str, Optional[Dict[str, str]]]:
    found: Dict[str, Optional[Dict[str, str]]] = {}
    versions: Dict[str, str] = {}
    for name in COMPILERS:
        path = module.get_bin_path(name)
        if not path:
            found[name] = None
            continue
        real = os.path.realpath(path)
        if real not in versions:  # cc is gcc or clang by another name
            versions[real] = version_of(module, path)
        found[name] = {"path": path, "version": versions[real]}
    return found


def find_nvcc(module: Any, environment: Mapping[str, str], report: Mapping[str, Any]) -> List[Dict[str, str]]:
    prefix = (report.get("python") or {}).get("prefix", "")
    found: Dict[str, Dict[str, str]] = {}
    for pattern, how in nvcc_candidates(environment, report.get("site_dirs") or (), prefix):
        for path in sorted(glob.glob(pattern), reverse=True):
            real = os.path.realpath(path)
            if real not in found and os.access(path, os.X_OK):
                found[real] = {"path": path, "version": version_of(module, path), "found_by": how}
    return list(found.values())


def gather(module: Any) -> Dict[str, Any]:
    path = module.params["python"]
    added = {str(name): str(value) for name, value in module.params["environment"].items()}
    probe = run_probe(module, path, "packages", PACKAGES_SECONDS, added)
    report = probe.report
    packages = report.get("packages") or {}
    installed = bool(packages.get("torch") or report.get("torch"))
    imported = Probe("ok", {})
    if probe.status == "no_interpreter":
        torch = skipped_torch("no_interpreter", probe.problem)
    elif not installed and probe.status == "ok":
        torch = skipped_torch("not_installed")
    elif not module.params["import_torch"]:
        torch = skipped_torch("skipped")
    else:
        imported = run_probe(module, path, "torch", module.params["timeout"], added)
        torch = build_torch(imported, installed)
    mapped = (imported.report.get("torch") or {}).get("mapped") or []
    libraries = {name: to_dict(build_library(name, report, mapped)) for name in LIBRARIES}
    return {
        "python": {"path": path, "status": probe.status, "problem": probe.problem, **(report.get("python") or {})},
        "torch": torch,
        "packages": packages,
        "libraries": libraries,
        "shadowed": [name for name, library in libraries.items() if library["shadowed_by"]],
        "mapped": mapped,
        "ld_library_path": report.get("ld_library_path") or [],
        "compilers": find_compilers(module),
        "nvcc": find_nvcc(module, dict(os.environ, **added), report),
    }
