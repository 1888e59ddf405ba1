# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the package manager says is installed, and what is missing of what is wanted."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import (
    PLATFORMS,
    installed_apt,
    installed_rpm,
    missing_packages,
    repository_commands,
    version_matches,
)

DPKG = "pdsh\t2.34-0.2+b3\tii \nlibaio1\t0.3.113-4\trc \nnvidia-driver\t535.261.03-1\thi \ndkms\t3.0\tiF \n"


def test_dpkg_tells_installed_from_removed_and_broken():
    assert installed_apt(DPKG) == {"pdsh": "2.34-0.2+b3", "nvidia-driver": "535.261.03-1"}
    assert installed_apt("") == {}


def test_rpm():
    listing = "pdsh\t0:2.34-8.el9\npackage libaio-devel is not installed\nkernel\t3:5.14-1\n"
    assert installed_rpm(listing) == {"pdsh": "2.34-8.el9", "kernel": "3:5.14-1"}


@pytest.mark.parametrize(
    ("wanted", "found", "met"),
    [
        ("", "1.0", True),
        ("", None, False),
        ("1.0-1", "1.0-1", True),
        ("1.0-*", "1.0-3ubuntu2", True),
        ("1.0-*", "1.01-3", False),
        ("580.95.05-*", "3:580.95.05-0ubuntu1", True),
        ("1.0", "1.0.1", False),
    ],
)
def test_versions(wanted, found, met):
    assert version_matches(wanted, found) is met


def test_what_is_missing():
    assert missing_packages(["pdsh", "nvidia-driver=535.261.03-*", "libaio-dev"], installed_apt(DPKG)) == (
        "libaio-dev",
    )
    assert missing_packages(["nvidia-driver=550.1-1"], installed_apt(DPKG)) == ("nvidia-driver=550.1-1",)


def test_repositories_of_the_red_hat_family():
    commands = repository_commands(PLATFORMS["rhel8"], ["epel", "crb", "epel"])
    assert commands[0][-1].endswith("epel-release-latest-8.noarch.rpm")
    assert commands[-1] == ("dnf", "config-manager", "--set-enabled", "powertools")
    assert repository_commands(PLATFORMS["rhel9"], ["crb"])[-1][-1] == "crb"
    assert repository_commands(PLATFORMS["debian12"], ["contrib"]) == ()
