# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Entries for ssh's client configuration, so that a launcher's bare `ssh NAME` or `ssh ADDRESS` reaches every member.

pdsh, mpirun and `colossalai run` have no options for the user, the port and the key of each host: these lines are
the only way to tell them. Host keys are always checked.
"""

from __future__ import annotations

import re
from typing import List, Optional

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster, ClusterError, Node

HEADER = "# Rendered by torchfleet.cluster from the inventory. Changes made here are overwritten.\n"

# What ssh takes as it stands: no blank or quote (they would split), no '%' (a token since OpenSSH 9.8).
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?\Z")


def render(cluster: Cluster, identity_file: Optional[str] = None) -> str:
    """The entries of all members, in launch order. `identity_file` is a path that may begin with `~/`.

    Raises ClusterError with every problem found.
    """
    problems = [problem for node in cluster.nodes for problem in _user_problems(node)]
    if identity_file is not None:
        problems += _identity_problems(identity_file)
    if problems:
        raise ClusterError(problems)
    return HEADER + "".join("\n" + _entry(node, identity_file) for node in cluster.nodes)


def _entry(node: Node, identity_file: Optional[str]) -> str:
    lines = [
        f"Host {' '.join(dict.fromkeys([node.name, *node.aliases, node.address]))}",
        f"    HostName {_percent(node.address)}",
        f"    User {node.ssh_user}",
        f"    Port {node.ssh_port}",
    ]
    if identity_file is not None:
        # Other keys of an agent are not tried first: sshd ends the connection after six (MaxAuthTries).
        lines += [f'    IdentityFile "{_percent(identity_file)}"', "    IdentitiesOnly yes"]
    lines.append("    StrictHostKeyChecking yes")
    return "\n".join(lines) + "\n"


def _percent(text: str) -> str:
    """ssh expands %-tokens in these values; `%%` is one percent sign."""
    return text.replace("%", "%%")


def _user_problems(node: Node) -> List[str]:
    if _USER.match(node.ssh_user):
        return []
    return [f"{node.name}: the ssh user is {node.ssh_user!r}, wanted a plain login name: set torchfleet_user"]


def _identity_problems(path: str) -> List[str]:
    problems = []
    if not path.startswith(("/", "~/")):
        problems.append(f"identity_file is {path!r}, wanted an absolute path or one that begins with ~/")
    # ssh has no spelling for these that holds in all of its releases: ${X} is a variable, quotes end the value.
    bad = [shown for shown, part in (('"', '"'), ("\\", "\\"), ("${", "${")) if part in path]
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        bad.append("a control character")
    if bad:
        problems.append(f"identity_file {path!r} contains {' and '.join(bad)}, which ssh cannot be told: rename it")
    return problems
