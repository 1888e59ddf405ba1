"""The training uses the network that connects all nodes and is fastest, whatever its interfaces are called."""

from __future__ import annotations

import json
import re

import pytest

FAST = {"node1": "enp65s0", "node2": "ens1f0", "node3": "fast.7"}
SLOW = {"node1": "eth0", "node2": "eth0", "node3": "eth9"}

ALL_REDUCE = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(500_000))
print("sum done", flush=True)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("work") / "all_reduce.py"
    path.write_text(ALL_REDUCE, encoding="utf-8")
    return path


def address(host, interface):
    return host.check_output(f"ip -4 -o addr show {interface}").split()[3].partition("/")[0]


def sent(host):
    """Bytes sent so far, by interface."""
    lines = host.check_output("grep . /sys/class/net/*/statistics/tx_bytes").splitlines()
    return {line.split("/")[4]: int(line.rpartition(":")[2]) for line in lines}


def launch(lab, tmp_path, script, **variables):
    done = lab.playbook("launch", cwd=tmp_path, launch_script=str(script), nccl_env_bandwidth_seconds=0.3, **variables)
    manifests = list(tmp_path.glob("runs/*/manifest.json"))
    return done, json.loads(manifests[0].read_text(encoding="utf-8")) if manifests else None


def test_files_name_each_nodes_own_fast_interface(hosts):
    for name, host in hosts.items():
        assert f"\nNCCL_SOCKET_IFNAME=={FAST[name]}\n" in host.file("/etc/nccl.conf").content_string
        assert host.check_output("sh -lc 'echo $GLOO_SOCKET_IFNAME'") == FAST[name]


def test_no_interface_name_travels_to_another_node(hosts):
    for host in hosts.values():
        assert "IFNAME" not in host.file("/root/.deepspeed_env").content_string
        assert "NCCL_IB_DISABLE=1" in host.file("/root/.deepspeed_env").content_string


def test_names_resolve_to_the_fast_network(hosts):
    wanted = {name: address(host, FAST[name]) for name, host in hosts.items()}
    for host in hosts.values():
        for name in hosts:
            assert host.check_output(f"getent hosts {name}").split()[0] == wanted[name]


def test_the_all_reduce_goes_over_the_fast_network(lab, hosts, tmp_path, script):
    before = {name: sent(host) for name, host in hosts.items()}
    done, manifest = launch(lab, tmp_path, script)
    assert done.code == 0, done.output
    assert manifest["plan"]["master_address"] == address(hosts["node1"], FAST["node1"])
    for name, host in hosts.items():
        grown = {interface: count - before[name][interface] for interface, count in sent(host).items()}
        # 20 all-reduces of 2 MB: each node sends at least its share, and the probe's 0.3 s at 100 Mb/s are the rest.
        assert grown[FAST[name]] > 40e6
        assert grown[SLOW[name]] < 20e6
        assert grown["docker0"] < 1e5


def test_every_choice_has_its_reason(lab, tmp_path, script):
    done = lab.playbook(
        "launch", "--check", "--diff", cwd=tmp_path, launch_script=str(script), nccl_env_bandwidth_seconds=0.3
    )
    assert done.code == 0, done.output
    assert "because network of node3: fast.7 (every other node reaches it and is reached from it" in " ".join(
        done.output.split()
    )


def test_a_foreign_setting_is_reported_with_its_place(lab, hosts):
    host = hosts["node2"]
    host.run_test("printf '# mine\\nNCCL_SOCKET_IFNAME=eth0\\n' > /root/.nccl.conf")
    try:
        done = lab.playbook("provision", "-t", "nccl_env", nccl_env_bandwidth_seconds=0.3)
        assert done.code == 0, done.output
        words = " ".join(done.output.split())
        assert "node2: /root/.nccl.conf:2 sets NCCL_SOCKET_IFNAME=eth0, but =ens1f0 is chosen" in words
        assert set(done.changed().values()) == {0}
    finally:
        host.run_test("rm /root/.nccl.conf")


def test_a_users_setting_wins_and_is_marked_and_goes_again(lab, hosts):
    conf = hosts["node1"].file("/etc/nccl.conf")
    before = conf.content_string
    own = "NCCL_DEBUG=WARN\n"
    hosts["node1"].run_test(f"printf '{own}' >> /etc/nccl.conf")
    done = lab.playbook(
        "provision", "-t", "nccl_env", nccl_env_bandwidth_seconds=0.3, nccl_env_extra={"NCCL_BUFFSIZE": "1048576"}
    )
    assert done.code == 0, done.output
    text = hosts["node1"].file("/etc/nccl.conf").content_string
    assert "# user: nccl_env_extra\nNCCL_BUFFSIZE=1048576\n" in text
    assert text.endswith(own)
    done = lab.playbook("provision", "-t", "nccl_env", nccl_env_bandwidth_seconds=0.3)
    assert done.changed() == {"node1": 1, "node2": 1, "node3": 1}
    assert hosts["node1"].file("/etc/nccl.conf").content_string == before + own


class TestWithAnInterfaceDown:
    @pytest.fixture(autouse=True)
    def down(self, hosts):
        hosts["node2"].run_test("ip link set ens1f0 down")
        yield
        hosts["node2"].run_test("ip link set ens1f0 up")

    def test_the_run_is_refused_with_the_matrix_where_the_network_is_demanded(self, lab, hosts, tmp_path, script):
        fast = address(hosts["node1"], FAST["node1"]).rpartition(".")[0] + ".0/24"
        done, manifest = launch(lab, tmp_path, script, torchfleet_network=[fast])
        assert done.code != 0
        assert manifest is None
        assert "node2" in done.output
        assert "ens1f0" in done.output
        assert address(hosts["node3"], FAST["node3"]) in done.output
        # The matrix: a row for each sender, and what its marks mean.
        assert re.search(r"\d  node1  .*[+x]( +[.+x])+", done.output), done.output
        assert "+ works; . same node" in done.output

    def test_without_that_demand_the_slow_network_serves(self, lab, hosts, tmp_path, script):
        done, manifest = launch(lab, tmp_path, script)
        assert done.code == 0, done.output
        assert manifest["plan"]["master_address"] == address(hosts["node1"], SLOW["node1"])
