# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Single messages of the tools, label by label, and what is counted over several lines."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Iterator, Tuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures" / "diagnosis"))
from variants import VARIANTS, variant

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import diagnose
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rules import RULES

MESSAGES = Path(__file__).parents[2] / "fixtures" / "diagnosis" / "messages.txt"


def messages() -> Iterator[Tuple[str, str]]:
    """Label and message. A message is one line of the file; `\\n` in it ends a line of the log."""
    label = ""
    for line in MESSAGES.read_text(encoding="utf-8").splitlines():
        if line.startswith("=== "):
            label = line[4:]
        else:
            yield label, line.replace("\\n", "\n")


@pytest.mark.parametrize(("label", "text"), list(messages()))
def test_knows_the_message(label: str, text: str) -> None:
    assert diagnose(text)[0].label == label


# A heading tells what this state is of, and the line has to be indented below it.
UNDER_A_HEADING = "        State   "


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"broken", "midst"}))
def test_knows_the_message_in_every_dress(name: str) -> None:
    wrong = [text for label, text in messages() if diagnose(variant(name, label, text))[0].label != label]
    assert [text for text in wrong if UNDER_A_HEADING not in text] == []


def test_all_patterns_are_regular_expressions() -> None:
    for rule in RULES:
        for sign in rule.signs:
            re.compile(sign.pattern, re.IGNORECASE)


def registered(*members: int, world: int) -> str:
    return "".join(f"Initializing distributed: GLOBAL_RANK: {n - 1}, MEMBER: {n}/{world}\n" for n in members)


def test_members_that_do_not_come_are_missing() -> None:
    finding = diagnose(registered(1, 3, world=4))[0]
    assert finding.label == "missing_ranks"
    assert "4" in finding.cause and "1, 3" in finding.cause


def test_members_that_come_twice_instead_of_others_are_alike() -> None:
    assert diagnose(registered(1, 1, world=2))[0].label == "too_many_ranks_joined"


def test_members_that_come_again_after_a_restart_are_all_there() -> None:
    assert diagnose(registered(1, 2, world=2) * 2)[0].label == "none"


def test_members_of_other_nodes_are_not_missing_where_all_have_registered() -> None:
    text = registered(1, 2, world=4) + "All distributed processes registered. Starting with 4 processes\n"
    assert diagnose(text)[0].label == "none"


def test_members_of_other_nodes_are_not_missing_where_the_run_goes_on() -> None:
    text = registered(1, world=2) + "".join(f"step {number} | loss 1.{number}\n" for number in range(10, 20))
    assert diagnose(text)[0].label == "none"


def test_nodes_that_were_started_for_other_worlds() -> None:
    logs = {
        f"runs/7/node-{node}/rank-0.log": f"[launch.py:162:main] dist_world_size={size}\n"
        for node, size in (("a", 16), ("b", 8))
    }
    assert diagnose(logs)[0].label == "launcher_args_mismatch"
    assert diagnose(dict.fromkeys(logs, "[launch.py:162:main] dist_world_size=16\n"))[0].label == "none"


QUIET = [
    # Lists of ports and counters, and what a kernel tells at each start.
    "0000:3b:00.0: mlx5_core: firmware version: 28.39.1002\nmlx5_core 0000:3b:00.0: E-Switch: Total vports 2\n",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 237\nnvidia-uvm: Loaded the UVM driver\n",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel\n",
    "Port 1:\n    State: Active\n    Physical state: LinkUp\n",
    "NCCL WARN NET/OFI Disabling shared memory is not needed\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 88\n",
    "libfabric:7:1::core:core:fi_getinfo_():1382<info> fi_getinfo: provider tcp returned -61 (No data available)\n",
    "srun: Job 7 has been allocated resources\nsrun: Job step created\n",
    # NCCL's own second tries, and its monitor's port, before the communicator is there.
    "h1:1:9 [0] NCCL INFO Call to connect returned Connection refused, retrying\nh1:1:9 [0] NCCL INFO comm 0x7f - Init COMPLETE\n",
    "h1:1:9 [0] NCCL INFO socketPollConnect: connect to 10.0.0.2<41000> returned Connection timed out, retrying (1/34) "
    "after sleep for 100 msec\nh1:1:9 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 - Init COMPLETE\n",
    "h1:1:9 [0] misc/socket.cc:412 NCCL WARN Call to bind failed: Address already in use\n"
    "h1:1:9 [0] NCCL INFO RAS failed to establish a client listening socket at 127.0.0.1<28028>\n"
    "h1:1:9 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 - Init COMPLETE\nstep: 1 loss: 2.4\n",
    "Fabric\n        State                             : Completed\n        Status                            : Success\n",
    "GPU Recovery Action                       : None\n",
]


@pytest.mark.parametrize("text", QUIET)
def test_says_nothing_of_plain_messages(text: str) -> None:
    assert diagnose(text)[0].label == "none"


def test_a_second_try_is_not_the_cause_of_what_the_program_raised() -> None:
    text = (
        "h1:1:9 [0] NCCL INFO socketPollConnect: connect to 10.0.0.2<41000> returned Connection refused, retrying (1/34)\n"
        "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\nKeyError: 'lr'\n"
    )
    assert diagnose(text)[0].label == "user_code"


def test_what_torch_repeats_of_nccl_is_enough() -> None:
    for last, label in (
        ("socketStartConnect: exceeded timeouts (3600)", "nccl_wrong_socket_ifname"),
        ("Error: network IB not found.", "net_plugin_unusable"),
        ("Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0", "nccl_bug_upgrade"),
        ("Broadcast : sendbuff is not a valid pointer", "user_code"),
        ("[Service thread] Accept failed Resource temporarily unavailable", "insufficient_log"),
    ):
        text = (
            "[rank3]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error\n"
            "[rank3]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed\n"
            f"[rank3]: Last error:\n[rank3]: {last}\n"
        )
        assert diagnose(text)[0].label == label


def test_a_directory_that_a_step_does_not_need_is_no_failure() -> None:
    text = (
        "slurmstepd: error: couldn't chdir to `/home/u/run': No such file or directory: going to /tmp instead\n"
        "# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20\n"
        "#  Rank  0 Group  0 Pid     11 on         n1 device  0 [0x3b] NVIDIA A100\n"
    )
    assert diagnose(text)[0].label == "none"


FAULT = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)\n"
    "[default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"
)
TRACE = 'Traceback (most recent call last):\n  File "/srv/job/fit.py", line 9, in <module>\n    main()\n'
STEPS = "".join(f"step {number} | loss 1.{number}\n" for number in range(10, 20))


def test_a_fault_before_a_restart_that_went_well_is_over() -> None:
    assert diagnose(STEPS + FAULT + STEPS)[0].label == "none"


def test_a_fault_after_the_last_restart_is_not_over() -> None:
    assert diagnose(STEPS + FAULT)[0].label == "collective_timeout_desync"
    assert diagnose(STEPS + FAULT + STEPS + FAULT.splitlines()[0])[0].label == "collective_timeout_desync"


CAUGHT = TRACE + "ModuleNotFoundError: No module named 'fast_attention'\n"


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("none", CAUGHT + STEPS),
        ("none", CAUGHT + STEPS + "training complete\n"),
        # It came to an end, or another trouble did.
        ("user_code", CAUGHT + STEPS[:80]),
        ("user_code", STEPS + CAUGHT),
        ("user_code", CAUGHT + STEPS + CAUGHT),
        (
            "user_code",
            CAUGHT + STEPS + "E api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 100) of binary: python\n",
        ),
        # The steps are those of another rank.
        ("user_code", "[rank1]: ModuleNotFoundError: No module named 'fast_attention'\n" + STEPS),
    ],
)
def test_an_exception_that_the_program_lives_through_is_none(label: str, text: str) -> None:
    assert diagnose(text)[0].label == label


def test_a_store_that_is_gone_at_the_end_is_an_echo_only_where_something_failed() -> None:
    gone = "[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=6): failed to recv, got 0 bytes\n"
    failed = "E api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 100) of binary: python\n"
    assert diagnose("training complete\n" + gone)[0].label == "none"
    assert diagnose("training complete\n" + gone + failed)[0].label == "peer_process_died"


@pytest.mark.parametrize("prefix", ["[0] ", "0: ", "node-1: ", "[0,1]<stderr>: "])
def test_prefixes_in_any_number_are_read_in_no_time(prefix: str) -> None:
    assert diagnose(prefix * 500 + "no error: at all\n")[0].label == "none"


def test_gloo_ranks_that_waited_in_vain_end_before_their_connections() -> None:
    logs = {
        "n1.log": "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:43651\n",
        "n2.log": "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 25000ms for recv operation\n",
    }
    assert diagnose(logs)[0].label == "collective_timeout_desync"
