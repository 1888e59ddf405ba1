# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Runs as their nodes tell of them, put together: for any machine that has the inventory, whoever started them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Container, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._outcome import by_person, how

UP = ("running", "starting")
# The nodes' clocks are not compared here: what lies closer together has no order.
CLOCKS = 2.0


@dataclass(frozen=True)
class RunView:
    """One run over all its nodes.

    `state` is running, succeeded, failed, lost (a supervisor was killed, and nothing runs any more) or private (another
    user's). `nodes` tell of it; `silent` should and do not; `outside` were not asked. `started` is seconds since the
    epoch. `sentence` says more.
    """

    run_id: str
    user: str
    state: str
    nodes: Tuple[str, ...]
    silent: Tuple[str, ...]
    started: Optional[float]
    sentence: str
    launch: Optional[Mapping[str, Any]] = None
    outside: Tuple[str, ...] = ()


def views(reports: Mapping[str, Sequence[Mapping[str, Any]]], not_asked: Container[str] = ()) -> List[RunView]:
    """All runs, newest first, from what each node told (`agent.py list`), by the node's name."""
    by_run: Dict[str, Dict[str, Mapping[str, Any]]] = {}
    for node, runs in reports.items():
        for run in runs:
            by_run.setdefault(str(run["run_id"]), {})[node] = run
    found = [_view(run_id, told, not_asked) for run_id, told in by_run.items()]
    return sorted(found, key=lambda view: -(view.started or 0))


def _view(run_id: str, told: Mapping[str, Mapping[str, Any]], not_asked: Container[str]) -> RunView:
    launch = next((run["launch"] for run in told.values() if run.get("launch")), None)
    planned = [str(node["node"]) for node in launch["plan"]["nodes"]] if launch else []
    outside = tuple(node for node in planned if node not in told and node in not_asked)
    silent = tuple(node for node in planned if node not in (*told, *outside))
    state, sentence = _state(told)
    for what, nodes in (("no word of", silent), ("not asked:", outside)):
        if nodes:
            sentence = "; ".join(filter(None, (sentence, f"{what} {', '.join(nodes)}")))
    started = [float(run["started"]) for run in told.values() if run.get("started")]
    user = str(next(iter(told.values()))["user"])
    began = min(started) if started else None
    return RunView(run_id, user, state, tuple(told), silent, began, sentence, launch, outside)


def _state(told: Mapping[str, Mapping[str, Any]]) -> Tuple[str, str]:
    states = {node: str(run["state"]) for node, run in told.items()}
    if all(state in ("private", "unreadable") for state in states.values()):
        return "private", "another user's run: look at it as that user, or as root"
    stop = next((str(run["stop"]) for run in told.values() if run.get("stop")), "")
    failed = sorted(
        (rank["exit"]["ended"], rank.get("rank"), node, rank["exit"])
        for node, run in told.items()
        for rank in (run.get("ranks") or {}).values()
        if rank.get("exit") and (rank["exit"].get("code") or rank["exit"].get("signal"))
    )
    first = ""
    if failed:
        ended, number, node, end = failed[0]
        first = f"rank {number} on {node}: {how(end.get('code'), end.get('signal'))}"
        ordered = min((float(run["stop_time"]) for run in told.values() if run.get("stop_time")), default=None)
        if by_person(stop) and ordered is not None and ended < ordered - CLOCKS:
            stop = f"{first}; then {stop}"
    if any(state in UP for state in states.values()):
        over = [node for node, state in states.items() if state not in UP]
        return "running", "; ".join(part for part in (first, f"over on {', '.join(over)}" if over else "") if part)
    lost = [node for node, state in states.items() if state == "lost"]
    if lost:
        return "lost", stop or first or f"its supervisor was killed on {', '.join(lost)}"
    ends = {node: run.get("exit") or {} for node, run in told.items()}
    late = [node for node, end in ends.items() if end.get("timed_out")]
    if late:
        return "failed", "ended by its time limit"
    bad = [f"the launcher on {node}: {how(end['code'], end['signal'])}" for node, end in ends.items() if _bad(end)]
    if stop or first or bad:
        return "failed", stop or first or bad[0]
    return "succeeded", ""


def _bad(end: Mapping[str, Any]) -> bool:
    return bool(end.get("code")) or end.get("signal") is not None


def pick(runs: Sequence[RunView], wanted: str, running: bool) -> RunView:
    """The run of that name; without a name the only one that runs, else, unless it has to run, the newest.

    Raises ValueError, saying which there are.
    """
    up = [run for run in runs if run.state == "running"]
    named = ", ".join(f"{run.run_id} ({run.user}, {run.state})" for run in (up or runs)[:8]) or "none"
    if wanted:
        for run in runs:
            if run.run_id == wanted:
                return run
        raise ValueError(f"there is no run {wanted!r} on the nodes: status.yml lists those that are there")
    if len(up) == 1 or (runs and not running and not up):
        return (up or runs)[0]
    if up:
        raise ValueError(f"several runs are there: choose one with -e run_id=..., of {named}")
    raise ValueError("no run is running" if running else "no node knows of any run")


def table(runs: Sequence[RunView], now: float, limit: int = 10) -> List[str]:
    """Lines for people: those that run, then the newest of the others."""
    shown = [run for run in runs if run.state == "running"]
    shown += [run for run in runs if run.state != "running"][:limit]
    rows = [("RUN", "USER", "STATE", "SINCE", "NODES", "")]
    rows += [(r.run_id, r.user, r.state, age(r.started, now), _names(r.nodes), r.sentence) for r in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return lines


def _names(nodes: Sequence[str]) -> str:
    return ",".join(nodes) if len(nodes) <= 4 else f"{nodes[0]} and {len(nodes) - 1} others"


def age(then: Optional[float], now: float) -> str:
    """A time span for people, two units at most."""
    if then is None:
        return "?"
    seconds = max(0, int(now - then))
    for size, name, lower_size, lower in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // lower_size
            return f"{seconds // size} {name} {rest} {lower}" if rest else f"{seconds // size} {name}"
    return f"{seconds} s"
