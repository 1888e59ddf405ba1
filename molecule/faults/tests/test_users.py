"""Two users on the same machines: neither can use a run to get at what is not theirs."""

from __future__ import annotations

import json

ROOT = "/var/lib/torchfleet"
SCRIPT = """
import os, pathlib, shutil, time
here = pathlib.Path(os.environ["TORCHFLEET_RUN_DIR"])
if os.environ["RANK"] == "0":
    (here / "agent.py").write_text("open('/root/owned', 'w')")
    (here / "rank.py").write_text("open('/root/owned', 'w')")
    (here / "logs" / "rank-7.log").symlink_to("/etc/shadow")
    (here / "ranks" / "rank-7.json").symlink_to("/etc/shadow")
print("I am", os.getuid(), "and can write the supervisor:", os.access(os.environ["SHIM"], os.W_OK))
time.sleep(2)
"""


def test_a_run_gives_its_user_no_more_rights(lab, hosts, tmp_path):
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "evil.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = lab.playbook(
        "launch",
        cwd=tmp_path,
        launch_script=str(script),
        launch_user="alice",
        launch_env={"SHIM": f"{ROOT}/lib"},
    )
    assert done.code == 0, done.output
    folder = next(tmp_path.glob("runs/*/manifest.json")).parent
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["state"] == "succeeded"
    uid = hosts["node1"].user("alice").uid
    assert f"I am {uid} and can write the supervisor: False" in (folder / "node1" / "rank-0.log").read_text()
    assert "root:" not in "".join(path.read_text() for path in folder.rglob("*.log"))
    for host in hosts.values():
        assert not host.file("/root/owned").exists
        for path in host.check_output(f"find {ROOT}/lib").split():
            assert (host.file(path).user, host.file(path).mode & 0o022) == ("root", 0)
        run = host.file(f"{ROOT}/runs/{folder.name}")
        assert (run.user, run.mode) == ("alice", 0o700)
        assert host.run(f"su bob -c 'ls {ROOT}/runs/{folder.name}'").rc != 0
