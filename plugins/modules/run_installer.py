#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: run_installer
short_description: Run a self-extracting installer, or unpack an archive, into a folder, once
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Runs an installer (conda's, a CUDA C(.run) file) that fills one folder, or unpacks an archive into it, and remembers
    which one filled it.
  - An installation that was cut off, or failed, is taken away and begun anew. A folder that something else made is left
    alone.
options:
  installer:
    description: The installer's path on the node.
    type: path
    required: true
  arguments:
    description: What makes it silent and names the folder.
    type: list
    elements: str
    default: []
  unpack:
    description: O(installer) is a tar archive, whose one top folder becomes O(target). It is not run.
    type: bool
    default: false
  target:
    description: The folder that it fills.
    type: path
    required: true
  sha256:
    description: The installer's SHA-256, by which a folder is known to be of this one.
    type: str
    required: true
  provides:
    description: A file below O(target) that has to be there afterwards.
    type: str
    required: true
  room:
    description: Bytes that have to be free on the disk of O(target).
    type: int
    default: 0
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
- name: Install conda
  torchfleet.cluster.run_installer:
    installer: /opt/torchfleet/downloads/Miniforge3-Linux-x86_64.sh
    arguments: [-b, -p, /opt/torchfleet/conda]
    target: /opt/torchfleet/conda
    provides: bin/conda
    sha256: 6c5f9f7f0a0d3f3f8f1a9e8b2a9d8c7b6a5f4e3d2c1b0a9f8e7d6c5b4a392817
"""

RETURN = r"""
target:
  description: The folder.
  returned: success
  type: str
  sample: /opt/torchfleet/conda
foreign:
  description: Whether the folder was there already, made by something else, and was left alone.
  returned: success
  type: bool
  sample: false
"""

import errno
import lzma
import os
import shutil
import socket
import tarfile
from typing import Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files

STAMP = ".torchfleet-installer"


def room_problem(target: str, room: int) -> str:
    space = os.statvfs(_files.nearest_folder(target))
    free = space.f_frsize * space.f_bavail
    return f"{free >> 20} MiB are free for {target}, {room >> 20} MiB are wanted: make room" if free < room else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "installer": {"type": "path", "required": True},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "unpack": {"type": "bool", "default": False},
            "target": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
            "provides": {"type": "str", "required": True},
            "room": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    params, host = module.params, socket.gethostname()
    target = params["target"].rstrip("/")
    stamp, marker = os.path.join(target, STAMP), target + ".installing"
    provided = os.path.join(target, params["provides"])
    ours = _files.read(stamp).strip()
    if ours == params["sha256"] and os.path.exists(provided):
        module.exit_json(changed=False, target=target, foreign=False)
    unfinished = os.path.exists(marker)
    if os.path.lexists(target) and not ours and not unfinished:
        if os.path.exists(provided):
            module.exit_json(changed=False, target=target, foreign=True)
        if os.path.islink(target) or not os.path.isdir(target) or os.listdir(target):
            module.fail_json(
                msg=f"{host}: {target} is there, has no {params['provides']}, and is not of this role: move it away"
            )
    if module.check_mode:
        module.exit_json(changed=True, target=target, foreign=False)
    problem = room_problem(target, params["room"])
    if problem:
        module.fail_json(msg=f"{host}: {problem}")
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _files.replace(marker, params["sha256"] + "\n")
        # An older one is set aside, to come back if the newer one fails.
        aside = target + ".before"
        if unfinished or not ours:
            shutil.rmtree(target, ignore_errors=True)
        elif os.path.isdir(target):
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(target, aside)
        code, out, err = fill(module, target)
        if code or not os.path.exists(provided):
            give_back(target, aside, marker)
            words = [line.strip() for line in (out + "\n" + err).splitlines() if line.strip()]
            module.fail_json(
                msg=f"{host}: {os.path.basename(params['installer'])} failed ({code}), and {target} is as it was: "
                + " ".join(words[-4:])
            )
        _files.replace(stamp, params["sha256"] + "\n")
        os.unlink(marker)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        full = "the disk is full: make room" if error.errno == errno.ENOSPC else str(error.strerror)
        module.fail_json(msg=f"{host}: {target}: {full}")
    module.exit_json(changed=True, target=target, foreign=False)


def fill(module: AnsibleModule, target: str) -> Tuple[int, str, str]:
    params = module.params
    if not params["unpack"]:
        done: Tuple[int, str, str] = module.run_command(["/bin/sh", params["installer"], *params["arguments"]])
        return done
    try:
        with tarfile.open(params["installer"]) as archive:
            unpack(archive, target)
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # to the end of the stream, which tells whether it is whole
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
        return 1, "", f"the archive cannot be unpacked: {' '.join(str(error).split())}"
    return 0, "", ""


def below(name: str) -> str:
    """A path in the archive without its top folder. Raises ValueError where it leads elsewhere."""
    path = os.path.normpath(name)
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        raise ValueError(f"{name} lies outside of it")
    return path.partition(os.sep)[2]


def unpack(archive: tarfile.TarFile, target: str) -> None:
    """Files, folders and links below the archive's one top folder. Raises ValueError where one leads out of it."""
    os.makedirs(target, exist_ok=True)
    for member in archive:
        if member.issym():
            below(os.path.join(os.path.dirname(member.name), member.linkname))
        elif member.islnk():
            member.linkname = below(member.linkname)
        elif not (member.isreg() or member.isdir()):
            continue
        member.name = below(member.name)
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        if member.name:
            archive.extract(member, target)


def give_back(target: str, aside: str, marker: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if os.path.isdir(aside):
        os.rename(aside, target)
    os.unlink(marker)


if __name__ == "__main__":
    main()
