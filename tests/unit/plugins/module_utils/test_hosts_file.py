# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _managed_block
from ansible_collections.torchfleet.cluster.plugins.module_utils._hosts_file import (
    Conflict,
    conflicts,
    local_addresses,
    ownership_problem,
    render_block,
    update,
)

MEMBERS: list[dict[str, Any]] = [
    {"name": "n1", "address": "10.0.0.1", "aliases": ["left"]},
    {"name": "n2.example.org", "address": "FD00:0::2"},
]
BLOCK = "# BEGIN torchfleet.cluster\n10.0.0.1\tn1 left\nfd00::2\tn2.example.org\n# END torchfleet.cluster\n"


def test_the_block_has_a_line_per_member() -> None:
    assert render_block(MEMBERS) == "10.0.0.1\tn1 left\nfd00::2\tn2.example.org\n"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        # Installers' traps.
        ("127.0.1.1\tn1\n", ""),
        ("127.0.1.1 n1.example.org n1\n", ""),
        ("127.0.1.1\tdebian\n", ""),
        ("127.0.1.1 debian.example.org debian # by the installer\n", ""),
        ("127.0.0.1 localhost n1\n", "127.0.0.1\tlocalhost\n"),
        ("127.0.0.1 localhost n1 # both\n", "127.0.0.1\tlocalhost # both\n"),
        ("127.0.0.1 localhost n1\r\n", "127.0.0.1\tlocalhost\r\n"),
        ("127.0.0.1 localhost n1", "127.0.0.1\tlocalhost"),
        ("127.0.1.1 left\n", ""),
        ("127.0.1.1 N1\n", ""),
        ("127.0.1.1 n2.example.org\n", ""),
        ("127.8.9.10 n1 printer\n", "127.8.9.10\tprinter\n"),
        ("::1 localhost ip6-localhost n1 debian\n", "::1\tlocalhost ip6-localhost\n"),
        ("  127.0.1.1   n1\n", ""),
        # The user's own.
        ("127.0.0.1 localhost\n", None),
        ("127.0.0.1   localhost localhost.localdomain localhost4 localhost4.localdomain4\n", None),
        ("::1 ip6-localhost ip6-loopback localhost6 localhost6.localdomain6\n", None),
        ("127.0.0.1 n10 n1x xn1 x.n1 mirror\n", None),
        ("# 127.0.1.1 n1\n", None),
        ("127.0.0.1 mirror # not n1\n", None),
        ("10.9.9.9 other\n", None),
        ("10.0.0.1 n1\n", None),
        ("ff02::1 ip6-allnodes\n", None),
        ("fe80::1%lo0 n10\n", None),
        ("127.0.0.1\n", None),
        ("nonsense\n", None),
        ("\n", None),
        (" \t# indented\x0c 127.0.0.1 n1\n", None),
    ],
)
def test_loopback_lines_lose_our_names_and_nothing_else(line: str, left: str | None) -> None:
    own = ["n1", "debian"]
    wanted = line if left is None else left
    assert update(line, MEMBERS, own) == BLOCK + wanted
    around = f"# top\n\n{line if line.endswith(chr(10)) else line + chr(10)}10.7.7.7\ttail # mine"
    after = wanted if not wanted or wanted.endswith("\n") else wanted + "\n"
    assert update(around, MEMBERS, own) == f"{BLOCK}# top\n\n{after}10.7.7.7\ttail # mine"


@pytest.mark.parametrize("previous", ["localhost", "localhost.localdomain", "localhost6.localdomain6", ""])
def test_a_machine_that_was_called_localhost_keeps_its_localhost(previous: str) -> None:
    stock = "127.0.0.1 localhost localhost.localdomain\n::1 localhost6 localhost6.localdomain6\n"
    assert update(stock, MEMBERS, ["n1", previous]) == BLOCK + stock


def test_an_old_block_moves_to_the_top_where_the_first_match_wins() -> None:
    old = "127.0.0.1 localhost\n# BEGIN torchfleet.cluster\n10.0.0.9\tn1\n# END torchfleet.cluster\n10.7.7.7 mine\n"
    assert update(old, MEMBERS, ["n1"]) == BLOCK + "127.0.0.1 localhost\n10.7.7.7 mine\n"


TEXT = f"""\
127.0.0.1 localhost
{BLOCK}\
10.9.9.9 n1 mine    # an old one
# 10.9.9.8 n1
10.0.0.1 n1
fd00:0:0::2 N2.Example.Org
10.9.9.7 LEFT
fe80::7%eth0 n1
"""


def test_conflicts_have_the_numbers_of_the_files_lines() -> None:
    assert conflicts(TEXT, MEMBERS) == [
        Conflict(6, "n1", "10.9.9.9", "10.0.0.1"),
        Conflict(10, "LEFT", "10.9.9.7", "10.0.0.1"),
        Conflict(11, "n1", "fe80::7%eth0", "10.0.0.1"),
    ]


def test_conflicts_are_replaced_only_when_asked_for() -> None:
    assert update(TEXT, MEMBERS, ["n1"]) == BLOCK + TEXT.replace(BLOCK, "")
    assert update(TEXT, MEMBERS, ["n1"], replace_conflicts=True) == (
        BLOCK
        + "127.0.0.1 localhost\n10.9.9.9\tmine # an old one\n# 10.9.9.8 n1\n10.0.0.1 n1\nfd00:0:0::2 N2.Example.Org\n"
    )


def test_a_torn_block_hides_no_conflict() -> None:
    torn = f"{_managed_block.BEGIN}\n10.0.0.1 n1\n10.9.9.9 n1\n"
    assert [clash.line for clash in conflicts(torn, MEMBERS)] == [3]
    assert update(torn, MEMBERS, ["n1"], replace_conflicts=True) == BLOCK + "10.0.0.1 n1\n"


def test_our_own_block_is_no_conflict_however_old() -> None:
    assert conflicts(update("", [{"name": "n1", "address": "10.9.9.9"}], ["n1"]), MEMBERS) == []


LOOPBACK = ["127.0.0.1", "127.0.1.1", "::1"]
ADDRESSES = [*LOOPBACK, "10.0.0.1", "10.9.9.9", "fd00::2", "fe80::1%eth0", "#", "junk"]
NAMES = ["localhost", "n1", "N1", "n1.example.org", "n2.example.org", "n2", "left", "debian", "mine", "# n1"]
EXTRA = ["\n", "# BEGIN torchfleet.cluster\n", "# END torchfleet.cluster\n", "\x0c\n"]


@pytest.mark.parametrize("replace_conflicts", [False, True])
def test_the_second_update_changes_nothing(replace_conflicts: bool) -> None:
    for seed in range(500):
        chance = random.Random(seed)
        lines = [
            f"{chance.choice(ADDRESSES)} {' '.join(chance.choices(NAMES, k=chance.randrange(4)))}\n" for _ in range(6)
        ]
        text = "".join(chance.sample(lines + EXTRA, 8)) + chance.choice(["", "10.7.7.7 tail"])
        once = update(text, MEMBERS, ["n1", "debian"], replace_conflicts)
        assert update(once, MEMBERS, ["n1"], replace_conflicts) == once, seed
        assert once.startswith(BLOCK), seed
        assert not (replace_conflicts and conflicts(once, MEMBERS)), seed
        for line in once[len(BLOCK) :].splitlines():
            address, *names = line.partition("#")[0].lower().split() or [""]
            assert not (address in LOOPBACK and {"n1", "n2.example.org", "left", "debian"} & set(names)), seed


IP_JSON = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "scope": "host"}, {"local": "::1", "scope": "host"}]},
        {
            "ifname": "eth1",
            "addr_info": [
                {"local": "10.0.0.1", "scope": "global", "prefixlen": 24},
                {"local": "FD00::1", "scope": "global"},
                {"local": "fe80::5", "scope": "link"},
                {},
            ],
        },
        {"ifname": "wg0"},
    ]
)


def test_local_addresses_are_those_that_peers_can_use_and_loopback() -> None:
    assert local_addresses(IP_JSON) == {"127.0.0.1": "lo", "::1": "lo", "10.0.0.1": "eth1", "fd00::1": "eth1"}
    assert local_addresses("") == local_addresses("[]") == {}


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00:0::1"])
def test_an_address_the_node_owns(address: str) -> None:
    assert ownership_problem("n1", address, local_addresses(IP_JSON)) is None


@pytest.mark.parametrize(("ip_json", "owned"), [(IP_JSON, "10.0.0.1 on eth1, fd00::1 on eth1"), ("[]", "none")])
def test_an_address_the_node_does_not_own_names_those_it_has(ip_json: str, owned: str) -> None:
    problem = ownership_problem("n1", "10.0.0.7", local_addresses(ip_json))
    assert (
        problem == f"n1: torchfleet_address is 10.0.0.7, which this node does not own: set it to one it has ({owned})"
    )
