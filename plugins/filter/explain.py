# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
name: explain
author:
  - The torchfleet authors (@torchfleet)
version_added: 0.1.0
short_description: Say why a training run failed, from its logs
description:
  - Finds the first cause among the echoes in the output of torchrun, accelerate, DeepSpeed, Colossal-AI, mpirun, NCCL
    and the kernel.
  - Nothing is run and no node is asked.
options:
  _input:
    description:
      - A log as text, or a mapping from file name to text, in launch order.
      - For large files use M(torchfleet.cluster.explain), which reads them piece by piece.
    type: raw
    required: true
seealso:
  - module: torchfleet.cluster.explain
"""

EXAMPLES = r"""
---
- name: Show the most likely cause
  ansible.builtin.debug:
    msg: "{{ (lookup('ansible.builtin.file', 'train.log') | torchfleet.cluster.explain | first).cause }}"

- name: Explain the logs of two ranks together
  ansible.builtin.debug:
    msg: "{{ {'n1.log': first_log, 'n2.log': second_log} | torchfleet.cluster.explain }}"
"""

RETURN = r"""
---
_value:
  description:
    - The findings, the best first, one for each label. There is always one at least.
    - A healthy log gives one with the label V(none); one that does not hold the cause V(insufficient_log).
  type: list
  elements: dict
  contains:
    label:
      description: What kind of cause it is.
      type: str
      sample: port_in_use
    cause:
      description: The cause in one sentence.
      type: str
      sample: The port the run wants (29500) is taken by another process on that node.
    fix:
      description: The change to the inventory, or the command, that cures it.
      type: str
      sample: "torchfleet_master_port: <free port>"
    evidence:
      description: Lines that show it, five at most, each with C(file), C(line) (from 1) and C(text).
      type: list
      elements: dict
    confidence:
      description:
        - From 0 to 1. At 0.85 and more a line states the cause, about 0.6 is a symptom that mostly has this cause, 0.4
          and less is a hint, or an echo whose cause lies elsewhere.
      type: float
      sample: 0.9
    rule:
      description: Id of the rule that spoke.
      type: str
      sample: port_taken
    ranks:
      description: Ranks that show it, where the log names them.
      type: list
      elements: str
    hosts:
      description: Hosts that show it, where the log names them.
      type: list
      elements: str
    probe:
      description: A check on the live cluster that can confirm it, C(id) and C(parameters), or none.
      type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._findings import finding_to_dict
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._matcher import diagnose


def explain(logs: Any) -> list[dict[str, Any]]:
    texts = dict(logs) if isinstance(logs, Mapping) else {"log": logs}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise AnsibleFilterError(
                f"explain takes a log as text, or file names with texts; {name} is {type(text).__name__}"
            )
    return [finding_to_dict(finding) for finding in diagnose({str(name): str(text) for name, text in texts.items()})]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"explain": explain}
