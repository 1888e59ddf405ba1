# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`-e name=false` is the text `false`, which is true: an argument spec checks it and does not convert it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
EXPRESSIONS = ("when", "that", "until", "failed_when", "changed_when")
FILES = sorted(
    path
    for pattern in ("roles/*/tasks/**/*.yml", "roles/*/vars/*.yml", "roles/*/handlers/*.yml", "playbooks/*.yml")
    for path in ROOT.glob(pattern)
)


def booleans() -> set[str]:
    found = set()
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found |= {name for name, option in (entry.get("options") or {}).items() if option.get("type") == "bool"}
    return found


def expressions(node: object, key: str = "") -> Iterator[str]:
    """Jinja expressions of a YAML tree. One that hands the variable on as it is leaves the rest to who gets it."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from expressions(value, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value, key)
    elif isinstance(node, str):
        if key in EXPRESSIONS:
            yield node
        inner = re.findall(r"\{\{(.*?)\}\}", node, re.DOTALL)
        yield from (text for text in inner if node.strip() != f"{{{{{text}}}}}" or not text.strip().isidentifier())


BOOLEANS = booleans()
NAME = re.compile(r"(?<![\w.'\"])(" + "|".join(sorted(BOOLEANS, key=len, reverse=True)) + r")\b(?!['\"=])")
# Whether it is set at all may be asked of it as it is.
GUARDED = re.compile(r"\s*(?:\| *default\((?:[^()]|\([^()]*\))*\) *)*(?:\| *bool\b|is (?:not )?(?:none|defined)\b)")


def bare(text: str) -> list[str]:
    return [found.group(1) for found in NAME.finditer(text) if not GUARDED.match(text, found.end())]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_boolean_is_taken_for_one(path: Path) -> None:
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert [(text.strip(), bare(text)) for text in expressions(tree) if bare(text)] == []


def test_sees_one_that_is_not() -> None:
    assert bare("pending and nvidia_driver_reboot_ok") == ["nvidia_driver_reboot_ok"]
    assert bare("pending and nvidia_driver_reboot_ok | bool") == []
    assert bare("explain_probe is none or explain_probe | default(true, true) | bool") == []
    assert {"nvidia_driver_reboot_ok", "explain_probe"} <= BOOLEANS
