# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DeepSpeed's own report, read and judged."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.ds_report import ds_report
from ansible_collections.torchfleet.cluster.plugins.module_utils._ds_report import Op, judge, parse

GREEN, YELLOW, RED, END = "\033[92m", "\033[93m", "\033[91m", "\033[0m"


def op(name, installed, compatible):
    shown = f"{GREEN}[YES]{END}" if installed else f"{YELLOW}[NO]{END}"
    can = f"{GREEN}[OKAY]{END}" if compatible else f"{YELLOW}[NO]{END}"
    return f"{name} {'.' * max(0, 23 - len(name))} {shown} {'.' * 7} {can}\n"


def report(*ops, ninja=True, torch="2.9.1+cu126", cuda="12.6", nvcc="12.6", built="torch 2.9, cuda 12.6"):
    return (
        "[2026-01-20 10:00:00,123] [INFO] [real_accelerator.py:260:get_accelerator] Setting ds_accelerator to cuda\n"
        + "-" * 50
        + f"\nJIT compiled ops requires ninja\nninja .................. {GREEN if ninja else RED}"
        + f"{'[OKAY]' if ninja else '[FAIL]'}{END}\n"
        + "op name ................ installed .. compatible\n"
        + "".join(ops)
        + "DeepSpeed general environment info:\n"
        + "torch install path ............... ['/opt/torchfleet/venv/lib/python3.11/site-packages/torch']\n"
        + f"torch version .................... {torch}\n"
        + "deepspeed install path ........... ['/opt/torchfleet/venv/lib/python3.11/site-packages/deepspeed']\n"
        + "deepspeed info ................... 0.19.8, unknown, unknown\n"
        + (f"torch cuda version ............... {cuda}\ntorch hip version ................ None\n" if cuda else "")
        + (f"nvcc version ..................... {nvcc}\n" if nvcc else "")
        + f"deepspeed wheel compiled w. ...... {built}\n"
        + "shared memory (/dev/shm) size .... 503.52 GB\n"
    )


ADAM = op("cpu_adam", True, True)


def test_a_report_is_read_through_its_colours_and_dots():
    found = parse(report(ADAM, op("async_io", False, False), op("deepspeed_not_implemented", False, True)))
    assert (found.deepspeed, found.torch, found.torch_cuda, found.nvcc) == ("0.19.8", "2.9.1+cu126", "12.6", "12.6")
    assert found.wheel == {"torch": "2.9", "cuda": "12.6"}
    assert found.ops == {
        "cpu_adam": Op(True, True),
        "async_io": Op(False, False),
        "deepspeed_not_implemented": Op(False, True),
    }
    assert found.ninja is True
    assert found.shm == "503.52 GB"


def test_a_healthy_one_has_no_problems():
    verdict = judge(report(ADAM, op("fused_adam", False, True)), version="0.19.8", ops=["cpu_adam"], has_gpu=True)
    assert verdict.problems == ()
    assert verdict.summary == (
        "DeepSpeed 0.19.8 with torch 2.9.1+cu126, ops built: cpu_adam, 1 of 2 can be built on demand"
    )


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (report(ADAM), {"version": "0.18.0"}, "DeepSpeed is 0.19.8, wanted 0.18.0"),
        (report(ADAM, ninja=False), {}, "ninja is not found"),
        (report(ADAM), {"ops": ["cpu_adma"]}, "there is no op cpu_adma: deepspeed_ops may name cpu_adam"),
        (
            report(op("fused_adam", False, False), nvcc=""),
            {"ops": ["fused_adam"]},
            "op fused_adam was to be built with DeepSpeed and is not: there is no nvcc",
        ),
        (
            f"{YELLOW} [WARNING] {END} async_io requires the dev libaio .so object\n"
            + report(op("async_io", False, False)),
            {"ops": ["async_io"]},
            "async_io requires the dev libaio",
        ),
        (report(ADAM, torch="2.10.0"), {}, "its ops were built with torch 2.9 and torch is now 2.10.0"),
        (report(ADAM, nvcc="13.0"), {"has_gpu": True}, "nvcc is CUDA 13.0 and torch is built for 12.6"),
    ],
)
def test_what_is_wrong_is_said(text, options, words):
    (problem,) = judge(text, **options).problems
    assert words in problem


def test_other_toolkits_matter_to_gpus_alone():
    assert judge(report(ADAM, nvcc="13.0"), has_gpu=False).problems == ()


def test_ops_that_nobody_built_may_be_of_any_torch():
    assert judge(report(op("cpu_adam", False, True), torch="2.10.0")).problems == ()


def test_a_report_that_broke_off():
    (problem,) = judge("", "Traceback\nModuleNotFoundError: No module named 'deepspeed'\n").problems
    assert problem == "ds_report ended without a report: ModuleNotFoundError: No module named 'deepspeed'"


def test_missing_nvcc_is_no_version():
    text = report(ADAM, nvcc="").replace(
        "deepspeed wheel", f"nvcc version ............. {RED} [FAIL] nvcc missing {END}\nx"
    )
    assert parse(text).nvcc == ""


def test_the_filter_hands_on_report_and_verdict():
    found = ds_report(report(ADAM))
    assert found["ops"]["cpu_adam"] == {"installed": True, "compatible": True}
    assert found["problems"] == []


def test_ops_that_can_be_built_now_are_told_from_those_that_do_not_exist():
    assert ds_report(report(op("cpu_adam", False, True)), ops=["cpu_adam", "nonsense"])["unbuilt"] == ["cpu_adam"]
