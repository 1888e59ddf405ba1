# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import List, Tuple

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._nccl_conf import (
    DIALECTS,
    SOURCES,
    contradictions,
    environment_settings,
    parse_settings,
    what_nccl_reads,
)


def rows(text: str, dialect: str) -> List[Tuple[str, str, int, bool]]:
    return [(item.name, item.value, item.line, item.effective) for item in parse_settings(text, "/f", dialect)]


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        (
            "nccl",
            "# c\n\nNCCL_DEBUG=INFO\nNCCL_IB_HCA==mlx5_0:1\n",
            [("NCCL_DEBUG", "INFO", 3, True), ("NCCL_IB_HCA", "=mlx5_0:1", 4, True)],
        ),
        ("nccl", "NCCL_DEBUG = INFO\n", [("NCCL_DEBUG", " INFO", 1, False)]),
        ("nccl", "export NCCL_DEBUG=INFO\n", [("NCCL_DEBUG", "INFO", 1, False)]),
        # No comment behind a value, no quotes taken away: NCCL reads them as part of it.
        ("nccl", "NCCL_SOCKET_IFNAME='eth0'\n", [("NCCL_SOCKET_IFNAME", "'eth0'", 1, True)]),
        ("nccl", "NCCL_DEBUG\n#NCCL_DEBUG=WARN\nPATH=/x\n", []),
        ("nccl", "NCCL_DEBUG=\r\n", [("NCCL_DEBUG", "", 1, True)]),
        (
            "pam_env",
            'NCCL_DEBUG="WARN"\nexport GLOO_SOCKET_IFNAME=eth0\n',
            [("NCCL_DEBUG", "WARN", 1, True), ("GLOO_SOCKET_IFNAME", "eth0", 2, True)],
        ),
        ("pam_env", "  # NCCL_DEBUG=WARN\n", []),
        ("pam_conf", 'NCCL_DEBUG DEFAULT=WARN OVERRIDE="INFO"\n', [("NCCL_DEBUG", "INFO", 1, True)]),
        ("pam_conf", "NCCL_DEBUG DEFAULT=WARN\n", [("NCCL_DEBUG", "WARN", 1, True)]),
        ("deepspeed", "NCCL_IB_DISABLE=1\nPYTHONPATH=/x\n\n", [("NCCL_IB_DISABLE", "1", 1, True)]),
        ("deepspeed", "export NCCL_IB_DISABLE=1\n", [("NCCL_IB_DISABLE", "1", 1, False)]),
        ("csh", 'setenv NCCL_DEBUG "INFO"\n', [("NCCL_DEBUG", "INFO", 1, True)]),
        ("shell", "export NCCL_DEBUG=INFO # why\n", [("NCCL_DEBUG", "INFO", 1, True)]),
        ("shell", "  export NCCL_A=1 NCCL_B='x y'\n", [("NCCL_A", "1", 1, True), ("NCCL_B", "x y", 1, True)]),
        ("shell", "NCCL_A=1; export NCCL_A\n", [("NCCL_A", "1", 1, True)]),
        ("shell", "NCCL_A=1\n", [("NCCL_A", "1", 1, False)]),
        ("shell", "set -a\nNCCL_A=1\nset +a\n", [("NCCL_A", "1", 2, True)]),
        ("shell", "declare -x NCCL_A=1\n", [("NCCL_A", "1", 1, True)]),
        ("shell", "[ -e /dev/infiniband ] && export NCCL_A=1\n", [("NCCL_A", "1", 1, True)]),
        ("shell", "if true; then export NCCL_A=1; fi\n", [("NCCL_A", "1", 1, True)]),
        (
            "shell",
            "export PATH=/x:$PATH \\\n  NCCL_A=1 \\\n  NCCL_B=2\n",
            [("NCCL_A", "1", 2, True), ("NCCL_B", "2", 3, True)],
        ),
        ("shell", "unset NCCL_A\n", [("NCCL_A", "", 1, False)]),
        ("shell", "echo NCCL_A=1\n# export NCCL_A=1\n", []),
        ("shell", 'export NCCL_A="unclosed\n', [("NCCL_A", '"unclosed', 1, True)]),
        (
            "shell",
            "export NCCL_SOCKET_IFNAME=$(ip -o route | awk '{print $5}')\n",
            [("NCCL_SOCKET_IFNAME", "$(ip -o route | awk '{print $5}')", 1, True)],
        ),
        (
            "shell",
            "export TORCH_NCCL_BLOCKING_WAIT=1\nexport TP_SOCKET_IFNAME=eth0\nexport LANG=C\n",
            [("TORCH_NCCL_BLOCKING_WAIT", "1", 1, True), ("TP_SOCKET_IFNAME", "eth0", 2, True)],
        ),
    ],
)
def test_each_file_is_read_as_its_reader_reads_it(
    dialect: str, text: str, expected: List[Tuple[str, str, int, bool]]
) -> None:
    assert rows(text, dialect) == expected


def test_what_does_not_take_effect_says_why() -> None:
    found = parse_settings("NCCL_DEBUG = INFO\n", "/etc/nccl.conf", "nccl")[0]
    assert "blanks" in found.note
    assert (found.source, found.line) == ("/etc/nccl.conf", 1)


def test_nccl_prefers_the_environment_then_the_users_file_then_the_first_line() -> None:
    system = parse_settings("NCCL_A=system\nNCCL_A=again\nNCCL_B=system\nNCCL_C=system\n", "/etc/nccl.conf", "nccl")
    user = parse_settings("NCCL_B=user\nNCCL_C=user\n", "/home/u/.nccl.conf", "nccl")
    shell = parse_settings("export NCCL_A=shell\nexport NCCL_D=shell\n", "/home/u/.bashrc", "shell")
    found = what_nccl_reads([*shell, *system, *user], {"NCCL_C": "environment", "HOME": "/home/u"})
    assert {name: item.value for name, item in found.items()} == {
        "NCCL_A": "system",
        "NCCL_B": "user",
        "NCCL_C": "environment",
    }


def test_a_named_file_takes_the_place_of_the_users() -> None:
    user = parse_settings("NCCL_A=user\nNCCL_B=user\n", "/home/u/.nccl.conf", "nccl")
    mine = parse_settings("NCCL_A=mine\n", "/job/nccl.conf", "nccl")
    system = parse_settings("NCCL_C=system\n", "/etc/nccl.conf", "nccl")
    found = what_nccl_reads([*user, *mine, *system], {"NCCL_CONF_FILE": "/job/nccl.conf"})
    values = {name: item.value for name, item in found.items() if item.dialect == "nccl"}
    assert values == {"NCCL_A": "mine", "NCCL_C": "system"}


def test_contradictions_name_both_places() -> None:
    system = parse_settings("NCCL_A=1\nNCCL_B=1\n", "/etc/nccl.conf", "nccl")
    profile = parse_settings("export NCCL_A=0\nexport NCCL_B=1\n", "/etc/profile.d/nccl.sh", "shell")
    idle = parse_settings("NCCL_B=9\n", "/etc/profile.d/idle.sh", "shell")
    found = contradictions([*system, *profile, *idle])
    assert list(found) == ["NCCL_A"]
    assert [item.source for item in found["NCCL_A"]] == ["/etc/nccl.conf", "/etc/profile.d/nccl.sh"]


def test_environment() -> None:
    found = environment_settings({"GLOO_SOCKET_IFNAME": "eth0", "PATH": "/bin"})
    assert [(item.name, item.source, item.line) for item in found] == [("GLOO_SOCKET_IFNAME", "environment", 0)]


def test_every_source_has_a_reader() -> None:
    for source in SOURCES:
        assert source.dialect in DIALECTS
        parse_settings("NCCL_A=1\n", source.path, source.dialect)
