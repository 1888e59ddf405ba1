# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Logs that were written before the rules were looked at, as launchers and collectors print them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures" / "diagnosis"))
from variants import VARIANTS, cases, variant

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import diagnose
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rules import RULES

CASES = cases()
QUIET = ("none", "user_code", "external_sigterm", "insufficient_log")
# A fault inside the launcher that only its traceback tells; and a warning of libibverbs that the second line explains.
MISSED = {"launcher_bug", "ib_memlock"}


def test_the_cases_cover_the_labels():
    assert len(CASES) > 170
    covered = {label for label, _text in CASES}
    assert covered >= {rule.label for rule in RULES} - {"", "rdzv_endpoint_not_local"}


def misread(name):
    found = [(label, diagnose(variant(name, label, text))[0].label, text.splitlines()[0]) for label, text in CASES]
    return [one for one in found if one[0] != one[1]]


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "broken"])
def test_causes_are_named_in_every_dress(name):
    wrong = misread(name)
    assert len(wrong) <= 2, wrong
    assert {label for label, _found, _line in wrong} <= MISSED, wrong


def test_most_causes_are_named_where_lines_are_broken():
    # What is missed is broken within the very words that a rule waits for.
    wrong = misread("broken")
    assert len(wrong) <= len(CASES) // 40, wrong


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("text", [text for label, text in CASES if label in QUIET])
def test_no_false_alarm_on_healthy_runs_and_plain_errors(name, text):
    label = next(label for label, other in CASES if other == text)
    assert diagnose(variant(name, label, text))[0].label in QUIET


def test_a_rank_that_failed_has_not_got_over_it_because_others_go_on_for_a_moment():
    fault = "node2:1 | RuntimeError: No CUDA GPUs are available\n"
    going_on = "node1:0 | step 7 loss 1.0\n"
    assert diagnose(fault + going_on)[0].label == "gpu_not_visible"
    assert diagnose(fault + 5 * going_on)[0].label == "none"
    assert diagnose(fault + "node2:1 | step 7 loss 1.0\n")[0].label == "none"
