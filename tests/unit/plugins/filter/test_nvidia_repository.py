# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's repository by distribution and machine."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.nvidia_repository import nvidia_repository


@pytest.mark.parametrize(
    ("name", "version", "machine", "kind", "end"),
    [
        ("debian", "12", "x86_64", "apt", "debian12/x86_64/cuda-keyring_1.1-1_all.deb"),
        ("ubuntu", "24.04", "aarch64", "apt", "ubuntu2404/sbsa/cuda-keyring_1.1-1_all.deb"),
        ("almalinux", "9.4", "x86_64", "dnf", "rhel9/x86_64/cuda-rhel9.repo"),
    ],
)
def test_repository(name, version, machine, kind, end):
    found = nvidia_repository({"release": {"id": name, "version": version}, "machine": machine})
    assert (found["refused"], found["kind"]) == ("", kind)
    assert found["setup"].endswith(end)


def test_a_distribution_that_nobody_knows():
    assert "Void is not known here" in nvidia_repository({"release": {"id": "void", "name": "Void"}})["refused"]
