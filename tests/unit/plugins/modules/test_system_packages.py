# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A version of cuDNN and NCCL by scripts that answer as apt's and dnf's tools do."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import PLATFORMS
from ansible_collections.torchfleet.cluster.plugins.modules import system_packages

# What is installed is in `installed`, as name, tab, version; `offered` has one line for each version, the newest first.
TOOL = r"""#!/bin/sh
cd "$(dirname "$0")" || exit 1
tool=$(basename "$0")
echo "$tool $*" >> calls
case "$tool $*" in
dpkg-query*) sed 's/$/\tii /' installed ;;
rpm*) sed 's/\t/\t0:/' installed ;;
*madison*) sed 's/\t/ | /; s/$/ | file:. Packages/' offered ;;
"apt-cache show"*) echo "Depends: libcudnn9-headers-cuda-12 (= 9.10.2.21-1)" ;;
*repoquery*) tac offered ;;
*" install "*python3-dnf*) ;;
*" install "*) cp offered installed ;;
esac
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    for name in ("dpkg-query", "apt-get", "apt-cache", "apt-mark", "rpm", "dnf"):
        (tmp_path / name).write_text(TOOL, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "installed").write_text("", encoding="utf-8")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.fixture
def call(tools, monkeypatch, capsys):
    def run(key, **params):
        monkeypatch.setattr(system_packages, "platform_here", lambda _module: PLATFORMS[key])
        with patch_module_args({"hold": True, **params}), pytest.raises(SystemExit):
            system_packages.main()
        return json.loads(capsys.readouterr().out), (tools / "calls").read_text(encoding="utf-8").splitlines()

    return run


OFFERED = {
    "debian12": "libcudnn9-cuda-12\t9.10.2.21-1\nlibcudnn9-dev-cuda-12\t9.10.2.21-1\n",
    "rhel9": "libcudnn9-cuda-12\t9.10.2.21-1\nlibcudnn9-devel-cuda-12\t9.10.2.21-1\n",
}
WANTED = {"purposes": ["cudnn"], "values": {"cuda": "12.6", "cudnn": "9.10.2.21"}}


def test_apt_installs_and_holds_that_version_with_what_it_wants_exactly(call, tools):
    (tools / "offered").write_text(OFFERED["debian12"], encoding="utf-8")
    answer, calls = call("debian12", **WANTED)
    assert answer["packages"] == {"libcudnn9-cuda-12": "9.10.2.21-1", "libcudnn9-dev-cuda-12": "9.10.2.21-1"}
    (install,) = [one for one in calls if " install " in one]
    assert install.endswith(
        "--allow-downgrades --allow-change-held-packages install libcudnn9-cuda-12=9.10.2.21-* "
        "libcudnn9-dev-cuda-12=9.10.2.21-* libcudnn9-headers-cuda-12=9.10.2.21-1"
    )
    assert calls[-1] == "apt-mark hold libcudnn9-cuda-12 libcudnn9-dev-cuda-12"


def test_dnf_installs_and_locks_that_version_and_no_old_lock_hides_it(call, tools):
    (tools / "offered").write_text(OFFERED["rhel9"], encoding="utf-8")
    answer, calls = call("rhel9", **WANTED)
    assert answer["changed"] and answer["held"] == ["libcudnn9-cuda-12", "libcudnn9-devel-cuda-12"]
    told = [one for one in calls if one.startswith("dnf ") and "python3-dnf" not in one]
    assert told[0] == "dnf versionlock delete libcudnn9-cuda-12 libcudnn9-devel-cuda-12"
    assert told[-2] == "dnf -y install libcudnn9-cuda-12-9.10.2.21-* libcudnn9-devel-cuda-12-9.10.2.21-*"
    assert told[-1] == "dnf versionlock add libcudnn9-cuda-12 libcudnn9-devel-cuda-12"


@pytest.mark.parametrize("key", ["debian12", "rhel9"])
def test_a_version_that_is_not_there_is_refused_and_nothing_is_installed(call, tools, key):
    (tools / "offered").write_text(OFFERED[key], encoding="utf-8")
    answer, calls = call(key, purposes=["cudnn"], values={"cuda": "12.6", "cudnn": "9.8.0.87"})
    assert answer["failed"]
    assert "the repositories have no libcudnn9-cuda-12 9.8.0.87-*, they have 9.10.2.21-1" in answer["msg"]
    assert not [one for one in calls if " install " in one]


def test_a_lock_of_the_headers_is_not_one_of_the_library():
    assert not system_packages.is_held("libnccl", ["libnccl-devel-0:2.27.5-1+cuda12.9.*"])
    assert system_packages.is_held("libnccl", ["libnccl-0:2.27.5-1+cuda12.9.*"])
