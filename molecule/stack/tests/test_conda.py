"""Role conda, with a stand-in for conda and its channel: silent, verified, resumed, the same everywhere, and fetched once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import stand_ins
from lab import keep

PREFIX = "/opt/torchfleet/conda"
VENV = "/opt/torchfleet/of-conda"
TORCH = {"torch": "2.13.0", "torch_source": "conda"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """torch's CPU build with what it needs, and pip, as an index has them for the nodes' Python."""
    folder = tmp_path_factory.mktemp("wheels")
    index = ["--extra-index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    command = [sys.executable, "-m", "pip", "download", "-q", "--python-version", "3.11", "--only-binary=:all:"]
    subprocess.run([*command, *index, "-d", str(folder), "torch==2.13.0", "numpy==2.3.3", "pip"], check=True)
    return folder


@pytest.fixture(scope="module")
def channel_folder(tmp_path_factory, wheels):
    folder = tmp_path_factory.mktemp("channel")
    python = [("python", version, "h0_0_cpython", [], None) for version in ("3.11.2", "3.12.7")]
    stand_ins.channel(folder, *python, *stand_ins.wheels_as_packages(wheels, "cpu_generic_py311_h0_0"))
    return folder


@pytest.fixture(scope="module")
def channel(lab, channel_folder):
    with stand_ins.served(channel_folder, stand_ins.address_of(lab)) as url:
        yield url


@pytest.fixture(scope="module")
def options(tmp_path_factory, channel):
    folder = tmp_path_factory.mktemp("conda")
    return {
        "conda_enabled": True,
        "conda_channels": [channel],
        "conda_installer": stand_ins.write(folder / "Miniforge3.sh", stand_ins.CONDA),
        "conda_lock": str(folder / "conda.lock"),
    }


@pytest.fixture(autouse=True, scope="module")
def bare(hosts):
    for host in hosts.values():
        host.run_test(f"rm -rf {PREFIX}* {VENV} /opt/torchfleet/downloads")
    yield
    for host in hosts.values():
        host.run_test(f"rm -rf {PREFIX}* {VENV}")


def conda(lab, *flags, tags="conda", **variables):
    stand_ins.Index.asked.clear()
    done = lab.playbook("provision", "-t", tags, *flags, **variables)
    return done, " ".join(done.output.split())


def test_the_wrong_file_leaves_the_node_as_it_was(lab, hosts, options):
    wrong = {**options["conda_installer"], "sha256": "0" * 64}
    done, words = conda(lab, **{**options, "conda_installer": wrong})
    assert done.code != 0
    assert "is not the wanted file: its sha256 is" in words
    assert not hosts["node1"].file(PREFIX).exists


def test_a_full_disk_leaves_the_node_as_it_was(lab, hosts, options):
    for host in hosts.values():
        host.run_test("mkdir -p /mnt/small && mount -t tmpfs -o size=8m tmpfs /mnt/small")
    try:
        done, words = conda(lab, **{**options, "conda_prefix": "/mnt/small/conda"})
        assert done.code != 0
        assert "/mnt/small/conda is as it was" in words
        assert hosts["node1"].check_output("ls -A /mnt/small") == ""
    finally:
        for host in hosts.values():
            host.run_test("umount /mnt/small")


def test_anaconda_wants_its_licence_read(lab, options):
    done, words = conda(lab, **{**options, "conda_distribution": "anaconda"})
    assert done.code != 0
    assert "whose terms of service conda_accept_licence says that you agree to" in words


def test_a_bare_node_passes_in_check_mode(lab, options):
    assert conda(lab, "--check", **options)[0].code == 0


def test_an_installation_that_was_cut_off_is_begun_anew(lab, hosts, options):
    hosts["node2"].run_test("touch /tmp/pull-the-plug")
    assert conda(lab, **options)[0].code != 0
    hosts["node2"].check_output(f"rm /tmp/pull-the-plug; test -e {PREFIX}.installing")
    done, _words = conda(lab, **options)
    assert done.code == 0, done.output
    assert set(conda(lab, **options)[0].changed().values()) == {0}


def test_every_node_has_the_same_list(hosts):
    lists = {host.check_output(f"cat {PREFIX}/envs/torchfleet/conda-meta/stand-in") for host in hosts.values()}
    assert len(lists) == 1
    assert "/python-3.12.7-h0_0_cpython.conda#" in lists.pop()


@pytest.mark.parametrize(("fetch", "times"), [("once", 1), ("each", 2)])
def test_each_package_is_fetched_that_often(lab, hosts, options, fetch, times):
    """From the list that is there, and no conda has any package yet."""
    for host in hosts.values():
        host.check_output(f"rm -rf {PREFIX}/envs {PREFIX}/pkgs")
    done, _words = conda(lab, **options, conda_fetch=fetch)
    assert done.code == 0, done.output
    packages = stand_ins.asked(".conda")
    assert len(packages) == times * len(set(packages)) and len(set(packages)) == 2
    for host in hosts.values():
        assert host.check_output(f"ls -d {PREFIX}.packages 2>/dev/null || true") == ""
    assert set(conda(lab, **options)[0].changed().values()) == {0}
    assert stand_ins.Index.asked == []


def test_what_did_not_get_through_is_fetched_from_the_channel(lab, hosts, options):
    for host in hosts.values():
        host.check_output(f"rm -rf {PREFIX}/envs {PREFIX}/pkgs")
    # Where the packages are to come, there is a file.
    hosts["node2"].check_output(f"mkdir {PREFIX}.packages && touch {PREFIX}.packages/.passed.releases")
    done, words = conda(lab, **options)
    assert done.code == 0, done.output
    assert "1 of 2 nodes have the tree" in words and "Not there: node2: " in words
    assert len(stand_ins.asked(".conda")) == 4
    assert len({host.check_output(f"cat {PREFIX}/envs/torchfleet/conda-meta/stand-in") for host in hosts.values()}) == 1


def test_a_list_of_something_else_is_named_and_nothing_done(lab, options):
    done, words = conda(lab, **{**options, "conda_packages": ["python=3.11", "pip"]})
    assert done.code != 0
    assert "conda.lock has not python=3.11, which is wanted now: remove the file to have it made anew" in words
    assert stand_ins.Index.asked == []


def torch(lab, options, tmp_path, *flags, **variables):
    more = {"conda_lock": str(tmp_path / "torch.lock"), "conda_environment": "torch", "torchfleet_venv": VENV}
    stack = {**TORCH, "python": "3.11"}
    return conda(lab, *flags, tags="conda,pytorch", **{**options, "torchfleet_stack": stack, **more, **variables})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("torch")


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ({"torch": "2.14.0"}, "torch 2.14.0 is not known to be on conda-forge"),
        ({"torch_cuda": "12.6"}, "torch 2.13.0 is not built for CUDA 12.6 (found CUDA 12.6, wanted one of 12.9, 13.0)"),
    ],
)
def test_a_build_that_conda_forge_has_not_is_refused_first(lab, options, place, stack, words):
    done, said = torch(lab, options, place, torchfleet_stack={**TORCH, **stack})
    assert done.code != 0
    assert words in said
    assert set(done.changed().values()) <= {0}


def test_another_environment_is_not_replaced(lab, hosts, options, place):
    hosts["node2"].check_output(f"mkdir -p {VENV}/bin")
    done, words = torch(lab, options, place)
    assert done.code != 0
    assert f"node2: {VENV} cannot lead to {PREFIX}/envs/torch" in words
    hosts["node2"].check_output(f"rm -r {VENV}")


def test_torch_from_conda(lab, hosts, options, place, channel_folder):
    """The build that conda-forge calls cpu_generic, each package fetched once, and pip's packages beside it."""
    for host in hosts.values():
        host.check_output(f"rm -rf {PREFIX}/envs/torch {PREFIX}/pkgs {VENV}")
    (place / "torch.lock").unlink(missing_ok=True)
    variables = {"pytorch_extra_packages": ["six==1.17.0"], "pytorch_conda_blas": "generic"}
    assert torch(lab, options, place, "--check", **variables)[0].code == 0
    done, _words = torch(lab, options, place, **variables)
    assert done.code == 0, done.output
    packages = stand_ins.asked(".conda")
    assert len(packages) == len(set(packages)) > 5
    size = sum((channel_folder / "noarch" / name).stat().st_size for name in packages)
    keep("downloads.json", {"conda: once": {"nodes": len(hosts), "files": len(packages), "bytes": size}})
    assert "/pytorch-2.13.0-cpu_generic_py311_h0_0.conda#" in (place / "torch.lock").read_text(encoding="utf-8")
    ask = "import six, sys, torch; print(torch.__version__, torch.__file__, sys.prefix)"
    for host in hosts.values():
        version, path, _prefix = host.check_output(f"cd / && {VENV}/bin/python -c '{ask}'").split()
        assert version.startswith("2.13.0") and path.startswith((VENV, f"{PREFIX}/envs/torch"))
        assert host.check_output(f"readlink {VENV}") == f"{PREFIX}/envs/torch"
    done, _words = torch(lab, options, place, **variables)
    assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}
    assert stand_ins.Index.asked == []


def test_pip_does_not_replace_the_torch_of_conda(lab, hosts, options, place):
    done, words = torch(lab, options, place, pytorch_conda_blas="generic", pytorch_extra_packages=["torchaudio==2.5.1"])
    assert done.code != 0
    assert "torch==2.13.0" in words
    for host in hosts.values():
        version = host.check_output(f"cd / && {VENV}/bin/python -c 'import torch; print(torch.__version__)'")
        assert version.startswith("2.13.0")


def test_a_first_node_without_conda_keeps_its_own_python(lab, hosts, options, tmp_path):
    """The list is made by the first that has conda."""
    for host in hosts.values():
        host.check_output(f"rm -rf {PREFIX}* {VENV}")
    variables = {name: value for name, value in options.items() if name != "conda_enabled"}
    variables["inventory"] = lab.inventory_of(*hosts, node1={"conda_enabled": False}, node2={"conda_enabled": True})
    variables |= {"torchfleet_venv": VENV, "pytorch_packages": ["six==1.17.0"], "pytorch_verify": False}
    lock = tmp_path / "conda.lock"
    for _again in range(2):
        done, _words = conda(lab, tags="conda,pytorch", **{**variables, "conda_lock": str(lock)})
        assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}
    assert "/python-3.12.7-h0_0_cpython.conda#" in lock.read_text(encoding="utf-8")
    for host in hosts.values():
        host.check_output(f"{VENV}/bin/python -c 'import six'")
    assert [host.file(f"{PREFIX}/envs/torchfleet/bin/python").exists for host in hosts.values()] == [False, True]
