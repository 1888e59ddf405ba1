# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Job, LaunchPlan, build_cluster
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import plan
from ansible_collections.torchfleet.cluster.plugins.module_utils._outcome import (
    NodeEnd,
    RankEnd,
    how,
    judge,
    node_end,
    world_problems,
)

CLUSTER = build_cluster([{"name": "n1", "address": "10.0.0.1", "slots": 2}, {"name": "n2", "address": "10.0.0.2"}])
PLAN: LaunchPlan = plan(CLUSTER, Job(run_id="r", run_dir="/r", workdir="/w", script="t.py"))
HOME = {0: "n1", 1: "n1", 2: "n2"}


def end(rank: int | None, code: int | None = 0, at: float = 10.0, **more: Any) -> RankEnd:
    fields: dict[str, Any] = {"node": HOME.get(rank or 0, "n1"), "world_size": 3, "started": 1.0, "ended": at, **more}
    return RankEnd(rank=rank, code=code, **fields)


def running(rank: int, **more: Any) -> RankEnd:
    return end(rank, None, ended=None, **more) if more else dataclasses.replace(end(rank, None), ended=None)


def killed(rank: int, number: int, at: float = 10.0) -> RankEnd:
    return end(rank, None, at, signal=number)


def node(name: str, *ranks: RankEnd, code: int | None = 0, **more: Any) -> NodeEnd:
    return NodeEnd(**{"node": name, "status": "exited", "code": code, "ended": 11.0, "ranks": ranks, **more})


def good() -> list[NodeEnd]:
    return [node("n1", end(0), end(1)), node("n2", end(2))]


def test_a_run_in_which_every_rank_ends_well_is_a_success() -> None:
    outcome = judge(PLAN, good())
    assert (outcome.ok, outcome.sentence, outcome.first, outcome.problems) == (
        True,
        "all 3 ranks ended with exit status 0",
        None,
        (),
    )


@pytest.mark.parametrize(
    ("nodes", "stop", "sentence", "first"),
    [
        pytest.param(
            [node("n1", end(0, 1, 12.0), killed(1, 15, 12.1), code=1), node("n2", end(2, 17, 11.9), code=1)],
            "rank 0 on n1 failed (exit status 1)",
            "rank 2 on n2 failed first: exit status 17",
            2,
            id="the first by time, not by rank or by who saw it",
        ),
        pytest.param(
            [node("n1", killed(0, 9), killed(1, 15, 11.0), code=1), node("n2", end(2, 1, 10.5), code=1)],
            "rank 0 on n1 failed (killed by SIGKILL)",
            "rank 0 on n1 failed first: killed by SIGKILL",
            0,
            id="killed by the kernel",
        ),
        pytest.param(
            [node("n1", killed(0, 15, 10.0), killed(1, 15, 10.1), code=1), node("n2", end(2, 3, 9.0), code=1)],
            "rank 2 on n2 failed (exit status 3)",
            "rank 2 on n2 failed first: exit status 3",
            2,
            id="ranks that we ended are echoes",
        ),
        pytest.param(
            [node("n1", killed(0, 15), killed(1, 15), code=143, stopped=True), node("n2", killed(2, 15), stopped=True)],
            "ended by SIGINT on the controller",
            "ended by SIGINT on the controller",
            None,
            id="Ctrl-C",
        ),
        pytest.param(
            [
                node("n1", killed(0, 9), end(1, 1), code=None, signal=9, stopped=True),
                node("n2", running(2), stopped=True),
            ],
            "ended by SIGINT on the controller",
            "ended by SIGINT on the controller",
            None,
            id="Ctrl-C, and ranks that do not end politely",
        ),
        pytest.param(
            [
                node("n1", killed(0, 15, 20.0), stopped=True, stop_ordered=19.9),
                node("n2", end(2, 1, 20.1), stop_ordered=20.2),
            ],
            "ended by ann with stop.yml",
            "ended by ann with stop.yml",
            None,
            id="ended, and a rank that fails from it before its own node is told",
        ),
        pytest.param(
            [
                node("n1", killed(0, 15, 20.0), stopped=True, stop_ordered=19.9),
                node("n2", killed(2, 6, 12.0), stop_ordered=19.5),
            ],
            "ended by the hang watch after 15 s without progress",
            "ended by the hang watch after 15 s without progress",
            None,
            id="a rank that the hang watch aborted for its stack",
        ),
        pytest.param(
            [
                node("n1", killed(0, 15, 20.0), killed(1, 15, 20.0), stopped=True, stop_ordered=19.9),
                node("n2", end(2, 17, 12.0), code=17, stop_ordered=19.5),
            ],
            "ended by ann with stop.yml",
            "rank 2 on n2 failed first: exit status 17; then ended by ann with stop.yml",
            2,
            id="ended when a rank had failed already",
        ),
        pytest.param(
            [
                node("n1", killed(0, 15), killed(1, 15), code=1),
                NodeEnd("n2", "unreachable", problem="n2 no longer answers: x"),
            ],
            "n2 no longer answers: x",
            "n2 no longer answers: x",
            0,
            id="a lost node, before the echoes of its peers",
        ),
        pytest.param(
            [node("n1", end(0, 1), end(1, 1), code=1), NodeEnd("n2", "lost")],
            "",
            "n2: lost",
            0,
            id="a killed supervisor",
        ),
        pytest.param(
            [
                node("n1", killed(0, 15), killed(1, 15)),
                NodeEnd("n2", "not_started", problem="n2: its part was not started: x"),
            ],
            "n2 did not start its part",
            "n2: its part was not started: x",
            0,
            id="a node that did not start",
        ),
        pytest.param(
            [node("n1", killed(0, 15), killed(1, 15), stopped=True, timed_out=True), node("n2", killed(2, 15))],
            "rank 0 on n1 failed (killed by SIGTERM)",
            "the run was ended by its time limit (launch_time_limit)",
            None,
            id="the time limit",
        ),
        pytest.param(
            [node("n1", code=1, problem="/w: No such file or directory"), node("n2", killed(2, 15))],
            "the launcher on n1 failed (exit status 1)",
            "n1: /w: No such file or directory",
            None,
            id="a launcher that could not start",
        ),
        pytest.param(
            [node("n1", end(0), end(1), code=1), node("n2", end(2))],
            "",
            "the launcher on n1 failed (exit status 1) although no rank did",
            None,
            id="a launcher that fails alone",
        ),
        pytest.param(
            [node("n1", killed(0, 15), killed(1, 15), code=1, stopped=True), node("n2", code=1)],
            "the launcher on n2 failed (exit status 1)",
            "the launcher on n2 failed (exit status 1)",
            None,
            id="a launcher that fails, and the run is ended elsewhere",
        ),
        pytest.param(
            [node("n1", running(0), killed(1, 15), code=1), node("n2", killed(2, 15), code=1, stopped=True)],
            "the launcher on n1 failed (exit status 1)",
            "rank 0 on n1 vanished without an exit status: its supervisor was killed too",
            0,
            id="a rank killed together with its supervisor",
        ),
        pytest.param(
            [
                node("n1", running(0), killed(1, 15), code=None, signal=9),
                node("n2", killed(2, 15), code=1, stopped=True),
            ],
            "the launcher on n1 failed (killed by SIGKILL)",
            "the launcher on n1 was killed by SIGKILL, and rank 0 with it",
            0,
            id="a launcher that is killed",
        ),
        pytest.param(
            [node("n1", running(0), running(1), code=None, signal=9, stopped=True), node("n2", end(2, 5), code=1)],
            "rank 2 on n2 failed (exit status 5)",
            "rank 2 on n2 failed first: exit status 5",
            2,
            id="ranks that we killed have no end either",
        ),
        pytest.param(
            [node("n1", end(0), end(1)), node("n2")],
            "",
            "the launcher reported success, but rank 2 never ran to its end",
            None,
            id="a rank that never came up",
        ),
        pytest.param(
            [node("n1", end(0), running(1)), node("n2", running(2))],
            "",
            "the launcher reported success, but rank 1, 2 never ran to its end",
            None,
            id="ranks that never ended",
        ),
        pytest.param([node("n1", end(0), end(1))], "", "n2: no report", None, id="a node nobody asked"),
        pytest.param(
            [node("n1", end(0, world_size=1), end(1, world_size=1)), node("n2", end(2, world_size=1))],
            "",
            "n1: rank 0 came up in a world of 1, planned was 3: the launcher started separate copies",
            None,
            id="separate copies, all of which end well",
        ),
        pytest.param(
            [node("n1", end(0), end(1)), node("n2", end(0, node="n2"))],
            "",
            "rank 0 came up twice: on n1 and on n2",
            None,
            id="the same rank twice",
        ),
        pytest.param(
            [node("n1", end(0), end(2, node="n1")), node("n2", end(1, node="n2"))],
            "",
            "rank 2 came up on n1, planned was n2",
            None,
            id="ranks dealt in another way",
        ),
        pytest.param(
            [node("n1", end(0), end(1), end(None, node="n1", world_size=None)), node("n2", end(2))],
            "",
            "n1: rank None came up, which was not planned",
            None,
            id="a process that is told no rank",
        ),
        pytest.param(
            [node("n1", end(0), end(1), end(7, node="n1")), node("n2", end(2))],
            "",
            "n1: rank 7 came up, which was not planned",
            None,
            id="a rank too many",
        ),
    ],
)
def test_a_run_that_failed_says_why_in_one_line(
    nodes: list[NodeEnd], stop: str, sentence: str, first: int | None
) -> None:
    outcome = judge(PLAN, nodes, stop)
    assert (outcome.ok, outcome.sentence) == (False, sentence)
    assert (outcome.first.rank if outcome.first else None) == first


@pytest.mark.parametrize("reverse", [False, True])
def test_the_order_in_which_nodes_report_does_not_matter(reverse: bool) -> None:
    nodes = [node("n1", end(0, 1, 12.0), end(1, 1, 12.5), code=1), node("n2", end(2, 17, 11.0), code=1)]
    outcome = judge(PLAN, nodes[::-1] if reverse else nodes)
    assert outcome.sentence == "rank 2 on n2 failed first: exit status 17"


def test_a_rank_that_left_before_the_failure_is_pointed_at() -> None:
    nodes = [node("n1", end(0, 0, 5.0), end(1, 1, 9.0), code=1), node("n2", end(2, 0, 9.5))]
    outcome = judge(PLAN, nodes)
    assert outcome.sentence == "rank 1 on n1 failed first: exit status 1"
    assert len(outcome.problems) == 1
    assert outcome.problems[0].startswith("rank 0 on n1 had left with exit status 0 before")


def test_a_node_that_the_head_starts_needs_a_report_too() -> None:
    by_head = dataclasses.replace(PLAN, nodes=(PLAN.nodes[0], dataclasses.replace(PLAN.nodes[1], argv=())))
    head = node("n1", end(0), end(1))
    assert judge(by_head, [head]).problems == ("n2: no report",)
    assert judge(by_head, [head, node("n2", end(2, node="n2"))]).ok


@pytest.mark.parametrize(
    ("ranks", "problems"),
    [
        ([end(0, local_rank=0), end(1, local_rank=1), end(2, local_rank=0)], []),
        ([end(0, local_rank=None), end(1, local_rank=None)], []),
        (
            [end(0, local_rank=0), end(1, local_rank=0)],
            ["rank 1 came up with local rank 0 on n1, planned was 1: it takes another rank's GPU"],
        ),
        ([end(0, devices="0,1"), end(1, devices="0,1")], []),
        ([end(0, devices="0"), end(1, devices="1"), end(2, devices="0")], []),
        ([end(0, devices=""), end(1, devices="")], []),
        ([end(0, devices="3"), end(1, devices="3")], ["ranks 0 and 1 on n1 both see GPU 3 alone"]),
    ],
)
def test_each_rank_has_a_device_of_its_own(ranks: list[RankEnd], problems: list[str]) -> None:
    assert world_problems(PLAN, ranks) == problems


def test_an_elastic_run_bears_the_loss_of_as_many_nodes_as_it_may() -> None:
    elastic = dataclasses.replace(PLAN, elastic=True, min_nodes=1)
    nodes = [
        node("n1", *(dataclasses.replace(end(rank), world_size=2) for rank in (0, 1))),
        NodeEnd("n2", "lost", problem="n2: gone"),
    ]
    assert judge(elastic, nodes).ok
    assert judge(elastic, nodes).problems == ("n2: gone",)
    assert not judge(dataclasses.replace(elastic, min_nodes=2), nodes).ok


def test_the_world_as_planned_has_no_problem() -> None:
    assert world_problems(PLAN, [end(0), end(1), end(2)]) == []
    assert world_problems(PLAN, [end(0, world_size=None)]) == []


@pytest.mark.parametrize(
    ("code", "number", "words"),
    [
        (0, None, "exit status 0"),
        (17, None, "exit status 17"),
        (None, 9, "killed by SIGKILL"),
        (None, 99, "killed by signal 99"),
    ],
)
def test_an_end_in_words(code: int | None, number: int | None, words: str) -> None:
    assert how(code, number) == words


def test_a_nodes_answer_is_read_on_the_controllers_clock() -> None:
    answer = {
        "status": "exited",
        "exit": {"code": 1, "signal": None, "started": 100.0, "ended": 110.0, "stopped": True, "timed_out": False},
        "ranks": {
            "rank-10": {
                "rank": 10,
                "world_size": 12,
                "started": 101.0,
                "exit": {"code": None, "signal": 9, "ended": 108.0},
            },
            "rank-2": {"rank": 2, "world_size": 12, "started": 102.0, "exit": None},
            "rank-unknown-7": {"rank": None, "world_size": None, "started": 103.0, "exit": None},
        },
    }
    found = node_end("n1", answer, 50.0)
    assert (found.status, found.code, found.stopped, found.timed_out) == ("exited", 1, True, False)
    assert (found.started, found.ended) == (50.0, 60.0)
    assert [(rank.rank, rank.started, rank.ended, rank.failed, rank.finished) for rank in found.ranks] == [
        (2, 52.0, None, False, False),
        (10, 51.0, 58.0, True, True),
        (None, 53.0, None, False, False),
    ]


def test_a_node_that_never_answered() -> None:
    found = node_end("n1", {"status": "unreachable"}, 0.0)
    assert (found.status, found.code, found.ranks, found.started) == ("unreachable", None, (), None)
