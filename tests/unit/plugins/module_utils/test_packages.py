# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import string

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat import gcc_bounds
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_data import CUDA, TORCH
from ansible_collections.torchfleet.cluster.plugins.module_utils._packages import (
    PLATFORMS,
    PURPOSES,
    PackageError,
    compiler_for,
    epel_release,
    fabric_manager,
    packages_for,
    platform_of,
    vendor_driver,
    vendor_repository,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import parse_version

EVERY = pytest.mark.parametrize("key", list(PLATFORMS))
VALUES = {"driver": "580.95.05", "cuda": "12.8", "kernel": "6.1.0-40-amd64", "modules": "open"}


@EVERY
def test_platform_has_a_row_for_every_purpose_and_no_other(key):
    platform = PLATFORMS[key]
    assert set(platform.packages) == set(PURPOSES)
    assert set(platform.repositories) <= set(PURPOSES)
    assert platform.gccs and platform.pythons
    assert len(set(platform.gccs)) == len(platform.gccs)


@EVERY
@pytest.mark.parametrize("purpose", PURPOSES)
def test_packages_are_filled_in_to_the_last_brace(key, purpose):
    platform = PLATFORMS[key]
    if not platform.packages[purpose]:
        with pytest.raises(PackageError, match="vendor's repository"):
            packages_for(platform, purpose, **VALUES)
        return
    for name in packages_for(platform, purpose, **VALUES):
        assert name and set(name) <= set(string.ascii_lowercase + string.digits + "-+._=")


def test_only_the_red_hat_family_has_no_driver_of_its_own():
    without = {key for key, one in PLATFORMS.items() if not one.packages["driver_distribution"]}
    assert without == {"rhel8", "rhel9", "rhel10"}
    assert all(one.driver_branches for key, one in PLATFORMS.items() if key not in without)


@EVERY
def test_every_platform_has_a_python_that_a_torch_has_wheels_for(key):
    minors = {parse_version(minor).key for minor in PLATFORMS[key].pythons}
    assert any(
        parse_version(row.pythons[0]).key <= minor <= parse_version(row.pythons[1]).key
        for row in TORCH
        for minor in minors
    )


@pytest.mark.parametrize(
    "distribution,version,key",
    [
        ("Debian", "12", "debian12"),
        ("Debian", "12.11", "debian12"),
        ("Debian", "13", "debian13"),
        ("Ubuntu", "22.04", "ubuntu2204"),
        ("Ubuntu", 24.04, "ubuntu2404"),
        ("Rocky", "9.4", "rhel9"),
        ("AlmaLinux", "8.10", "rhel8"),
        ("RedHat", "10.0", "rhel10"),
        ("OracleLinux", "9", "rhel9"),
        ("CentOS", "9", "rhel9"),
        ("Ubuntu", "20.04", None),
        ("Ubuntu", "24.10", None),
        ("Debian", "10", None),
        ("Fedora", "42", None),
        ("Debian", "trixie/sid", None),
        ("", "", None),
    ],
)
def test_platform_of_a_nodes_facts(distribution, version, key):
    found = platform_of(distribution, version)
    assert (found.key if found else None) == key


@pytest.mark.parametrize(
    "key,purpose,values,names",
    [
        ("debian12", "cuda_toolkit", {"cuda": "12.8.1"}, ("cuda-toolkit-12-8",)),
        ("rhel9", "cuda_toolkit", {"cuda": 13.0}, ("cuda-toolkit-13-0",)),
        ("ubuntu2404", "cudnn", {"cuda": "12.8"}, ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12")),
        ("rhel9", "cudnn", {"cuda": "12.8"}, ("libcudnn9-cuda-12", "libcudnn9-devel-cuda-12")),
        ("debian13", "nccl", {}, ("libnccl2", "libnccl-dev")),
        ("rhel8", "python", {}, ("python3.12", "python3.12-pip", "python3.12-devel")),
        ("rhel9", "python", {"python": "3.11"}, ("python3.11", "python3.11-pip", "python3.11-devel")),
        ("rhel10", "python", {}, ("python3", "python3-pip", "python3-devel")),
        (
            "ubuntu2204",
            "driver_distribution",
            {"driver": "580", "modules": "open"},
            ("nvidia-headless-580-server-open", "nvidia-utils-580-server"),
        ),
        (
            "ubuntu2204",
            "driver_distribution",
            {"driver": "535", "modules": "proprietary"},
            ("nvidia-headless-535-server", "nvidia-utils-535-server"),
        ),
        ("debian11", "kernel_headers", {"kernel": "5.10.0-32-amd64"}, ("linux-headers-5.10.0-32-amd64",)),
        (
            "rhel9",
            "kernel_headers",
            {"kernel": "5.14.0-427.13.1.el9_4.x86_64"},
            ("kernel-devel=5.14.0-427.13.1.el9_4", "kernel-headers"),
        ),
        ("rhel9", "pdsh", {}, ("pdsh", "pdsh-rcmd-ssh")),
        ("debian12", "libaio", {}, ("libaio-dev",)),
        ("rhel10", "libaio", {}, ("libaio-devel",)),
    ],
)
def test_names(key, purpose, values, names):
    assert packages_for(PLATFORMS[key], purpose, **values) == names


@pytest.mark.parametrize(
    "key,purpose,values,names",
    [
        ("debian12", "cudnn", {"cudnn": "9.10.2.21"}, "libcudnn9-cuda-12=9.10.2.21-* libcudnn9-dev-cuda-12=9.10.2.21-*"),
        ("ubuntu2404", "cudnn", {"cudnn": "9.10"}, "libcudnn9-cuda-12=9.10.* libcudnn9-dev-cuda-12=9.10.*"),
        ("rhel9", "cudnn", {"cudnn": "9.8.0.87"}, "libcudnn9-cuda-12=9.8.0.87-* libcudnn9-devel-cuda-12=9.8.0.87-*"),
        ("rhel10", "cudnn", {"cudnn": "9.8.0.87", "cuda": "13.0"}, "libcudnn9-cuda-13=9.8.0.87-* libcudnn9-devel-cuda-13=9.8.0.87-*"),
        ("ubuntu2204", "cudnn", {"cudnn": "8.9.7.29"}, "libcudnn8=8.9.7.29-1+cuda12.* libcudnn8-dev=8.9.7.29-1+cuda12.*"),
        ("debian11", "cudnn", {"cudnn": "8.9.7.29", "cuda": "11.8"}, "libcudnn8=8.9.7.29-1+cuda11.* libcudnn8-dev=8.9.7.29-1+cuda11.*"),
        ("rhel8", "cudnn", {"cudnn": "8.9.7.29"}, "libcudnn8=8.9.7.29-1.cuda12.* libcudnn8-devel=8.9.7.29-1.cuda12.*"),
        ("debian13", "nccl", {"nccl": "2.27.5"}, "libnccl2=2.27.5-1+cuda12.* libnccl-dev=2.27.5-1+cuda12.*"),
        ("ubuntu2204", "nccl", {"nccl": "2.27.5-1+cuda12.4"}, "libnccl2=2.27.5-1+cuda12.4 libnccl-dev=2.27.5-1+cuda12.4"),
        ("rhel9", "nccl", {"nccl": "2.27.5", "cuda": "13.0"}, "libnccl=2.27.5-1+cuda13.* libnccl-devel=2.27.5-1+cuda13.*"),
        ("rhel9", "nccl", {"nccl": None, "cudnn": "9.8.0.87"}, "libnccl libnccl-devel"),
    ],
)  # fmt: skip
def test_a_version_of_cudnn_and_nccl_counts(key, purpose, values, names):
    assert packages_for(PLATFORMS[key], purpose, **{"cuda": "12.6", **values}) == tuple(names.split())


@pytest.mark.parametrize(
    "purpose,values,words",
    [
        ("cudnn", {"cudnn": "7.6.5"}, "cuDNN 7.6.5 is not known here, but 8 and 9 are"),
        ("cudnn", {"cudnn": "latest"}, "cuDNN latest is not known here"),
        ("cudnn", {"cudnn": "8.9"}, "cudnn 8.9 is not a full version: write it as 8.9.7.29"),
        ("nccl", {"nccl": "2.27"}, "nccl 2.27 is not a full version: write it as 2.27.5"),
        ("nccl", {"nccl": "2.27.5", "cuda": None}, "the packages of nccl 2.27.5 need a value for cuda"),
    ],
)
def test_a_version_that_says_too_little_is_refused(purpose, values, words):
    with pytest.raises(PackageError, match=words):
        packages_for(PLATFORMS["debian12"], purpose, **{"cuda": "12.6", **values})


@pytest.mark.parametrize("purpose,missing", [("cuda_toolkit", "cuda"), ("kernel_headers", "kernel")])
def test_a_missing_value_is_named(purpose, missing):
    with pytest.raises(PackageError, match=missing):
        packages_for(PLATFORMS["debian12"], purpose)


@EVERY
@pytest.mark.parametrize("machine,folder", [("x86_64", "x86_64"), ("aarch64", "sbsa")])
def test_vendor_repository(key, machine, folder):
    repository = vendor_repository(PLATFORMS[key], machine)
    assert repository.url.endswith(f"/{key}/{folder}")
    assert repository.setup.startswith(repository.url + "/")
    assert repository.setup.endswith(".deb" if repository.kind == "apt" else f"cuda-{key}.repo")


def test_epel_belongs_to_the_major():
    assert epel_release(PLATFORMS["rhel9"]).endswith("epel-release-latest-9.noarch.rpm")
    assert epel_release(PLATFORMS["debian12"]) == ""


@pytest.mark.parametrize(
    "key,branch,modules,packages,stream,version",
    [
        ("debian12", "580", "open", ("nvidia-open-580",), "", "580.*"),
        ("debian12", "580.95.05", "proprietary", ("cuda-drivers-580=580.95.05-*",), "", "580.95.05-*"),
        ("ubuntu2404", 595, "open", ("nvidia-open=595.*",), "", "595.*"),
        ("ubuntu2404", "595.71.05", "open", ("nvidia-open=595.71.05-*",), "", "595.71.05-*"),
        ("rhel9", "580", "open", ("nvidia-open",), "nvidia-driver:580-open", ""),
        ("rhel9", "580.95.05", "open", ("nvidia-open=580.95.05-*",), "nvidia-driver:580-open", "580.95.05-*"),
        ("rhel8", "535", "proprietary", ("cuda-drivers",), "nvidia-driver:535-dkms", ""),
        ("rhel10", "580", "open", ("nvidia-open=580.*",), "", "580.*"),
    ],
)
def test_vendor_driver_stays_on_its_branch_or_version(key, branch, modules, packages, stream, version):
    found = vendor_driver(PLATFORMS[key], branch, modules)
    assert (found.packages, found.stream, found.version) == (packages, stream, version)
    assert ("*nvidia*" in found.parts) == bool(version)


@pytest.mark.parametrize(
    "key,driver,package",
    [
        ("ubuntu2204", "535.183.01", "nvidia-fabricmanager-535=535.183.01-*"),
        ("debian12", "595.71.05", "nvidia-fabricmanager=595.71.05-*"),
        ("rhel9", "570.133.20", "nvidia-fabric-manager=570.133.20-*"),
        ("rhel10", "595.71.05", "nvidia-fabricmanager=595.71.05-*"),
    ],
)
def test_fabric_manager_matches_the_driver_to_the_last_digit(key, driver, package):
    assert fabric_manager(PLATFORMS[key], driver) == (package,)


@pytest.mark.parametrize("driver", ["580", None, "", "newest"])
def test_fabric_manager_wants_a_full_version(driver):
    with pytest.raises(PackageError, match="full version"):
        fabric_manager(PLATFORMS["debian12"], driver)


@pytest.mark.parametrize(
    "key,cuda,torch,major,cc",
    [
        ("debian12", "12.6", "2.9.1", 12, "/usr/bin/gcc-12"),
        ("debian12", "11.8", "2.7.1", 11, "/usr/bin/gcc-11"),
        ("debian13", "12.6", "2.9.1", 13, "/usr/bin/gcc-13"),
        ("debian11", "13.0", "2.13.0", None, None),
        ("ubuntu2404", "11.8", "2.7.1", 11, "/usr/bin/gcc-11"),
        ("rhel8", "12.6", "2.9.1", 13, "/opt/rh/gcc-toolset-13/root/usr/bin/gcc"),
        ("rhel9", "12.6", "2.9.1", 11, "/usr/bin/gcc"),
        ("rhel10", "12.6", "2.9.1", None, None),
        ("rhel10", "12.8", "2.9.1", 14, "/usr/bin/gcc"),
    ],
)
def test_compiler_within_the_bounds_and_the_systems_own_first(key, cuda, torch, major, cc):
    found = compiler_for(PLATFORMS[key], gcc_bounds(cuda, torch))
    assert (found.major if found else None, found.cc if found else None) == (major, cc)


@EVERY
def test_every_cuda_has_a_compiler_or_none_is_offered(key):
    for row in CUDA:
        bounds = gcc_bounds(row.release)
        found = compiler_for(PLATFORMS[key], bounds)
        assert found is None or bounds.allows(found.major)
        assert (found is None) == (not any(bounds.allows(major) for major in PLATFORMS[key].gccs))
