# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the package manager says is installed, and what is missing of what is wanted."""

from __future__ import annotations

import fnmatch

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import (
    PLATFORMS,
    apt_preferences,
    exact_dependencies,
    installed_apt,
    installed_rpm,
    lock_patterns,
    missing_packages,
    names_for_rpm,
    newest_match,
    offered_apt,
    offered_dnf,
    packages_for,
    refused_versions,
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


def test_of_a_kernel_in_several_versions_the_wanted_one_is_asked_for():
    """rpm has several of a kernel at a time, and tells of all where it is asked by name alone."""
    wanted = packages_for(PLATFORMS["rhel9"], "kernel_headers", kernel="5.14.0-427.13.1.el9_4.x86_64")
    assert names_for_rpm(wanted) == ("kernel-devel-5.14.0-427.13.1.el9_4", "kernel-headers")
    there = installed_rpm("kernel-devel\t0:5.14.0-427.13.1.el9_4\nkernel-headers\t0:5.14.0-503.el9\n")
    assert missing_packages(wanted, there) == ()
    other = installed_rpm("package kernel-devel-5.14.0-427.13.1.el9_4 is not installed\nkernel-headers\t0:5.14.0-503\n")
    assert missing_packages(wanted, other) == ("kernel-devel=5.14.0-427.13.1.el9_4",)
    assert names_for_rpm(["libnccl=2.27.5-1+cuda12.*"]) == ("libnccl",)


def test_a_pin_holds_for_all_that_belongs_together():
    text = apt_preferences(["*nvidia*", "cuda-drivers*"], "580.95.05-*")
    assert "Package: *nvidia* cuda-drivers*\nPin: version 580.95.05-*\nPin-Priority: 1001\n" in text


def test_locks_of_another_driver_are_found_and_those_of_other_packages_are_not():
    (pattern,) = lock_patterns(["*nvidia*"], "580.95.05-*")
    assert fnmatch.fnmatch("nvidia-driver-cuda-libs-3:575.51-1.fc41.*", pattern)
    assert not fnmatch.fnmatch("nvidia-container-toolkit-0:1.17.8-1.*", pattern)


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


MADISON = """\
libnccl2 | 2.27.7-1+cuda13.0 | https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  Packages
libnccl2 | 2.27.5-1+cuda12.9 | https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  Packages
libnccl2 | 2.27.5-1+cuda12.4 | https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  Packages
libnccl2 | 2.27.5-1+cuda12.4 | file:/srv/mirror ./ Packages
 nvidia-cudnn | 8.7.0.84~cuda11.8 | http://deb.debian.org/debian bookworm/non-free Sources
"""
REPOQUERY = """\
libcudnn9-cuda-12\t9.8.0.87-1

libcudnn9-cuda-12\t9.10.2.21-1
libnccl\t0:2.27.5-1+cuda12.9
"""


def test_what_repositories_offer_is_told_with_the_newest_first():
    nccl = ("2.27.7-1+cuda13.0", "2.27.5-1+cuda12.9", "2.27.5-1+cuda12.4")
    assert offered_apt(MADISON) == {"libnccl2": nccl}
    assert offered_dnf(REPOQUERY) == {
        "libnccl": ("2.27.5-1+cuda12.9",),
        "libcudnn9-cuda-12": ("9.10.2.21-1", "9.8.0.87-1"),
    }
    assert newest_match("2.27.5-1+cuda12.*", nccl) == "2.27.5-1+cuda12.9"


@pytest.mark.parametrize(
    ("offered", "wanted", "words"),
    [
        (offered_apt(MADISON), "libnccl2=2.27.5-1+cuda12.*", ""),
        (offered_apt(MADISON), "libnccl2", ""),
        (
            offered_apt(MADISON),
            "libnccl2=2.19.3-1+cuda12.*",
            "the repositories have no libnccl2 2.19.3-1+cuda12.*, they have 2.27.7-1+cuda13.0, 2.27.5-1+cuda12.9, "
            "2.27.5-1+cuda12.4",
        ),
        (offered_dnf(REPOQUERY), "libcudnn9-cuda-12=9.10.2.21-*", ""),
        (
            offered_dnf(REPOQUERY),
            "libcudnn8=8.9.7.29-1.cuda12.*",
            "have no libcudnn8 8.9.7.29-1.cuda12.*, nor any other",
        ),
        ({"a": [str(number) for number in range(7)]}, "a=9", "they have 0, 1, 2, 3, 4 and older"),
    ],
)
def test_a_version_that_no_repository_has_is_refused_with_those_that_are_there(offered, wanted, words):
    said = refused_versions([wanted], offered)
    assert words in said and bool(words) == bool(said)


def test_what_is_wanted_in_one_version_comes_along():
    """apt takes the newest of what another package depends on, and then finds that it does not fit."""
    show = (
        "Package: libcudnn9-dev-cuda-12\nVersion: 9.10.2.21-1\n"
        "Depends: libcudnn9-cuda-12 (= 9.10.2.21-1), libcudnn9-headers-cuda-12:amd64 (= 9.10.2.21-1), libc6 (>= 2.17), a | b (= 1)\n"
        "Conflicts: libcudnn8-dev (= 8.9.7.29-1)\n"
    )
    assert exact_dependencies(show) == ("libcudnn9-cuda-12=9.10.2.21-1", "libcudnn9-headers-cuda-12=9.10.2.21-1")


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
