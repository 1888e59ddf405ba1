#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done on the controller by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Write one page of HTML about a check, runs and logs
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Writes a page that opens from disk and needs no network, from what the other verbs left on the controller.
  - C(check.json) gives nodes, sameness, reachability and findings; the folder of a run its end and timeline, and
    C(findings.json) in it what M(torchfleet.cluster.explain) found.
options:
  dest:
    description: File to write.
    type: path
    required: true
  check:
    description: The C(check.json) of a check.
    type: path
  runs:
    description: Folders of runs.
    type: list
    elements: path
    default: []
  findings:
    description: A C(findings.json) about logs that are of no run in O(runs).
    type: path
attributes:
  check_mode:
    support: full
    description: Nothing is written.
  diff_mode:
    support: none
    description: The page is not for reading as text.
  action:
    support: full
    description: Runs on the controller.
seealso:
  - module: torchfleet.cluster.cluster_check
  - module: torchfleet.cluster.explain
"""

EXAMPLES = r"""
- name: Write a page about the last check and a run
  torchfleet.cluster.report:
    dest: report.html
    check: reports/check.json
    runs: [runs/digits-1]
"""

RETURN = r"""
dest:
  description: The file.
  returned: success
  type: str
  sample: /home/me/report.html
"""
