# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What is checked on a cluster: checks as data, and one pure matcher over the facts of all nodes.

`_check` is the language and the matcher, `_rules` gathers the checks of all areas, `_user` reads those of an inventory.
To add a check, add it to the file of its area and a case to its tests; `docs/checks.md` is held against the data.
"""
