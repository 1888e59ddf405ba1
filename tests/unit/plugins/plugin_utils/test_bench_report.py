# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of the figures of all nodes: JSON, table, page, and what is measured a second time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import build_cluster
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _bench_report, _report

ROOT = Path(__file__).resolve().parents[4]
NAMES = ("n1", "n2", "n3")


def cluster(count=3, gpus=0):
    return build_cluster(
        [
            {
                "name": f"n{number}",
                "address": f"10.0.1.{number}",
                "interface": "eth1",
                "gpus": [{"index": index} for index in range(gpus)],
            }
            for number in range(1, count + 1)
        ]
    )


def facts(speed=1000):
    return {
        name: {
            "torchfleet_nccl": {
                "interfaces": [
                    {
                        "name": "eth1",
                        "kind": "ethernet",
                        "state": "up",
                        "speed_mbps": speed,
                        "addresses": [{"address": f"10.0.1.{number}", "prefix": 24}],
                    }
                ],
                "rdma": [],
            }
        }
        for number, name in enumerate(NAMES, start=1)
    }


def figures(slow=None, rate=940.0, tflops=0.2, busbw=0.7):
    links = {
        f"{one}>{other}": {
            "source": one,
            "target": other,
            "mbps": 95.0 if one == slow else rate,
            "latency_seconds": 0.0001,
            "latency_median_seconds": 0.0002,
        }
        for one in NAMES
        for other in NAMES
        if one != other
    }
    return {
        "nics": {name: {"capable_mbps": 1000, "shaped_mbps": None} for name in NAMES},
        "links": links,
        "disks": {name: [{"path": "/d", "write_mbps": 900.0, "read_mbps": 1000.0, "direct": True}] for name in NAMES},
        "local": {
            name: {"devices": [{"index": None, "model": "EPYC x2", "dtype": "float32", "tflops": tflops}], "peers": []}
            for name in NAMES
        },
        "collective": {"rows": [{"bytes": 1 << power, "seconds": 2.0**power / 1e8 + 1e-4} for power in (10, 20, 26)]},
        "silent": {},
        "problems": {},
    }


def answers():
    """What is registered of nodes that found ports, and of which nothing else was wanted."""
    skipped = {"changed": False, "skipped": True, "skip_reason": "Conditional result was False"}
    found = {
        what: {name: dict(skipped) for name in NAMES}
        for what in ("links", "disks", "local", "collective", "nccl_tests")
    }
    return {"prepared": {name: {"port": 4000, "master_port": 4001} for name in NAMES}, **found}


def report(told=None, again=None, previous=None, speed=1000):
    told = told or figures()
    nodes = _bench_report.described(cluster(), facts(speed), told)
    made = _bench_report.bench_report(cluster(), nodes, told, "gloo", 7e9, 2, 100.0, again)
    return _bench_report.with_previous(json.loads(json.dumps(made)), previous)


def test_json_is_as_documented():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "bench.schema.json").read_text())
    empty = {**figures(), "links": {}, "disks": {}, "local": {}, "collective": {}, "problems": {"n1": ["n1: no port"]}}
    silent = {**figures(), "silent": {"n2": "no route to host"}}
    for told in (figures(), figures("n2"), empty, silent):
        jsonschema.validate(report(told, previous=report()), schema)


def test_a_healthy_cluster():
    told = report()
    assert (told["status"], told["findings"]) == (0, [])
    assert told["sentence"] == "3 nodes: nothing is slow"
    assert [node["verdict"] for node in told["nodes"]] == ["ok"] * 3
    text = _bench_report.as_text(told)
    assert "n1 *  eth1 10.0.1.1  1 Gb/s" in text
    assert "all-reduce (gloo, 3 ranks): 64 MiB" in text
    assert "7 B parameters: 14 GB of gradients a step" in text


def test_a_slow_node_is_named_and_measured_again():
    told = report(figures("n2"))
    assert told["status"] == 1
    assert [(one["check"], one["nodes"]) for one in told["findings"]] == [("slow-nic", ["n2"])]
    assert "FAIL" not in _bench_report.as_text(told)
    assert "n2 sends 95 Mb/s on a 1 Gb/s NIC" in _bench_report.as_text(told)
    again = _bench_report.suspects(told)
    assert again == {"pairs": [["n1", "n2"], ["n2", "n3"]], "local": [], "disks": [], "collective": False}
    assert told["cost"]["healthy_seconds"] < 0.2 * told["cost"]["seconds"]


def test_the_better_of_two_passes_counts():
    first, second = figures("n2"), figures()
    both = _bench_report.merged(first, second)
    assert both["links"]["n2>n1"]["mbps"] == 940.0
    assert both["links"]["n2>n1"]["first_mbps"] == 95.0
    assert report(both)["findings"] == []
    # A second pass that is worse changes nothing.
    assert _bench_report.merged(second, first)["links"]["n2>n1"]["mbps"] == 940.0
    faster = figures(tflops=0.3)
    faster["collective"]["rows"] = [{"bytes": 1 << 26, "seconds": 0.1}]
    both = _bench_report.merged(first, faster)
    assert both["local"]["n1"]["devices"][0]["tflops"] == 0.3
    assert [row["seconds"] for row in both["collective"]["rows"]][-1] == 0.1
    assert len(both["collective"]["rows"]) == 3


def test_no_device_is_called_slow_that_was_measured_once():
    told = figures()
    told["local"]["n3"]["devices"][0]["tflops"] = 0.05
    told["disks"]["n1"][0]["write_mbps"] = 10.0
    assert {one["check"] for one in report(told)["findings"]} == {"slow-processor", "slow-disk"}
    again = _bench_report.suspects(report(told))
    assert (again["local"], again["disks"]) == (["n3"], ["n1"])
    assert {one["check"] for one in report(told, again)["findings"]} == {"slow-processor", "slow-disk"}
    assert report(told, {**again, "local": ["n1"], "disks": []})["findings"] == []


def test_what_was_not_measured_is_said():
    found = answers()
    found["links"] = {"n1": {"links": [], "problems": ["n1 does not reach n3"]}, "n3": {"failed": True, "msg": "boom"}}
    found["local"] = {"n2": {"problem": "torch cannot be imported: no module"}}
    found["disks"] = {"n1": {"disks": [{"path": "/x", "problem": "Permission denied"}]}}
    told = _bench_report.measured(cluster(), found)
    assert told["problems"] == {
        "n1": ["n1 does not reach n3", "n1, /x: Permission denied"],
        "n2": ["n2, devices: torch cannot be imported: no module"],
        "n3": ["n3, links: boom"],
    }
    made = report({**figures(), "problems": told["problems"]})
    assert (made["status"], made["sentence"]) == (1, "3 nodes: 4 findings")
    assert [node["verdict"] for node in made["nodes"]] == ["warn"] * 3


def test_a_node_that_did_not_answer_is_not_ok():
    found = answers()
    del found["prepared"]["n2"]  # it left the play in the choice of the network
    found["links"]["n3"] = {"unreachable": True, "msg": "Failed to connect:\nno route to host", "changed": False}
    told = _bench_report.measured(cluster(), found)
    assert set(told["silent"]) == {"n2", "n3"}
    assert told["problems"] == {}
    made = report({**figures(), "silent": told["silent"]})
    assert (made["status"], made["sentence"]) == (1, "3 nodes (2 did not answer): 2 findings")
    assert [node["verdict"] for node in made["nodes"]] == ["ok", "fail", "fail"]
    assert {(one["check"], one["severity"]) for one in made["findings"]} == {("unreachable", "fail")}
    text = _bench_report.as_text(made)
    assert "FAIL  n2 did not answer: it left the play before it was measured" in text
    assert "FAIL  n3 did not answer: Failed to connect: no route to host" in text
    # A second pass that it takes part in makes no good one of it.
    again = _bench_report.merged(figures(), {**figures(), "silent": {"n3": "gone"}})
    assert again["silent"] == {"n3": "gone"}
    assert _bench_report.merged(again, figures())["silent"] == {"n3": "gone"}


def test_a_module_that_failed_or_crashed_has_not_measured():
    # What `failed_when: false` leaves of them in ansible-core 2.19.
    suppressed = {
        "changed": False,
        "failed": False,
        "failed_when_result": False,
        "failed_when_suppressed_exception": "(traceback unavailable)",
    }
    found = answers()
    found["local"]["n1"] = {**suppressed, "msg": "there is no user 'nosuch'"}
    found["collective"]["n2"] = dict(suppressed)
    traceback = "Traceback (most recent call last):\n  File x, line 1\nKeyError: 'x'\n"
    found["links"]["n2"] = {**suppressed, "failed_when_suppressed_exception": traceback}
    found["disks"]["n3"] = {**suppressed, "rc": 137, "msg": "Module result deserialization failed: No start of json"}
    found["nccl_tests"]["n1"] = {**suppressed, "problem": "/opt/all_reduce_perf is not there"}
    # A rank that is not the first has nothing to tell.
    found["collective"]["n1"] = {"changed": False, "failed": False, "failed_when_result": False, "report": {}}
    told = _bench_report.measured(cluster(), found)
    assert told["silent"] == {}
    assert told["problems"] == {
        "n1": ["n1, devices: there is no user 'nosuch'"],
        "n2": ["n2, links: KeyError: 'x'", f"n2, all-reduce: {_bench_report.CRASHED}"],
        "n3": ["n3, disks: Module result deserialization failed: No start of json"],
    }
    both = _bench_report.merged(told, told)
    assert both["problems"] == told["problems"]


def test_backend_sizes_and_nccl_tests():
    assert _bench_report.backend_of(cluster(), "auto") == "gloo"
    assert _bench_report.backend_of(cluster(gpus=2), "auto") == "nccl"
    assert _bench_report.backend_of(cluster(gpus=2), "gloo") == "gloo"
    assert _bench_report.sizes("gloo", 0)[-1] == 64 << 20
    assert _bench_report.sizes("nccl", 0)[-1] == 1 << 30
    assert _bench_report.sizes("nccl", 1 << 20)[-1] <= 1 << 20
    argv = _bench_report.nccl_tests_argv(cluster(gpus=2), "/opt/all_reduce_perf", [1024, 4096], {"NCCL_DEBUG": "WARN"})
    assert argv[:6] == ["mpirun", "--allow-run-as-root", "-np", "6", "-H", "n1:2,n2:2,n3:2"]
    assert argv[6:8] == ["-x", "NCCL_DEBUG"]
    assert _bench_report.nccl_tests_argv(cluster(1, 1), "/opt/all_reduce_perf", [1024, 4096], {}) == []
    alone = _bench_report.nccl_tests_argv(cluster(1, 2), "/opt/all_reduce_perf", [1024, 4096], {})
    assert alone == ["/opt/all_reduce_perf", "-b", "1024", "-e", "4096", "-f", "4", "-g", "2"]


def test_one_node_has_no_links_and_one_rank_no_all_reduce():
    every = list(_bench_report.MEASURES)
    assert _bench_report.measurable(cluster(), every) == every
    assert _bench_report.measurable(cluster(1), every) == ["disks", "local"]
    assert _bench_report.measurable(cluster(1, gpus=2), every) == ["disks", "local", "collective"]
    assert _bench_report.measurable(cluster(1), ["links", "collective"]) == []
    args = {"measure": every, "seconds": 1}
    assert "all-reduce" not in _bench_report.plan_text(cluster(1), [], "gloo", [1024], args)


def test_heat_and_chart():
    told = report(figures("n2"), previous=report())
    heat = _bench_report.heat(told)
    assert [cell["class"] for cell in heat["rows"][1]] == ["h0", "self", "h0"]
    assert [cell["class"] for cell in heat["rows"][0]] == ["self", "h4", "h4"]
    chart = _bench_report.chart(told)
    assert [line["class"] for line in chart["lines"]] == ["now", "before"]
    for line in chart["lines"]:
        for point in line["points"]:
            assert chart["left"] <= point["x"] <= chart["right"]
            assert 0 <= point["y"] <= chart["bottom"]
    assert _bench_report.chart(report({**figures(), "collective": {}})) is None


def test_the_page_holds_check_and_bench():
    text = _report.render(bench=report(figures("n2"), previous=report()))
    assert "<title>Cluster bench</title>" in text
    for words in ('id="bandwidth"', "<polyline", "n2 sends 95 Mb/s", 'id="bench-previous"', "slower: n2 to n1"):
        assert words in text, words
    assert 'id="bandwidth"' not in _report.render(bench=report({**figures(), "links": {}}))


def test_a_page_of_both_verbs_takes_no_form_that_it_does_not_know(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(report()))
    assert _report.read_report(path, "bench")["sentence"] == "3 nodes: nothing is slow"
    assert _report.read_report(path, "check") is None
    path.write_text(json.dumps({**report(), "schema": 2}))
    assert _report.read_report(path, "bench") is None


@pytest.mark.parametrize(
    "broken",
    [
        {"links": 3},
        {"links": [{"mbps": 5}]},
        {"nodes": [{"name": "n1"}]},
        {"all_reduce": {"sweep": [{"bytes": 1}], "backend": "gloo", "world_size": 3}},
        {"ended": "yesterday"},
        {"ended": float("inf")},
        {"findings": [3]},
    ],
)
def test_a_report_of_odd_form_is_not_shown_beside_another(tmp_path, broken):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**report(), **broken}))
    assert _report.read_report(path, "bench") is None


@pytest.mark.parametrize("size", [None, "three", [3]])
def test_figures_of_odd_form_are_not_compared(size):
    before = report()
    before["all_reduce"]["world_size"] = size
    assert report(previous=before)["previous"] is None
