#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: training_run_info
short_description: Tell of the training runs that a node has seen
version_added: 0.1.0
description:
  - Reads the runs' folders on the node, so that any machine with the inventory can take up a run, whatever became of
    the controller that started it.
  - A run's folder is its user's. As another user than root one sees of others' runs no more than that they are there.
options:
  runs_dir:
    description: The folder of all runs on the node.
    type: path
    required: true
  run_id:
    description: The one run that is asked for. Without it, the 50 newest.
    type: str
    default: ''
  lines:
    description: With O(run_id), how many of the last lines of each log to bring.
    type: int
    default: 0
  scripts:
    description: The supervisor's files by name. Filled in on the controller.
    type: dict
    default: {}
  lib:
    description: The folder on the node for these files, which root alone can change. Filled in on the controller.
    type: path
    default: /var/lib/torchfleet/lib
attributes:
  check_mode:
    support: full
    description: No run is changed in any mode.
  diff_mode:
    support: none
    description: No run is changed.
  action:
    support: full
    description: Adds the supervisor's files.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
---
- name: Look at all runs
  torchfleet.cluster.training_run_info:
    runs_dir: /var/lib/torchfleet/runs
  register: __launch_runs
"""

RETURN = r"""
---
runs:
  description:
    - The runs, newest first. C(state) is V(starting), V(running), V(exited), V(lost) (the run's supervisor was killed),
      V(private) (another user's) or V(unreadable); C(exit) is how the launcher ended and C(ranks) how each rank did;
      C(stop) is why somebody ended it; C(launch) is the plan, for runs that are not over and the newest.
  returned: success
  type: list
  elements: dict
  sample:
    - run_id: digits-20261121-101500
      user: ml
      state: exited
      started: 1795255000.1
      exit: {"code": 0, "signal": null}
      ranks: {"rank-0": {"rank": 0, "exit": {"code": 0, "signal": null}}}
      stop: ""
      launch: null
lines:
  description: The last lines of each log of the run, by the log's name.
  returned: success
  type: dict
  sample: {"rank-0.log": ["epoch 1  loss 0.1"]}
now:
  description: The node's clock, in seconds since the epoch.
  returned: success
  type: float
  sample: 1795255000.1
agent:
  description: The command that looks at runs on this node, for M(torchfleet.cluster.training_follow).
  returned: success
  type: list
  elements: str
  sample: [/usr/bin/python3, -I, /var/lib/torchfleet/lib/3f2a9c0d1b7e4a55/agent.py]
"""

import json
import os
import socket
import sys
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "runs_dir": {"type": "path", "required": True},
            "run_id": {"type": "str", "default": ""},
            "lines": {"type": "int", "default": 0},
            "scripts": {"type": "dict", "default": {}},
            "lib": {"type": "path", "default": "/var/lib/torchfleet/lib"},
        },
        supports_check_mode=True,
    )
    params = module.params
    host = socket.gethostname()
    try:
        _files.install_scripts(params["lib"], params["scripts"])
    except OSError as error:
        module.fail_json(msg=f"{host}: the supervisor's files cannot be put on the node: {error}")
    agent = [sys.executable, "-I", os.path.join(params["lib"], "agent.py")]

    def ask(*words: str) -> object:
        code, out, err = module.run_command([*agent, *words])
        if code:
            module.fail_json(msg=f"{host}: the runs cannot be looked at: {err.strip()[-300:]}")
        return json.loads(out)

    runs = ask("list", params["runs_dir"], *([params["run_id"]] if params["run_id"] else []))
    lines: object = {}
    if runs and params["run_id"] and params["lines"] > 0:
        lines = ask("tail", os.path.join(params["runs_dir"], params["run_id"]), str(params["lines"]))
    module.exit_json(changed=False, runs=runs, lines=lines, now=time.time(), agent=agent)


if __name__ == "__main__":
    main()
