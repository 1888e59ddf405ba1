# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.torchfleet.cluster.plugins.action.cluster_bench import ActionModule
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import build_cluster


def ranks(count, ready=3):
    cluster = build_cluster([{"name": f"n{number}", "address": f"10.0.1.{number}"} for number in range(count)])
    host_of = {node.name: node.name for node in cluster.nodes}
    prepared = {node.name: {"port": 1, "master_port": 2} for node in cluster.nodes[:ready]}
    return ActionModule._pair(cluster, host_of, {"prepared": prepared}, None)["ranks"]


def test_ranks_reduce_where_every_node_is_ready_and_one_does_not_reduce_alone():
    assert {host: len(own) for host, own in ranks(3).items()} == {"n0": 1, "n1": 1, "n2": 1}
    assert ranks(3, ready=2) == {"n0": [], "n1": [], "n2": []}
    assert ranks(1) == {"n0": []}
