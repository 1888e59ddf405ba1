#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: wheelhouse
short_description: Collect the wheels that other machines install, once for all of them
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Runs on the controller, whose pip fetches requirements and what they depend on for the nodes' Python and platform,
    which may be other ones than its own; or, with O(python), on one of the nodes for all that are like it.
  - What is wanted has a folder of its own below O(path). It is there whole or not at all, and is not fetched again.
options:
  path:
    description: The folder of wheelhouses.
    type: path
    required: true
  packages:
    description: Requirements as pip takes them.
    type: list
    elements: str
    required: true
  sources:
    description:
      - Projects among O(packages) that are published as source alone. They are fetched as such, without what they
        depend on, which has to be named in O(packages).
    type: list
    elements: str
    default: []
  python:
    description:
      - An interpreter with pip that is like those that will install. Nothing is then asked for in another's name, and
        what is published as source alone comes out as a wheel.
    type: path
  keep:
    description:
      - Requirements that the environment of O(python) meets already. They are neither fetched nor replaced, and with
        them nothing else that is there.
    type: list
    elements: str
    default: []
  python_version:
    description: The nodes' Python.
    type: str
    required: true
  machine:
    description: The nodes' C(uname -m).
    type: str
    default: x86_64
  glibc:
    description: Versions of the nodes' C library, of which the oldest counts.
    type: list
    elements: str
    default: ["2.28"]
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
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: Fetches nothing.
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
"""

EXAMPLES = r"""
- name: Collect torch for nodes of Python 3.11
  torchfleet.cluster.wheelhouse:
    path: ~/.cache/torchfleet/wheelhouse
    packages: [torch==2.13.0]
    python_version: "3.11"
    glibc: ["2.36"]
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
folder:
  description: The folder with the wheels.
  returned: success
  type: str
  sample: /home/ml/.cache/torchfleet/wheelhouse/3f1c0a9b7d2e4c55
files:
  description: Number of files in it.
  returned: success
  type: int
  sample: 27
bytes:
  description: Their size.
  returned: success
  type: int
  sample: 2951872313
"""

import json
import os
import shutil
import socket
import sys
from typing import Any, Dict, List, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _pip, _wheelhouse


def lacking(module: AnsibleModule, packages: List[str], keep: List[str], folder: str) -> List[str]:
    """What pip would install beside what is there, each in its version."""
    report, constraints = os.path.join(folder, "REPORT.json"), os.path.join(folder, "CONSTRAINTS.txt")
    _files.replace(constraints, "\n".join(keep) + "\n")
    try:
        pip(module, ["install", "--dry-run", "--report", report, "--constraint", constraints], packages, folder)
        with open(report, encoding="utf-8") as stream:
            found = [one["metadata"] for one in json.load(stream)["install"]]
    finally:
        for path in (report, constraints):
            if os.path.exists(path):
                os.unlink(path)
    return [f"{one['name']}=={one['version']}" for one in found]


def pip(module: AnsibleModule, options: List[str], packages: List[str], folder: str) -> None:
    params = module.params
    options = [*options, "--no-input", "--disable-pip-version-check", "--quiet"]
    if params["index_url"]:
        options += ["--index-url", params["index_url"]]
    for url in params["extra_index_urls"]:
        options += ["--extra-index-url", url]
    for link in [folder, *params["find_links"]]:
        options += ["--find-links", link]
    # A small /tmp is common on servers.
    command, data = _pip.command(params["python"] or sys.executable, [*options, "--", *packages])
    code, out, err = module.run_command(command, data=data, environ_update={"TMPDIR": params["path"]})
    if code:
        where = socket.gethostname() if params["python"] else "this controller"
        beside = f" beside {', '.join(params['keep'])}" if params["keep"] else ""
        words = (
            f"{', '.join(packages)} could not be collected on {where}{beside} for Python "
            f"{params['python_version']}: {_wheelhouse.last_words(out + err)}"
        )
        module.fail_json(msg=_pip.bare(words), stderr=_pip.bare(err))


def size_of(folder: str) -> Tuple[int, int]:
    paths = [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    wheels = [path for path in paths if os.path.basename(path) != _wheelhouse.WANTED]
    return len(wheels), sum(os.path.getsize(path) for path in wheels)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "sources": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "path"},
            "keep": {"type": "list", "elements": "str", "default": []},
            "python_version": {"type": "str", "required": True},
            "machine": {"type": "str", "default": "x86_64"},
            "glibc": {"type": "list", "elements": "str", "default": ["2.28"]},
            "index_url": {"type": "str"},
            "extra_index_urls": {"type": "list", "elements": "str", "default": []},
            "find_links": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    module.no_log_values.update(_pip.secrets(_pip.sources(params)))
    glibc = _wheelhouse.oldest(params["glibc"])
    try:
        target = _wheelhouse.pip_target(params["python_version"], params["machine"], glibc)
    except ValueError as error:
        module.fail_json(msg=f"python_version: {error}")
    names = ("packages", "sources", "machine", "index_url", "extra_index_urls", "find_links")
    wanted: Dict[str, Any] = json.loads(_pip.bare(json.dumps({name: params[name] for name in names})))
    wanted.update(python=target[2], glibc=glibc)
    folder = os.path.join(params["path"], _wheelhouse.key_of(wanted))
    there = os.path.exists(os.path.join(folder, _wheelhouse.WANTED))
    if not there and not module.check_mode:
        part = folder + ".part"  # kept when it breaks off: pip does not fetch again what lies in it
        try:
            os.makedirs(part, exist_ok=True)
            wheels, sources = _wheelhouse.split_sources(params["packages"], params["sources"])
            if wheels and params["python"] and params["keep"]:
                wheels = lacking(module, [one for one in wheels if one not in params["keep"]], params["keep"], part)
            if wheels and params["python"]:
                alone = ["--no-deps"] if params["keep"] else []
                # Without PEP 517 an old pip builds with what the environment has, which is not even wheel.
                pip(module, ["wheel", "--use-pep517", "--wheel-dir", part, *alone], wheels, part)
            elif wheels:
                pip(module, ["download", "--dest", part, *target], wheels, part)
            if sources:
                pip(module, ["download", "--dest", part, "--no-deps", "--no-binary=:all:"], sources, part)
            _files.replace(os.path.join(part, _wheelhouse.WANTED), json.dumps(wanted, indent=2, sort_keys=True) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(part, folder)
        except OSError as error:
            module.fail_json(
                msg=f"{folder} on this controller: {error.strerror or error}: set pytorch_wheelhouse_cache"
            )
    files, size = size_of(folder)
    module.exit_json(changed=not there, folder=folder, files=files, bytes=size)


if __name__ == "__main__":
    main()
