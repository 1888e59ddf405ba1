# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Logging in to members as the training user, the way launchers do: no terminal, no password, the peer's login shell.

Runs on nodes: Python 3.8, standard library.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._account import becoming
from ansible_collections.torchfleet.cluster.plugins.module_utils._system import ssh_problem

# All members do this at the same time, and a handshake costs both sides. Above 10 that have not logged in yet, sshd
# turns new ones away at random (MaxStartups).
PARALLEL = 4
TURNED_AWAY = ("connection reset", "connection closed by", "kex_exchange_identification")
# OpenSSH 9 prefers sntrup761, whose keys cost the client 50 ms of CPU at each login (62 ms, 10 ms with curve25519).
# `^` puts it in front of the others: where it is switched off they serve.
KEY_EXCHANGE = "KexAlgorithms=^curve25519-sha256"
NO_ANSWER = 124
NOT_RUN = 126


class Login(NamedTuple):
    """What a peer answered: `why` is empty where the login worked, `out` the script's output."""

    out: str
    why: str


def as_user(account: pwd.struct_passwd, command: Sequence[str], seconds: float) -> Tuple[int, str, str]:
    """Exit status, output and errors of a command with the training user's rights: root runs nothing of that user's."""

    env = {"HOME": account.pw_dir, "USER": account.pw_name, "LC_ALL": "C.UTF-8", "PATH": os.defpath}
    try:
        # Not run_command, which becomes nobody else and knows no time limit.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, env=env,
            cwd="/", preexec_fn=becoming(account), check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return NO_ANSWER, "", f"no answer: timed out after {seconds:.0f} s"
    except FileNotFoundError:
        return NOT_RUN, "", f"there is no {command[0]} on this node"
    except (OSError, subprocess.SubprocessError) as error:
        return NOT_RUN, "", str(error)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def in_turn(peers: Sequence[str], own: str) -> List[str]:
    """From the one after this node on, so that not all begin with the same."""
    start = peers.index(own) + 1 if own in peers else 0
    return [*peers[start:], *peers[:start]]


def log_in(account: pwd.struct_passwd, peer: str, timeout: int, script: str = "true") -> Login:
    """Once, and once more where the peer was too busy to answer or turned this node away."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout}", "-o", KEY_EXCHANGE]
    login = Login("", "")
    for _time in range(2):
        code, out, err = as_user(account, ["ssh", "-n", *options, "--", peer, script], timeout + 5)
        login = Login(out, ssh_problem(err, code) if code else "")
        if code != NO_ANSWER and not any(words in login.why.lower() for words in TURNED_AWAY):
            break
    return login


def log_in_to_all(
    user: str,
    peers: Sequence[str],
    timeout: int,
    script: str = "true",
    log_in: Callable[[pwd.struct_passwd, str, int, str], Login] = log_in,
) -> Dict[str, Login]:
    """Every peer's answer, itself included, PARALLEL at a time."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return {peer: Login("", f"there is no user {user} on this node") for peer in peers}
    order = in_turn(peers, socket.gethostname())
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return dict(zip(order, pool.map(lambda peer: log_in(account, peer, timeout, script), order)))
