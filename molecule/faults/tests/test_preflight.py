"""What stands in the way of a run is named before anything starts."""

from __future__ import annotations

import json

import pytest

SCRIPT = "import os, time\nprint('hello from', os.environ['RANK'])\ntime.sleep(float(os.sys.argv[1]))\n"
SERVER = "import socket, time; s = socket.create_server(('', 29500)); time.sleep(600)"


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "hello.py").write_text(SCRIPT, encoding="utf-8")
    return folder / "hello.py"


def launch(lab, tmp_path, script, seconds=0, **variables):
    done = lab.playbook(
        "launch",
        cwd=tmp_path,
        launch_script=str(script),
        launch_args=[str(seconds)],
        launch_user="alice",
        **variables,
    )
    return done, " ".join(done.output.split())


def manifests(tmp_path):
    return [json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("runs/*/manifest.json")]


def test_a_run_on_the_same_nodes_is_refused_unless_it_is_allowed(lab, tmp_path, script):
    done, _words = launch(lab, tmp_path, script, 1000, launch_detach=True, launch_run_id="first")
    assert done.code == 0, done.output
    try:
        done, words = launch(lab, tmp_path, script, launch_run_id="second")
        assert done.code != 0
        assert "node2: run first of alice is running here" in words
        done, words = launch(
            lab, tmp_path, script, launch_run_id="third", launch_allow_overlap=True, launch_port_auto=True
        )
        assert done.code == 0, done.output
        assert "port 29501 is taken in its place" in words
        assert " running " in lab.playbook("status", run_id="first").output
    finally:
        assert lab.playbook("stop", run_id="first").code == 0


def test_two_runs_on_disjoint_nodes_are_kept_apart(lab, hosts, tmp_path, script):
    """Each by an inventory of its own nodes, at the same time, on the same port."""
    left, right = lab.inventory_of("node1"), lab.inventory_of("node2", "node3")
    for name, inventory in (("left", left), ("right", right)):
        done, _words = launch(lab, tmp_path, script, 1000, inventory=inventory, launch_detach=True, launch_run_id=name)
        assert done.code == 0, done.output
    try:
        pids = set(hosts["node2"].check_output("pgrep -u alice -f hello.py").split())
        assert lab.playbook("stop", inventory=left, run_id="left").code == 0
        assert " running " in lab.playbook("status", inventory=right, run_id="right").output
        assert pids <= set(hosts["node2"].check_output("pgrep -u alice -f hello.py").split())
        assert hosts["node1"].run("pgrep -u alice -f hello.py").rc == 1
    finally:
        for name, inventory in (("left", left), ("right", right)):
            lab.playbook("stop", inventory=inventory, run_id=name)


def test_what_is_left_of_a_dead_run_is_ended_and_a_strangers_process_is_named(lab, hosts, tmp_path, script):
    host = hosts["node1"]
    host.check_output(f'su alice -c "TORCHFLEET_RUN_ID=gone nohup python3 -c \\"{SERVER}\\" >/dev/null 2>&1 &"')
    done, words = launch(lab, tmp_path, script)
    assert done.code == 0, done.output
    assert "left of run gone" in words
    host.check_output(f'su bob -c "nohup python3 -c \\"{SERVER}\\" >/dev/null 2>&1 &"')
    pid = host.check_output("pgrep -u bob -f create_server")
    try:
        done, words = launch(lab, tmp_path, script)
        assert done.code != 0
        assert f"port 29500 is held by process {pid} (python3" in words
        assert "set torchfleet_master_port to 29501, which is free" in words
        assert host.process.filter(user="bob", comm="python3")
    finally:
        host.run(f"kill {pid}")


def test_a_preflight_that_is_skipped_is_in_the_manifest(lab, tmp_path, script):
    done, words = launch(lab, tmp_path, script, launch_min_free_bytes=1 << 50)
    assert done.code != 0
    assert "wanted 1024.0 TiB for logs and checkpoints" in words
    assert not manifests(tmp_path)
    done, _words = launch(lab, tmp_path, script, launch_min_free_bytes=1 << 50, launch_skip_preflight=True)
    assert done.code == 0, done.output
    (manifest,) = manifests(tmp_path)
    assert manifest["preflight"]["skipped"]
    assert len([note for note in manifest["preflight"]["notes"] if "1024.0 TiB" in note]) == 3


TORCH = "$(echo /opt/torchfleet/venv/lib/python3*/site-packages/torch-*.dist-info)/METADATA"


@pytest.mark.parametrize(
    ("put", "away", "said"),
    [
        (
            'cp /etc/hosts /root/hosts.aside; sed -i "1i 127.0.1.1 $(hostname)" /etc/hosts',
            "cat /root/hosts.aside > /etc/hosts; rm /root/hosts.aside",
            "node2 resolves to 127.0.1.1",
        ),
        (
            f"cp -p {TORCH} /root/torch.aside; sed -i 's/^Version: .*/Version: 2.0.1/' {TORCH}",
            f"cat /root/torch.aside > {TORCH}; rm /root/torch.aside",
            "torch differs between the nodes (2.0.1 on node2; 2.13.0",
        ),
    ],
    ids=["a name on loopback", "another torch on one node"],
)
def test_what_differs_on_one_node_is_named_before_anything_starts(lab, hosts, tmp_path, script, put, away, said):
    try:
        hosts["node2"].check_output(put)
        done, words = launch(lab, tmp_path, script)
    finally:
        hosts["node2"].check_output(away)
    assert done.code != 0
    assert said in words
    assert not manifests(tmp_path)
