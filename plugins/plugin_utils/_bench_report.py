# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""From what the nodes measured to the report of bench: its JSON, its table, and what is measured a second time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.torchfleet.cluster.plugins.module_utils import _bench, _bench_links, _bench_verdict
from ansible_collections.torchfleet.cluster.plugins.module_utils._bench_links import Finding, Nic
from ansible_collections.torchfleet.cluster.plugins.module_utils._candidates import find_candidates
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Cluster

BENCH_JSON = "bench.json"
MEASURES = ("links", "disks", "local", "collective")
# Message sizes of the sweep, bytes: factors of 8 and, where the bandwidth is told, of 4.
SIZES = tuple(1 << power for power in (10, 13, 16, 19, 22, 24, 26, 28, 30))
MOST_BYTES = {"gloo": 64 << 20, "nccl": 1 << 30}
# What a module that has come to its end returns, one of these.
ANSWERS = {
    "prepared": ("port",),
    "links": ("links",),
    "disks": ("disks",),
    "local": ("report", "problem"),
    "collective": ("report", "problem"),
    "nccl_tests": ("report", "problem"),
}
LABELS = {"prepared": "port and NIC", "local": "devices", "collective": "all-reduce", "nccl_tests": "nccl-tests"}
CRASHED = "its module crashed, ANSIBLE_DISPLAY_TRACEBACK=error in the environment brings the reason here"


def backend_of(cluster: Cluster, wanted: str) -> str:
    """NCCL where every node has a GPU, else gloo."""
    if wanted != "auto":
        return wanted
    return "nccl" if all(node.gpus for node in cluster.nodes) else "gloo"


def sizes(backend: str, most: int) -> list[int]:
    return [size for size in SIZES if size <= (most or MOST_BYTES[backend])]


def measurable(cluster: Cluster, measures: Sequence[str]) -> list[str]:
    """Those of the measures that there is something for: a link has two ends, an all-reduce two ranks or more."""
    without = {"links": len(cluster.nodes) < 2, "collective": cluster.world_size < 2}
    return [what for what in measures if not without.get(what)]


def nccl_tests_argv(cluster: Cluster, binary: str | None, sizes: Sequence[int], env: Mapping[str, str]) -> list[str]:
    """The command that the head runs: mpirun over all nodes, or on a single node the program itself."""
    if not binary or cluster.world_size < 2:
        return []
    options = ["-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", "4"]
    if len(cluster.nodes) == 1:
        return [binary, *options, "-g", str(cluster.head.slots)]
    hosts = ",".join(f"{node.name}:{node.slots}" for node in cluster.nodes)
    # /etc/nccl.conf has each node's own interface: no variable of the head's may travel.
    passed = [word for name in sorted(env) for word in ("-x", name)]
    mpirun = ["mpirun", "--allow-run-as-root", "-np", str(cluster.world_size), "-H", hosts]
    return [*mpirun, *passed, binary, *options, "-g", "1"]


def plan_text(
    cluster: Cluster,
    schedule: Sequence[Sequence[tuple[str, str]]],
    backend: str,
    message_sizes: Sequence[int],
    args: Mapping[str, Any],
) -> str:
    """What would be measured, for check mode."""
    lines = [f"bench of {len(cluster.nodes)} nodes, {cluster.world_size} ranks, transport {cluster.transport}"]
    if "links" in args["measure"]:
        lines += [
            f"  round {number}: {', '.join(f'{one} - {other}' for one, other in pairs)}"
            for number, pairs in enumerate(schedule, start=1)
        ]
        lines.append(f"  each pair {2 * args['seconds']:g} s at full speed on the training network")
    if "collective" in args["measure"] and cluster.world_size > 1:
        lines.append(f"  all-reduce with {backend}, {message_sizes[0]} to {message_sizes[-1]} bytes")
    lines += [f"because {reason}" for reason in cluster.reasons]
    return "\n".join(lines)


# ---- what was measured


def measured(cluster: Cluster, found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The figures of one pass, by node and by pair (`source>target`), without what was not measured."""
    figures: dict[str, Any] = {"nics": {}, "links": {}, "disks": {}, "local": {}, "silent": {}, "problems": {}}
    for node in cluster.nodes:
        name = node.name
        answers = {what: by_name.get(name) or {} for what, by_name in found.items()}
        prepared = answers["prepared"]
        figures["nics"][name] = {key: prepared.get(key) for key in ("capable_mbps", "shaped_mbps")}
        for link in answers["links"].get("links") or ():
            figures["links"][f"{link['source']}>{link['target']}"] = dict(link)
        for disk in answers["disks"].get("disks") or ():
            figures["disks"].setdefault(name, []).append(dict(disk))
        local = answers["local"].get("report")
        if local:
            figures["local"][name] = dict(local)
        silent = _silence(answers)
        if silent:
            figures["silent"][name] = silent
        problems = _problems(name, answers)
        if problems:
            figures["problems"][name] = problems
    for what in ("collective", "nccl_tests"):
        told = (found[what].get(cluster.head.name) or {}).get("report")
        if told:
            figures[what] = dict(told)
    return figures


def _silence(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a node did not answer; empty where it did."""
    for answer in answers.values():
        if answer.get("unreachable"):
            return _why(answer)
    # Every node in the play has an answer to this one.
    return "" if answers["prepared"] else "it left the play before it was measured, Ansible says above why"


def _why(answer: Mapping[str, Any]) -> str:
    """In one line, why a task gave no measurement."""
    traceback = str(answer.get("failed_when_suppressed_exception") or "").splitlines()
    # Ansible has a stand-in of one line where it was not asked for tracebacks.
    told = answer.get("msg") or (traceback[-1] if len(traceback) > 1 else "")
    return " ".join(str(told or ("no answer" if answer.get("unreachable") else CRASHED)).split())


def _problems(name: str, answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was not measured on a node, and why."""
    told = list(answers["links"].get("problems") or ())
    for what in ("local", "collective"):
        if answers[what].get("problem"):
            told.append(f"{name}, {LABELS[what]}: {answers[what]['problem']}")
    told += [
        f"{name}, {disk['path']}: {disk['problem']}"
        for disk in answers["disks"].get("disks") or ()
        if "problem" in disk
    ]
    for what, answer in answers.items():
        if not answer or answer.get("skipped") or answer.get("unreachable"):
            continue
        # `failed_when: false` makes a failure a success, and takes the words of a module that crashed.
        if answer.get("failed") or not any(key in answer for key in ANSWERS[what]):
            told.append(f"{name}, {LABELS.get(what, what)}: {_why(answer)}")
    return told


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two passes in one: of each figure the better one, since other work can only make things slower."""
    if not first:
        return dict(second)
    both = {**first, "links": dict(first["links"]), "disks": dict(first["disks"]), "local": dict(first["local"])}
    for key, link in second["links"].items():
        old = both["links"].get(key)
        both["links"][key] = link if old is None or link["mbps"] > old["mbps"] else old
        latencies = [one["latency_seconds"] for one in (old, link) if one and one["latency_seconds"]]
        both["links"][key] = {**both["links"][key], "latency_seconds": min(latencies, default=None)}
        if old:
            both["links"][key]["first_mbps"] = old["mbps"]
    for name, disks in second["disks"].items():
        old_disks = {disk["path"]: disk for disk in both["disks"].get(name) or ()}
        for disk in disks:
            old = old_disks.get(disk["path"]) or {}
            rates = {key: max(disk.get(key) or 0, old.get(key) or 0) or None for key in ("write_mbps", "read_mbps")}
            old_disks[disk["path"]] = {**old, **disk, **rates}
        both["disks"][name] = list(old_disks.values())
    for name, local in second["local"].items():
        old_devices = {device["index"]: device for device in (both["local"].get(name) or {}).get("devices") or ()}
        devices = []
        for device in local["devices"]:
            old = old_devices.get(device["index"]) or {}
            best = {
                key: max(device.get(key) or 0, old.get(key) or 0)
                for key in ("tflops", "from_host_gbps", "to_host_gbps")
                if device.get(key) or old.get(key)
            }
            devices.append({**old, **device, **best})
        both["local"][name] = {**local, "devices": devices}
    old_rows = (both.get("collective") or {}).get("rows") or []
    rows = {row["bytes"]: row for row in old_rows}
    for row in (second.get("collective") or {}).get("rows") or ():
        if row["bytes"] not in rows or row["seconds"] < rows[row["bytes"]]["seconds"]:
            rows[row["bytes"]] = row
    if rows:
        both["collective"] = {
            **(second.get("collective") or both["collective"]),
            "rows": [rows[size] for size in sorted(rows)],
        }
    both["silent"] = {**first["silent"], **second["silent"]}
    both["problems"] = {
        name: list(dict.fromkeys([*first["problems"].get(name, ()), *second["problems"].get(name, ())]))
        for name in {**first["problems"], **second["problems"]}
    }
    return both


def described(
    cluster: Cluster, facts: Mapping[str, Mapping[str, Any]], figures: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each node as the report has it, by name, with what its NIC, RDMA ports and GPUs say of themselves."""
    nodes = {}
    for node in cluster.nodes:
        nccl = facts.get(node.name, {}).get("torchfleet_nccl") or {}
        gpu = facts.get(node.name, {}).get("torchfleet_gpu") or {}
        candidates = find_candidates(nccl.get("interfaces") or ())[0]
        own = next((one for one in candidates if one.address == node.address), None)
        told = figures["nics"].get(node.name) or {}
        local = figures["local"].get(node.name) or {}
        speed = own.speed_mbps if own else None
        nodes[node.name] = {
            "name": node.name,
            "head": node.node_rank == 0,
            "slots": node.slots,
            "interface": node.interface or (own.interface if own else ""),
            "address": node.address,
            "subnet": own.subnet if own else None,
            "speed_mbps": speed,
            "capable_mbps": told.get("capable_mbps") if speed else None,
            "shaped_mbps": told.get("shaped_mbps"),
            "rdma_mbps": _bench.rdma_mbps(nccl.get("rdma") or (), node.hcas),
            "devices": local.get("devices") or [],
            "peers": local.get("peers") or [],
            "disks": figures["disks"].get(node.name) or [],
            "gpu_facts": gpu.get("gpus") or [],
            "topology": gpu.get("topology"),
        }
    return nodes


# ---- the report (documented in docs/bench.md and docs/bench.schema.json)


def bench_report(
    cluster: Cluster,
    nodes: Mapping[str, Mapping[str, Any]],
    figures: Mapping[str, Any],
    backend: str,
    parameters: float,
    gradient_bytes: float,
    began: float,
    again: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole answer of bench as plain values. `again` names what was measured a second time."""
    nics = {
        name: Nic(str(node["interface"]), node["subnet"], node["speed_mbps"], node["capable_mbps"], node["shaped_mbps"])
        for name, node in nodes.items()
    }
    links = [dict(link) for link in figures["links"].values()]
    rates = {(link["source"], link["target"]): float(link["mbps"]) for link in links if link["mbps"]}
    best = max(rates.values(), default=0.0)
    for link in links:
        link["expected_mbps"] = round(_bench_links.expected((link["source"], link["target"]), nics, best)[0], 1)
    world = cluster.world_size
    told = figures.get("collective") or {}
    sweep = [_bench.sweep_row(row["bytes"], row["seconds"], world) for row in told.get("rows") or ()]
    nccl_sweep = _bench.read_nccl_tests((figures.get("nccl_tests") or {}).get("text") or "")
    slowest = min(rates.values(), default=None)
    wanted = None
    if len(cluster.nodes) > 1:
        wanted = _bench_verdict.collective_expected(backend, slowest, [node["rdma_mbps"] for node in nodes.values()])
    findings = _bench_links.judge(rates, nics) if rates else []
    latencies = {
        (link["source"], link["target"]): link["latency_seconds"]
        for link in links
        # Both directions of a pair share their round trips.
        if link["latency_seconds"] and link["source"] < link["target"]
    }
    findings += _bench_links.judge_latency(latencies)
    devices = _bench_verdict.judge_compute(
        [{**device, "node": name} for name, node in nodes.items() for device in node["devices"]]
    )
    for name, node in nodes.items():
        devices += _bench_verdict.judge_buses(name, node["gpu_facts"], node["topology"], node)
    disks = _bench_verdict.judge_disks(
        [{**disk, "node": name} for name, node in nodes.items() for disk in node["disks"]]
    )
    if again is not None:
        # Beside figures that a second measurement has bettered, one that was measured once looks slow.
        devices = [one for one in devices if set(one.nodes) <= set(again["local"])]
        disks = [one for one in disks if set(one.nodes) <= set(again["disks"])]
    findings += devices + disks
    findings += _bench_verdict.judge_collective(nccl_sweep or sweep, backend, wanted)
    findings += [
        Finding(
            "unreachable",
            "fail",
            (name,),
            f"{name} did not answer: {why}",
            "see that the machine runs and that Ansible logs in to it, or take it out of torchfleet_group",
        )
        for name, why in figures["silent"].items()
    ]
    findings += [
        Finding("not-measured", "warn", (name,), problem, "see to it and run bench again")
        for name, problems in figures["problems"].items()
        for problem in problems
    ]
    findings.sort(key=lambda finding: ("fail", "warn", "info").index(finding.severity))
    writes = [disk["write_mbps"] for node in nodes.values() for disk in node["disks"] if disk.get("write_mbps")]
    status = int(any(finding.severity != "info" for finding in findings))
    shown = []
    for node in nodes.values():
        own = [one.severity for one in findings if node["name"] in one.nodes]
        kept = {key: value for key, value in node.items() if key not in ("gpu_facts", "topology")}
        shown.append({**kept, "verdict": next((level for level in ("fail", "warn", "info") if level in own), "ok")})
    return {
        "schema": 1,
        "kind": "bench",
        "status": status,
        "verdict": ("ok", "warnings")[status],
        "sentence": _sentence(nodes, findings),
        "began": began,
        "ended": time.time(),
        "settings": {
            "transport": cluster.transport,
            "backend": backend,
            "world_size": world,
            "master": cluster.master_address,
        },
        "nodes": shown,
        "links": links,
        "all_reduce": {"backend": backend, "world_size": world, "expected_mbps": wanted, "sweep": sweep}
        if sweep
        else None,
        "nccl_tests": {"world_size": world, "sweep": nccl_sweep} if nccl_sweep else None,
        "cost": _bench_verdict.cost(
            parameters,
            gradient_bytes,
            world,
            nccl_sweep or sweep,
            slowest,
            _bench.median(list(rates.values())) if rates else None,
            min(writes, default=None),
        ),
        "findings": [{**asdict(finding), "nodes": list(finding.nodes)} for finding in findings],
        "previous": None,
    }


def _sentence(nodes: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    slow = sum(finding.severity != "info" for finding in findings)
    silent = sum(finding.check == "unreachable" for finding in findings)
    gone = f" ({silent} did not answer)" if silent else ""
    count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}{gone}"
    if not slow:
        return f"{count}: nothing is slow"
    return f"{count}: {slow} finding{'' if slow == 1 else 's'}"


def suspects(report: Mapping[str, Any]) -> dict[str, Any]:
    """What is measured again, alone, before it is called slow: pairs, nodes' devices and disks, the all-reduce."""
    named: dict[str, set[str]] = {}
    for one in report["findings"]:
        named.setdefault(one["check"], set()).update(one["nodes"])
    rates = {(link["source"], link["target"]): link["mbps"] for link in report["links"]}
    nics = {
        node["name"]: Nic(node["interface"], node["subnet"], node["speed_mbps"], node["capable_mbps"])
        for node in report["nodes"]
    }
    pairs = {tuple(sorted(pair)) for pair in _bench_links.slow_pairs(rates, nics)}
    if "slow-latency" in named:
        pairs |= {tuple(sorted(pair)) for pair in rates if named["slow-latency"] & set(pair)}
    compute = named.get("slow-processor", set()) | named.get("slow-gpu", set())
    return {
        "pairs": [list(pair) for pair in sorted(pairs)],
        "local": sorted(compute | named.get("slow-pcie", set()) | named.get("slow-peer", set())),
        "disks": sorted(named.get("slow-disk", set())),
        "collective": "slow-all-reduce" in named,
    }


def with_previous(report: dict[str, Any], previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """The report beside an earlier one; one of odd form, as an edited file has it, is none."""
    try:
        return {**report, "previous": _bench_verdict.compared(report, previous)}
    except (AttributeError, LookupError, TypeError, ValueError):
        return {**report, "previous": None}


# ---- the terminal


def as_text(report: Mapping[str, Any]) -> str:
    """A table of the nodes, the all-reduce in one line, what it costs, and two lines a finding."""
    rows = [["node", "address", "NIC", "sends", "receives", "round trip", "product", "disk write/read", "verdict"]]
    for node in report["nodes"]:
        name = node["name"]
        sends = [link["mbps"] for link in report["links"] if link["source"] == name and link["mbps"]]
        receives = [link["mbps"] for link in report["links"] if link["target"] == name and link["mbps"]]
        trips = [
            link["latency_median_seconds"]
            for link in report["links"]
            if name in (link["source"], link["target"]) and link["latency_median_seconds"]
        ]
        products = [device["tflops"] for device in node["devices"] if device.get("tflops")]
        disk = next((one for one in node["disks"] if one.get("write_mbps")), None)
        rows.append(
            [
                name + (" *" if node["head"] else ""),
                f"{node['interface']} {node['address']}".strip(),
                _bench.link_rate(node["speed_mbps"]) if node["speed_mbps"] else "-",
                _bench.link_rate(min(sends)) if sends else "-",
                _bench.link_rate(min(receives)) if receives else "-",
                f"{1e3 * max(trips):.2f} ms" if trips else "-",
                f"{min(products):.3g} TFLOP/s" if products else "-",
                f"{disk['write_mbps']:.0f}/{disk['read_mbps'] or 0:.0f} MB/s" if disk else "-",
                node["verdict"],
            ]
        )
    kept = [i for i in range(len(rows[0])) if i < 2 or any(row[i] != "-" for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    lines = ["  ".join(row[i].ljust(widths[i]) for i in kept).rstrip() for row in rows]
    for label, sweep, world in _sweeps(report):
        row = sweep[-1]
        lines.append(
            f"all-reduce ({label}, {world} ranks): {row['bytes'] / 2**20:.3g} MiB in {row['seconds']:.3g} s, algorithm "
            f"{_bench.link_rate(8000 * row['algbw_gbps'])}, bus {_bench.link_rate(8000 * row['busbw_gbps'])}"
        )
    if report["cost"]:
        lines.append(report["cost"]["sentence"])
    for finding in report["findings"]:
        lines.append(f"{finding['severity'].upper():4}  {finding['sentence']}")
        if finding["severity"] != "info":
            lines.append(f"      fix: {finding['remedy']}")
    if report["previous"]:
        lines += [f"slower than last time: {words}" for words in report["previous"]["slower"]]
        lines += [f"quicker than last time: {words}" for words in report["previous"]["quicker"]]
    lines.append(f"{report['sentence']} ({report['ended'] - report['began']:.1f} s)")
    return "\n".join(lines)


def _sweeps(report: Mapping[str, Any]) -> list[tuple[str, Sequence[Mapping[str, float]], int]]:
    found = []
    if report["all_reduce"]:
        found.append(
            (report["all_reduce"]["backend"], report["all_reduce"]["sweep"], report["all_reduce"]["world_size"])
        )
    if report["nccl_tests"]:
        found.append(("nccl-tests", report["nccl_tests"]["sweep"], report["nccl_tests"]["world_size"]))
    return found


# ---- the page


def heat(report: Mapping[str, Any]) -> dict[str, Any]:
    """The matrix of bandwidths: a text and a class for each cell, against what the link should carry."""
    names = [node["name"] for node in report["nodes"]]
    links = {(link["source"], link["target"]): link for link in report["links"]}
    rows = []
    for one in names:
        cells = []
        for other in names:
            link = links.get((one, other))
            if one == other:
                cells.append({"class": "self", "text": "", "title": ""})
            elif not link or not link["mbps"]:
                cells.append({"class": "bad", "text": "none", "title": "not measured"})
            else:
                share = min(1.0, link["mbps"] / link["expected_mbps"]) if link["expected_mbps"] else 1.0
                title = f"{one} to {other}, expected {_bench.link_rate(link['expected_mbps'])}"
                if link["latency_median_seconds"]:
                    title += f", round trip {1e3 * link['latency_median_seconds']:.2f} ms"
                cells.append(
                    {"class": f"h{int(4 * share + 0.2)}", "text": _bench.link_rate(link["mbps"]), "title": title}
                )
        rows.append(cells)
    return {"names": names, "rows": rows}


WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 96, 16, 14, 44
LABEL_ROOM = 96


def chart(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Bus bandwidth against message size, both on logarithmic axes: points and lines in a box of WIDTH by HEIGHT."""
    series = [(label, "now", sweep) for label, sweep, _world in _sweeps(report)]
    before = (report["previous"] or {}).get("sweep") or []
    if before:
        series.append(("the run before", "before", before))
    rows = [row for _label, _class, sweep in series for row in sweep if row["busbw_gbps"] > 0]
    if not rows:
        return None
    low, high = (math.log2(edge([row["bytes"] for row in rows])) for edge in (min, max))
    rates = [8000 * row["busbw_gbps"] for row in rows]
    floor, roof = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)) + 1e-9)
    roof = max(roof, floor + 1)

    def across(size: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(size) - low) / max(high - low, 1), 1)

    def up(rate: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(rate) - floor) / (roof - floor), 1)

    lines = []
    for label, kind, sweep in series:
        points = [
            {
                "x": across(row["bytes"]),
                "y": up(8000 * row["busbw_gbps"]),
                "title": f"{_bytes(row['bytes'])}: {_bench.link_rate(8000 * row['busbw_gbps'])} ({label})",
            }
            for row in sweep
            if row["busbw_gbps"] > 0
        ]
        lines.append({"label": label, "class": kind, "points": points})
    # No more labels than have room; the largest size has one.
    shown: list[float] = []
    for size in sorted({row["bytes"] for row in rows}, reverse=True):
        if not shown or across(shown[-1]) - across(size) >= LABEL_ROOM:
            shown.append(size)
    expected = (report["all_reduce"] or {}).get("expected_mbps")
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
        "lines": lines,
        "x": [{"at": across(size), "text": _bytes(size)} for size in reversed(shown)],
        "y": [{"at": up(10.0**power), "text": _bench.link_rate(10.0**power)} for power in range(floor, roof + 1)],
        "expected": up(expected) if expected and 10.0**floor <= expected <= 10.0**roof else None,
        "expected_text": _bench.link_rate(expected) if expected else "",
    }


def _bytes(size: float) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"
