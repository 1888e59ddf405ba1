"""Runs that really fail from a fault put into a node: explain names the cause from their logs, and the cluster confirms it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from test_check import FAULTS as CHECKED
from test_check import LISTEN, NO_NFT, check, nft, on_nodes, shell, shlex

# Short patience, so that a run that waits in vain ends soon.
INIT = """
import datetime, os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=25))
dist.all_reduce(torch.ones(8))
print("ranks have met", flush=True)
"""
LOADER = (
    INIT
    + """
class Large(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.zeros(8_000_000)

for batch in torch.utils.data.DataLoader(Large(), batch_size=2, num_workers=1):
    pass
"""
)
SAVER = (
    INIT
    + """
torch.save(torch.zeros(16_000_000), os.path.join(os.environ["TORCHFLEET_OUTPUT_DIR"], "model.pt"))
"""
)
# Before the run, the choice of the network would have found it.
CLOSES = f"""
import os, subprocess
if os.environ["TORCHFLEET_NODE"] == "node2":
    subprocess.run({nft("tcp dport 32768-60999 drop")!r}, shell=True, check=True)
"""
# The rank with the higher address connects: it is the one that must not get through.
ONE_WAY = f"""
import os, socket, subprocess
if os.environ["TORCHFLEET_NODE"] == "node1":
    rule = {nft("ip saddr PEER tcp dport 32768-60999 drop")!r}
    subprocess.run(rule.replace("PEER", socket.gethostbyname("node2")), shell=True, check=True)
"""
# As a tunnel on the way does: what it cannot carry is lost without a word.
SMALL_MTU = (
    f"""
import os, socket, subprocess
if os.environ["TORCHFLEET_NODE"] == "node2":
    rule = {nft("ip saddr PEER meta length > 1400 drop", established=False)!r}
    subprocess.run(rule.replace("PEER", socket.gethostbyname("node3")), shell=True, check=True)
"""
    + INIT
    + """
dist.all_reduce(torch.ones(1_000_000))
"""
)
RAISES = (
    INIT
    + """
raise KeyError("learning_rate")
"""
)
LATE = """
import os, time
if os.environ["TORCHFLEET_NODE"] == "node3":
    time.sleep(60)
"""
FILES = (
    INIT
    + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = [open(os.devnull) for _ in range(100)]
"""
)
# As the kernel does it when memory is short: without a word in the log of the rank.
KILLED = (
    INIT
    + """
if os.environ["TORCHFLEET_NODE"] == "node2":
    os.kill(os.getpid(), 9)
dist.all_reduce(torch.ones(8))
"""
)


@dataclass(frozen=True)
class Broken:
    """`confirmed` is what the cluster says of the cause, with `seen` in its words; None: there is nothing to ask."""

    label: str
    evidence: str
    script: str = INIT
    nodes: tuple[str, ...] = ("node2",)
    put: str = "true"
    away: str = "true"
    confirmed: bool | None = True
    seen: str = ""
    variables: dict = field(default_factory=dict)


RUNS = {
    "port taken": Broken(
        "port_in_use",
        "29500",
        nodes=("node1",),
        put=f"systemd-run --quiet --unit=squatter python3 -c {shlex.quote(LISTEN)}",
        away="systemctl stop squatter",
        seen="node1: port 29500 is held by process",
    ),
    "interface that is not there": Broken(
        "gloo_wrong_ifname",
        "eth9",
        variables={"launch_env": {"GLOO_SOCKET_IFNAME": "eth9"}},
        seen="there is no interface eth9",
    ),
    "name on loopback": Broken(
        "hostname_resolves_loopback",
        "127.0.1.1",
        put='cp /etc/hosts /root/hosts.aside; sed -i "1i 127.0.1.1 $(hostname)" /etc/hosts',
        away="cat /root/hosts.aside > /etc/hosts; rm /root/hosts.aside",
        # A single such node connects to the others, who never have to connect to it.
        nodes=("node2", "node3"),
        variables={"nccl_env_extra": {"GLOO_SOCKET_IFNAME": None}},
        seen="resolves to 127.0.1.1",
    ),
    "/dev/shm full": Broken(
        "shm_too_small",
        "",
        LOADER,
        put="mount -o remount,size=40m /dev/shm; head -c 30M /dev/zero > /dev/shm/torch_4711",
        away="rm -f /dev/shm/torch_*; mount -o remount,size=1g /dev/shm",
        seen="node2: /dev/shm has 40 MiB",
    ),
    "disk full": Broken(
        "disk_full",
        "",
        SAVER,
        put="mount -t tmpfs -o size=24m tmpfs /var/lib/torchfleet",
        away="umount -l /var/lib/torchfleet",
        seen="node2: /var/lib/torchfleet has",
    ),
    "firewall drops the ephemeral range": Broken(
        # What ranks see of it is that nothing comes; that a firewall is why, no line says.
        "collective_timeout_desync",
        "Timed out waiting",
        CLOSES + INIT,
        away=NO_NFT,
        seen="node1 and node3: node2 port 46883 cannot be reached (no answer)",
    ),
    "unreachable one way": Broken(
        "collective_timeout_desync",
        "Timed out waiting",
        ONE_WAY + INIT,
        nodes=("node1",),
        away=NO_NFT,
        seen="node2: node1 port 46883 cannot be reached (no answer)",
    ),
    "small MTU on one path": Broken(
        # Small packets come through: the cluster has no more to say of it, playbooks/check.yml has.
        "collective_timeout_desync",
        "Timed out waiting",
        SMALL_MTU,
        away=NO_NFT,
        confirmed=None,
        seen="can be reached",
    ),
    "ssh key missing": Broken(
        "ssh_auth",
        "Permission denied",
        put="mv /root/.ssh/authorized_keys /root/",
        away="mv /root/authorized_keys /root/.ssh/",
        variables={"launch_launcher": "mpirun"},
        confirmed=None,
    ),
    "host key changed": Broken(
        "ssh_auth",
        "",
        nodes=("node1",),
        put=CHECKED["host key changed"].put["node1"],
        away=CHECKED["host key changed"].away["node1"],
        variables={"launch_launcher": "mpirun"},
        confirmed=None,
    ),
    "interpreter missing": Broken(
        "launcher_remote_env",
        "Failed to find executable /opt/torchfleet/venv/bin/python",
        put=CHECKED["interpreter missing"].put["node2"],
        away=CHECKED["interpreter missing"].away["node2"],
        seen="node2: /opt/torchfleet/venv/bin/python is not there",
    ),
    "torch does not load": Broken(
        "missing_shared_lib",
        "libtorch_cpu.so",
        put=CHECKED["torch does not load"].put["node2"],
        away=CHECKED["torch does not load"].away["node2"],
        confirmed=None,
    ),
    "the head's port is dropped": Broken(
        "master_addr_unreachable",
        "29500",
        nodes=("node1",),
        put=nft("tcp dport 29500 drop"),
        away=NO_NFT,
        variables={"launch_launcher": "python"},
        confirmed=None,
    ),
    "one node is late": Broken(
        "missing_ranks",
        "2/3 clients joined",
        LATE + INIT,
        variables={"launch_launcher": "python"},
        confirmed=None,
    ),
    "a name that nobody resolves": Broken(
        "hostname_resolves_loopback",  # which is what gloo then takes, and says
        "",
        put='cp /etc/hosts /root/hosts.aside; sed -i "/$(hostname)/d" /etc/hosts',
        away="cat /root/hosts.aside > /etc/hosts; rm /root/hosts.aside",
        nodes=("node2", "node3"),
        variables={"nccl_env_extra": {"GLOO_SOCKET_IFNAME": None}},
        confirmed=None,
    ),
    "another library before torch's own": Broken(
        "library_conflict",
        "undefined symbol",
        put="mkdir -p /opt/old; cp /lib/x86_64-linux-gnu/libm.so.6 /opt/old/libc10.so",
        away="rm -r /opt/old",
        variables={"launch_env": {"LD_LIBRARY_PATH": "/opt/old"}},
        confirmed=None,
    ),
    "too many open files": Broken("ulimit_nofile", "Too many open files", FILES, confirmed=None),
    "killed by the kernel": Broken("host_oom_sigkill", "SIGKILL", KILLED, confirmed=None),
    "the program's own exception": Broken("user_code", "learning_rate", RAISES, confirmed=None),
}


def explained(folder):
    (path,) = (folder / "runs").glob("*/findings.json")
    return json.loads(path.read_text(encoding="utf-8"))["findings"]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_fails_is_explained_and_confirmed(lab, hosts, tmp_path, name):
    broken = RUNS[name]
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(broken.script, encoding="utf-8")
    try:
        on_nodes(lab, hosts, dict.fromkeys(broken.nodes, broken.put))
        run = lab.playbook(
            "launch",
            cwd=tmp_path,
            launch_script=str(work / "train.py"),
            launch_skip_preflight=True,
            launch_time_limit=120,
            **broken.variables,
        )
        told = lab.playbook("explain", cwd=tmp_path)
    finally:
        on_nodes(lab, hosts, dict.fromkeys(broken.nodes, broken.away))
    assert run.code != 0, run.output
    first = explained(tmp_path)[0]
    assert first["label"] == broken.label, run.output
    assert any(broken.evidence in line["text"] for line in first["evidence"]), first
    assert told.code == 0, told.output
    assert set(told.changed().values()) <= {0}
    if broken.seen:
        assert first["probe"]["result"]["confirmed"] is broken.confirmed, told.output
        assert broken.seen in first["probe"]["result"]["sentence"]
        for done in (run, told):  # at the end of the launch itself, and when asked again
            how = "so it is" if broken.confirmed else "seen"
            assert f"{broken.label}, {how} on the cluster now: " in done.output
        page = next((tmp_path / "runs").glob("*/report.html")).read_text(encoding="utf-8")
        assert ("confirmed on the cluster: " in page) is bool(broken.confirmed)


@pytest.mark.parametrize("launcher", ["torchrun", "python"])
def test_a_run_that_ends_well_gives_no_finding(lab, tmp_path, launcher):
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(
        INIT + "\ndist.destroy_process_group()\nsys.stdout.flush()\nos._exit(0)\n", encoding="utf-8"
    )
    run = lab.playbook("launch", cwd=tmp_path, launch_script=str(work / "train.py"), launch_launcher=launcher)
    assert run.code == 0, run.output
    told = lab.playbook("explain", cwd=tmp_path)
    assert told.code == 0, told.output
    assert [finding["label"] for finding in explained(tmp_path)] == ["none"], told.output


def test_a_cause_that_is_gone_is_said_to_be_gone(lab, hosts, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(INIT, encoding="utf-8")
    broken = RUNS["port taken"]
    try:
        shell(hosts["node1"], broken.put)
        lab.playbook("launch", cwd=tmp_path, launch_script=str(work / "train.py"), launch_skip_preflight=True)
    finally:
        shell(hosts["node1"], broken.away)
    told = lab.playbook("explain", cwd=tmp_path)
    result = explained(tmp_path)[0]["probe"]["result"]
    assert result["confirmed"] is False
    assert "nobody listens on port 29500" in result["sentence"]
    assert "port_in_use, not so on the cluster now: " in told.output


def test_logs_of_other_origin_ask_nobody(lab, tmp_path):
    (tmp_path / "other.log").write_text("RuntimeError: Address already in use\n", encoding="utf-8")
    done = lab.playbook("explain", cwd=tmp_path, explain_path=str(tmp_path / "other.log"))
    assert done.code == 0, done.output
    assert "port_in_use" in done.output
    assert "on the cluster now" not in done.output
    done = lab.playbook("explain", cwd=tmp_path, explain_path=str(tmp_path / "other.log"), explain_probe=True)
    assert "port_in_use, not so on the cluster now: " in done.output


def test_what_runs_leave_on_the_nodes_is_no_finding(lab, tmp_path):
    done, report = check(lab, tmp_path)
    assert report["findings"] == [], done.output
