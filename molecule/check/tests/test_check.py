"""Faults really put into the nodes, one after the other: each is found, named and answered, and nothing else is said."""

from __future__ import annotations

import base64
import json
import re
import shlex
import time
from dataclasses import dataclass, field

import pytest
import recorded

# Not every fault shows in torch, whose import takes seconds on each node.
QUICK = {"check_import_torch": False}
# /etc/environment is read when a session begins, and Ansible keeps the one that it has.
NEW_SESSION = {"ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none"}
VENV = "/opt/torchfleet/venv"
SITE = f"{VENV}/lib/python3.11/site-packages"


def write(path: str, text: str) -> str:
    """A shell command that writes a file."""
    packed = base64.b64encode(text.encode()).decode()
    return f"mkdir -p $(dirname {path}); echo {packed} | base64 -d > {path}"


def nft(*rules: str, established: bool = True) -> str:
    """A firewall: what is already connected may go on."""
    lines = (["ct state established,related accept"] if established else []) + list(rules)
    body = "; ".join(lines)
    return f"nft 'table inet lab {{ chain input {{ type filter hook input priority 0; policy accept; {body}; }} ; }}'"


NO_NFT = "nft delete table inet lab"
PACKAGE_NAME = "cuda-drivers"


@dataclass(frozen=True)
class Fault:
    """`put` and `away` are shell commands of a node; `found` the check, its words, and words of the remedy."""

    put: dict[str, str]
    away: dict[str, str]
    check: str
    words: str
    remedy: str
    severity: str = "fail"
    also: tuple[str, ...] = ()
    variables: dict = field(default_factory=dict)


def on(node: str, put: str, away: str, check: str, words: str, remedy: str, **rest) -> Fault:
    return Fault({node: put}, {node: away}, check, words, remedy, **rest)


def everywhere(put: dict[str, str], common: str, away: str, *rest, **more) -> Fault:
    """The same on all nodes, and something else on one."""
    nodes = ("node1", "node2", "node3")
    return Fault(
        {node: f"{common}; {put.get(node, 'true')}" for node in nodes}, dict.fromkeys(nodes, away), *rest, **more
    )


def gpus(words: str, check: str, remedy: str, code: int = 0, answer: str | None = None, **rest) -> Fault:
    """A node whose nvidia-smi answers with a recorded fault, among healthy ones."""
    tool = f"{write('/usr/local/bin/nvidia-smi', recorded.TOOL)}; chmod +x /usr/local/bin/nvidia-smi"
    common = f"{tool}; {write('/etc/recorded/query.xml', recorded.query())}; echo 0 > /etc/recorded/code"
    smi = {k: rest.pop(k) for k in list(rest) if k in recorded.HEALTHY or k in ("gpus", "driver")}
    faulty = write("/etc/recorded/query.xml", answer if answer is not None else recorded.query(**smi))
    return everywhere(
        {"node2": f"{faulty}; echo {code} > /etc/recorded/code"},
        common,
        "rm -rf /usr/local/bin/nvidia-smi /etc/recorded",
        check,
        words,
        remedy,
        **rest,
    )


LISTEN = (
    "import socket, time; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
    's.bind(("0.0.0.0", 29500)); s.listen(); time.sleep(3600)'
)
SCRIPT = "/var/lib/torchfleet/work/digits/train.py"

FAULTS = {
    "unreachable one way": on(
        "node2",
        nft("ip saddr {node1} tcp dport != 22 drop", established=True),
        NO_NFT,
        "reachability",
        r"node1 does not reach node2 at 10\.\S+ on eth1 \(no answer\)",
        r"firewall accept TCP from node1.*has the rule `ip saddr \S+ tcp dport != 22 drop`",
    ),
    "small MTU on one path": on(
        "node2",
        # As a tunnel on the way does: what is larger than it can carry is lost without a word.
        nft("ip saddr {node3} meta length > 1400 drop", established=False),
        NO_NFT,
        "reachability",
        r"node3 does not reach node2 at .* full-size packets are lost: above 1400 bytes",
        r"set the MTU of eth1 on all nodes to 1400",
        also=("ssh",),
    ),
    "MTU of one interface": on(
        "node2",
        "ip link set eth1 mtu 1400",
        "ip link set eth1 mtu 1500",
        "same-mtu",
        r"node2: the interface on the training network has MTU 1400, node1 and node3 have 1500|"
        r"node2: the interface on the training network has MTU 1400, the other 2 nodes have 1500",
        r"mtu 1500",
        severity="warn",
    ),
    "firewall drops the ephemeral range": on(
        "node2",
        nft("tcp dport 32768-60999 drop"),
        NO_NFT,
        "reachability",
        r"node1, node3 do not reach node2 at",
        r"firewall accept TCP.*`tcp dport 32768-60999 drop`",
    ),
    "the master port dropped": on(
        "node1",
        nft("tcp dport 29500 drop"),
        NO_NFT,
        "firewall-port",
        r"node1: the firewall has a rule on the master port 29500: .*tcp dport 29500 drop",
        r"take the rule out, or set torchfleet_master_port",
        severity="warn",
    ),
    "address gone": on(
        "node3",
        "ip address del {node3}/24 dev eth1",
        "ip address add {node3}/24 dev eth1",
        "address",
        r"node3 does not own 10\.\d+\.1\.13",
        r"torchfleet_address to one of eth0",
        also=("ssh", "reachability"),
    ),
    "master port taken": on(
        "node1",
        f"systemd-run --quiet --unit=squatter python3 -c {shlex.quote(LISTEN)}",
        "systemctl stop squatter",
        "master-port",
        r"node1: port 29500 is held by process \d+ of root \(.*python3.*\)",
        r"torchfleet_master_port: 29501",
    ),
    "name on loopback": on(
        "node2",
        "cp /etc/hosts /root/hosts.aside; sed -i '1i 127.0.1.1 node2' /etc/hosts",
        "cat /root/hosts.aside > /etc/hosts; rm /root/hosts.aside",
        "name-loopback",
        r"node2: the name node2 resolves to 127\.0\.1\.1",
        r"provision\.yml -t hosts",
    ),
    "host name changed": on(
        "node3",
        "hostname gpu-rack7",
        "hostname node3",
        "host-name",
        r"node3 bears the host name gpu-rack7",
        r"hosts_hostname: gpu-rack7",
        severity="warn",
    ),
    "other torch on one node": on(
        "node3",
        # A wheel of nothing that bears another version, in place of the real torch, which is put aside.
        f"cd {SITE} && mkdir /root/aside && mv torch torch-*.dist-info /root/aside/ && mkdir torch torch-2.12.0.dist-info"
        " && touch torch/__init__.py && printf 'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.12.0\\n'"
        " > torch-2.12.0.dist-info/METADATA",
        f"cd {SITE} && rm -rf torch torch-2.12.0.dist-info && mv /root/aside/* . && rmdir /root/aside",
        "same-torch",
        r"node3 has torch 2\.12\.0, node1 and node2 have 2\.13\.0",
        r"`pytorch_version: 2\.13\.0\S*` into the inventory.*provision\.yml -t pytorch",
    ),
    "torch does not load": on(
        "node2",
        f"mv {SITE}/torch/lib/libtorch_cpu.so /root/",
        f"mv /root/libtorch_cpu.so {SITE}/torch/lib/",
        "torch-loads",
        r"node2: torch cannot be imported: .*libtorch_cpu\.so",
        r"provision\.yml -t pytorch",
        variables={"check_import_torch": True},
    ),
    "interpreter missing": on(
        "node2",
        f"mv {VENV}/bin/python /root/python.aside",
        f"mv /root/python.aside {VENV}/bin/python",
        "interpreter",
        r"node2: the interpreter of the training cannot be used: /opt/torchfleet/venv/bin/python does not exist",
        r"torchfleet_python",
    ),
    "LD_LIBRARY_PATH shadows NCCL": on(
        "node2",
        # Two copies of some library under NCCL's name: one where the wheel brings it, one in the way.
        f"mkdir -p {SITE}/nvidia/nccl/lib /opt/old/lib; cp /usr/lib/x86_64-linux-gnu/libz.so.1 {SITE}/nvidia/nccl/lib/libnccl.so.2;"
        "cp /usr/lib/x86_64-linux-gnu/libz.so.1 /opt/old/lib/libnccl.so.2; echo LD_LIBRARY_PATH=/opt/old/lib >> /etc/environment",
        f"rm -r {SITE}/nvidia/nccl /opt/old; sed -i /LD_LIBRARY_PATH/d /etc/environment",
        "library-shadowed",
        r"node2: LD_LIBRARY_PATH puts /opt/old/lib/libnccl\.so\.2 before the nccl that torch brings",
        r"out of LD_LIBRARY_PATH",
        variables=NEW_SESSION,
    ),
    "memlock low": on(
        "node2",
        "echo 'root - memlock 64' > /etc/security/limits.d/low.conf",
        "rm /etc/security/limits.d/low.conf",
        "same-memlock",
        r"node2: ssh sessions may lock 64 KiB of memory, on node1 and node3 8 MiB",
        r"memlock unlimited",
        severity="warn",
    ),
    "few open files": on(
        "node3",
        "echo 'root - nofile 512' > /etc/security/limits.d/low.conf",
        "rm /etc/security/limits.d/low.conf",
        "nofile",
        r"node3: ssh sessions may open 512 files at most, wanted 4096",
        r"nofile 1048576",
        severity="warn",
        also=("nofile-soft",),
    ),
    "/dev/shm small": on(
        "node2",
        "mount -o remount,size=64m /dev/shm",
        "mount -o remount,size=1g /dev/shm",
        "shm-size",
        r"node2: /dev/shm has 64 MiB, wanted 1 GiB",
        r"remount,size=8g /dev/shm",
        severity="warn",
    ),
    "/dev/shm full": on(
        "node2",
        "mount -o remount,size=80m /dev/shm; head -c 70M /dev/zero > /dev/shm/torch_4711",
        "rm /dev/shm/torch_4711; mount -o remount,size=1g /dev/shm",
        "shm-free",
        r"node2: 10 MiB are free in /dev/shm",
        r"remove what earlier runs left",
        also=("shm-size",),
    ),
    "shell that prints": on(
        "node2",
        "cp /root/.bashrc /root/bashrc.aside; sed -i '1i echo Welcome to $(hostname)' /root/.bashrc",
        "cat /root/bashrc.aside > /root/.bashrc; rm /root/bashrc.aside",
        "shell-noise",
        r"node2: the shell of an ssh session prints by itself \(Welcome to node2\)",
        r"case \$- in",
    ),
    "default accelerate configuration": on(
        "node3",
        write(
            "/root/.cache/huggingface/accelerate/default_config.yaml",
            "compute_environment: LOCAL_MACHINE\nnum_machines: 2\nmachine_rank: 0\nmain_process_ip: 192.168.7.7\n",
        ),
        "rm -r /root/.cache/huggingface",
        "accelerate-default",
        r"node3: /root/.cache/huggingface/accelerate/default_config.yaml steers .*main_process_ip: 192\.168\.7\.7",
        r"remove /root/.cache",
        severity="warn",
    ),
    "clock off": on(
        "node3",
        # All containers share the kernel's clock: libfaketime shows every session of this node another one.
        "printf 'LD_PRELOAD=%s\\nFAKETIME=+40\\n' $(find /usr/lib -name libfaketime.so.1) >> /etc/environment",
        "sed -i '/LD_PRELOAD/d; /FAKETIME/d' /etc/environment",
        "clock",
        r"node3: the clock is (39|40)\.\d s ahead of that of the other nodes",
        r"systemd-timesyncd",
        variables=NEW_SESSION,
    ),
    "ssh key missing": on(
        "node3",
        "mv /root/.ssh/authorized_keys /root/",
        "mv /root/authorized_keys /root/.ssh/",
        "ssh",
        r"node1, node2 and node3 cannot log in to node3: .*Permission denied \(publickey",
        r"provision\.yml -t ssh_trust",
    ),
    "host key changed": on(
        "node1",
        # What the node knows of its peer is from before the peer's reinstallation.
        "cp /root/.ssh/known_hosts /root/; ssh-keygen -q -t ed25519 -N '' -f /root/k;"
        "ssh-keygen -q -R node2 -f /root/.ssh/known_hosts; ssh-keygen -q -R {node2} -f /root/.ssh/known_hosts;"
        "echo \"node2,{node2} $(cut -d' ' -f1,2 /root/k.pub)\" >> /root/.ssh/known_hosts",
        "cat /root/known_hosts > /root/.ssh/known_hosts; rm -f /root/known_hosts* /root/k*",
        "ssh",
        r"node1 cannot log in to node2: its host key has changed",
        r"node2 has another host key than the one known.*ssh_trust",
    ),
    "slow link": on(
        "node3",
        "tc qdisc add dev eth1 root tbf rate 50mbit burst 64kb latency 50ms",
        "tc qdisc del dev eth1 root",
        "slow-link",
        r"node3 sends \d+ Mb/s at best with any peer, where [\d.]+ Gb/s are usual",
        r"tc qdisc",
        severity="warn",
        variables={"check_bandwidth_seconds": 0.3},
    ),
    "disk full": on(
        "node2",
        "mkdir -p /var/lib/torchfleet; mount -t tmpfs -o size=16m tmpfs /var/lib/torchfleet",
        "umount /var/lib/torchfleet",
        "disk-space",
        r"node2: 16 MiB are free on /var/lib/torchfleet .*wanted 2 GiB",
        r"torchfleet_root",
    ),
    "no inodes": on(
        "node2",
        "mkdir -p /var/lib/torchfleet; mount -t tmpfs -o size=4g,nr_inodes=300 tmpfs /var/lib/torchfleet;"
        "cd /var/lib/torchfleet && touch $(seq 298)",
        "umount /var/lib/torchfleet",
        "disk-inodes",
        r"node2: 0\.\d % of the inodes are free on /var/lib/torchfleet",
        r"df -i",
    ),
    "stale run": on(
        "node2",
        "systemd-run --quiet --unit=left --setenv=TORCHFLEET_RUN_ID=digits-7 sleep 3600",
        "systemctl stop left",
        "stale-run",
        r"node2: 1 processes of run digits-7 are left without their supervisor",
        r"systemctl stop torchfleet-digits-7\.service",
    ),
    "other script on one node": everywhere(
        {"node3": f"echo 'print(2)' > {SCRIPT}"},
        f"mkdir -p $(dirname {SCRIPT}); echo 'print(1)' > {SCRIPT}",
        f"rm -r $(dirname {SCRIPT})",
        "revision",
        r"node3: /var/lib/torchfleet/work/digits differs from the other nodes in train\.py",
        r"launch\.yml",
    ),
    "contradicting NCCL variables": on(
        "node2",
        "echo 'export NCCL_IB_DISABLE=0' > /etc/profile.d/zz-old.sh",
        "rm /etc/profile.d/zz-old.sh",
        "nccl-contradiction",
        r"node2: NCCL_IB_DISABLE is set to .*0 by /etc/profile.d/zz-old.sh:1",
        r"nccl_env_extra",
        severity="warn",
    ),
    "NCCL variable on one node": on(
        "node3",
        "echo NCCL_ALGO=Tree > /root/.nccl.conf",
        "rm /root/.nccl.conf",
        "same-nccl-variables",
        r"node3: NCCL reads NCCL_ALGO=Tree, on the other nodes not set",
        r"nccl_env",
    ),
    "NCCL interface that is not there": on(
        "node1",
        "echo NCCL_SOCKET_IFNAME=ib0 > /root/.nccl.conf",
        "rm /root/.nccl.conf",
        "nccl-interface",
        r"node1: NCCL_SOCKET_IFNAME is ib0, and there is no such interface",
        r"nccl_env",
        also=("nccl-contradiction",),
    ),
    "pending reboot": on(
        "node2",
        "touch /run/reboot-required",
        "rm /run/reboot-required",
        "reboot",
        r"node2 is waiting for a reboot",
        r"reboot it between two runs",
        severity="warn",
    ),
    "unattended upgrade of the driver": on(
        "node2",
        # A package that bears the driver's name and holds nothing; the tool itself is not needed to be found.
        f"mkdir -p /root/p/DEBIAN && printf 'Package: {PACKAGE_NAME}\\nVersion: 580.65.06-1\\nArchitecture: all\\n"
        "Maintainer: lab\\nDescription: holds nothing\\n' > /root/p/DEBIAN/control && dpkg-deb -b /root/p /root/p.deb >&2 &&"
        "dpkg -i /root/p.deb >&2; touch /usr/bin/unattended-upgrade;"
        "echo 'APT::Periodic::Unattended-Upgrade \"1\";' > /etc/apt/apt.conf.d/20auto-upgrades",
        f"dpkg -P {PACKAGE_NAME} >&2; rm -r /root/p /root/p.deb /usr/bin/unattended-upgrade /etc/apt/apt.conf.d/20auto-upgrades",
        "unattended-upgrades",
        r"node2: unattended-upgrades may replace the driver in the middle of a run \(cuda-drivers\)",
        r"apt-mark hold cuda-drivers",
        severity="warn",
    ),
    "Xid in the kernel log": on(
        "node2",
        f"{write('/etc/recorded/log', recorded.KERNEL_LOG)}; printf '#!/bin/sh\\ncat /etc/recorded/log\\n' > /usr/local/bin/dmesg;"
        "chmod +x /usr/local/bin/dmesg",
        "rm -r /usr/local/bin/dmesg /etc/recorded",
        "xid",
        r"node2: Xid 79 of GPU 0000:1b:00, .* ago: the GPU has fallen off the bus",
        r"reboot node2",
    ),
    "uncorrected ECC errors": gpus(
        r"node2: GPU 1 \(0000:c3:00\.0\) has had 3 uncorrected ECC errors", "gpu-health", r"reset it", uncorrected="3"
    ),
    "rows to be remapped": gpus(r"node2: GPU 1 .* waits for bad memory rows", "gpu-health", r"reset it", remap="Yes"),
    "GPU too hot": gpus(
        r"node2: GPU 1 .* is slowed down by its hardware", "gpu-health", r"fans", severity="warn", thermal="Active"
    ),
    "driver without a reboot": gpus(
        r"node2: the loaded kernel module and the NVIDIA libraries are of different versions",
        "gpu-driver",
        r"reboot",
        code=18,
        answer=recorded.MISMATCH,
        also=("same-gpu-count",),
    ),
    "other driver": gpus(
        r"node2 has driver 550\.54\.15, node1 and node3 have 580\.65\.06",
        "same-driver",
        r"580\.65\.06",
        severity="warn",
        driver="550.54.15",
    ),
    "GPU missing": gpus(
        r"node2 has GPUs: 1, node1 and node3 have 2", "same-gpu-count", r"torchfleet_slots", severity="warn", gpus=1
    ),
    "MIG on one node": gpus(
        r"node2 has MIG mode off, on, node1 and node3 have off",
        "same-mig",
        r"-mig 0",
        mig="Enabled",
        also=("gpu-health",),
    ),
    "ECC off on one node": gpus(
        r"node2 has ECC off, on, node1 and node3 have on",
        "same-ecc",
        r"nvidia-smi -e 1",
        severity="warn",
        ecc="Disabled",
    ),
    "persistence off": gpus(
        r"node2: persistence mode is off on GPU 1",
        "persistence",
        r"nvidia-persistenced",
        severity="warn",
        persistence="Disabled",
    ),
    "PCIe at half width": gpus(
        r"node2: the PCIe link of GPU 1 0000:c3:00\.0 runs at x8; card and slot can x16",
        "pcie-link",
        r"reseat",
        severity="warn",
        width="8",
    ),
    "process on a GPU": gpus(
        r"node2: GPU 1 is in use by process 999999 .*python3, 16\.6 GiB",
        "gpu-process",
        r"kill 999999",
        severity="warn",
        processes=recorded.process(999999),
    ),
}


def shell(host, command: str) -> None:
    done = host.run(f"bash -c {shlex.quote(command)}")
    assert done.rc == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def on_nodes(lab, hosts, commands: dict[str, str]) -> None:
    """Run each node's command; `{node1}` in it stands for that node's address."""
    for node, command in commands.items():
        for peer, values in lab.nodes.items():
            command = command.replace(f"{{{peer}}}", values["torchfleet_address"])
        shell(hosts[node], command)


def check(lab, folder, **variables):
    """Run the playbook as a user does, and read its report."""
    done = lab.playbook("check", "--forks", "16", cwd=folder, **{**QUICK, **variables})
    report = folder / "reports" / "check.json"
    assert report.exists(), done.output
    return done, json.loads(report.read_text(encoding="utf-8"))


def test_healthy_nodes_give_no_finding(lab, tmp_path):
    done, report = check(lab, tmp_path, check_import_torch=True, check_bandwidth_seconds=0.3)
    assert report["findings"] == [], done.output
    assert (done.code, report["status"]) == (0, 0)
    assert set(done.changed().values()) == {0}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(lab, hosts, tmp_path, name):
    fault = FAULTS[name]
    try:
        on_nodes(lab, hosts, fault.put)
        done, report = check(lab, tmp_path, **fault.variables)
    finally:
        on_nodes(lab, hosts, fault.away)
    words = "\n".join(f"{one['check']}: {one['sentence']} | {one['remedy']}" for one in report["findings"])
    hits = [
        one for one in report["findings"] if one["check"] == fault.check and re.search(fault.words, one["sentence"])
    ]
    assert hits, words or done.output
    assert re.search(fault.remedy, hits[0]["remedy"]), words
    assert hits[0]["severity"] == fault.severity
    others = {one["check"] for one in report["findings"] if one["severity"] != "info"} - {fault.check, *fault.also}
    assert not others, words
    gravest = {"fail": 2, "warn": 1, "info": 0}[report["findings"][0]["severity"]]
    assert report["status"] == gravest
    assert done.code == (2 if gravest == 2 else 0)
    assert hits[0]["sentence"] in done.output


def test_warnings_fail_where_asked(lab, hosts, tmp_path):
    hosts["node2"].run_test("touch /run/reboot-required")
    try:
        done, report = check(lab, tmp_path, check_fail_on="warn")
        assert (done.code, report["status"]) == (2, 1)
        done, report = check(lab, tmp_path, check_skip=["reboot"])
        assert (done.code, report["findings"]) == (0, [])
        assert report["previous"]["gone"] == ["node2 is waiting for a reboot"]
    finally:
        hosts["node2"].run_test("rm /run/reboot-required")


def test_a_node_that_does_not_answer_costs_a_line(lab, tmp_path):
    container = f"{lab.prefix}-node3"
    lab.podman("pause", container)
    try:
        began = time.monotonic()
        done, report = check(lab, tmp_path)
        took = time.monotonic() - began
    finally:
        lab.podman("unpause", container)
    found = {one["check"]: one for one in report["findings"]}
    assert set(found) == {"unreachable"}, done.output
    assert found["unreachable"]["nodes"] == ["node3"]
    assert [node["name"] for node in report["nodes"] if node["reached"]] == ["node1", "node2"]
    assert "UNREACHABLE!" not in done.output
    assert took < 60


def test_checks_of_the_inventory(lab, hosts, tmp_path):
    own = tmp_path / "checks"
    own.mkdir()
    (own / "mine.yml").write_text(
        """
- id: rack
  title: rack
  file: /etc/rack
  rule: {same: true}
  severity: fail
  sentence: "{nodes} {is} in rack {value}, {others} in {usual}"
  remedy: move it
- id: swap
  command: [cat, /proc/sys/vm/swappiness]
  rule: {at_most: 100}
- id: shm-size
  rule: {at_least: 4294967296}
""",
        encoding="utf-8",
    )
    for number, host in enumerate(hosts.values()):
        host.run_test(f"echo r{number // 2} > /etc/rack")
    try:
        done, report = check(lab, tmp_path, check_dir=str(own))
    finally:
        for host in hosts.values():
            host.run_test("rm /etc/rack")
    found = {one["check"]: one["sentence"] for one in report["findings"]}
    assert found.pop("rack") == "node3 is in rack r1, node1 and node2 in r0"
    assert found.pop("shm-size").startswith("node1, node2 and node3: /dev/shm has 1 GiB, wanted 4 GiB")
    assert found == {}
    assert done.code == 2


def test_a_misspelt_check_is_refused_before_anything_is_asked(lab, tmp_path):
    (tmp_path / "mine.yml").write_text("- {id: rack, fiel: /etc/rack, rule: {same: true}}\n", encoding="utf-8")
    done = lab.playbook("check", cwd=tmp_path, check_dir=str(tmp_path))
    assert done.code == 2
    assert "mine.yml, check rack: fiel is unknown: did you mean file?" in " ".join(done.output.split())
