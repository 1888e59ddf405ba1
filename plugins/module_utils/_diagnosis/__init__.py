# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Why did a run fail: rules as data (`_rules_<area>`), one matcher, findings.

`_matcher.diagnose(logs)` is the way in.
"""
