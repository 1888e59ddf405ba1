# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""How a run ended, judged from what every node reported: the launcher's word alone is not trusted."""

from __future__ import annotations

import dataclasses
import signal
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import LaunchPlan

# How a stop reason begins that is a person's wish: what ranks then report is its echo.
ENDED_BY = "ended by "
HANG_WATCH = "the hang watch"
DEAD = ("unreachable", "lost", "not_started")


@dataclass(frozen=True)
class RankEnd:
    """One rank as it really ran. Times are seconds since the epoch, controller's clock; None: not yet or never."""

    rank: Optional[int]
    node: str
    world_size: Optional[int]
    code: Optional[int] = None
    signal: Optional[int] = None
    started: Optional[float] = None
    ended: Optional[float] = None
    local_rank: Optional[int] = None
    devices: Optional[str] = None  # CUDA_VISIBLE_DEVICES
    error: Optional[str] = None  # from torch's error file

    @property
    def failed(self) -> bool:
        return bool(self.code) or self.signal is not None

    @property
    def finished(self) -> bool:
        return self.code is not None or self.signal is not None


@dataclass(frozen=True)
class NodeEnd:
    """One node's launcher. `status` is exited, lost (its agent is gone), unreachable, not_started or running."""

    node: str
    status: str
    code: Optional[int] = None
    signal: Optional[int] = None
    stopped: bool = False
    timed_out: bool = False
    problem: str = ""
    started: Optional[float] = None
    ended: Optional[float] = None
    stop_ordered: Optional[float] = None  # when the order to stop was noted there
    ranks: Tuple[RankEnd, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """`sentence` says in one line how the run ended; `first` is the rank that failed first, if one did."""

    ok: bool
    sentence: str
    first: Optional[RankEnd] = None
    problems: Tuple[str, ...] = field(default_factory=tuple)


def by_person(reason: str) -> bool:
    """Whether somebody wished the run's end: then it is not begun anew."""
    return reason.startswith(ENDED_BY) and HANG_WATCH not in reason


def how(code: Optional[int], number: Optional[int]) -> str:
    """An end in words: `exit status 17`, `killed by SIGKILL`."""
    if number is not None:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit status {code}"


def node_end(node: str, answer: Mapping[str, Any], clock_offset: float) -> NodeEnd:
    """From a node's last answer (`agent.py follow`) to its NodeEnd. `clock_offset` is the node's clock minus ours."""

    def ours(stamp: Optional[float]) -> Optional[float]:
        return None if stamp is None else stamp - clock_offset

    ranks = []
    for record in (answer.get("ranks") or {}).values():
        end = record.get("exit") or {}
        ranks.append(
            RankEnd(
                rank=record.get("rank"),
                node=node,
                world_size=record.get("world_size"),
                code=end.get("code"),
                signal=end.get("signal"),
                started=ours(record.get("started")),
                ended=ours(end.get("ended")),
                local_rank=record.get("local_rank"),
                devices=record.get("devices"),
                error=end.get("error"),
            )
        )
    end = answer.get("exit") or {}
    return NodeEnd(
        node=node,
        status=str(answer.get("status")),
        code=end.get("code"),
        signal=end.get("signal"),
        stopped=bool(end.get("stopped")),
        timed_out=bool(end.get("timed_out")),
        problem=str(end.get("error") or ""),
        started=ours(end.get("started")),
        ended=ours(end.get("ended")),
        stop_ordered=ours(answer.get("stop_time")),
        ranks=tuple(sorted(ranks, key=lambda rank: (rank.rank is None, rank.rank or 0))),
    )


def world_problems(plan: LaunchPlan, ranks: Sequence[RankEnd]) -> List[str]:
    """Where the world that came up is not the one that was planned."""
    if plan.elastic:
        return _elastic_problems(plan, ranks)
    problems = []
    planned = {rank.rank: rank.node for rank in plan.ranks}
    places = {rank.rank: rank.local_rank for rank in plan.ranks}
    seen: Dict[Optional[int], str] = {}
    alone: Dict[Tuple[str, str], Optional[int]] = {}
    for rank in ranks:
        if rank.world_size is not None and rank.world_size != plan.world_size:
            problems.append(
                f"{rank.node}: rank {rank.rank} came up in a world of {rank.world_size}, "
                f"planned was {plan.world_size}: the launcher started separate copies"
            )
        if rank.rank is None or rank.rank not in planned:
            problems.append(f"{rank.node}: rank {rank.rank} came up, which was not planned")
        elif rank.rank in seen:
            problems.append(f"rank {rank.rank} came up twice: on {seen[rank.rank]} and on {rank.node}")
        elif planned[rank.rank] != rank.node:
            problems.append(f"rank {rank.rank} came up on {rank.node}, planned was {planned[rank.rank]}")
        elif rank.local_rank is not None and rank.local_rank != places[rank.rank]:
            problems.append(
                f"rank {rank.rank} came up with local rank {rank.local_rank} on {rank.node}, planned was "
                f"{places[rank.rank]}: it takes another rank's GPU"
            )
        if rank.devices and "," not in rank.devices:
            first = alone.setdefault((rank.node, rank.devices), rank.rank)
            if first != rank.rank:
                problems.append(f"ranks {first} and {rank.rank} on {rank.node} both see GPU {rank.devices} alone")
        seen.setdefault(rank.rank, rank.node)
    return problems


def _elastic_problems(plan: LaunchPlan, ranks: Sequence[RankEnd]) -> List[str]:
    """Who has which rank is the launcher's choice; that all are in one world of a size that was allowed is not."""
    problems = []
    slots = sorted(sum(rank.node == name for rank in plan.ranks) for name in {rank.node for rank in plan.ranks})
    least = sum(slots[: plan.min_nodes])
    worlds = sorted({rank.world_size for rank in ranks if rank.world_size is not None})
    if len(worlds) > 1:
        problems.append(f"the ranks came up in worlds of {' and '.join(map(str, worlds))}: the launcher split them")
    problems += [
        f"the ranks came up in a world of {world}, planned was {least} to {plan.world_size}"
        for world in worlds
        if not least <= world <= plan.world_size
    ]
    seen: Dict[Optional[int], str] = {}
    for rank in ranks:
        if rank.rank in seen:
            problems.append(f"rank {rank.rank} came up twice: on {seen[rank.rank]} and on {rank.node}")
        seen.setdefault(rank.rank, rank.node)
    return problems


def _left_early(ranks: Sequence[RankEnd], first: RankEnd) -> List[str]:
    """Ranks that had left in peace before the first failure: their peers then fail in the next collective."""
    return [
        f"rank {rank.rank} on {rank.node} had left with exit status 0 before: "
        "all ranks must take part in every collective"
        for rank in ranks
        if rank.code == 0 and rank.ended is not None and first.ended is not None and rank.ended < first.ended
    ]


def _vanished(nodes: Sequence[NodeEnd]) -> List[RankEnd]:
    """Ranks that began and have no end although we did not stop their node, whose launcher failed: `pkill -9 -f`."""
    failed = [node for node in nodes if node.status == "exited" and not node.stopped and (node.code or node.signal)]
    failed.sort(key=lambda node: node.ended or float("inf"))
    return [rank for node in failed for rank in node.ranks if not rank.finished]


def _failure(rank: RankEnd) -> str:
    return f"rank {rank.rank} on {rank.node} failed first: {how(rank.code, rank.signal)}"


def _before(ordered: Optional[float], failed: Sequence[RankEnd]) -> Optional[RankEnd]:
    """The rank that had failed before the order to stop, which is then no echo of it."""
    return next(
        (rank for rank in failed if ordered is not None and rank.ended is not None and rank.ended < ordered), None
    )


def _names(nodes: Sequence[NodeEnd]) -> List[str]:
    return [node.node for node in nodes]


def judge(plan: LaunchPlan, nodes: Sequence[NodeEnd], stop_reason: str = "") -> Outcome:
    """The verdict over all nodes. `stop_reason` is why the supervisor ended the run, where it did."""
    lost = [node for node in nodes if node.status in DEAD]
    if plan.elastic and lost and len(nodes) - len(lost) >= plan.min_nodes:
        rest = dataclasses.replace(plan, nodes=tuple(node for node in plan.nodes if node.node not in _names(lost)))
        outcome = judge(rest, [node for node in nodes if node not in lost], stop_reason)
        return dataclasses.replace(outcome, problems=(*outcome.problems, *(node.problem for node in lost)))
    ranks = [rank for node in nodes for rank in node.ranks]
    failed = sorted((rank for rank in ranks if rank.failed), key=lambda rank: rank.ended or float("inf"))
    world = world_problems(plan, ranks)
    reported = {node.node for node in nodes}
    problems = [f"{node.node}: no report" for node in plan.nodes if node.node not in reported]
    for node in nodes:
        if node.status in DEAD:
            problems.append(node.problem or f"{node.node}: {node.status}")
        elif node.timed_out:
            problems.append(f"{node.node}: ended by the time limit (launch_time_limit)")
        elif node.problem:
            problems.append(f"{node.node}: {node.problem}")

    if world:
        return Outcome(False, world[0], failed[0] if failed else None, tuple(world + problems))
    timed_out = [node for node in nodes if node.timed_out]
    if timed_out:
        return Outcome(False, "the run was ended by its time limit (launch_time_limit)", None, tuple(problems))
    if any(node.status in DEAD for node in nodes):
        # What ranks elsewhere then report is the echo of a lost peer.
        return Outcome(False, problems[0], failed[0] if failed else None, tuple(problems))
    if stop_reason.startswith(ENDED_BY):
        ordered = min((node.stop_ordered for node in nodes if node.stop_ordered is not None), default=None)
        # The hang watch aborts a rank for its stack before the nodes are told to stop.
        earlier = _before(ordered, failed) if by_person(stop_reason) else None
        if earlier is None:
            return Outcome(False, stop_reason, None, tuple(problems))
        sentence = f"{_failure(earlier)}; then {stop_reason}"
        return Outcome(False, sentence, earlier, tuple(problems + _left_early(ranks, earlier)))
    vanished = _vanished(nodes)
    if vanished and all(rank.signal == signal.SIGTERM for rank in failed):
        first = vanished[0]
        sentence = f"rank {first.rank} on {first.node} vanished without an exit status: its supervisor was killed too"
        killed = next((node.signal for node in nodes if node.node == first.node and node.signal), None)
        if killed is not None:
            sentence = f"the launcher on {first.node} was {how(None, killed)}, and rank {first.rank} with it"
        return Outcome(False, sentence, first, tuple(problems))
    if failed and not (stop_reason and all(rank.signal == signal.SIGTERM for rank in failed)):
        first = failed[0]
        return Outcome(False, _failure(first), first, tuple(problems + _left_early(ranks, first)))
    if problems:
        return Outcome(False, problems[0], None, tuple(problems))
    if stop_reason:
        return Outcome(False, stop_reason, None, ())
    for node in nodes:
        if node.code or node.signal is not None:
            sentence = f"the launcher on {node.node} failed ({how(node.code, node.signal)}) although no rank did"
            return Outcome(False, sentence, None, (sentence,))
    worlds = {rank.world_size or 0 for rank in ranks} if plan.elastic else ()
    wanted = set(range(max(worlds))) if worlds else {rank.rank for rank in plan.ranks}
    missing = sorted(wanted - {rank.rank for rank in ranks if rank.finished})
    if missing:
        names = ", ".join(str(rank) for rank in missing)
        sentence = f"the launcher reported success, but rank {names} never ran to its end"
        return Outcome(False, sentence, None, (sentence,))
    return Outcome(True, f"all {len(wanted)} ranks ended with exit status 0")
