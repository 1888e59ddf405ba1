# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Rules: the program itself, signals from outside, echoes, what only says that something failed, harmless lines."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import (
    CONTAINER,
    ECHO,
    EXIT_CODE,
    HINT,
    KILLED,
    LIKELY,
    SYMPTOM,
    UNKNOWN,
    Rule,
    fact,
    sign,
    signs,
)

# Exceptions that a program raises by its own doing; connections, time-outs and signals are not among them.
_BUILTIN = (
    "AttributeError",
    "KeyError",
    "IndexError",
    "TypeError",
    "ValueError",
    "NameError",
    "UnboundLocalError",
    "ModuleNotFoundError",
    "ImportError",
    "FileNotFoundError",
    "NotADirectoryError",
    "IsADirectoryError",
    "FileExistsError",
    "PermissionError",
    "SyntaxError",
    "IndentationError",
    "AssertionError",
    "ZeroDivisionError",
    "NotImplementedError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "RecursionError",
    "OverflowError",
    "FloatingPointError",
    "JSONDecodeError",
    "UnpicklingError",
    "LookupError",
    "StopIteration",
    "HFValidationError",
    "RepositoryNotFoundError",
    "GatedRepoError",
)
_MORE_LOG = (
    "Gather: each rank's own output up to its first error (launch.yml keeps runs/<run_id>/<node>/rank-<n>.log), the "
    "same from "
    "every node, with nccl_env_extra: {{NCCL_DEBUG: INFO}}, launch_env: {{TORCH_DISTRIBUTED_DEBUG: DETAIL}}, and "
    "dmesg -T of the node that stopped first."
)

RULES: Tuple[Rule, ...] = (
    # The program.
    Rule(
        id="exception",
        label="user_code",
        level=SYMPTOM,
        confidence=0.7,
        caught=True,
        signs=signs(
            sign(
                r"(?<!except )(?<![\w`'\"])(?:[\w.]+\.)?(?P<error>(?-i:"
                + "|".join(_BUILTIN)
                + r"))(?::(?! *$)(?!.* other ranks that didn't finish)|\s*$)(?P<message>.{0,120})",
                *_BUILTIN,
            ),
            # As torchelastic writes it into its error files.
            r"\"message\": \"(?P<error>(?-i:" + "|".join(_BUILTIN) + r")): (?P<message>.{0,120})",
            # About files; the other numbers are about what a machine lacks.
            r"(?<!except )\b(?P<error>(?:OS|IO)Error): (?P<message>\[Errno (?:2|13|17|20|21|36|39)\].{0,120})",
        ),
        cause="The program raised {error}: {message}",
        fix=(
            "Repair the program, its arguments or its data at the line the traceback ends with; the cluster is not the "
            "cause."
        ),
    ),
    Rule(
        id="tensor_error",
        label="user_code",
        level=SYMPTOM,
        confidence=0.8,
        caught=True,
        signs=signs(
            r"mat1 and mat2 shapes",
            r"size of tensor .* must match",
            r"expected all tensors to be on the same device",
            r"Sizes of tensors must match",
            r"size mismatch for",
            r"shape '.*' is invalid for input",
            r"expected scalar type",
            r"should be the same$|Input type .* and weight type .* should be the same",
            r"modified by an inplace operation",
            r"does not require grad",
            r"backward through the graph a second time",
            r"Error\(s\) in loading state_dict",
            r"Expected to have finished reduction in the prior iteration",
            r"(?:mark a variable ready|marked as ready) (?:only once|twice)",
            r"device-side assert",
            r"Assertion .{1,200}index out of bounds.* failed",
            r"stack expects each tensor to be equal size",
            r"process group has not been initialized",
            r"inconsistent compute device and\W*device_id",
            r"Given groups=\d+",
            r"only supports? CUDA tensors|not supported for NCCL process group|Cannot use ReduceOp",
            r"ProcessGroup\w+::\w+: (?:invalid|only supports|requires|unsupported)",
            r"DDP expects same model|appears not to match (?:sizes|strides) of the same param",
            r"Expected .{0,40}(?:dimension|input|tensor) .{0,60}(?:but got|to have)",
            r"an illegal (?:memory access|instruction) was encountered",
            r"misaligned address",
            r"invalid program counter",
            r"operation not supported on global/shared",
            r"too many (?:resources requested for launch|blocks in cooperative launch)",
            r"invalid configuration argument",
            r"not permitted when stream is capturing|due to a previous error during capture",
            r"cudaError(?:Illegal|Misaligned|Assert|InvalidPc|InvalidAddressSpace|LaunchOutOf|StreamCapture)",
            r"CUDA_ERROR_(?:ILLEGAL|MISALIGNED|ASSERT|INVALID_PC|INVALID_ADDRESS_SPACE|LAUNCH_OUT_OF|STREAM_CAPTURE)",
            sign(
                r"CUDA (?:error|failure):? \(?(?:code )?7(?:0[01]|1[05-8])\b",
                *("cuda error", "cuda failure"),
            ),
            # A process that was forked after its parent had used CUDA.
            r"RuntimeError: (?:CUDA error|cuda runtime error)\W+(?:3\W+)?initialization error",
            r"Xid \([^)]*\): (?:13|31|43|45|68|69|137)\b",
            r"loss is (?:nan|inf)\b",
            r"user-created ncclRedOp_t",
            r"Trying to (?:send|recv) to self without",
            r"invalid root \d+ \(root should",
            r"(?:NCCL WARN |^\W*)\w+ : .*(?:is not a valid pointer|argument is NULL|mismatchs with NCCL device)",
            r"(?:NCCL WARN |^\W*)\w+ : invalid (?:type|reduction operation) \d",
            r"ncclGroupEnd: not in a group call",
            r"communicator before the previous operation returned",
            r"host threads racing to launch NCCL",
            r"comm \S+ has already been destroyed",
            r"Memory access fault by GPU node",
            r"out of resource: (?:shared memory|tensor memory|threads|registers)",
            r"_dynamo\.exc\.\w+",
        ),
        cause="The program's tensors, devices or model do not fit together, or a kernel of it went wrong.",
        fix=(
            "Repair the program or its configuration; one rank with CUDA_LAUNCH_BLOCKING=1 in launch_env shows the "
            "very call."
        ),
    ),
    Rule(
        id="command_line",
        label="user_code",
        level=SYMPTOM,
        confidence=0.7,
        signs=signs(
            r"error: unrecognized arguments",
            r"error: the following arguments are required",
            r"error: argument \S+: ",
            r"can't open file '[^']+': \[Errno 2\]",
            r"^(?:ba|da|k|z)?sh: (?:line )?[\d: ]*\S+\.(?:sh|py): No such file or directory$",
            r"syntax error near unexpected token",
        ),
        cause="The program does not accept its command line, or is not where the command line says.",
        fix="Correct launch_script and launch_args.",
    ),
    Rule(
        id="unknown_exception",
        label="user_code",
        level=UNKNOWN,
        confidence=0.35,
        caught=True,
        signs=signs(
            sign(
                r"^(?!.*(?:torch\.distributed|NCCL|CUDA[ _](?:error|driver|out|runtime|failure|kernel)"
                r"|cuda(?:Error|Get|Set|Malloc)|c10d|gloo|CalledProcessError|ChildFailed|ProcessExited"
                r"|SignalException|ProcessRaised|Horovod detected|scheduler died|abruptly died|"
                r"exited unexpectedly|shm_manager|"
                r"Connection|BrokenPipe|Timeout|EOFError|DataLoader worker|ray\.exceptions|ActorDied|"
                r"WorkerCrashed|grpc|Errno|Engine|"
                r"failed with exit code|"
                r"RuntimeError: Error building|RuntimeError\s*$|Exception:\s*$|process \d+ terminated|Worker group in|"
                # What a rank sees of others, in whatever exception it comes.
                r"broken pipe|timed? ?out|\bpeer\b|0 bytes|shut ?down|monitoredBarrier|HorovodInternal|"
                r"unhandled|system error|other ranks|root cause|(?:messages?|errors?|trace) above))"
                # What launchers and collectors put before a line. Each is taken in one way only, or the ways multiply.
                r"(?:(?=(\[\d+,\d+\]<std\w+>:\s?|\W*\[[^\]]+\]:? ?|\W*\"message\": \"|"
                r"[\w.-]+:\d+ \| |[\w.-]+: |\d[\dT:.,+-]*Z? ))\1)*"
                r"(?:\w+\.)*(?-i:(?:[A-Z]\w*)?Exception|[A-Z]\w*Error|(?:errors|exc|exceptions|lib)\.[A-Z]\w*)\b: "
                r"?(?P<message>.{0,120})",
                "error:",
                "exception:",
                *(".errors.", ".exc.", "exceptions.", ".lib."),
            ),
        ),
        recovers=True,
        cause="The program raised an exception that no rule knows: {message}",
        fix="Read the traceback: most likely the program, its arguments or its data.",
    ),
    Rule(
        id="threads_at_exit",
        label="user_code",
        level=HINT,
        confidence=0.6,
        # 5 of 40 runs of torch 2.13 over gloo ended so, whose work was done; none that left by os._exit.
        signs=signs(r"terminate called without an active exception"),
        cause=(
            "A thread was still at work when the interpreter was torn down: a process group that nobody destroyed, at "
            "the end of a script whose work may be done."
        ),
        fix=(
            "End the script with torch.distributed.barrier(), destroy_process_group(), sys.stdout.flush() and "
            "os._exit(0), as examples/digits/train.py does."
        ),
    ),
    Rule(
        id="download_failed",
        label="user_code",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(
            r"HTTPSConnectionPool",
            r"Max retries exceeded with url",
            r"couldn't connect to 'https",
            r"LocalEntryNotFoundError",
            r"Failed to resolve '[\w.-]+\.(?:co|com|org|io|net)'",
        ),
        recovers=True,
        cause="The program wants something from the internet and does not get it.",
        fix=(
            "Bring data and models to the nodes beforehand (playbooks/sync.yml) and launch_env: {{HF_HUB_OFFLINE: "
            "'1'}}, "
            "or give the nodes a proxy: launch_env: {{HTTPS_PROXY: ...}}."
        ),
    ),
    # Ended from outside.
    # So srun ends the other tasks of a step when one has failed.
    fact("step_ended_for_a_task", r"srun: (?:launch/slurm: \S+ )?Terminating (?:StepId|job step)"),
    Rule(
        id="scheduler_ended_it",
        label="external_sigterm",
        level=LIKELY,
        confidence=0.9,
        signs=signs(
            r"DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)",
            r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED",
            r"PBS: job killed",
            r"TERM_RUNLIMIT",
            r"JobState=(?:TIMEOUT|PREEMPTED|CANCELLED|DEADLINE)",
            r"(?:launch_time_limit|time limit) (?:of \S+ \w+ )?(?:was |is )?(?:reached|exceeded)",
            r"TERM_(?:(?:FORCE_|REQUEUE_)?(?:OWNER|ADMIN)|PREEMPT|CPULIMIT|DEADLINE|EXTERNAL_SIGNAL|LOAD|WINDOW)",
            r"preempted by|(?:instance|job|node|pod|VM|TPU) was preempted",
            r"exceeded (?:hard|soft) wallclock time|Max(?:Runtime|WaitTime)Exceeded",
            r"user-provided time limit for job execution",
            r"imminent node shutdown",
            r"STEPD TERMINATED ON",
            r"active (?:on the node )?longer than (?:the )?specified deadline|DeadlineExceeded",
            r"interruption notice",
        ),
        unless=("step_ended_for_a_task",),
        outranks=("collective_timeout_desync",),
        cause="The job was ended from outside: its scheduler's time limit, a preemption, or an operator.",
        fix=(
            "Nothing to repair in the program: raise the time limit (launch_time_limit), or save checkpoints more "
            "often and resume."
        ),
    ),
    Rule(
        id="terminated",
        label="external_sigterm",
        level=KILLED,
        confidence=0.65,
        signs=signs(
            r"Main process received SIGTERM",
            r"got (?:termination )?signal: (?:1|2|15)\b",
            r"received (?:Signals\.SIG(?:TERM|HUP|INT)|(?:1|2|15)) death signal",
            r"(?:SIGHUP|SIGINT) death signal",
            r"closing signal (?:SIGHUP|SIGINT)",
            r"\bKeyboardInterrupt\b",
            r"exited on signal (?:2|15) ",
            r"terminated with signal SIG(?:TERM|INT|HUP)",
            r"Forwarding signal (?:2|15) to job",
            r"^User defined signal [12]\b",
            r"Received SIG(?:TERM|INT|HUP)",
            r"srun: (?:forcing job termination|Force Terminated)|Job allocation \d+ has been revoked",
            r"mpirun: killing job|interrupt, aborting\.",
            r"Signal: Terminated \(15\)|EXIT STRING: (?:Terminated|Hangup|Interrupt) \(signal",
            r"Exited with signal termination: 15",
            r"[Ss]ending Ctrl-C to|Ctrl-C caught",
            sign(r"(?:line \d+: +|^)\d+ Terminated  |^\W*Hangup\W*$", " terminated  ", "hangup"),
            r"one more within 1 sec to abort",
            r"hit ctrl-c again",
            r"^Killed by signal (?:1|2|15)\.",
            r"Received signal (?:1|2|15)\b",
            r"Ctrl \+ C detected",
            sign(r"^\W*Terminated\W*$|tasks? \d[\d,-]*: Terminated\s*$", "terminated"),
        ),
        unless=("step_ended_for_a_task",),
        outranks=("collective_timeout_desync",),
        cause=(
            "The launcher was ended by a signal from outside: scheduler, operator, or the terminal it hung on was "
            "closed."
        ),
        fix=(
            "Nothing to repair in the program: raise the time limit, or start with launch.yml, whose runs outlive the "
            "terminal."
        ),
    ),
    # So torchelastic tells that it starts the ranks anew.
    fact("restarted", r"will restart worker group"),
    fact("exit_of_its_own", r"exitcode\s*: [1-9]", r"\(exitcode: [1-9]", r"return code = [1-9]"),
    Rule(
        id="ended_by_sigterm",
        label="external_sigterm",
        level=KILLED,
        confidence=0.5,
        signs=signs(
            sign(
                r"(?:exit|return|terminat).{0,32}?(?:code|status)\W{1,6}(?:-15|143)\b",
                *EXIT_CODE,
            ),
            r"is killed by signal: Terminated",
        ),
        unless=("exit_of_its_own",),
        cause="A rank was ended by SIGTERM, and no rank is seen that ended before of its own.",
        fix="Look who ends jobs there: time limit, preemption, an operator; and for a fault in another node's log.",
    ),
    # Echoes.
    Rule(
        # gloo sees at once that a peer is gone: where a rank waited in vain, connections were closed after that.
        id="gloo_timed_out",
        label="collective_timeout_desync",
        level=ECHO,
        confidence=0.65,
        signs=signs(
            r"Timed out waiting \d+ms for (?:recv|send) operation",
            r"gloo/transport/tcp/\w+\.cc:\d+\] (?:Read|Write) timeout",
        ),
        outranks=("peer_process_died",),
        cause="Ranks waited in vain for what another one sends: it is late, elsewhere, or cannot get through.",
        fix=(
            "Find the rank that does not wait: its log holds the cause. If all wait, look at the network between them "
            "(playbooks/check.yml: firewall, MTU). Raise the process group's timeout only for work that is truly slow."
        ),
        probe="peer_ports",
    ),
    Rule(
        id="collective_timed_out",
        label="collective_timeout_desync",
        level=ECHO,
        confidence=0.65,
        signs=signs(
            r"\[Rank (?P<rank>\d+)\].*caught collective operation timeout: \w+\(SeqNum=(?P<seq>\d+), "
            r"OpType=(?P<op>\w+)",
            r"caught collective operation timeout",
            r"WorkNCCL\(.*timed out in blocking wait",
            r"(?:SIZE_OR_SYNTAX|COLLECTIVE_\w{4,6})_MISMATCH",
            r"due to a collective timeout",
            r"flight recorder dump signal from another rank",
            r"Timeout at NCCL work",
            r"(?:failed to pass|reached|timed out in) monitoredBarrier",
            r"Error: (?:NCCL )?Operation timed out!?\s*$",
            r"Timeout at collective: |ranks that caused (?:this timeout|the desync)",
            r"Terminating the process after attempting to dump debug info",
            r"First PG on this rank to signal dumping",
            r"heartbeat monitor timed out",
            r"tensors were submitted to be (?:reduced|allgathered|broadcasted)",
            r"Watchdog caught collective",
            r"watchdog got stuck for",
            r"preparing to dump debug info",
            r"NCCL communicator was aborted",
            r"^\W*Stalled ranks:",
            r"not all of them arrived on time",
            r"collective timeout from this local rank",
            r"WorkNCCL::checkTimeout\(",
            r"Watchdog timeout \(|RPC call to \w+ timed out",
            r"Exception raised from checkTimeout",
            r"Error: NCCL (?:\w+ )?time-?out\b",
        ),
        cause=(
            "Ranks waited in vain in a collective (sequence numbers {seq} on ranks {rank}): one rank is late, gone, or "
            "in another collective."
        ),
        fix=(
            "Find the rank with the lowest sequence number, or with no such report: its log holds the cause. Same "
            "number "
            "everywhere: a slow or stuck link or GPU (playbooks/bench.yml). Different numbers: the program diverges "
            "(data "
            "length, branches on rank). Raise the process group's timeout only for work that is truly slow."
        ),
        probe="peer_ports",
    ),
    Rule(
        id="collective_failed_somehow",
        label="collective_timeout_desync",
        level=HINT,
        confidence=0.4,
        # Printed for every error of a collective, not only for a time-out.
        signs=signs(r"NCCL operations have failed or timed out", r"failure detected by watchdog at work sequence"),
        cause="A collective failed or timed out on this rank, and the line that says which is not in this log.",
        fix=_MORE_LOG,
        probe="ranks_alive",
    ),
    Rule(
        id="collectives_differ",
        label="collective_timeout_desync",
        level=LIKELY,
        confidence=0.8,
        signs=signs(
            r"detected mismatch between collectives",
            r"symmetric registration check failed on rank",
            r"Mismatched collective detected",
            r"collective mismatch around rank",
            r"NCCL WARN Your program may be hanging",
            r"op\.preamble\.length <= op\.nbytes",
            r"Mismatched [\w -]{4,40}: One rank",
            r"collective.{0,40}shapes? .{0,30}mismatch",
            # What the peer sends does not fit what this rank posted.
            r"Got completion .*?(?:error|status)[ =](?:IBV_WC_LOC_LEN_ERR|IBV_WC_REM_INV_REQ_ERR|[19]\b)",
        ),
        cause="Ranks called different collectives, or one with tensors of different sizes.",
        fix=(
            "The program diverges between ranks: launch_env: {{TORCH_DISTRIBUTED_DEBUG: DETAIL}} names the calls; look "
            "for branches on rank and for uneven data."
        ),
    ),
    Rule(
        id="ended_well",
        label="",
        level=CONTAINER,
        confidence=0,
        signs=signs(
            r"Trainer\.fit.? stopped",
            r"train_runtime",
            r"train(?:ing)? (?:is )?(?:complete|finished|done)",
            r"worker group successfully finished|worker group finished \(SUCCEEDED\)",
        ),
        unless=("ranks_failed", "failed_somehow"),
    ),
    Rule(
        id="peer_gone",
        label="peer_process_died",
        level=ECHO,
        confidence=0.5,
        signs=signs(
            r"Connection closed by (?:remote )?peer",
            r"Connection reset by peer",
            r"remote process exit",
            r"ncclRemoteError",
            r"failed to recv, got 0 bytes",
            r"Connection was likely closed",
            r"gloo/transport/tcp/\w+\.cc:\d+\] Socket closed",
            r"Error: (?:async error|eof|E[A-Z]+).*originated at tensorpipe",
            r"remote error detected from rank",
            r"other ranks that didn't finish",
            r"Broken pipe",
            r"TCPStore server has shut down",
            r"RendezvousClosed(?:Error|Exception)",
            r"Got completion .*?(?:error|status)[ =](?:IBV_WC_WR_FLUSH_ERR|5\b)",
            r"socket (?:recv|send) failed while polling",
            r"Call to (?:recv|send|write|read)\w* (?:from|to)? ?\S* ?failed",
            sign(
                r"NET/OFI .*(?:completed with error|Error posting|failed to (?:post|process)|progress failed)",
                *("completed with error", "error posting", "failed to post", "failed to process", "progress failed"),
            ),
            r"Socket unexpectedly closed",
            r"Application timeout caused pair closure",
            r"peer process has unexpectedly disconnected",
            r"Connection reset by remote peer",
            r"Work Request Flushed",
            r"Horovod has been shut down",
            r"Connection to \S+ (?:port \d+ )?closed by remote host|ssh_dispatch_run_fatal: ",
            r"died because its node has died|(?:Node|Raylet|Owner)DiedError",
        ),
        # Whoever ends last finds the store gone.
        unless=("ended_well",),
        cause="A peer closed its connection: it died first, and this log shows only what its neighbours saw.",
        fix=(
            "Look in the log of the rank that ended first (lowest time stamp, or no message at all) and in dmesg of "
            "its node."
        ),
        probe="ranks_alive",
    ),
    # Only that something failed.
    Rule(
        id="ranks_failed",
        label="insufficient_log",
        level=CONTAINER,
        confidence=0.4,
        signs=signs(
            r"End of error message|\*\*\* Process received signal \*\*\*",
            r"double free or corruption|corrupted size vs|stack smashing detected|(?:free|malloc)\(\): \w+",
            r"BAD TERMINATION OF ONE OF|has exited due to process rank|exit with status code -?[1-9]",
            r"exited with a non-zero status of|worker died (?:or was killed|unexpectedly) while executing",
            r"exited unexpectedly",
            r"_init failed for some reason",
            r"Rank \d+ scheduler (?:is dead|died)|has abruptly died|terminated abruptly",
            sign(r"\[ ?\d+\] /\S+\.so[.\d]*\(\S*\+0x", "+0x"),
            r"ChildFailedError",
            r"exitcode\s*: -?[1-9]",
            r"\(exitcode: -?[1-9]\d*\)",
            r"return code = -?[1-9]",
            r"returned non-zero exit status",
            r"noticed that process rank \d+",
            r"Segmentation fault",
            r"core dumped",
            r"terminate called after throwing",
            sign(
                r"exit(?:ed with|s with|ed on)? (?:signal|status|code|return code) -?[1-9]",
                "exit status",
                "exit code",
                "exit signal",
                "exited with",
                "exits with",
                "exited on",
            ),
            r"Test (?:CUDA |NCCL )?failure common\.cu",
            r"FAILED \(exitcode ",
            r"torchelastic\.worker\.status\.FAILED",
            r"Encountered a bad command exit code",
            r"DataLoader worker .*exited unexpectedly",
            r"Fatal Python error",
            r"watchdog thread terminated with exception",
            r"Primary job +terminated normally",
            r"Fatal error in (?:internal_|P)?MPIX?_",
            r"MPI_ABORT was invoked|called MPI_Abort\(",
            r"An error occurred in (?:P?MPI_|on a NULL)",
            # Kubernetes and Slurm say no more than this.
            r"CrashLoopBackOff|Back-off restarting failed",
            r"JobState=(?:FAILED|BOOT_FAIL|NODE_FAIL)",
            r"processes exited with non-zero status",
            r"^make(?:\[\d+\])?: \*\*\* .*Error \d",
            r"^thread '[^']*' panicked at",
            sign(r"\s0/\d+\s+(?:Init:)?\w*(?:Error|ErrImagePull)\s+\d", "error ", "errimagepull"),
            r"^\W*(?:\S+ +)?(?:ERROR +)?Training failed\b",
            r"conda\.cli\.main_run.*failed",
            r"terminated with exit code [1-9]",
            r"code=exited, status=[1-9]",
        ),
        cause="The run failed, and what made it fail is not in this log.",
        fix=_MORE_LOG,
    ),
    Rule(
        id="ranks_ended",
        label="insufficient_log",
        level=CONTAINER,
        confidence=0.4,
        # The launcher's clean-up. A file may hold the next attempt as well, which went on.
        signs=signs(r"Killing subprocess \d+", r"closing signal SIGTERM"),
        recovers=True,
        cause="The launcher ended its ranks, and what made it do so is not in this log.",
        fix=_MORE_LOG,
    ),
    Rule(
        id="failed_somehow",
        label="insufficient_log",
        level=CONTAINER,
        confidence=0.3,
        signs=signs(
            r"\bLLVM ERROR: ",
            r"Windows fatal exception",
            sign(
                r"NCCL WARN (?!Failed to open libibverbs|NET/Plugin|NET/OFI Disabling shared|Missing|CC On, |"
                r"NET/IB : (?:No device|There are mismatched|SHARP coll init)|Could not find a path for|"
                r"Cannot get incoming CPU|"
                r"Maximum retry reached for)",
                "nccl warn",
            ),
            sign(r"\b(?:\w+\.)*\w*(?-i:Error|Exception): (?!severity=Corrected)", "error: ", "exception: "),
            r"Traceback \(most recent call last\)",
            # A frame of one whose head and end were left out.
            sign(r"^.{0,160}\bFile \"[^\"]+\", line \d+, in [<\w]", 'file "'),
            r"C\+\+ exception with description",
            r"INTERNAL ASSERT FAILED at",
            r"Failed to start container",
            r"NCCL error in: ",
            # Whatever program it is: a line that begins by saying so.
            sign(
                r"^(?:[\w./@-]+: )?(?:fatal(?: error)?|error|panic): "
                r"(?!couldn't chdir|ld\.so: object|pip's dependency|ld returned)",
                "fatal: ",
                "error: ",
                "panic: ",
            ),
            r"Exception raised from (?:c10_cuda_check_implementation|checkForNCCLErrors|ncclCommWatchdog)",
            r"^Error from server \(",
            sign(r"\bCUDA (?:error|failure)(?:: | \d)(?!.*Proceeding without)", "cuda error", "cuda failure"),
            r"Error response from daemon|Cannot connect to the Docker daemon|Failed to pull image",
            r"ORTE_ERROR_LOG: ",
        ),
        recovers=True,
        cause="Something failed, and no rule knows these lines.",
        fix=_MORE_LOG,
    ),
    # Nothing to do.
    Rule(
        id="harmless",
        label="none",
        level=CONTAINER,
        confidence=0.8,
        signs=signs(
            r"Failed to find ncclCollNetPlugin",
            r"Failed to find ncclNetPlugin",
            r"Failed to find ncclTunerPlugin",
            r"No plugin found \(libnccl-net",
            r"Could not find: lib\w*nccl-net",
            r"Failed to open libibverbs",
            r"NET/IB : No device found",
            r"hostname of the client socket cannot be retrieved",
            r"Setting OMP_NUM_THREADS environment variable",
            r"devices used by this process are currently unknown",
            r"P2P is disabled between",
            r"Unable to find hostfile, will proceed",
            r"requires the dev libaio",
            r"process group has NOT been destroyed",
            r"Guessing device ID based on global rank",
        ),
        cause="No fault is seen; these lines are harmless.",
        fix="No action.",
    ),
)
