"""Links really made slow: the node is named, with the reason; a healthy lab gives no finding; a check starts nothing."""

from __future__ import annotations

import configparser
import json
import socket
import subprocess
from pathlib import Path

import pytest

SHAPE = "tc qdisc replace dev eth1 root tbf rate {rate} burst 64kb latency 50ms"
HEALTHY = SHAPE.format(rate="1gbit").replace("64kb", "256kb")
# What is not about links takes time, and the machine under the lab is shared.
LINKS = {"bench_measure": ["links", "collective"], "bench_most_bytes": 4194304}

# Ansible keeps the connection that it has.
NEW_SESSION = {"ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none"}


def bench(lab, folder, *options, **variables):
    done = lab.playbook("bench", *options, cwd=folder, **variables)
    path = folder / "reports" / "bench.json"
    return done, json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def sent(host):
    """Bytes that went out on the training network."""
    return int(host.check_output("cat /sys/class/net/eth1/statistics/tx_bytes"))


def rates(report):
    return {(link["source"], link["target"]): link["mbps"] for link in report["links"]}


@pytest.fixture
def shaped(hosts):
    """Shape the sending side of a node's link."""

    def shape(node, rate):
        assert hosts[node].run(SHAPE.format(rate=rate)).rc == 0

    yield shape
    for host in hosts.values():
        host.run_test(HEALTHY)


@pytest.fixture
def limited(hosts):
    """Shape the other end of a node's link, which shows in no queue of the node: a slow port of the switch."""
    ports = []

    def limit(node, rate):
        index = int(hosts[node].check_output("cat /sys/class/net/eth1/iflink"))
        ports.append(socket.if_indextoname(index))
        subprocess.run(
            [
                "tc",
                "qdisc",
                "replace",
                "dev",
                ports[-1],
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                "64kb",
                "latency",
                "50ms",
            ],
            check=True,
        )

    yield limit
    for port in ports:
        subprocess.run(["tc", "qdisc", "del", "dev", port, "root"], check=True)


def test_check_mode_shows_the_plan_and_starts_nothing(lab, hosts, tmp_path):
    before = {name: sent(host) for name, host in hosts.items()}
    done, report = bench(lab, tmp_path, "--check")
    assert done.code == 0, done.output
    assert report is None
    assert "bench of 3 nodes, 3 ranks, transport tcp" in done.output
    assert "round 1: " in done.output
    assert "all-reduce with gloo" in done.output
    for name, host in hosts.items():
        # A second at 1 Gb/s would be 125 MB; the choice of the network takes a few packets of each pair.
        assert sent(host) - before[name] < 20e6
    assert set(done.changed().values()) == {0}


def test_a_healthy_lab_gives_no_finding(lab, hosts, tmp_path):
    done, report = bench(lab, tmp_path, bench_parameters=125e6)
    assert done.code == 0, done.output
    assert report["findings"] == [], done.output
    assert (report["status"], report["sentence"]) == (0, "3 nodes: nothing is slow")
    assert len(rates(report)) == 6
    assert all(700 < rate < 1000 for rate in rates(report).values())
    sweep = report["all_reduce"]["sweep"]
    assert [row["bytes"] for row in sweep][-1] == 64 << 20
    # A ring is as quick as its links.
    assert 0.4 < 8 * sweep[-1]["busbw_gbps"] < 1.0
    for node in report["nodes"]:
        assert node["devices"][0]["tflops"] > 0
        assert node["disks"][0]["write_mbps"] > 0
    assert report["cost"]["gradient_bytes"] == 250e6
    assert "all-reduce (gloo, 3 ranks): 64 MiB" in done.output
    page = (tmp_path / "reports" / "report.html").read_text(encoding="utf-8")
    assert 'id="bandwidth"' in page
    assert "<polyline" in page
    assert set(done.changed().values()) == {0}
    for host in hosts.values():
        assert host.run("pgrep -f 'torchfleet-bench|TORCHFLEET_BENCH'").stdout == ""
        assert host.run("ls -A /var/lib/torchfleet | grep bench").stdout == ""


def test_the_slow_node_is_named_with_its_reason_and_cost(lab, tmp_path, shaped):
    _done, before = bench(lab, tmp_path, **LINKS)
    shaped("node3", "100mbit")
    done, report = bench(lab, tmp_path, bench_fail_on="warn", bench_parameters=1e9, **LINKS)
    assert done.code == 2, done.output
    assert [(one["check"], one["nodes"]) for one in report["findings"]] == [("slow-nic", ["node3"])], done.output
    sentence = report["findings"][0]["sentence"]
    assert sentence.startswith("node3 sends 9")
    assert "a tc rule on eth1 limits it to 100 Mb/s, the others carry 9" in sentence
    assert "tc qdisc del dev eth1 root" in report["findings"][0]["remedy"]
    assert sentence in done.output
    assert all(rate < 110 for (source, _target), rate in rates(report).items() if source == "node3")
    assert report["cost"]["seconds"] > 4 * report["cost"]["healthy_seconds"]
    assert any(words.startswith("node3 to node1") for words in report["previous"]["slower"])
    assert report["previous"]["sweep"] == before["all_reduce"]["sweep"]
    assert report["all_reduce"]["sweep"][-1]["busbw_gbps"] < 0.3 * before["all_reduce"]["sweep"][-1]["busbw_gbps"]


def test_a_node_that_receives_slowly_is_told_from_one_that_sends_slowly(lab, tmp_path, limited):
    limited("node2", "100mbit")
    done, report = bench(lab, tmp_path, bench_measure=["links"])
    (found,) = report["findings"]
    assert (found["check"], found["nodes"]) == ("slow-nic", ["node2"]), done.output
    assert found["sentence"].startswith("node2 receives 9")
    assert "that is what a port of 100 Mb/s carries" in found["sentence"]


def test_a_node_without_torch_costs_what_needs_it(lab, hosts, tmp_path):
    hosts["node2"].run_test("mv /opt/torchfleet/venv/bin/python /opt/torchfleet/venv/bin/python.aside")
    try:
        done, report = bench(lab, tmp_path, bench_timeout=20, bench_measure=["links", "local"])
    finally:
        hosts["node2"].run_test("mv /opt/torchfleet/venv/bin/python.aside /opt/torchfleet/venv/bin/python")
    assert done.code == 0, done.output
    assert [one["sentence"] for one in report["findings"]] == [
        "node2, devices: /opt/torchfleet/venv/bin/python is not there"
    ]
    assert len(rates(report)) == 6
    assert [len(node["devices"]) for node in report["nodes"]] == [1, 0, 1]


@pytest.mark.parametrize("how", ["switched off", "frozen"])
def test_a_node_that_does_not_answer_is_no_healthy_one(lab, tmp_path, how):
    container = f"{lab.prefix}-node3"
    ssh = ("exec", container, "systemctl")
    variables = NEW_SESSION
    if how == "frozen":
        # It keeps the connection that Ansible has, and says nothing on it: the lines of our ansible.cfg notice.
        config = configparser.ConfigParser(interpolation=None)
        config.read(Path(__file__).resolve().parents[3] / "ansible.cfg")
        ssh_args = config["ssh_connection"]["ssh_args"]
        variables = {"ansible_ssh_args": f"{ssh_args} -o ControlPath={tmp_path}/%n"}
        lab.playbook("bench", "--check", cwd=tmp_path, **variables)
        lab.podman("pause", container)
    else:
        lab.podman(*ssh, "stop", "ssh.service", "ssh.socket")
    try:
        done, report = bench(lab, tmp_path, bench_measure=["links"], bench_seconds=0.2, **variables)
    finally:
        if how == "frozen":
            lab.podman("unpause", container)
        else:
            lab.podman(*ssh, "start", "ssh.service")
    (finding,) = [one for one in report["findings"] if one["check"] == "unreachable"]
    assert finding["nodes"] == ["node3"]
    assert finding["sentence"].startswith("node3 did not answer")
    assert "nothing is slow" not in done.output


def test_a_measurement_that_fails_is_told(lab, tmp_path):
    done, report = bench(lab, tmp_path, bench_measure=["local"], bench_user="nosuch")
    sentences = " ".join(one["sentence"] + one["remedy"] for one in report["findings"])
    assert "there is no user 'nosuch'" in sentences, done.output
    assert "bench_user" in sentences
    assert "nothing is slow" not in done.output


def test_settings_that_measure_nothing_are_refused(lab, tmp_path):
    for variable, value in (("bench_measure", []), ("bench_streams", 0), ("bench_seconds", -1)):
        done, report = bench(lab, tmp_path, **{variable: value})
        assert done.code != 0
        assert report is None
        assert variable in done.output
