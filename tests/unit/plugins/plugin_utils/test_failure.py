# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

pytest.importorskip("ansible", reason="action plugins raise ansible-core's errors")

from ansible.errors import AnsibleActionFail

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._failure import as_result


@pytest.mark.parametrize("error", [AnsibleActionFail("no logs there"), OSError(28, "No space left on device")])
def test_what_is_refused_is_a_result(error: Exception) -> None:
    @as_result
    def run() -> dict[str, object]:
        raise error

    result = run()
    assert result["failed"] is True
    assert str(error) in str(result["msg"])


def test_a_fault_of_ours_is_not_hidden() -> None:
    @as_result
    def run() -> dict[str, object]:
        raise KeyError("nodes")

    with pytest.raises(KeyError):
        run()
