"""What of the software stack is on a node, from its files' texts."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._software import (
    Release,
    library_path_lines,
    loader_folders,
    read_release,
    report,
    secure_boot,
    toolkit_version,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('NAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n', Release("debian", "12", "Debian 12")),
        ('NAME=\'Rocky Linux\'\nID="rocky"\nVERSION_ID="9.4"\n', Release("rocky", "9.4", "Rocky Linux 9.4")),
        ("ID=arch\n", Release("arch", "", "arch")),
        ("", Release("", "", "unknown")),
    ],
)
def test_release(text, wanted):
    assert read_release(text) == wanted


@pytest.mark.parametrize(
    ("json", "txt", "nvcc", "wanted"),
    [
        ('{"cuda": {"name": "CUDA SDK", "version": "12.6.20240827"}}', "", "", "12.6.20240827"),
        ("", "CUDA Version 10.2.89", "", "10.2.89"),
        ("not json", "", "Cuda compilation tools, release 11.8, V11.8.89", "11.8"),
        ("[]", "", "", ""),
    ],
)
def test_toolkit_version(json, txt, nvcc, wanted):
    assert toolkit_version(json, txt, nvcc) == wanted


@pytest.mark.parametrize(
    "line",
    [
        "export LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH",
        "LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/usr/local/cuda-11.8/lib64",
        'if true; then export LD_LIBRARY_PATH="/opt/cudnn/lib"; fi',
        "setenv LD_LIBRARY_PATH /usr/local/cuda/lib64",
        "export PATH=/usr/local/cuda/bin:$PATH LD_LIBRARY_PATH+=:/usr/local/cuda/lib64  # for tensorflow",
        "set -gx LD_LIBRARY_PATH /usr/local/cuda/lib64",
    ],
)
def test_lines_that_put_cuda_before_torch_s_own(line):
    (found,) = library_path_lines("/root/.bashrc", f"alias ll='ls -l'\n{line}\n")
    assert (found.path, found.number) == ("/root/.bashrc", 2)


@pytest.mark.parametrize(
    "line",
    [
        "# export LD_LIBRARY_PATH=/usr/local/cuda/lib64",
        "export PATH=/usr/local/cuda/bin:$PATH",
        "export LD_LIBRARY_PATH=/opt/openmpi/lib:$LD_LIBRARY_PATH",
        "export CUDA_HOME=/usr/local/cuda",
        "unset LD_LIBRARY_PATH # was /usr/local/cuda/lib64",
    ],
)
def test_lines_that_do_no_harm(line):
    assert library_path_lines("/root/.bashrc", line) == []


def test_environment_of_pam():
    assert loader_folders("/etc/environment", "LD_LIBRARY_PATH DEFAULT=/usr/local/cuda/lib64\n")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(None, None), (b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"", None)],
)
def test_secure_boot(value, wanted):
    assert secure_boot(value) is wanted


def facts(name, **gpu):
    software = {"release": {"name": "Debian 12"}, "python_version": "3.11.2", "gcc_version": "", "toolkits": []}
    return {"torchfleet_software": {**software, "node": {"name": name}}, "torchfleet_gpu": gpu}


def test_nodes_that_are_alike_share_a_line():
    card = {"model": "NVIDIA A100-SXM4-80GB"}
    lines = report(
        [
            facts("a", gpus=[card, card], driver_version="580.65.06"),
            facts("b", gpus=[card, card], driver_version="580.65.06"),
            facts("c", gpus=[], pci_gpus=[{}], reason="there is no nvidia-smi"),
            facts("d", gpus=[]),
        ]
    )
    assert lines == (
        "a, b: Debian 12, Python 3.11.2, no GCC, no CUDA toolkit, driver 580.65.06 for 2 x NVIDIA A100-SXM4-80GB",
        "c: Debian 12, Python 3.11.2, no GCC, no CUDA toolkit, 1 GPU(s) without a working driver (there is no nvidia-smi)",
        "d: Debian 12, Python 3.11.2, no GCC, no CUDA toolkit, no GPU",
    )


def test_lines_of_start_files_are_reported_once_for_all_nodes():
    line = {"path": "/root/.bashrc", "number": 3, "text": "export LD_LIBRARY_PATH=/usr/local/cuda/lib64"}
    nodes = [facts("a"), facts("b")]
    for node in nodes:
        node["torchfleet_software"]["shell_lines"] = [line]
    told = report(nodes)
    assert len(told) == 2
    assert told[1].startswith("a, b: /root/.bashrc:3 (export LD_LIBRARY_PATH=/usr/local/cuda/lib64) makes torch load")
