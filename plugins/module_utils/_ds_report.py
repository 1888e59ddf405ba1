# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What `ds_report` says, and whether DeepSpeed can be relied on by it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import parse_cuda, parse_version

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OP = re.compile(r"^(\w+) +\.* *\[(YES|NO)\] \.+ \[(OKAY|NO)\]\s*$")
_FIELD = re.compile(r"^([a-z][\w ()/.]*?) ?\.{2,} *(.*)$")
# Ops of which no GPU has a part. Any other needs nvcc to be built.
_CPU_OPS = (
    "async_io",
    "cpu_adam",
    "cpu_adagrad",
    "cpu_lion",
    "cpu_muon",
    "deepspeed_not_implemented",
    "deepspeed_shm_comm",
    "deepspeed_ccl_comm",
)


@dataclass(frozen=True)
class Op:
    """`installed`: it was built with the package. `compatible`: it can be built when a program asks for it."""

    installed: bool
    compatible: bool


@dataclass(frozen=True)
class Report:
    """Texts are empty where the report does not have them. `wheel` are the versions that DeepSpeed was built with."""

    deepspeed: str
    torch: str
    torch_cuda: str
    nvcc: str
    wheel: Dict[str, str]
    ninja: Optional[bool]
    shm: str
    ops: Dict[str, Op]
    warnings: Tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What is wrong, in sentences; `summary` says in one line what there is."""

    problems: Tuple[str, ...]
    summary: str


def parse(text: str) -> Report:
    """`ds_report`'s output, whatever programs it asked have said in between."""
    ops: Dict[str, Op] = {}
    fields: Dict[str, str] = {}
    warnings: List[str] = []
    ninja: Optional[bool] = None
    for raw in _COLOUR.sub("", text).splitlines():
        line = raw.strip()
        op = _OP.match(line)
        if op:
            ops[op[1]] = Op(op[2] == "YES", op[3] == "OKAY")
            continue
        if re.match(r"ninja \.+ ?\[", line):
            ninja = "[OKAY]" in line
            continue
        if line.startswith("[WARNING]"):
            warnings.append(" ".join(line[len("[WARNING]") :].split()))
            continue
        # "deepspeed wheel compiled w." ends in a full stop of its own.
        field = _FIELD.match(line.replace("compiled w. ", "compiled w "))
        if field:
            fields[field[1].strip()] = field[2].strip()
    built = fields.get("deepspeed wheel compiled w", "")
    return Report(
        deepspeed=fields.get("deepspeed info", "").partition(",")[0],
        torch=fields.get("torch version", ""),
        torch_cuda=_version(fields.get("torch cuda version", "")),
        nvcc=_version(fields.get("nvcc version", "")),
        wheel={name: value for name, value in re.findall(r"\b(torch|cuda|hip) ([\d.]+)", built) if value != "0.0"},
        ninja=ninja,
        shm=fields.get("shared memory (/dev/shm) size", ""),
        ops=ops,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _version(text: str) -> str:
    return text if re.match(r"\d+\.\d+", text) else ""


def judge(
    text: str, stderr: str = "", version: Optional[str] = None, ops: Sequence[str] = (), has_gpu: bool = False
) -> Verdict:
    """Whether this DeepSpeed is the wanted one and has or can build what is asked of it."""
    found = parse(text)
    if not found.deepspeed or not found.torch:
        last = [line.strip() for line in stderr.splitlines() if line.strip()]
        return Verdict((f"ds_report ended without a report: {last[-1] if last else 'it said nothing'}",), "")
    problems: List[str] = []
    wanted, have = parse_version(version), parse_version(found.deepspeed)
    if wanted and have and not wanted.covers(have) and not wanted.same(have):
        problems.append(f"DeepSpeed is {found.deepspeed}, wanted {version}: provision again")
    if found.ninja is False:
        problems.append("ninja is not found, without which no op can be built: install it beside torch")
    for name in ops:
        op = found.ops.get(name)
        if op is None:
            problems.append(f"there is no op {name}: deepspeed_ops may name {', '.join(sorted(found.ops))}")
        elif not op.installed:
            problems.append(f"op {name} was to be built with DeepSpeed and is not: {_why(name, op, found)}")
    built, now = parse_version(found.wheel.get("torch")), parse_version(found.torch)
    prebuilt = [name for name, op in found.ops.items() if op.installed]
    if prebuilt and built and now and not built.covers(now):
        problems.append(
            f"its ops were built with torch {built} and torch is now {now.base}: install DeepSpeed again, "
            "as they may not load"
        )
    toolkit, cuda = parse_cuda(found.nvcc), parse_cuda(found.torch_cuda)
    if has_gpu and found.nvcc and toolkit and cuda and toolkit.release[0] != cuda.release[0]:
        problems.append(
            f"nvcc is CUDA {found.nvcc} and torch is built for {found.torch_cuda}: DeepSpeed refuses to build ops "
            "across majors; set torchfleet_stack.cuda to torch's major"
        )
    can = [name for name, op in found.ops.items() if op.compatible and not op.installed]
    summary = (
        f"DeepSpeed {found.deepspeed} with torch {found.torch}, ops built: {', '.join(prebuilt) or 'none'}, "
        f"{len(can)} of {len(found.ops)} can be built on demand"
    )
    return Verdict(tuple(problems), summary)


def _why(name: str, op: Op, found: Report) -> str:
    said = [line for line in found.warnings if line.startswith(name) or f" {name} " in f" {line} "]
    if said:
        return said[0]
    if not op.compatible and name not in _CPU_OPS and not found.nvcc:
        return "there is no nvcc: role cuda brings one"
    return "look at the output of its build, and whether there is a compiler: role compiler brings one"
