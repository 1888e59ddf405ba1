"""Role pytorch: torch and its company, collected once on the controller, for nodes that reach no network at all."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
import stand_ins
from lab import keep

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
        host.run_test(
            "rm -rf /opt/torchfleet /root/.cache/pip; dpkg --purge python3-venv python3.11-venv; apt-get clean"
        )
    options = {"torchfleet_stack": {"torch": "2.13.0"}, "pytorch_fetch": "once"}
    with cut_off(lab, {name: host for name, host in hosts.items() if name != "node1"}):
        done, _words = provision(lab, **options)
        assert done.code == 0, done.output
        for host in hosts.values():
            assert host.check_output(f"{PYTHON} -c 'import torch; print(torch.__version__)'").startswith("2.13.0")
        assert not hosts["node1"].file("/opt/torchfleet/wheelhouse.collected").exists
        # What node1 has fetched, which is all that anybody could.
        sizes = hosts["node1"].check_output("find -L /opt/torchfleet/wheelhouse -name '*.whl' -printf '%s\\n'").split()
        keep(
            "downloads.json",
            {"wheels: once": {"nodes": len(hosts), "files": len(sizes), "bytes": sum(map(int, sizes))}},
        )
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


def test_a_named_set_from_an_index_whose_files_are_fetched_once(lab, hosts, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    # Without it pip leaves out an index that has no https.
    monkeypatch.setenv("PIP_TRUSTED_HOST", stand_ins.address_of(lab))
    (wheel,) = cache.rglob("torch-2.13.0*.whl")
    # A build number, by which pip prefers it to the same version elsewhere.
    name = wheel.name.replace("-cp", "-1-cp", 1)
    (tmp_path / "cpu" / "torch").mkdir(parents=True)
    shutil.copy(wheel, tmp_path / "cpu" / "torch" / name)
    link = f'<a href="{name}">{name}</a>'
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
    assert list(map(unquote, stand_ins.asked(".whl"))) == [name]
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


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"torchfleet_stack": {"torch": "2.13.0", "python": "3.12"}},
            "/usr/bin/python3 is Python 3.11.2, torchfleet_stack.python is 3.12",
        ),
        ({"torchfleet_stack": {"cuda": "11.8"}}, "torch 2.13.0 is not built for CUDA 11"),
        ({"cuda_enabled": True, "cuda_versions": 12.8}, "cuda_versions is 12.8 (wanted releases in quotes"),
        (
            {
                "torchfleet_stack": {"cuda": "12.6"},
                "cuda_method": "run",
                "cuda_installers": {"12.6": {"src": "cuda.run"}},
            },
            "for run, each of the versions with url or src, and sha256",
        ),
        ({"conda_enabled": True, "conda_prefix": "conda"}, "conda_prefix is conda (an absolute path)"),
        ({"pytorch_venv": "venvs/torch"}, "pytorch_venv is venvs/torch (wanted an absolute path)"),
        ({"nvidia_driver_method": "run"}, "for run: url or src, and sha256"),
    ],
)
def test_no_role_has_changed_a_node_before_all_have_been_asked(lab, variables, words):
    """What a later role refuses, while node_tuning, the first to change anything, has work to do."""
    variables = {
        "nvidia_driver_enabled": "nvidia_driver_method" in variables,
        **variables,
        "node_tuning_nofile": "4321",
    }
    roles = "node_tuning,nvidia_driver,cuda,compiler,conda,pytorch"
    done = lab.playbook("provision", "-t", roles, **variables)
    assert done.code != 0
    assert words in " ".join(done.output.split())
    assert set(done.changed().values()) == {0}


ELSEWHERE = "/tmp/elsewhere/libcudart.so.12"


@pytest.mark.parametrize(("environment", "foreign"), [("", []), (f"LD_PRELOAD={ELSEWHERE}", [ELSEWHERE])])
def test_the_proof_names_what_it_loaded(hosts, environment, foreign):
    host = hosts["node1"]
    proof = (Path(__file__).resolve().parents[3] / "roles/pytorch/files/prove.py").read_text(encoding="utf-8")
    host.check_output(f"cat > /tmp/prove.py <<'PROOF'\n{proof}\nPROOF")
    # Any library will do: it is its name and place that tell.
    host.check_output(f"mkdir -p /tmp/elsewhere && cp /lib/x86_64-linux-gnu/libutil.so.1 {ELSEWHERE}")
    assert json.loads(host.check_output(f"{environment} {PYTHON} -I /tmp/prove.py"))["foreign"] == foreign


def test_company_that_differs_between_the_nodes_is_named(lab, hosts):
    """A module of torchaudio's name, of another version on each node."""
    place = "/opt/torchfleet/venv/lib/python3.11/site-packages/torchaudio.py"
    for version, host in zip(("2.11.0", "2.10.0"), hosts.values()):
        host.check_output(f"echo '__version__ = \"{version}\"' > {place}")
    try:
        done, words = provision(lab)
    finally:
        for host in hosts.values():
            host.check_output(f"rm {place}")
    assert done.code != 0
    assert re.search(
        r"node2 has torch 2\.13\.0\S*, torchaudio 2\.10\.0; node1 has torch 2\.13\.0\S*, torchaudio 2\.11\.0: pin",
        words,
    )


def test_a_node_that_brings_its_own_torch_is_left_out(lab):
    """pytorch_enabled: false on the first, whom the others are then not compared with."""
    inventory = lab.inventory_of("node1", "node2", node1={"pytorch_enabled": False})
    done, _words = provision(lab, inventory=inventory, pytorch_packages=["torch"])
    assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}
