"""Role colossalai with a stand-in package: the real one pins a torch of several gigabytes."""

from __future__ import annotations

import base64
import io
import tarfile

import pytest

PYTHON = "/opt/torchfleet/colossalai/bin/python"
SETUP = """\
import os
from setuptools import setup
kernels = os.environ.get("BUILD_EXT", "0")
open("colossalai.py", "w").write(f"__version__ = '0.5.0'\\nkernels = {kernels}\\n")
setup(name="colossalai", version="0.5.0", py_modules=["colossalai"])
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with a source archive, as the real one is published."""
    folder = tmp_path_factory.mktemp("sources")
    with tarfile.open(folder / "colossalai-0.5.0.tar.gz", "w:gz") as archive:
        info = "Metadata-Version: 2.1\nName: colossalai\nVersion: 0.5.0\n"
        for name, text in (("setup.py", SETUP), ("PKG-INFO", info)):
            entry = tarfile.TarInfo(f"colossalai-0.5.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return folder


@pytest.fixture(autouse=True)
def bare(hosts):
    for host in hosts.values():
        host.check_output("rm -rf /opt/torchfleet/colossalai /srv/colossalai && mkdir -p /srv/colossalai")
    yield
    for host in hosts.values():
        host.check_output("rm -rf /opt/torchfleet/colossalai /srv/colossalai")


def colossalai(lab, **variables):
    done = lab.playbook("provision", "-t", "colossalai", torchfleet_stack={"colossalai": "0.5.0"}, **variables)
    return done, " ".join(done.output.split())


def test_it_has_an_environment_of_its_own(lab, hosts, sources):
    for host in hosts.values():
        content = (sources / "colossalai-0.5.0.tar.gz").read_bytes()
        host.check_output(
            f"echo {base64.b64encode(content).decode()} | base64 -d > /srv/colossalai/colossalai-0.5.0.tar.gz"
        )
    options = {"pytorch_find_links": ["/srv/colossalai"]}
    done, _words = colossalai(lab, **options)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert host.check_output(f"cd / && {PYTHON} -c 'import colossalai; print(colossalai.kernels)'") == "0"
        assert host.run("/opt/torchfleet/venv/bin/python -c 'import colossalai'").rc != 0
    assert set(colossalai(lab, **options)[0].changed().values()) == {0}


def test_kernels_want_an_nvcc(lab, hosts):
    done, words = colossalai(lab, colossalai_cuda_ext=True)
    assert done.code != 0
    assert "colossalai_cuda_ext wants an nvcc, and there is none" in words
    assert not hosts["node1"].file(PYTHON).exists
