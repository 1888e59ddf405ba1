"""Every launcher shows the script the same world, whatever lies in wait on the nodes, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

RUNS = "/var/lib/torchfleet/runs"
UNITS = "systemctl list-units --all --no-legend 'torchfleet-*'"
SECRET = "s3cr3t-value"
PATTERN = "s3cr3[t]-value"  # names it without being it: the look itself is logged on the nodes

# Says what it was given, and counts the ranks by an all-reduce of 1.
WORLD = """
import json, os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=os.environ.get("INIT_METHOD", "env://"),
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
total = torch.ones(1)
dist.all_reduce(total)
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SHOWN", "HOME", "USER",
         "TORCHFLEET_RUN_ID", "TORCHFLEET_NODE", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "ACCELERATE_MIXED_PRECISION"]
print("WORLD " + json.dumps({
    "total": int(total.item()), "args": sys.argv[1:], "cwd": os.getcwd(), "python": sys.executable,
    "secret": len(os.environ.get("HIDDEN", "")), "env": {name: os.environ.get(name) for name in names},
}), flush=True)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""

ARGUMENTS = ["two words", 'a "quote"', "it's", "$(touch /tmp/owned)", "semi;colon", "", "--flag=x y", "*", "new\nline"]
SHOWN = "50% $HOME 'x' \"y\" `id` \\ é;"

EQUAL = {"torchfleet_slots": 1}
LAUNCHERS = {
    "torchrun": {},
    "torchrun-c10d": {"launch_launcher": "torchrun", "launch_torchrun_via": "c10d"},
    "python": {},
    "python-file": {
        "launch_launcher": "python",
        "launch_python_via": "file",
        "launch_launcher_options": {"shared_folder": "/shared"},
    },
    "mpirun": {},
    "accelerate": EQUAL,
    "accelerate-deepspeed": {
        "launch_launcher": "accelerate",
        "launch_launcher_options": {"distributed_type": "DEEPSPEED", "deepspeed_launcher": "nossh", "zero_stage": 2},
        **EQUAL,
    },
    "deepspeed": {},
    "deepspeed-pdsh": {"launch_launcher": "deepspeed", "launch_deepspeed_via": "pdsh"},
    "deepspeed-openmpi": {"launch_launcher": "deepspeed", "launch_deepspeed_via": "openmpi"},
    "accelerate_pdsh": EQUAL,
    "colossalai": {},
    "colossalai-cli": {
        "launch_launcher": "colossalai",
        "launch_colossalai_via": "cli",
        "torchfleet_ssh_port": 2222,
        **EQUAL,
    },
    "slurm": {},
}
DEALS_RANKS_ITSELF = {"torchrun-c10d"}


def variables_of(launcher):
    return {"launch_launcher": launcher, **LAUNCHERS[launcher]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work") / "my code"
    folder.mkdir()
    (folder / "world.py").write_text(WORLD, encoding="utf-8")
    return folder


def launch(lab, tmp_path, script, *options, **variables):
    done = lab.playbook("launch", *options, cwd=tmp_path, launch_script=str(script), **variables)
    manifests = sorted(tmp_path.glob("runs/*/manifest.json"))
    manifest = json.loads(manifests[-1].read_text(encoding="utf-8")) if manifests else None
    return done, manifest, manifests[-1].parent if manifests else None


def assert_nothing_left(hosts, run_id):
    for name, host in hosts.items():
        found = host.check_output(f"grep -lz 'TORCHFLEET_RUN_I[D]={run_id}' /proc/[0-9]*/environ 2>/dev/null || true")
        assert found == "", f"{name}: {found}"
        assert (
            host.check_output(f"pgrep -af 'orte[d]|deepspee[d]|pds[h]|/runs/[{run_id[0]}]{run_id[1:]}/' || true") == ""
        ), name
        assert host.check_output(UNITS) == ""


@pytest.fixture(scope="module", autouse=True)
def leaks(hosts):
    """Watches all command lines of the nodes for the secret, while the module's runs go on."""
    watch = (
        "import glob,time\n"
        f"needle=('{SECRET[:5]}'+'{SECRET[5:]}').encode()\n"
        "while True:\n"
        "    for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "        try:\n"
        "            line=open(path,'rb').read()\n"
        "        except OSError:\n"
        "            continue\n"
        "        if needle in line:\n"
        "            open('/run/leaks','ab').write(line+b'\\n')\n"
        "    time.sleep(0.2)\n"
    )
    pids = {}
    for name, host in hosts.items():
        host.run("rm -f /run/leaks")
        host.check_output(f"cat > /run/watch.py <<'END'\n{watch}END\n")
        pids[name] = host.check_output("nohup python3 /run/watch.py >/dev/null 2>&1 & echo $!")
        # One that is to be seen, for the watch can fail. In two pieces, as sudo writes what it runs into the log.
        wait = "for _ in $(seq 50); do test -s /run/leaks && exit 0; sleep 0.2; done; exit 1"
        seen = host.run(f"begin='{SECRET[:5]}'; sh -c '{wait}' \"${{begin}}{SECRET[5:]}\"")
        assert seen.rc == 0, f"{name}: the watch is blind"
        host.check_output("rm /run/leaks")
    yield
    for name, host in hosts.items():
        assert host.run(f"kill {pids[name]}").rc == 0, f"{name}: the watch had ended"


# A folder of this machine as a mount in a container that runs already (open_tree, setns, move_mount).
SHARE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
source, pid, target = sys.argv[1:]
def call(number, *args):
    result = libc.syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), number)
    return result
tree = call(428, -100, source.encode(), 1)
os.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0x20000) if hasattr(os, "setns") else call(
    308, os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0x20000)
os.makedirs(target, exist_ok=True)
call(429, tree, b"", -100, target.encode(), 4)
"""


@pytest.fixture(scope="module")
def shared(lab, hosts, tmp_path_factory):
    """A folder that all nodes mount at /shared."""
    folder = tmp_path_factory.mktemp("shared")
    folder.chmod(0o777)
    for name in hosts:
        pid = lab.podman("inspect", "--format", "{{.State.Pid}}", f"{lab.prefix}-{name}").strip()
        subprocess.run([sys.executable, "-c", SHARE, str(folder), pid, "/shared"], check=True)
    yield folder
    for host in hosts.values():
        host.check_output("umount /shared")


@pytest.fixture(params=list(LAUNCHERS))
def launcher(request):
    if request.param == "python-file":
        request.getfixturevalue("shared")
    return request.param


def test_the_world_is_the_same_under_every_launcher(lab, hosts, tmp_path, folder, launcher):
    done, manifest, logs = launch(
        lab,
        tmp_path,
        folder / "world.py",
        "-vvv",
        launch_args=ARGUMENTS,
        launch_env={"SHOWN": SHOWN},
        launch_secret_env={"HIDDEN": SECRET},
        **variables_of(launcher),
    )
    assert done.code == 0, "\n".join(
        line for line in done.output.splitlines() if re.match(r"(node\d:|\s*node\d:| *\[ERROR|fatal|Run |  )", line)
    )[-4000:]
    equal = "torchfleet_slots" in LAUNCHERS[launcher]
    world = [("node1", 0, 0), ("node2", 1, 0)] if equal else [("node1", 0, 0), ("node1", 1, 1), ("node2", 2, 0)]
    slots = {"node1": 1 if equal else 2, "node2": 1}
    seen = []
    work = {name: host.check_output("realpath '/var/lib/torchfleet/work/my code'") for name, host in hosts.items()}
    for path in sorted(logs.glob("*/rank-*.log")):
        said = json.loads(re.search(r"^WORLD (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[1])
        node, env = path.parent.name, said["env"]
        seen.append((node, int(env["RANK"]), int(env["LOCAL_RANK"])))
        assert said["total"] == int(env["WORLD_SIZE"]) == len(world)
        assert int(env["LOCAL_WORLD_SIZE"]) == slots[node]
        assert said["args"] == ARGUMENTS
        assert said["cwd"] == work[node]
        assert said["python"] == "/opt/torchfleet/venv/bin/python"
        assert env["SHOWN"] == SHOWN
        assert said["secret"] == len(SECRET)
        assert (env["TORCHFLEET_RUN_ID"], env["TORCHFLEET_NODE"]) == (manifest["run_id"], node)
        assert env["GLOO_SOCKET_IFNAME"] == {"node1": "eth1", "node2": "enp65s0"}[node]
        assert (env["USER"], env["HOME"]) == {"node1": ("root", "/root"), "node2": ("trainer", "/home/trainer")}[node]
        assert env["ACCELERATE_MIXED_PRECISION"] in (None, "no")
        if launcher not in DEALS_RANKS_ITSELF:
            address = lab.nodes["node1"]["torchfleet_address"]
            assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (address, "29500")
    if launcher in DEALS_RANKS_ITSELF:
        assert sorted(rank for _node, rank, _local in seen) == list(range(len(world)))
    else:
        assert sorted(seen) == world

    assert SECRET not in done.output
    for path in logs.rglob("*"):
        assert path.is_dir() or SECRET not in path.read_text(encoding="utf-8", errors="replace"), path
    for host in hosts.values():
        assert not host.file("/tmp/owned").exists
        assert not host.file("/run/leaks").exists
        # Beside the run's own folder, which only the training user can read, it lies nowhere.
        found = host.check_output(
            f"grep -rl '{PATTERN}' /root /home /tmp /var/lib/torchfleet/work /var/log 2>/dev/null || true"
        )
        assert found == ""
        run = host.check_output(f"grep -rl '{PATTERN}' {RUNS}/{manifest['run_id']} || true").split()
        assert {path.rsplit("/", 1)[1] for path in run} <= {"plan.json", "payload.json"}
    assert_nothing_left(hosts, manifest["run_id"])


MPI_STYLE = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank() + 1)
same = [os.environ["RANK"], os.environ["WORLD_SIZE"]] == [str(world.Get_rank()), str(world.Get_size())]
print("MPI", world.Get_rank(), world.Get_size(), total, same, flush=True)
"""


def test_a_script_in_mpis_style_finds_the_same_world_under_mpirun(lab, hosts, tmp_path, folder):
    script = folder / "mpi.py"
    script.write_text(MPI_STYLE, encoding="utf-8")
    done, manifest, logs = launch(lab, tmp_path, script, launch_launcher="mpirun")
    assert done.code == 0, done.output[-4000:]
    said = [path.read_text(encoding="utf-8").split("MPI ")[1].strip() for path in sorted(logs.glob("*/rank-*.log"))]
    assert said == ["0 3 6 True", "1 3 6 True", "2 3 6 True"]
    assert_nothing_left(hosts, manifest["run_id"])


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"launch_launcher": "accelerate"}, "node1 has 2, node2 has 1. Set launch_launcher to torchrun"),
        ({"launch_launcher": "accelerate", "launch_launcher_options": {"distributed_type": "MULTI_GPU"}, **EQUAL},
         "no GPU is known on node1, node2"),
        ({"launch_launcher": "colossalai", "launch_colossalai_via": "cli", **EQUAL},
         "theirs are 22, 2222: set launch_colossalai_via to torchrun"),
        ({"launch_launcher": "mpirun", "launch_max_restarts": 1}, "launch_max_restarts works with launch_launcher torchrun alone"),
    ],
)  # fmt: skip
def test_what_a_launcher_cannot_do_is_refused_before_the_start(lab, hosts, tmp_path, folder, variables, words):
    done, manifest, _logs = launch(lab, tmp_path, folder / "world.py", **variables)
    assert done.code != 0
    said = " ".join(done.output.split())
    assert "Nothing was started" in said
    assert words in said
    assert manifest is None


ALONE = """#!/bin/sh
# An MPI that has lost its peers: one process by itself, and no word of the others.
while ! expr "$1" : '/.*/python' >/dev/null; do shift; done
OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 exec "$@"
"""


def test_a_launcher_that_trains_a_copy_by_itself_is_a_failure_named_as_such(lab, hosts, tmp_path):
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "long.py"
    script.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    hosts["node1"].check_output(f"cat > /usr/local/bin/mpirun <<'END'\n{ALONE}END\nchmod +x /usr/local/bin/mpirun")
    try:
        done, manifest, _folder = launch(lab, tmp_path, script, launch_launcher="mpirun")
    finally:
        hosts["node1"].check_output("rm /usr/local/bin/mpirun")
    assert done.code == 2
    assert manifest["outcome"]["sentence"] == (
        "node1: rank 0 came up in a world of 1, planned was 3: the launcher started separate copies"
    )
    assert manifest["times"]["ended"] - manifest["times"]["first_rank"] < 60
    assert_nothing_left(hosts, manifest["run_id"])


def test_a_node_that_lets_the_head_in_no_longer_is_named_before_the_start(lab, hosts, tmp_path, folder):
    hosts["node2"].check_output("mv ~trainer/.ssh/authorized_keys ~trainer/.ssh/aside")
    try:
        done, manifest, _folder = launch(lab, tmp_path, folder / "world.py", launch_launcher="mpirun")
    finally:
        hosts["node2"].check_output("mv ~trainer/.ssh/aside ~trainer/.ssh/authorized_keys")
    assert done.code == 2
    assert manifest is None
    assert "cannot log in to node2: " in " ".join(done.output.split())
    assert "run provision.yml -t ssh_trust" in " ".join(done.output.split())
