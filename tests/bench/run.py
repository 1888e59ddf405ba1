# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure, and write the figures into docs/benchmarks.md: `run.py [SECTION ...]`, all sections without names.

A section is a file bench_<name>.py beside this one with a function `measure() -> str` that returns Markdown. Sections
that are not measured keep their text.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench` (one section: `make bench SECTION=launch`). Ratios are measured side by side in one run; single
figures are of the machine named with them and vary with its load.
"""


def sections() -> list[str]:
    return sorted(path.stem[len("bench_") :] for path in HERE.glob("bench_*.py"))


def read_page() -> dict[str, str]:
    if not PAGE.exists():
        return {}
    return dict(re.findall(r"<!-- section: (\w+) -->\n(.*?)<!-- end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def main() -> None:
    sys.path[:0] = [str(HERE), str(ROOT / "playbooks" / "collections")]
    texts = read_page()
    for name in sys.argv[1:] or sections():
        print(f"Measuring {name} ...", flush=True)
        began = time.monotonic()
        text = importlib.import_module(f"bench_{name}").measure()
        seconds = time.monotonic() - began
        machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}"
        stamp = time.strftime("%Y-%m-%d")
        # Some put together what the scenarios measured.
        took = f", in {seconds:.0f} s" if seconds >= 1 else " by the scenarios"
        texts[name] = f"{text.strip()}\n\n*Measured {stamp} on {machine}{took}.*\n"
        print(text)
        body = "".join(f"\n<!-- section: {key} -->\n{texts[key]}<!-- end -->\n" for key in sorted(texts))
        PAGE.write_text(HEAD + body, encoding="utf-8")


if __name__ == "__main__":
    main()
