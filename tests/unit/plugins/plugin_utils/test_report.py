# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people and programs get of a check: the table, the JSON, the page, and the page in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "module_utils"))
import test_bench_report
from test_checks import CHECKS, GIB, NAMES, cluster, evaluate, set_

from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _report

ROOT = Path(__file__).resolve().parents[4]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# A finding that quotes what could be taken for HTML, and one with a long word.
EVIL = "<script>alert(1)</script>"


def faulty(nodes):
    set_("runtime/packages/torch/version", "2.12.0")(nodes)
    set_("system/hostname", EVIL, "gpu3")(nodes)
    set_("system/accelerate_configs", [{"path": "/root/" + "x" * 120, "lines": []}])(nodes)
    nodes["gpu2"]["probed"]["links"][0].update(ok=False, why="timeout", bandwidth_mbps=None)
    nodes["gpu3"]["probed"]["links"][0]["bandwidth_mbps"] = 940.0
    nodes["gpu1"]["system"]["clock"] = None


def report(change=faulty, previous=None):
    found = cluster(change)
    return _report.check_report(found, CHECKS, evaluate(CHECKS, found), 100.0, 106.2, ["reboot"], previous)


def manifest(failed=True):
    def rank(number, node, ended, code):
        return {"rank": number, "node": node, "started": 1012.0, "ended": ended, "code": code, "signal": None}

    return {
        "schema": 1,
        "run_id": "digits-1",
        "state": "failed" if failed else "succeeded",
        "plan": {"launcher": "torchrun", "world_size": 2, "master_address": "10.0.1.11", "master_port": 29500},
        "outcome": {"sentence": "rank 1 on gpu2 failed first: exit status 17"},
        "times": {"planned": 1000.0, "first_rank": 1012.0, "ended": 1031.0},
        "nodes": [
            {"node": "gpu1", "started": 1010.0, "ended": 1030.0, "code": 1, "ranks": [rank(0, "gpu1", 1030.0, 0)]},
            {"node": "gpu2", "started": 1010.5, "ended": 1029.0, "code": 1, "ranks": [rank(1, "gpu2", 1025.0, 17)]},
            {"node": "gpu3", "started": None, "ranks": []},
        ],
    }


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "digits-1"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest()))
    finding = {
        "label": "user_code",
        "cause": "The program raised ValueError.",
        "fix": "Mend train.py.",
        "confidence": 0.9,
        "evidence": [{"file": "gpu2/rank-1.log", "line": 12, "text": "ValueError: <b>bad</b>"}],
    }
    (folder / "findings.json").write_text(json.dumps({"schema": 1, "findings": [finding]}))
    return _report.read_run(folder)


def page(run):
    return _report.render(report(), [run, None])


# ---- JSON


def test_json_is_as_documented():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "check.schema.json").read_text())
    for change in (faulty, lambda nodes: None, lambda nodes: nodes["gpu2"].clear()):
        told = json.loads(json.dumps(report(change, report(lambda nodes: None))))
        jsonschema.validate(told, schema)


def test_verdicts_of_nodes_and_cluster():
    told = report()
    assert {node["name"]: node["verdict"] for node in told["nodes"]} == {"gpu1": "fail", "gpu2": "fail", "gpu3": "warn"}
    assert (told["status"], told["verdict"]) == (2, "failures")
    assert told["sentence"] == f"3 nodes, {len(CHECKS)} checks: 2 failures and 3 warnings"
    healthy = report(lambda nodes: None)
    assert (healthy["status"], healthy["sentence"]) == (0, f"3 nodes, {len(CHECKS)} checks: nothing is wrong")


def test_a_node_that_did_not_answer_is_in_the_report():
    told = report(set_("system", {"reached": False, "problem": "No route to host"}))
    assert told["sentence"].startswith("3 nodes (1 did not answer)")
    assert told["nodes"][-1] == {
        "name": "gpu2",
        "reached": False,
        "problem": "No route to host",
        "head": False,
        "verdict": "fail",
    }
    assert "gpu2" not in _report.as_text(told).partition("FAIL")[0]
    assert "No route to host" in _report.render(told)


def test_beside_the_last_check():
    before = report(set_("system/reboot/pending", True))
    told = report(set_("system/disks/0/free_bytes", GIB), before)
    assert told["previous"] == {
        "ended": 106.2,
        "new": ["gpu2: 1 GiB are free on / (/), wanted 2 GiB"],
        "gone": ["gpu2 is waiting for a reboot"],
    }
    # Another figure of the same finding is not a new finding.
    again = report(set_("system/disks/0/free_bytes", GIB // 2), told)
    assert again["previous"]["new"] == again["previous"]["gone"] == []


def test_a_file_that_is_no_report_is_no_last_check(tmp_path):
    for text in ("", "[1]", "{", '"x"'):
        (tmp_path / "check.json").write_text(text)
        assert _report.read_json(tmp_path / "check.json") is None
    assert report(previous={"schema": 99})["previous"] is None


@pytest.mark.parametrize(
    "broken",
    [
        {"findings": [3], "nodes": "x"},
        {"findings": 3},
        {"findings": {"a": 1}},
        {"findings": [{"check": "clock", "nodes": ["gpu1"]}]},
        {"findings": [{"check": "clock", "sentence": "x", "nodes": [["gpu1"]]}]},
        {"ended": "yesterday"},
        {"ended": None},
        {"ended": float("inf")},
    ],
)
def test_a_report_of_odd_form_is_no_last_check(broken):
    whole = {"schema": 1, "kind": "check", "ended": 5.0, "findings": []}
    assert report(previous=whole)["previous"]["ended"] == 5.0
    told = report(previous={**whole, **broken})
    assert told["previous"] is None
    assert "gpu2" in _report.render(told)


# ---- terminal


def test_table_for_people():
    lines = _report.as_text(report()).splitlines()
    assert lines[0].split() == ["node", "address", "GPUs", "driver", "torch", "clock", "verdict"]
    assert lines[1].split() == [
        "gpu1",
        "*",
        "eth1",
        "10.0.1.11",
        "2",
        "x",
        "NVIDIA",
        "H100",
        "580.65.06",
        "2.13.0+cu128",
        "-",
        "fail",
    ]
    assert "FAIL  gpu2 has torch 2.12.0, gpu1 and gpu3 have 1.2.3" in lines
    assert any(line.startswith("      fix: put `pytorch_version: 1.2.3`") for line in lines)
    assert lines[-1].endswith("2 failures and 3 warnings (6.2 s)")


def test_columns_that_say_nothing_are_left_out():
    def without(nodes):
        for node in nodes.values():
            node["gpu"] = {"status": "not_installed", "gpus": [], "pci_gpus": []}

    assert _report.as_text(report(without)).splitlines()[0].split() == ["node", "address", "torch", "clock", "verdict"]


# ---- runs


def test_timeline():
    told = _report.timeline(manifest())
    assert told["seconds"] == 31.0
    assert told["marks"] == [{"label": "first rank", "at": 12.0}, {"label": "judged", "at": 31.0}]
    assert [(bar["label"], bar["start"], bar["end"], bar["failed"]) for bar in told["bars"]] == [
        ("gpu1", 10.0, 30.0, True),
        ("rank 0", 12.0, 30.0, False),
        ("gpu2", 10.5, 29.0, True),
        ("rank 1", 12.0, 25.0, True),
    ]


@pytest.mark.parametrize(
    "broken", [{}, {"times": {}}, {"times": {"planned": 5.0}}, {"times": {"planned": 5.0}, "nodes": ["gpu1"]}]
)
def test_a_run_that_was_only_planned_has_no_bars(broken):
    assert _report.timeline(broken)["bars"] == []
    assert "Run r" in _report.render(runs=[{**_empty_run(), "timeline": _report.timeline(broken)}])


def _empty_run():
    return {
        "run_id": "r",
        "state": "planned",
        "sentence": "",
        "launcher": "",
        "world_size": None,
        "master": "",
        "versions": {},
        "explained": [],
    }


def test_a_folder_without_a_manifest_is_no_run(tmp_path):
    assert _report.read_run(tmp_path) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"plan": 3},
        {"outcome": ["x"]},
        {"versions": 7},
        {"times": "now"},
        {"times": {"planned": "now", "ended": 3}},
        {"nodes": 4},
        {"nodes": [{"started": 1.0}]},
        {"nodes": [{"node": "gpu1", "started": "x", "ranks": 5}]},
    ],
)
def test_a_manifest_of_odd_form_is_no_run(tmp_path, broken):
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest(), **broken}))
    assert _report.read_run(tmp_path) is None


@pytest.mark.parametrize(
    "findings", [3, [3], [{"label": "x"}], [{"label": "", "cause": "", "fix": "", "confidence": 1, "evidence": [3]}]]
)
def test_findings_of_odd_form_are_none(tmp_path, findings):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest()))
    (tmp_path / "findings.json").write_text(json.dumps({"findings": findings}))
    run = _report.read_run(tmp_path)
    assert run["explained"] == []
    assert "digits-1" in _report.render(runs=[run])


# ---- the page


class Outline(HTMLParser):
    """Tags that are open, addresses that are named, and whether everything is closed."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href", "action", "data", "srcset")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else(run):
    text = page(run)
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert outline.addresses == []
    assert not outline.tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"url\(|@import|https?://", text)
    assert "viewport" in text and "@media print" in text


def test_page_shows_what_was_found(run):
    text = page(run)
    for words in (
        "gpu2 has torch 2.12.0, gpu1 and gpu3 have 1.2.3",
        "pytorch_version: 1.2.3",
        '<td class="odd">2.12.0</td>',
        '<td class="bad" title="timeout">timeout</td>',
        "940 M",
        "rank 1 on gpu2 failed first: exit status 17",
        "user_code: The program raised ValueError.",
        "gpu2/rank-1.log:12: ValueError: &lt;b&gt;bad&lt;/b&gt;",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ):
        assert words in text, words
    assert EVIL not in text


def test_page_of_a_run_alone(run):
    text = _report.render(runs=[run])
    assert "<title>Run digits-1</title>" in text
    assert "Sameness" not in text


# ---- a real browser


def chromium(tmp_path: Path, *options: str) -> str:
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    command += [
        "--disable-dev-shm-usage",
        "--force-color-profile=srgb",
        f"--user-data-dir={tmp_path / 'profile'}",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


# A page around the page: measures it at a phone's and at a desk's width, and says what it saw in its title.
PROBE = """<!DOCTYPE html><body><iframe id="f" style="width:{width}px;height:5000px;border:0" src="report.html"></iframe><script>
document.getElementById('f').onload = function () {{
  const page = this.contentDocument, root = page.documentElement, told = {{}};
  const seen = selector => [...page.querySelectorAll(selector)].filter(one => one.getBoundingClientRect().height > 0);
  told.overflow = root.scrollWidth - {width};
  told.findings = seen('.finding').length;
  told.cards = seen('.card').length;
  told.columns = new Set(seen('.card').map(one => Math.round(one.getBoundingClientRect().left))).size;
  told.odd = seen('td.odd').map(one => one.textContent);
  told.bad = seen('#matrix td.bad').map(one => one.textContent);
  told.bars = seen('.bar').length;
  told.outside = seen('.bar').filter(one => {{
    const bar = one.getBoundingClientRect(), track = one.parentElement.getBoundingClientRect();
    return bar.left < track.left - 1 || bar.right > track.right + 4;
  }}).length;
  const svg = page.querySelector('#sweep svg');
  const box = svg ? svg.getBoundingClientRect() : null;
  told.chart = svg ? Math.round(box.width) : 0;
  told.lines = seen('#sweep polyline').length;
  told.points = seen('#sweep circle').length;
  told.labels = seen('#sweep text').map(one => one.textContent);
  told.strays = seen('#sweep text, #sweep circle').filter(one => {{
    const mark = one.getBoundingClientRect();
    return mark.left < box.left - 1 || mark.right > box.right + 1 || mark.bottom > box.bottom + 1;
  }}).length;
  told.small = seen('#sweep text').filter(one => one.getBoundingClientRect().height < 11).length;
  told.heat = seen('#bandwidth td').map(one => one.textContent);
  told.colours = new Set(seen('#bandwidth td:not(.self)').map(one => getComputedStyle(one).backgroundColor)).size;
  told.text = parseFloat(getComputedStyle(page.body).fontSize);
  told.covered = seen('.finding strong').filter(one => one.getBoundingClientRect().right > {width}).length;
  document.body.textContent = JSON.stringify(told);
}};
</script></body>"""


def seen_in_a_browser(tmp_path, text, width):
    """What the probe saw of a page at that width."""
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    (tmp_path / "probe.html").write_text(PROBE.format(width=width), encoding="utf-8")
    dom = chromium(
        tmp_path,
        "--allow-file-access-from-files",
        "--disable-web-security",
        f"--window-size={width + 40},1000",
        "--virtual-time-budget=5000",
        "--dump-dom",
        f"file://{tmp_path}/probe.html",
    )
    return json.loads(re.search(r"<body>(\{.*\})</body>", dom, re.DOTALL).group(1))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width, columns", [(390, 1), (1200, 3)])
def test_in_a_browser(tmp_path, run, width, columns):
    told = seen_in_a_browser(tmp_path, page(run), width)
    # Wide tables scroll within themselves; the page does not.
    assert told["overflow"] <= 0
    assert told["findings"] == len(report()["findings"]) + 1
    assert (told["cards"], told["columns"]) == (len(NAMES), columns)
    assert told["odd"] == ["2.12.0"]
    assert told["bad"] == ["timeout"]
    assert (told["bars"], told["outside"]) == (4, 0)
    assert told["text"] >= 16
    assert told["covered"] == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [390, 1200])
def test_bench_in_a_browser(tmp_path, width):
    before = test_bench_report.report()
    text = _report.render(bench=test_bench_report.report(test_bench_report.figures("n2"), previous=before))
    told = seen_in_a_browser(tmp_path, text, width)
    assert told["overflow"] <= 0
    assert told["findings"] == 1
    # This run and the one before.
    assert (told["lines"], told["points"]) == (2, 6)
    assert 300 < told["chart"] <= min(width, 770)
    assert "64 MiB" in told["labels"]
    assert told["strays"] == 0
    assert told["small"] == 0
    assert told["heat"] == ["", "940 Mb/s", "940 Mb/s", "95 Mb/s", "", "95 Mb/s", "940 Mb/s", "940 Mb/s", ""]
    assert told["colours"] == 2
    assert told["text"] >= 16


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_printed(tmp_path, run):
    (tmp_path / "report.html").write_text(page(run), encoding="utf-8")
    chromium(tmp_path, f"--print-to-pdf={tmp_path / 'report.pdf'}", f"file://{tmp_path}/report.html")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_screenshot_is_not_blank(tmp_path, run):
    (tmp_path / "report.html").write_text(page(run), encoding="utf-8")
    chromium(tmp_path, "--window-size=390,844", f"--screenshot={tmp_path / 'a.png'}", f"file://{tmp_path}/report.html")
    head = (tmp_path / "a.png").read_bytes()
    assert struct.unpack(">II", head[16:24]) == (390, 844)
    # A page of one colour is a few hundred bytes.
    assert len(head) > 20000
