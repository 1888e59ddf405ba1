"""Role pytorch: torch and its company, collected once on the controller, for nodes that reach no network at all."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import stand_ins

# A set whose Python is not Debian 12's.
SET = {"set": "torch-2.13-cpu", "python": "3.11"}
PYTHON = "/opt/torchfleet/venv/bin/python"


@contextlib.contextmanager
def cut_off(lab, hosts):
    """The nodes have no way out, and know no index."""
    gateway = stand_ins.address_of(lab)
    for host in hosts.values():
        host.run_test("ip route del default; mv /etc/pip.conf /etc/pip.conf.away; rm -rf /root/.cache/pip")
    try:
        yield
    finally:
        for host in hosts.values():
            host.run_test(f"ip route add default via {gateway}; mv /etc/pip.conf.away /etc/pip.conf")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def provision(lab, *options, **variables):
    done = lab.playbook("provision", "-t", "pytorch", *options, **variables)
    return done, " ".join(done.output.split())


def test_torch_from_a_wheelhouse_with_the_network_cut(lab, hosts, cache):
    for host in hosts.values():
        host.run_test("rm -rf /opt/torchfleet")
    options = {
        "torchfleet_stack": {"torch": "2.13.0"},
        "pytorch_extra_packages": ["numpy==2.3.3"],
        "pytorch_fetch": "controller",
        "pytorch_wheelhouse_cache": str(cache),
    }
    with cut_off(lab, hosts):
        done, _words = provision(lab, **options)
        assert done.code == 0, done.output
        for host in hosts.values():
            assert host.check_output(f"{PYTHON} -c 'import torch; print(torch.__version__)'").startswith("2.13.0")
            host.check_output(f"{PYTHON} -c 'import numpy'")
        done, _words = provision(lab, **options)
        assert done.code == 0, done.output
        assert set(done.changed().values()) == {0}


def test_one_node_fetches_for_all(lab, hosts):
    """The others know no index and have no way out; what the first one gathered reaches them."""
    for host in hosts.values():
        host.run_test("rm -rf /opt/torchfleet; rm -rf /root/.cache/pip")
    options = {"torchfleet_stack": {"torch": "2.13.0"}, "pytorch_fetch": "once"}
    with cut_off(lab, {name: host for name, host in hosts.items() if name != "node1"}):
        done, _words = provision(lab, **options)
        assert done.code == 0, done.output
        for host in hosts.values():
            assert host.check_output(f"{PYTHON} -c 'import torch; print(torch.__version__)'").startswith("2.13.0")
        assert not hosts["node1"].file("/opt/torchfleet/wheelhouse.collected").exists
        done, _words = provision(lab, **options)
        assert set(done.changed().values()) == {0}
        done, words = provision(lab, **{**options, "pytorch_fetch": "each"}, pytorch_extra_packages=["six==1.17.0"])
        assert done.code != 0
        assert "node2: torch==2.13.0, six==1.17.0 could not be installed from the package index" in words


def test_a_torchvision_of_another_build_is_found_out(lab, hosts):
    """PyPI's torchvision is built for CUDA, the nodes' torch for the CPU: versions that belong together, and do not load."""
    torch = hosts["node1"].check_output(f"{PYTHON} -c 'import torch; print(torch.__version__)'")
    if not torch.endswith("+cpu"):
        pytest.skip(f"the lab's torch is {torch}, the same build as PyPI's torchvision")
    done, words = provision(lab, pytorch_companions=["torchvision"])
    assert done.code != 0
    assert f"torchvision 0.28.0 does not load with torch {torch}, it is of another build" in words
    for host in hosts.values():
        host.run_test(f"{PYTHON} -m pip uninstall -q -y torchvision")


def test_no_internet_and_no_wheelhouse(lab, hosts):
    for host in hosts.values():  # whom an earlier test let have it: the first that lacks it collects
        host.run(f"{PYTHON} -m pip uninstall -q -y six")
    with cut_off(lab, hosts):
        done, words = provision(lab, pytorch_extra_packages=["six==1.17.0"], pytorch_fetch="once")
        assert done.code != 0
        assert "six==1.17.0 could not be collected on node1 for Python 3.11.2: " in words
        done, words = provision(lab, pytorch_extra_packages=["six==1.17.0"], pytorch_fetch="each")
    assert done.code != 0
    assert "six==1.17.0 could not be installed from the package index" in words


def test_a_named_set_from_an_index_whose_files_are_fetched_once(lab, hosts, cache, tmp_path):
    (wheel,) = cache.rglob("torch-2.13.0*.whl")
    (tmp_path / "cpu" / "torch").mkdir(parents=True)
    shutil.copy(wheel, tmp_path / "cpu" / "torch")
    link = f'<a href="{wheel.name}">{wheel.name}</a>'
    (tmp_path / "cpu" / "torch" / "index.html").write_text(link, encoding="utf-8")
    for host in hosts.values():
        host.run_test("rm -rf /opt/torchfleet/venv")
    with stand_ins.served(tmp_path, stand_ins.address_of(lab)) as url, cut_off(lab, hosts):
        done, _words = provision(
            lab,
            torchfleet_stack=SET,
            pytorch_official_index=url,
            pytorch_fetch="controller",
            pytorch_wheelhouse_cache=str(tmp_path / "wheels"),
        )
        assert done.code == 0, done.output
    assert stand_ins.asked(".whl") in ([wheel.name], [])
    for host in hosts.values():
        proof = host.check_output(f"{PYTHON} -c 'import torch; print(torch.__version__)'")
        assert proof == "2.13.0+cpu"


def test_an_interrupted_installation_is_completed(lab, hosts, cache):
    hosts["node2"].run_test("rm -rf /opt/torchfleet/venv/lib/python3*/site-packages/torch-*.dist-info")
    hosts["node1"].run_test("rm -f /opt/torchfleet/venv/bin/python*")
    done, _words = provision(lab)
    assert done.code == 0, done.output
    assert all(done.changed().values())
    assert set(provision(lab)[0].changed().values()) == {0}


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ({"torch": "2.13.0", "python": "3.12"}, "/usr/bin/python3 is Python 3.11.2, torchfleet_stack.python is 3.12"),
        ({"torch": "2.13.0", "cuda": "11.8"}, "torch 2.13.0 is not built for CUDA 11"),
        ({"torch": "2.13.0", "cuda": "12.7"}, "CUDA 12.7 is not a release known here"),
        ({"torch": "1.13.1", "python": "3.12"}, "torch 1.13.1 has no wheel for Python 3.12"),
        ({"torch": "2.13.0", "cuda": "12.6", "gcc": "14"}, "GCC 14 is too new for CUDA 12.6"),
        ({"torch": "2.13.0", "torchvision": "0.15.2"}, "torchvision 0.15.2 does not belong to torch 2.13.0"),
        ({"set": "torch-2.13-cu999"}, "names no set torch-2.13-cu999"),
        ({"torhc": "2.13.0"}, "did you mean torch?"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_installed(lab, stack, words):
    done, said = provision(lab, torchfleet_stack=stack)
    assert done.code != 0
    assert words in said
    assert set(done.changed().values()) == {0}


def test_the_proof_names_what_it_loaded(hosts):
    proof = (Path(__file__).resolve().parents[3] / "roles/pytorch/files/prove.py").read_text(encoding="utf-8")
    hosts["node1"].run_test(f"cat > /tmp/prove.py <<'PROOF'\n{proof}\nPROOF")
    answer = json.loads(hosts["node1"].check_output(f"{PYTHON} -I /tmp/prove.py"))
    assert answer["foreign"] == []
