#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: torch_bench
short_description: Measure a node's devices, or an all-reduce over all nodes, with the training's own torch
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - With O(measure=local) it multiplies matrices on each GPU (on the processor where there is none), and copies between
    host and GPU and from GPU to GPU.
  - With O(measure=collective) it runs this node's ranks of an all-reduce sweep. All nodes have to run it at the same
    time.
  - With O(measure=nccl_tests) it runs C(all_reduce_perf), over all nodes with C(mpirun) or on this node alone.
  - All processes it starts end with it.
options:
  measure:
    description: What to measure.
    type: str
    required: true
    choices: [local, collective, nccl_tests]
  python:
    description: The training's interpreter.
    type: path
    default: /opt/torchfleet/venv/bin/python
  user:
    description: The training user, who runs it.
    type: str
    default: root
  environment:
    description: Variables that a run gets, name to value.
    type: dict
    default: {}
  ranks:
    description: For O(measure=collective), the environment of each rank of this node beside O(environment).
    type: list
    elements: dict
    default: []
  backend:
    description: For O(measure=collective), V(nccl) or V(gloo).
    type: str
    choices: [nccl, gloo]
    default: gloo
  sizes:
    description: For O(measure=collective), the sizes of the messages in bytes, rising.
    type: list
    elements: int
    default: [1024, 65536, 1048576, 16777216, 67108864]
  argv:
    description: For O(measure=nccl_tests), the command. It is not run where its first word, or O(binary), is missing.
    type: list
    elements: str
    default: []
  binary:
    description: For O(measure=nccl_tests), the program that has to be there.
    type: path
  seconds:
    description: How long to measure each device or size.
    type: float
    default: 1
  timeout:
    description: Seconds after which all is ended.
    type: int
    default: 120
attributes:
  check_mode:
    description: Starts nothing in check mode.
    support: full
  diff_mode:
    description: There is nothing to show, because nothing changes.
    support: none
"""

EXAMPLES = r"""
- name: Measure the GPUs of each node
  torchfleet.cluster.torch_bench:
    measure: local
    user: ml
"""

RETURN = r"""
report:
  description: What was measured.
  returned: when measured
  type: dict
  sample:
    devices: [{index: 0, model: NVIDIA H100 80GB HBM3, dtype: bfloat16, tflops: 640.5, from_host_gbps: 52.1}]
    peers: [{source: 0, target: 1, gbps: 370.0, direct: true}]
problem:
  description: Why it was not measured.
  returned: when it was not
  type: str
  sample: torch cannot be imported
"""

import contextlib
import ctypes
import json
import os
import pwd
import signal
import tempfile
import time
from subprocess import STDOUT, Popen
from typing import Any, Dict, List, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _bench_script
from ansible_collections.torchfleet.cluster.plugins.module_utils._account import becoming
from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import read_marked

# An all-reduce that would take longer than this many seconds ends the sweep.
STEP_SECONDS = 8
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Processes:
    """Children of this module in sessions of their own, with their output in files; all end with `end`."""

    def __init__(self, user: str) -> None:
        self.account = pwd.getpwnam(user)
        self.running: List[Any] = []
        self.outputs: List[Any] = []

    def become(self) -> None:
        becoming(self.account)()
        # After the change of user, which takes it back: none of them outlives a module that is killed.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def start(self, argv: Sequence[str], text: str, env: Mapping[str, Any]) -> None:
        output = tempfile.TemporaryFile()  # noqa: SIM115  # until the end
        base = {"HOME": self.account.pw_dir, "USER": self.account.pw_name, "LC_ALL": "C.UTF-8", "PATH": SYSTEM_PATH}
        # Not run_command, which runs one thing at a time.
        with tempfile.TemporaryFile() as given:
            given.write(text.encode())
            given.seek(0)
            process = Popen(  # pylint: disable=ansible-bad-function
                list(argv),
                stdin=given,
                stdout=output,
                stderr=STDOUT,
                cwd="/",
                env={**base, **{name: str(value) for name, value in env.items()}},
                start_new_session=True,
                preexec_fn=self.become,
            )
        self.running.append(process)
        self.outputs.append(output)

    def wait(self, seconds: float) -> str:
        """The first failure in words; empty where all ended well."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            codes = [process.poll() for process in self.running]
            bad = next((number for number, code in enumerate(codes) if code), None)
            if bad is not None:
                return f"process {bad} ended with {codes[bad]}: {self.tail(bad)}"
            if all(code == 0 for code in codes):
                return ""
            time.sleep(0.05)
        slow = next(number for number, process in enumerate(self.running) if process.poll() is None)
        return f"not done after {seconds:.0f} s: {self.tail(slow)}"

    def text(self, number: int) -> str:
        self.outputs[number].seek(0)
        return str(self.outputs[number].read().decode("utf-8", "replace"))

    def tail(self, number: int) -> str:
        lines = [line for line in self.text(number).splitlines() if line.strip()]
        # What the script itself said stands before the traceback.
        told = read_marked(_bench_script.MARK, self.text(number)).get("problem")
        return str(told or (lines[-1] if lines else "it printed nothing"))[-400:]

    def end(self) -> None:
        for process in self.running:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for output in self.outputs:
            output.close()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "measure": {"type": "str", "required": True, "choices": ["local", "collective", "nccl_tests"]},
            "python": {"type": "path", "default": "/opt/torchfleet/venv/bin/python"},
            "user": {"type": "str", "default": "root"},
            "environment": {"type": "dict", "default": {}},
            "ranks": {"type": "list", "elements": "dict", "default": []},
            "backend": {"type": "str", "choices": ["nccl", "gloo"], "default": "gloo"},
            "sizes": {"type": "list", "elements": "int", "default": [1024, 65536, 1048576, 16777216, 67108864]},
            "argv": {"type": "list", "elements": "str", "default": []},
            "binary": {"type": "path"},
            "seconds": {"type": "float", "default": 1},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params = module.params
    measure = params["measure"]
    if module.check_mode:
        module.exit_json(changed=False, problem="nothing is started in check mode")
    needed = params["binary"] if measure == "nccl_tests" else params["python"]
    if not needed or not os.access(needed, os.X_OK):
        module.exit_json(changed=False, problem=f"{needed} is not there")
    task: Dict[str, Any] = {"measure": measure, "seconds": params["seconds"]}
    try:
        processes = Processes(params["user"])
    except KeyError:
        module.fail_json(
            msg=f"there is no user {params['user']!r}: make it, or set bench_user, or torchfleet_user for all roles"
        )
    try:
        if measure == "nccl_tests":
            processes.start(params["argv"], "", params["environment"])
        else:
            task.update(
                backend=params["backend"],
                sizes=params["sizes"],
                step_seconds=STEP_SECONDS,
                timeout=params["timeout"],
            )
            told = {_bench_script.TASK: json.dumps(task)}
            loader: Any = _bench_script.__loader__  # of a folder, or of Ansible's zip
            source = str(loader.get_source(_bench_script.__name__))
            for rank in params["ranks"] or [{}]:
                processes.start([params["python"], "-"], source, {**params["environment"], **rank, **told})
        problem = processes.wait(params["timeout"])
        text = processes.text(0)
    except OSError as error:
        module.exit_json(changed=False, problem=f"{needed} cannot be run: {error.strerror}")
    finally:
        processes.end()
    if problem:
        module.exit_json(changed=False, problem=problem)
    report = {"text": text} if measure == "nccl_tests" else read_marked(_bench_script.MARK, text)
    if report.get("problem"):
        module.exit_json(changed=False, problem=report["problem"])
    module.exit_json(changed=False, report=report)


if __name__ == "__main__":
    main()
