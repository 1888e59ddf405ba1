# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module on whatever machine runs the tests: it always answers, and changes nothing."""

from __future__ import annotations

import json
import platform
import sys

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils import _gather_gpu
from ansible_collections.torchfleet.cluster.plugins.modules import stack_facts


@pytest.fixture
def call(capsys):
    def run(**params):
        with patch_module_args(params), pytest.raises(SystemExit) as ended:
            stack_facts.main()
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_it_says_what_this_machine_has(call):
    answer = call(name="here", python=sys.executable)
    software = answer["ansible_facts"]["torchfleet_software"]
    assert answer["changed"] is False
    assert software["python_version"] == platform.python_version()
    assert software["node"]["name"] == "here"
    assert software["machine"] == platform.machine()


def test_an_interpreter_that_is_not_there_is_a_result(call):
    software = call(python="/nowhere/python")["ansible_facts"]["torchfleet_software"]
    assert software["python_version"] == ""


@pytest.mark.parametrize(
    ("kind", "vendor", "count"), [("0x068000", "0x10de", 1), ("0x030200", "0x10de", 0), ("0x068000", "0x8086", 0)]
)
def test_nvswitches_are_counted_by_class_and_vendor(call, monkeypatch, tmp_path, kind, vendor, count):
    device = tmp_path / "sys/bus/pci/devices/0000:43:00.0"
    device.mkdir(parents=True)
    (device / "class").write_text(kind + "\n", encoding="utf-8")
    (device / "vendor").write_text(vendor + "\n", encoding="utf-8")
    monkeypatch.setattr(_gather_gpu, "ROOT", str(tmp_path))
    assert call()["ansible_facts"]["torchfleet_software"]["nvswitches"] == count


def test_lines_of_start_files_are_found(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("export LD_LIBRARY_PATH=/usr/local/cuda/lib64\n", encoding="utf-8")
    found = stack_facts.find_shell_lines(str(home))
    assert [(line["path"], line["number"]) for line in found if line["path"].startswith(str(home))] == [
        (str(home / ".bashrc"), 1)
    ]


def test_default_configurations_of_accelerate_are_found(tmp_path):
    folder = tmp_path / ".cache/huggingface/accelerate"
    folder.mkdir(parents=True)
    (folder / "default_config.yaml").write_text("num_machines: 7\nmixed_precision: bf16\n", encoding="utf-8")
    (found,) = stack_facts.find_accelerate(str(tmp_path))
    assert found == {"path": str(folder / "default_config.yaml"), "lines": ["num_machines: 7"]}
