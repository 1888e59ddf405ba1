#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sync_node
short_description: One node's part in bringing a tree to all nodes
version_added: 0.1.0
description:
  - The node keeps releases of a tree beside O(dest), which is a link to one of them. A run sees one tree or another,
    never a mixture.
  - Used by role C(sync), in the order O(state=planned), M(torchfleet.cluster.sync_transfer), O(state=switched).
options:
  state:
    description:
      - V(planned) compares the node's tree with the release, and lays out what the node has of it already.
      - V(started) starts the process that fetches the rest.
      - V(switched) makes the whole tree the current one.
    type: str
    choices: [planned, started, switched]
    default: planned
  dest:
    description: The folder, which becomes a link. One that is there already is taken over.
    type: path
    required: true
  user:
    description: Owner of the tree. All of the work in it is done with this user's rights.
    type: str
    required: true
  release:
    description: The release's id, from M(torchfleet.cluster.sync_source).
    type: str
    required: true
  excludes:
    description: Patterns, as C(.gitignore) has them, of what O(delete) spares.
    type: list
    elements: str
    default: []
  delete:
    description: Leave out of the new tree what the source has not. Otherwise it is carried over.
    type: bool
    default: false
  verify:
    description: Read every file again, and not only those that look touched.
    type: bool
    default: false
  spare:
    description: Folder whose files nobody else needs. What the tree has of them is linked, and takes no room again.
    type: path
  manifest:
    description: Path of the manifest on the node. Filled in where the node has none.
    type: path
  way:
    description: Where the data comes from. Filled in by M(torchfleet.cluster.sync_transfer).
    type: dict
attributes:
  check_mode:
    support: full
    description: Only O(state=planned) does anything, and that changes nothing.
  diff_mode:
    support: none
    description: Trees are not shown.
  action:
    support: full
    description: Sends the manifest to a node that has none.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: See what the node lacks
  torchfleet.cluster.sync_node:
    state: planned
    dest: /data/set
    user: ml
    release: "{{ source.release }}"
  become: true
"""

RETURN = r"""
plan:
  description: What there is to do.
  returned: when O(state=planned)
  type: dict
  sample: {state: planned, root: /data/.set.releases, need: 1048576, total: 4194304, free: 10737418240, files: 3}
python:
  description: The interpreter that serves this node's children.
  returned: when O(state=planned)
  type: str
  sample: /usr/bin/python3
folder:
  description: The current release.
  returned: when O(state=switched)
  type: str
  sample: /data/.set.releases/0123456789abcdef0123456789abcdef.1750000000000000000
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import sys
from subprocess import DEVNULL, Popen

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _sync_agent
from ansible_collections.torchfleet.cluster.plugins.module_utils._account import becoming, rights_of

SPOOL = "/var/lib/torchfleet/spool"


def owner_of_parent(dest: str, account: pwd.struct_passwd):
    """Whose rights changes beside the destination take: the user's own, where these suffice."""
    with rights_of(account):
        users = os.access(os.path.dirname(dest), os.W_OK, effective_ids=True)
    return rights_of(account) if users else contextlib.nullcontext()


def places(dest: str) -> tuple:
    """The destination, with a link of the user's own followed, and the folder of its releases."""
    dest = os.path.normpath(dest)
    parent, name = os.path.split(dest)
    root = os.path.join(parent, f".{name}.releases")
    if os.path.islink(dest) and os.path.dirname(os.readlink(dest)) != os.path.basename(root):
        return places(os.path.realpath(dest))
    return dest, root


def make_root(dest: str, root: str, account: pwd.struct_passwd) -> None:
    os.makedirs(os.path.dirname(dest), mode=0o755, exist_ok=True)
    with owner_of_parent(dest, account):
        if not os.path.lexists(root):
            os.mkdir(root, 0o755)
            if os.geteuid() == 0:
                os.chown(root, account.pw_uid, account.pw_gid)
    found = os.lstat(root)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.pw_uid:
        raise _sync_agent.SyncError(f"{root} is not a folder of {account.pw_name}'s: move it away, or set sync_user")


def end_receiver(root: str) -> None:
    """One that an earlier call left behind."""
    pid = int(_sync_agent.read_status(root).get("pid") or 0)
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            words = stream.read().split(b"\0")
        if b"receive" in words and os.fsencode(root) in words:
            os.kill(pid, signal.SIGKILL)


def start(root: str, way: dict, release: str, account: pwd.struct_passwd) -> None:
    script = os.path.join(root, "agent.py")
    spool = ""
    if way.get("spool"):
        spool = os.path.join(SPOOL, release)
        shutil.rmtree(spool, ignore_errors=True)
        os.makedirs(spool, mode=0o755, exist_ok=True)
        os.chmod(spool, 0o750)
        os.chown(spool, 0 if os.geteuid() == 0 else -1, account.pw_gid)

    with rights_of(account):
        end_receiver(root)
        _sync_agent.write_json(
            os.path.join(root, "way.json"), {"release": release, "spool": spool, "parents": way.get("parents") or []}
        )
    # Not run_command, which waits: the journey outlives this module.
    Popen(
        [sys.executable, "-I", script, "receive", root],
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        env={"HOME": account.pw_dir, "USER": account.pw_name, "LC_ALL": "C", "PATH": os.defpath},
        cwd="/",
        start_new_session=True,
        preexec_fn=becoming(account),
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["planned", "started", "switched"], "default": "planned"},
            "dest": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "release": {"type": "str", "required": True},
            "excludes": {"type": "list", "elements": "str", "default": []},
            "delete": {"type": "bool", "default": False},
            "verify": {"type": "bool", "default": False},
            "spare": {"type": "path"},
            "manifest": {"type": "path"},
            "way": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    params = module.params
    host, release = socket.gethostname(), params["release"]
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        module.fail_json(msg=f"{host}: there is no user {params['user']!r}: make it, or set sync_user")
    dest, root = places(params["dest"])
    selection = (params["excludes"], params["delete"])
    try:
        if params["state"] == "planned":
            if module.check_mode:
                plan = _sync_agent.plan(root, dest, release, *selection, params["verify"], True)
                module.exit_json(changed=plan["state"] != "current", plan=plan, python=sys.executable)
            make_root(dest, root, account)
            # Read with root's rights: Ansible unpacks a module where only its own user comes.
            script = _sync_agent.__loader__.get_source(_sync_agent.__name__).encode()
            manifest = b""
            if params["manifest"]:
                with open(params["manifest"], "rb") as stream:
                    manifest = stream.read()
            with rights_of(account):
                end_receiver(root)
                if manifest:
                    _sync_agent.unpack(manifest)
                    _sync_agent.write_file(os.path.join(root, f"{release}.manifest"), manifest)
                plan = _sync_agent.plan(root, dest, release, *selection, params["verify"], False, params["spare"] or "")
                # Also on a node that has everything: it may be a parent.
                _sync_agent.write_file(os.path.join(root, "agent.py"), script)
            if plan.get("short"):
                plan["short"] = f"{host}: {plan['short']}"
            module.exit_json(changed=False, plan=plan, python=sys.executable)
        if module.check_mode:
            module.exit_json(changed=True)
        if params["state"] == "started":
            start(root, params["way"] or {}, release, account)
            module.exit_json(changed=True)
        with rights_of(account):
            name = _sync_agent.finish(root, dest, release, *selection)
        with owner_of_parent(dest, account):
            _sync_agent.point(root, dest, name)
        with rights_of(account):
            _sync_agent.tidy(root, dest)
        shutil.rmtree(os.path.join(SPOOL, release), ignore_errors=True)
        module.exit_json(changed=True, folder=os.path.join(root, name))
    except _sync_agent.SyncError as error:
        module.fail_json(msg=f"{host}: {error}")
    except OSError as error:
        module.fail_json(
            msg=f"{host}: {error.filename or params['dest']}: {error.strerror}; {params['dest']} is as it was"
        )


if __name__ == "__main__":
    main()
