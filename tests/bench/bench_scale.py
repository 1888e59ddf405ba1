# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What names, trust and the network's settings, and a tree for all nodes, cost against the number of nodes, on light nodes
(containers with sshd alone); beside the plain ways people use today."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))
from light import LightNodes

SIZES = tuple(int(size) for size in os.environ.get("TORCHFLEET_BENCH_NODES", "4 12 24 48").split())
BY_HAND = 12  # nodes with which the loops over all pairs are run to their end; their cost grows with the square
# All nodes share this kernel's table of neighbours: 48 that know one another need more than the usual 1,024 entries.
NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
PREFIX = "tfbench-scale"
FILES = 20000
RATE = "100mbit"
MEGABYTES = 32
# Each login of the mesh is given longer than on nodes that have cores of their own.
ROLES = ("-t", "hosts,ssh_trust,nccl_env,launch", "-e", "ssh_trust_verify_timeout=60")


@dataclass(frozen=True)
class Cost:
    """Seconds of the clock, CPU seconds of the controller (the nodes' are not in it), and its processes' memory in MiB at
    their most, each shared page counted once (PSS)."""

    seconds: float
    cpu: float
    memory: float
    output: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s"


def memory_of(top: int) -> float:
    """MiB of a process and all below it. Ansible's workers share most of their pages."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    family, size = {top}, 0
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
                size += int(line.split()[1]) if line.startswith("Pss:") else 0
    return size / 1024


def run(command: list[str], **options: Any) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    text = options.pop("input", None)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    most, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(2):
            most = max(most, memory_of(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate(text)[0]
    seconds = time.monotonic() - began
    done.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:4])}\n{output[-5000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, cpu, most, output)


def playbook(nodes: LightNodes, name: str, *options: str, **variables: Any) -> Cost:
    path = name if name.endswith(".yml") else str(ROOT / "playbooks" / f"{name}.yml")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), path, "-i", str(nodes.inventory), *options]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return run([*command, "-e", json.dumps(variables)], cwd=ROOT, env=environment)


def calls(cost: Cost) -> int:
    """Remote calls to one node, from the connection's own words at -vvv."""
    return max(Counter(re.findall(r"^<(\S+)> SSH: EXEC", cost.output, re.MULTILINE)).values())


def changed(cost: Cost) -> set[str]:
    return set(re.findall(r"^n\d+\s+: ok=\d+\s+changed=(\d+)", cost.output, re.MULTILINE))


def trust_by_hand(nodes: LightNodes) -> Cost:
    """A key on each node, then ssh-keyscan and ssh-copy-id from each to each, one after the other."""
    names = nodes.names
    lines = ["set -e"]
    for one in names:
        at = " ".join(nodes.ssh(one)) + " -n"
        lines.append(f"{at} 'rm -rf ~/.ssh/id_*; ssh-keygen -q -t ed25519 -N \"\" -f ~/.ssh/id_ed25519' 2>/dev/null")
    # ssh-copy-id needs a way in already; on real machines it is a password typed each time.
    for one in names:
        run(
            [*nodes.ssh(one), "cat > ~/.ssh/first; chmod 600 ~/.ssh/first"], input=nodes.key.read_text(encoding="utf-8")
        )
    for one in names:
        at = " ".join(nodes.ssh(one)) + " -n"
        for other in names:
            address = nodes.address[other]
            lines.append(
                f"{at} 'ssh-keyscan -t ed25519 {address} >> ~/.ssh/known_hosts; "
                f"ssh-copy-id -f -i ~/.ssh/id_ed25519.pub -o IdentityFile=~/.ssh/first root@{address}' >/dev/null 2>&1"
            )
    return run(["sh", "-c", "\n".join(lines)])


def names_by_hand(nodes: LightNodes, folder: Path) -> Cost:
    """/etc/hosts with `lineinfile`, a task item per member on every member."""
    play = folder / "lineinfile.yml"
    play.write_text(
        "- hosts: train\n  gather_facts: false\n  tasks:\n    - ansible.builtin.lineinfile:\n        path: /etc/hosts\n"
        '        line: "{{ hostvars[item].torchfleet_address }} {{ item }}"\n      loop: "{{ groups[\'train\'] }}"\n',
        encoding="utf-8",
    )
    return playbook(nodes, str(play))


def tree(folder: Path, files: int, megabytes: int) -> Path:
    top = folder / f"tree-{files}-{megabytes}"
    for number in range(files):
        path = top / f"d{number // 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n" * 8, encoding="utf-8")
    if megabytes:
        top.mkdir(parents=True, exist_ok=True)
        (top / "model.bin").write_bytes(os.urandom(megabytes << 20))
    return top


def in_turn(nodes: LightNodes) -> Cost:
    """What a loop does: the tree from the first node to each other one, copy after copy out of its one link."""
    first = nodes.names[0]
    for name in nodes.names[1:]:
        run([*nodes.ssh(name), "rm -rf /data/turn"])
    targets = " ".join(nodes.names[1:])
    script = (
        f"for n in {targets}; do ssh $n mkdir -p /data/turn && scp -q -r /data/source/model.bin $n:/data/turn/; done"
    )
    return run([*nodes.ssh(first), script])


def moved_in(cost: Cost) -> float:
    found = re.search(r"received in ([\d.]+) s", cost.output)
    if found is None:
        raise SystemExit(cost.output[-3000:])
    return float(found.group(1))


@contextmanager
def room_for_neighbours(count: int) -> Iterator[None]:
    """Entries for all pairs of nodes, and the old limit again afterwards."""
    old = int(NEIGHBOURS.read_text(encoding="utf-8"))
    NEIGHBOURS.write_text(str(max(old, 4 * count * count)), encoding="utf-8")
    try:
        yield
    finally:
        NEIGHBOURS.write_text(str(old), encoding="utf-8")


def verbs(nodes: LightNodes, folder: Path, forks: tuple[str, str]) -> dict[str, Cost]:
    """check; a run of one short script per node by launcher `python`, which needs no torch; and the end of one that lasts."""
    script = folder / "job.py"
    script.write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\nprint('done')\n", encoding="utf-8")
    job: dict[str, Any] = {
        "launch_script": str(script),
        "launch_launcher": "python",
        "launch_packages": [],
        "launch_runs_dir": str(folder / "runs"),
        "torchfleet_python": "/usr/bin/python3",
    }
    return {
        "check": playbook(nodes, "check", *forks, check_fail_on="never", check_dest=None),
        "launch": playbook(nodes, "launch", *forks, **job, launch_args=["0"]),
        "detach": playbook(nodes, "launch", *forks, **job, launch_args=["300"], launch_detach=True),
        "stop": playbook(nodes, "stop", *forks),
    }


def measure() -> str:
    with room_for_neighbours(max(SIZES)):
        return tables()


def tables() -> str:
    rows, joined, trees, others = [], [], [], []
    hand, told = "", 0
    with tempfile.TemporaryDirectory(prefix="torchfleet-bench-") as temporary:
        folder = Path(temporary)
        code = tree(folder, FILES, 0)
        model = tree(folder, 0, MEGABYTES)
        for count in SIZES:
            with LightNodes(count, folder / "lab", PREFIX, RATE) as nodes:
                forks = ("--forks", str(count))
                nodes.write_inventory(nodes.names[:-1])
                playbook(nodes, "provision", *ROLES, *forks)
                nodes.write_inventory(nodes.names)
                joined.append((count, playbook(nodes, "provision", *ROLES, *forks, "--limit", nodes.names[-1])))
                for name in nodes.names:
                    run([*nodes.ssh(name), "rm -rf /root/.ssh/id_* /root/.ssh/authorized_keys /root/.ssh/known_hosts /root/.ssh/config "
                         "/etc/nccl.conf; printf '127.0.0.1\\tlocalhost\\n' > /etc/hosts; hostname debian"])  # fmt: skip
                first = playbook(nodes, "provision", *ROLES, *forks)
                second = playbook(nodes, "provision", *ROLES, *forks)
                if count == SIZES[0]:  # the same for each node, however many there are
                    told = calls(playbook(nodes, "provision", *ROLES, *forks, "-vvv"))
                rows.append((count, first, second, changed(second)))
                others.append((count, verbs(nodes, folder, forks)))
                code_first = playbook(nodes, "sync", *forks, sync_src=str(code), sync_dest="/data/code")
                code_second = playbook(nodes, "sync", *forks, sync_src=str(code), sync_dest="/data/code")
                playbook(nodes, "sync", *forks, "--limit", nodes.names[0], sync_src=str(model), sync_dest="/data/set")
                run([*nodes.ssh(nodes.names[0]), "cp -r /data/set/. /data/source"])
                settings = {"sync_src": "/data/source", "sync_from": nodes.names[0], "sync_dest": "/data/model"}
                whole = playbook(nodes, "sync", *forks, **settings)
                turn = in_turn(nodes)
                trees.append((count, code_first, code_second, moved_in(whole), turn.seconds))
                if count == BY_HAND:
                    lines, pairs = names_by_hand(nodes, folder), trust_by_hand(nodes)
                    hand = (
                        f"With {count} nodes, in the same run: `/etc/hosts` by a `lineinfile` per member took {lines}, and `ssh-keyscan` and "
                        f"`ssh-copy-id` over all {count * count} pairs {pairs}: {pairs.seconds / count / count:.2f} s a pair, which makes "
                        f"{pairs.seconds / count / count * 24 * 24:.0f} s for 24 nodes. `provision` took {first} for both and the network's settings."
                    )
    return "\n".join(
        [
            "## Scale, light nodes",
            "",
            "Containers with sshd alone; controller and all nodes share this machine's cores, which real nodes do not. One link a node.",
            "",
            "Names, trust, the network's settings and the hostfile (`provision.yml -t hosts,ssh_trust,nccl_env,launch`), bare and again:",
            "",
            "| nodes | bare | again | changed | seconds a node: bare | again | controller CPU a node: bare | again | memory |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            *(
                f"| {count} | {first} | {second} | {', '.join(sorted(same))} | {first.seconds / count:.2f} s | {second.seconds / count:.2f} s "
                f"| {first.cpu / count:.2f} s | {second.cpu / count:.2f} s | {second.memory:.0f} MiB |"
                for count, first, second, same in rows
            ),
            "",
            f"Remote calls a node, again, counted from `-vvv`: {told}. "
            "One node more, with `--limit`: " + ", ".join(f"{cost} as number {count}" for count, cost in joined) + ".",
            "",
            hand,
            "",
            "The other verbs: seconds, and the controller's CPU seconds a node and memory. The run is one short script a node by",
            "launcher `python`; stop ends one that lasts on all nodes. Memory counts pages that processes share once (PSS).",
            "",
            "| nodes | check | launch | stop |",
            "| --- | --- | --- | --- |",
            *(
                f"| {count} | "
                + " | ".join(
                    f"{verb}, {verb.cpu / count:.2f} s CPU a node, {verb.memory:.0f} MiB"
                    for verb in (costs["check"], costs["launch"], costs["stop"])
                )
                + " |"
                for count, costs in others
            ),
            "",
            f"A tree for all nodes: {FILES} files of code from the controller, and {MEGABYTES} MiB from the first node, every link shaped to {RATE}.",
            "`scp` stands for `rsync`, which the light nodes have not: of what is not there yet both move the same bytes.",
            "",
            f"| nodes | code, first | code, no change | {MEGABYTES} MiB by `sync` | the same by `scp` to each in turn |",
            "| --- | --- | --- | --- | --- |",
            *(f"| {count} | {one} | {two} | {ours:.1f} s | {turn:.1f} s |" for count, one, two, ours, turn in trees),
        ]
    )


if __name__ == "__main__":
    print(measure())
