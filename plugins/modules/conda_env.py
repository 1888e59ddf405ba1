#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: conda_env
short_description: A conda environment, the same on every node
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Creates an environment from packages or from the text of an C(environment.yml), and says exactly what came of it, as
    an explicit list; or from such a list, to the last build.
  - One that was cut off is begun anew.
options:
  conda:
    description: Path of C(conda).
    type: path
    required: true
  path:
    description: The environment's folder.
    type: path
    required: true
  packages:
    description: Packages as conda takes them (V(python=3.12)).
    type: list
    elements: str
    default: []
  channels:
    description: Channels, and no others.
    type: list
    elements: str
    default: []
  definition:
    description: The text of an C(environment.yml), in place of O(packages).
    type: str
  lock:
    description: An explicit list, in place of both.
    type: str
  cuda:
    description:
      - The CUDA that packages are chosen for, whatever driver this node has now. Without it, that of the driver.
    type: str
  collect:
    description: A folder to put the packages of O(lock) into, for other nodes.
    type: path
  cache:
    description:
      - A folder that another node filled by O(collect). What O(lock) names is taken from it, hash by hash, and the
        network is asked for the rest alone. Nothing is wrong with a folder that is not there.
    type: path
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Create the environment
  torchfleet.cluster.conda_env:
    conda: /opt/torchfleet/conda/bin/conda
    path: /opt/torchfleet/conda/envs/torchfleet
    packages: [python=3.12]
    channels: [conda-forge]
"""

RETURN = r"""
python:
  description: The environment's interpreter.
  returned: success
  type: str
  sample: /opt/torchfleet/conda/envs/torchfleet/bin/python
missing:
  description: C(environment), where it was not there or another one.
  returned: success
  type: list
  elements: str
  sample: []
files:
  description: Packages that were put into O(collect), or taken from O(cache).
  returned: success
  type: int
  sample: 94
offline:
  description: Whether it was made without any network.
  returned: success
  type: bool
  sample: true
lock:
  description: Exactly what is in the environment, one URL a line.
  returned: success, not in check mode
  type: str
  sample: "@EXPLICIT\nhttps://conda.anaconda.org/conda-forge/linux-64/python-3.12.7-hc5c86c4_0_cpython.conda#...\n"
"""

import os
import shutil
import socket
import tempfile
from typing import List, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _conda, _files

STAMP = "conda-meta/torchfleet.lock"


def exact(text: str) -> List[str]:
    """The packages of an explicit list: conda writes the day and itself into comments."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "@"))]


def packages_of(conda: str) -> str:
    """Where conda keeps its packages, told to it as well: a setting of root's could have it elsewhere."""
    return os.path.join(os.path.dirname(os.path.dirname(conda)), "pkgs")


def run(module: AnsibleModule, *arguments: str, allow: bool = False) -> Tuple[bool, str]:
    command = [module.params["conda"], *arguments]
    # No setting of root's may add a channel.
    environment = {"CONDARC": "/dev/null", "LC_ALL": "C.UTF-8", "CONDA_PKGS_DIRS": packages_of(command[0])}
    if module.params["cuda"]:
        # Else a build for CUDA is not to be had before the driver runs.
        environment["CONDA_OVERRIDE_CUDA"] = module.params["cuda"]
    code, out, err = module.run_command(command, environ_update=environment)
    if code and not allow:
        words = [line.strip() for line in (out + "\n" + err).splitlines() if line.strip()]
        module.fail_json(msg=f"{socket.gethostname()}: {' '.join(command)}: {' '.join(words[-5:])}", stderr=err)
    return code == 0, str(out)


def collect(module: AnsibleModule, folder: str) -> int:
    """Put the packages of the list together, as far as conda has kept them."""
    _files.fresh_folder(folder)
    there = packages_of(module.params["conda"])
    found = 0
    for name, (_url, digest) in _conda.package_files(module.params["lock"]).items():
        source, place = os.path.join(there, name), os.path.join(folder, name)
        if digest and os.path.isfile(source):
            try:
                os.link(source, place)
            except OSError:
                shutil.copyfile(source, place)
            # Another user passes it on.
            os.chmod(place, 0o644)
            found += 1
    return found


def take(module: AnsibleModule, folder: str) -> int:
    """Lay packages down where conda looks for them; it knows a file as that of a URL by a list beside them."""
    there = packages_of(module.params["conda"])
    os.makedirs(there, exist_ok=True)
    urls = []
    for name, (url, digest) in _conda.package_files(module.params["lock"]).items():
        place = os.path.join(there, name)
        if digest and _files.copy_checked(os.path.join(folder, name), place, digest):
            urls.append(url)
    if urls:
        with open(os.path.join(there, "urls.txt"), "a", encoding="utf-8") as stream:
            stream.write("".join(f"{url}\n" for url in urls))
    return len(urls)


def create(module: AnsibleModule, offline: bool = False) -> Tuple[bool, str]:
    """Whether it went without a network, which is tried first where `offline`, and the list of what is there."""
    params, path = module.params, module.params["path"]
    shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        channels = [word for channel in params["channels"] for word in ("--channel", channel)]
        channels += ["--override-channels"] if channels else []
        if params["lock"] is not None:
            name = os.path.join(folder, "explicit.txt")
            _files.replace(name, "@EXPLICIT\n" + "\n".join(exact(params["lock"])) + "\n")
            explicit = ("create", "--yes", "--quiet", "--prefix", path, "--file", name)
            offline = offline and run(module, *explicit, "--offline", allow=True)[0]
            if not offline:
                shutil.rmtree(path, ignore_errors=True)
                run(module, *explicit)
        elif params["definition"] is not None:
            name = os.path.join(folder, "environment.yml")
            _files.replace(name, params["definition"])
            run(module, "env", "create", "--quiet", "--prefix", path, "--file", name)
        else:
            run(module, "create", "--yes", "--quiet", "--prefix", path, *channels, *params["packages"])
    return offline, run(module, "list", "--prefix", path, "--explicit", "--md5")[1]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "conda": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "channels": {"type": "list", "elements": "str", "default": []},
            "definition": {"type": "str"},
            "lock": {"type": "str"},
            "cuda": {"type": "str"},
            "collect": {"type": "path"},
            "cache": {"type": "path"},
        },
        required_by={"collect": "lock", "cache": "lock"},
        supports_check_mode=True,
    )
    params = module.params
    path = params["path"].rstrip("/")
    python = os.path.join(path, "bin", "python")
    if not os.path.exists(params["conda"]) and not module.check_mode:
        module.fail_json(
            msg=f"{socket.gethostname()}: there is no {params['conda']}: set conda_enabled to true, or conda_prefix to "
            "where conda is"
        )
    stamp = os.path.join(path, STAMP)
    there = _files.read(stamp)
    right = bool(there) and os.path.exists(python)
    right = right and (params["lock"] is None or exact(there) == exact(params["lock"]))
    if os.path.isdir(path) and not there and not os.path.isdir(os.path.join(path, "conda-meta")) and os.listdir(path):
        module.fail_json(msg=f"{socket.gethostname()}: {path} is there and is no conda environment: move it away")
    files, offline = 0, False
    if not right and not module.check_mode:
        if params["cache"] and os.path.isdir(params["cache"]):
            files = take(module, params["cache"])
        offline, there = create(module, files > 0)
        if not os.path.exists(python):
            module.fail_json(msg=f"{socket.gethostname()}: {path} has no Python: name one in conda_packages")
        _files.replace(stamp, there)
    if params["collect"] and not module.check_mode:
        files = collect(module, params["collect"])
    module.exit_json(
        changed=not right,
        python=python,
        lock=there,
        missing=[] if right else ["environment"],
        files=files,
        offline=offline,
    )


if __name__ == "__main__":
    main()
