# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""All checks."""

from __future__ import annotations

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks import (
    _rules_gpu,
    _rules_machine,
    _rules_network,
    _rules_software,
)

CHECKS = (*_rules_network.CHECKS, *_rules_software.CHECKS, *_rules_gpu.CHECKS, *_rules_machine.CHECKS)
