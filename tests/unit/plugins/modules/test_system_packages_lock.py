# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.modules import system_packages

# apt 2.6 while another holds the lock of its lists.
LOCKED = (
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)\n"
    "E: Unable to lock directory /var/lib/apt/lists/\n"
)


class Module:
    def __init__(self, *answers):
        self.answers = list(answers)

    def run_command(self, _argv, environ_update):
        return self.answers.pop(0)

    def fail_json(self, msg):
        raise AssertionError(msg)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(system_packages, "LOCK_PAUSE", 0)


def test_a_lock_is_waited_for_however_many_attempts_there_are():
    module = Module(*[(100, "", LOCKED)] * 5, (0, "done", ""))
    assert system_packages.run(module, ["apt-get", "update"]) == "done"


def test_a_lock_that_is_never_given_back_is_named(monkeypatch):
    monkeypatch.setattr(system_packages, "LOCK_SECONDS", -1)
    with pytest.raises(AssertionError, match="held by process 812"):
        system_packages.run(Module((100, "", LOCKED)), ["apt-get", "update"])


def test_another_failure_takes_an_attempt():
    with pytest.raises(AssertionError, match="no such package"):
        system_packages.run(Module(*[(100, "", "E: no such package\n")] * 3), ["apt-get", "install"], 3)
