# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook explain.yml as a user runs it: no inventory, no node."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("ansible", reason="the playbook runs in ansible-core")

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._confirm import combine
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import diagnose
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _logs

ROOT = Path(__file__).resolve().parents[4]
PLAYBOOK = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PLAYBOOK
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env.update(ANSIBLE_HOME=str(folder / ".ansible"), ANSIBLE_LOCALHOST_WARNING="false", PWD=str(folder))
    return subprocess.run(
        [PLAYBOOK, str(ROOT / "playbooks" / "explain.yml"), *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs: an old healthy one, and a new one that failed on its third rank."""
    files = {
        "old/alpha/rank-0.log": "step 1 loss 2.0\n",
        "new/manifest.json": json.dumps({"nodes": [{"node": "beta"}, {"node": "alpha"}]}),
        "new/alpha/rank-2.log": "a\nb\n[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n",
        "new/alpha/rank-10.log": "Connection reset by peer\n",
        "new/beta/launcher.log": "closing signal SIGTERM\n",
        "new/beta/rank-0.log": "Connection closed by remote peer\n",
    }
    for name, text in files.items():
        path = tmp_path / "runs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    os.utime(tmp_path / "runs" / "old", (1, 1))
    return tmp_path


def test_the_newest_run_is_explained(runs: Path) -> None:
    done = run(runs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cuda_oom (confidence 0.90)" in done.stdout
    assert "alpha/rank-2.log:3: [rank2]: torch.OutOfMemoryError" in done.stdout
    assert "Fix: " in done.stdout
    answer = json.loads((runs / "runs" / "new" / "findings.json").read_text(encoding="utf-8"))
    assert [finding["label"] for finding in answer["findings"]] == ["cuda_oom", "peer_process_died"]
    assert answer["findings"][0]["ranks"] == ["2"]
    assert "changed=1" in done.stdout
    assert "changed=0" in run(runs).stdout


def test_what_the_cluster_said_is_no_change(runs: Path) -> None:
    run(runs)
    path = runs / "runs" / "new" / "findings.json"
    answer = json.loads(path.read_text(encoding="utf-8"))
    answer["findings"][0]["probe"]["result"] = {"confirmed": True, "sentence": "so it is", "nodes": {}}
    path.write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
    assert "changed=0" in run(runs).stdout
    assert "so it is" in path.read_text(encoding="utf-8")


def test_json_is_as_documented(runs: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs" / "findings.schema.json").read_text(encoding="utf-8"))
    (runs / "runs" / "new" / "alpha" / "rank-3.log").write_text("EADDRINUSE: port 29500 in use\n", encoding="utf-8")
    for run_id in ("new", "old"):
        run(runs, "-e", f"explain_run_id={run_id}")
        answer = json.loads((runs / "runs" / run_id / "findings.json").read_text(encoding="utf-8"))
        jsonschema.validate(answer, schema)
    told = {"a": {"holds": True, "sentence": "port 29500 is held"}, "b": {"holds": None, "sentence": "it is free"}}
    probed = {"id": "tcp_port_taken", "parameters": {"port": "29500"}}
    for finding in answer["findings"]:
        for result in (combine(told, ["c"]), combine({})):
            finding["probe"] = {**probed, "result": result}
            jsonschema.validate(answer, schema)
        finding["probe"]["result"] = {"confirmed": "yes"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(answer, schema)


def test_a_run_can_be_named_and_check_mode_writes_nothing(runs: Path) -> None:
    done = run(runs, "-e", "explain_run_id=old", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No fault is seen" in done.stdout
    assert not (runs / "runs" / "old" / "findings.json").exists()


def test_any_log_can_be_explained(runs: Path) -> None:
    (runs / "some.log").write_text("ValueError: bad\n", encoding="utf-8")
    done = run(runs, "-e", "explain_path=some.log", "-e", "explain_dest=answer.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "user_code" in done.stdout
    assert json.loads((runs / "answer.json").read_text(encoding="utf-8"))["findings"][0]["label"] == "user_code"
    assert "some.log:1: ValueError: bad" in (runs / "answer.html").read_text(encoding="utf-8")


def test_an_answer_that_cannot_be_written_names_the_variable(runs: Path) -> None:
    (runs / "file").write_text("")
    done = run(runs, "-e", "explain_dest=file/answer.json")
    assert done.returncode == 2
    assert "set explain_dest to a file that can be written" in " ".join(done.stdout.split() + done.stderr.split())
    assert "cuda_oom (confidence 0.90)" in done.stdout
    assert (runs / "file").read_text() == ""


def test_logs_of_other_origin_have_json_and_a_page_of_their_own(runs: Path) -> None:
    (runs / "some.log").write_text("ValueError: bad <b>\n", encoding="utf-8")
    (runs / "logs").mkdir()
    (runs / "logs" / "r0.out").write_text("ValueError: bad\n", encoding="utf-8")
    for path, folder in (("some.log", "reports"), ("logs", "logs")):
        assert not (runs / folder / "findings.html").exists()
        assert run(runs, "-e", f"explain_path={path}", "--check").returncode == 0
        assert not (runs / folder / "findings.html").exists()
        done = run(runs, "-e", f"explain_path={path}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads((runs / folder / "findings.json").read_text(encoding="utf-8"))["path"] == str(runs / path)
        page = (runs / folder / "findings.html").read_text(encoding="utf-8")
        assert f"<h1>Logs of {path}</h1>" in page
        assert "user_code" in page
        assert "<b>" not in page


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [("explain_path", "nowhere.log", "does not exist"), ("explain_path", "empty", "holds no logs")],
)
def test_it_says_what_to_set(runs: Path, variable: str, value: str, message: str) -> None:
    (runs / "empty").mkdir()
    done = run(runs, "-e", f"{variable}={value}")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "explain_path" in done.stdout + done.stderr


def test_nodes_come_in_launch_order_and_ranks_by_number(runs: Path) -> None:
    folder = runs / "runs" / "new"
    assert [str(log.relative_to(folder)) for log in _logs.find_logs(folder)] == [
        "beta/launcher.log",
        "beta/rank-0.log",
        "alpha/rank-2.log",
        "alpha/rank-10.log",
    ]


def test_a_broken_manifest_is_no_hindrance(runs: Path) -> None:
    folder = runs / "runs" / "new"
    (folder / "manifest.json").write_text("{", encoding="utf-8")
    assert len(_logs.find_logs(folder)) == 4


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.log.1", bytes),
        ("a.log.gz", gzip.compress),
        ("a.err.2.bz2", bz2.compress),
        ("a.out-20261121.xz", lzma.compress),
    ],
)
def test_rotated_and_packed_logs_are_read(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    text = b"step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    (tmp_path / name).write_bytes(pack(text))
    (tmp_path / "model.gz").write_bytes(pack(text))
    (log,) = _logs.find_logs(tmp_path)
    (finding, *_rest) = _logs.explain_logs([log], tmp_path)
    assert finding.label == "cuda_oom"
    assert (finding.evidence[0].file, finding.evidence[0].line) == (name, 2)


@pytest.mark.parametrize(
    ("name", "pack"), [("a.log.gz", gzip.compress), ("a.log.bz2", bz2.compress), ("a.log.xz", lzma.compress)]
)
def test_a_truncated_archive_is_named(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    log = tmp_path / name
    for data in (pack(b"step 1\n" * 1000)[:-12], b"no archive at all"):
        log.write_bytes(data)
        with pytest.raises(OSError, match=f"{name} cannot be read"):
            _logs.explain_logs([log], tmp_path)


def test_the_end_of_the_other_nodes_is_no_cause(tmp_path: Path) -> None:
    for node, text in (
        (
            "a",
            "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 25000ms for send operation\n",
        ),
        ("b", "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n"),
    ):
        (tmp_path / node).mkdir()
        (tmp_path / node / "rank-0.log").write_text(text)
    logs = _logs.find_logs(tmp_path)
    assert _logs.explain_logs(logs, tmp_path)[0].label == "external_sigterm"
    manifest = {"outcome": {"first": {"rank": 0, "node": "a", "code": 1, "signal": None}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert _logs.explain_logs(logs, tmp_path)[0].label == "collective_timeout_desync"
    # Where the first rank was ended by a signal, that is the cause.
    manifest["outcome"]["first"].update(code=None, signal=15)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert _logs.explain_logs(logs, tmp_path)[0].label == "external_sigterm"


def test_the_report_is_short() -> None:
    findings = diagnose("CUDA out of memory\nToo many open files\nSIGHUP death signal\nConnection reset by peer\n")
    text = _logs.report(findings, others=1)
    assert text.splitlines()[0] == "cuda_oom (confidence 0.90)"
    assert text.count("also ") == 1
