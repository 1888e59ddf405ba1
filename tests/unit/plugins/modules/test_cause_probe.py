# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every probe is really answered by a look at this machine."""

from __future__ import annotations

import socket
import subprocess
from types import SimpleNamespace

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis import _confirm
from ansible_collections.torchfleet.cluster.plugins.modules import cause_probe


class Module(SimpleNamespace):
    """What of AnsibleModule the probes use."""

    def get_bin_path(self, name, opt_dirs=()):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=False).stdout.strip()
        return found or None

    def run_command(self, argv, **_options):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
        return done.returncode, done.stdout, done.stderr


def node(**params):
    given = {
        "peers": [],
        "interface": "lo",
        "master_port": 29500,
        "run_id": "none-such",
        "user": "root",
        "python": "/opt/none/bin/python",
        "paths": ["/", "/none"],
        "timeout": 1,
    }
    return cause_probe.Node(Module(params={**given, **params}))


def test_readers_and_judges_are_the_same():
    assert set(node().readers()) == set(_confirm.IDS)


@pytest.mark.parametrize("probe", sorted(set(_confirm.IDS) - {"tcp_port_taken"}))
def test_every_probe_gives_an_answer(probe):
    parameters = {
        "interface": "lo",
        "name": "localhost",
        "host": "127.0.0.1",
        "port": "9",
        "path": "sh",
        "library": "libc",
    }
    reading = node().readers()[probe](parameters)
    holds, sentence = _confirm.judge(probe, parameters, reading)
    assert holds in (True, False, None)
    assert isinstance(sentence, str)


def test_how_a_connection_fails_is_told_apart():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        # Bound and not listening: refused, so the path is free.
        assert node().connect("127.0.0.1", port) == "refused"
        held.listen()
        assert node().connect("127.0.0.1", port) == "open"
    assert node().connect("no-such-host.invalid", 22) == "unreachable"


def test_peers_are_tried_at_their_own_ssh_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        peers = [{"name": "n2", "address": "127.0.0.1", "port": held.getsockname()[1]}]
        assert node(peers=peers).places({"host": "n2"}) == {"places": {"n2": "open"}}
        assert node(peers=peers).places({}) == {"places": {"127.0.0.1": "open"}}


def test_a_path_is_looked_for_as_the_launcher_would():
    told = node().paths({"path": "sh, /no/such/python, no-such-command"})
    assert told == {"paths": {"sh": True, "/no/such/python": False, "no-such-command": False}}
