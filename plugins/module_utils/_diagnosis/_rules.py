# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""All rules, area by area. A new rule goes into the file of its area, and nowhere else."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis import (
    _rules_machine,
    _rules_nccl,
    _rules_network,
    _rules_program,
    _rules_software,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import Rule

RULES: Tuple[Rule, ...] = (
    _rules_network.RULES + _rules_nccl.RULES + _rules_machine.RULES + _rules_software.RULES + _rules_program.RULES
)
