# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done about a driver, by what is there: on every distribution, for every kind of card."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.template import trust_as_template as trust

from ansible_collections.torchfleet.cluster.plugins.filter.driver_plan import driver_plan

ROOT = Path(__file__).resolve().parents[4]
BUS = [{"address": "0000:1b:00.0"}]


def node(name="debian", version="12", **more):
    return {"release": {"id": name, "version": version, "name": f"{name} {version}"}, **more}


def gpu(status="ok", version=None, model="NVIDIA A100-SXM4-80GB", bus=BUS):
    cards = [{"model": model}] if model and status == "ok" else []
    return {"status": status, "driver_version": version, "gpus": cards, "pci_gpus": bus, "reason": f"it is {status}"}


@pytest.mark.parametrize(
    ("facts", "wanted", "action"),
    [
        (gpu("not_installed", bus=[]), "580", "none"),
        (gpu("not_installed"), "580", "install"),
        (gpu("not_loaded"), "580", "install"),
        (gpu("library_mismatch", "580.65.06"), "580", "reboot"),
        (gpu("ok", "580.65.06"), "580", "keep"),
        (gpu("ok", "580.65.06"), "580.65.06", "keep"),
        (gpu("ok", "580.65.06"), "580.95.05", "install"),
        (gpu("ok", "535.183.01"), "580", "install"),
        (gpu("ok", "535.183.01"), None, "keep"),
    ],
)
def test_what_is_done(facts, wanted, action):
    plan = driver_plan(facts, node(), wanted)
    assert (plan["action"], plan["problem"]) == (action, "")


def test_a_machine_without_a_gpu_can_be_prepared():
    plan = driver_plan(gpu("not_installed", bus=[]), node(), "580", force=True)
    assert plan["packages"] == ["nvidia-open-580"]


@pytest.mark.parametrize(
    ("system", "method", "wanted", "packages", "stream"),
    [
        (node("debian", "12"), "repository", "580", ["nvidia-open-580"], ""),
        (node("ubuntu", "24.04"), "repository", "595", ["nvidia-open=595.*"], ""),
        (node("debian", "12"), "repository", "580.95.05", ["nvidia-open-580=580.95.05-*"], ""),
        (
            node("ubuntu", "24.04"),
            "distribution",
            "580",
            ["nvidia-headless-580-server-open", "nvidia-utils-580-server"],
            "",
        ),
        (node("rocky", "9.4"), "repository", "580", ["nvidia-open"], "nvidia-driver:580-open"),
        (
            node("debian", "12"),
            "distribution",
            "535",
            ["nvidia-driver", "nvidia-smi", "nvidia-persistenced", "firmware-misc-nonfree"],
            "",
        ),
    ],
)
def test_packages(system, method, wanted, packages, stream):
    plan = driver_plan(gpu("not_installed"), system, wanted, method)
    assert (plan["packages"], plan["stream"], plan["problem"]) == (packages, stream, "")


def test_a_full_version_is_pinned_with_all_that_it_brings():
    pin = driver_plan(gpu("not_installed"), node(), "580.95.05")["pin"]
    assert (pin["name"], pin["version"]) == ("nvidia-driver", "580.95.05-*")
    assert "*nvidia*" in pin["packages"]
    assert driver_plan(gpu("not_installed"), node(), "535", "distribution")["pin"] is None
    assert driver_plan(gpu("not_installed"), node(), "580", packages=["mine=1"])["pin"] is None


@pytest.mark.parametrize(
    ("model", "modules", "wanted"),
    [
        ("Tesla V100-SXM2-32GB", "auto", "proprietary"),
        ("NVIDIA H100 80GB HBM3", "auto", "open"),
        ("NVIDIA B200", "auto", "open"),
        ("NVIDIA A100-SXM4-80GB", "proprietary", "proprietary"),
    ],
)
def test_kernel_modules(model, modules, wanted):
    assert driver_plan(gpu("ok", "535.1", model), node(), "580", modules=modules)["modules"] == wanted


@pytest.mark.parametrize(
    ("facts", "system", "options", "words"),
    [
        (
            gpu("ok", "535.1", "Tesla V100-SXM2-32GB"),
            node(),
            {"modules": "open"},
            "is not driven by open kernel modules",
        ),
        (gpu("ok", "535.1", "NVIDIA B200"), node(), {"modules": "proprietary"}, "is not driven by proprietary"),
        (gpu("not_installed"), node(secure_boot=True), {}, "Secure Boot is on"),
        (
            gpu("not_installed"),
            node(),
            {"method": "distribution"},
            "debian12 has driver branch 535 of its own, not 580",
        ),
        (gpu("not_installed"), node("rocky", "9.4"), {"method": "distribution"}, "take the vendor's repository"),
        (gpu("not_installed"), node(), {"nvswitch": True}, "fabric manager has to match it to the last digit"),
        (gpu("not_installed"), node("arch", "1"), {}, "set nvidia_driver_packages"),
    ],
)
def test_refusals(facts, system, options, words):
    assert words in driver_plan(facts, system, "580", **options)["problem"]


def test_secure_boot_with_an_enrolled_key():
    assert driver_plan(gpu("not_installed"), node(secure_boot=True), "580", secure_boot_ok=True)["problem"] == ""


def test_fabric_manager_is_of_exactly_the_driver_s_version():
    plan = driver_plan(gpu("not_installed"), node("ubuntu", "22.04"), "580.95.05", nvswitch=True)
    assert plan["packages"][-1] == "nvidia-fabricmanager-580=580.95.05-*"


@pytest.mark.parametrize(
    ("facts", "given", "wanted"),
    [
        ({"nvswitches": 6}, None, True),
        ({"nvswitches": 0}, None, False),
        (None, None, False),
        ({"nvswitches": 6}, False, False),
    ],
)
def test_the_role_takes_nvswitch_from_the_facts_and_a_variable_wins(facts, given, wanted):
    defaults = yaml.safe_load((ROOT / "roles/nvidia_driver/defaults/main.yml").read_text(encoding="utf-8"))
    variables = {"ansible_facts": {"torchfleet_software": facts} if facts else {}}
    variables["nvidia_driver_nvswitch"] = trust(defaults["nvidia_driver_nvswitch"]) if given is None else given
    assert Templar(DataLoader(), variables).template(trust("{{ nvidia_driver_nvswitch }}")) is wanted
