# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Whether a software stack can exist on a set of nodes, and which possible one comes nearest.

Figures and their sources are in `_compat_data`. Nothing here installs or asks anything.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_data import (
    CONDA_BUILDS,
    CUDA,
    PRODUCTION_BRANCHES,
    SETS,
    STACK_KEYS,
    TORCH,
    Architecture,
    Cuda,
    Torch,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_torch import (
    PYTHONS,
    RELEASES,
    Capability,
    NodeFacts,
    Refusal,
    TorchBuild,
    architecture_of,
    build_for,
    build_lacks,
    candidate_builds,
    choose_torch_build,
    companions,
    cuda_name,
    cuda_release,
    driver_serves,
    driver_wish,
    from_conda,
    gcc_bounds,
    gpu_capability,
    known_version,
    listed,
    nearest_release,
    newest_cuda_for_driver,
    releases_by_distance,
    sm_name,
    torch_release,
    unknown_torch,
    wheel_lacks,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import (
    Version,
    lost_zero,
    parse_cuda,
    parse_driver,
    parse_gcc,
    parse_python,
    parse_version,
)

__all__ = [
    "Problem",
    "Refusal",
    "TorchBuild",
    "canonical",
    "choose_torch_build",
    "cluster_torch_build",
    "companions",
    "describe_stack",
    "gcc_bounds",
    "gpu_capability",
    "nearest_stack",
    "newest_cuda_for_driver",
    "resolve_stack",
    "validate_stack",
]


_SHOWN_HOSTS = 8


@dataclass(frozen=True)
class Problem:
    """One thing that cannot be, and the nodes it holds for: none where it concerns the stack itself."""

    hosts: Tuple[str, ...]
    what: str
    found: str
    wanted: str
    variable: str
    advice: str
    nearest: str = ""

    def __str__(self) -> str:
        shown = ", ".join(self.hosts[:_SHOWN_HOSTS])
        more = len(self.hosts) - _SHOWN_HOSTS
        where = f"{shown} and {more} more: " if more > 0 else f"{shown}: " if shown else ""
        tail = f" Nearest set that fits every node: {self.nearest}." if self.nearest else ""
        return f"{where}{self.what} (found {self.found}, wanted {self.wanted}): {self.advice}.{tail}"


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


def resolve_stack(raw: Any) -> Tuple[Dict[str, Any], List[Problem]]:
    """torchfleet_stack as plain keys, a named set filled in, with what is wrong with its shape.

    `raw` is a mapping, the name of a set, or None for nothing wanted.
    """
    if raw is None:
        return {}, []
    stack: Dict[str, Any] = {"set": raw} if isinstance(raw, str) else dict(raw) if isinstance(raw, Mapping) else {}
    problems = []
    if not isinstance(raw, (str, Mapping)):
        problems.append(_stack_problem("is not a mapping", repr(raw), "keys or the name of a set", "", "write keys"))
    for key in [key for key in stack if key not in STACK_KEYS]:
        close = difflib.get_close_matches(str(key), STACK_KEYS, 1)
        advice = f"did you mean {close[0]}?" if close else "remove it"
        problems.append(
            _stack_problem(f"has an unknown key {key}", str(key), listed(tuple(STACK_KEYS)), str(key), advice)
        )
    name = stack.get("set")
    if name is not None and (not isinstance(name, str) or name not in SETS):
        close = difflib.get_close_matches(str(name), SETS, 1, 0.4)
        advice = f"did you mean {close[0]}?" if close else "take one of these"
        problems.append(_stack_problem(f"names no set {name}", str(name), listed(tuple(SETS)), "set", advice))
    filled: Dict[str, Any] = dict(SETS.get(str(name), {}))
    filled.update(stack)
    unlisted = filled.get("allow_unlisted")
    if isinstance(unlisted, str):  # as -e hands it over
        filled["allow_unlisted"] = _BOOLEANS.get(unlisted.lower(), unlisted)
    return filled, problems


def canonical(stack: Mapping[str, Any]) -> Dict[str, Any]:
    """A resolved stack with its versions as packages spell them: `12.8` of `cuda-12-8`, `3.11` of `python3.11`.

    What is no version stays as it is.
    """
    return {key: _canonical(key, value) for key, value in stack.items()}


def _canonical(key: str, value: Any) -> Any:
    if key not in _PARSERS or value is None:
        return value
    if key in ("cuda", "torch_cuda") and str(value).lower() == "cpu":
        return "cpu"
    parsed = _PARSERS[key][0](value)
    if parsed is None:
        return value
    if key in ("cuda", "torch_cuda"):
        return parsed.minor  # a toolkit's folder and packages know no more
    if key in ("driver", "gcc", "python"):
        return parsed.base
    return str(parsed).lstrip("vV")


def _stack_problem(what: str, found: str, wanted: str, key: str, advice: str) -> Problem:
    variable = f"torchfleet_stack.{key}" if key else "torchfleet_stack"
    return Problem((), f"torchfleet_stack {what}", found, wanted, variable, advice)


def cluster_torch_build(stack: Any, nodes: Sequence[Mapping[str, Any]] = ()) -> Union[TorchBuild, Refusal]:
    """The one torch build for all the nodes, as the stack wishes it (see `validate_stack` for both arguments)."""
    filled, problems = resolve_stack(stack)
    problems += _check_values(filled)
    if problems:
        return Refusal("; ".join(map(str, problems)), problems[0].variable)
    facts = _nodes(nodes, filled)
    rows = [torch_release(filled["torch"])] if filled.get("torch") is not None else releases_by_distance(None)
    refusal: Optional[Refusal] = None
    for one in rows:
        if one is None:
            return Refusal(unknown_torch(filled["torch"]), "torchfleet_stack.torch")
        row = _as_built(one, filled)
        if row is None:
            refusal = refusal or Refusal(_not_by_conda(one), "torchfleet_stack.torch")
            continue
        wish, cpu = _torch_wish(filled, row)
        no_gpu = wish is None and bool(nodes) and not any(node.has_gpu for node in facts)
        verdict = build_for(row, wish, cpu or no_gpu, facts)
        if isinstance(verdict, TorchBuild):
            return verdict
        if refusal is None or (verdict.rejected and not refusal.rejected):
            refusal = verdict
    return refusal or Refusal("no torch release is known", "torchfleet_stack.torch")


def _parse_gcc(value: Any) -> Optional[Version]:
    """A GCC, and no other compiler's version."""
    return parse_gcc(value) if re.match(r"(?:(?:gcc|g\+\+)-)?\d", str(value).strip()) else None


def _parse_full(value: Any, numbers: int) -> Optional[Version]:
    """A version of at least so many numbers: packages are asked for by all of them."""
    parsed = parse_version(value)
    return parsed if parsed is not None and len(parsed.release) >= numbers else None


_PARSERS: Dict[str, Tuple[Callable[[Any], Optional[Version]], str]] = {
    "driver": (parse_driver, "a branch (580) or a version (580.95.05)"),
    "cuda": (parse_cuda, "a CUDA release (12.8)"),
    "torch": (parse_version, "a torch release (2.9.1)"),
    "torch_cuda": (parse_cuda, "a CUDA release (12.8)"),
    "torchvision": (parse_version, "a torchvision release"),
    "torchaudio": (parse_version, "a torchaudio release"),
    "python": (parse_python, "a Python minor (3.12)"),
    "gcc": (_parse_gcc, "a GCC major (13)"),
    "nccl": (lambda value: _parse_full(value, 3), "an NCCL version (2.27.5)"),
    "cudnn": (lambda value: _parse_full(value, 2), "a cuDNN version (9.10.2.21)"),
    "deepspeed": (parse_version, "a DeepSpeed release"),
    "accelerate": (parse_version, "an accelerate release"),
    "colossalai": (parse_version, "a Colossal-AI release"),
}
_KNOWN = {
    "torch": tuple(row.version for row in TORCH),
    "python": PYTHONS,
    "torchvision": tuple(row.torchvision for row in TORCH),
    "torchaudio": tuple(row.torchaudio for row in TORCH),
    "nccl": tuple(row.nccl for row in TORCH),
    "cudnn": tuple(row.cudnn for row in TORCH),
    "cuda": tuple(row.release for row in CUDA),
    "torch_cuda": tuple(row.release for row in CUDA),
}


def _lost_zero(key: str, value: Any) -> Optional[str]:
    """What the bare number may have been; 1.1 may be 1.10 of software whose releases no table has."""
    known = _KNOWN.get(key)
    if known is None:
        known = (f"{value}0",) if key in _PARSERS and re.match(r"\d+\.\d\Z", str(value)) else ()
    return lost_zero(value, known)


def _as_built(row: Torch, stack: Mapping[str, Any]) -> Optional[Torch]:
    """The release in the builds that there are where the stack takes torch from; None where there are none."""
    return from_conda(row) if stack.get("torch_source") == "conda" else row


def _not_by_conda(row: Torch) -> str:
    return f"torch {row.version} is not known to be on conda-forge, which has {listed(tuple(CONDA_BUILDS))}"


def _check_values(stack: Mapping[str, Any]) -> List[Problem]:
    """Values that are no versions, or that nobody can be sure of."""
    problems = []
    source = stack.get("torch_source")
    if source not in (None, "pip", "conda"):
        variable = "torchfleet_stack.torch_source"
        problems.append(
            Problem((), f"{variable} is {source!r}", repr(source), "pip or conda", variable, f"set {variable}")
        )
    unlisted = stack.get("allow_unlisted")
    if unlisted is not None and not isinstance(unlisted, bool):
        variable = "torchfleet_stack.allow_unlisted"
        problems.append(
            Problem((), f"{variable} is {unlisted!r}", repr(unlisted), "true or false", variable, f"set {variable}")
        )
    for key, (parser, wanted) in _PARSERS.items():
        value = stack.get(key)
        if value is None or (key in ("cuda", "torch_cuda") and str(value).lower() == "cpu"):
            continue
        variable = f"torchfleet_stack.{key}"
        if parser(value) is None:
            problems.append(Problem((), f"{variable} is {value!r}", repr(value), wanted, variable, f"set {variable}"))
            continue
        longer = _lost_zero(key, value)
        if longer:
            problems.append(
                Problem(
                    (),
                    f"{variable} is a bare number, and YAML reads {value} and {longer} alike",
                    str(value),
                    f"'{longer}' or '{value}' in quotes",
                    variable,
                    f"write {variable} in quotes",
                )
            )
    return problems


def _node(raw: Mapping[str, Any], stack: Mapping[str, Any]) -> NodeFacts:
    gpus: Dict[Capability, str] = {}
    for gpu in raw.get("gpus") or ():
        model = str(gpu.get("model") or "")
        found = gpu_capability(model, str(gpu.get("architecture") or ""), gpu.get("compute_capability"))
        if found:
            gpus.setdefault(found, f"{model} ({sm_name(found)})" if model else sm_name(found))
    planned = stack.get("driver")
    # conda brings a Python of its own.
    python = stack.get("python") or ("" if stack.get("torch_source") == "conda" else None)
    gcc = stack.get("gcc")
    return NodeFacts(
        name=str(raw.get("name") or ""),
        driver=parse_driver(planned if planned is not None else raw.get("driver")),
        has_gpu=bool(raw.get("gpus")),
        gpus=tuple(gpus.items()),
        python=parse_python(python if python is not None else raw.get("python")),
        gcc=parse_gcc(gcc if gcc is not None else raw.get("gcc")),
        glibc=parse_version(raw.get("glibc")),
    )


def _nodes(raw: Sequence[Mapping[str, Any]], stack: Mapping[str, Any]) -> List[NodeFacts]:
    """The nodes, or with none at hand the one that the stack itself makes: what it brings has to go together."""
    alone = replace(_node({}, stack), has_gpu=stack.get("driver") is not None)
    return [_node(one, stack) for one in raw] or [alone]


def _check_driver(stack: Mapping[str, Any], node: NodeFacts) -> List[Problem]:
    """The driver against the toolkit and against the cards."""
    problems = []
    row = cuda_release(stack.get("cuda")) if stack.get("cuda") is not None else None
    if row and node.has_gpu and node.driver and not driver_serves(node.driver, row):
        serves = newest_cuda_for_driver(str(node.driver))
        instead = f", or torchfleet_stack.cuda to {serves}" if serves else ""
        branch = _branch_for(row, node.gpus)
        raise_to = (
            f"set torchfleet_stack.driver to {branch}" if branch else "no driver serves these cards and this CUDA"
        )
        problems.append(
            Problem(
                (node.name,),
                f"driver {node.driver} is too old for CUDA {row.release}",
                f"driver {node.driver}",
                driver_wish(row),
                "torchfleet_stack.driver",
                raise_to + instead,
            )
        )
    for capability, card in node.gpus:
        arch = architecture_of(capability)
        if arch is None:
            continue
        branch_now = node.driver.release[0] if node.driver else None
        if branch_now and arch.driver_last and branch_now > arch.driver_last:
            problems.append(
                Problem(
                    (node.name,),
                    f"driver {node.driver} no longer drives {card}",
                    f"driver {node.driver}",
                    f"branch {arch.driver_last} or older",
                    "torchfleet_stack.driver",
                    f"set torchfleet_stack.driver to {arch.driver_last}",
                )
            )
        elif branch_now and branch_now < arch.driver_first:
            problems.append(
                Problem(
                    (node.name,),
                    f"driver {node.driver} does not know {card} yet",
                    f"driver {node.driver}",
                    f"branch {arch.driver_first} or newer",
                    "torchfleet_stack.driver",
                    f"set torchfleet_stack.driver to {_branch_at_least(arch.driver_first)}",
                )
            )
        if row:
            problems += _check_toolkit(row, node.name, card, arch)
    return problems


def _check_toolkit(row: Cuda, host: str, card: str, arch: Architecture) -> List[Problem]:
    release = known_version(row.release)
    if arch.cuda_last and known_version(arch.cuda_last) < release:
        return [
            Problem(
                (host,),
                f"CUDA {row.release} cannot compile for {card}",
                f"CUDA {row.release}",
                f"CUDA {arch.cuda_last} or older",
                "torchfleet_stack.cuda",
                f"set torchfleet_stack.cuda to {arch.cuda_last} or older",
            )
        ]
    if release < known_version(arch.cuda_first):
        return [
            Problem(
                (host,),
                f"CUDA {row.release} does not know {card} yet",
                f"CUDA {row.release}",
                f"CUDA {arch.cuda_first} or newer",
                "torchfleet_stack.cuda",
                f"set torchfleet_stack.cuda to {arch.cuda_first} or newer",
            )
        ]
    return []


def _branch_at_least(branch: int) -> int:
    """The oldest branch kept for long that is not older."""
    return next((one for one in PRODUCTION_BRANCHES if one >= branch), branch)


def _branch_for(cuda: Cuda, gpus: Sequence[Tuple[Capability, str]]) -> Optional[int]:
    """The branch to propose for a CUDA release and these cards; None where there is none."""
    rows = [row for row in (architecture_of(capability) for capability, _card in gpus) if row]
    floor = max([row.driver_first for row in rows] + [known_version(cuda.driver).release[0]])
    ceiling = min([row.driver_last for row in rows if row.driver_last] + [10**6])
    full = _branch_at_least(floor)
    if full <= ceiling:
        return full
    return ceiling if driver_serves(known_version(str(ceiling)), cuda) else None


def _branch_limits(gpus: Sequence[Tuple[Capability, str]]) -> List[int]:
    """The branches at which the drivers of these cards begin and end."""
    rows = [row for row in (architecture_of(capability) for capability, _card in gpus) if row]
    last = [row.driver_last for row in rows if row.driver_last]
    first = [row.driver_first for row in rows]
    return ([min(last)] if last else []) + ([_branch_at_least(max(first))] if first else [])


def _check_gcc(stack: Mapping[str, Any], node: NodeFacts) -> List[Problem]:
    cuda, torch = stack.get("cuda"), stack.get("torch")
    # A compiler that is only there is used for nothing without a toolkit.
    if node.gcc is None or (cuda is None and stack.get("gcc") is None):
        return []
    bounds = gcc_bounds(cuda, torch)
    if bounds is None or bounds.allows(node.gcc.release[0]):
        return []
    too = "new" if bounds.minimum <= node.gcc.release[0] else "old"
    of_cuda = [] if cuda is None or str(cuda).lower() == "cpu" else [f"CUDA {cuda_name(cuda)}"]
    of_torch = [] if torch is None or (too == "new" and of_cuda) else [f"torch {torch}"]
    against = " and ".join(of_cuda + of_torch)
    target = bounds.below - 1 if bounds.below is not None and too == "new" else bounds.minimum
    return [
        Problem(
            (node.name,),
            f"GCC {node.gcc} is too {too} for {against}",
            f"GCC {node.gcc}",
            f"GCC {bounds}",
            "torchfleet_stack.gcc",
            f"set torchfleet_stack.gcc to {target}",
        )
    ]


def _torch_wish(stack: Mapping[str, Any], row: Torch) -> Tuple[Optional[Version], bool]:
    """The CUDA that torch is to be built for, and whether it is the CPU build.

    A toolkit wants a build of its own minor, or of its major: torch builds extensions with no other.
    """
    label = _label(stack)
    explicit = stack.get("torch_cuda")
    if explicit is None and (label.startswith("cu") or label == "cpu"):
        explicit = label
    cuda = explicit if explicit is not None else stack.get("cuda")
    if cuda is None:
        return None, False
    if str(cuda).lower() == "cpu":
        return None, True
    wanted = parse_cuda(cuda)
    if explicit is None and wanted is not None and not candidate_builds(row, wanted):
        return parse_version(str(wanted.release[0])), False
    return wanted, False


def _check_torch(stack: Mapping[str, Any], nodes: Sequence[NodeFacts]) -> List[Problem]:
    torch = stack.get("torch")
    if torch is None:
        return []
    row = torch_release(torch)
    if row is None:
        if stack.get("allow_unlisted"):
            return []
        return [
            Problem(
                (),
                f"torch {torch} is not a release known here",
                str(torch),
                f"{RELEASES[0].version} to {RELEASES[-1].version}",
                "torchfleet_stack.torch",
                "set torchfleet_stack.torch, or torchfleet_stack.allow_unlisted to true to go without these checks",
            )
        ]
    problems = _check_companions(stack, row)
    built = _as_built(row, stack)
    if built is None:
        advice = "set torchfleet_stack.torch, or torchfleet_stack.torch_source to pip"
        known = listed(tuple(CONDA_BUILDS))
        return [Problem((), _not_by_conda(row), row.version, known, "torchfleet_stack.torch", advice)]
    row = built
    for node in nodes:
        for what, found, wanted, variable in wheel_lacks(row, node):
            instead = next((one for one in releases_by_distance(row) if not wheel_lacks(one, node)), None)
            changes = [f"{variable} ({wanted})"] if variable != "torchfleet_stack.torch" else []
            changes += [f"torchfleet_stack.torch ({instead.version})"] if instead else []
            problems.append(Problem((node.name,), what, found, wanted, variable, f"set {' or '.join(changes)}"))
    wish, cpu = _torch_wish(stack, row)
    if cpu:
        return problems
    candidates = candidate_builds(row, wish)
    if not candidates:
        if not stack.get("allow_unlisted"):
            problems.append(
                Problem(
                    (),
                    f"torch {row.version} is not built for CUDA {wish}",
                    f"CUDA {wish}",
                    f"one of {listed(row.builds)}",
                    "torchfleet_stack.torch_cuda",
                    "set torchfleet_stack.torch_cuda or torchfleet_stack.torch",
                )
            )
        return problems
    return problems + _check_builds(row, candidates, nodes)


def _check_builds(row: Torch, candidates: Sequence[str], nodes: Sequence[NodeFacts]) -> List[Problem]:
    """One build has to run on every node.

    Where none runs on a node, the one that asks least of it speaks for all.
    """
    against = {cuda: {node.name: build_lacks(row, cuda, node) for node in nodes} for cuda in candidates}
    if any(not any(found.values()) for found in against.values()):
        return []
    helpless = [node for node in nodes if all(against[cuda][node.name] for cuda in candidates)]
    problems = []
    for node in helpless:
        easiest = min(candidates, key=lambda cuda: (len(against[cuda][node.name]), _demand(cuda, node)))
        for what, found, wanted, variable in against[easiest][node.name]:
            problems.append(
                Problem((node.name,), what, found, wanted, variable, f"set {variable} or torchfleet_stack.torch")
            )
    if not problems:
        fails = {cuda: listed([name for name, why in against[cuda].items() if why]) for cuda in candidates}
        each = [f"{cuda} fails on {names}" for cuda, names in fails.items()]

        problems.append(
            Problem(
                (),
                f"no one build of torch {row.version} runs on every node",
                "; ".join(each),
                "one build for all nodes",
                "torchfleet_stack.torch",
                "set torchfleet_stack.torch to a release that has one, or split the group",
            )
        )
    return problems


def _demand(cuda: str, node: NodeFacts) -> int:
    """Old drivers want an old CUDA, new cards a new one."""
    release = cuda_release(cuda)
    served = node.driver is None or (release is not None and driver_serves(node.driver, release))
    place = _place(known_version(cuda))
    return -place if served else place


def _check_companions(stack: Mapping[str, Any], row: Torch) -> List[Problem]:
    problems = []
    for key, belongs in (("torchvision", row.torchvision), ("torchaudio", row.torchaudio)):
        value = parse_version(stack.get(key))
        if value is not None and not value.covers(known_version(belongs)) and not value.same(known_version(belongs)):
            problems.append(
                Problem(
                    (),
                    f"{key} {value} does not belong to torch {row.version}",
                    str(value),
                    belongs,
                    f"torchfleet_stack.{key}",
                    f"set torchfleet_stack.{key} to {belongs}, or leave it out",
                )
            )
    return problems


def _check_cuda(stack: Mapping[str, Any]) -> List[Problem]:
    """CUDA releases that exist, and a toolkit of the major that torch is built for."""
    problems = []
    for key in ("cuda", "torch_cuda"):
        value = stack.get(key)
        if value is None or str(value).lower() == "cpu" or stack.get("allow_unlisted"):
            continue
        parsed = parse_cuda(value)
        major_alone = parsed is not None and len(parsed.release) == 1 and key == "torch_cuda"
        if parsed is not None and not major_alone and cuda_release(value) is None:
            near = CUDA[_place(parsed)]
            problems.append(
                Problem(
                    (),
                    f"CUDA {value} is not a release known here",
                    str(value),
                    f"{CUDA[0].release} to {CUDA[-1].release}",
                    f"torchfleet_stack.{key}",
                    f"set torchfleet_stack.{key} to {near.release}",
                )
            )
    problems += _check_label(stack)
    for key in ("nccl", "cudnn"):
        if stack.get(key) is not None and str(stack.get("cuda") or "cpu").lower() == "cpu":
            problems.append(
                Problem(
                    (),
                    f"{key} {stack[key]} is asked for without a CUDA toolkit, and torch brings its own",
                    "no torchfleet_stack.cuda",
                    "a CUDA release",
                    "torchfleet_stack.cuda",
                    f"set torchfleet_stack.cuda, or leave torchfleet_stack.{key} out",
                )
            )
    toolkit, built = parse_cuda(stack.get("cuda")), parse_cuda(stack.get("torch_cuda") or _label(stack))
    if toolkit and built and toolkit.release[0] != built.release[0]:
        problems.append(
            Problem(
                (),
                f"CUDA {toolkit} cannot build extensions for a torch that is built for CUDA {built}",
                f"CUDA {toolkit}",
                f"a {built.release[0]}.x toolkit",
                "torchfleet_stack.cuda",
                "set torchfleet_stack.cuda to the major of torchfleet_stack.torch_cuda",
            )
        )
    return problems


def _label(stack: Mapping[str, Any]) -> str:
    """What stands behind the + of torch's version: the build that is asked for."""
    return getattr(parse_version(stack.get("torch")), "local", "")


def _check_label(stack: Mapping[str, Any]) -> List[Problem]:
    """The build that torch's version names against torch_cuda, which names it too."""
    label, asked = _label(stack), stack.get("torch_cuda")
    if not label or stack.get("allow_unlisted"):
        return []
    variable = "torchfleet_stack.torch"
    if label != "cpu" and not re.match(r"cu\d{2,3}\Z", label):
        what = f"torch {stack['torch']} is a build for neither CUDA nor the CPU"
        return [Problem((), what, label, "cu126, cpu or the like", variable, f"set {variable} without +{label}")]
    if stack.get("torch_source") == "conda":
        what = f"torch {stack['torch']} is a build of pip's indexes, and torch comes from conda"
        advice = f"set {variable} without +{label}, and torchfleet_stack.torch_cuda"
        return [Problem((), what, label, "torchfleet_stack.torch_cuda", variable, advice)]
    wanted, built = parse_cuda(asked), parse_cuda(label)
    # A major alone is any build of it.
    if asked is None or (wanted.covers(built) if wanted and built else str(asked).lower() == label):
        return []
    what = f"torch {stack['torch']} is the build for {label}, and torchfleet_stack.torch_cuda is {asked}"
    return [Problem((), what, label, str(asked), variable, f"set {variable} without +{label}")]


def _place(cuda: Version) -> int:
    """Where a CUDA release stands in the table, or the last one before it."""
    older = [place for place, row in enumerate(CUDA) if known_version(row.release) <= cuda]
    return older[-1] if older else 0


def _check(stack: Mapping[str, Any], raw_nodes: Sequence[Mapping[str, Any]]) -> List[Problem]:
    """Everything that is wrong with a resolved stack on these nodes."""
    problems = _check_values(stack)
    if problems:
        return problems
    problems += _check_cuda(stack)
    nodes = _nodes(raw_nodes, stack)
    for node in nodes:
        problems += _check_driver(stack, node) + _check_gcc(stack, node)
    # A driver or toolkit that is already named would come again for torch, in other words.
    reported = {(problem.hosts, problem.variable) for problem in problems}
    if stack.get("torch_cuda") is None:
        reported |= {(hosts, "torchfleet_stack.torch_cuda") for hosts, name in reported if name.endswith(".cuda")}
    problems += [one for one in _check_torch(stack, nodes) if (one.hosts, one.variable) not in reported]
    return _joined(problems)


def _joined(problems: Sequence[Problem]) -> List[Problem]:
    """Problems that differ in their node alone, told once for all of these nodes."""
    hosts: Dict[Problem, List[str]] = {}
    for one in problems:
        hosts.setdefault(replace(one, hosts=()), []).extend(one.hosts)
    return [replace(one, hosts=tuple(dict.fromkeys(filter(None, names)))) for one, names in hosts.items()]


def validate_stack(stack: Any, nodes: Sequence[Mapping[str, Any]] = ()) -> List[Problem]:
    """What makes the stack impossible on these nodes; an empty list where nothing does.

    stack: torchfleet_stack (see STACK_KEYS), a mapping or the name of a set. Each node has `name` and, as far as
    known, `driver` (installed version; ignored where the stack installs one), `gpus` (`model`, `architecture`,
    `compute_capability`), `python` and `gcc` (those that will be used where the stack brings none) and `glibc`.
    """
    filled, problems = resolve_stack(stack)
    problems += _check(filled, nodes)
    if not problems:
        return []
    near = nearest_stack(filled, nodes)
    return [replace(one, nearest=describe_stack(near) if near else "") for one in problems]


def describe_stack(stack: Mapping[str, Any]) -> str:
    """A stack in one line: `driver 580, cuda 12.6, torch 2.9.1 (set torch-2.10-cu126)`."""
    keys = ("driver", "cuda", "torch_cuda", "torch", "python", "gcc")
    told = ", ".join(f"{key} {stack[key]}" for key in keys if stack.get(key) is not None)
    return told + (f" (set {stack['set']})" if stack.get("set") else "")


def nearest_stack(stack: Any, nodes: Sequence[Mapping[str, Any]] = ()) -> Optional[Dict[str, Any]]:
    """The possible stack that changes least of the wanted one; None where nothing fits these nodes.

    Cheapest to change are the compiler, then CUDA, a driver or Python that the stack itself installs, then torch;
    dearest are a driver and a Python that the nodes brought along.
    """
    wanted, _problems = resolve_stack(stack)
    plain = {key: value for key, value in wanted.items() if key in STACK_KEYS and key != "set"}
    broken = {one.variable.rpartition(".")[2] for one in _check_values(plain)}
    repaired = {key: _lost_zero(key, plain[key]) for key in broken}
    plain = {key: repaired.get(key, value) for key, value in plain.items()}
    different = list({repr(sorted(_traits(raw).items())): raw for raw in nodes}.values())
    scored = sorted(_variants(plain, different), key=lambda pair: pair[0])
    for _cost, candidate in scored:
        if not _check(candidate, different):
            build = cluster_torch_build(candidate, different) if candidate.get("torch") is not None else None
            if isinstance(build, TorchBuild) and candidate.get("cuda") is None:
                candidate["torch_cuda"] = build.cuda
            named = _set_like(candidate)
            # The set brings more than torch and CUDA: it is named only where all of it fits.
            whole = {**SETS.get(named, {}), **candidate}
            return {**candidate, "set": named} if named and not _check(whole, different) else candidate
    return None


def _traits(raw: Mapping[str, Any]) -> Dict[str, Any]:
    """What of a node can make a difference: all but its name."""
    return {key: raw.get(key) for key in ("driver", "gpus", "python", "gcc", "glibc")}


def _set_like(stack: Mapping[str, Any]) -> str:
    """The name of the set with the same CUDA and torch, if there is one."""
    row = torch_release(stack.get("torch"))
    cuda = stack.get("torch_cuda") or stack.get("cuda")
    for name, values in SETS.items():
        if row and values["torch"] == row.version and cuda and cuda_name(cuda) == values["cuda"]:
            return name
    return ""


def _variants(stack: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> List[Tuple[int, Dict[str, Any]]]:
    """The wanted stack in all the ways it could be changed, each with its price."""
    cpu = "cpu" in (str(stack.get("cuda")).lower(), str(stack.get("torch_cuda")).lower())
    torch = torch_release(stack.get("torch"))
    middle = torch or nearest_release(stack.get("torch"))
    releases: Sequence[Optional[Torch]] = releases_by_distance(middle) if stack.get("torch") is not None else [None]
    gpus = [gpu for raw in nodes for gpu in _node(raw, stack).gpus]
    wanted_cuda = parse_cuda(stack.get("torch_cuda") or stack.get("cuda"))
    variants: List[Tuple[int, Dict[str, Any]]] = []
    for place, one in enumerate(releases):
        row = _as_built(one, stack) if one is not None else None
        if one is not None and row is None:
            continue
        base = {key: value for key, value in stack.items() if key not in ("torchvision", "torchaudio")}
        price = 0
        if row is not None and one is not torch:
            base["torch"], price = row.version, 20 + 3 * place
        kept = [key for key in ("cuda", "torch_cuda") if stack.get(key) is not None]
        variants += _with_compiler(_with_driver_and_python(base, price, row, gpus), nodes)
        if cpu or wanted_cuda is None:
            continue
        for cuda in row.builds if row else tuple(one.release for one in CUDA):
            cost = price + 10 + abs(_place(known_version(cuda)) - _place(wanted_cuda))
            changed = {**base, **dict.fromkeys(kept, cuda)}
            variants += _with_compiler(_with_driver_and_python(changed, cost, row, gpus), nodes)
    return variants


def _with_driver_and_python(
    stack: Mapping[str, Any], cost: int, row: Optional[Torch], gpus: Sequence[Tuple[Capability, str]]
) -> List[Tuple[int, Dict[str, Any]]]:
    cuda = cuda_release(stack.get("cuda") or stack.get("torch_cuda"))
    drivers: List[Tuple[int, Optional[str]]] = [(0, None)]
    branches = {_branch_for(cuda, gpus) if cuda else None, *_branch_limits(gpus)}
    for branch in sorted(branch for branch in branches if branch):
        drivers.append((12 if stack.get("driver") is not None else 30, str(branch)))
    pythons: List[Tuple[int, Optional[str]]] = [(0, None)]
    if row:
        mine = parse_python(stack.get("python"))
        for python in row.pythons:
            away = abs(known_version(python).release[1] - mine.release[1]) if mine and len(mine.release) > 1 else 0
            pythons.append((15 + away if mine else 40, python))
    return [
        (
            cost + extra + more,
            {**stack, **({"driver": driver} if driver else {}), **({"python": python} if python else {})},
        )
        for extra, driver in drivers
        for more, python in pythons
    ]


def _with_compiler(
    variants: List[Tuple[int, Dict[str, Any]]], nodes: Sequence[Mapping[str, Any]]
) -> List[Tuple[int, Dict[str, Any]]]:
    """The variants with a compiler that suits their CUDA, where the one at hand does not."""
    done = []
    for cost, stack in variants:
        used = stack.get("cuda") is not None or stack.get("gcc") is not None
        bounds = gcc_bounds(stack.get("cuda"), stack.get("torch")) if used else None
        present = [_node(raw, stack).gcc for raw in (nodes or [{}])]
        unfit = [gcc for gcc in present if gcc and bounds and not bounds.allows(gcc.release[0])]
        if unfit and bounds:
            newer = bounds.below is not None and unfit[0].release[0] >= bounds.below
            fit = bounds.below - 1 if newer and bounds.below is not None else bounds.minimum
            cost, stack = cost + 2, {**stack, "gcc": str(fit)}
        done.append((cost, stack))
    return done
