"""Role pytorch: the same torch everywhere, proven by use, with and without a network."""

from __future__ import annotations

import json

import pytest

PYTHON = "/opt/torchfleet/venv/bin/python"


def test_the_wanted_torch_is_on_every_node(hosts):
    for host in hosts.values():
        version = host.check_output(f"{PYTHON} -c 'import torch; print(torch.__version__)'")
        assert version.partition("+")[0] == "2.13.0"


def test_a_package_that_went_missing_comes_back(lab, hosts):
    hosts["node2"].run_test(f"{PYTHON} -m pip uninstall -q -y threadpoolctl")
    done = lab.playbook("provision", "-t", "pytorch", pytorch_extra_packages=["scikit-learn==1.7.2", "threadpoolctl"])
    assert done.code == 0, done.output
    assert done.changed() == {"node1": 0, "node2": 1, "node3": 0}
    hosts["node2"].run_test(f"{PYTHON} -c 'import threadpoolctl'")


def test_a_wheelhouse_needs_no_network(lab, hosts, tmp_path):
    """A small wheel from a folder on the controller, while the node has no way out and knows no index."""
    host = hosts["node1"]
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    host.run_test(f"{PYTHON} -m pip download -q --no-deps -d /tmp/wheels six==1.17.0")
    wheel = host.check_output("ls /tmp/wheels")
    (wheels / wheel).write_bytes(host.file(f"/tmp/wheels/{wheel}").content)
    host.run_test("ip route del default; mv /etc/pip.conf /etc/pip.conf.away")
    try:
        options = {"pytorch_extra_packages": ["scikit-learn==1.7.2", "six==1.17.0"]}
        done = lab.playbook("provision", "-t", "pytorch", "--limit", "node1", pytorch_wheelhouse=str(wheels), **options)
        assert done.code == 0, done.output
        host.run_test(f"{PYTHON} -c 'import six'")
        options["pytorch_extra_packages"].append("tqdm==4.67.1")
        done = lab.playbook("provision", "-t", "pytorch", "--limit", "node1", pytorch_wheelhouse=str(wheels), **options)
        assert done.code != 0
        assert "could not be installed from wheels in /opt/torchfleet/wheelhouse" in " ".join(done.output.split())
        assert "tqdm==4.67.1" in done.output
    finally:
        gateway = lab.nodes["node1"]["ansible_host"].rpartition(".")[0] + ".1"
        host.run_test(f"ip route add default via {gateway}; mv /etc/pip.conf.away /etc/pip.conf")


def test_an_empty_wheelhouse_is_refused(lab, tmp_path):
    done = lab.playbook("provision", "-t", "pytorch", pytorch_wheelhouse=str(tmp_path))
    assert done.code != 0
    assert "which holds no wheels on this controller" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        ({"torch": "9.9.9"}, "torch 9.9.9 is not a release known here"),
        ({"torch": "2.4.1", "torchvision": "0.15.2"}, "torchvision"),
        ({"torch": "1.13.1", "python": "3.12"}, "torch 1.13.1 has no wheel for Python 3.12"),
    ],
)
def test_an_impossible_stack_fails_before_anything_is_installed(lab, stack, words):
    done = lab.playbook("provision", "-t", "pytorch", torchfleet_stack=stack)
    assert done.code != 0
    assert words in " ".join(done.output.split())
    assert set(done.changed().values()) == {0}


def test_the_proof_runs_an_all_reduce(lab, hosts):
    proof = (lab.folder.parents[1] / "roles/pytorch/files/prove.py").read_text(encoding="utf-8")
    hosts["node1"].run_test(f"cat > /tmp/prove.py <<'PROOF'\n{proof}\nPROOF")
    answer = json.loads(hosts["node1"].check_output(f"{PYTHON} -I /tmp/prove.py"))
    assert answer["world_size"] == 2
    assert answer["backend"] == "gloo"
