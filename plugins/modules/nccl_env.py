#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_env
short_description: Write the chosen network where NCCL, gloo and people read it
version_added: 0.1.0
description:
  - Writes the variables of the chosen network into C(/etc/nccl.conf), which NCCL reads without any shell, into
    C(~/.deepspeed_env) of the training user (only what may travel to other nodes) and into a profile fragment for
    people.
  - Its own stale values go, everything else in these files stays. Settings of others that work against the choice are
    reported with the file and line that makes them.
  - The choice comes from the inventory and from the facts that role C(nccl_env) gathered.
options:
  state:
    description: Whether the settings are to be there.
    type: str
    choices: [present, absent]
    default: present
  user:
    description: The training user.
    type: str
    default: root
  nccl_conf:
    description: NCCL's system-wide file.
    type: path
    default: /etc/nccl.conf
  profile:
    description: The profile fragment.
    type: path
    default: /etc/profile.d/torchfleet.sh
  texts:
    description: What to write, by file. Filled in on the controller.
    type: dict
    default: {}
  variables:
    description: Settings found on the node by M(torchfleet.cluster.nccl_facts). Filled in on the controller.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    support: full
    description: Nothing is written.
  diff_mode:
    support: full
    description: Shows every file that changes.
  action:
    support: full
    description: Renders on the controller.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Write the chosen network
  torchfleet.cluster.nccl_env:
    user: root
"""

RETURN = r"""
settings:
  description: The node's variables, each with where it comes from (V(chosen) or V(user)) and why.
  returned: success
  type: list
  elements: dict
  sample:
    - {"name": "GLOO_SOCKET_IFNAME", "value": "eth1", "origin": "chosen", "because": "the interface of 10.0.1.11"}
contradictions:
  description: Settings of others that work against these, one sentence each with the cure.
  returned: success
  type: list
  elements: str
  sample: []
foreign:
  description: Settings on the node that are not ours.
  returned: success
  type: list
  elements: dict
  sample: []
files:
  description: The files that this call changed.
  returned: success
  type: list
  elements: str
  sample: [/etc/nccl.conf]
"""

import os
import pwd
import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _nccl_env


def foreign(variables: list, paths: dict[str, str]) -> list:
    """The settings found on the node without those in lines of ours."""
    ours = {path: _nccl_env.managed_lines(_files.read(path)) for path in (paths["nccl_conf"],)}
    deepspeed = _nccl_env.deepspeed_names(_files.read(paths["deepspeed_env"]))

    def is_ours(item: dict) -> bool:
        source, line = str(item.get("source")), item.get("line")
        if source == paths["profile"]:
            return True
        if source == paths["deepspeed_env"]:
            return item.get("name") in deepspeed
        return line in ours.get(source, ())

    return [item for item in variables if not is_ours(item)]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "user": {"type": "str", "default": "root"},
            "nccl_conf": {"type": "path", "default": "/etc/nccl.conf"},
            "profile": {"type": "path", "default": "/etc/profile.d/torchfleet.sh"},
            "texts": {"type": "dict", "default": {}},
            "variables": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    host = socket.gethostname()
    try:
        account = pwd.getpwnam(params["user"])
    except KeyError:
        module.fail_json(msg=f"{host}: there is no user {params['user']!r}: make it, or set torchfleet_user")
    paths = {
        "nccl_conf": params["nccl_conf"],
        "profile": params["profile"],
        "deepspeed_env": os.path.join(account.pw_dir, ".deepspeed_env"),
    }
    texts = params["texts"] if params["state"] == "present" else {}
    now = {name: _files.read(path) for name, path in paths.items()}
    wanted = {
        "nccl_conf": _nccl_env.merge_block(now["nccl_conf"], texts.get("nccl_conf", "")),
        "profile": texts.get("profile", ""),
        "deepspeed_env": _nccl_env.merge_deepspeed_env(now["deepspeed_env"], texts.get("deepspeed_env", "")),
    }
    others = foreign(params["variables"], paths)
    changed = [name for name in paths if wanted[name] != now[name]]
    if not module.check_mode:
        for name in changed:
            own = name == "deepspeed_env"
            try:
                if wanted[name]:
                    _files.replace(
                        paths[name],
                        wanted[name],
                        mode=0o600 if own else 0o644,
                        owner=account.pw_uid if own else None,
                        group=account.pw_gid if own else None,
                    )
                else:
                    os.unlink(paths[name])
            except OSError as error:
                module.fail_json(msg=f"{host}: {paths[name]} could not be written ({error.strerror}); it is as it was")
    module.exit_json(
        changed=bool(changed),
        files=[paths[name] for name in changed],
        foreign=others,
        diff=[
            {"before_header": paths[name], "after_header": paths[name], "before": now[name], "after": wanted[name]}
            for name in changed
        ],
    )


if __name__ == "__main__":
    main()
