# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What people get to see of a check and of runs: a table on the terminal, JSON, and one page of HTML."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import link_rate
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks import _check, _facts
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _bench_report

CHECK_JSON = "check.json"
PAGE = "report.html"
TEMPLATE = "report.html.j2"
VERDICTS = ("ok", "warnings", "failures")


def read_json(path: Path) -> dict[str, Any] | None:
    """A report that an earlier call wrote; None where there is none, or none that can be read."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def read_report(path: Path, kind: str) -> dict[str, Any] | None:
    """The same, of a verb and in a form that this version knows: the page can show it."""
    report = read_json(path)
    if not report or (report.get("schema"), report.get("kind")) != (1, kind):
        return None
    try:
        render(check=report) if kind == "check" else render(bench=report)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, TemplateError):
        return None
    return report


# ---- the check as JSON (documented in docs/checks.md and docs/check.schema.json)


def check_report(
    cluster: _check.Cluster,
    checks: Sequence[_check.Check],
    findings: Sequence[_check.Finding],
    began: float,
    ended: float,
    skipped: Sequence[str] = (),
    previous: Mapping[str, Any] | None = None,
    outside: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole answer of check as plain values. `outside` are members that --limit left out."""
    status = _check.status_of(findings)
    cards = [_facts.card(node) for node in cluster.nodes]
    cards += [{"name": name, "reached": False, "problem": why, "head": False} for name, why in cluster.missing.items()]
    for card in cards:
        levels = [finding.severity for finding in findings if card["name"] in finding.nodes]
        card["verdict"] = next((level for level in ("fail", "warn", "info") if level in levels), "ok")
    counts = {level: sum(finding.severity == level for finding in findings) for level in _check.SEVERITIES}
    return {
        "schema": 1,
        "kind": "check",
        "status": status,
        "verdict": VERDICTS[status],
        "sentence": _sentence(len(cards), len(cluster.missing), counts, len(checks), outside),
        "began": began,
        "ended": ended,
        "settings": dict(cluster.settings),
        "nodes": cards,
        "findings": [_check.finding_to_dict(finding) for finding in findings],
        "sameness": [
            {"check": row.check, "title": row.title.rstrip(":"), "values": dict(row.values), "odd": list(row.odd)}
            for row in _check.sameness(checks, cluster)
        ],
        "matrix": _facts.matrix(cluster),
        "checks": {"run": [check.id for check in checks], "skipped": list(skipped)},
        "previous": _compared(findings, previous, outside),
    }


def _sentence(nodes: int, missing: int, counts: Mapping[str, int], checks: int, outside: Sequence[str]) -> str:
    what = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for word, count in (("failure", counts["fail"]), ("warning", counts["warn"]))
        if count
    ]
    found = " and ".join(what) if what else "nothing is wrong"
    gone = f" ({missing} did not answer)" if missing else ""
    left = f"; not asked (--limit): {_check.listed(outside)}" if outside else ""
    return f"{nodes} node{'' if nodes == 1 else 's'}{gone}, {checks} checks: {found}{left}"


def _compared(
    findings: Sequence[_check.Finding], previous: Mapping[str, Any] | None, outside: Sequence[str]
) -> dict[str, Any] | None:
    """What is new and what is gone since the last check. Figures in a sentence change: check and nodes name it."""
    if not previous or previous.get("schema") != 1 or not _is_check(previous):
        return None
    now = {(finding.check, tuple(finding.nodes)): finding.sentence for finding in findings}
    # Nobody looked whether these are still there.
    found = [one for one in previous.get("findings") or () if not set(one["nodes"]).intersection(outside)]
    before = {(one["check"], tuple(one["nodes"])): one["sentence"] for one in found}
    return {
        "ended": previous.get("ended"),
        "new": [sentence for key, sentence in now.items() if key not in before],
        "gone": [sentence for key, sentence in before.items() if key not in now],
    }


def _is_check(report: Mapping[str, Any]) -> bool:
    """Whether what is compared of an earlier report has the form that check writes."""
    findings, ended = report.get("findings"), report.get("ended")
    return (
        isinstance(ended, (int, float))
        and math.isfinite(ended)
        and isinstance(findings, list)
        and all(
            isinstance(one, Mapping)
            and all(isinstance(one.get(key), str) for key in ("check", "sentence"))
            and isinstance(one.get("nodes"), list)
            and all(isinstance(name, str) for name in one["nodes"])
            for one in findings
        )
    )


# ---- the terminal


def as_text(report: Mapping[str, Any]) -> str:
    """A table of the nodes and two lines a finding."""
    columns = ["node", "address", "GPUs", "driver", "torch", "clock", "verdict"]
    rows = [columns]
    for node in report["nodes"]:
        if not node["reached"]:
            continue
        offset = node["clock_offset_seconds"]
        rows.append(
            [
                node["name"] + (" *" if node["head"] else ""),
                " ".join(filter(None, (node["interface"], node["address"]))),
                ", ".join(node["gpus"]) or "-",
                node["driver"] or "-",
                node["torch"] or "-",
                "-" if offset is None else f"{offset:+.2f} s",
                node["verdict"],
            ]
        )
    # Columns of which no node has anything say nothing.
    kept = [i for i in range(len(columns)) if i < 2 or any(row[i] != "-" for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    lines = ["  ".join(row[i].ljust(widths[i]) for i in kept).rstrip() for row in rows]
    for finding in report["findings"]:
        lines.append(f"{finding['severity'].upper():4}  {finding['sentence']}")
        if finding["severity"] != "info" and finding["remedy"]:
            lines.append(f"      fix: {finding['remedy']}")
    previous = report["previous"]
    if previous and (previous["new"] or previous["gone"]):
        lines.append(f"Since the last check: {len(previous['new'])} new, {len(previous['gone'])} gone")
    lines.append(f"{report['sentence']} ({report['ended'] - report['began']:.1f} s)")
    return "\n".join(lines)


# ---- runs


def read_run(folder: Path) -> dict[str, Any] | None:
    """A run's folder as the page shows it: its end, the timeline, and what explain found.

    None where there is no manifest, or one of a form that launch does not write.
    """
    manifest = read_json(folder / "manifest.json")
    if manifest is None:
        return None
    try:
        run = _run(manifest, folder)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    explained = (read_json(folder / "findings.json") or {}).get("findings")
    return {**run, "explained": explained if _is_explained(explained) else []}


def _is_explained(findings: Any) -> bool:
    """Whether the page can show these findings of explain."""
    return isinstance(findings, list) and all(
        isinstance(one, Mapping)
        and {"label", "cause", "fix", "evidence"} <= one.keys()
        and isinstance(one.get("confidence"), (int, float))
        and isinstance(one["evidence"], list)
        and isinstance(one.get("probe") or {}, Mapping)
        and all(isinstance(line, Mapping) and {"file", "line", "text"} <= line.keys() for line in one["evidence"])
        for one in findings
    )


def _run(manifest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    outcome = manifest.get("outcome") or {}
    plan = manifest.get("plan") or {}
    return {
        "run_id": str(manifest.get("run_id") or folder.name),
        "state": str(manifest.get("state") or ""),
        "sentence": str(outcome.get("sentence") or ""),
        "launcher": str(plan.get("launcher") or ""),
        "world_size": plan.get("world_size"),
        "master": f"{plan.get('master_address', '')}:{plan.get('master_port', '')}",
        "versions": dict(manifest.get("versions") or {}),
        "timeline": timeline(manifest),
    }


def timeline(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Bars in seconds since the plan: one for each launcher and rank. `seconds` is the whole length."""
    times = manifest.get("times") or {}
    zero = times.get("planned")
    if zero is None:
        return {"seconds": 0, "marks": [], "bars": []}
    nodes = [node for node in manifest.get("nodes") or () if isinstance(node, Mapping)]
    stamps = [zero, *(value for value in times.values() if value)]
    bars = []
    for node in nodes:
        for label, one, kind in (
            (str(node["node"]), node, "launcher"),
            *((f"rank {rank.get('rank')}", rank, "rank") for rank in node.get("ranks") or ()),
        ):
            if one.get("started") is None:
                continue
            ended = one.get("ended") or times.get("ended") or one["started"]
            failed = bool(one.get("code")) or one.get("signal") is not None
            stamps += [one["started"], ended]
            bars.append(
                {
                    "label": label,
                    "kind": kind,
                    "failed": failed,
                    "start": round(one["started"] - zero, 2),
                    "end": round(ended - zero, 2),
                    "text": _ending(one),
                }
            )
    marks = [
        {"label": label, "at": round(times[key] - zero, 2)}
        for key, label in (("first_rank", "first rank"), ("ended", "judged"))
        if times.get(key)
    ]
    return {"seconds": round(max(stamps) - zero, 2), "marks": marks, "bars": bars}


def _ending(one: Mapping[str, Any]) -> str:
    if one.get("signal") is not None:
        return f"signal {one['signal']}"
    return "" if one.get("code") is None else f"exit status {one['code']}"


# ---- the page


def render(
    check: Mapping[str, Any] | None = None,
    runs: Sequence[Mapping[str, Any] | None] = (),
    title: str = "",
    bench: Mapping[str, Any] | None = None,
    logs: Mapping[str, Any] | None = None,
) -> str:
    """One page that needs nothing but itself. Each part may be missing; `logs` is a findings.json of no run."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["when"] = lambda stamp: time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(stamp))
    environment.filters["size"] = _check.size
    environment.filters["rate"] = _rate
    environment.filters["link_rate"] = link_rate
    template = environment.from_string(Path(__file__).with_name(TEMPLATE).read_text(encoding="utf-8"))
    shown = [run for run in runs if run]
    headings = (
        (check, "Cluster check"),
        (bench, "Cluster bench"),
        (shown, f"Run {shown[0]['run_id']}" if shown else ""),
        (logs, f"Logs of {Path(logs['path']).name}" if logs else ""),
    )
    heading = title or next((words for part, words in headings if part), "")
    return template.render(
        check=check,
        runs=shown,
        title=heading,
        heat=heat(check) if check else None,
        bench=bench,
        logs=logs,
        links=_bench_report.heat(bench) if bench else None,
        chart=_bench_report.chart(bench) if bench else None,
    )


def _rate(mbps: float) -> str:
    return f"{mbps / 1000:.1f}" if mbps >= 1000 else f"{mbps:.0f} M"


def heat(check: Mapping[str, Any]) -> dict[str, Any]:
    """The matrix with a class and a text for each cell: bandwidth where it was measured, else the path MTU."""
    cells = check["matrix"]["cells"]
    rates = [cell["bandwidth_mbps"] for row in cells for cell in row if cell and cell["bandwidth_mbps"]]
    top = max(rates, default=0)
    shown = []
    for row in cells:
        line = []
        for cell in row:
            if cell is None:
                line.append({"class": "self", "text": "", "title": ""})
            elif not cell["ok"]:
                line.append({"class": "bad", "text": cell["why"], "title": cell["why"]})
            elif cell["bandwidth_mbps"]:
                level = int(4 * cell["bandwidth_mbps"] / top + 0.5)
                line.append({"class": f"h{level}", "text": _rate(cell["bandwidth_mbps"]), "title": "Gb/s"})
            else:
                text = str(cell["path_mtu"] or "ok")
                line.append({"class": "h4", "text": text, "title": f"path MTU {text}"})
        shown.append(line)
    return {"names": check["matrix"]["nodes"], "rows": shown, "measured": bool(rates)}
