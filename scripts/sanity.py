# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run ansible-test without docker and without its download server: sanity.py COLLECTION HOME ARGUMENT ...

COLLECTION is an installed copy (ansible-test wants a path that ends in ansible_collections/NAMESPACE/NAME). HOME is a
folder of our own in which ansible-test keeps its environments and finds the script that it would download.
"""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from ansible_test._internal.constants import SUPPORTED_PYTHON_VERSIONS
from ansible_test._internal.python_requirements import get_venv_packages

STAND_IN = '''"""Puts pip into an environment from the interpreter's own wheels, in place of get-pip.py."""
import ensurepip

ensurepip.bootstrap(upgrade=True)
'''


def pip_settings() -> configparser.RawConfigParser:
    """pip's settings, those of the environment included: ansible-test passes neither the environment nor HOME on."""
    settings = configparser.RawConfigParser()
    settings.add_section("global")
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        name, _separator, value = line.partition("=")
        section, _dot, option = name.rpartition(".")
        section = "global" if section == ":env:" else section
        if not settings.has_section(section):
            settings.add_section(section)
        settings.set(section, option, str(ast.literal_eval(value)))
    return settings


def runs(python: Path) -> bool:
    return (
        subprocess.run([python, "-c", ""], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    )


def search_path() -> str:
    """PATH, where a version manager's shims give way to the interpreters behind them: not every shim runs."""
    kept: list[str] = []
    for folder in os.environ["PATH"].split(os.pathsep):
        pythons = [Path(folder, f"python{version}") for version in SUPPORTED_PYTHON_VERSIONS]
        if all(runs(python) for python in pythons if os.access(python, os.X_OK)):
            kept.append(folder)
        else:
            kept += map(str, sorted(Path(folder).parent.glob("versions/3.*/bin")))
    return os.pathsep.join(dict.fromkeys(kept))


def main() -> None:
    collection, home, *arguments = sys.argv[1:]
    cache = Path(home, ".ansible", "test", "cache")
    pip = Path(home, ".config", "pip")
    for folder in (cache, pip):
        folder.mkdir(parents=True, exist_ok=True)
    for version in SUPPORTED_PYTHON_VERSIONS:
        release = get_venv_packages(SimpleNamespace(version=version))["pip"]
        (cache / f"get_pip_{release.replace('.', '_')}.py").write_text(STAND_IN, encoding="utf-8")
    with (pip / "pip.conf").open("w", encoding="utf-8") as stream:
        pip_settings().write(stream)
    environment = {**os.environ, "HOME": home, "PATH": search_path()}
    os.chdir(collection)
    os.execvpe("ansible-test", ["ansible-test", *arguments, "--color", "no"], environment)


if __name__ == "__main__":
    main()
