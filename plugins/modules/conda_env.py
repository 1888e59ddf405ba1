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
from typing import List

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files

STAMP = "conda-meta/torchfleet.lock"


def exact(text: str) -> List[str]:
    """The packages of an explicit list: conda writes the day and itself into comments."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "@"))]


def run(module: AnsibleModule, *arguments: str) -> str:
    command = [module.params["conda"], *arguments]
    # No setting of root's may add a channel.
    code, out, err = module.run_command(command, environ_update={"CONDARC": "/dev/null", "LC_ALL": "C.UTF-8"})
    if code:
        words = [line.strip() for line in (out + "\n" + err).splitlines() if line.strip()]
        module.fail_json(msg=f"{socket.gethostname()}: {' '.join(command)}: {' '.join(words[-5:])}", stderr=err)
    return str(out)


def create(module: AnsibleModule) -> str:
    params, path = module.params, module.params["path"]
    shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        channels = [word for channel in params["channels"] for word in ("--channel", channel)]
        channels += ["--override-channels"] if channels else []
        if params["lock"] is not None:
            name = os.path.join(folder, "explicit.txt")
            _files.replace(name, "@EXPLICIT\n" + "\n".join(exact(params["lock"])) + "\n")
            run(module, "create", "--yes", "--quiet", "--prefix", path, "--file", name)
        elif params["definition"] is not None:
            name = os.path.join(folder, "environment.yml")
            _files.replace(name, params["definition"])
            run(module, "env", "create", "--quiet", "--prefix", path, "--file", name)
        else:
            run(module, "create", "--yes", "--quiet", "--prefix", path, *channels, *params["packages"])
    return run(module, "list", "--prefix", path, "--explicit", "--md5")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "conda": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "channels": {"type": "list", "elements": "str", "default": []},
            "definition": {"type": "str"},
            "lock": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    path = params["path"].rstrip("/")
    python = os.path.join(path, "bin", "python")
    stamp = os.path.join(path, STAMP)
    there = _files.read(stamp)
    right = bool(there) and os.path.exists(python)
    right = right and (params["lock"] is None or exact(there) == exact(params["lock"]))
    if os.path.isdir(path) and not there and not os.path.isdir(os.path.join(path, "conda-meta")) and os.listdir(path):
        module.fail_json(msg=f"{socket.gethostname()}: {path} is there and is no conda environment: move it away")
    if not right and not module.check_mode:
        there = create(module)
        if not os.path.exists(python):
            module.fail_json(msg=f"{socket.gethostname()}: {path} has no Python: name one in conda_packages")
        _files.replace(stamp, there)
    module.exit_json(changed=not right, python=python, lock=there)


if __name__ == "__main__":
    main()
