# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who fetches for whom, and what of the files that were passed on is taken."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.fetch_groups import fetch_groups
from ansible_collections.torchfleet.cluster.plugins.module_utils._fetch import WantedFile, wanted_by_apt

D12, D13 = "debian 12 x86_64", "debian 13 x86_64"


def lacks(*missing, kind=D12):
    return {"kind": kind, "missing": list(missing)}


@pytest.mark.parametrize(
    ("answers", "groups"),
    [
        ({"a": lacks("x"), "b": lacks("x"), "c": lacks("x")}, [("a", ["a", "b", "c"])]),
        ({"a": lacks(), "b": lacks("x"), "c": lacks("x")}, [("b", ["b", "c"])]),
        ({"a": lacks("x"), "b": lacks(), "c": {}}, []),
        (
            {"a": lacks("x"), "b": lacks("x", kind=D13), "c": lacks("x"), "d": lacks("x", kind=D13)},
            [("a", ["a", "c"]), ("b", ["b", "d"])],
        ),
        ({"a": lacks("open"), "b": lacks("proprietary"), "c": lacks("proprietary")}, [("b", ["b", "c"])]),
        ({"a": lacks("x", "y"), "b": lacks("y", "x")}, [("a", ["a", "b"])]),
        ({"a": {"failed": True, "msg": "no"}, "b": {"skipped": True}}, []),
        ({}, []),
    ],
)
def test_the_first_of_those_that_lack_the_same_fetches(answers, groups):
    assert [(one["collector"], one["hosts"]) for one in fetch_groups(answers)] == groups


def test_what_apt_wants_by_hash():
    said = (
        "Reading package lists...\nThe following NEW packages will be installed:\n  x y\n"
        f"'http://deb.example/x_1%3a2_amd64.deb' x_1%3a2_amd64.deb 20 SHA256:{'a' * 64}\n"
        "'http://deb.example/y_1_all.deb' y_1_all.deb 7 MD5Sum:0123456789abcdef0123456789abcdef\n"
    )
    assert wanted_by_apt(said) == {"x_1%3a2_amd64.deb": WantedFile(20, "a" * 64)}
