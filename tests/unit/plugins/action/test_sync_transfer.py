"""Who is given up by its follower, so that nobody waits for a node that stands still or crawls."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.action.sync_transfer import STILL, ActionModule

MIB = 1 << 20


@pytest.fixture
def follower(tmp_path):
    found = ActionModule.__new__(ActionModule)
    found._name, found._needy, found._folder, found._patience = "n1", ["n1", "n2", "n3"], tmp_path, 60.0
    found._alone, found._moved = 0.0, (0.0, -1)
    return found


def after(follower, seconds, got, rate=0.0):
    return follower._left_behind({"need": 100 * MIB, "got": got}, rate, seconds)


@pytest.mark.parametrize(
    ("others", "rate", "given_up"),
    [
        ({"n2": "end", "n3": "end"}, 0.0, True),
        ({"n2": "end", "n3": "still"}, 0.0, True),
        ({"n2": "end"}, 0.0, False),
        ({}, 0.0, False),
        ({"n2": "end", "n3": "end"}, 1.0 * MIB, True),
        ({"n2": "end", "n3": "end"}, 10.0 * MIB, False),
    ],
    ids=["frozen", "two frozen", "one underway", "all underway", "slow", "soon there"],
)
def test_who_would_keep_all_others_waiting_is_given_up(follower, others, rate, given_up):
    for name, word in others.items():
        (follower._folder / f"{name}.{word}").touch()
    assert not after(follower, 1, 0, rate)
    assert after(follower, 32, 0, rate) == given_up


@pytest.mark.parametrize(("seconds", "still"), [(STILL - 1, False), (STILL + 1, True)])
def test_one_that_stands_still_says_so_to_the_other_followers_and_alone_is_given_up(follower, seconds, still):
    assert not after(follower, 0, MIB)
    after(follower, seconds, MIB)
    assert (follower._folder / "n1.still").exists() == still
    after(follower, seconds + 1, 2 * MIB)
    assert not (follower._folder / "n1.still").exists()
    follower._needy = ["n1"]
    assert after(follower, 2 * seconds + 1, 2 * MIB) == still
