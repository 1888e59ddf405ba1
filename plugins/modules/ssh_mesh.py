#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_mesh
short_description: Let the training user of every member log in to every member
version_added: 0.1.0
description:
  - Writes one managed block each into C(authorized_keys), C(known_hosts) and C(~/.ssh/config) of the training user, and
    a drop-in for sshd. Everything else in these files is the user's own and stays.
  - The members come from the inventory group named by C(torchfleet_group), their keys from what
    M(torchfleet.cluster.ssh_identity) returned for each (role C(ssh_trust) registers it).
options:
  user:
    description: The training user of this node.
    type: str
    required: true
  peers:
    description: The members with their keys. Filled in from the inventory.
    type: list
    elements: dict
    default: []
  client_config:
    description: The members' entries for C(~/.ssh/config). Filled in from the inventory.
    type: str
    default: ""
  restrict_sources:
    description: Limit each member's key to the addresses of its own node.
    type: bool
    default: true
  max_startups:
    description: sshd's C(MaxStartups), as start:rate:full.
    type: str
    default: "200:30:400"
attributes:
  check_mode:
    support: full
    description: Nothing is written.
  diff_mode:
    support: full
    description: Shows every file that changes.
  action:
    support: full
    description: Reads the inventory on the controller.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Write the mesh
  torchfleet.cluster.ssh_mesh:
    user: root
"""

RETURN = r"""
files:
  description: The files that this call changed.
  returned: success
  type: list
  elements: str
  sample: [/root/.ssh/authorized_keys]
members:
  description: The names of all members.
  returned: success
  type: list
  elements: str
  sample: [node1, node2]
"""

import os
import pwd
import socket
import stat

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _managed_block, _ssh_trust

DROP_IN = "/etc/ssh/sshd_config.d/10-torchfleet.conf"
SSHD_CONFIG = "/etc/ssh/sshd_config"


def peer(raw: dict) -> _ssh_trust.Peer:
    return _ssh_trust.Peer(
        name=raw["name"],
        aliases=tuple(raw.get("aliases") or ()),
        address=raw["address"],
        port=int(raw["port"]),
        public_key=raw["public_key"],
        host_keys=tuple(raw["host_keys"]),
        addresses=tuple(raw["addresses"]),
    )


def sshd_file(max_startups: str) -> tuple[str, str, str]:
    """Path, text now and text wanted of the file that raises MaxStartups."""
    wanted = _ssh_trust.sshd_config(max_startups)
    main = _files.read(SSHD_CONFIG)
    included = any(line.split()[:1] == ["Include"] and "sshd_config.d" in line for line in main.splitlines())
    if included and os.path.isdir(os.path.dirname(DROP_IN)):
        return DROP_IN, _files.read(DROP_IN), wanted
    # sshd takes the first value it reads.
    return SSHD_CONFIG, main, _managed_block.replace(main, wanted, first=True)


def reload_sshd(module: AnsibleModule, sshd: str) -> None:
    systemctl = module.get_bin_path("systemctl")
    if systemctl and os.path.isdir("/run/systemd/system"):
        for unit in ("ssh.service", "sshd.service"):
            if module.run_command([systemctl, "is-active", "--quiet", unit])[0] == 0:
                module.run_command([systemctl, "reload", unit], check_rc=True)
                return
    pid = _files.read("/run/sshd.pid").strip()
    if pid.isdigit():
        os.kill(int(pid), 1)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "peers": {"type": "list", "elements": "dict", "default": []},
            "client_config": {"type": "str", "default": ""},
            "restrict_sources": {"type": "bool", "default": True},
            "max_startups": {"type": "str", "default": "200:30:400"},
        },
        supports_check_mode=True,
    )
    host = socket.gethostname()
    account = pwd.getpwnam(module.params["user"])
    folder = os.path.join(account.pw_dir, ".ssh")
    try:
        peers = [peer(raw) for raw in module.params["peers"]]
        blocks = {
            "authorized_keys": (_ssh_trust.authorized_keys(peers, module.params["restrict_sources"]), False, 0o600),
            "known_hosts": (_ssh_trust.known_hosts(peers), False, 0o644),
            "config": (_ssh_trust.client_config(module.params["client_config"]), True, 0o600),
        }
        sshd_path, sshd_now, sshd_wanted = sshd_file(module.params["max_startups"])
    except ValueError as error:
        module.fail_json(msg=f"{host}: {error}")

    # Written as root: a link of the user's must not lead to a file of somebody else.
    for path in (folder, *(os.path.join(folder, name) for name in blocks)):
        if os.path.islink(path) and not (os.path.exists(path) and os.stat(path).st_uid == account.pw_uid):
            module.fail_json(
                msg=f"{host}: {path} is a link to {os.path.realpath(path)}, "
                f"not {account.pw_name}'s own: remove the link"
            )
    changes = []
    for name, (body, first, mode) in blocks.items():
        path = os.path.join(folder, name)
        now = _files.read(path)
        wanted = _managed_block.replace(now, body, first=first)
        right = os.path.exists(path) and stat.S_IMODE(os.stat(path).st_mode) & 0o022 == 0
        if wanted != now or not right:
            changes.append((path, now, wanted, mode))
    folder_right = os.path.isdir(folder) and stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    home_mode = stat.S_IMODE(os.stat(account.pw_dir).st_mode)
    if home_mode & 0o022:
        # sshd's StrictModes would ignore every key below it.
        module.fail_json(
            msg=f"{host}: {account.pw_dir} has mode {home_mode:04o}, wanted no write for group and others, "
            f"or sshd refuses its keys: chmod go-w {account.pw_dir}"
        )
    changed = bool(changes) or not folder_right or sshd_now != sshd_wanted
    if changed and not module.check_mode:
        try:
            if not folder_right:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                os.chmod(folder, 0o700)
                os.chown(folder, account.pw_uid, account.pw_gid)
            for path, _now, wanted, mode in changes:
                _files.replace(path, wanted, mode=mode, owner=account.pw_uid, group=account.pw_gid)
            if sshd_now != sshd_wanted:
                existed = os.path.exists(sshd_path)
                _files.replace(sshd_path, sshd_wanted)
                sshd = module.get_bin_path("sshd", True, ["/usr/sbin", "/sbin"])
                code, _out, err = module.run_command([sshd, "-t"])
                if code:
                    if existed:
                        _files.replace(sshd_path, sshd_now)
                    else:
                        os.unlink(sshd_path)
                    module.fail_json(
                        msg=f"{host}: sshd refuses its configuration ({err.strip()}); {sshd_path} is as it was"
                    )
                reload_sshd(module, sshd)
        except OSError as error:
            module.fail_json(msg=f"{host}: {error.filename} could not be written ({error.strerror}); it is as it was")
    if sshd_now != sshd_wanted:
        changes.append((sshd_path, sshd_now, sshd_wanted, 0))
    module.exit_json(
        changed=changed,
        files=[change[0] for change in changes],
        members=[member.name for member in peers],
        diff=[
            {"before_header": path, "after_header": path, "before": now, "after": wanted}
            for path, now, wanted, _mode in changes
        ],
    )


if __name__ == "__main__":
    main()
