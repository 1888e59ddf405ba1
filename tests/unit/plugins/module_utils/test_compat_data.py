# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables hold together: no gaps, nothing out of order, every entry has a source."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import gpu_capability, validate_stack
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_data import (
    ARCHITECTURES,
    BUILD_LIBRARIES,
    CUDA,
    FAMILIES,
    KERNELS,
    SETS,
    STACK_KEYS,
    TORCH,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_torch import (
    architecture_of,
    kernels_of,
    runs_on,
    torch_release,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import parse_capability, parse_version

SHARED = Path(__file__).resolve().parents[4].parent / "shared" / "knowledge" / "compat"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the figures to compare with are not part of the collection"
)


def keys(texts):
    return [parse_version(text).key for text in texts]


@pytest.mark.parametrize("table", [CUDA, TORCH, KERNELS, ARCHITECTURES])
def test_every_entry_has_a_source(table):
    assert [row for row in table if not row.source] == []


@pytest.mark.parametrize(
    "releases",
    [[row.release for row in CUDA], [row.driver for row in CUDA], [row.version for row in TORCH]],
    ids=["cuda", "driver", "torch"],
)
def test_tables_rise_strictly(releases):
    ordered = keys(releases)
    assert all(one < other for one, other in zip(ordered, ordered[1:]))


@pytest.mark.parametrize("column", ["torchvision", "triton", "cudnn", "glibc", "gcc_min"])
def test_companions_never_fall_behind(column):
    values = [str(getattr(row, column)) for row in TORCH if getattr(row, column)]
    assert keys(values) == sorted(keys(values))


def test_compilers_bounds_are_ranges_that_never_shrink_upwards():
    assert all(row.gcc_min < row.gcc_below for row in CUDA)
    assert [row.gcc_below for row in CUDA] == sorted(row.gcc_below for row in CUDA)


def test_compatible_drivers_are_one_for_each_major_and_not_above_the_newest_releases_own():
    for major in ("11", "12", "13"):
        rows = [row for row in CUDA if row.release.startswith(major + ".")]
        assert len({row.compatible_driver for row in rows}) == 1
        assert keys([rows[0].compatible_driver])[0] <= keys([rows[-1].driver])[0]


@pytest.mark.parametrize("row", TORCH, ids=lambda row: row.version)
def test_every_torch_build_has_a_cuda_and_kernels(row):
    assert row.pypi_cuda in row.builds
    for cuda in row.builds + row.more_builds:
        assert cuda in {one.release for one in CUDA}
        assert kernels_of(row.version, cuda), cuda


@pytest.mark.parametrize("row", TORCH, ids=lambda row: row.version)
def test_no_build_has_kernels_that_its_cuda_cannot_compile(row):
    for cuda in row.builds:
        for arch in kernels_of(row.version, cuda):
            known = architecture_of(parse_capability(arch))
            assert keys([known.cuda_first])[0] <= keys([cuda])[0]
            assert known.cuda_last is None or keys([cuda])[0] <= keys([known.cuda_last])[0]


def test_no_build_has_two_rows_of_kernels():
    for row in TORCH:
        minor = parse_version(parse_version(row.version).minor)
        for cuda in row.builds:
            rows = [one for one in KERNELS if one.cuda == cuda]
            hits = [one for one in rows if parse_version(one.first) <= minor <= parse_version(one.last)]
            assert len(hits) == 1, (row.version, cuda)


def test_libraries_are_listed_for_builds_that_exist():
    for minor, cuda in BUILD_LIBRARIES:
        row = torch_release(minor)
        assert cuda in row.builds and cuda != row.pypi_cuda


def test_architectures_rise_and_their_ranges_are_ranges():
    order = [parse_capability(row.capability) for row in ARCHITECTURES]
    assert order == sorted(order)
    for row in ARCHITECTURES:
        assert row.driver_last is None or row.driver_first <= row.driver_last
        assert row.cuda_last is None or keys([row.cuda_first])[0] <= keys([row.cuda_last])[0]
        # Toolkits and drivers leave a family together: CUDA 13 came with R580, the last one for Volta and older.
        assert row.driver_last is None or row.cuda_last is not None


def test_families_are_known_capabilities():
    assert all(architecture_of(parse_capability(capability)) for capability in FAMILIES.values())


@pytest.mark.parametrize("name", list(SETS))
def test_every_set_is_possible(name):
    values = SETS[name]
    assert set(values) <= set(STACK_KEYS)
    a100 = {"name": "a", "gpus": [{"model": "NVIDIA A100-SXM4-80GB"}], "glibc": "2.31"}
    assert [str(one) for one in validate_stack(name, [a100])] == []
    assert values["torch"].startswith(name.split("-")[1] + ".")
    assert name.endswith("cpu") or name.endswith("cu" + values["cuda"].replace(".", ""))


@pytest.mark.parametrize(
    "model,capability",
    [
        ("NVIDIA A100-SXM4-40GB", (8, 0)),
        ("NVIDIA A100 80GB PCIe", (8, 0)),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0)),
        ("GRID A100D-10C", (8, 0)),
        ("NVIDIA A800-SXM4-80GB", (8, 0)),
        ("NVIDIA A30", (8, 0)),
        ("NVIDIA A10G", (8, 6)),
        ("NVIDIA A40", (8, 6)),
        ("NVIDIA A2", (8, 6)),
        ("NVIDIA RTX A6000", (8, 6)),
        ("NVIDIA RTX A5000", (8, 6)),
        ("NVIDIA GeForce RTX 3090 Ti", (8, 6)),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", (8, 6)),
        ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
        ("NVIDIA RTX 4000 SFF Ada Generation", (8, 9)),
        ("NVIDIA L4", (8, 9)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA H100 PCIe", (9, 0)),
        ("NVIDIA H200", (9, 0)),
        ("NVIDIA GH200 480GB", (9, 0)),
        ("NVIDIA H20", (9, 0)),
        ("NVIDIA B200", (10, 0)),
        ("NVIDIA GB200", (10, 0)),
        ("NVIDIA GB300", (10, 3)),
        ("NVIDIA B300 SXM6 AC", (10, 3)),
        ("NVIDIA GB10", (12, 1)),
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0)),
        ("Tesla V100-SXM2-32GB", (7, 0)),
        ("Tesla V100S-PCIE-32GB", (7, 0)),
        ("NVIDIA TITAN V", (7, 0)),
        ("Tesla T4", (7, 5)),
        ("Quadro RTX 6000", (7, 5)),
        ("NVIDIA TITAN RTX", (7, 5)),
        ("GeForce RTX 2080 Ti", (7, 5)),
        ("NVIDIA GeForce GTX 1660 SUPER", (7, 5)),
        ("NVIDIA T1000 8GB", (7, 5)),
        ("Tesla P100-PCIE-16GB", (6, 0)),
        ("Tesla P40", (6, 1)),
        ("Quadro P4000", (6, 1)),
        ("NVIDIA GeForce GTX 1080 Ti", (6, 1)),
        ("NVIDIA TITAN Xp", (6, 1)),
        ("NVIDIA TITAN X (Pascal)", (6, 1)),
        ("GeForce GTX TITAN X", (5, 2)),
        ("Tesla M40 24GB", (5, 2)),
        ("Tesla M60", (5, 2)),
        ("Tesla M10", (5, 0)),
        ("Tesla K80", (3, 7)),
        ("Tesla K40m", (3, 5)),
        ("AMD Instinct MI250X", None),
        ("", None),
    ],
)
def test_capability_by_model(model, capability):
    assert gpu_capability(model) == capability


@pytest.mark.parametrize(
    "known,capability",
    [
        ({"model": "NVIDIA A40", "compute_capability": "8.0"}, (8, 0)),
        ({"model": "Some New Card", "architecture": "Hopper"}, (9, 0)),
        ({"model": "Graphics Device", "architecture": "Ampere"}, (8, 0)),
        ({"architecture": "Ada Lovelace"}, (8, 9)),
        ({"model": "Some New Card", "architecture": "Rubin"}, None),
    ],
)
def test_what_is_reported_counts_before_name_and_family(known, capability):
    assert gpu_capability(**known) == capability


@pytest.mark.parametrize(
    "archs,capability,runs",
    [
        (["6.0", "7.0"], (6, 1), True),
        (["6.1"], (6, 0), False),
        (["8.0", "8.6"], (8, 9), True),
        (["8.6"], (8, 0), False),
        (["9.0"], (10, 0), False),
        (["9.0", "12.0+PTX"], (12, 1), True),
        (["9.0+PTX"], (12, 0), True),
        (["12.0+PTX"], (11, 0), False),
    ],
)
def test_kernels_run_on_newer_cards_of_their_major_and_ptx_on_all_newer(archs, capability, runs):
    assert runs_on(archs, capability) is runs


def read(name):
    with (SHARED / name).open(encoding="utf-8") as lines:
        return [row for row in csv.DictReader(lines, delimiter="\t") if not row[next(iter(row))].startswith("#")]


@needs_shared
def test_drivers_agree_with_the_collected_figures():
    ours = {row.release: row for row in CUDA}
    compared = 0
    for row in read("cuda_driver.tsv"):
        text = row["cuda_release"]
        release = ".".join(text.split()[0].split(".")[:2])
        first = text.endswith("GA") or text in ("11.0.3 Update 1", "10.2.89", "11.4.0 GA")
        if release in ours and first and release != "11.0":
            assert ours[release].driver == row["toolkit_driver_linux_x86_64_min"], text
            compared += 1
        if release in ours and row["minor_version_compat_min"] != "-":
            assert ours[release].compatible_driver.startswith(row["minor_version_compat_min"]), text
    assert compared >= 15


@needs_shared
def test_compilers_agree_with_the_collected_figures():
    ours = {row.release: row for row in CUDA}
    for row in read("cuda_gcc.tsv"):
        if row["cuda"] == "12.7":  # a driver's version, never a toolkit's
            continue
        bounds = (ours[row["cuda"]].gcc_min, ours[row["cuda"]].gcc_below)
        assert bounds == (int(float(row["gcc_min"])), int(row["gcc_upper_exclusive"].lstrip("<"))), row["cuda"]


@needs_shared
def test_torch_agrees_with_the_collected_figures():
    for row in read("torch.tsv"):
        ours = torch_release(row["torch"])
        assert (ours.version, ours.torchvision, ours.torchaudio, ours.pypi_cuda) == (
            row["torch"],
            row["torchvision"],
            row["torchaudio"],
            row["default_pypi_cuda"],
        )
        for column in ("nccl", "cudnn", "triton"):
            if row[column][0].isdigit():
                assert getattr(ours, column) == row[column], (row["torch"], column)
        pythons = row["python_wheels_linux_x86_64"].split()
        if pythons[0].startswith("3"):
            assert ours.pythons == (pythons[0], pythons[-1])
