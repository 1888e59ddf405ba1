# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The diagnosis: one label after the other, the order of causes, and the reading of odd or large logs."""

from __future__ import annotations

import csv
import tracemalloc
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._findings import finding_to_dict
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import diagnose
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import Rule, sign
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rules import RULES

SHARED = Path(__file__).resolve().parents[4].parent / "shared" / "knowledge"
# Of the shared cases: right first answers. Those missed name nothing in the excerpt that tells their cause.
SHARED_FLOOR = 133

TRACE = 'Traceback (most recent call last):\n  File "/srv/job/train.py", line 12, in <module>\n    main()\n'
NCCL = "alpha:4101:4177 [0] "
# label -> texts in the manner of the tools that print them
SHOWS = {
    "nccl_wrong_socket_ifname": [
        "alpha:70:70 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo\n"
        "beta:71:71 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo\n",
        f"{NCCL}NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n",
        f"{NCCL}NCCL INFO Bootstrap : Using [0]tun0:fe80::77:1%tun0<0> [1]eth0:10.4.0.2<0>\n",
        f"{NCCL}misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 172.17.0.3<41211> failed : Connection "
        f"refused\n",
        f"{NCCL}NCCL INFO NET/Socket : Using [0]eno1:10.4.0.2<0> [1]vethab12cd3:fe80::9:1%vethab12cd3<0>\n"
        f"{NCCL}include/socket.h:410 NCCL WARN Net : Call to connect timeout : Connection timed out\n",
        "alpha:5:5 [0] NCCL INFO Bootstrap : Using eno1:10.4.0.2<0>\n"
        "beta:6:6 [0] NCCL INFO Bootstrap : Using ens9:192.168.7.3<0>\n",
    ],
    "nccl_no_socket_interface": [f"{NCCL}bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"],
    "gloo_wrong_ifname": [
        "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error\n",
        "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
        "Unable to find address for: eth7\n",
    ],
    "hostname_resolves_loopback": [
        "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] timed out connecting: "
        "SO_ERROR: Connection refused, remote=[127.0.1.1]:4711\n",
    ],
    "hostname_unresolvable": [
        "[W socket.cpp:697] [c10d] The IPv6 network addresses of (gamma, 29500) cannot be retrieved "
        "(gai error: -2 - Name or service not known).\n",
        "ssh: Could not resolve hostname gamma: Temporary failure in name resolution\n",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution\n",
    ],
    "master_addr_unreachable": [
        "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to (10.4.0.9, "
        "29500).\n",
    ],
    "rdzv_endpoint_not_local": [
        '  File "/opt/torch/rendezvous/c10d_rendezvous_backend.py", line 151, in _create_tcp_store\n'
        "RuntimeError: connect() timed out. Original timeout was 60000 ms.\n",
    ],
    "missing_ranks": [
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
        "store_based_barrier_key:1 (world_size=8, num_workers_joined=6, timeout=0:30:00)\n",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n",
    ],
    "too_many_ranks_joined": [
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
        "store_based_barrier_key:1 (world_size=8, worker_count=10, timeout=0:30:00)\n",
    ],
    "port_in_use": [
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
        "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is "
        "utilizing it.\n",
        "RuntimeError: Address already in use\n",
    ],
    "firewall_blocked_ports": [
        f"{NCCL}misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.4.0.3<40111> returned 113(No route to "
        f"host)\n",
    ],
    "node_network_down": [
        f"{NCCL}include/socket.h:403 NCCL WARN Connect to 10.4.0.3<40111> failed : Connection refused\n",
        "kernel: mlx5_core 0000:17:00.0 ens1np0: Link down\nkernel: igb 0000:02:00.0 eno1: igb: eno1 NIC Link is "
        "Down\n",
    ],
    "nccl_version_or_env_mismatch": [
        "alpha:5:5 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\nbeta:6:6 [0] NCCL INFO NCCL version 2.18.3+cuda12.1\n"
        "alpha:5:9 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 1024 bytes instead of 256\n",
        f"{NCCL}transport/net_socket.cc:455 NCCL WARN NET/Socket : peer 10.4.0.3<5> message truncated : "
        "receiving 1048576 bytes instead of 65536\n",
    ],
    "nccl_bug_upgrade": ["python[991]: segfault at 10 ip 00007f12 sp 00007f34 error 4 in libnccl.so.2.21.5[7f00+d0]\n"],
    "duplicate_gpu": [
        f"{NCCL}init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 17000\n"
    ],
    "gpu_count_mismatch": [TRACE + "RuntimeError: CUDA error: invalid device ordinal\n"],
    "collective_timeout_desync": [
        "[rank2]:[E119 08:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
        "milliseconds\n",
    ],
    "peer_process_died": [
        f"{NCCL}misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer beta<43210>\n",
    ],
    "cuda_oom": [
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total "
        "capacity\n",
        f"{NCCL}include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'\n",
    ],
    "host_oom_sigkill": [
        "kernel: Out of memory: Killed process 4242 (python) total-vm:99999999kB\n",
        "E0102 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -9) local_rank: 1 (pid: 77)\n",
    ],
    "external_sigterm": [
        "slurmstepd: error: *** JOB 77 ON alpha CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15\n",
    ],
    "shm_too_small": [
        f"{NCCL}misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Qw12Er to 9637892 bytes\n",
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's "
        "workers "
        "are out of shared memory.\n",
        "    sl = self._semlock = _multiprocessing.SemLock(\nOSError: [Errno 28] No space left on device\n",
    ],
    "shm_other": [
        f"{NCCL}misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-ab (size "
        f"9), "
        "error: No such file or directory (2)\n",
    ],
    "disk_full": [TRACE + "OSError: [Errno 28] No space left on device: '/ckpt/step-100.pt'\n"],
    "ulimit_nofile": [TRACE + "OSError: [Errno 24] Too many open files\n"],
    "ib_gid_index": [
        f"{NCCL}misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument\n",
        f"{NCCL}NET/IB : Got completion from peer 10.4.0.3<5> with status=12 opcode=0 len=0 vendor err 129 (Recv) "
        "localGid fe80::1:2 remoteGidsfe80::1:3\n",
    ],
    "ib_memlock": [
        f"{NCCL}misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"
    ],
    "ib_hca_selection": [
        f"{NCCL}NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_9:1/RoCE [RO]; OOB eno1:10.4.0.2<0>\n"
    ],
    "ib_fabric_unreachable": [
        f"{NCCL}NET/IB : Got completion from peer 10.4.0.3<5> with error 12, opcode 0, len 0, vendor err 129\n",
    ],
    "gdr_unusable": [f"{NCCL}misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address\n"],
    "net_plugin_unusable": [
        f"{NCCL}nccl_net_ofi_init:80 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data available\n"
    ],
    "p2p_acs_hang": [
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n",
        f"{NCCL}NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'\n",
    ],
    "gpu_hw_fault": [
        "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    ],
    "fabric_manager_down": [
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n"
    ],
    "driver_not_loaded": ["modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1.0-18-amd64\n"],
    "driver_library_mismatch": ["Failed to initialize NVML: Driver/library version mismatch\n"],
    "cuda_driver_too_old": ["RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n"],
    "cuda_forward_compat": ["Error 804: forward compatibility was attempted on non supported HW\n"],
    "gpu_not_visible": [TRACE + "RuntimeError: No CUDA GPUs are available\n"],
    "no_kernel_image": [TRACE + "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"],
    "library_conflict": ["ImportError: /srv/venv/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommSplit\n"],
    "missing_shared_lib": [
        "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory\n"
    ],
    "glibc_too_old": ["ImportError: /lib64/libm.so.6: version `GLIBC_2.29' not found (required by /srv/venv/x.so)\n"],
    "ds_cuda_home_missing": [
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n"
    ],
    "ds_cuda_torch_mismatch": [
        "RuntimeError: The detected CUDA version (11.5) mismatches the version that was used to compile PyTorch "
        "(12.4).\n",
    ],
    "ds_gcc_unsupported": ["#error -- unsupported GNU version! gcc versions later than 12 are not supported!\n"],
    "build_dep_missing": [TRACE + "RuntimeError: Ninja is required to load C++ extensions\n"],
    "ssh_auth": [
        "beta: trainer@beta: Permission denied (publickey,password).\npdsh@alpha: beta: ssh exited with exit code "
        "255\n",
        "Host key verification failed.\n",
    ],
    "pdsh_rcmd_rsh": ["pdsh@alpha: beta: rcmd: socket: Permission denied\n"],
    "launcher_remote_env": [
        "beta: bash: line 1: /opt/conda/bin/python: No such file or directory\n",
        "bash: orted: command not found\n",
        "beta: python: can't open file '/srv/job/train.py': [Errno 2] No such file or directory\n",
    ],
    "launcher_args_mismatch": [
        TRACE + "KeyError: 'WORLD_SIZE'\n",
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR "
        "expected, but not set\n",
        "$ torchrun --nnodes=2 --master_port=70000 train.py\n",
        "There are not enough slots available in the system to satisfy the 16 slots that were requested\n",
    ],
    "local_rank_argument": ["train.py: error: unrecognized arguments: --local-rank=0\n"],
    "launcher_bug": [TRACE + "KeyError: 'PDSH_SSH_ARGS_APPEND'\n"],
    "insufficient_log": [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n  exitcode  : 1 (pid: 77)\n",
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n",
        "",
    ],
    "user_code": [
        TRACE + "AttributeError: 'NoneType' object has no attribute 'shape'\n",
        TRACE + "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)\n",
        TRACE + "mylib.errors.ConfigError: no such key: lr\n",
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --epochz 3\n",
    ],
    "none": [
        "epoch 1 step 10 loss 0.4\nepoch 1 step 20 loss 0.3\ntraining finished\n",
        f"{NCCL}NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation\n"
        f"{NCCL}NCCL INFO NET/IB : No device found.\n{NCCL}misc/ibvwrap.cc:63 NCCL WARN Failed to open "
        f"libibverbs.so[.1]\n",
    ],
}

# Texts that come near a label, and the label they must not have.
NEAR = [
    (
        "none",
        f"{NCCL}NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\n{NCCL}NCCL INFO comm 0x1 rank 0 nranks 1 - Init "
        f"COMPLETE\n",
    ),
    (
        "none",
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to [alpha]:29500 (errno: 111 - Connection "
        "refused).\nstep 1 loss 2.5\n",
    ),
    (
        "none",
        "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family "
        "not "
        "supported by protocol).\n",
    ),
    (
        "none",
        "[W ProcessGroupGloo.cpp:724] Warning: Unable to resolve hostname to a (local) address. Using the loopback "
        "address as fallback.\n",
    ),
    (
        "none",
        "Waiting in store based barrier to initialize process group for rank: 0, key: store_based_barrier_key:1 "
        "(world_size=4, worker_count=3, timeout=0:30:00)\n 10%|#   | 10/100 [00:07<01:03,  1.41it/s]\n",
    ),
    (
        "none",
        "mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l)\n"
        "# Size       Avg Latency(us)\n8     0.25\n",
    ),
    (
        "none",
        "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object "
        "file\n",
    ),
    ("none", "UserWarning: Failed to load image Python extension: undefined symbol: _ZN3c106detail\n"),
    (
        "none",
        "[WARNING] [runner.py:215:fetch_hostfile] Unable to find hostfile, will proceed with training with local "
        "resources only.\n",
    ),
    ("none", f"{NCCL}NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eno1:10.4.0.2<0>\n"),
    ("user_code", TRACE + "KeyError: 'RANKING'\n"),
    ("user_code", "HTTPSConnectionPool(host='example.org', port=443): Temporary failure in name resolution\n"),
    ("user_code", "RuntimeError: the vocabulary is empty\n"),
    ("none", "libibverbs: Warning: couldn't load driver 'libx.so': libx.so: cannot open shared object file\n"),
    ("user_code", TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.json'\n"),
    ("user_code", TRACE + "ModuleNotFoundError: No module named 'wandb'\n"),
    ("user_code", "python: can't open file '/srv/job/trian.py': [Errno 2] No such file or directory\n"),
    ("user_code", "NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, Ch 00000008, intr 00000000. MMU Fault\n"),
    ("disk_full", "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 640 vs 536\n"),
    ("shm_too_small", "RuntimeError: unable to write to file </torch_77_1>: No space left on device (28)\n"),
    (
        "gdr_unusable",
        f"{NCCL}NCCL WARN NET/IB : Got completion from peer fe80::7%ib0<5> with error 4, opcode 0, len 0\n",
    ),
    (
        "build_dep_missing",
        "Installed CUDA version 12.1 does not match the version torch was compiled with 11.8\n"
        "/srv/torch/include/python_headers.h:12:10: fatal error: Python.h: No such file or directory\n",
    ),
]

# First causes among echoes: the file's lines in time, and who must win.
CHAINS = [
    (
        "cuda_oom",
        f"{NCCL}NCCL WARN socketProgress: Connection closed by remote peer beta<1>\n"
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=1)\n"
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
    ),
    (
        "user_code",
        TRACE + "ZeroDivisionError: division by zero\n"
        f"{NCCL}include/socket.h:403 NCCL WARN Connect to 10.4.0.3<4> failed : Connection refused\n"
        "ncclRemoteError: A call failed possibly due to a network error\n",
    ),
    (
        "host_oom_sigkill",
        f"{NCCL}NCCL WARN socketProgress: Connection closed by remote peer beta<1>\n"
        "E0101 api.py:833] failed (exitcode: -9) local_rank: 2 (pid: 9) of binary: /srv/python\n"
        "Sending process 10 closing signal SIGTERM\n",
    ),
    (
        "ulimit_nofile",
        "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode\n"
        "OSError: [Errno 24] Too many open files\n",
    ),
    (
        "glibc_too_old",
        "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by cpu_adam.so)\n"
        "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'\n",
    ),
    (
        "hostname_unresolvable",
        "[c10d] The IPv6 network addresses of (gamma, 29500) cannot be retrieved (gai error: -2 - Name or service "
        "not known).\n"
        "[c10d] The client socket has timed out after 60s while trying to connect to (gamma, 29500).\n",
    ),
    (
        "gpu_hw_fault",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nNVIDIA-SMI has failed because it couldn't "
        "communicate "
        "with the NVIDIA driver.\n",
    ),
    (
        "missing_shared_lib",
        "/usr/bin/ld: cannot find -lcurand\nninja: build stopped: subcommand failed.\n"
        "RuntimeError: Error building extension 'cpu_adam'\n",
    ),
]


def first(text: str | bytes) -> str:
    return diagnose(text)[0].label


@pytest.mark.parametrize(("label", "text"), [(label, text) for label, texts in SHOWS.items() for text in texts])
def test_names_the_cause(label: str, text: str) -> None:
    assert first(text) == label


@pytest.mark.parametrize(("label", "text"), NEAR)
def test_is_not_misled_by_what_comes_near(label: str, text: str) -> None:
    assert first(text) == label


@pytest.mark.parametrize(("label", "text"), CHAINS)
def test_finds_the_first_cause_among_the_echoes(label: str, text: str) -> None:
    assert first(text) == label


@pytest.mark.parametrize("label", sorted(set(SHOWS) - {"none", "insufficient_log"}))
def test_says_what_to_do(label: str) -> None:
    for text in SHOWS[label]:
        finding = diagnose(text)[0]
        assert finding.cause and finding.fix and finding.evidence
        assert not {"{", "}", "?"} & set(finding.cause)
        assert 0 < finding.confidence <= 1


def test_every_label_has_a_rule_and_a_text() -> None:
    assert {rule.label for rule in RULES} - {""} == set(SHOWS)


def test_rules_refer_to_rules_that_exist() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    labels = {rule.label for rule in RULES}
    for rule in RULES:
        asked = [name for need in (*rule.needs, *rule.unless) for name in need.split("|")]
        assert set(asked) <= {*ids, "several_hosts"}, rule.id
        assert set(rule.outranks) <= labels, rule.id


def test_a_sign_knows_the_literals_of_its_lines() -> None:
    assert sign(r"\bToo many (?:open )?files|\[Errno 24\]").keys == ("too many ", "[errno 24]")
    assert sign(r"(?:status|exit code) \d+").keys == ("status", "exit code")
    with pytest.raises(ValueError, match="name the keys"):
        sign(r"\d+ [a-z]+|abc")


def test_evidence_names_file_and_line() -> None:
    logs = {"alpha/rank-0.log": "one\ntwo\n", "beta/rank-3.log": "one\r\ntwo\r\nMemory: CUDA out of memory\r\n"}
    finding = diagnose(logs)[0]
    assert [(item.file, item.line, item.text) for item in finding.evidence] == [
        ("beta/rank-3.log", 3, "Memory: CUDA out of memory")
    ]
    assert (finding.hosts, finding.ranks) == (("beta",), ("3",))
    assert finding_to_dict(finding)["evidence"][0] == {
        "file": "beta/rank-3.log",
        "line": 3,
        "text": "Memory: CUDA out of memory",
    }


def test_values_of_the_log_are_in_the_answer() -> None:
    finding = diagnose(SHOWS["port_in_use"][0])[0]
    assert "29511" in finding.cause
    assert finding.probe is not None and finding.probe.parameters == {"port": "29511"}


def test_time_stamps_order_the_files_of_a_run() -> None:
    program = "2026-01-01 10:00:0{} ValueError: bad configuration\n"
    store = (
        "2026-01-01 10:00:05 [c10d] The client socket has timed out after 60s while trying to connect to (a, 29500).\n"
    )
    assert diagnose({"a.log": program.format(9), "b.log": store})[0].label == "master_addr_unreachable"
    assert diagnose({"a.log": program.format(1), "b.log": store})[0].label == "user_code"


def test_without_time_stamps_the_program_is_heard_first() -> None:
    logs = {
        "a.log": "The client socket has timed out after 60s while trying to connect to (alpha, 29500).\n",
        "b.log": "ValueError: bad configuration\n",
    }
    assert [finding.label for finding in diagnose(logs)] == ["user_code", "master_addr_unreachable"]


OOM = "torch.OutOfMemoryError: CUDA out of memory."


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31m[rank2]:\x1b[0m \x1b[1mtorch.OutOf\x1b[0mMemoryError: CUDA out\x1b[0m of memory.\x1b[0m\n",
        f"[default2]:{OOM}\n",
        f"[rank2]: {OOM}\n",
        f"beta:2 | {OOM}\n",
        f"[1,2]<stderr>:{OOM}\n",
        f"(RayWorker pid=7, ip=10.4.0.2) {OOM}\n",
        f" 10%|#    | 1/10 [00:01<00:09,  1.0it/s]\r 20%|##   | 2/10 [00:02<00:08,  1.0it/s]\r{OOM}",
        f"File a, li[rank1]: File b\nne 3{OOM}[rank1]: {OOM}\n",
        "\x00\x00garbage\x00 " + OOM + "\x00\n",
    ],
)
def test_dress_of_a_line_does_not_matter(text: str) -> None:
    assert first(text) == "cuda_oom"


@pytest.mark.parametrize("dress", ["", "      ", "(RayWorker pid=7) "])
def test_a_line_that_was_broken_is_read_as_one(dress: str) -> None:
    head = f"{dress}RuntimeError: Timed out in the store based barrier of this group (world_size=8,\n"
    assert first(f"{head}{dress}worker_count=3, timeout=0:30:00)\n") == "missing_ranks"
    assert first(f"{head}{dress}Other worker_count=3, timeout=0:30:00)\n") != "missing_ranks"


@pytest.mark.parametrize(
    ("line", "rank"), [(f"[rank2]: {OOM}", "2"), (f"beta:5 | {OOM}", "5"), (f"[1,7]<stderr>:{OOM}", "7")]
)
def test_the_rank_is_named(line: str, rank: str) -> None:
    assert diagnose(line)[0].ranks == (rank,)


def test_binary_garbage_is_read_to_its_end() -> None:
    assert first(bytes(range(256)) * 50 + b"\n" + OOM.encode() + b"\n\xff\xfe\x80") == "cuda_oom"


@pytest.mark.parametrize("text", ["", "\n \n\t\r\n", {}])
def test_an_empty_log_says_so(text: str) -> None:
    finding = diagnose(text)[0]
    assert (finding.label, finding.evidence) == ("insufficient_log", ())
    assert "Gather" in finding.fix


def test_echoes_alone_say_where_to_look() -> None:
    finding = diagnose(SHOWS["collective_timeout_desync"][0])[0]
    assert finding.confidence < 0.7
    assert "lowest sequence number" in finding.fix


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_pieces_of_any_size_give_the_same_answer(size: int) -> None:
    text = ("step 1 loss 3.0\n" * 40 + f"[rank3]: {OOM}\n" + "Connection reset by peer\n").encode()
    pieces = (text[start : start + size] for start in range(0, len(text), size))
    finding = diagnose({"x": pieces})[0]
    assert (finding.label, finding.evidence[0].line) == ("cuda_oom", 41)


def test_a_line_longer_than_a_block_is_read() -> None:
    text = "10%|# | 1/10 [00:01<00:09, 1.0it/s]\r" * 60000 + OOM + " x" * 300000
    finding = diagnose(text)[0]
    assert finding.label == "cuda_oom"
    assert len(finding.evidence[0].text) <= 300


def test_memory_does_not_grow_with_the_log() -> None:
    def pieces(count: int):
        for number in range(count):
            yield b"".join(
                b"[rank%d]: File a, line %d\n[W] failed to connect to [alpha]:29500 (errno: 111 - Connection refused)\n"
                b"NCCL INFO word%x\n" % (line % 8, line, line * 7919 + number)
                for line in range(2000)
            )
        yield OOM.encode()

    peaks = []
    for count in (20, 80):
        tracemalloc.start()
        finding = diagnose({"x": pieces(count)})[0]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (finding.label, finding.evidence[0].line) == ("cuda_oom", count * 6000 + 1)
    assert peaks[1] < peaks[0] + (16 << 20)


def test_what_repeats_without_end_does_not_hide_what_comes_once() -> None:
    text = "[W] The client socket has failed to connect to [alpha]:29500 (errno: 111 - Connection refused).\n" * 5000
    finding = diagnose(text + OOM)[0]
    assert (finding.label, finding.evidence[0].line) == ("cuda_oom", 5001)


def test_a_rule_may_be_added_without_touching_the_matcher() -> None:
    from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import Reader

    reader = Reader(
        [Rule("melted", "own_label", 10, 0.9, (sign(r"GPU (?P<gpu>\d+) has melted"),), "GPU {gpu} melted.", "Cool it.")]
    )
    reader.read("x", "GPU 3 has melted\n")
    assert [(finding.label, finding.cause) for finding in reader.findings()] == [("own_label", "GPU 3 melted.")]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not beside this checkout")
def test_the_shared_cases() -> None:
    with (SHARED / "logs" / "INDEX.tsv").open(encoding="utf-8") as stream:
        cases = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    wrong = []
    for case in cases:
        label = first((SHARED / "logs" / f"{case['case']}.log").read_bytes())
        if label != case["label"]:
            wrong.append((case["case"], case["label"], label))
    assert len(cases) - len(wrong) >= SHARED_FLOOR, wrong
    assert {label for _, expected, label in wrong if expected in ("none", "user_code")} <= {"external_sigterm"}, wrong


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not beside this checkout")
def test_every_shared_label_is_known() -> None:
    with (SHARED / "LABELS.tsv").open(encoding="utf-8") as stream:
        labels = {row["label"] for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)}
    assert {rule.label for rule in RULES} - {""} == labels
