# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._run_list import age, pick, table, views

GOOD = {"code": 0, "signal": None}
LAUNCH = {"plan": {"nodes": [{"node": "n1"}, {"node": "n2"}]}}


def told(state: str = "exited", run_id: str = "r1", **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"exit": GOOD if state == "exited" else None, "ranks": {}, "stop": "", "launch": None}
    return {"run_id": run_id, "user": "ml", "state": state, "started": 100.0, **base, **more}


def rank(number: int, ended: float, code: int | None = None, signal: int | None = None) -> dict[str, Any]:
    return {f"rank-{number}": {"rank": number, "exit": {"code": code, "signal": signal, "ended": ended}}}


@pytest.mark.parametrize(
    ("one", "two", "state", "sentence"),
    [
        (told(), told(), "succeeded", ""),
        (told("running"), told("running"), "running", ""),
        (told("starting"), told("running"), "running", ""),
        (told(), told("running"), "running", "over on n1"),
        (told("running", ranks=rank(0, 5, code=3)), told("running"), "running", "rank 0 on n1: exit status 3"),
        (told("lost"), told(), "lost", "its supervisor was killed on n1"),
        (told("lost"), told("running"), "running", "over on n1"),
        (told(exit={"code": 1, "signal": None}), told(), "failed", "the launcher on n1: exit status 1"),
        (told(exit={"code": None, "signal": 15}), told(), "failed", "the launcher on n1: killed by SIGTERM"),
        (told(exit={"code": 1, "timed_out": True}), told(), "failed", "ended by its time limit"),
        # Of two that failed, the first; why it was ended outweighs both.
        (told(ranks=rank(0, 9, signal=6)), told(ranks=rank(1, 8, code=17)), "failed", "rank 1 on n2: exit status 17"),
        (told(stop="ended by ann"), told(ranks=rank(1, 8, signal=15)), "failed", "ended by ann"),
        (
            told(stop="ended by ann", stop_time=20.0),
            told(stop="ended by ann", stop_time=20.5, ranks=rank(1, 8, code=17)),
            "failed",
            "rank 1 on n2: exit status 17; then ended by ann",
        ),
        (told(stop="ended by ann", stop_time=8.5), told(ranks=rank(1, 8, code=1)), "failed", "ended by ann"),
        (
            told("private"),
            told("private"),
            "private",
            "another user's run: look at it as that user, or as root",
        ),
        (told("private"), told(), "succeeded", ""),
    ],
)
def test_a_run_over_its_nodes(one: Any, two: Any, state: str, sentence: str) -> None:
    (view,) = views({"n1": [one], "n2": [two]})
    assert (view.run_id, view.user, view.nodes) == ("r1", "ml", ("n1", "n2"))
    if state == "succeeded" and one["state"] == "private":
        return
    assert (view.state, view.sentence) == (state, sentence)


@pytest.mark.parametrize(
    ("state", "sentence"), [("running", "no word of n2"), ("lost", "its supervisor was killed on n1; no word of n2")]
)
def test_a_node_that_says_nothing_is_named(state: str, sentence: str) -> None:
    (view,) = views({"n1": [told(state, launch=LAUNCH)]})
    assert (view.silent, view.sentence, view.launch) == (("n2",), sentence, LAUNCH)


def test_a_node_that_was_not_asked_is_not_silent() -> None:
    (view,) = views({"n1": [told("running", launch=LAUNCH)]}, {"n2", "n3"})
    assert (view.silent, view.outside, view.sentence) == ((), ("n2",), "not asked: n2")


def test_runs_on_other_nodes_are_apart_and_the_newest_comes_first() -> None:
    seen = views({"n1": [told(run_id="old", started=1.0)], "n2": [told("running", run_id="new", started=2.0)]})
    assert [(view.run_id, view.nodes) for view in seen] == [("new", ("n2",)), ("old", ("n1",))]
    assert views({"n1": [], "n2": []}) == []


RUNNING = {
    "n1": [told("running", run_id="a", started=3.0), told(run_id="b", started=1.0), told(run_id="c", started=2.0)]
}


@pytest.mark.parametrize(
    ("reports", "wanted", "running", "found"),
    [
        (RUNNING, "", False, "a"),
        (RUNNING, "", True, "a"),
        (RUNNING, "c", True, "c"),
        ({"n1": RUNNING["n1"][1:]}, "", False, "c"),
        ({"n1": RUNNING["n1"][1:]}, "", True, "no run is running"),
        ({}, "", False, "no node knows of any run"),
        (RUNNING, "d", False, "there is no run 'd' on the nodes: status.yml lists those that are there"),
        (
            {**RUNNING, "n2": [told("running", run_id="e")]},
            "",
            False,
            "several runs are there: choose one with -e run_id=..., of e (ml, running), a (ml, running)",
        ),
    ],
)
def test_which_run_is_meant(reports: Any, wanted: str, running: bool, found: str) -> None:
    if " " not in found:
        assert pick(views(reports), wanted, running).run_id == found
        return
    with pytest.raises(ValueError) as error:
        pick(views(reports), wanted, running)
    assert str(error.value) == found


def test_the_table_has_those_that_run_first_and_not_all_of_the_others() -> None:
    old = [told(run_id=f"old{number}", started=200.0 - number) for number in range(20)]
    lines = table(views({"n1": [*old, told("running", run_id="up", started=40.0)]}), 100.0 + 65, limit=2)
    assert [line.split()[0] for line in lines] == ["RUN", "up", "old0", "old1"]
    assert lines[1] == "up    ml    running    2 min 5 s  n1"


def test_many_nodes_are_counted() -> None:
    (view,) = views({f"n{number}": [told("running")] for number in range(6)})
    assert "n0 and 5 others" in table([view], 0)[1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (7260, "2 h 1 min"),
        (90000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_a_time_span_in_words(seconds: float, words: str) -> None:
    assert age(1000.0, 1000.0 + seconds) == words


def test_what_never_began_has_no_age() -> None:
    assert age(None, 5.0) == "?"
