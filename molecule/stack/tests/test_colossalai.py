"""Role colossalai with the real package, whose pins name another torch than that of the cluster."""

from __future__ import annotations

import pytest

PYTHON = "/opt/torchfleet/colossalai/bin/python"
TORCH = "import importlib.metadata; print(importlib.metadata.version('torch'))"


@pytest.fixture(autouse=True, scope="module")
def bare(hosts):
    for host in hosts.values():
        host.check_output("rm -rf /opt/torchfleet/colossalai")
    yield
    for host in hosts.values():
        host.check_output("rm -rf /opt/torchfleet/colossalai")


def colossalai(lab, **variables):
    done = lab.playbook("provision", "-t", "colossalai", torchfleet_stack={"colossalai": "0.5.0"}, **variables)
    return done, " ".join(done.output.split())


def test_kernels_want_an_nvcc(lab, hosts):
    done, words = colossalai(lab, colossalai_cuda_ext=True)
    assert done.code != 0
    assert "colossalai_cuda_ext wants an nvcc, and there is none" in words
    assert not hosts["node1"].file(PYTHON).exists


def test_it_has_an_environment_of_its_own(lab, hosts):
    done, _words = colossalai(lab)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert (
            host.check_output(f"cd / && {PYTHON} -W ignore -c 'import colossalai; print(colossalai.__version__)'")
            == "0.5.0"
        )
        assert host.check_output(f'{PYTHON} -c "{TORCH}"').startswith("2.5.")
        assert host.run("/opt/torchfleet/venv/bin/python -c 'import colossalai'").rc != 0
    assert set(colossalai(lab)[0].changed().values()) == {0}
