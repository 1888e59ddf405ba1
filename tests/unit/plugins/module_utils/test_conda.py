# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What conda is asked for, by the names of conda-forge's builds, and what its explicit lists have."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.filter.conda_torch import conda_torch
from ansible_collections.torchfleet.cluster.plugins.filter.conda_unmet import conda_unmet
from ansible_collections.torchfleet.cluster.plugins.filter.stack_problems import stack_problems
from ansible_collections.torchfleet.cluster.plugins.filter.torch_build import torch_build
from ansible_collections.torchfleet.cluster.plugins.module_utils._conda import package_files

A100, V100 = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB"


def node(driver, *models, **more):
    return {"name": "a", "driver": driver, "gpus": [{"model": model} for model in models], **more}


def specs(stack, nodes=(), **more):
    build = torch_build({"torch_source": "conda", **stack}, list(nodes))
    return conda_torch(build, str(stack["torch"]), companions=["torchvision", "torchaudio"], **more)


@pytest.mark.parametrize(
    ("stack", "nodes", "wanted"),
    [
        ({"torch": "2.13.0"}, [node("580.95.05", A100)], ["pytorch=2.13.0=cuda130*", "torchvision=0.28.0=cuda130*", "torchaudio=2.11.0=cuda130*", "cuda-version=13.0"]),
        ({"torch": "2.13.0"}, [node("580.95.05", V100)], ["pytorch=2.13.0=cuda129*", "torchvision=0.28.0=cuda129*", "torchaudio=2.11.0=cuda129*", "cuda-version=12.9"]),
        ({"torch": "2.13.0", "cuda": "12.6"}, [node("580.95.05", A100)], ["pytorch=2.13.0=cuda129*", "torchvision=0.28.0=cuda129*", "torchaudio=2.11.0=cuda129*", "cuda-version=12.9"]),
        ({"torch": "2.7.1", "torch_cuda": "12.6"}, [node("560.28.03", A100)], ["pytorch=2.7.1=cuda126*", "torchvision=0.22.1=cuda126*", "torchaudio=2.7.1=cuda126*", "cuda-version=12.6"]),
        ({"torch": "2.13.0"}, [node(None)], ["pytorch=2.13.0=cpu*", "torchvision=0.28.0=cpu*", "torchaudio=2.11.0=cpu*"]),
        ({"torch": "2.13.0", "torch_cuda": "cpu"}, [node("580.95.05", A100)], ["pytorch=2.13.0=cpu*", "torchvision=0.28.0=cpu*", "torchaudio=2.11.0=cpu*"]),
    ],
)  # fmt: skip
def test_a_build_by_its_name(stack, nodes, wanted):
    assert specs(stack, nodes) == wanted


def test_the_blas_is_in_the_name_of_torch_alone():
    assert specs({"torch": "2.13.0"}, [node(None)], blas="generic")[:2] == [
        "pytorch=2.13.0=cpu_generic_*",
        "torchvision=0.28.0=cpu*",
    ]


def test_a_release_that_the_tables_do_not_know_is_asked_for_as_it_is():
    build = torch_build({"torch": "2.99.0", "torch_source": "conda"}, [])
    assert conda_torch(build, "2.99.0", cuda="13.4", companions=["torchvision"]) == [
        "pytorch=2.99.0=cuda134*",
        "torchvision=*=cuda134*",
        "cuda-version=13.4",
    ]
    assert conda_torch(build, "2.99.0") == ["pytorch=2.99.0"]


@pytest.mark.parametrize(
    ("stack", "nodes", "words"),
    [
        ({"torch": "2.14.0"}, [], "torch 2.14.0 is not known to be on conda-forge"),
        ({"torch": "2.13.0", "torch_cuda": "12.6"}, [], "torch 2.13.0 is not built for CUDA 12.6 (found CUDA 12.6, wanted one of 12.9, 13.0)"),
        ({"torch": "2.13.0", "torch_cuda": "13.0"}, [node("580.95.05", V100)], "torch 2.13.0 for CUDA 13.0 has no kernels for Tesla V100"),
        ({"torch": "2.13.0", "torch_source": "cnda"}, [], "torchfleet_stack.torch_source is 'cnda'"),
        ({"torch": "2.13.0", "python": "3.9"}, [node("580.95.05", A100)], "torch 2.13.0 has no package for Python 3.9"),
    ],
)  # fmt: skip
def test_what_conda_forge_has_not_is_refused_before_any_machine_is_asked(stack, nodes, words):
    assert words in stack_problems({"torch_source": "conda", **stack}, nodes)[0]["text"]


def test_what_it_has_and_the_index_has_not_is_taken():
    stack = {"torch": "2.12.1", "torch_cuda": "12.9"}
    assert stack_problems({**stack, "torch_source": "conda"}, [node("580.95.05", V100)]) == []
    assert stack_problems(stack, [node("580.95.05", V100)]) != []


def test_the_node_s_own_python_is_no_matter():
    assert stack_problems({"torch": "2.13.0", "torch_source": "conda"}, [node(None, python="3.9.2")]) == []


LISTED = (
    "# platform: linux-64\n@EXPLICIT\nhttps://c.example/linux-64/python-3.12.7-hc5c86c4_0_cpython.conda#00ff\n"
    "https://c.example/noarch/pip-24.2-pyh8b19718_1.tar.bz2#sha256:ab\n"
    "https://c.example/linux-64/pytorch-2.13.0-cuda129_mkl_py312_hf38594e_300.conda\n"
    "https://c.example/noarch/cuda-version-12.9-h4f385c5_3.conda\n"
)


def test_the_files_of_an_explicit_list():
    files = package_files(LISTED)
    assert len(files) == 4
    name = "python-3.12.7-hc5c86c4_0_cpython.conda"
    assert files[name] == (f"https://c.example/linux-64/{name}", "00ff")
    assert files["pip-24.2-pyh8b19718_1.tar.bz2"][1] == "ab"
    assert files["cuda-version-12.9-h4f385c5_3.conda"][1] == ""


@pytest.mark.parametrize(
    ("spec", "met"),
    [
        ("python=3.12", True),
        ("python=3.1", False),
        ("python", True),
        ("pip", True),
        ("pytorch=2.13.0=cuda129*", True),
        ("pytorch=2.13.0=cuda129_generic_*", False),
        ("pytorch=2.13.0=cpu*", False),
        ("cuda-version=12.9", True),
        ("numpy", False),
        ("numpy>=1.26", True),
        ("conda-forge::scipy", True),
    ],
)
def test_what_a_list_does_not_have(spec, met):
    assert conda_unmet(LISTED, [spec]) == ([] if met else [spec])
