# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import (
    driver_at_least,
    lost_zero,
    parse_capability,
    parse_cuda,
    parse_driver,
    parse_gcc,
    parse_python,
    parse_version,
)

RISING = [
    "1.13.1",
    "2.1.0a0+32f93b1",
    "2.1.0",
    "2.9.0.dev20250901",
    "2.9.0rc1",
    "2.9",
    "2.9.1",
    "2.9.1.post1",
    "2.10.0b2",
    "2.10.0rc1",
    "2.10.0",
    "2.11.0",
]


def test_versions_rise_by_number_and_stage():
    keys = [parse_version(text).key for text in RISING]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "one,other",
    [("2.9", "2.9.0"), ("2.9.0+cu128", "2.9.0"), ("v2.9.1", "2.9.1"), (12, "12.0"), ("2.9.0-rc.1", "2.9rc1")],
)
def test_same_release_in_two_spellings(one, other):
    assert parse_version(one).same(parse_version(other))


def test_label_is_kept_beside_the_release():
    version = parse_version("2.9.1+cu128")
    assert (version.local, version.base, version.minor) == ("cu128", "2.9.1", "2.9")


@pytest.mark.parametrize("value", [None, True, "", "latest", "2.x", "2.9.1 (main)", ">=2.9", [2, 9]])
def test_what_is_no_version_is_none(value):
    assert parse_version(value) is None


@pytest.mark.parametrize(
    "short,long,covered",
    [("2.9", "2.9.1", True), ("2.1", "2.10.0", False), ("12", "12.8", True), ("2.9.1", "2.9", False)],
)
def test_a_short_version_covers_its_patch_releases(short, long, covered):
    assert parse_version(short).covers(parse_version(long)) is covered


@pytest.mark.parametrize(
    "value,wanted",
    [
        ("12.8", (12, 8)),
        (12.8, (12, 8)),
        ("12.10", (12, 10)),
        ("12.8.1", (12, 8, 1)),
        ("cu128", (12, 8)),
        ("cu118", (11, 8)),
        ("CUDA 12.8", (12, 8)),
        ("cuda-12-8", (12, 8)),
        (12, (12,)),
        ("cpu", None),
        (True, None),
    ],
)
def test_cuda_spellings(value, wanted):
    parsed = parse_cuda(value)
    assert (parsed.release if parsed else None) == wanted


@pytest.mark.parametrize(
    "value,wanted",
    [
        ("580.95.05", (580, 95, 5)),
        ("3:580.95.05-0ubuntu1~24.04", (580, 95, 5)),
        ("535.183.01-1~deb12u1", (535, 183, 1)),
        ("580-server-open", (580,)),
        ("R580", (580,)),
        (580, (580,)),
        (570.26, (570, 26)),
        ("", None),
        (None, None),
        ("N/A", None),
        (False, None),
    ],
)
def test_driver_spellings(value, wanted):
    parsed = parse_driver(value)
    assert (parsed.release if parsed else None) == wanted


@pytest.mark.parametrize(
    "driver,floor,reached",
    [
        ("580.65.06", "580.65.06", True),
        ("580.9.1", "580.65.06", False),
        ("580", "580.65.06", True),
        ("579.99", "580.65.06", False),
        ("1000.1", "580.65.06", True),
    ],
)
def test_driver_floor(driver, floor, reached):
    assert driver_at_least(parse_version(driver), parse_version(floor)) is reached


@pytest.mark.parametrize(
    "value,major",
    [
        ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0", 12),
        ("gcc (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", 13),
        ("gcc (GCC) 8.5.0 20210514 (Red Hat 8.5.0-22)", 8),
        ("gcc-11", 11),
        ("/usr/bin/g++-14", 14),
        ("12", 12),
        (9, 9),
        ("clang", None),
        (None, None),
    ],
)
def test_gcc_spellings(value, major):
    parsed = parse_gcc(value)
    assert (parsed.release[0] if parsed else None) == major


@pytest.mark.parametrize(
    "value,minor",
    [("3.12.4", "3.12"), ("Python 3.12.4", "3.12"), ("python3.11", "3.11"), ("cp310", "3.10"), ("3.13.0rc2", "3.13")],
)
def test_python_spellings(value, minor):
    assert parse_python(value).minor == minor


@pytest.mark.parametrize(
    "value,wanted",
    [
        ("8.6", (8, 6)),
        (8.6, (8, 6)),
        ("sm_86", (8, 6)),
        ("sm_120", (12, 0)),
        ("compute_103", (10, 3)),
        ("90a", (9, 0)),
        ("12.0+PTX", (12, 0)),
        (86, (8, 6)),
        (12.0, (12, 0)),
        (12, (12, 0)),
        (10, (10, 0)),
        ("Ampere", None),
        ("", None),
        (None, None),
    ],
)
def test_capability_spellings(value, wanted):
    assert parse_capability(value) == wanted


@pytest.mark.parametrize(
    "value,wanted", [(2.1, "2.10"), ("2.1", None), (2.9, None), (2.11, None), (3.1, None), (2, None)]
)
def test_bare_number_that_may_have_lost_its_zero(value, wanted):
    assert lost_zero(value, ["2.1.2", "2.9.1", "2.10.0", "2.11.0"]) == wanted
