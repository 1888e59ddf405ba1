# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What belongs to a torch release, a CUDA, a driver and a GPU, and which torch build suits a set of nodes.

Figures and their sources are in `_compat_data`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import Reason
from ansible_collections.torchfleet.cluster.plugins.module_utils._compat_data import (
    ARCHITECTURES,
    BUILD_LIBRARIES,
    CONDA_BUILDS,
    CONDA_KERNELS,
    CUDA,
    FAMILIES,
    KERNELS,
    MODELS,
    TORCH,
    Architecture,
    Cuda,
    Torch,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._versions import (
    Version,
    driver_at_least,
    lost_zero,
    parse_capability,
    parse_cuda,
    parse_driver,
    parse_python,
    parse_version,
)

INDEX = "https://download.pytorch.org/whl/"
CHANNEL = "conda-forge"
PYTHONS = tuple(f"3.{minor}" for minor in range(7, 16))
Capability = Tuple[int, int]


@dataclass(frozen=True)
class GccBounds:
    """GCC majors for extension builds: `minimum` inclusive, `below` exclusive (None: no limit)."""

    minimum: int
    below: Optional[int]
    reasons: Tuple[Reason, ...] = ()

    def allows(self, major: int) -> bool:
        return self.minimum <= major and (self.below is None or major < self.below)

    def __str__(self) -> str:
        return f"{self.minimum} or newer" if self.below is None else f"{self.minimum} to {self.below - 1}"


@dataclass(frozen=True)
class Companions:
    """What belongs to a torch release. Empty text: not known."""

    torch: str
    torchvision: str
    torchaudio: str
    cuda: str
    nccl: str
    cudnn: str
    triton: str
    source: str


@dataclass(frozen=True)
class TorchBuild:
    """A torch build for a cluster. `version` carries the index's label; `requirements` are for that index.

    Of a conda channel, `tag` is the begin of the build's name and `index_url` the channel. `cuda` is `cpu` for the
    build without CUDA. `on_pypi`: PyPI's own wheel is this build.
    """

    torch: str
    cuda: str
    tag: str
    version: str
    index_url: str
    requirements: Tuple[str, ...]
    on_pypi: bool
    nccl: str
    cudnn: str
    archs: Tuple[str, ...]
    reasons: Tuple[Reason, ...]


@dataclass(frozen=True)
class Refusal:
    """No build fits. `rejected` says of each build why not; `nearest` is what fits instead, if anything does."""

    because: str
    variable: str
    rejected: Tuple[Reason, ...] = ()
    nearest: Optional[TorchBuild] = None

    def __str__(self) -> str:
        builds = "; ".join(f"{one.choice}: {one.because}" for one in self.rejected)
        near = f". Nearest that fits: torch {self.nearest.version}" if self.nearest else ""
        return self.because + (f" ({builds})" if builds else "") + near


@dataclass(frozen=True)
class NodeFacts:
    """What of a node bears on the stack. `driver`: the one it will have. `gpus`: capability and how to name
    the card, of those cards that are known.
    """

    name: str
    driver: Optional[Version]
    has_gpu: bool
    gpus: Tuple[Tuple[Capability, str], ...]
    python: Optional[Version]
    gcc: Optional[Version]
    glibc: Optional[Version]


# --- look-ups -------------------------------------------------------------------------------------------------------


def known_version(text: str) -> Version:
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"{text!r} in the tables is not a version")
    return parsed


_CUDA = {row.release: row for row in CUDA}
_TORCH = {row.version: row for row in TORCH}
RELEASES = sorted(TORCH, key=lambda row: known_version(row.version).key)


def cuda_release(value: Any) -> Optional[Cuda]:
    """The table's row for a CUDA release, whatever update of it is named (12.8, `12.8.1`, `cu128`); None if unknown."""
    parsed = parse_cuda(value)
    return None if parsed is None else _CUDA.get(parsed.minor)


def torch_release(value: Any) -> Optional[Torch]:
    """The row of a torch release; a minor alone (`2.9`) is its newest patch. None for what the table does not know."""
    parsed = parse_version(value)
    if parsed is None or parsed.is_prerelease:
        return None
    exact = [row for row in RELEASES if known_version(row.version).same(parsed)]
    if exact and len(parsed.release) > 2:
        return exact[0]
    known = [row for row in RELEASES if parsed.covers(known_version(row.version))]
    return known[-1] if known else None


def nearest_release(value: Any) -> Optional[Torch]:
    """Of the releases that there are, the one before a version that there is not, or the first; None of no version."""
    parsed = parse_version(value)
    if parsed is None:
        return None
    return next((row for row in reversed(RELEASES) if known_version(row.version) < parsed), RELEASES[0])


def from_conda(row: Torch) -> Optional[Torch]:
    """The release as conda-forge builds it; None where it is not known to."""
    builds = CONDA_BUILDS.get(row.version)
    return None if builds is None else replace(row, builds=builds, more_builds=(), channel=CHANNEL)


def companions(torch: Any, cuda: Any = None) -> Optional[Companions]:
    """What belongs to a torch release, for PyPI's CUDA or the one named; None for an unknown release."""
    row = torch_release(torch)
    if row is None:
        return None
    parsed = parse_cuda(cuda) if cuda is not None else None
    wanted = parsed.minor if parsed else row.pypi_cuda
    if wanted == row.pypi_cuda:
        cudnn, nccl = row.cudnn, row.nccl
    else:
        cudnn, nccl = BUILD_LIBRARIES.get((known_version(row.version).minor, wanted), ("", ""))
    return Companions(row.version, row.torchvision, row.torchaudio, wanted, nccl, cudnn, row.triton, row.source)


def newest_cuda_for_driver(driver: Any) -> Optional[str]:
    """The newest CUDA release that the driver was made for or outlives; None where it is older than all, or no driver.

    Minor-version compatibility is left out: this is the release that nvidia-smi shows as `CUDA Version`.
    """
    parsed = parse_driver(driver)
    if parsed is None:
        return None
    served = [row.release for row in CUDA if driver_at_least(parsed, known_version(row.driver))]
    return served[-1] if served else None


def driver_serves(driver: Version, cuda: Cuda) -> str:
    """`full`, `compatible` (minor-version compatibility) or nothing."""
    if driver_at_least(driver, known_version(cuda.driver)):
        return "full"
    if cuda.compatible_driver and driver_at_least(driver, known_version(cuda.compatible_driver)):
        return "compatible"
    return ""


def driver_wish(cuda: Cuda) -> str:
    if cuda.compatible_driver in (None, cuda.driver):
        return f"{cuda.driver} or newer"
    return f"{cuda.driver} or newer, at the very least {cuda.compatible_driver} through minor-version compatibility"


def gcc_bounds(cuda: Any, torch: Any = None) -> Optional[GccBounds]:
    """The GCC majors that nvcc of this CUDA takes as host compiler and torch's headers compile with.

    `cuda` of None or `cpu` leaves torch's bound alone. None where the CUDA release is unknown.
    """
    reasons: List[Reason] = []
    minimum, below = 0, None
    if cuda is not None and str(cuda).lower() != "cpu":
        row = cuda_release(cuda)
        if row is None:
            return None
        minimum, below = row.gcc_min, row.gcc_below
        reasons.append(Reason("gcc", f"{minimum} to {below - 1}", f"host compilers of CUDA {row.release}"))
    release = torch_release(torch) if torch is not None else None
    if release is not None and release.gcc_min > minimum:
        minimum = release.gcc_min
        reasons.append(Reason("gcc", f"{minimum} or newer", f"the C++ standard of torch {release.version}'s headers"))
    return GccBounds(minimum, below, tuple(reasons))


def gpu_capability(model: str = "", architecture: str = "", compute_capability: Any = None) -> Optional[Capability]:
    """A GPU's compute capability: as reported, else from its model's name, else from its family; None if unknown."""
    reported = parse_capability(compute_capability) if compute_capability not in (None, "") else None
    if reported:
        return reported
    for pattern, capability in MODELS:
        if re.search(pattern, model, re.IGNORECASE):
            return parse_capability(capability)
    family = FAMILIES.get(architecture.strip().lower())
    return parse_capability(family) if family else None


def architecture_of(capability: Capability) -> Optional[Architecture]:
    """The row of a capability; one the table lacks (6.2, 7.2) is served as the next older one of its major."""
    rows = [(parse_capability(row.capability) or (0, 0), row) for row in ARCHITECTURES]
    same = [row for found, row in rows if found[0] == capability[0] and found <= capability]
    return same[-1] if same else None


def kernels_of(torch: str, cuda: str, channel: str = "") -> Tuple[str, ...]:
    """The GPU code in a build of the official index or a channel (`7.5`, `12.0+PTX`); empty where it is not known."""
    minor = known_version(known_version(torch).minor)
    for row in CONDA_KERNELS if channel else KERNELS:
        if row.cuda == cuda and known_version(row.first) <= minor <= known_version(row.last):
            return tuple(row.archs.split())
    return ()


def runs_on(archs: Iterable[str], capability: Capability) -> bool:
    """Whether code for these architectures runs there: same major and not newer, or compiled from older PTX."""
    for arch in archs:
        built = parse_capability(arch)
        if built is None:
            continue
        if built[0] == capability[0] and built <= capability:
            return True
        if arch.upper().endswith("+PTX") and built <= capability:
            return True
    return False


def sm_name(capability: Capability) -> str:
    return f"sm_{capability[0]}{capability[1]}"


# --- which torch build ----------------------------------------------------------------------------------------------


def wheel_lacks(row: Torch, node: NodeFacts) -> List[Tuple[str, str, str, str]]:
    """What of the node no wheel of the release goes with, as (what, found, wanted, variable)."""
    lacking = []
    first, last = row.pythons
    if node.python and not known_version(first) <= known_version(node.python.minor) <= known_version(last):
        lacking.append(
            (
                f"torch {row.version} has no {'package' if row.channel else 'wheel'} for Python {node.python.minor}",
                node.python.minor,
                f"{first} to {last}",
                "torchfleet_stack.python",
            )
        )
    if node.glibc and node.glibc < known_version(row.glibc):
        lacking.append(
            (
                f"the {'packages' if row.channel else 'wheels'} of torch {row.version} do not load with its C library",
                f"glibc {node.glibc}",
                f"glibc {row.glibc} or newer",
                "torchfleet_stack.torch",
            )
        )
    return lacking


def build_lacks(row: Torch, cuda: str, node: NodeFacts) -> List[Tuple[str, str, str, str]]:
    """Why the build cannot run on the node, as (what, found, wanted, variable); empty if it can."""
    reasons = []
    release = _CUDA[cuda]
    if node.has_gpu and node.driver and not driver_serves(node.driver, release):
        reasons.append(
            (
                f"driver {node.driver} is too old for torch {row.version} built for CUDA {cuda}",
                f"driver {node.driver}",
                driver_wish(release),
                "torchfleet_stack.driver",
            )
        )
    archs = kernels_of(row.version, cuda, row.channel)
    for capability, card in node.gpus:
        if archs and not runs_on(archs, capability):
            reasons.append(
                (
                    f"torch {row.version} for CUDA {cuda} has no kernels for {card}",
                    sm_name(capability),
                    "one of " + " ".join(archs),
                    "torchfleet_stack.torch_cuda",
                )
            )
    return reasons


def candidate_builds(row: Torch, wanted: Optional[Version]) -> Tuple[str, ...]:
    """Builds of the release that the wish allows: `12.8.1` is 12.8, `12` any 12.x, none any documented one."""
    if wanted is None:
        return row.builds
    return tuple(
        cuda for cuda in row.builds + row.more_builds if known_version(wanted.minor).covers(known_version(cuda))
    )


def _best(builds: Sequence[str], nodes: Sequence[NodeFacts]) -> Tuple[str, str]:
    """The build to take of those that run, and why: the newest that every driver fully serves, else the oldest."""
    drivers = [node.driver for node in nodes if node.driver and node.has_gpu]
    ordered = sorted(builds, key=lambda cuda: known_version(cuda).key)
    full = [cuda for cuda in ordered if all(driver_serves(driver, _CUDA[cuda]) == "full" for driver in drivers)]
    if full:
        oldest = min(drivers, key=lambda driver: driver.key) if drivers else None
        return full[-1], f"the newest that driver {oldest} was made for" if oldest else "the newest that fits"
    oldest = min(drivers, key=lambda driver: driver.key)
    return ordered[0], f"driver {oldest} is older than CUDA {ordered[0]} and runs it by minor-version compatibility"


def _build(row: Torch, cuda: str, reasons: Sequence[Reason]) -> TorchBuild:
    label = "cuda" if row.channel else "cu"
    tag = "cpu" if cuda == "cpu" else label + cuda.replace(".", "")
    # A channel's are packages of their own, in the newest release that goes with torch.
    libraries = None if cuda == "cpu" or row.channel else companions(row.version, cuda)
    return TorchBuild(
        torch=row.version,
        cuda=cuda,
        tag=tag,
        version=row.version if row.channel else f"{row.version}+{tag}",
        index_url=row.channel or INDEX + tag,
        requirements=(
            f"torch=={row.version}",
            f"torchvision=={row.torchvision}",
            f"torchaudio=={row.torchaudio}",
        ),
        on_pypi=cuda == row.pypi_cuda and not row.channel,
        nccl=libraries.nccl if libraries else "",
        cudnn=libraries.cudnn if libraries else "",
        archs=() if cuda == "cpu" else kernels_of(row.version, cuda, row.channel),
        reasons=tuple(reasons),
    )


def build_for(
    row: Torch, wanted: Optional[Version], cpu: bool, nodes: Sequence[NodeFacts]
) -> Union[TorchBuild, Refusal]:
    """The build of one release for all the nodes together."""
    for node in nodes:
        for what, _found, wish, variable in wheel_lacks(row, node):
            return Refusal(f"{what}, wanted {wish}", variable)
    if cpu:
        return _build(row, "cpu", [Reason("torch", f"{row.version}+cpu", "asked for, or no GPU and no driver there")])
    candidates = candidate_builds(row, wanted)
    if not candidates:
        return Refusal(
            f"torch {row.version} is not built for CUDA {wanted}: there is {listed(row.builds)}",
            "torchfleet_stack.torch_cuda",
        )
    good, rejected, variable = [], [], ""
    for cuda in candidates:
        against = [reason for node in nodes for reason in build_lacks(row, cuda, node)]
        if against:
            rejected.append(Reason("left out", f"cu{cuda.replace('.', '')}", against[0][0]))
            variable = variable or against[0][3]
        else:
            good.append(cuda)
    if not good:
        return Refusal(f"no build of torch {row.version} runs on these GPUs and drivers", variable, tuple(rejected))
    cuda, because = _best(good, nodes)
    if len(good) == 1 and not rejected:
        because = f"the only build for CUDA {wanted}" if wanted else "the only build there is"
    chosen = Reason("torch build", f"{row.version}+cu{cuda.replace('.', '')}", because)
    return _build(row, cuda, [chosen, *rejected])


def releases_by_distance(torch: Optional[Torch]) -> List[Torch]:
    """Releases, the newest patch of each minor, nearest to the wanted one first; newest first where none is wanted."""
    newest: Dict[str, Torch] = {}
    for row in RELEASES:
        newest[known_version(row.version).minor] = row
    if torch is not None:
        newest[known_version(torch.version).minor] = torch
    rows = list(newest.values())
    if torch is None:
        return rows[::-1]
    place = rows.index(torch)
    return sorted(rows, key=lambda row: (abs(rows.index(row) - place), -rows.index(row)))


def listed(items: Sequence[str]) -> str:
    return ", ".join(items) if items else "none"


def choose_torch_build(
    torch: Any = None,
    wanted_cuda: Any = None,
    driver: Any = None,
    archs: Sequence[Any] = (),
    python: Any = None,
    glibc: Any = None,
) -> Union[TorchBuild, Refusal]:
    """The torch build for these GPUs, this driver and this Python, or a refusal that says why.

    torch: release or minor, None for the newest that fits. wanted_cuda: a release, a major, `cpu`, or None for the
    newest that the driver serves and that has kernels for all of `archs` (`sm_61`, `8.6`). driver: the oldest among
    the nodes; None: one will be installed to suit. No archs and no driver mean the CPU build.
    """
    nodes = [
        NodeFacts(
            name="",
            driver=parse_driver(driver),
            has_gpu=bool(archs) or driver is not None,
            gpus=tuple((found, sm_name(found)) for found in map(parse_capability, archs) if found),
            python=parse_python(python),
            gcc=None,
            glibc=parse_version(glibc),
        )
    ]
    unread = [str(arch) for arch in archs if parse_capability(arch) is None]
    if unread:
        return Refusal(f"{listed(unread)} is not a compute capability: write 8.6 or sm_86", "archs")
    for field, value, known in (("torch", torch, _TORCH), ("python", python, PYTHONS)):
        longer = lost_zero(value, known)
        if longer:
            return Refusal(_lost_zero_text(field, value, longer), f"torchfleet_stack.{field}")
    parsed = parse_version(torch)
    label = parsed.local if parsed else ""
    if label.startswith("cu") or label == "cpu":
        if wanted_cuda is not None and cuda_name(wanted_cuda) != cuda_name(label):
            return Refusal(
                f"torch {torch} is a build for {label}, and CUDA {wanted_cuda} is wanted", "torchfleet_stack.torch_cuda"
            )
        wanted_cuda = label
    cpu = str(wanted_cuda).lower() == "cpu"
    if wanted_cuda is None and not nodes[0].has_gpu:
        cpu = True
    wanted = None if cpu or wanted_cuda is None else parse_cuda(wanted_cuda)
    if wanted_cuda is not None and not cpu and wanted is None:
        return Refusal(f"{wanted_cuda!r} is not a CUDA release: write 12.8 or cu128", "torchfleet_stack.torch_cuda")
    if torch is not None:
        row = torch_release(torch)
        if row is None:
            return Refusal(unknown_torch(torch), "torchfleet_stack.torch", nearest=_nearest_build(None, wanted, nodes))
        verdict = build_for(row, wanted, cpu, nodes)
        if isinstance(verdict, Refusal):
            near = _nearest_build(row, wanted, nodes, cpu)
            return Refusal(verdict.because, verdict.variable, verdict.rejected, near)
        return verdict
    first: Optional[Refusal] = None
    for row in releases_by_distance(None):
        verdict = build_for(row, wanted, cpu, nodes)
        if isinstance(verdict, TorchBuild):
            return verdict
        if first is None or (verdict.rejected and not first.rejected):
            first = verdict
    near = _nearest_build(None, None, nodes, cpu)
    because = f"no torch release fits: {first.because}" if first else "no torch release fits"
    return Refusal(because, first.variable if first else "", first.rejected if first else (), near)


def _nearest_build(
    torch: Optional[Torch], wanted: Optional[Version], nodes: Sequence[NodeFacts], cpu: bool = False
) -> Optional[TorchBuild]:
    for wish in (wanted, None) if wanted else (None,):
        for row in releases_by_distance(torch):
            verdict = build_for(row, wish, cpu, nodes)
            if isinstance(verdict, TorchBuild):
                return verdict
    return None


def cuda_name(value: Any) -> str:
    parsed = parse_cuda(value)
    return parsed.minor if parsed else str(value).lower()


def _lost_zero_text(field: str, value: Any, longer: str) -> str:
    return (
        f"torchfleet_stack.{field} is the bare number {value}, and YAML reads {longer} the same way: "
        f"write it in quotes ('{value}' or '{longer}')"
    )


def unknown_torch(torch: Any) -> str:
    first, last = RELEASES[0].version, RELEASES[-1].version
    return f"torch {torch} is not among the releases known here ({first} to {last})"
