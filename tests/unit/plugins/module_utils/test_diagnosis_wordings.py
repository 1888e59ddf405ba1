# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same causes in the words of other tools and other releases, and what only looks like them."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import diagnose

NCCL = "delta:311:390 [2] "
TRACE = 'Traceback (most recent call last):\n  File "/srv/job/fit.py", line 9, in <module>\n    main()\n'
GIDS = "localGid ::ffff:10.8.1.4 remoteGids::ffff:10.8.2.4"
LIBRARY = "/srv/venv/lib/python3.11/site-packages/torch/lib/../../nvidia/nccl/lib/libnccl.so.2"

SAID = [
    # The store's address was given by hand, NCCL's ports were not: the same errno means another thing.
    (
        "master_addr_unreachable",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [delta]:29611 (errno: 113 - No route to "
        "host).\n",
    ),
    ("master_addr_unreachable", TRACE + "RuntimeError: Stop_waiting response is expected\n"),
    (
        "master_addr_unreachable",
        "torch.distributed.DistNetworkError: Ping failed, invalid value returned from server\n",
    ),
    (
        "firewall_blocked_ports",
        f"{NCCL}misc/socket.cc:577 NCCL WARN socketPollConnect: connect returned No route to host, retrying (4/35)\n",
    ),
    # Every host has the bridge of its containers at this address.
    (
        "launcher_args_mismatch",
        "[delta][[7011,1],1][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 172.17.0.1 "
        "failed: Connection refused (111)\n",
    ),
    ("firewall_blocked_ports", "[delta][[7011,1],1][btl_tcp_endpoint.c:796] connect() to 10.8.1.5 failed: timed out\n"),
    ("node_network_down", "srun: error: Node failure on delta\n"),
    ("node_network_down", "srun: error: Unable to create step for job 88: Node(s) delta not responding\n"),
    # Shared memory: full, or there for no use.
    (
        "shm_other",
        f"{NCCL}misc/shmutils.cc:71 NCCL WARN Cuda failure 'invalid argument'\n"
        f"{NCCL}misc/shmutils.cc:92 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB3xYz "
        "(size 5767168)\n",
    ),
    (
        "shm_too_small",
        f"{NCCL}misc/shmutils.cc:92 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB3xYz "
        "(size 5767168)\n",
    ),
    (
        "shm_too_small",
        "[2026-02-03 04:05:06,007] [ERROR] [launch.py:321:sigkill_handler] exits with return code = -7\n",
    ),
    (
        "shm_other",
        "RuntimeError: unable to open shared memory object </torch_77_88> in read-write mode: Permission denied (13)\n",
    ),
    ("disk_full", TRACE + "RuntimeError: write(): fd 41 failed with Input/output error\n"),
    # RDMA.
    (
        "ib_fabric_unreachable",
        f"{NCCL}NCCL WARN NET/IB : Got completion from peer 10.8.2.4<40100> with status=12 opcode=1 len=0 vendor err "
        f"129 (Send) {GIDS}\n{NCCL}NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n",
    ),
    ("ib_fabric_unreachable", "Failed to modify QP 8123 to RTR\nUnable to Connect the HCA's through the link\n"),
    ("ib_hca_selection", "ibv_modify_qp failed (errno 19) (Ib failure: No such device)\n"),
    ("ib_memlock", f"{NCCL}misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_cq failed\n"),
    ("ib_memlock", f"log says: '{NCCL}misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed'\n"),
    ("ib_memlock", "libfabric:7:1700000000::efa:mr:reg():5<warn> Unable to register MR: Cannot allocate memory\n"),
    ("net_plugin_unusable", "WARN: Function: component_new Line: 77: NET/OFI Couldn't open CQ. RC: -22\n"),
    # NCCL itself.
    (
        "nccl_bug_upgrade",
        f"[delta:00311] *** Process received signal ***\n[delta:00311] Signal: Segmentation fault (11)\n"
        f"[delta:00311] [ 1] {LIBRARY}(+0x4d2aa)[0x7f0000b4d2aa]\n",
    ),
    ("nccl_bug_upgrade", f"{NCCL}graph/search.cc:1104 NCCL WARN Could not build a ring over 16 GPUs\n"),
    # The driver and its module, as the kernel, modprobe, udev and dkms say it.
    ("driver_not_loaded", "insmod: ERROR: could not insert module nvidia.ko: Invalid module format\n"),
    ("driver_not_loaded", "[   11.2] nvidia: version magic '6.1.0-9 SMP' should be '6.1.0-13 SMP'\n"),
    ("driver_not_loaded", "[   11.2] Loading of module nvidia is rejected\n"),
    ("driver_not_loaded", "[   11.2] NVRM: None of the NVIDIA devices were initialized.\n"),
    ("driver_not_loaded", "(udev-worker)[812]: nvidia: Process '/sbin/modprobe nvidia-uvm' failed with exit code 1.\n"),
    ("driver_not_loaded", "Consult /var/lib/dkms/nvidia/550.1/build/make.log for more information.\n"),
    ("driver_not_loaded", "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol 'rcu_x'\n"),
    ("driver_not_loaded", "NVIDIA: could not open the device file /dev/nvidiactl (No such file or directory).\n"),
    ("driver_not_loaded", "FATAL: Error inserting nvidia (/lib/modules/6.1/nvidia.ko): No such device\n"),
    ("driver_not_loaded", "./run.sh: line 4: nvidia-smi: command not found\n"),
    ("driver_not_loaded", "nvidia-container-cli.real: initialization error: driver error: failed to process\n"),
    ("cuda_driver_too_old", "Insufficient driver\n"),
    ("gpu_not_visible", TRACE + "RuntimeError: Distributed package doesn't have NCCL built in\n"),
    (
        "gpu_not_visible",
        TRACE + "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
        "False.\n",
    ),
    ("gpu_hw_fault", "NVRM: nvAssertFailed: Reset required [NV_ERR_RESET_REQUIRED] (0x62) @ channel.c:1\n"),
    ("gpu_hw_fault", "cannot read rows of GPU-00aa: ERROR_GPU_IS_LOST\n"),
    ("no_kernel_image", TRACE + "RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"),
    ("cuda_oom", TRACE + "RuntimeError: CUDA driver error: out of memory\n"),
    # Killed, as the shell, Slurm, torch and ray say it.
    ("host_oom_sigkill", "Epoch 3 loss 0.7\nKilled\nuser@delta:~$ \n"),
    ("host_oom_sigkill", "srun: error: delta: task 3: Out Of Memory\n"),
    (
        "host_oom_sigkill",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n",
    ),
    ("host_oom_sigkill", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"),
    (
        "host_oom_sigkill",
        TRACE + "RuntimeError: unable to mmap 990000000 bytes from file <model.bin>: Cannot allocate memory (12)\n",
    ),
    ("host_oom_sigkill", "JobId=88 JobName=fit\n   JobState=OUT_OF_MEMORY Reason=OutOfMemory\n"),
    ("external_sigterm", "JobId=88 JobName=fit\n   JobState=TIMEOUT Reason=TimeLimit\n"),
    (
        "external_sigterm",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGTERM\n",
    ),
    # Libraries and builds.
    ("missing_shared_lib", TRACE + "OSError: /srv/venv/lib/libcudnn.so.9: file too short\n"),
    ("missing_shared_lib", TRACE + "ImportError: /srv/venv/lib/libnccl.so.2: cannot read file data: I/O error\n"),
    ("build_dep_missing", "csrc/aio.h:3:10: fatal error: libaio.h: No such file or directory\n"),
    (
        "build_dep_missing",
        TRACE + "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.\n",
    ),
    ("insufficient_log", "FAILED: adam.o\n/usr/bin/c++ -c adam.cpp -o adam.o\n"),
    (
        "insufficient_log",
        TRACE + "ImportError: /home/me/.cache/torch_extensions/py311_cu124/adam/adam.so: cannot open shared object "
        "file: No such file or directory\n",
    ),
    # Launchers.
    ("launcher_remote_env", "delta: bash: line 1: ninja-fit: command not found\n"),
    ("launcher_remote_env", "pdsh@alpha: delta: ssh exited with exit code 127\n"),
    ("launcher_remote_env", "slurmstepd: error: execve(): /opt/run/fit: No such file or directory\n"),
    ("launcher_remote_env", "mpirun was unable to find the specified executable file\n"),
    ("launcher_remote_env", "sbatch: fatal: Could not establish a configuration source\n"),
    (
        "launcher_args_mismatch",
        "srun: error: Unable to allocate resources: Invalid generic resource (gres) specification\n",
    ),
    ("launcher_args_mismatch", "sbatch: error: Requested node configuration is not available\n"),
    (
        "launcher_args_mismatch",
        "[INFO] [runner.py:1:main] cmd = python launch --master_addr= --master_port=29500 fit.py\n",
    ),
    ("launcher_args_mismatch", "A sequential map was requested, but not enough node entries\nwere given\n"),
    ("launcher_args_mismatch", TRACE + "AssertionError: world size (6) is not divisible by 4\n"),
    (
        "ssh_auth",
        "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.8.1.5 port 22\n",
    ),
    # One argument, five parsers.
    ("local_rank_argument", "Error: No such option: --local_rank\n"),
    ("local_rank_argument", "ERROR: Could not consume arg: --local_rank=3\n"),
    ("local_rank_argument", TRACE + "AttributeError: 'Namespace' object has no attribute 'local_rank'\n"),
    (
        "local_rank_argument",
        TRACE + "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--local-rank=1']\n",
    ),
    # The program.
    ("user_code", TRACE + "OSError: [Errno 39] Directory not empty: '/srv/tmp-1' -> '/srv/step-1'\n"),
    ("user_code", TRACE + "RuntimeError: fused was asked for but the custom CUDA extension fused_x is not found\n"),
    ("user_code", TRACE + "ValueError: Inconsistent compute device and `device_id` on rank 3: cuda:0 vs cuda:3\n"),
    # Failed, and no more is said.
    ("insufficient_log", "Abort(1) on node 0: Fatal error in PMPI_Init: Other MPI error, error stack:\n"),
    ("insufficient_log", "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n"),
    ("insufficient_log", "make: *** [Makefile:3: fit] Error 2\n"),
    ("insufficient_log", "pod_workers.go:191] Error syncing pod: back-off restarting: CrashLoopBackOff\n"),
    ("insufficient_log", 'C++ exception with description "it broke" thrown in the test body.\n'),
    ("insufficient_log", '{"name": "torchelastic.worker.status.FAILED", "source": "WORKER"}\n'),
    ("insufficient_log", "delta: Test CUDA failure common.cu:900 'odd'\n"),
    ("insufficient_log", "fail to train: NCCL error in: ProcessGroupNCCL.cpp:7, internal trouble\n"),
    ("insufficient_log", "JobId=88 JobName=fit\n   JobState=FAILED Reason=NonZeroExitCode\n"),
    ("insufficient_log", "fit: error: it did not work\n"),
    ("insufficient_log", '  File "/srv/job/fit.py", line 9, in main\n    run(args)\n'),
    (
        "insufficient_log",
        "  error: subprocess-exited-with-error\n  x python setup.py bdist_wheel did not run successfully.\n",
    ),
    ("launcher_remote_env", "[proxy:0:2@delta] HYDU_create_process (launch.c:69): execvp error on file fit\n"),
    ("gpu_not_visible", "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"),
    ("gpu_not_visible", "kernel driver does not appear to be running on this host (delta)\n"),
]

QUIET = [
    # NCCL tries calls that an older driver library does not have, and does without.
    f"{NCCL}NCCL INFO dlvsym failed on mlx5dv_new - libmlx5.so.1: undefined symbol: mlx5dv_new, version MLX5_1.99\n",
    # A first attempt that the launcher ended, and the next one, which runs.
    "[launch.py:315:sigkill_handler] Killing subprocess 71\n"
    + "".join(f"step {number} | loss 2.{number} | lr 1e-4\n" for number in range(10, 60)),
    "./run.sh: line 4: nvidia-smi: command not found\n"
    + "".join(f"step {number} | loss 2.{number} | lr 1e-4\n" for number in range(10, 60)),
    # Ports without a cable are told of at each boot.
    "mlx5_core 0000:3b:00.1: Port module event: module 1, Cable unplugged\n",
    "validation error: 0.05\nmean error: 0.12\n",
    # What a program or a library does without.
    "The system cannot find the file specified.\nCUDA runtime version: Could not collect\n",
    "processes killed: 0\n",
]

CAUSE_BEFORE_ECHO = [
    # What is raised about an extension that was not built.
    (
        "insufficient_log",
        "ninja: build stopped: subcommand failed.\n"
        + TRACE
        + "AttributeError: 'FusedAdam' object has no attribute 'native_adam'\n",
    ),
    ("build_dep_missing", "x.h:1:9: fatal error: libaio.h: No such file or directory\nninja: build stopped: failed.\n"),
    # Printed for every error of a collective.
    (
        "peer_process_died",
        "[E ProcessGroupNCCL.cpp:582] Some NCCL operations have failed or timed out.\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n",
    ),
]


@pytest.mark.parametrize(("label", "text"), SAID)
def test_knows_the_cause_in_other_words(label: str, text: str) -> None:
    assert diagnose(text)[0].label == label


@pytest.mark.parametrize("text", QUIET)
def test_says_nothing_where_nothing_is_wrong(text: str) -> None:
    assert diagnose(text)[0].label == "none"


@pytest.mark.parametrize(("label", "text"), CAUSE_BEFORE_ECHO)
def test_puts_the_cause_before_what_follows_from_it(label: str, text: str) -> None:
    assert diagnose(text)[0].label == label
