# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_argument_specs.py"
spec = importlib.util.spec_from_file_location("check_argument_specs", SCRIPT)
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


def option(**details):
    return {"description": "What it is.", "type": "str", **details}


def problems(tmp_path, defaults, specs, tasks=("main",)):
    for folder in ("defaults", "meta", "tasks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "defaults" / "main.yml").write_text(yaml.safe_dump(defaults))
    (tmp_path / "meta" / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": specs}))
    for name in tasks:
        (tmp_path / "tasks" / f"{name}.yml").write_text("---\n")
    return list(check.role_problems(tmp_path))


@pytest.mark.parametrize(
    ("default", "details"),
    [
        ("plain", {"default": "plain"}),
        (0, {"default": 0, "type": "int"}),
        ([{"name": "mgmt"}], {"default": [{"name": "mgmt"}], "type": "list"}),
        (None, {}),
        ("{{ torchfleet_user | default('root') }}", {}),
        (["{{ inventory_hostname }}"], {"type": "list"}),
    ],
)
def test_an_option_that_says_what_the_defaults_say_passes(tmp_path, default, details):
    assert problems(tmp_path, {"role_a": default}, {"main": {"options": {"role_a": option(**details)}}}) == []


@pytest.mark.parametrize(
    ("default", "details", "words"),
    [
        ("plain", {"default": "other"}, "states the default 'other', defaults/main.yml has 'plain'"),
        ("plain", {}, "states the default None"),
        (1, {"default": True}, "states the default True"),
        (None, {"default": "x"}, "which defaults/main.yml leaves open"),
        ("{{ a }}", {"default": "{{ a }}"}, "which defaults/main.yml leaves open"),
        (None, {"description": ""}, "role_a has no description"),
        (None, {"type": None}, "role_a has no type"),
    ],
)
def test_an_option_that_says_something_else_is_named(tmp_path, default, details, words):
    (problem,) = problems(tmp_path, {"role_a": default}, {"main": {"options": {"role_a": option(**details)}}})
    assert words in problem


def test_names_are_the_same_in_main_and_a_part_of_them_elsewhere(tmp_path):
    defaults = {"role_a": None, "role_b": None}
    specs = {
        "main": {"options": {"role_a": option(), "role_old": option()}},
        "absent": {"options": {"role_b": option()}},
    }
    assert problems(tmp_path, defaults, specs, tasks=("main", "absent")) == [
        "main: role_b of defaults/main.yml is not described",
        "main: role_old is not in defaults/main.yml",
    ]


def test_every_entry_point_has_its_tasks(tmp_path):
    specs = {"main": {"options": {}}, "absent": {"options": {}}}
    assert problems(tmp_path, {}, specs) == ["absent: there is no tasks/absent.yml"]


def test_a_role_without_specs_is_named(tmp_path):
    assert problems(tmp_path, {"role_a": None}, {}) == ["has no entry point main"]


def test_entry_points_are_found_however_deep_they_are_used():
    playbook = [
        {
            "hosts": "all",
            "tasks": [
                {
                    "block": [
                        {"ansible.builtin.include_role": {"name": "torchfleet.cluster.lab", "tasks_from": "absent"}}
                    ]
                },
                {"ansible.builtin.import_role": {"name": "torchfleet.cluster.sync", "tasks_from": "install.yml"}},
                {"ansible.builtin.import_role": {"name": "some.other.role", "tasks_from": "install"}},
            ],
        }
    ]
    assert list(check.used_entry_points(playbook)) == [("lab", "absent"), ("sync", "install")]
