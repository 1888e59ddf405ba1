"""Roles compiler, accelerate and deepspeed: the real ones, by what they say of themselves."""

from __future__ import annotations

import pytest

PYTHON = "/opt/torchfleet/venv/bin/python"
STACK = {"torch": "2.13.0", "accelerate": "1.15.0", "deepspeed": "0.19.8"}


def provision(lab, tags, **variables):
    done = lab.playbook("provision", "-t", tags, timeout=1200, **variables)
    return done, " ".join(done.output.split())


@pytest.mark.parametrize(
    ("stack", "major"),
    [
        ({"torch": "2.5.1", "cuda": "11.8"}, "11"),
        ({"torch": "2.13.0", "gcc": "12"}, "12"),
        # The set's GCC 13 is not Debian 12's.
        ({"set": "torch-2.13-cpu", "python": "3.11"}, "12"),
    ],
)
def test_a_compiler_that_suits_beside_the_system_s_own(lab, hosts, stack, major):
    before = hosts["node1"].run("readlink -f /usr/bin/gcc").stdout
    done, _words = provision(lab, "compiler", torchfleet_stack=stack)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert host.check_output(f"/usr/bin/gcc-{major} -dumpversion") == major
        assert f"CXX=/usr/bin/g++-{major}" in host.file("/etc/torchfleet/build.env").content_string
    assert hosts["node1"].run("readlink -f /usr/bin/gcc").stdout == before
    assert set(provision(lab, "compiler", torchfleet_stack=stack)[0].changed().values()) == {0}


@pytest.mark.parametrize(
    ("stack", "variables", "words"),
    [
        ({"torch": "2.13.0", "cuda": "12.6"}, {"compiler_gcc": "14"}, "GCC 14 does not suit: wanted"),
        (
            {"torch": "2.13.0"},
            {"compiler_enabled": True, "compiler_gcc": "13"},
            "debian12 has no GCC 13: it has 11, 12",
        ),
    ],
)
def test_a_compiler_that_does_not_suit_is_refused(lab, stack, variables, words):
    done, said = provision(lab, "compiler", torchfleet_stack=stack, **variables)
    assert done.code != 0
    assert words in said


def test_accelerate_and_deepspeed(lab, hosts):
    host = hosts["node2"]
    host.run_test("mkdir -p /root/.cache/huggingface/accelerate")
    host.run_test("echo 'num_machines: 7' > /root/.cache/huggingface/accelerate/default_config.yaml")
    done, words = provision(
        lab,
        "hosts,ssh_trust,nccl_env,pytorch,compiler,accelerate,deepspeed",
        torchfleet_stack={**STACK, "gcc": "12"},
        deepspeed_ops=["cpu_adam"],
    )
    assert done.code == 0, done.output
    assert "DeepSpeed 0.19.8 with torch 2.13.0+cpu, ops built: cpu_adam" in words
    assert "node2: /root/.cache/huggingface/accelerate/default_config.yaml is what `accelerate launch` reads" in words
    host.run_test("rm -r /root/.cache/huggingface")
    for one in hosts.values():
        assert one.check_output(f"{PYTHON} -c 'import accelerate; print(accelerate.__version__)'") == "1.15.0"
    assert hosts["node1"].check_output("pdsh -N -w node1,node2 hostname | sort").split() == ["node1", "node2"]
    done, _words = provision(lab, "accelerate,deepspeed", torchfleet_stack=STACK)
    assert done.code == 0, done.output
    assert set(done.changed().values()) == {0}


def test_an_op_that_does_not_exist_is_named(lab):
    done, words = provision(lab, "deepspeed", torchfleet_stack=STACK, deepspeed_ops=["cpu_adma"])
    assert done.code != 0
    assert "there is no op cpu_adma: deepspeed_ops may name async_io" in words
