# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.members_outside import members_outside

MEMBERS = ["n1", "n2", "n3", "n4", "n5"]


@pytest.mark.parametrize(
    ("still_in", "in_play", "shares"),
    [
        (MEMBERS, MEMBERS, {"n1": [], "n5": []}),
        (["n5"], ["n5"], {"n5": ["n1", "n2", "n3", "n4"]}),
        (["n2", "n5"], ["n2", "n5"], {"n2": ["n1", "n4"], "n5": ["n3"]}),
        # n2 has failed: the play knew of it, and nobody speaks for it.
        (["n5"], ["n2", "n5"], {"n5": ["n1", "n3", "n4"]}),
        # A host of the play that is no member takes its share, too.
        (["other", "n1"], ["other", "n1"], {"other": ["n2", "n4"], "n1": ["n3", "n5"]}),
    ],
)
def test_each_member_outside_falls_to_one_host(
    still_in: list[str], in_play: list[str], shares: dict[str, list[str]]
) -> None:
    assert {host: members_outside(MEMBERS, host, still_in, in_play) for host in shares} == shares
