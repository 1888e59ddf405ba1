# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _hostfile
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import ClusterError, build_cluster

CLUSTER = build_cluster(
    [
        {"name": "n1", "address": "10.0.0.1", "slots": 4},
        {"name": "n2.lab", "address": "10.0.0.2", "slots": 2, "ssh_user": "trainer", "ssh_port": 2222},
    ],
    head="n2.lab",
)
V6 = build_cluster([{"name": "n1", "address": "fd00::1"}, {"name": "n2", "address": "fd00::2"}])


@pytest.mark.parametrize(
    ("fmt", "by", "text"),
    [
        ("deepspeed", "name", "n2.lab slots=2\nn1 slots=4\n"),
        ("deepspeed", "address", "10.0.0.2 slots=2\n10.0.0.1 slots=4\n"),
        ("openmpi", "name", "n2.lab slots=2\nn1 slots=4\n"),
        ("plain", "name", "n2.lab\nn1\n"),
        ("plain", "address", "10.0.0.2\n10.0.0.1\n"),
    ],
)
def test_nodes_stand_in_launch_order(fmt: str, by: str, text: str) -> None:
    assert _hostfile.render(CLUSTER, fmt, by) == text


def test_ipv6_nodes_go_by_name_where_the_format_has_no_room_for_colons() -> None:
    assert _hostfile.render(V6, "deepspeed", "name") == "n1 slots=1\nn2 slots=1\n"
    assert _hostfile.render(V6, "plain", "address") == "fd00::1\nfd00::2\n"
    for fmt, program in (("deepspeed", "DeepSpeed"), ("openmpi", "Open MPI")):
        with pytest.raises(ClusterError) as error:
            _hostfile.render(V6, fmt, "address")
        assert error.value.problems == tuple(
            f"{node.name}: {program} cannot use the IPv6 address {node.address} in a hostfile: set by to name"
            for node in V6.nodes
        )


@pytest.mark.parametrize(
    ("fmt", "by", "said"),
    [
        ("mpich", "name", "format is 'mpich', wanted one of deepspeed, openmpi, plain"),
        ("plain", "ip", "by is 'ip', wanted one of name, address"),
    ],
)
def test_wrong_choices(fmt: Any, by: Any, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        _hostfile.render(CLUSTER, fmt, by)


# What would make a hostfile that launchers misread never becomes a Cluster.
@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ([], "the cluster has no nodes"),
        (
            [{"name": "n1", "address": "10.0.0.1"}, {"name": "n1", "address": "10.0.0.2"}],
            "'n1' is used by more than one",
        ),
        ([{"name": "root@n1", "address": "10.0.0.1"}], "'root@n1' is not a valid host name"),
        ([{"name": "n1 slots=9", "address": "10.0.0.1"}], "'n1 slots=9' is not a valid host name"),
        ([{"name": "#n1", "address": "10.0.0.1"}], "'#n1' is not a valid host name"),
        ([{"name": "n1\nn2", "address": "10.0.0.1"}], "is not a valid host name"),
        ([{"name": "n1", "address": "10.0.0.1", "slots": 0}], "torchfleet_slots is 0, wanted a whole number"),
        ([{"name": "n1", "address": "10.0.0.1", "slots": "two"}], "torchfleet_slots is 'two'"),
        ([{"name": "n1", "address": "10.0.0.1", "slots": 2.5}], "torchfleet_slots is 2.5"),
        ([{"name": "n1", "address": "127.0.1.1"}], "which no peer can reach"),
    ],
)
def test_wrong_hosts(hosts: Any, said: str) -> None:
    with pytest.raises(ClusterError) as error:
        build_cluster(hosts)
    assert said in str(error.value)
