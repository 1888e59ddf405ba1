#!/usr/bin/env python3
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the table of all checks into docs/checks.md; with --check, say whether it is there as it should be."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "playbooks" / "collections"))

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import Check, shown
from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._rules import CHECKS

PAGE = ROOT / "docs" / "checks.md"
BEGIN, END = "<!-- checks -->\n", "<!-- end of checks -->\n"


def rule(check: Check) -> str:
    if callable(check.rule):
        return "see its function"
    ((name, wanted),) = check.rule.items()
    return f"`{name}`" if wanted is True or name == "same" else f"`{name}` {shown(wanted, check.unit)}"


def table() -> str:
    rows = ["| id | severity | what | reads | rule | source |", "| --- | --- | --- | --- | --- | --- |"]
    for check in CHECKS:
        title = check.title.rstrip(":")
        rows.append(f"| `{check.id}` | {check.severity} | {title} | `{check.reads}` | {rule(check)} | {check.source} |")
    return "\n".join(rows) + "\n"


def page(text: str) -> str:
    head, _begin, rest = text.partition(BEGIN)
    _table, _end, tail = rest.partition(END)
    return head + BEGIN + table() + END + tail


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if "--check" not in sys.argv:
        PAGE.write_text(page(text), encoding="utf-8")
    elif page(text) != text:
        sys.exit("docs/checks.md is not what the checks say: run scripts/checks_doc.py")


if __name__ == "__main__":
    main()
