# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _sync

NAMES = {"h1": "n1", "h2": "n2", "h3": "n3"}


def plans(*states: str) -> dict[str, dict[str, object]]:
    return {f"h{i}": {"python": "python3", "plan": {"state": s, "root": "/r"}} for i, s in enumerate(states, 1)}


@pytest.mark.parametrize(
    ("host", "states", "source", "trusted", "parents", "spool"),
    [
        ("h1", ("planned", "planned", "planned"), None, True, [], True),
        ("h3", ("planned", "planned", "planned"), None, True, ["n2", "n1"], True),
        ("h2", ("current", "planned", "planned"), None, True, ["n1"], True),
        ("h3", ("planned", "planned", "planned"), None, False, [], True),
        ("h2", ("current", "planned", "planned"), None, False, [], True),
        ("h3", ("current", "planned", "planned"), "h1", True, ["n2", "n1", "n1"], False),
    ],
)
def test_where_a_nodes_data_comes_from(
    host: str, states: tuple[str, ...], source: str | None, trusted: bool, parents: list[str], spool: bool
) -> None:
    way = _sync.way(host, plans(*states), {"host": source, "path": "/source"}, NAMES, trusted)
    assert ([parent["name"] for parent in way["parents"]], way["spool"]) == (parents, spool)


@pytest.mark.parametrize(
    ("status", "rate", "line"),
    [
        (
            {"need": 8 << 20, "got": 2 << 20, "source": "n1"},
            2 << 20,
            "n2:  25 % of 8.0 MiB, 2.0 MiB/s, 3 s left, from n1",
        ),
        ({"need": 3 << 30, "got": 3 << 29, "source": ""}, 512 << 10, "n2:  50 % of 3.0 GiB, 512.0 KiB/s, 3072 s left"),
        ({"need": 1000, "got": 0, "source": "n1"}, 0, "n2:   0 % of 1000 B, 0 B/s, standing still, from n1"),
        ({"need": 0, "got": 0}, 10, "n2: 100 % of 0 B, 10 B/s, 0 s left"),
    ],
)
def test_the_line_of_a_node_says_how_fast_and_how_long_yet(status: dict[str, object], rate: float, line: str) -> None:
    assert _sync.progress("n2", status, rate) == line
