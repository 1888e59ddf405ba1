# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Checks of the software that processes really load."""

from __future__ import annotations

from typing import Iterator, List

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import Check, Cluster, Hit, get, listed
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_torch import cuda_release, driver_serves
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import parse_driver

PROVISION = "run ansible-playbook playbooks/provision.yml"
_ALIKE = "all ranks of a run have to load the same; see torch.distributed's notes on collectives"


def same(
    id: str,
    title: str,
    reads: str,
    severity: str,
    remedy: str,
    how: str = "whole",
    source: str = _ALIKE,
    where: str = "",
) -> Check:
    return Check(
        id=id,
        area="software",
        title=title,
        reads=reads,
        rule={"same": how},
        severity=severity,
        sentence="{nodes} {has} " + title + " {value}, {others} {others_have} {usual}",
        remedy=remedy,
        source=source,
        where=where,
    )


def interpreter(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        python = get(node, "runtime.python", {})
        if python and python.get("status") != "ok":
            yield Hit((str(node["name"]),), {"value": python.get("problem") or python.get("status")})


def torch_loads(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        torch, python = get(node, "runtime.torch", {}), get(node, "runtime.python.path", "")
        status = torch.get("status")
        if status == "not_installed":
            yield Hit((str(node["name"]),), {"python": python}, sentence="{python} of {nodes} has no torch")
        elif status not in (None, "ok", "skipped", "no_interpreter"):
            yield Hit((str(node["name"]),), {"python": python, "value": torch.get("problem") or status})


def torch_sees_gpus(cluster: Cluster) -> Iterator[Hit]:
    """Driver against CUDA against architecture against the wheel, as CUDA itself judges it."""
    for node in cluster.nodes:
        torch = get(node, "runtime.torch", {})
        if not get(node, "gpu.gpus") or torch.get("status") != "ok":
            continue
        if torch.get("cuda_available") is False or torch.get("cuda_reason"):
            words = str(torch.get("cuda_message") or torch.get("cuda_reason"))
            remedy = _CUDA_REMEDIES.get(str(torch.get("cuda_reason")), "")
            yield Hit((str(node["name"]),), {"value": words, "cuda": torch.get("cuda")}, remedy=remedy)


_CUDA_REMEDIES = {
    "cpu_build": "pytorch_extra_index_urls: [https://download.pytorch.org/whl/cu128], then "
    + PROVISION
    + " -t pytorch",
    "driver_too_old": "install a newer driver, or a torch built for an older CUDA: set pytorch_version",
    "library_mismatch": "reboot: the driver was upgraded under the running kernel module",
    "unsupported_gpu": "set pytorch_version to a release whose wheels have code for these GPUs",
    "hidden": "take CUDA_VISIBLE_DEVICES out of the environment of that node",
}


def driver_against_cuda(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        driver = parse_driver(get(node, "gpu.driver_version"))
        cuda = cuda_release(get(node, "runtime.torch.cuda"))
        if driver and cuda and get(node, "runtime.torch.cuda_available") is None and not driver_serves(driver, cuda):
            yield Hit((str(node["name"]),), {"driver": driver.text, "value": get(node, "runtime.torch.cuda")})


def shadowed(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for name, library in (get(node, "runtime.libraries") or {}).items():
            values = {"library": name, "value": library.get("path"), "by": library.get("shadowed_by"), "ahead": ""}
            if library.get("shadowed_by"):
                yield Hit((str(node["name"]),), values)
            elif library.get("ahead"):
                yield Hit(
                    (str(node["name"]),),
                    {**values, "value": listed([str(path) for path in library["ahead"]], 2)},
                    sentence="{nodes}: LD_LIBRARY_PATH leads to {value}; torch takes its own {library}, others do not",
                    severity="warn",
                )


def same_interpreters(cluster: Cluster) -> Iterator[Hit]:
    """A package that some nodes have and others lack."""
    for package in ("accelerate", "deepspeed", "colossalai"):
        with_it: List[str] = []
        without: List[str] = []
        for node in cluster.nodes:
            packages = get(node, "runtime.packages")
            if packages and get(node, "runtime.python.status") == "ok":
                (with_it if packages.get(package) else without).append(str(node["name"]))
        if with_it and without:
            yield Hit(tuple(without), {"package": package, "others": listed(with_it, 3)})


def _packages() -> List[Check]:
    checks = []
    for name, severity in (
        ("torch", "fail"),
        ("torchvision", "warn"),
        ("accelerate", "fail"),
        ("deepspeed", "fail"),
        ("colossalai", "fail"),
        ("transformers", "warn"),
        ("triton", "warn"),
        ("numpy", "warn"),
    ):
        wanted = "pytorch_version: {release}" if name == "torch" else f"pytorch_extra_packages: ['{name}=={{release}}']"
        checks.append(
            same(
                f"same-{name}",
                name,
                f"runtime.packages.{name}.version",
                severity,
                f"put `{wanted}` into the inventory for all nodes and {PROVISION} -t pytorch",
            )
        )
    return checks


CHECKS = (
    Check(
        id="interpreter",
        area="software",
        title="interpreter",
        reads="runtime.python.status",
        rule=interpreter,
        severity="fail",
        sentence="{nodes}: the interpreter of the training cannot be used: {value}",
        remedy=f"{PROVISION} -t pytorch, or set torchfleet_python to an interpreter that is on every node",
        source="launch.yml starts every rank with it",
    ),
    Check(
        id="torch-loads",
        area="software",
        title="torch can be imported",
        reads="runtime.torch.status",
        rule=torch_loads,
        severity="fail",
        sentence="{nodes}: torch cannot be imported: {value}",
        remedy=f"{PROVISION} -t pytorch",
        source="launch.yml runs torch on every node",
    ),
    *_packages(),
    Check(
        id="same-packages",
        area="software",
        title="packages on all nodes or none",
        reads="runtime.packages",
        rule=same_interpreters,
        severity="warn",
        sentence="{nodes} {does} not have {package}, which is on {others}",
        remedy="pytorch_extra_packages: [{package}], then " + PROVISION + " -t pytorch",
        source=_ALIKE,
    ),
    same(
        "same-python",
        "Python",
        "runtime.python.version",
        "fail",
        "set torchfleet_python to the same release on every node, or remove its environment and "
        + PROVISION
        + " -t pytorch",
        how="release",
        source="pickled functions and bytecode are of one minor release (Python documentation, pickle and marshal)",
    ),
    same("same-torch-cuda", "CUDA of torch", "runtime.torch.cuda", "fail", f"{PROVISION} -t pytorch"),
    same(
        "same-nccl",
        "NCCL as loaded",
        "runtime.libraries.nccl.version",
        "fail",
        "take the other copy out of LD_LIBRARY_PATH, or " + PROVISION + " -t pytorch",
        source="NCCL refuses peers of another version (bootstrap of NCCL, `NCCL version mismatch`)",
    ),
    same("same-cudnn", "cuDNN as loaded", "runtime.libraries.cudnn.version", "warn", f"{PROVISION} -t pytorch"),
    same(
        "same-net-plugin",
        "NCCL network plugin",
        "nccl.net_plugins",
        "fail",
        "install the plugin on every node or on none, or set `nccl_env_extra: {{NCCL_NET_PLUGIN: none}}`",
        source="NCCL's bootstrap goes on only where all ranks have the same network",
    ),
    same(
        "same-compiler",
        "gcc",
        "runtime.compilers.gcc.version",
        "warn",
        "install the same compiler: it builds DeepSpeed's and torch's extensions on each node",
        how="release",
        source="extensions are compiled on each node by itself",
    ),
    same(
        "same-nvcc",
        "nvcc",
        "runtime.nvcc[].version",
        "warn",
        "install the same CUDA toolkit on every node",
        how="release",
        source="extensions are compiled on each node by itself",
    ),
    same(
        "same-driver",
        "driver",
        "gpu.driver_version",
        "warn",
        "install the driver {usual} there: `nvidia_driver_version: {usual}` for all nodes",
        source="NVIDIA supports NCCL across drivers of one branch; faults that only one node shows cost days",
    ),
    Check(
        id="torch-sees-gpus",
        area="software",
        title="torch uses the GPUs",
        reads="runtime.torch.cuda_available",
        rule=torch_sees_gpus,
        severity="fail",
        sentence="{nodes} {has} GPUs that torch cannot use: {value}",
        remedy="see runtime_facts of that node",
        source="what torch.cuda answers on the node",
    ),
    Check(
        id="driver-against-cuda",
        area="software",
        title="driver against CUDA",
        reads="gpu.driver_version",
        rule=driver_against_cuda,
        severity="fail",
        sentence="{nodes}: driver {driver} is too old for CUDA {value}, which torch was built with",
        remedy="install a newer driver, or set pytorch_version to a build for an older CUDA",
        source="NVIDIA, CUDA Compatibility, minimum driver versions",
    ),
    Check(
        id="library-shadowed",
        area="software",
        title="LD_LIBRARY_PATH shadows a library",
        reads="runtime.libraries",
        rule=shadowed,
        severity="fail",
        sentence="{nodes}: {by} puts {value} before the {library} that torch brings",
        remedy="take it out of LD_LIBRARY_PATH (/etc/environment, /etc/profile.d, ~/.bashrc), or remove the copy",
        source="search order of ld.so(8); torch's wheels are tested with the libraries that they bring",
    ),
    Check(
        id="same-kernel",
        area="software",
        title="kernel",
        reads="system.kernel",
        rule={"same": "whole"},
        severity="info",
        sentence="{nodes} {has} kernel {value}, {others} {others_have} {usual}",
        remedy="upgrade and reboot at the same time",
        source="drivers and RDMA stacks are built for one kernel",
    ),
    Check(
        id="same-os",
        area="software",
        title="system",
        reads="system.os",
        rule={"same": "whole"},
        severity="info",
        sentence="{nodes} {has} {value}, {others} {others_have} {usual}",
        remedy="none is needed where Python and torch are the same",
        source="C libraries differ between releases",
    ),
)
