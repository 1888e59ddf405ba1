# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import getpass
import os

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _managed_block
from ansible_collections.torchfleet.cluster.plugins.modules import member_firewall

HOSTS = _managed_block.replace("127.0.0.1 localhost\n", "10.0.0.1 n1\n10.0.0.2 n2\n10.0.0.3 n3\n")
KEYS = _managed_block.replace(
    "",
    'from="10.0.0.2,192.0.2.2,192.0.2.9" ssh-ed25519 AAAA torchfleet:n2\n'
    'from="10.0.0.3,192.0.2.9" ssh-ed25519 AAAA torchfleet:n3\n',
)


@pytest.mark.parametrize(
    ("prune", "known", "user", "kept"),
    [
        (True, [], "", set()),
        (False, [], "", {"10.0.0.2", "10.0.0.3", "192.0.2.2", "192.0.2.9", "192.0.2.7"}),
        # n2 has moved. One of its addresses is n3's, too, and one nobody's.
        (False, ["n2"], "", {"10.0.0.3", "192.0.2.9", "192.0.2.7"}),
        (False, ["n2"], "no such user", {"10.0.0.3", "192.0.2.2", "192.0.2.9", "192.0.2.7"}),
        (False, ["newcomer"], "", {"10.0.0.2", "10.0.0.3", "192.0.2.2", "192.0.2.9", "192.0.2.7"}),
    ],
)
def test_what_is_open_and_stays_so(
    monkeypatch: pytest.MonkeyPatch, prune: bool, known: list[str], user: str, kept: set[str]
) -> None:
    texts = {"/etc/hosts": HOSTS, os.path.expanduser("~/.ssh/authorized_keys"): KEYS}
    monkeypatch.setattr(member_firewall._files, "read", lambda path: texts.get(path, ""))
    now = frozenset({"10.0.0.2", "10.0.0.3", "192.0.2.2", "192.0.2.9", "192.0.2.7"})
    params = {"members": ["10.0.0.5"], "ports": [], "prune": prune, "known": known, "user": user or getpass.getuser()}
    assert member_firewall.wanted_opening(now, params).members == kept | {"10.0.0.5"}
