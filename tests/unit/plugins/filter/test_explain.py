# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter as a playbook meets it."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="the filter runs in ansible-core")

from ansible.errors import AnsibleFilterError

from ansible_collections.torchfleet.cluster.plugins.filter.explain import FilterModule

explain = FilterModule().filters()["explain"]


def test_text_in_findings_out() -> None:
    findings = explain("step 1\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert findings[0]["label"] == "cuda_oom"
    assert findings[0]["evidence"] == [
        {"file": "log", "line": 2, "text": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"}
    ]
    assert set(findings[0]) >= {"label", "cause", "fix", "evidence", "confidence"}


def test_a_mapping_names_the_files() -> None:
    findings = explain(
        {"n1.log": "Connection reset by peer\n", "n2.log": "\n\nOSError: [Errno 24] Too many open files\n"}
    )
    assert [finding["label"] for finding in findings] == ["ulimit_nofile", "peer_process_died"]
    assert findings[0]["evidence"][0]["file"] == "n2.log"
    assert findings[0]["evidence"][0]["line"] == 3


@pytest.mark.parametrize("bad", [None, 3, ["a line"], {"x": None}, {"x": 5}])
def test_what_is_no_text_is_refused(bad: object) -> None:
    with pytest.raises(AnsibleFilterError, match="explain takes a log as text"):
        explain(bad)


def test_a_healthy_log_gives_none() -> None:
    assert [finding["label"] for finding in explain("step 1 loss 2.0\nstep 2 loss 1.9\n")] == ["none"]
