# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible", reason="action plugins raise ansible-core's errors")

from ansible_collections.torchfleet.cluster.plugins.action.launch_plan import (
    as_text,
    default_run_id,
    hashes,
    peers_of,
    script_in,
    seconds,
    with_reports,
    words,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    build_cluster,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import plan

CLUSTER = build_cluster(
    [{"name": "n1", "address": "10.0.0.1"}, {"name": "n2", "address": "10.0.0.2", "interface": "ib0"}]
)


def job(**more: Any) -> Job:
    return Job(**{"run_id": "r1", "run_dir": "/runs/r1", "workdir": "/work/a b", "script": "train.py", **more})


# script_in


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """work/ with scripts in it, beside which other.py lies; the current folder is the one above."""
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for name in ("work/train.py", "work/sub/deep.py", "work/-c.py", "work/two words.py", "other.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "work" / "link.py").symlink_to("sub/deep.py")
    (tmp_path / "work" / "out.py").symlink_to("../other.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("train.py", "train.py"),
        ("./train.py", "train.py"),
        ("sub/deep.py", "sub/deep.py"),
        ("sub/../train.py", "train.py"),
        ("work/train.py", "train.py"),  # from the current folder
        ("~/work/train.py", "train.py"),
        ("{work}/sub/deep.py", "sub/deep.py"),
        ("link.py", "sub/deep.py"),
        ("two words.py", "two words.py"),
        ("-c.py", "./-c.py"),
    ],
)
def test_a_script_is_found_below_the_working_directory(work: Path, script: str, found: str) -> None:
    assert script_in(work, script.format(work=work)) == found


def test_a_working_directory_behind_a_link(work: Path) -> None:
    link = work.with_name("link")
    link.symlink_to(work)
    assert script_in(link, "train.py") == script_in(link, str(work / "train.py")) == "train.py"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("none.py", "there is no file"),
        ("sub", "there is no file"),
        ("", "there is no file"),
        ("other.py", "outside launch_workdir"),
        ("../other.py", "outside launch_workdir"),
        ("out.py", "outside launch_workdir"),
        ("/etc/hostname", "outside launch_workdir"),
    ],
)
def test_a_script_that_is_not_there_is_named(work: Path, script: str, said: str) -> None:
    with pytest.raises(ClusterError) as error:
        script_in(work, script)
    assert "launch_script" in str(error.value) and said in str(error.value) and script in str(error.value)


# What is shown


def test_the_plan_as_text_can_be_pasted_into_a_shell() -> None:
    shown = as_text(plan(CLUSTER, job(args=("--name", "it's $HOME", ""), env={"NOTE": "a b;c"})), ())
    assert "run r1: torchrun, world size 2, master 10.0.0.1:29500\n" in shown
    assert "  cd '/work/a b'\n" in shown
    assert "  NOTE='a b;c'\n" in shown
    commands = [line for line in shown.splitlines() if "torch.distributed.run" in line]
    assert len(commands) == 2
    assert shlex.split(commands[1])[-4:] == ["train.py", "--name", "it's $HOME", ""]
    assert "because head: n1 (first host of the group)\n" in shown


def test_no_value_of_a_secret_can_appear() -> None:
    made = plan(CLUSTER, job(secret_env=("TOKEN", "OTHER")))
    for node in made.nodes:
        node.env["TOKEN"] = "hunter2"  # type: ignore[index]
    shown = as_text(made, ("TOKEN", "OTHER"))
    assert "hunter2" not in shown
    assert shown.count("TOKEN=") == shown.count("OTHER=") == 2


def test_a_node_that_the_head_starts_says_so() -> None:
    shown = as_text(plan(CLUSTER, job(launcher="mpirun", secret_env=("TOKEN",))), ("TOKEN",))
    assert "n2 (node rank 1)" in shown
    assert shown.count("1 ranks, started by the head, each:") == 2
    assert shown.count("TOKEN=") == 2


# What the user gave


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (None, ()),
        ([], ()),
        ("", ()),
        (["--lr", 0.1, "two words", ""], ("--lr", "0.1", "two words", "")),
        ("--epochs 3 --name 'two words'", ("--epochs", "3", "--name", "two words")),
    ],
)
def test_arguments_may_be_a_list_or_a_text(given: Any, got: tuple[str, ...]) -> None:
    assert words(given) == got


def test_arguments_with_an_open_quote_are_refused() -> None:
    with pytest.raises(ClusterError, match="launch_args"):
        words("--name 'two")


@pytest.mark.parametrize(("given", "got"), [(None, 0), ("", 0), (0, 0), ("90", 90), (1.5, 1.5)])
def test_seconds(given: Any, got: float) -> None:
    assert seconds("launch_time_limit", given) == got


@pytest.mark.parametrize("given", ["1h", "ten", [1]])
def test_seconds_that_are_none_are_named(given: Any) -> None:
    with pytest.raises(ClusterError, match=r"launch_time_limit is .*, wanted seconds"):
        seconds("launch_time_limit", given)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("train", "train-"),
        ("my train_v2.1", "my-train-v2-1-"),
        ("_private", "private-"),
        ("__main__", "main-"),
        ("...", "run-"),
        ("обучение", "run-"),
        ("x" * 200, "x" * 40 + "-"),
    ],
)
def test_any_scripts_name_makes_a_run_id(name: str, start: str) -> None:
    made = default_run_id(name)
    assert re.fullmatch(re.escape(start) + r"\d{8}-\d{6}", made)
    assert job(run_id=made).run_id == made


# What the preflight saw


def test_interfaces_come_from_the_preflight_where_none_was_chosen() -> None:
    seen = {"n1": {"interface": "eth1"}, "n2": {"interface": "eth1"}}
    made: Cluster = with_reports(CLUSTER, seen)
    assert [node.interface for node in made.nodes] == ["eth1", "ib0"]
    assert [node.interface for node in with_reports(CLUSTER, {}).nodes] == [None, "ib0"]


def test_the_script_is_known_by_its_hash_where_it_will_lie(work: Path) -> None:
    (work / "two words.py").write_text("x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert hashes(work, job(script="two words.py")) == {"/work/a b/two words.py": digest}
    assert hashes(work, job(script=None, module="pkg")) == {}


@pytest.mark.parametrize(
    ("launcher", "head", "other"), [("mpirun", ["n2"], []), ("torchrun", [], []), ("slurm", [], [])]
)
def test_the_head_tells_those_whom_its_launcher_reaches_by_ssh(
    launcher: str, head: list[str], other: list[str]
) -> None:
    made = plan(CLUSTER, job(launcher=launcher))
    assert [peers_of(made, node) for node in made.nodes] == [head, other]
