# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold every role's meta/argument_specs.yml against its defaults/main.yml.

The entry point `main` describes every variable of the defaults and no other; further entry points describe some of
them. A default that is a plain value is stated and the same; one that is null or a template is left out. Every entry
point has its tasks file, and every `tasks_from` that a playbook uses is an entry point.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Iterator

import yaml

ROOT = Path(__file__).resolve().parents[1]
COLLECTION = "torchfleet.cluster."


def load(path: Path) -> Any:
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def is_template(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(is_template, value.values()))
    if isinstance(value, list):
        return any(map(is_template, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def default_problem(default: Any, option: dict[str, Any]) -> str:
    """What is wrong with the default that an option states; empty where nothing is."""
    stated = option.get("default")
    if default is None or is_template(default):
        return "" if stated is None else f"states the default {stated!r}, which defaults/main.yml leaves open"
    # True == 1 in Python, but not to a reader.
    if stated != default or isinstance(stated, bool) != isinstance(default, bool):
        return f"states the default {stated!r}, defaults/main.yml has {default!r}"
    return ""


def role_problems(role: Path) -> Iterator[str]:
    defaults = load(role / "defaults" / "main.yml")
    specs = load(role / "meta" / "argument_specs.yml").get("argument_specs", {})
    if "main" not in specs and (role / "tasks" / "main.yml").exists():
        yield "has no entry point main"
    for name, spec in specs.items():
        if not any((role / "tasks" / f"{name}{suffix}").exists() for suffix in (".yml", ".yaml")):
            yield f"{name}: there is no tasks/{name}.yml"
        options = spec.get("options") or {}
        missing = defaults.keys() - options.keys() if name == "main" else ()
        yield from (f"{name}: {option} of defaults/main.yml is not described" for option in sorted(missing))
        for option, details in options.items():
            if option not in defaults:
                yield f"{name}: {option} is not in defaults/main.yml"
                continue
            yield from (f"{name}: {option} has no {key}" for key in ("description", "type") if not details.get(key))
            problem = default_problem(defaults[option], details)
            if problem:
                yield f"{name}: {option} {problem}"


def used_entry_points(node: Any) -> Iterator[tuple[str, str]]:
    """Role and entry point of each include in a playbook or tasks file that names a `tasks_from`."""
    if isinstance(node, list):
        for item in node:
            yield from used_entry_points(item)
    elif isinstance(node, dict):
        role, entry = str(node.get("name") or node.get("role")), node.get("tasks_from")
        if entry and role.startswith(COLLECTION):
            yield role[len(COLLECTION) :], str(entry).rpartition("/")[2].split(".")[0]
        for item in node.values():
            yield from used_entry_points(item)


def main() -> None:
    problems = []
    for role in sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir()):
        problems += [f"roles/{role.name}/meta/argument_specs.yml: {problem}" for problem in role_problems(role)]
    for path in sorted([*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]):
        for role, entry in used_entry_points(load(path)):
            if entry not in load(ROOT / "roles" / role / "meta" / "argument_specs.yml").get("argument_specs", {}):
                problems.append(
                    f"roles/{role}/meta/argument_specs.yml: {entry}, used by {path.relative_to(ROOT)}, is missing"
                )
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
