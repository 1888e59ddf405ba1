# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package files that one node fetches and others take, by scripts that answer as apt's and dnf's tools do."""

from __future__ import annotations

import hashlib
import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import PLATFORMS
from ansible_collections.torchfleet.cluster.plugins.modules import system_packages

GOOD, BAD = b"a package", b"another package"
SHA256 = hashlib.sha256(GOOD).hexdigest()

# `archives` is apt's cache; what it installs it has to find there, and else counts as downloaded.
APT_GET = f"""#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$*" >> calls
for word; do case $word in Dir::Cache::archives=*) there=${{word#*=}} ;; esac; done
case "$*" in
*--print-uris*) echo "'http://deb.example/p/pdsh_2_amd64.deb' pdsh_2_amd64.deb {len(GOOD)} SHA256:{SHA256}" ;;
*--download-only*) [ -d "$there/partial" ] || exit 1; printf '{GOOD.decode()}' > "$there/pdsh_2_amd64.deb"; touch "$there/lock" ;;
*" install "*) [ -e archives/pdsh_2_amd64.deb ] || touch downloaded; printf 'pdsh\\t2' > installed ;;
esac
"""
DNF = f"""#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$*" >> calls
case "$*" in
*--downloadonly*) mkdir -p cache/base-1f/packages; printf '{GOOD.decode()}' > cache/base-1f/packages/pdsh-2.rpm ;;
*install*) [ -e cache/base-1f/packages/pdsh-2.rpm ] || touch downloaded; printf 'pdsh\\t2' > installed ;;
esac
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    scripts = {
        "apt-get": APT_GET,
        "dnf": DNF,
        "apt-config": f"#!/bin/sh\necho \"A='{tmp_path}/archives/'\"\n",
        "dpkg-query": f"#!/bin/sh\nsed 's/$/\\tii /' {tmp_path}/installed\n",
        "rpm": f"#!/bin/sh\nsed 's/\\t/\\t0:/' {tmp_path}/installed\n",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "installed").write_text("", encoding="utf-8")
    (tmp_path / "archives").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(system_packages, "DNF_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def call(monkeypatch, capsys, tools):
    def run(key="debian12", **params):
        monkeypatch.setattr(system_packages, "platform_here", lambda _module: PLATFORMS[key])
        with patch_module_args({"names": ["pdsh"], **params}), pytest.raises(SystemExit):
            system_packages.main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def passed(tmp_path):
    folder = tmp_path / "passed"
    folder.mkdir()
    return folder


def test_one_node_downloads_and_installs_nothing(call, tools):
    answer = call(fetch_to=str(tools / "out"))
    assert (answer["files"], answer["bytes"], answer["missing"]) == (1, len(GOOD), ["pdsh"])
    assert [path.name for path in (tools / "out").iterdir()] == ["pdsh_2_amd64.deb"]
    assert not (tools / "out.part").exists()
    assert not (tools / "installed").read_text(encoding="utf-8")


def test_another_takes_the_file_and_downloads_nothing(call, tools, passed):
    (passed / "pdsh_2_amd64.deb").write_bytes(GOOD)
    answer = call(take_from=str(passed))
    assert (answer["changed"], answer["files"], answer["bytes"]) == (True, 1, len(GOOD))
    assert not (tools / "downloaded").exists()
    assert list((tools / "archives").iterdir()) == []


@pytest.mark.parametrize("content", [BAD, None])
def test_a_file_that_is_not_the_wanted_one_is_downloaded(call, tools, passed, content):
    if content:
        (passed / "pdsh_2_amd64.deb").write_bytes(content)
    answer = call(take_from=str(passed))
    assert (answer["changed"], answer["files"]) == (True, 0)
    assert (tools / "downloaded").exists()
    assert list((tools / "archives").iterdir()) == []


def test_a_folder_that_never_came_is_no_problem(call, tools):
    assert call(take_from=str(tools / "never"))["changed"]
    assert not [line for line in (tools / "calls").read_text(encoding="utf-8").splitlines() if "--print-uris" in line]


def test_what_apt_has_itself_is_left_to_it(call, tools, passed):
    for folder in (tools / "archives", passed):
        (folder / "pdsh_2_amd64.deb").write_bytes(GOOD)
    assert call(take_from=str(passed))["files"] == 0
    assert (tools / "archives/pdsh_2_amd64.deb").exists()


def test_dnf_finds_each_file_in_the_folder_of_its_repository(call, tools):
    answer = call("rhel9", fetch_to=str(tools / "out"))
    assert answer["files"] == 1
    assert (tools / "out/base-1f/packages/pdsh-2.rpm").read_bytes() == GOOD
    (tools / "cache/base-1f/packages/pdsh-2.rpm").unlink()
    answer = call("rhel9", take_from=str(tools / "out"))
    assert (answer["changed"], answer["files"]) == (True, 1)
    assert not (tools / "downloaded").exists()
    assert not (tools / "cache/base-1f/packages/pdsh-2.rpm").exists()


def test_nothing_is_fetched_where_nothing_is_missing(call, tools):
    (tools / "installed").write_text("pdsh\t2", encoding="utf-8")
    answer = call(fetch_to=str(tools / "out"))
    assert (answer["changed"], answer["files"]) == (False, 0)
    assert not (tools / "calls").exists()


def test_a_pin_is_there_before_the_installation(call, tools, monkeypatch):
    monkeypatch.setattr(system_packages, "APT_PREFERENCES", str(tools))
    call(pin={"name": "nvidia-driver", "packages": ["*nvidia*"], "version": "580.95.05-*"})
    assert "Pin: version 580.95.05-*" in (tools / "torchfleet-nvidia-driver").read_text(encoding="utf-8")


def test_a_pin_of_dnf_takes_the_place_of_older_locks(call, tools):
    call("rhel9", pin={"name": "nvidia-driver", "packages": ["*nvidia*"], "version": "580.95.05-*"})
    calls = (tools / "calls").read_text(encoding="utf-8").splitlines()
    deleted = calls.index("versionlock delete *nvidia*-*[0-9][0-9][0-9].*")
    added = calls.index("versionlock add *nvidia*-580.95.05-*")
    assert deleted < added < calls.index("-y install pdsh")


def test_the_kind_is_release_and_machine(call, monkeypatch, tools):
    monkeypatch.setattr(system_packages._files, "read", lambda _path: 'ID=rocky\nVERSION_ID="9.4"\n')
    (tools / "installed").write_text("pdsh\t2", encoding="utf-8")
    assert call("rhel9")["kind"].startswith("rocky 9 ")
