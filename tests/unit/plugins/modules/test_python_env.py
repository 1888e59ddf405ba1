# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module as it runs on a node: real environments, and wheels made here. No network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.modules import python_env, wheelhouse

BASE = str(Path(sys.base_prefix) / "bin" / "python3")


def make_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"__version__ = '{version}'\n")
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in (("tinynet", "1.0"), ("tinynet", "1.1+cpu"), ("tinydep", "2.0")):
        make_wheel(folder, name, version)
    make_wheel(folder, "modest", "1.0", "tinynet", "tinydep")
    make_wheel(folder, "greedy", "1.0", "tinynet>1.0")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment to copy: making one takes seconds."""
    path = tmp_path_factory.mktemp("made") / "venv"
    subprocess.run([BASE, "-m", "venv", str(path)], check=True)
    return path


@pytest.fixture
def venv(made: Path, tmp_path: Path) -> Path:
    path = tmp_path / "venv"
    shutil.copytree(made, path, symlinks=True, copy_function=os.link)
    return path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)

    def run(path: Path | str, *packages: str, **more: Any) -> Any:
        params = {
            "path": str(path),
            "packages": list(packages),
            "python": BASE,
            "find_links": [str(wheels)],
            "no_index": True,
            **more,
        }
        check = params.pop("check", False)
        with patch_module_args({**params, "_ansible_check_mode": check}), pytest.raises(SystemExit) as end:
            python_env.main()
        result = json.loads(capsys.readouterr().out)
        assert end.value.code == (1 if result.get("failed") else 0)
        return result

    return run


def version_in(venv: Path, name: str = "tinynet") -> str:
    command = [str(venv / "bin" / "python"), "-I", "-c", f"import {name}; print({name}.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_from_nothing_to_an_environment_that_a_second_call_leaves_alone(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "venv"
    looked = call(path, "tinynet==1.0", check=True)
    assert (looked["changed"], looked["missing"], looked["can_make"]) == (True, ["tinynet==1.0"], True)
    assert not path.exists()

    assert (call(path)["changed"], call(path)["changed"]) == (True, False)  # nothing in it yet
    first = call(path, "tinynet==1.0")
    assert (first["changed"], first["versions"]) == (True, {"tinynet": "1.0"})
    assert first["python"] == f"{path}/bin/python"
    assert version_in(path) == "1.0"

    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    second = call(path, "tinynet==1.0")
    assert (second["changed"], second["missing"], second["versions"]) == (False, [], {"tinynet": "1.0"})
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_what_is_missing_or_of_another_version_is_put_right(call: Any, venv: Path) -> None:
    assert call(venv, "tinynet==1.0")["changed"]
    looked = call(venv, "tinynet==1.1", "tinydep", check=True)
    assert (looked["changed"], looked["missing"]) == (True, ["tinynet==1.1", "tinydep"])
    assert looked["diff"]["before"] == "tinynet 1.0\n"
    assert "tinynet==1.1 (to be installed)\n" in looked["diff"]["after"]
    assert version_in(venv) == "1.0"
    assert call(venv, "tinynet==1.1", "tinydep")["versions"] == {"tinynet": "1.1+cpu", "tinydep": "2.0"}
    assert version_in(venv) == "1.1+cpu"
    assert not call(venv, "tinynet==1.1", "tinydep")["changed"]


def test_requirements_that_are_met_are_not_installed_again(call: Any, venv: Path) -> None:
    call(venv, "tinynet==1.0")
    elsewhere = "tinydep; sys_platform == 'win32'"
    for met in ("tinynet", "tinynet>=1,<2", "TinyNet", "tinynet ~= 1.0", "tinynet!=1.1", elsewhere):
        assert not call(venv, met)["changed"], met


def break_link(venv: Path) -> None:
    for name in ("python", "python3"):
        (venv / "bin" / name).unlink()
        (venv / "bin" / name).symlink_to("/no/longer/python3")


def break_program(venv: Path) -> None:
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").write_bytes(b"\x7fELF of another machine")
    (venv / "bin" / "python").chmod(0o755)


def remove_pip(venv: Path) -> None:
    for path in venv.glob("lib/python3*/site-packages/pip*"):
        shutil.rmtree(path)


def test_an_interpreter_of_another_machine_is_noticed(call: Any, venv: Path) -> None:
    break_program(venv)
    looked = call(venv, "tinynet==1.0", check=True)
    assert (looked["changed"], looked["missing"]) == (True, ["tinynet==1.0"])


@pytest.mark.parametrize("damage", [break_link, remove_pip])
def test_a_broken_environment_is_repaired(call: Any, venv: Path, damage: Callable[[Path], None]) -> None:
    call(venv, "tinynet==1.0")
    damage(venv)
    assert call(venv, "tinynet==1.0", check=True)["changed"]
    repaired = call(venv, "tinynet==1.0")
    assert repaired["changed"], repaired
    assert version_in(venv) == "1.0"
    assert not call(venv, "tinynet==1.0")["changed"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("kind", ["file", "data", "conda"])
def test_a_path_that_is_no_environment_is_left_as_it_is(
    call: Any, tmp_path: Path, made: Path, kind: str, check: bool
) -> None:
    path = tmp_path / "mine"
    if kind == "file":
        path.write_text("mine")
    else:
        (path / "bin").mkdir(parents=True)
        (path / "data").write_text("mine")
    if kind == "conda":
        (path / "bin" / "python").symlink_to(made / "bin" / "python")
    before = sorted(tmp_path.rglob("*"))
    result = call(path, "tinynet", check=check)
    assert result["failed"] and f"{path} exists and is no virtual environment" in result["msg"]
    assert "torchfleet_venv" in result["msg"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("packages", "more", "said"),
    [
        (["tinynet==9"], {}, ["tinynet==9", "could not be installed", "wheels in"]),
        (["no such thing!"], {}, ["'no such thing!'", "packages", "not a requirement"]),
        (["--index-url=http://192.0.2.1/"], {}, ["'--index-url=http://192.0.2.1/'", "packages", "not a requirement"]),
        (["tinynet"], {"find_links": []}, ["no_index needs find_links"]),
    ],
)
def test_what_cannot_be_done_is_said(
    call: Any, venv: Path, packages: list[str], more: dict[str, Any], said: list[str]
) -> None:
    result = call(venv, *packages, **more)
    assert result["failed"]
    for words in said:
        assert words in result["msg"]


def test_a_relative_path_is_refused(call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert "wanted an absolute path" in call("venv", "tinynet")["msg"]


def test_an_interpreter_that_cannot_make_environments_is_named(call: Any, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 'No module named venv' >&2\nexit 1\n")
    python.chmod(0o755)
    looked = call(tmp_path / "venv", "tinynet", python=str(python), check=True)
    assert (looked["changed"], looked["can_make"]) == (True, False)
    result = call(tmp_path / "venv", "tinynet", python=str(python))
    for words in (str(python), "No module named venv", "python3-venv"):
        assert words in result["msg"]


def test_what_conda_has_brought_is_not_replaced(call: Any, venv: Path) -> None:
    (venv / "conda-meta").mkdir()
    call(venv, "tinynet==1.0")
    assert call(venv, "modest", constraints=["tinynet==1.0"])["changed"]
    assert version_in(venv) == "1.0"
    refused = call(venv, "greedy", constraints=["tinynet==1.0"])
    assert "greedy could not be installed" in refused["msg"] and ", beside tinynet==1.0: " in refused["msg"]
    assert version_in(venv) == "1.0"


def test_an_environment_of_conda_s_is_taken_as_it_is_or_not_at_all(call: Any, tmp_path: Path) -> None:
    path = tmp_path / "env"
    (path / "conda-meta").mkdir(parents=True)
    assert call(path, "tinynet==1.0", check=True)["changed"]
    assert "is an environment of conda's that has no pip" in call(path, "tinynet==1.0")["msg"]
    assert sorted(one.name for one in path.iterdir()) == ["conda-meta"]


def test_what_is_there_is_not_collected_for_others(
    call: Any, capsys: pytest.CaptureFixture[str], venv: Path, wheels: Path, tmp_path: Path
) -> None:
    call(venv, "tinynet==1.0")
    params = {
        "path": str(tmp_path / "collected"),
        "packages": ["modest", "tinynet==1.0"],
        "keep": ["tinynet==1.0"],
        "python": f"{venv}/bin/python",
        "python_version": "3.11",
        "index_url": f"file://{wheels}/none",
        "find_links": [str(wheels)],
    }
    with patch_module_args(params), pytest.raises(SystemExit):
        wheelhouse.main()
    answer = json.loads(capsys.readouterr().out)
    assert "folder" in answer, answer
    names = {path.name.partition("-")[0] for path in Path(answer["folder"]).glob("*.whl")}
    assert names == {"modest", "tinydep"}
    assert sorted(path.name for path in Path(answer["folder"]).iterdir() if path.suffix != ".whl") == ["WANTED.json"]


def test_an_interpreter_that_is_yet_to_come_is_no_failure_in_check_mode(call: Any, tmp_path: Path) -> None:
    looked = call(tmp_path / "new", "tinynet==1.0", check=True, python=str(tmp_path / "conda/bin/python"))
    assert (looked["changed"], looked["can_make"], looked["base_version"]) == (True, False, "")


def test_what_pip_itself_is_made_of_is_not_what_is_installed(call: Any, venv: Path, wheels: Path) -> None:
    """As Debian 11's pip does, which has six and requests in wheels of its own."""
    call(venv, "tinynet==1.1")
    (init,) = venv.glob("lib/python3*/site-packages/pip/_vendor/__init__.py")
    text = f"{init.read_text()}\nimport sys\nsys.path.insert(0, '{wheels}/tinynet-1.0-py3-none-any.whl')\n"
    init.unlink()  # a link to that of all tests
    init.write_text(text)
    looked = call(venv, "tinynet==1.1", check=True)
    assert (looked["changed"], looked["versions"]) == (False, {"tinynet": "1.1+cpu"})


@pytest.mark.parametrize("module", [python_env, wheelhouse])
@pytest.mark.parametrize("where", ["index_url", "extra_index_urls", "find_links"])
def test_a_token_is_seen_by_pip_alone(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    venv: Path,
    tmp_path: Path,
    module: Any,
    where: str,
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    url = "http://user:t0k3n@127.0.0.1:9/simple"
    python, calls = venv / "bin" / "python", tmp_path / "calls"
    real = python.resolve()
    python.unlink()
    python.write_text(f'#!/bin/bash\necho "$@" >> {calls}\nexec -a {venv}/bin/python3 {real} "$@"\n')
    python.chmod(0o755)
    own = {"path": str(venv)}
    if module is wheelhouse:
        own = {"path": str(tmp_path / "wheels"), "python": str(python), "python_version": "3.11"}
    params = {**own, "packages": ["tinynet==1.0"], where: url if where == "index_url" else [url]}
    with patch_module_args(params), pytest.raises(SystemExit):
        module.main()
    answer = capsys.readouterr().out
    assert json.loads(answer)["failed"] and "tinynet==1.0 could not be" in answer
    assert "runpy" in calls.read_text() and "@" not in calls.read_text()
    assert "t0k3n" not in answer


def test_a_wheelhouse_does_not_keep_the_token(
    capsys: pytest.CaptureFixture[str], wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    folders = []
    for token in ("t0k3n", "another"):
        params = {
            "path": str(tmp_path),
            "packages": ["tinynet==1.0"],
            "python_version": "3.11",
            "index_url": f"file://{wheels}/none",
            "find_links": [str(wheels), f"http://{token}@127.0.0.1:9/wheels"],
        }
        with patch_module_args(params), pytest.raises(SystemExit):
            wheelhouse.main()
        folders.append(json.loads(capsys.readouterr().out)["folder"])
    assert folders[0] == folders[1]
    assert '"http://127.0.0.1:9/wheels"' in (Path(folders[0]) / "WANTED.json").read_text()
