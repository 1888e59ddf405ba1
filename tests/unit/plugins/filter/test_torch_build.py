# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import yaml

from ansible_collections.torchfleet.cluster.plugins.filter import torch_build as plugin

FILTER = plugin.FilterModule().filters()["torch_build"]
RETURNED = yaml.safe_load(plugin.RETURN)["_value"]["contains"]
NODES = [
    {"name": "gpu-a", "driver": "580.95.05", "gpus": [{"model": "NVIDIA A100-SXM4-80GB"}]},
    {"name": "gpu-b", "driver": "580.95.05", "gpus": [{"model": "Tesla V100-SXM2-32GB"}]},
]


def test_build_is_plain_data_as_documented():
    build = FILTER({"torch": "2.9"}, NODES)
    json.dumps(build)
    assert set(build) == set(RETURNED)
    assert build["refused"] == ""
    for key, documented in RETURNED.items():
        if "sample" in documented:
            assert build[key] == documented["sample"], key


def test_refusal_is_a_result_with_its_reason():
    build = FILTER({"torch": "2.15"}, NODES)
    assert "no kernels for Tesla V100-SXM2-32GB (sm_70)" in build["refused"]
    assert build["variable"].startswith("torchfleet_stack.")
    assert "torch" not in build


def test_documentation_names_the_filter_and_its_options():
    documented = yaml.safe_load(plugin.DOCUMENTATION)
    assert documented["name"] == "torch_build"
    assert set(documented["options"]) == {"_input", "nodes"}
    assert yaml.safe_load(plugin.EXAMPLES)
