# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _nccl_env as nccl_env
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    build_cluster,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers._common import base_env
from ansible_collections.torchfleet.cluster.plugins.module_utils._nccl_env import Found, Setting

TRICKY = [
    "plain",
    "a b",
    "it's",
    'say "hi"',
    "$HOME",
    "`id`",
    "$(id)",
    "back\\slash\\",
    "a;b&c|d",
    "%h",
    "#x",
    "ä",
    "=",
]


def cluster(transport: str = "tcp", address: str = "10.0.0.{}", **own: Any) -> Cluster:
    return build_cluster(
        [
            {"name": "n1", "address": address.format(1), "interface": "eno1", **own},
            {"name": "n2", "address": address.format(2), "interface": "enp99s0", **own},
        ],
        transport=transport,
    )


def settings(of: Cluster, node: str = "n1", extra: Optional[Dict[str, Any]] = None) -> Dict[str, Setting]:
    return nccl_env.node_settings(of, of.node(node), extra)


# What is set


@pytest.mark.parametrize(
    ("of", "node", "wanted"),
    [
        (
            cluster(),
            "n2",
            {"NCCL_SOCKET_IFNAME": "=enp99s0", "GLOO_SOCKET_IFNAME": "enp99s0", "NCCL_IB_DISABLE": "1"},
        ),
        (
            cluster("roce", hcas=["mlx5_0:1", "mlx5_1:1"], gid_index=3),
            "n1",
            {
                "NCCL_SOCKET_IFNAME": "=eno1",
                "GLOO_SOCKET_IFNAME": "eno1",
                "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
                "NCCL_IB_GID_INDEX": "3",
            },
        ),
        (
            cluster("roce", hcas=["mlx5_0:1"], gid_index=0),
            "n1",
            {
                "NCCL_SOCKET_IFNAME": "=eno1",
                "GLOO_SOCKET_IFNAME": "eno1",
                "NCCL_IB_HCA": "=mlx5_0:1",
                "NCCL_IB_GID_INDEX": "0",
            },
        ),
        (cluster("ib", interface=None, hcas=["mlx5_0:1"]), "n1", {"NCCL_IB_HCA": "=mlx5_0:1"}),
        (
            cluster(address="fd00::{}", interface="net1"),
            "n1",
            {
                "NCCL_SOCKET_IFNAME": "=net1",
                "GLOO_SOCKET_IFNAME": "net1",
                "NCCL_SOCKET_FAMILY": "AF_INET6",
                "NCCL_IB_DISABLE": "1",
            },
        ),
        (cluster(interface=None), "n1", {"NCCL_IB_DISABLE": "1"}),
    ],
)
def test_the_choice_as_variables(of: Cluster, node: str, wanted: Dict[str, str]) -> None:
    assert nccl_env.values(settings(of, node)) == wanted


def test_launch_units_carry_the_same_values() -> None:
    of = cluster("roce", hcas=["mlx5_0:1"], gid_index=3)
    job = Job(run_id="r1", run_dir="/run/r1", workdir="/w", script="train.py", env={"NCCL_IB_GID_INDEX": "5", "A": "b"})
    env = base_env(of, of.node("n2"), job)
    wanted = {**nccl_env.values(settings(of, "n2")), "NCCL_IB_GID_INDEX": "5"}
    assert {name: env[name] for name in wanted} == wanted
    assert env["A"] == "b"


def test_the_user_s_values_win_and_are_marked() -> None:
    got = settings(
        cluster(),
        extra={"NCCL_SOCKET_IFNAME": "bond0", "NCCL_DEBUG": "INFO", "NCCL_NTHREADS": 256, "NCCL_IB_DISABLE": False},
    )
    assert got["NCCL_SOCKET_IFNAME"] == Setting("NCCL_SOCKET_IFNAME", "bond0", "user", "nccl_env_extra")
    assert got["GLOO_SOCKET_IFNAME"].origin == "chosen"
    assert {name: got[name].value for name in ("NCCL_DEBUG", "NCCL_NTHREADS", "NCCL_IB_DISABLE")} == {
        "NCCL_DEBUG": "INFO",
        "NCCL_NTHREADS": "256",
        "NCCL_IB_DISABLE": "0",  # to NCCL the word False is no number
    }


def test_null_takes_ours_away() -> None:
    assert "NCCL_IB_DISABLE" not in settings(cluster(), extra={"NCCL_IB_DISABLE": None})


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"NCCL DEBUG": "INFO"}, "'NCCL DEBUG' is not a name"),
        ({"NCCL_DEBUG=": "INFO"}, "'NCCL_DEBUG=' is not a name"),
        ({"": "INFO"}, "'' is not a name"),
        ({1: "INFO"}, "'1' is not a name"),
        ({"NCCL_DEBUG": "INFO\nNCCL_X=1"}, "the value of NCCL_DEBUG contains a line break"),
        ({"NCCL_DEBUG": "IN\0FO"}, "control character"),
        ({"NCCL_DEBUG": " INFO"}, "the value of NCCL_DEBUG has a blank at an end"),
        ({"NCCL_TOPO_FILE": "/" + "x" * 1023}, "the value of NCCL_TOPO_FILE is longer than the 1023 bytes"),
        ({"NCCL_ALGO": ["Ring"]}, "NCCL_ALGO is a list, wanted text, a number or null"),
        ({"GLOO_SOCKET_IFNAME": "=eth0"}, "GLOO_SOCKET_IFNAME is '=eth0'; gloo takes one plain interface name"),
        ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, "gloo takes one plain interface name"),
        ({"GLOO_SOCKET_IFNAME": "^docker0"}, "gloo takes one plain interface name"),
    ],
)
def test_wrong_extras(extra: Any, said: str) -> None:
    with pytest.raises(ClusterError) as error:
        settings(cluster(), extra=extra)
    assert said in str(error.value)


# What is written


def nccl_reads(text: str) -> Dict[str, str]:
    """NCCL's own reading of its file: to the line's end, first one wins, '#' in the first column only."""
    read: Dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            read.setdefault(name, value)
    return read


def sh_reads(folder: Path, text: str) -> Dict[str, str]:
    """The variables after a POSIX shell with an empty environment has read the text."""
    (folder / "env").write_text(text, encoding="utf-8")
    command = [str(shutil.which("env")), "-i", "/bin/sh", "-eu", "-c", 'set -a; . "$1"; /usr/bin/env -0', "sh", "./env"]
    done = subprocess.run(command, cwd=str(folder), stdout=subprocess.PIPE, check=True)
    pairs = (item.split("=", 1) for item in done.stdout.decode("utf-8").split("\0") if item)
    return {name: value for name, value in pairs if name.startswith(("NCCL_", "GLOO_", "TORCH_"))}


EXTRA = {f"NCCL_T{number}": value for number, value in enumerate(TRICKY)}


def test_nccl_reads_back_every_value() -> None:
    got = settings(cluster(), extra={**EXTRA, "TORCH_NCCL_BLOCKING_WAIT": 1})
    assert nccl_reads(nccl_env.nccl_conf(got)) == {
        "NCCL_SOCKET_IFNAME": "=eno1",
        "NCCL_IB_DISABLE": "1",
        **EXTRA,
    }


def test_origins_are_told_in_the_file() -> None:
    text = nccl_env.nccl_conf(settings(cluster(), extra={"NCCL_DEBUG": "INFO"}))
    assert "# chosen: the interface of 10.0.0.1\nNCCL_SOCKET_IFNAME==eno1\n" in text
    assert "# user: nccl_env_extra\nNCCL_DEBUG=INFO\n" in text


@pytest.mark.parametrize("rendering", [nccl_env.profile, nccl_env.environment_file])
def test_a_shell_reads_back_every_value(tmp_path: Path, rendering: Any) -> None:
    got = settings(cluster(), extra={**EXTRA, "TORCH_NCCL_BLOCKING_WAIT": 1})
    assert sh_reads(tmp_path, rendering(got)) == nccl_env.values(got)


def test_systemd_gets_one_quoted_assignment_a_line() -> None:
    text = nccl_env.environment_file(settings(cluster(), extra={"NCCL_X": "a \"b\" \\ $c `d` 'e' %f"}))
    assert text == (
        'NCCL_SOCKET_IFNAME="=eno1"\n'
        'GLOO_SOCKET_IFNAME="eno1"\n'
        'NCCL_IB_DISABLE="1"\n'
        'NCCL_X="a \\"b\\" \\\\ \\$c \\`d\\` \'e\' %f"\n'
    )


# What travels


def test_only_what_is_true_on_every_node_travels() -> None:
    of = cluster("roce", hcas=["mlx5_0:1"], gid_index=3)
    assert nccl_env.cluster_travelling(of) == {}
    got = nccl_env.cluster_travelling(
        cluster(),
        {
            "NCCL_DEBUG": "INFO",
            "NCCL_SOCKET_IFNAME": "eth",
            "NCCL_IB_HCA": "=mlx5_0",
            "UCX_NET_DEVICES": "mlx5_0:1",
            "OMPI_MCA_btl_tcp_if_include": "eth0",
        },
    )
    assert nccl_env.values(got) == {"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"}


def test_a_value_of_one_node_alone_stays_there() -> None:
    of = cluster()
    per_node = [
        settings(of, "n1", {"NCCL_DEBUG": "INFO", "NCCL_NTHREADS": 64}),
        settings(of, "n2", {"NCCL_NTHREADS": 128}),
    ]
    assert nccl_env.values(nccl_env.travelling(per_node)) == {"NCCL_IB_DISABLE": "1"}
    assert nccl_env.travelling([]) == {}


def test_deepspeed_env_holds_assignments_only() -> None:
    text = nccl_env.deepspeed_env(nccl_env.cluster_travelling(cluster(), {"NCCL_DEBUG_FILE": "/tmp/n c.%h"}))
    assert text.splitlines() == [
        "TORCHFLEET_DEEPSPEED_ENV=NCCL_IB_DISABLE,NCCL_DEBUG_FILE",
        "NCCL_IB_DISABLE=1",
        "NCCL_DEBUG_FILE=/tmp/n c.%h",
    ]
    assert nccl_env.deepspeed_env({}) == ""


@pytest.mark.parametrize("value", ["$HOME", "`id`", '"', "a\\b", "x$(id)"])
def test_deepspeed_env_refuses_what_the_remote_shell_would_expand(value: str) -> None:
    with pytest.raises(ClusterError, match=r"NCCL_X is .*: choose another value"):
        nccl_env.deepspeed_env(nccl_env.cluster_travelling(cluster(), {"NCCL_X": value}))


def test_deepspeed_env_refuses_an_interface_name() -> None:
    with pytest.raises(ClusterError, match="GLOO_SOCKET_IFNAME is one node's own"):
        nccl_env.deepspeed_env(settings(cluster()))


# Files that are shared

FOREIGN = "# tuned by the vendor\nNCCL_TOPO_FILE=/opt/topo.xml\n\nNCCL_IB_PCI_RELAXED_ORDERING=1"


@pytest.mark.parametrize("before", ["", FOREIGN, FOREIGN + "\n", "\r\nNCCL_DEBUG=WARN\r\n", "# BEGIN something else\n"])
def test_a_block_comes_changes_and_goes_and_leaves_the_rest(before: str) -> None:
    old = nccl_env.merge_block(before, "NCCL_SOCKET_IFNAME==eth0\nNCCL_IB_HCA==mlx5_0\n")
    new = nccl_env.merge_block(old, "NCCL_SOCKET_IFNAME==eth1\n")
    assert new == nccl_env.merge_block(before, "NCCL_SOCKET_IFNAME==eth1\n")
    assert nccl_env.merge_block(new, "NCCL_SOCKET_IFNAME==eth1\n") == new
    assert "mlx5_0" not in new
    assert nccl_env.merge_block(new, "") == before


def test_ours_wins_within_the_file() -> None:
    text = nccl_env.merge_block("NCCL_SOCKET_IFNAME=eth0\n", "NCCL_SOCKET_IFNAME==eth1\n")
    assert nccl_reads(text)["NCCL_SOCKET_IFNAME"] == "=eth1"


def test_a_moved_doubled_or_torn_block_heals_without_eating_foreign_lines() -> None:
    block = nccl_env.merge_block("", "NCCL_X=old\n")
    torn = f"A=1\n{block}B=2\n{nccl_env.BEGIN}\nC=3\n{block}{nccl_env.END}\nD=4\n"
    healed = nccl_env.merge_block(torn, "NCCL_X=new\n")
    assert healed == nccl_env.merge_block("A=1\nB=2\nC=3\nD=4\n", "NCCL_X=new\n")


def test_managed_lines_are_counted_from_one() -> None:
    text = nccl_env.merge_block("A=1\n", "NCCL_X=1\n")
    assert nccl_env.managed_lines(text) == frozenset({1, 2, 3})
    assert nccl_env.managed_lines("A=1\n") == frozenset()
    assert 2 in nccl_env.managed_lines(nccl_env.profile(settings(cluster())))


def test_deepspeed_env_is_merged_by_name() -> None:
    first = nccl_env.deepspeed_env(nccl_env.cluster_travelling(cluster(), {"NCCL_DEBUG": "INFO"}))
    second = nccl_env.deepspeed_env(nccl_env.cluster_travelling(cluster()))
    before = "WANDB_MODE=offline\nNCCL_IB_DISABLE=0\n"
    merged = nccl_env.merge_deepspeed_env(before, first)
    assert merged == before + first
    assert nccl_env.merge_deepspeed_env(merged, first) == merged
    # What accelerate appended after ours stays; what we no longer set goes, the user's line of that name does not.
    appended = merged + "HF_HOME=/data/hf\nNCCL_DEBUG=WARN\n"
    assert nccl_env.merge_deepspeed_env(appended, second) == f"{before}HF_HOME=/data/hf\nNCCL_DEBUG=WARN\n{second}"
    assert nccl_env.merge_deepspeed_env(merged, "") == before


def test_deepspeed_env_loses_lines_that_keep_deepspeed_from_starting() -> None:
    text = "# mine\n#X=1\n\nexport\nA=1"
    assert nccl_env.merge_deepspeed_env(text, "") == "A=1\n"


# What others have set


def said(of: Cluster, file: str, name: str, value: str, extra: Optional[Dict[str, Any]] = None) -> str:
    found = [Found(file, 3, name, value)]
    return "\n".join(nccl_env.contradictions(of, of.node("n1"), found, extra))


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [
        (cluster(), "NCCL_SOCKET_IFNAME", "=eno1"),
        (cluster(), "NCCL_SOCKET_IFNAME", "eno1"),
        (cluster(), "NCCL_SOCKET_IFNAME", "eno1,enp99s0"),
        (cluster(), "GLOO_SOCKET_IFNAME", "eno1"),
        (cluster(), "NCCL_IB_DISABLE", "0x1"),
        (cluster(), "NCCL_IB_HCA", "mlx5_0"),
        (cluster(), "NCCL_DEBUG", "INFO"),
        (cluster(), "NCCL_SOCKET_FAMILY", "AF_INET"),
        (cluster("roce", hcas=["mlx5_0:1", "mlx5_1:1"]), "NCCL_IB_HCA", "mlx5_1,mlx5_0"),
        (cluster("roce"), "NCCL_IB_DISABLE", "0"),
        (cluster("roce"), "NCCL_IB_GID_INDEX", "3"),
    ],
)
def test_no_alarm_where_both_mean_the_same(of: Cluster, name: str, value: str) -> None:
    assert said(of, "/etc/environment", name, value) == ""


@pytest.mark.parametrize(
    ("of", "name", "value", "why"),
    [
        (cluster(), "NCCL_SOCKET_IFNAME", "docker0", "but =eno1 is chosen: the interface of 10.0.0.1"),
        (cluster(), "NCCL_SOCKET_IFNAME", "eno", "but =eno1 is chosen"),
        (cluster(), "NCCL_SOCKET_IFNAME", "^docker0,lo", "but =eno1 is chosen"),
        (cluster(), "NCCL_SOCKET_IFNAME", "eno10", "but =eno1 is chosen"),
        (cluster(), "GLOO_SOCKET_IFNAME", "=eno1", "but eno1 is chosen"),
        (cluster(), "NCCL_IB_DISABLE", "0", "but 1 is chosen: the transport is tcp"),
        (cluster(), "NCCL_NET", "IB", "the chosen transport is tcp"),
        (cluster(), "NCCL_SOCKET_FAMILY", "AF_INET6", "the chosen address 10.0.0.1 is an IPv4 one"),
        (cluster(), "NCCL_COMM_ID", "10.0.0.1:4000", "torch makes its own"),
        (cluster(address="fd00::{}"), "NCCL_SOCKET_FAMILY", "AF_INET", "but AF_INET6 is chosen"),
        (cluster("roce"), "NCCL_IB_DISABLE", "1", "the chosen transport is roce, which it turns off"),
        (cluster("ib"), "NCCL_NET", "Socket", "the chosen transport is ib, which it turns off"),
        (cluster("roce", hcas=["mlx5_0:1"]), "NCCL_IB_HCA", "mlx5_0,mlx5_bond_0", "but =mlx5_0:1 is chosen"),
        (cluster("roce", hcas=["mlx5_0:1"]), "NCCL_IB_HCA", "^mlx5_0", "but =mlx5_0:1 is chosen"),
        (cluster("roce", gid_index=3), "NCCL_IB_GID_INDEX", "1", "but 3 is chosen: the GID that carries 10.0.0.1"),
    ],
)
def test_contradictions_are_told_with_their_cure(of: Cluster, name: str, value: str, why: str) -> None:
    sentence = said(of, "/home/ann/.bashrc", name, value)
    assert sentence.startswith(f"n1: /home/ann/.bashrc:3 sets {name}={value}, ")
    assert why in sentence
    assert sentence.endswith(f"Remove it, or set nccl_env_extra: {{{name}: '{value}'}} if it is meant")


@pytest.mark.parametrize(
    ("file", "effect"),
    [
        ("/etc/nccl.conf", "NCCL takes the first of two lines in this file"),
        ("/home/ann/.nccl.conf", "NCCL reads this file before /etc/nccl.conf"),
        ("/home/ann/.deepspeed_env", "DeepSpeed carries it to every node"),
        ("/etc/profile.d/nccl.sh", "it wins over /etc/nccl.conf"),
        ("environment", "it wins over /etc/nccl.conf"),
    ],
)
def test_the_effect_depends_on_the_file(file: str, effect: str) -> None:
    assert effect in said(cluster(), file, "NCCL_IB_DISABLE", "0")


def test_the_user_s_own_choice_is_the_measure() -> None:
    extra = {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_NET": None}
    assert said(cluster(), "/etc/environment", "NCCL_SOCKET_IFNAME", "bond0", extra) == ""
    assert "but bond0 is your nccl_env_extra" in said(
        cluster(), "/etc/environment", "NCCL_SOCKET_IFNAME", "eth0", extra
    )
    assert said(cluster(), "/etc/environment", "NCCL_NET", "IB", extra) == ""


def test_found_settings_as_the_facts_have_them() -> None:
    raw = [
        {"source": "environment", "line": 0, "name": "NCCL_IB_DISABLE", "value": "0", "effective": True},
        {"file": "/etc/environment", "line": 2, "name": "NCCL_SOCKET_IFNAME", "value": "lo"},
        {"source": "/etc/nccl.conf", "line": 4, "name": "NCCL_SOCKET_IFNAME", "value": "lo", "effective": False},
    ]
    of = cluster()
    told = nccl_env.contradictions(of, of.node("n2"), nccl_env.found_from(raw))
    assert len(told) == 2
    assert told[0].startswith("n2: environment sets NCCL_IB_DISABLE=0, ")
    assert told[1].startswith("n2: /etc/environment:2 sets NCCL_SOCKET_IFNAME=lo, ")
