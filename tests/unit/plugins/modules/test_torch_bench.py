# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes that measure end well, badly or not at all; in each case none is left."""

from __future__ import annotations

import json
import os
import pwd
import sys
import time

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench_script import MARK
from ansible_collections.torchfleet.cluster.plugins.modules import torch_bench


@pytest.fixture
def processes():
    running = torch_bench.Processes(pwd.getpwuid(os.getuid()).pw_name)
    yield running
    running.end()


def start(processes, *texts):
    for text in texts:
        processes.start([sys.executable, "-"], text, {"OWN": 7})


def test_a_user_that_is_not_there_is_said(capsys):
    params = {"measure": "local", "python": sys.executable, "user": "nosuch-torchfleet"}
    with patch_module_args(params), pytest.raises(SystemExit):
        torch_bench.main()
    told = json.loads(capsys.readouterr().out)
    assert told["failed"]
    assert told["msg"].startswith("there is no user 'nosuch-torchfleet': make it, or set bench_user")


def test_output_and_environment(processes):
    start(processes, "import os; print(os.environ['OWN'], os.environ['HOME'])")
    assert processes.wait(20) == ""
    assert processes.text(0).split() == ["7", pwd.getpwuid(os.getuid()).pw_dir]


def test_the_first_that_fails_is_told_with_its_words(processes):
    start(processes, "import time; time.sleep(60)", "raise SystemExit('no such device')")
    assert processes.wait(20) == "process 1 ended with 1: no such device"


def test_what_the_script_says_itself_comes_before_the_traceback(processes):
    start(processes, f"print('{MARK}' + '{{\"problem\": \"out of memory\"}}'); raise RuntimeError('x')")
    assert processes.wait(20) == "process 0 ended with 1: out of memory"


def test_one_that_hangs_is_given_up_and_ended_with_its_children():
    hung = torch_bench.Processes(pwd.getpwuid(os.getuid()).pw_name)
    start(hung, "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)")
    until = time.monotonic() + 20
    while not hung.text(0).strip() and time.monotonic() < until:
        time.sleep(0.05)
    child = int(hung.text(0))
    assert hung.wait(0.1).startswith("not done after 0 s")
    hung.end()
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{child}/cmdline") and time.monotonic() < until:
        with open(f"/proc/{child}/cmdline", "rb") as stream:
            if not stream.read():
                break  # a zombie that nobody has taken in yet
        time.sleep(0.05)
    else:
        assert not os.path.exists(f"/proc/{child}")
