# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An environment by a script that answers as conda does."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.modules import conda_env

CONDA = r"""#!/bin/sh
echo "$@" >> "$0.calls"
echo "$CONDA_PKGS_DIRS $CONDA_OVERRIDE_CUDA" >> "$0.env"
verb=$1; prefix= offline=
while [ $# -gt 0 ]; do
    case $1 in --prefix) prefix=$2 ;; --file) file=$2 ;; --offline) offline=yes ;; esac
    shift
done
case $verb in
create | env)
    if [ -n "$offline" ]; then
        # As conda: a package without its URL in the list beside it is none.
        while read -r line; do
            case $line in http*) grep -qx "${line%#*}" "$CONDA_PKGS_DIRS/urls.txt" || { echo "in offline mode" >&2; exit 1; } ;; esac
        done < "$file"
    fi
    [ -e "$0.fails" ] && { echo "PackagesNotFoundError: nothing provides it" >&2; exit 1; }
    mkdir -p "$prefix/bin" "$prefix/conda-meta"; : > "$prefix/bin/python"
    if [ -n "$file" ]; then grep -v '^@' "$file"; else echo "https://c/python-3.12.7.conda#1"; fi > "$prefix/list" ;;
list) echo "# made $$"; echo "@EXPLICIT"; cat "$prefix/list" ;;
esac
"""


@pytest.fixture
def conda(tmp_path):
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin/conda"
    path.write_text(CONDA, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def call(tmp_path, conda, capsys):
    def run(check=False, **more):
        params = {"conda": str(conda), "path": str(tmp_path / "env"), "_ansible_check_mode": check, **more}
        with patch_module_args(params), pytest.raises(SystemExit):
            conda_env.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_packages_from_named_channels_alone(call, conda):
    answer = call(packages=["python=3.12"], channels=["https://mirror/conda-forge"])
    assert answer["changed"]
    assert conda_env.exact(answer["lock"]) == ["https://c/python-3.12.7.conda#1"]
    first = conda.with_name("conda.calls").read_text(encoding="utf-8").splitlines()[0]
    assert "--channel https://mirror/conda-forge --override-channels python=3.12" in first


def test_channels_and_mirrors_are_asked_in_their_order(call, conda):
    call(packages=["python"], channels=["https://mirror/conda-forge", "nvidia"])
    first = conda.with_name("conda.calls").read_text(encoding="utf-8").splitlines()[0]
    assert "--channel https://mirror/conda-forge --channel nvidia --override-channels python" in first
    call(packages=["python"], path=str(conda.with_name("other")))
    assert "--channel" not in conda.with_name("conda.calls").read_text(encoding="utf-8").splitlines()[2]


def test_a_definition_is_handed_to_conda_as_it_is_and_its_channels_alone_count(call, conda, tmp_path):
    definition = "channels: [https://mirror/conda-forge]\ndependencies:\n  - python=3.12\n  - pip: [six==1.17.0]\n"
    assert call(check=True, definition=definition)["changed"]
    answer = call(definition=definition, packages=["python=3.9"], channels=["elsewhere"])
    assert answer["changed"] and answer["python"] == str(tmp_path / "env/bin/python")
    first = conda.with_name("conda.calls").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(f"env create --quiet --prefix {tmp_path / 'env'} --file ") and first.endswith(".yml")
    assert (tmp_path / "env/list").read_text(encoding="utf-8") == definition
    assert not call(definition=definition)["changed"]


def test_an_environment_that_is_there_is_left_alone(call):
    call(packages=["python=3.12"])
    assert not call(packages=["python=3.12"])["changed"]


def test_a_list_makes_the_same_on_another_node(call):
    lock = call(packages=["python=3.12"])["lock"]
    assert not call(lock=lock)["changed"]
    assert not call(lock=lock.replace("# made", "# made elsewhere"))["changed"]
    newer = "@EXPLICIT\nhttps://c/python-3.12.8.conda#2\n"
    assert call(lock=newer)["changed"]
    assert not call(lock=newer)["changed"]


def test_one_that_was_cut_off_is_begun_anew(call, tmp_path):
    (tmp_path / "env/conda-meta").mkdir(parents=True)
    (tmp_path / "env/half").write_text("", encoding="utf-8")
    assert call(packages=["python=3.12"])["changed"]
    assert not (tmp_path / "env/half").exists()


def test_the_words_of_conda_are_handed_on(call, conda):
    conda.with_name("conda.fails").write_text("", encoding="utf-8")
    assert "nothing provides it" in call(packages=["python=9"])["msg"]


def test_a_folder_that_is_no_environment_is_not_touched(call, tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env/thesis.tex").write_text("", encoding="utf-8")
    assert "is no conda environment" in call(packages=["python"])["msg"]
    assert (tmp_path / "env/thesis.tex").exists()


def test_check_mode_makes_nothing(call, tmp_path):
    assert call(check=True, packages=["python"])["changed"]
    assert not (tmp_path / "env").exists()


PACKAGES = {"python-3.12.7-h_0.conda": b"python", "pip-24-py_0.tar.bz2": b"pip"}
LOCK = "@EXPLICIT\n" + "".join(
    f"https://c/noarch/{name}#{hashlib.md5(content).hexdigest()}\n" for name, content in PACKAGES.items()
)


def fill(folder, **changed):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**PACKAGES, **changed}.items():
        (folder / name).write_bytes(content)
    return str(folder)


def creations(conda):
    return [
        line for line in conda.with_name("conda.calls").read_text(encoding="utf-8").splitlines() if "create" in line
    ]


def test_packages_are_collected_for_others(call, tmp_path):
    fill(tmp_path / "pkgs")
    (tmp_path / "pkgs/pip-24-py_0.tar.bz2").unlink()
    answer = call(lock=LOCK, collect=str(tmp_path / "out"))
    assert (answer["changed"], answer["files"], answer["offline"]) == (True, 1, False)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["python-3.12.7-h_0.conda"]


def test_another_node_makes_it_without_a_network(call, conda, tmp_path):
    answer = call(lock=LOCK, cache=fill(tmp_path / "passed"))
    assert (answer["changed"], answer["files"], answer["offline"]) == (True, 2, True)
    (command,) = creations(conda)
    assert command.endswith("--offline")
    urls = (tmp_path / "pkgs/urls.txt").read_text(encoding="utf-8").splitlines()
    assert urls == [f"https://c/noarch/{name}" for name in PACKAGES]
    assert conda.with_name("conda.env").read_text(encoding="utf-8").startswith(f"{tmp_path}/pkgs ")
    assert not call(lock=LOCK)["changed"]


def test_a_package_that_is_not_the_wanted_one_comes_from_the_channel(call, conda, tmp_path):
    answer = call(lock=LOCK, cache=fill(tmp_path / "passed", **{"pip-24-py_0.tar.bz2": b"another"}))
    assert (answer["changed"], answer["files"], answer["offline"]) == (True, 1, False)
    assert ["--offline" in line for line in creations(conda)] == [True, False]
    assert not (tmp_path / "pkgs/pip-24-py_0.tar.bz2").exists()


def test_a_folder_that_never_came_is_no_problem(call, conda, tmp_path):
    answer = call(lock=LOCK, cache=str(tmp_path / "never"))
    assert answer["changed"] and ["--offline" in line for line in creations(conda)] == [False]


def test_a_build_for_cuda_is_chosen_whatever_driver_runs(call, conda):
    call(packages=["pytorch=2.13.0=cuda129*"], cuda="12.9")
    assert conda.with_name("conda.env").read_text(encoding="utf-8").splitlines()[0].endswith("pkgs 12.9")


def test_conda_that_is_not_there_is_named(call, tmp_path):
    assert "set conda_enabled to true" in call(packages=["python"], conda="/none/bin/conda")["msg"]
    assert call(check=True, packages=["python"], conda="/none/bin/conda")["changed"]
