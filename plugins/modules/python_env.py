#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_env
short_description: A Python virtual environment with given packages
version_added: 0.1.0
description:
  - Makes a virtual environment at an absolute path and installs packages into it, from an index, a mirror, or a folder
    of wheels without any network. One that conda made is taken as it is.
  - What is installed already is compared with what is wanted inside the environment itself, so a run that was cut off
    is completed by the next one, and an environment that is right is not touched.
options:
  path:
    description: The environment's folder, an absolute path.
    type: path
    required: true
  python:
    description: The interpreter that makes it.
    type: path
    default: /usr/bin/python3
  packages:
    description: Requirements as pip takes them (V(torch==2.13.0)).
    type: list
    elements: str
    default: []
  index_url:
    description: Index to use in place of pip's own setting. A user and a token in it are seen by pip alone.
    type: str
  extra_index_urls:
    description: Further indexes.
    type: list
    elements: str
    default: []
  find_links:
    description: Folders or pages with wheels.
    type: list
    elements: str
    default: []
  no_index:
    description: Use nothing but O(find_links).
    type: bool
    default: false
  constraints:
    description: Requirements that are met already and stay so, V(torch==2.13.0). What wants another version is refused.
    type: list
    elements: str
    default: []
  build_packages:
    description: What O(packages) need to be built, installed before them where they lack something.
    type: list
    elements: str
    default: []
  rebuild:
    description: Requirements among O(packages) to build and install again, as they were built without something.
    type: list
    elements: str
    default: []
  build_isolation:
    description: Whether what is built from source brings its own build tools. V(false) takes those of the environment.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Tells which packages are missing.
  diff_mode:
    support: full
    description: Shows versions now and wanted.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Install torch without a network
  torchfleet.cluster.python_env:
    path: /opt/torchfleet/venv
    packages: [torch==2.13.0]
    find_links: [/opt/torchfleet/wheelhouse]
    no_index: true
"""

RETURN = r"""
python:
  description: The environment's interpreter.
  returned: success
  type: str
  sample: /opt/torchfleet/venv/bin/python
versions:
  description: Installed version of each package asked for.
  returned: success
  type: dict
  sample: {"torch": "2.13.0+cpu"}
can_make:
  description: Whether O(python) can make virtual environments (Debian splits that off into python3-venv).
  returned: success
  type: bool
  sample: true
base_version:
  description: The version of O(python); empty where it does not run.
  returned: success
  type: str
  sample: 3.11.2
missing:
  description: Requirements that were not met before this call.
  returned: success
  type: list
  elements: str
  sample: [torch==2.13.0]
"""

import json
import os
import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _pip

# Run by the environment's own interpreter: pip's copy of packaging knows PEP 440 and PEP 508.
STATE = """
import importlib.metadata, json, sys
path = sys.path[:]
from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
sys.path[:] = path  # where Debian 11's pip puts what it is made of first
found, missing, bad = {}, [], []
for text in json.loads(sys.argv[1]):
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        bad.append(text)
        continue
    if requirement.marker is not None and not requirement.marker.evaluate():
        continue
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        version = None
    if version is not None:
        found[requirement.name] = version
    if version is None or not requirement.specifier.contains(version, prereleases=True):
        missing.append(text)
print(json.dumps({"found": found, "missing": missing, "bad": bad}))
"""

LAST_WORDS = 6


def state(module: AnsibleModule, python: str) -> tuple[dict[str, str], list[str]] | None:
    """Versions found and requirements not met; None where the environment is not usable."""
    if not os.path.exists(python):
        return None
    command = [python, "-I", "-c", STATE, json.dumps(module.params["packages"])]
    try:
        code, out, _err = module.run_command(command, handle_exceptions=False)
    except OSError:
        return None
    if code:
        return None
    answer = json.loads(out)
    if answer["bad"]:
        module.fail_json(msg=f"packages: {answer['bad'][0]!r} is not a requirement, wanted for example 'torch==2.13.0'")
    return answer["found"], answer["missing"]


def runs(module: AnsibleModule, python: str, code: str = "pass") -> bool:
    try:
        return bool(module.run_command([python, "-I", "-c", code], handle_exceptions=False)[0] == 0)
    except OSError:
        return False


def make(module: AnsibleModule, path: str) -> None:
    python = os.path.join(path, "bin", "python")
    # venv keeps an interpreter that it finds, also one whose base was removed.
    clear = ["--clear"] if os.path.lexists(python) and not runs(module, python) else []
    code, out, err = module.run_command([module.params["python"], "-m", "venv", *clear, path])
    if code:
        words = (err + out).strip().splitlines()
        module.fail_json(
            msg=f"{socket.gethostname()}: {module.params['python']} cannot make a virtual environment "
            f"({words[-1] if words else code}): install its venv package (Debian: python3-venv)"
        )


def install(module: AnsibleModule, python: str, packages: list[str], again: bool = False) -> None:
    params = module.params
    options = ["install", "--no-input", "--disable-pip-version-check", "--quiet"]
    if again:
        # pip keeps what it has built, and would bring it again.
        options += ["--force-reinstall", "--no-deps", "--no-cache-dir"]
    if params["constraints"]:
        path = os.path.join(params["path"], "tmp", "constraints.txt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _files.replace(path, "\n".join(params["constraints"]) + "\n")
        options += ["--constraint", path]
    if not params["build_isolation"]:
        options.append("--no-build-isolation")
    if params["no_index"]:
        options.append("--no-index")
    elif params["index_url"]:
        options += ["--index-url", params["index_url"]]
    for url in params["extra_index_urls"]:
        options += ["--extra-index-url", url]
    for link in params["find_links"]:
        options += ["--find-links", link]
    # A small /tmp is common on servers; pip unpacks gigabytes.
    scratch = os.path.join(params["path"], "tmp")
    os.makedirs(scratch, exist_ok=True)
    command, data = _pip.command(python, [*options, "--", *packages])
    code, out, err = module.run_command(command, data=data, environ_update={"TMPDIR": scratch})
    if code:
        lines = [line for line in (out + err).splitlines() if line.strip() and not line.startswith("WARNING")]
        source = f"wheels in {', '.join(params['find_links'])}" if params["no_index"] else "the package index"
        beside = f", beside {', '.join(params['constraints'])}" if params["constraints"] else ""
        words = f"{', '.join(packages)} could not be installed from {source}{beside}: {' '.join(lines[-LAST_WORDS:])}"
        module.fail_json(msg=f"{socket.gethostname()}: {_pip.bare(words)}", stderr=_pip.bare(err))


def base_version(module: AnsibleModule) -> str:
    command = [module.params["python"], "-I", "-c", "import platform; print(platform.python_version())"]
    # conda's is not there yet in check mode.
    return module.run_command(command)[1].strip() if runs(module, command[0]) else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "index_url": {"type": "str"},
            "extra_index_urls": {"type": "list", "elements": "str", "default": []},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "no_index": {"type": "bool", "default": False},
            "constraints": {"type": "list", "elements": "str", "default": []},
            "build_packages": {"type": "list", "elements": "str", "default": []},
            "rebuild": {"type": "list", "elements": "str", "default": []},
            "build_isolation": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.no_log_values.update(_pip.secrets(_pip.sources(module.params)))
    path = module.params["path"]
    if not os.path.isabs(path):
        module.fail_json(msg=f"path is {path!r}, wanted an absolute path")
    if module.params["no_index"] and not module.params["find_links"]:
        module.fail_json(msg="no_index needs find_links: there is nowhere to take packages from")
    of_conda = os.path.isdir(os.path.join(path, "conda-meta"))
    foreign = os.path.lexists(path) and not of_conda and not os.path.exists(os.path.join(path, "pyvenv.cfg"))
    if foreign and (not os.path.isdir(path) or os.listdir(path)):
        module.fail_json(
            msg=f"{socket.gethostname()}: {path} exists and is no virtual environment: choose another torchfleet_venv"
        )
    python = os.path.join(path, "bin", "python")
    now = state(module, python)
    before, missing = now or ({}, list(module.params["packages"]))
    changed = now is None or bool(missing or module.params["rebuild"])
    after = before
    if changed and not module.check_mode:
        if now is None and of_conda:
            module.fail_json(
                msg=f"{socket.gethostname()}: {path} is an environment of conda's that has no pip: name it in "
                "conda_packages"
            )
        if now is None:
            make(module, path)
        for packages in (module.params["build_packages"], module.params["packages"]):
            if missing and packages:
                install(module, python, packages)
        if module.params["rebuild"]:
            install(module, python, module.params["rebuild"], again=True)
        then = state(module, python)
        if then is None or then[1]:
            module.fail_json(
                msg=f"{socket.gethostname()}: after the installation {path} still lacks "
                + ", ".join(then[1] if then else missing)
            )
        after = then[0]
    lines = [f"{name} {version}\n" for name, version in sorted(before.items())]
    wanted = lines + [f"{text} (to be installed)\n" for text in missing] if module.check_mode else []
    module.exit_json(
        changed=changed,
        python=python,
        versions=after,
        can_make=runs(module, module.params["python"], "import ensurepip, venv"),
        base_version=base_version(module),
        missing=missing,
        diff={
            "before_header": path,
            "after_header": path,
            "before": "".join(lines),
            "after": "".join(wanted or [f"{name} {version}\n" for name, version in sorted(after.items())]),
        },
    )


if __name__ == "__main__":
    main()
