# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import (
    Refusal,
    TorchBuild,
    canonical,
    choose_torch_build,
    cluster_torch_build,
    companions,
    gcc_bounds,
    nearest_stack,
    newest_cuda_for_driver,
    resolve_stack,
    validate_stack,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_data import SETS

A100 = "NVIDIA A100-SXM4-80GB"
V100 = "Tesla V100-SXM2-32GB"
P40 = "Tesla P40"
RTX5090 = "NVIDIA GeForce RTX 5090"


def node(name, driver, *models, **more):
    return {"name": name, "driver": driver, "gpus": [{"model": model} for model in models], **more}


@pytest.mark.parametrize(
    "driver,cuda",
    [
        ("595.71.05", "13.2"),
        ("580.95.05", "13.0"),
        ("575.57.08", "12.9"),
        ("570.26", "12.8"),
        ("570.25", "12.6"),
        ("550.54.14", "12.4"),
        ("535", "12.2"),
        (580, "13.0"),
        ("535.183.01-0ubuntu1", "12.2"),
        ("1000.10", "13.2"),
        ("390.157", None),
        (None, None),
        ("", None),
    ],
)
def test_newest_cuda_for_driver(driver, cuda):
    assert newest_cuda_for_driver(driver) == cuda


@pytest.mark.parametrize(
    "cuda,torch,bounds",
    [
        ("12.6", None, (6, 14)),
        (12.8, None, (6, 15)),
        ("12.8.1", "2.9.1", (9, 15)),
        ("11.8", "2.0.1", (6, 12)),
        ("13.0", "2.13.0", (11, 16)),
        ("cpu", "2.13.0", (11, None)),
        (None, "2.5", (9, None)),
    ],
)
def test_gcc_bounds(cuda, torch, bounds):
    found = gcc_bounds(cuda, torch)
    assert (found.minimum, found.below) == bounds
    assert found.reasons


def test_gcc_bounds_of_an_unknown_cuda_are_none():
    assert gcc_bounds("14.7") is None


@pytest.mark.parametrize(
    "torch,cuda,wanted",
    [
        ("2.9.1", None, ("0.24.1", "2.9.1", "12.8", "2.27.5")),
        ("2.9", None, ("0.24.1", "2.9.1", "12.8", "2.27.5")),
        ("2.10", None, ("0.25.0", "2.10.0", "12.8", "2.27.5")),
        ("2.1", None, ("0.16.2", "2.1.2", "12.1", "2.18.1")),
        ("2.9.1+cu128", None, ("0.24.1", "2.9.1", "12.8", "2.27.5")),
        ("2.10.0", "13.0", ("0.25.0", "2.10.0", "13.0", "2.28.9")),
        ("2.0.1", "11.8", ("0.15.2", "2.0.2", "11.8", "")),
    ],
)
def test_companions(torch, cuda, wanted):
    found = companions(torch, cuda)
    assert (found.torchvision, found.torchaudio, found.cuda, found.nccl) == wanted


@pytest.mark.parametrize("torch", ["2.99", "2.9.0rc1", "2.1.0a0+32f93b1", "latest", None])
def test_companions_of_an_unknown_release_are_none(torch):
    assert companions(torch) is None


@pytest.mark.parametrize(
    "torch,cuda,driver,archs,python,version",
    [
        # the newest CUDA that the driver was made for
        ("2.9", None, "580.95.05", ["8.0"], "3.12", "2.9.1+cu130"),
        ("2.9", None, "570.133.20", ["8.0"], "3.12", "2.9.1+cu128"),
        ("2.9", None, "565.57.01", ["8.0"], "3.12", "2.9.1+cu126"),
        # a driver older than all of them: the oldest, through minor-version compatibility
        ("2.9", None, "535.183.01", ["8.0"], "3.12", "2.9.1+cu126"),
        ("2.7", None, "470.82.01", ["3.7"], "3.10", "2.7.1+cu118"),
        # cards that dropped out of newer builds
        ("2.9", None, "580.95.05", ["sm_70"], "3.12", "2.9.1+cu128"),
        ("2.11", None, "580.95.05", ["sm_70"], "3.12", "2.11.0+cu126"),
        ("2.9", None, "580.95.05", ["sm_61"], "3.12", "2.9.1+cu126"),
        ("2.7", None, "580.95.05", ["7.0"], "3.12", "2.7.1+cu126"),
        # cards that came late
        ("2.7", None, "570.133.20", ["sm_120"], "3.12", "2.7.1+cu128"),
        ("2.9", None, "580.95.05", [12.0, "12.1"], "3.12", "2.9.1+cu130"),
        # an old and a new card share one build
        ("2.10", None, "580.95.05", ["7.0", "12.0"], "3.12", "2.10.0+cu128"),
        # wishes
        ("2.9.1", "12.6", "580.95.05", ["8.0"], "3.12", "2.9.1+cu126"),
        ("2.9.1", 12.8, "580.95.05", ["8.0"], "3.12", "2.9.1+cu128"),
        ("2.9.1", "12.8.1", "580.95.05", ["8.0"], "3.12", "2.9.1+cu128"),
        ("2.9.1", "12", "580.95.05", ["8.0"], "3.12", "2.9.1+cu129"),
        ("2.9.1+cu126", None, "580.95.05", ["8.0"], "3.12", "2.9.1+cu126"),
        ("2.9.1", "cpu", "580.95.05", ["8.0"], "3.12", "2.9.1+cpu"),
        # no GPU and no driver; a GPU whose driver is still to come
        ("2.9.1", None, None, [], "3.12", "2.9.1+cpu"),
        ("2.9.1", None, None, ["9.0"], "3.12", "2.9.1+cu130"),
        # any release: the newest that fits
        (None, None, "580.95.05", ["9.0"], "3.10", "2.14.1+cu130"),
        (None, None, "580.95.05", ["7.0"], "3.12", "2.14.1+cu126"),
        (None, None, "535.183.01", ["8.0"], "3.8", "2.4.1+cu121"),
    ],
)
def test_chosen_build(torch, cuda, driver, archs, python, version):
    build = choose_torch_build(torch, cuda, driver, archs, python)
    assert isinstance(build, TorchBuild), str(build)
    assert build.version == version
    assert build.index_url.endswith("/" + build.tag)
    assert any(build.version in reason.choice for reason in build.reasons)


def test_build_says_what_was_left_out_and_why():
    build = choose_torch_build("2.9", None, "580.95.05", ["7.0"], "3.12")
    assert [str(one) for one in build.reasons[1:]] == [
        "left out: cu130 (torch 2.9.1 for CUDA 13.0 has no kernels for sm_70)"
    ]


def test_build_names_what_to_install():
    build = choose_torch_build("2.9", "12.8", "580", ["8.0"], "3.12")
    assert build.requirements == ("torch==2.9.1", "torchvision==0.24.1", "torchaudio==2.9.1")
    assert build.on_pypi
    assert (build.nccl, build.cudnn) == ("2.27.5", "9.10.2.21")
    assert not choose_torch_build("2.9", "13.0", "580", ["8.0"], "3.12").on_pypi


@pytest.mark.parametrize(
    "torch,cuda,driver,archs,python,words,nearest",
    [
        ("2.9.1", None, "580", ["9.0"], "3.8", ["no wheel for Python 3.8", "3.10 to 3.14"], "2.4.1+cu124"),
        ("2.9.1", "13.0", "550.54.14", ["9.0"], "3.12", ["driver 550.54.14 is too old"], "2.9.1+cu126"),
        ("2.9.1", "13.0", "580.95.05", ["6.1"], "3.12", ["no kernels for sm_61"], "2.9.1+cu126"),
        ("2.9.1", "12.6", "580.95.05", ["12.0"], "3.12", ["no kernels for sm_120"], "2.9.1+cu130"),
        ("2.9.1", "11.8", "580.95.05", ["8.0"], "3.12", ["not built for CUDA 11.8", "12.6, 12.8, 13.0"], "2.7.1+cu118"),
        ("2.11", None, "580.95.05", ["7.0", "12.0"], "3.12", ["cu126", "cu130", "sm_120", "sm_70"], "2.10.0+cu128"),
        ("2.15", None, "580.95.05", ["7.0"], "3.12", ["no kernels for sm_70"], "2.14.1+cu126"),
        ("2.99", None, "580.95.05", ["8.0"], "3.12", ["torch 2.99", "2.15.0"], "2.15.0+cu130"),
        ("2.9.0rc1", None, "580.95.05", ["8.0"], "3.12", ["torch 2.9.0rc1"], "2.15.0+cu130"),
        ("2.9.1+cu128", "12.6", "580", ["8.0"], "3.12", ["build for cu128", "12.6"], None),
        ("2.9.1", "fast", "580", ["8.0"], "3.12", ["'fast'", "12.8"], None),
        (2.1, None, "580", ["8.0"], "3.12", ["2.10", "quotes"], None),
        ("2.9.1", None, "580", ["8.0"], 3.1, ["3.10", "quotes"], None),
        ("2.9.1", None, "580", ["Ampere"], "3.12", ["Ampere", "8.6"], None),
        (None, None, "390.157", ["6.1"], "3.10", ["driver 390.157 is too old"], None),
    ],
)
def test_refused_build(torch, cuda, driver, archs, python, words, nearest):
    refusal = choose_torch_build(torch, cuda, driver, archs, python)
    assert isinstance(refusal, Refusal)
    for word in words:
        assert word in str(refusal)
    assert (refusal.nearest.version if refusal.nearest else None) == nearest


def test_refusal_for_an_old_c_library():
    refusal = choose_torch_build("2.9.1", None, "580", ["8.0"], "3.12", glibc="2.17")
    assert "glibc 2.28" in str(refusal)
    assert refusal.nearest.torch == "2.6.0"


# Bad input: the stack, the nodes, who is named, which variable, what the sentence must say, what comes nearest.
BAD = {
    "driver too old": (
        {"cuda": "12.8", "torch": "2.9.1"},
        [node("a", "470.82.01", A100), node("b", "580.95.05", A100)],
        ("a",),
        "torchfleet_stack.driver",
        ["driver 470.82.01", "570.26", "525.60.13"],
        "cuda 12.8",
    ),
    "driver too old for a card that nobody knows": (
        {"cuda": "12.8"},
        [node("a", "470.82.01", "Some Card Nobody Knows")],
        ("a",),
        "torchfleet_stack.driver",
        ["driver 470.82.01", "570.26"],
        "cuda 11.8",
    ),
    "planned driver too old": (
        {"driver": "470", "cuda": "12.8"},
        [node("a", "580.95.05", A100)],
        ("a",),
        "torchfleet_stack.driver",
        ["driver 470", "570.26"],
        "driver 570",
    ),
    "driver too old for torch": (
        {"torch": "2.9.1"},
        [node("a", "520.61.05", A100)],
        ("a",),
        "torchfleet_stack.driver",
        ["driver 520.61.05", "CUDA 12.6", "560.28.03"],
        "torch_cuda 11.8, torch 2.7.1",
    ),
    "driver gave the card up": (
        {"driver": "595", "torch": "2.9.1"},
        [node("a", "580.95.05", V100)],
        ("a",),
        "torchfleet_stack.driver",
        ["driver 595", "sm_70", "580"],
        "driver 580",
    ),
    "driver does not know the card": (
        {"driver": "550", "torch": "2.9.1"},
        [node("a", None, RTX5090)],
        ("a",),
        "torchfleet_stack.driver",
        ["driver 550", "sm_120", "570"],
        "driver 570",
    ),
    "cuda unknown": (
        {"cuda": "14.9"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.cuda",
        ["CUDA 14.9", "10.2 to 13.2"],
        "cuda 13.2",
    ),
    "cuda that was a driver's only": (
        {"cuda": 12.7},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.cuda",
        ["CUDA 12.7", "12.6"],
        "cuda 12.6",
    ),
    "cuda no version": ({"cuda": "newest"}, [], (), "torchfleet_stack.cuda", ["'newest'", "12.8"], ""),
    "cuda dropped the card": (
        {"cuda": "13.0", "torch": "2.9.1"},
        [node("a", "580.95.05", P40)],
        ("a",),
        "torchfleet_stack.cuda",
        ["CUDA 13.0", "Tesla P40 (sm_61)", "12.9"],
        "cuda 12.6",
    ),
    "cuda too old for the card": (
        {"cuda": "12.6", "torch": "2.9.1"},
        [node("a", "580.95.05", RTX5090)],
        ("a",),
        "torchfleet_stack.cuda",
        ["CUDA 12.6", "sm_120", "12.8"],
        "cuda 12.8",
    ),
    "torch without a wheel for that Python": (
        {"torch": "2.9.1"},
        [node("a", "580.95.05", A100, python="3.9.2")],
        ("a",),
        "torchfleet_stack.python",
        ["torch 2.9.1", "Python 3.9", "3.10 to 3.14", "2.8.0"],
        "torch 2.8.0",
    ),
    "planned Python without a wheel": (
        {"torch": "2.9.1", "python": "3.15"},
        [node("a", "580.95.05", A100, python="3.12")],
        ("a",),
        "torchfleet_stack.python",
        ["Python 3.15", "3.10 to 3.14"],
        "python 3.14",
    ),
    "gcc too new": (
        {"cuda": "12.6", "torch": "2.9.1", "gcc": "14"},
        [node("a", "580.95.05", A100)],
        ("a",),
        "torchfleet_stack.gcc",
        ["GCC 14 is too new", "9 to 13"],
        "gcc 13",
    ),
    "the node's gcc too new": (
        {"cuda": "11.8", "torch": "2.7.1"},
        [node("a", "580.95.05", A100, gcc="gcc (Debian 12.2.0-14) 12.2.0")],
        ("a",),
        "torchfleet_stack.gcc",
        ["GCC 12.2.0 is too new", "9 to 11"],
        "gcc 11",
    ),
    "gcc too old": (
        {"cuda": "13.0", "torch": "2.13.0", "gcc": 9},
        [node("a", "580.95.05", A100)],
        ("a",),
        "torchfleet_stack.gcc",
        ["GCC 9 is too old", "11 to 15"],
        "gcc 11",
    ),
    "gcc checked with no node at hand": (
        {"cuda": "12.6", "gcc": "15"},
        [],
        (),
        "torchfleet_stack.gcc",
        ["GCC 15 is too new"],
        "gcc 13",
    ),
    "driver and toolkit of the stack, with no node at hand": (
        {"driver": "470", "cuda": "13.0"},
        [],
        (),
        "torchfleet_stack.driver",
        ["driver 470 is too old for CUDA 13.0"],
        "driver 580",
    ),
    "python and torch of the stack, with no node at hand": (
        {"torch": "2.5.1", "python": "3.14"},
        [],
        (),
        "torchfleet_stack.python",
        ["torch 2.5.1 has no wheel for Python 3.14"],
        "torch 2.5.1, python 3.13",
    ),
    "gcc for torch alone": (
        {"torch": "2.13.0", "gcc": "7"},
        [],
        (),
        "torchfleet_stack.gcc",
        ["GCC 7 is too old for torch 2.13.0"],
        "torch 2.13.0",
    ),
    "a compiler that is no GCC": (
        {"gcc": "clang-17"},
        [],
        (),
        "torchfleet_stack.gcc",
        ["torchfleet_stack.gcc is 'clang-17'", "a GCC major (13)"],
        "",
    ),
    "library without a toolkit": (
        {"torch": "2.13.0", "nccl": "2.27.5"},
        [],
        (),
        "torchfleet_stack.cuda",
        ["nccl 2.27.5 is asked for without a CUDA toolkit", "leave torchfleet_stack.nccl out"],
        "",
    ),
    "library by too few numbers": (
        {"cuda": "12.6", "nccl": "2.27"},
        [],
        (),
        "torchfleet_stack.nccl",
        ["torchfleet_stack.nccl is '2.27'", "an NCCL version (2.27.5)"],
        "",
    ),
    "label of another CUDA": (
        {"torch": "2.13.0+cu126", "torch_cuda": "13.0"},
        [],
        (),
        "torchfleet_stack.torch",
        ["torch 2.13.0+cu126 is the build for cu126, and torchfleet_stack.torch_cuda is 13.0", "without +cu126"],
        "",
    ),
    "label of pip's with conda": (
        {"torch": "2.7.1+cu126", "torch_source": "conda"},
        [],
        (),
        "torchfleet_stack.torch",
        ["is a build of pip's indexes", "and torchfleet_stack.torch_cuda"],
        "",
    ),
    "label of the CPU": (
        {"torch": "2.13.0+cpu", "torch_cuda": "12.6"},
        [],
        (),
        "torchfleet_stack.torch",
        ["is the build for cpu"],
        "",
    ),
    "label of another toolkit": (
        {"torch": "2.13.0+cu126", "cuda": "13.0"},
        [],
        (),
        "torchfleet_stack.cuda",
        ["cannot build extensions for a torch that is built for CUDA 12.6"],
        "",
    ),
    "label of another maker": (
        {"torch": "2.13.0+rocm6.4"},
        [],
        (),
        "torchfleet_stack.torch",
        ["is a build for neither CUDA nor the CPU", "without +rocm6.4"],
        "",
    ),
    "a zero that YAML may have dropped, with no table to ask": (
        {"accelerate": 1.1},
        [],
        (),
        "torchfleet_stack.accelerate",
        ["YAML reads 1.1 and 1.10 alike", "write torchfleet_stack.accelerate in quotes"],
        "",
    ),
    "torch between two releases": (
        {"torch": "2.8.1"},
        [],
        (),
        "torchfleet_stack.torch",
        ["torch 2.8.1 is not a release known here"],
        "torch 2.8.0",
    ),
    "torch unknown": (
        {"torch": "2.99"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.torch",
        ["torch 2.99", "2.15.0", "allow_unlisted"],
        "torch 2.15.0",
    ),
    "torch unknown, and the leave for it refused in words": (
        {"torch": "2.99", "allow_unlisted": "false"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.torch",
        ["torch 2.99", "2.15.0", "allow_unlisted"],
        "torch 2.15.0",
    ),
    "torch not built for that cuda": (
        {"torch": "2.9.1", "torch_cuda": "12.1"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.torch_cuda",
        ["torch 2.9.1", "CUDA 12.1", "12.6, 12.8, 13.0"],
        "torch_cuda 12.6",
    ),
    "torch of another major than the toolkit": (
        {"torch": "2.9.1", "cuda": "12.8", "torch_cuda": "13.0"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.cuda",
        ["CUDA 12.8", "CUDA 13.0"],
        "torch 2.9.1",
    ),
    "no build for all nodes together": (
        {"torch": "2.11"},
        [node("a", "580.95.05", V100), node("b", "580.95.05", RTX5090)],
        (),
        "torchfleet_stack.torch",
        ["every node", "12.6 fails on b", "12.8 fails on a"],
        "torch 2.10.0",
    ),
    "old C library": (
        {"torch": "2.9.1"},
        [node("a", "580.95.05", A100, glibc="2.17")],
        ("a",),
        "torchfleet_stack.torch",
        ["glibc 2.17", "2.28"],
        "torch 2.6.0",
    ),
    "torchvision of another torch": (
        {"torch": "2.9.1", "torchvision": "0.23.0"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.torchvision",
        ["torchvision 0.23.0", "0.24.1"],
        "torch 2.9.1",
    ),
    "torch that lost its zero": (
        {"torch": 2.1},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.torch",
        ["2.1", "2.10", "quotes"],
        "torch 2.10",
    ),
    "Python that lost its zero": (
        {"torch": "2.9.1", "python": 3.1},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.python",
        ["3.1", "3.10", "quotes"],
        "python 3.10",
    ),
    "misspelt key": (
        {"torch": "2.9.1", "pyhton": "3.12"},
        [node("a", "580.95.05", A100)],
        (),
        "torchfleet_stack.pyhton",
        ["pyhton", "did you mean python?"],
        "torch 2.9.1",
    ),
    "unknown set": ("torch-2.10-cu182", [], (), "torchfleet_stack.set", ["torch-2.10-cu182", "torch-2.10-cu128"], ""),
    "not a mapping": (["2.9.1"], [], (), "torchfleet_stack", ["mapping"], ""),
}


@pytest.mark.parametrize("stack,nodes,hosts,variable,words,nearest", list(BAD.values()), ids=list(BAD))
def test_impossible_stack_is_named_with_host_figures_and_way_out(stack, nodes, hosts, variable, words, nearest):
    problems = validate_stack(stack, nodes)
    assert len(problems) == 1, [str(one) for one in problems]
    (problem,) = problems
    sentence = str(problem)
    assert problem.hosts == hosts
    assert problem.variable == variable
    assert sentence.startswith(f"{hosts[0]}: " if hosts and hosts[0] else problem.what)
    for word in [*words, problem.found, problem.wanted]:
        assert word in sentence
    assert nearest in problem.nearest
    assert ("Nearest" in sentence) is bool(problem.nearest)


@pytest.mark.parametrize(
    "stack,nodes", [entry[:2] for name, entry in BAD.items() if entry[5]], ids=[name for name in BAD if BAD[name][5]]
)
def test_the_nearest_stack_is_possible_itself(stack, nodes):
    assert validate_stack(nearest_stack(stack, nodes), nodes) == []


@pytest.mark.parametrize(
    "stack,nodes",
    [
        (None, [node("a", None)]),
        ({}, [node("a", "580.95.05", A100)]),
        ("torch-2.10-cu128", [node("a", "470.82.01", A100)]),  # brings a driver of its own
        ({"set": "torch-2.10-cu128", "gcc": None}, [node("a", None, A100)]),
        ({"torch": "2.9.1", "cuda": "12.8"}, [node("a", "535.183.01", A100)]),  # minor-version compatibility
        ({"torch": "2.9.1", "cuda": "12.4"}, [node("a", "580.95.05", A100)]),  # a build of the same major
        ({"torch": "2.9.1", "cuda": 12.8, "python": "3.10"}, [node("a", "580.95.05", V100)]),
        ({"torch": 2.9, "cuda": "12.6", "gcc": 12}, [node("a", "580.95.05", P40), node("b", "580.95.05", A100)]),
        ({"torch": "2.9.1", "cuda": "cpu"}, [node("a", None), node("b", None)]),
        ({"torch": "2.9.1"}, [node("a", None), node("b", "580.95.05", A100)]),
        ({"torch": "2.99", "allow_unlisted": True}, [node("a", "580.95.05", A100)]),
        ({"torch": "2.99", "allow_unlisted": "yes"}, [node("a", "580.95.05", A100)]),
        ({"torch": "2.9.1", "torchvision": "0.24", "torchaudio": "2.9.1+cu128"}, []),
        ({"torch": "2.9.1", "cuda": "12.8"}, [node("a", "580.95.05", "Some Card Nobody Knows")]),
        ({"torch": "2.9.1", "cuda": "12.8"}, [node("a", "580.95.05", A100), node("b", "390.157")]),  # b has no GPU
        ({"torch": "2.9.1", "cuda": "12.4", "torch_cuda": "12.8"}, [node("a", "580.95.05", A100)]),
    ],
)
def test_possible_stack_has_no_problems(stack, nodes):
    assert [str(one) for one in validate_stack(stack, nodes)] == []


def test_one_problem_on_many_nodes_is_told_once():
    nodes = [node(f"gpu-{number:02d}", "470.82.01", A100) for number in range(64)]
    problems = validate_stack({"cuda": "12.8"}, nodes)
    assert len(problems) == 1
    assert len(problems[0].hosts) == 64
    assert "gpu-07 and 56 more:" in str(problems[0])


def test_different_nodes_are_told_apart():
    nodes = [node("a", "470.82.01", A100), node("b", "460.32.03", A100)]
    assert {one.hosts for one in validate_stack({"cuda": "12.8"}, nodes)} == {("a",), ("b",)}


def test_nothing_nearest_is_said_where_nothing_fits():
    nodes = [node("a", "580.95.05", V100, glibc="2.5")]
    problems = validate_stack({"torch": "2.9.1"}, nodes)
    assert problems and all(one.nearest == "" for one in problems)


@pytest.mark.parametrize(
    "stack",
    [
        {"torch": "2.13.0+cu126", "torch_cuda": "12.6"},
        {"torch": "2.13.0+cu126", "torch_cuda": "cu126"},
        {"torch": "2.13.0+cu126", "torch_cuda": "12"},
        {"torch": "2.13.0+cu126", "cuda": "12.8"},
        {"torch": "2.13.0+cpu", "torch_cuda": "CPU"},
        {"accelerate": 1.15, "deepspeed": "0.10"},
        {"cuda": "12.6", "nccl": "2.27.5", "cudnn": "9.10"},
        {"gcc": "gcc-12"},
        *SETS,
    ],
)
def test_what_goes_together_passes_with_no_node_at_hand(stack):
    assert validate_stack(stack) == []


@pytest.mark.parametrize(
    ("key", "values", "plain"),
    [
        ("cuda", ["12.8", 12.8, "12.8.1", "cu128", "cuda-12-8", "v12.8"], "12.8"),
        ("cuda", ["cpu", "CPU"], "cpu"),
        ("torch_cuda", [12, "12"], "12"),
        ("python", ["3.11", "python3.11", "cp311", 3.11], "3.11"),
        ("gcc", [11, "gcc-11", "g++-11"], "11"),
        ("driver", [580, "580-server", "R580"], "580"),
        ("torch", ["v2.13.0+cu126", " 2.13.0+cu126 "], "2.13.0+cu126"),
        ("nccl", ["nonsense"], "nonsense"),
        ("cudnn", [None], None),
    ],
)
def test_a_version_is_handed_on_in_one_spelling(key, values, plain):
    assert [canonical({key: value}) for value in values] == [{key: plain}] * len(values)


def test_set_is_filled_in_and_overridden():
    filled, problems = resolve_stack({"set": "torch-2.10-cu128", "python": "3.11", "gcc": None})
    assert problems == []
    assert (filled["torch"], filled["python"], filled["gcc"]) == ("2.10.0", "3.11", None)


def test_nearest_names_the_set_it_equals():
    near = nearest_stack({"torch": "2.11"}, [node("a", "580.95.05", V100), node("b", "580.95.05", RTX5090)])
    assert near["set"] == "torch-2.10-cu128"


def test_nearest_keeps_what_the_user_said_otherwise():
    near = nearest_stack({"cuda": "12.8", "torch": "2.9.1", "gcc": "15", "deepspeed": "0.18.1"}, [])
    assert near == {"cuda": "12.8", "torch": "2.9.1", "gcc": "14", "deepspeed": "0.18.1"}


@pytest.mark.parametrize(
    "stack,nodes,version",
    [
        ({"torch": "2.9"}, [node("a", "580.95.05", A100), node("b", "580.95.05", V100)], "2.9.1+cu128"),
        ({"torch": "2.9"}, [node("a", "580.95.05", A100), node("b", "535.183.01", A100)], "2.9.1+cu126"),
        ({"torch": "2.9", "cuda": "12.6"}, [node("a", "580.95.05", A100)], "2.9.1+cu126"),
        ({"torch": "2.9", "driver": "580"}, [node("a", None, A100)], "2.9.1+cu130"),
        ({}, [node("a", None), node("b", None)], "2.15.0+cpu"),
        ("torch-2.7-cu118", [node("a", None, A100)], "2.7.1+cu118"),
        ({"torch": "2.99"}, [node("a", None)], None),
        ({"torch": 2.1}, [node("a", None)], None),
    ],
)
def test_one_build_for_the_cluster(stack, nodes, version):
    verdict = cluster_torch_build(stack, nodes)
    assert (verdict.version if isinstance(verdict, TorchBuild) else None) == version


@pytest.mark.parametrize(
    ("stack", "variable", "found"),
    [
        (3, "torchfleet_stack", "3"),
        ({"set": ["torch-2.13-cpu"]}, "torchfleet_stack.set", "torch-2.13-cpu"),
        ({"torch": "2.13.0", "allow_unlisted": "maybe"}, "torchfleet_stack.allow_unlisted", "maybe"),
    ],
)
def test_values_of_another_kind_are_refused(stack, variable, found):
    (problem, *_others) = validate_stack(stack)
    assert problem.variable == variable
    assert found in str(problem)
