# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as it runs on a node: real processes, with a script in the place of nvidia-smi."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.torchfleet.cluster.plugins.module_utils import _gather_gpu
from ansible_collections.torchfleet.cluster.plugins.modules import gpu_facts

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "nvidia_smi"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """An empty machine: nothing in /sys and /proc, and a PATH with the usual tools and no nvidia-smi."""
    monkeypatch.setattr(_gather_gpu, "ROOT", str(tmp_path / "root"))
    monkeypatch.setattr(_gather_gpu, "EXTRA_DIRS", [str(tmp_path / "extra")])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in ("bin", "extra", "root"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def gather(capsys):
    def call(**params):
        with patch_module_args(params), pytest.raises(SystemExit) as end:
            gpu_facts.main()
        result = json.loads(capsys.readouterr().out)
        assert end.value.code == (1 if result.get("failed") else 0)
        return result

    return call


def put_nvidia_smi(directory, **answers):
    """A script that answers `-q -x` and so on with a file's text; other calls are refused as nvidia-smi does."""
    calls = {"query": "-q -x", "topo": "topo -m", "nvlink": "nvlink -s", "listing": "-L"}
    cases = "".join(f"  '{calls[name]}') {command} ;;\n" for name, command in answers.items())
    script = directory / "nvidia-smi"
    script.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}  *) echo "ERROR: Option not known"; exit 2 ;;\nesac\n')
    script.chmod(0o755)
    return script


def put_pci_gpu(root, address, driver=None, pci_class="0x030200", vendor="0x10de"):
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(pci_class + "\n")
    (device / "numa_node").write_text("1\n")
    (device / "local_cpulist").write_text("32-63\n")
    if driver:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def test_a_node_with_gpus(node, gather):
    put_nvidia_smi(
        node / "bin",
        query=f"cat {FIXTURES}/two_h100.xml",
        topo=f"cat {FIXTURES}/two_h100.topo.txt",
        nvlink=f"cat {FIXTURES}/two_h100.nvlink.txt",
    )
    put_pci_gpu(node / "root", "0000:1b:00.0", "nvidia")
    result = gather()
    assert result["changed"] is False
    assert result["status"] == "ok"
    assert [gpu["index"] for gpu in result["gpus"]] == [0, 1]
    assert [gpu["numa_node"] for gpu in result["gpus"]] == [0, 1]
    assert result["topology"]["links"]["GPU0"]["NIC0"] == "PIX"
    assert result["gpus"][0]["nvlink"]["active"] == 3
    assert result["pci_gpus"][0]["driver"] == "nvidia"
    facts = result["ansible_facts"]["torchfleet_gpu"]
    assert facts == {key: result[key] for key in facts}


def test_mig_instances_get_their_uuid(node, gather):
    put_nvidia_smi(node / "bin", query=f"cat {FIXTURES}/mig_a100.xml", listing=f"cat {FIXTURES}/mig_a100.list.txt")
    instances = gather()["gpus"][0]["mig"]["instances"]
    assert [one["profile"] for one in instances] == ["3g.40gb", "1g.10gb+me"]


def test_check_mode_gathers_too(node, gather):
    put_nvidia_smi(node / "bin", query=f"cat {FIXTURES}/two_h100.xml")
    assert len(gather(_ansible_check_mode=True)["gpus"]) == 2


def test_a_place_outside_of_path(node, gather):
    put_nvidia_smi(node / "extra", query=f"cat {FIXTURES}/two_h100.xml")
    assert gather()["status"] == "ok"


def test_path_comes_before_other_places(node, gather):
    put_nvidia_smi(node / "extra", query="echo No devices were found; exit 6")
    put_nvidia_smi(node / "bin", query=f"cat {FIXTURES}/two_h100.xml")
    assert gather()["status"] == "ok"


def test_a_given_executable(node, gather):
    script = put_nvidia_smi(node, query=f"cat {FIXTURES}/two_h100.xml")
    assert gather(executable=str(script))["status"] == "ok"
    missing = gather(executable=str(node / "missing"))
    assert missing["status"] == "not_installed"
    assert "missing" in missing["reason"]


def test_a_file_that_cannot_be_executed(node, gather):
    script = node / "nvidia-smi"
    script.write_text("not a program")
    script.chmod(0o755)
    assert gather(executable=str(script))["status"] == "unknown_error"


def test_messages_come_in_plain_english(node, gather):
    put_nvidia_smi(node / "bin", query='echo "$LC_ALL: No devices were found"; exit 6')
    assert "nvidia-smi: C: No devices" in gather()["reason"]


def test_bytes_that_are_not_utf8(node, gather):
    record = (FIXTURES / "two_h100.xml").read_bytes().replace(b"/opt/venv", b"/opt/\xff\xfe")
    (node / "record").write_bytes(record)
    put_nvidia_smi(node / "bin", query=f"cat {node}/record")
    result = gather()
    assert result["status"] == "ok"
    assert result["gpus"][0]["processes"][0]["pid"] == 4711


@pytest.mark.parametrize("hang", ["exec sleep 60", "trap '' TERM INT; exec sleep 60", "echo '<gpu '; exec sleep 60"])
def test_a_hanging_nvidia_smi_is_given_up(node, gather, hang):
    put_nvidia_smi(node / "bin", query=hang)
    result = gather(timeout=0.2)
    assert result["status"] == "timeout"
    assert result["gpus"] == []
    assert "within 0.2 s" in result["reason"]


def test_a_process_that_survives_its_end_is_not_waited_for(node, gather):
    # What hangs in the driver cannot be killed; a grandchild that holds the pipes open stands for it.
    put_nvidia_smi(node / "bin", query="sleep 5 & wait")
    assert gather(timeout=0.2)["status"] == "timeout"


def test_a_hanging_topology_costs_the_topology_only(node, gather):
    put_nvidia_smi(node / "bin", query=f"cat {FIXTURES}/two_h100.xml", topo="exec sleep 60")
    result = gather(timeout=1)
    assert (result["status"], len(result["gpus"]), result["topology"]) == ("ok", 2, None)
    assert any("topo -m did not answer" in note for note in result["notes"])


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_is_none(node, gather, timeout):
    result = gather(timeout=timeout)
    assert result["failed"] is True
    assert "timeout" in result["msg"]


def test_no_gpu_and_no_driver(node, gather):
    put_pci_gpu(node / "root", "0000:00:02.0", vendor="0x8086")
    put_pci_gpu(node / "root", "0000:1b:00.1", pci_class="0x040300")  # the audio function of a card
    result = gather()
    assert (result["status"], result["gpus"], result["pci_gpus"], result["problems"]) == ("not_installed", [], [], [])
    assert "no NVIDIA GPU is on the PCI bus" in result["reason"]


def test_a_gpu_and_no_driver(node, gather):
    put_pci_gpu(node / "root", "0000:1b:00.0")
    put_pci_gpu(node / "root", "0000:c3:00.0", pci_class="0x030000")
    result = gather()
    assert result["status"] == "not_installed"
    assert [gpu["address"] for gpu in result["pci_gpus"]] == ["0000:1b:00.0", "0000:c3:00.0"]
    assert result["pci_gpus"][0]["cpu_affinity"] == "32-63"
    assert "no NVIDIA driver is installed" in result["reason"]
    assert result["problems"] == [result["reason"]]


def test_a_driver_without_its_tools(node, gather):
    root = node / "root"
    (root / "sys/module/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/gpus/0000:1B:00.0").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.10.01  Mon\n")
    put_pci_gpu(root, "0000:1b:00.0", "nvidia")
    result = gather()
    assert (result["status"], result["driver_version"]) == ("not_installed", "570.10.01")
    assert "the NVIDIA kernel module 570.10.01 is loaded, but nvidia-smi is not installed" in result["reason"]
    assert result["pci_gpus"][0]["known_to_driver"] is True


def test_a_driver_that_is_not_loaded(node, gather):
    put_nvidia_smi(node / "bin", query='echo "NVIDIA-SMI couldn\'t communicate with the NVIDIA driver"; exit 9')
    put_pci_gpu(node / "root", "0000:1b:00.0", "nouveau")
    result = gather()
    assert result["status"] == "not_loaded"
    assert "bound to nouveau" in result["reason"]


def _undocumented(values, documented, path=""):
    """Keys of a result, two levels deep, that RETURN does not name, and the other way round."""
    odd = {f"{path}{key}" for key in set(values) ^ set(documented)}
    for key in set(values) & set(documented):
        inner, value = documented[key].get("contains"), values[key]
        if inner and isinstance(value, list):
            odd |= _undocumented(value[0], inner, f"{path}{key}.")
    return odd


def test_every_value_is_documented(node, gather):
    put_nvidia_smi(node / "bin", query=f"cat {FIXTURES}/two_h100.xml")
    result = gather()
    documented = yaml.safe_load(gpu_facts.RETURN)
    for key in ("changed", "invocation", "warnings", "deprecations"):
        result.pop(key, None)
    result["ansible_facts"] = {"torchfleet_gpu": {}}
    assert _undocumented(result, documented) == set()


def test_every_status_is_documented():
    words = " ".join(yaml.safe_load(gpu_facts.RETURN)["status"]["description"])
    assert [status for status in gpu_facts._nvidia_smi.STATUSES if f"V({status})" not in words] == []


def test_samples_have_the_keys_of_real_values(node, gather):
    put_nvidia_smi(
        node / "bin",
        query=f"cat {FIXTURES}/mig_a100.xml",
        topo=f"cat {FIXTURES}/two_h100.topo.txt",
        nvlink=f"sed s/aaaaaaaa/dddddddd/ {FIXTURES}/two_h100.nvlink.txt",
    )
    put_pci_gpu(node / "root", "0000:41:00.0", "nvidia")
    result = gather()
    documented = yaml.safe_load(gpu_facts.RETURN)
    gpu = result["gpus"][0]
    for key, entry in documented["gpus"]["contains"].items():
        if isinstance(entry["sample"], dict):
            assert set(entry["sample"]) == set(gpu[key]), key
    assert set(documented["topology"]["sample"]) == set(result["topology"])
    assert set(documented["pci_gpus"]["sample"][0]) == set(result["pci_gpus"][0])
    assert set(documented["gpus"]["contains"]["processes"]["sample"][0]) == set(gpu["processes"][0])
    sample = documented["gpus"]["contains"]["mig"]["sample"]["instances"][0]
    assert set(sample) == set(gpu["mig"]["instances"][0])
