# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import yaml

from ansible_collections.torchfleet.cluster.plugins.filter import stack_problems as plugin

FILTER = plugin.FilterModule().filters()["stack_problems"]
V100 = {"name": "gpu-a", "driver": "580.95.05", "gpus": [{"model": "Tesla V100-SXM2-32GB"}]}


def test_possible_stack_gives_an_empty_list():
    assert FILTER("torch-2.10-cu126", [V100]) == []


def test_problem_is_plain_data_with_the_documented_keys():
    (problem,) = FILTER({"cuda": "13.0", "torch": "2.9.1"}, [V100])
    returned = yaml.safe_load(plugin.RETURN)["_value"]
    assert set(problem) == set(returned["contains"])
    assert problem == returned["sample"][0]
    json.dumps(problem)


def test_nodes_may_be_left_out():
    assert [one["variable"] for one in FILTER({"torch": "2.99"})] == ["torchfleet_stack.torch"]


def test_documentation_names_the_filter_and_its_options():
    documented = yaml.safe_load(plugin.DOCUMENTATION)
    assert documented["name"] == "stack_problems"
    assert set(documented["options"]) == {"_input", "nodes"}
    assert yaml.safe_load(plugin.EXAMPLES)
