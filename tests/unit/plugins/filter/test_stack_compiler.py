# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compiler of a stack on each distribution: within the bounds of CUDA and torch, or a refusal that says why."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.stack_compiler import stack_compiler


def on(name, version):
    return {"release": {"id": name, "version": version, "name": f"{name} {version}"}}


@pytest.mark.parametrize(
    ("stack", "node", "cc", "cxx"),
    [
        ({"cuda": "12.6", "torch": "2.10.0"}, on("debian", "12"), "/usr/bin/gcc-12", "/usr/bin/g++-12"),
        ({"cuda": "11.8", "torch": "2.5.1"}, on("debian", "12"), "/usr/bin/gcc-11", "/usr/bin/g++-11"),
        ({"cuda": "12.6", "torch": "2.10.0"}, on("debian", "13"), "/usr/bin/gcc-13", "/usr/bin/g++-13"),
        ({"torch": "2.13.0"}, on("debian", "13"), "/usr/bin/gcc-14", "/usr/bin/g++-14"),
        ({"cuda": "12.1", "torch": "2.5.1"}, on("ubuntu", "24.04"), "/usr/bin/gcc-12", "/usr/bin/g++-12"),
        ({"cuda": "12.6", "torch": "2.10.0"}, on("rocky", "9.4"), "/usr/bin/gcc", "/usr/bin/g++"),
        (
            {"cuda": "12.6", "torch": "2.13.0", "gcc": "13"},
            on("almalinux", "9.4"),
            "/opt/rh/gcc-toolset-13/root/usr/bin/gcc",
            "/opt/rh/gcc-toolset-13/root/usr/bin/g++",
        ),
    ],
)
def test_choice(stack, node, cc, cxx):
    found = stack_compiler(stack, node)
    assert (found["refused"], found["cc"], found["cxx"]) == ("", cc, cxx)


def test_the_gcc_of_a_set_gives_way_to_one_that_suits_and_is_there():
    found = stack_compiler("torch-2.13-cu130", on("debian", "12"))
    assert found["major"] == 12
    assert "as debian12 has no GCC 13" in found["reason"]


@pytest.mark.parametrize(
    ("stack", "node", "wanted", "words"),
    [
        (
            {"cuda": "11.8", "torch": "2.5.1"},
            on("debian", "13"),
            None,
            "debian13 has GCC 12, 13, 14, and 9 to 11 is wanted",
        ),
        ({"cuda": "11.8", "torch": "2.5.1"}, on("debian", "12"), "12", "GCC 12 does not suit: wanted 9 to 11"),
        ({"torch": "2.5.1"}, on("debian", "12"), "13", "debian12 has no GCC 13: it has 11, 12"),
        ({}, on("arch", "2026"), None, "is not known here"),
    ],
)
def test_refusals(stack, node, wanted, words):
    assert words in stack_compiler(stack, node, wanted)["refused"]
