# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What nvidia-smi says, as typed facts: `-q -x`, `topo -m`, `nvlink -s`, `-L` and its ways to fail.

Nothing here raises on what nvidia-smi prints. What cannot be read is None and, where it matters, said in `problems`.
Memory is in bytes, power in watts, clocks in MHz, temperatures in degrees Celsius. PCI addresses are written as
sysfs does (`0000:3b:00.0`).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from xml.sax.saxutils import escape

# What `status` can be; the module's documentation explains each.
STATUSES = (
    "ok",
    "partial",
    "not_installed",
    "not_loaded",
    "library_mismatch",
    "library_missing",
    "no_permission",
    "no_devices",
    "gpu_lost",
    "timeout",
    "unknown_error",
)

# Texts in place of a value. NVML's error names stand here as nvmlErrorString() gives them (nvml.h).
_NOT_GIVEN = frozenset(
    (
        "",
        "n/a",
        "not supported",
        "not available",
        "not applicable",
        "not found",
        "not ready",
        "no data",
        "unknown",
        "undefined",
        "function not found",
        "insufficient permissions",
        "insufficient size",
        "in use by another client",
        "requested functionality has been deprecated",
    )
)
_BROKEN = re.compile(
    r"(?:err!?|error|unknown error|gpu is lost.*|gpu requires re(?:set|start).*|.*fallen off the bus.*|timeout|"
    r"uninitialized|driver not loaded|insufficient external power|interrupt request issue|corrupted inforom|"
    r"gpu access blocked by the operating system|insufficient memory|.*uncorrectable ecc error.*)\Z",
    re.IGNORECASE,
)
_LOST = re.compile(r"gpu is lost|fallen off the bus", re.IGNORECASE)
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])(?![0-9a-f])", re.IGNORECASE)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Za-z0-9]")
_BINARY = {"b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BINARY.update({"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30})  # drivers before 331 wrote MB and meant MiB


@dataclass(frozen=True)
class CommandResult:
    """How one command ended. `rc` is negative for a signal; a command that ran out of time has no output."""

    rc: int = 0
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


@dataclass(frozen=True)
class PciGpu:
    """A display or 3D controller of NVIDIA on the PCI bus. `driver` is the kernel driver bound to it."""

    address: str
    driver: Optional[str] = None
    numa_node: Optional[int] = None
    cpu_affinity: Optional[str] = None
    known_to_driver: bool = False


@dataclass(frozen=True)
class Machine:
    """What the kernel says: `driver_text` is /proc/driver/nvidia/version ("" where that does not exist)."""

    pci_gpus: Tuple[PciGpu, ...] = ()
    driver_text: str = ""
    module_loaded: bool = False

    @property
    def driver_version(self) -> Optional[str]:
        match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\b", self.driver_text)
        return match.group(1) if match else None


@dataclass(frozen=True)
class MigInstance:
    index: int
    gpu_instance_id: Optional[int] = None
    compute_instance_id: Optional[int] = None
    profile: Optional[str] = None
    uuid: Optional[str] = None
    memory_bytes: int = 0
    multiprocessors: Optional[int] = None


@dataclass(frozen=True)
class Mig:
    """`current` and `pending` are None on a GPU that cannot be partitioned."""

    current: Optional[bool] = None
    pending: Optional[bool] = None
    instances: Tuple[MigInstance, ...] = ()


@dataclass(frozen=True)
class EccCounts:
    corrected: Optional[int] = None
    uncorrected: Optional[int] = None


@dataclass(frozen=True)
class RowRemap:
    """Rows of memory replaced by spare ones (Ampere and later)."""

    corrected: Optional[int] = None
    uncorrected: Optional[int] = None
    pending: Optional[bool] = None
    failure: Optional[bool] = None


@dataclass(frozen=True)
class RetiredPages:
    """Pages of memory taken out of use (before Ampere)."""

    single_bit: Optional[int] = None
    double_bit: Optional[int] = None
    pending: Optional[bool] = None


@dataclass(frozen=True)
class Ecc:
    """`volatile` counts since the driver was loaded, `aggregate` over the GPU's life."""

    current: Optional[bool] = None
    pending: Optional[bool] = None
    volatile: EccCounts = EccCounts()
    aggregate: EccCounts = EccCounts()
    row_remap: RowRemap = RowRemap()
    retired_pages: RetiredPages = RetiredPages()


@dataclass(frozen=True)
class Clocks:
    graphics: Optional[int] = None
    sm: Optional[int] = None
    memory: Optional[int] = None
    video: Optional[int] = None


@dataclass(frozen=True)
class Power:
    draw: Optional[float] = None
    limit: Optional[float] = None
    default_limit: Optional[float] = None
    min_limit: Optional[float] = None
    max_limit: Optional[float] = None
    state: Optional[str] = None


@dataclass(frozen=True)
class Temperature:
    gpu: Optional[int] = None
    memory: Optional[int] = None
    slowdown: Optional[int] = None
    shutdown: Optional[int] = None


@dataclass(frozen=True)
class Process:
    """A process on the GPU. `kind` is C (compute), G (graphics) or C+G."""

    pid: int
    kind: Optional[str] = None
    name: str = ""
    memory_bytes: Optional[int] = None
    gpu_instance_id: Optional[int] = None
    compute_instance_id: Optional[int] = None


@dataclass(frozen=True)
class Fabric:
    """The NVLink fabric of an NVSwitch system; CUDA works there only once `state` is Completed."""

    state: Optional[str] = None
    status: Optional[str] = None
    clique_id: Optional[int] = None
    cluster_uuid: Optional[str] = None
    health: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pcie:
    generation: Optional[int] = None
    generation_max: Optional[int] = None
    width: Optional[int] = None
    width_max: Optional[int] = None


@dataclass(frozen=True)
class NvLink:
    """`speeds` are in GB/s and one direction, None for a link that is down; the place in it is the link's number."""

    active: int = 0
    total: int = 0
    speeds: Tuple[Optional[float], ...] = ()


@dataclass(frozen=True)
class GpuRecord:
    """One GPU. The first five fields are those of `Gpu`; `lost` means that the driver cannot reach it."""

    index: int
    uuid: str = ""
    model: str = ""
    architecture: str = ""
    memory_bytes: int = 0
    memory_used_bytes: Optional[int] = None
    pci_address: str = ""
    minor_number: Optional[int] = None
    serial: Optional[str] = None
    brand: Optional[str] = None
    vbios: Optional[str] = None
    virtualization: Optional[str] = None
    lost: bool = False
    persistence: Optional[bool] = None
    compute_mode: Optional[str] = None
    performance_state: Optional[str] = None
    mig: Mig = Mig()
    ecc: Ecc = Ecc()
    clocks: Clocks = Clocks()
    clocks_max: Clocks = Clocks()
    throttle_reasons: Optional[Tuple[str, ...]] = None
    power: Power = Power()
    temperature: Temperature = Temperature()
    processes: Tuple[Process, ...] = ()
    fabric: Fabric = field(default_factory=Fabric)
    nvlink: Optional[NvLink] = None
    pcie: Pcie = Pcie()
    numa_node: Optional[int] = None
    cpu_affinity: Optional[str] = None
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Log:
    """One `nvidia-smi -q -x`. `attached` is the number of GPUs it announces, `lines` is what stood around the XML.

    `found` is whether there was a record at all, `damaged` names what of it could not be read.
    """

    found: bool = False
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None
    attached: Optional[int] = None
    gpus: Tuple[GpuRecord, ...] = ()
    lines: Tuple[str, ...] = ()
    damaged: Tuple[str, ...] = ()
    problems: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Topology:
    """`nvidia-smi topo -m`. `links[a][b]` is the code of the way from a to b (`NV18`, `PIX`, `SYS`; `X` is itself).

    A link that is missing in a cut matrix is taken from the opposite direction where that is there: the matrix is
    symmetric. `complete` is False if a row or a cell was missing. `nics` tells NIC0's device name.
    """

    devices: Tuple[str, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cpu_affinity: Mapping[str, str] = field(default_factory=dict)
    numa_affinity: Mapping[str, str] = field(default_factory=dict)
    gpu_numa_id: Mapping[str, str] = field(default_factory=dict)
    nics: Mapping[str, str] = field(default_factory=dict)
    legend: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False


@dataclass(frozen=True)
class GpuFacts:
    """Everything of one machine. `problems` is what is unhealthy, `notes` what is merely worth knowing."""

    status: str
    reason: str
    driver_version: Optional[str] = None
    cuda_version: Optional[str] = None
    attached_gpus: Optional[int] = None
    gpus: Tuple[GpuRecord, ...] = ()
    topology: Optional[Topology] = None
    pci_gpus: Tuple[PciGpu, ...] = ()
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


def to_facts(facts: Any) -> Any:
    """A dataclass of this file as plain dicts and lists, fit for JSON and for Ansible."""
    if is_dataclass(facts):
        return {item.name: to_facts(getattr(facts, item.name)) for item in fields(facts)}
    if isinstance(facts, Mapping):
        return {key: to_facts(value) for key, value in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [to_facts(value) for value in facts]
    return facts


# --- values -----------------------------------------------------------------------------------------------------


def pci_address(text: Optional[str]) -> str:
    """The first PCI address in the text as sysfs writes it (`00000000:3B:00.0` is `0000:3b:00.0`), or ""."""
    match = _PCI.search(text or "")
    if not match:
        return ""
    domain = int(match.group(1) or "0", 16)
    return f"{domain:04x}:{match.group(2)}:{match.group(3)}.{match.group(4)}".lower()


def _bare(element: Optional[ET.Element]) -> str:
    if element is None or not element.text:
        return ""
    text = " ".join(element.text.split())
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def _given(text: str) -> Optional[str]:
    return None if text.lower() in _NOT_GIVEN or _BROKEN.match(text) else text


def _text(parent: Optional[ET.Element], *paths: str) -> Optional[str]:
    """The first of the paths that has a value: fields have been renamed over the years."""
    if parent is None:
        return None
    for path in paths:
        value = _given(_bare(parent.find(path)))
        if value is not None:
            return value
    return None


def _number(text: Optional[str]) -> Optional[float]:
    match = re.search(r"-?\d{1,18}(?:\.\d{1,9})?", text or "")
    return float(match.group()) if match else None


def _int(parent: Optional[ET.Element], *paths: str) -> Optional[int]:
    number = _number(_text(parent, *paths))
    return None if number is None else int(number)


def _float(parent: Optional[ET.Element], *paths: str) -> Optional[float]:
    return _number(_text(parent, *paths))


def _bytes(parent: Optional[ET.Element], *paths: str) -> Optional[int]:
    match = re.match(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]+)", _text(parent, *paths) or "")
    scale = _BINARY.get(match.group(2).lower()) if match else None
    return int(float(match.group(1)) * scale) if match and scale else None


def _flag(parent: Optional[ET.Element], *paths: str) -> Optional[bool]:
    text = (_text(parent, *paths) or "").lower()
    if text in ("enabled", "yes", "true", "active", "on"):
        return True
    return False if text in ("disabled", "no", "false", "not active", "off") else None


# --- nvidia-smi -q -x -------------------------------------------------------------------------------------------

_ROOT = re.compile(r"<nvidia_smi_log\b[^>]*>")
_GPU = re.compile(r"<gpu((?:\s[^>]*)?)>(.*?)(</gpu\s*>|(?=<gpu[\s>])|\Z)", re.DOTALL)
_PROCESS_NAME = re.compile(r"(<process_name>)(.*?)(</process_name>)", re.DOTALL)
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)")
_SERIOUS = re.compile(r"error|fail|lost|corrupt|unable|denied|insufficient|mismatch", re.IGNORECASE)
# Long lists that say nothing of a GPU's health: without them, the rest of a damaged element can be read.
_LISTS = re.compile(r"<(supported_clocks|processes|accounted_processes)>.*?</\1\s*>", re.DOTALL)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    """Text that expat can read: nvidia-smi copies process names as they are, `<defunct>` and `&` included."""

    def name(match: Any) -> str:
        raw = match.group(2)
        for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            raw = raw.replace(entity, char)
        return f"{match.group(1)}{escape(raw)}{match.group(3)}"

    text = _PROCESS_NAME.sub(name, _NOT_XML.sub("\ufffd", text))
    return _AMPERSAND.sub("&amp;", text)


def _lines(text: str) -> List[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _element(text: str) -> Optional[ET.Element]:
    try:
        return ET.fromstring(text)
    except ET.ParseError:
        return None


def _split(text: str) -> Tuple[Optional[ET.Element], List[str], List[str]]:
    """The record, the lines around it, and what could not be read of it.

    Only what stands from the root element on is parsed. No document type goes with it, hence no entity is ever
    defined or expanded, and it does not matter which DTD is named.
    """
    text = text.replace("\0", "")
    start = _ROOT.search(text) or _GPU.search(text)
    begin = start.start() if start else len(text)
    closing = re.search(r"</nvidia_smi_log\s*>", text[begin:])
    end = begin + closing.end() if closing else len(text)
    body = _clean(text[begin:end])
    around = re.sub(r"<\?xml.*?\?>|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>|<!--.*?-->", "\n", text[:begin], flags=re.DOTALL)
    lines = [line for line in _lines(around + "\n" + text[end:]) if not line.startswith("<")]
    # nvidia-smi also complains in the midst of its record
    lines += [
        line
        for line in _lines(_PROCESS_NAME.sub("", body))
        if "<" not in line and ">" not in line and _SERIOUS.search(line) and _given(line) is not None
    ]
    if not body.strip():
        return None, lines, []
    root = _element(body)
    if root is not None:
        return root, lines, []

    # Cut off or damaged: whole GPU elements are still good, each for itself.
    root = ET.Element("nvidia_smi_log")
    damaged = []
    first = _GPU.search(body)
    for tag, value in re.findall(r"<(\w+)>([^<>]*)</\1>", body[: first.start() if first else len(body)]):
        ET.SubElement(root, tag).text = value
    for match in _GPU.finditer(body):
        where = pci_address(match.group(1)) or f"number {len(root.findall('gpu'))}"
        whole = f"<gpu{match.group(1)}>{match.group(2)}</gpu>"
        gpu = _element(whole) if match.group(3) else None
        if gpu is None and match.group(3):
            gpu = _element(_LISTS.sub("", whole))
            if gpu is not None:
                damaged.append(f"the list of clocks or of processes of GPU {where} is damaged")
        if gpu is None:
            gpu = ET.Element("gpu", {"id": pci_address(match.group(1)), "damaged": "yes"})
            damaged.append(f"the element of GPU {where} is {'damaged' if match.group(3) else 'cut off'}")
        root.append(gpu)
    if not closing:
        root.set("cut", "yes")
        damaged.append("the output of nvidia-smi -q -x ends before its end")
    elif not damaged:
        damaged.append("the output of nvidia-smi -q -x is not well-formed XML")
    return root, lines, damaged


def _version(root: ET.Element, *patterns: str) -> Optional[str]:
    for pattern in patterns:
        for child in root:
            if re.match(pattern, child.tag) and not len(child):
                value = _given(_bare(child))
                if value and value[0].isdigit():
                    return value
    return None


def _indices(
    elements: Sequence[ET.Element], attached: Optional[int], cut: bool, addresses: Sequence[str]
) -> Sequence[int]:
    """nvidia-smi's index of each GPU element; `elements` are in the order of their PCI addresses.

    nvidia-smi counts by PCI address. So the place is the index, unless elements are missing: then it is the place
    among the `addresses` that the driver has. Failing that it is the minor number, if those rise with the address and
    stay below the number announced (they need not: a container can own only /dev/nvidia5) and the record was not cut
    (then the missing ones are the last).
    """
    own = [_address_of(element) for element in elements]
    missing = attached is not None and len(elements) < attached
    if missing and attached == len(addresses) and set(own) <= set(addresses):
        return [sorted(addresses, key=_address_key).index(address) for address in own]
    minors = [_int(element, "minor_number") for element in elements if not element.get("damaged")]
    fitting = [minor for minor in minors if minor is not None and minor < (attached or 0)]
    if missing and not cut and len(fitting) == len(elements) and fitting == sorted(set(fitting)):
        return fitting
    return range(len(elements))


def parse_log(text: str, addresses: Sequence[str] = ()) -> Log:
    """`nvidia-smi -q -x`. Takes any text: with lines around it, cut off, of a newer driver, or no record at all.

    `addresses` are the GPUs that the kernel's driver has; they help to number the GPUs if the record lacks some.
    """
    root, lines, damaged = _split(text)
    if root is None:
        return Log(lines=tuple(lines))
    attached = _int(root, "attached_gpus")
    elements = sorted(root.findall("gpu"), key=lambda gpu: _address_key(_address_of(gpu)))
    numbered = zip(elements, _indices(elements, attached, bool(root.get("cut")), addresses))
    problems = []
    if any(_BROKEN.match(_bare(child)) for child in root if child.tag.startswith("cuda")):
        problems.append(
            "nvidia-smi cannot load the CUDA driver library (libcuda.so.1): is it installed in this version?"
        )
    return Log(
        found=True,
        # driver 610 and later speak of the KMD (kernel-mode driver) and of CUDA's UMD (user-mode driver)
        driver_version=_version(root, r"driver_version\Z", r"(?:\w+_)?kmd(?:_driver)?_version\Z"),
        cuda_version=_version(root, r"cuda_version\Z", r"cuda_\w*version\Z", r"(?:\w+_)?umd_version\Z"),
        attached=attached,
        gpus=tuple(_gpu(element, index) for element, index in numbered if not element.get("damaged")),
        lines=tuple(lines),
        damaged=tuple(damaged),
        problems=tuple(problems),
    )


def _address_of(element: ET.Element) -> str:
    return pci_address(element.get("id")) or pci_address(_text(element, "pci/pci_bus_id"))


def _address_key(address: str) -> Tuple[bool, int, str]:
    domain, _colon, rest = address.partition(":")
    return (not address, int(domain or "0", 16), rest)


def _gpu(gpu: ET.Element, index: int) -> GpuRecord:
    errors: Dict[str, List[str]] = {}
    for part in gpu:
        if part.tag == "processes" or part.tag == "accounted_processes":
            continue
        for leaf in part.iter():
            if not len(leaf) and _BROKEN.match(_bare(leaf)):
                errors.setdefault(_bare(leaf), []).append(leaf.tag)
    lost = any(_LOST.search(error) for error in errors) or any(
        _BROKEN.match(_bare(gpu.find(tag))) for tag in ("uuid", "product_name")
    )
    memory = gpu.find("fb_memory_usage")
    record = GpuRecord(
        index=index,
        uuid=_text(gpu, "uuid") or "",
        model=_text(gpu, "product_name") or "",
        architecture=_text(gpu, "product_architecture") or "",
        memory_bytes=_bytes(memory, "total") or 0,
        memory_used_bytes=_bytes(memory, "used"),
        pci_address=_address_of(gpu),
        minor_number=_int(gpu, "minor_number"),
        serial=_text(gpu, "serial"),
        brand=_text(gpu, "product_brand"),
        vbios=_text(gpu, "vbios_version"),
        virtualization=_text(gpu, "gpu_virtualization_mode/virtualization_mode"),
        lost=lost,
        persistence=_flag(gpu, "persistence_mode"),
        compute_mode=_text(gpu, "compute_mode"),
        performance_state=_text(gpu, "performance_state"),
        mig=_mig(gpu),
        ecc=_ecc(gpu),
        clocks=_clocks(gpu.find("clocks")),
        clocks_max=_clocks(gpu.find("max_clocks")),
        throttle_reasons=_throttle_reasons(gpu),
        power=_power(gpu),
        temperature=_temperature(gpu.find("temperature")),
        processes=tuple(_processes(gpu.find("processes"))),
        fabric=_fabric(gpu.find("fabric")),
        pcie=Pcie(
            generation=_int(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
            generation_max=_int(gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
            width=_int(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
            width_max=_int(gpu, "pci/pci_gpu_link_info/link_widths/max_link_width"),
        ),
    )
    problems, notes = _gpu_problems(record, gpu, errors), _gpu_notes(record, gpu, errors)
    return replace(record, problems=tuple(problems), notes=tuple(notes))


def _mig(gpu: ET.Element) -> Mig:
    instances = []
    devices = gpu.findall("mig_devices/mig_device")
    indices = [_int(device, "index") for device in devices]
    if None in indices or len(set(indices)) < len(indices):
        indices = list(range(len(devices)))
    for index, device in zip(indices, devices):
        instances.append(
            MigInstance(
                index=index or 0,
                gpu_instance_id=_int(device, "gpu_instance_id"),
                compute_instance_id=_int(device, "compute_instance_id"),
                uuid=_text(device, "uuid"),
                memory_bytes=_bytes(device, "fb_memory_usage/total") or 0,
                multiprocessors=_int(device, "device_attributes/shared/multiprocessor_count"),
            )
        )
    return Mig(_flag(gpu, "mig_mode/current_mig"), _flag(gpu, "mig_mode/pending_mig"), tuple(instances))


def _total(counts: Sequence[Tuple[str, Optional[int]]]) -> Optional[int]:
    """The element's own total, or else the sum of what is counted; None where nothing is."""
    for tag, count in counts:
        if tag == "total" and count is not None:
            return count
    given = [count for tag, count in counts if tag != "total" and count is not None]
    return sum(given) if given else None


def _ecc_counts(errors: Optional[ET.Element]) -> EccCounts:
    """Pascal to Volta count single and double bits per unit, Turing and later (un)correctable SRAM and DRAM errors."""
    if errors is None:
        return EccCounts()
    corrected: List[Tuple[str, Optional[int]]] = []
    uncorrected: List[Tuple[str, Optional[int]]] = []
    for part in errors:
        if part.tag == "single_bit":
            corrected += [(leaf.tag, _int(part, leaf.tag)) for leaf in part]
        elif part.tag == "double_bit":
            uncorrected += [(leaf.tag, _int(part, leaf.tag)) for leaf in part]
        elif "uncorrectable" in part.tag:
            uncorrected.append((part.tag, _int(errors, part.tag)))
        elif "correctable" in part.tag:
            corrected.append((part.tag, _int(errors, part.tag)))
    return EccCounts(_total(corrected), _total(uncorrected))


def _ecc(gpu: ET.Element) -> Ecc:
    rows = gpu.find("remapped_rows")
    pages = gpu.find("retired_pages")
    return Ecc(
        current=_flag(gpu, "ecc_mode/current_ecc"),
        pending=_flag(gpu, "ecc_mode/pending_ecc"),
        volatile=_ecc_counts(gpu.find("ecc_errors/volatile")),
        aggregate=_ecc_counts(gpu.find("ecc_errors/aggregate")),
        row_remap=RowRemap(
            corrected=_int(rows, "remapped_row_corr"),
            uncorrected=_int(rows, "remapped_row_unc"),
            pending=_flag(rows, "remapped_row_pending"),
            failure=_flag(rows, "remapped_row_failure"),
        ),
        retired_pages=RetiredPages(
            single_bit=_int(pages, "multiple_single_bit_retirement/retired_count"),
            double_bit=_int(pages, "double_bit_retirement/retired_count"),
            pending=_flag(pages, "pending_retirement", "pending_blacklist"),
        ),
    )


def _clocks(clocks: Optional[ET.Element]) -> Clocks:
    return Clocks(
        graphics=_int(clocks, "graphics_clock"),
        sm=_int(clocks, "sm_clock"),
        memory=_int(clocks, "mem_clock"),
        video=_int(clocks, "video_clock"),
    )


def _throttle_reasons(gpu: ET.Element) -> Optional[Tuple[str, ...]]:
    """Names of the active reasons (`sw_power_cap`, `hw_slowdown`); None where the driver tells none."""
    for tag in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = gpu.find(tag)
        if reasons is not None and len(reasons):
            prefix = re.compile(r"clocks_(?:event|throttle)_reasons?_")
            return tuple(prefix.sub("", leaf.tag) for leaf in reasons if _flag(reasons, leaf.tag))
    return None


def _power(gpu: ET.Element) -> Power:
    readings = gpu.find("gpu_power_readings")
    if readings is None:
        readings = gpu.find("power_readings")
    return Power(
        draw=_float(readings, "instant_power_draw", "power_draw", "average_power_draw"),
        limit=_float(readings, "current_power_limit", "enforced_power_limit", "power_limit"),
        default_limit=_float(readings, "default_power_limit"),
        min_limit=_float(readings, "min_power_limit"),
        max_limit=_float(readings, "max_power_limit"),
        state=_text(readings, "power_state"),
    )


def _temperature(temperature: Optional[ET.Element]) -> Temperature:
    return Temperature(
        gpu=_int(temperature, "gpu_temp"),
        memory=_int(temperature, "memory_temp"),
        slowdown=_int(temperature, "gpu_temp_slow_threshold"),
        shutdown=_int(temperature, "gpu_temp_max_threshold"),
    )


def _processes(processes: Optional[ET.Element]) -> Iterator[Process]:
    for process in processes.findall("process_info") if processes is not None else ():
        pid = _int(process, "pid")
        if pid is not None:
            yield Process(
                pid=pid,
                kind=_text(process, "type"),
                name=" ".join((process.findtext("process_name") or "").split()),
                memory_bytes=_bytes(process, "used_memory"),
                gpu_instance_id=_int(process, "gpu_instance_id"),
                compute_instance_id=_int(process, "compute_instance_id"),
            )


def _fabric(fabric: Optional[ET.Element]) -> Fabric:
    health = fabric.find("health") if fabric is not None else None
    signs = {leaf.tag: _text(health, leaf.tag) for leaf in (health if health is not None else ())}
    return Fabric(
        state=_text(fabric, "state"),
        status=_text(fabric, "status"),
        clique_id=_int(fabric, "cliqueId", "clique_id"),
        cluster_uuid=_text(fabric, "clusterUuid", "cluster_uuid"),
        health={sign: value for sign, value in signs.items() if value is not None},
    )


# --- health -----------------------------------------------------------------------------------------------------

_SLOWED = {
    "hw_thermal_slowdown": "is slowed down by its hardware because it is too hot: check fans and airflow",
    "hw_power_brake_slowdown": "is slowed down by the power supply's brake signal: check the machine's power",
    "hw_slowdown": "is slowed down by its hardware (heat, power brake or too much current)",
    "sw_thermal_slowdown": "is slowed down by the driver because it is too hot: check fans and airflow",
}
_ALARMS = {
    "ecc_errors/channel_repair_pending": "waits for the repair of a memory channel: reset it",
    "ecc_errors/tpc_repair_pending": "waits for the repair of a TPC: reset it",
    "remapped_banks/bank_remapper_pending": "waits for bad memory banks to be remapped: reset it",
    "ecc_errors/unrepairable_memory": "has memory that cannot be repaired: replace it",
    "ecc_errors/aggregate/sram_threshold_exceeded": "has had more SRAM errors than allowed: replace it",
    "gpu_reset_status/reset_required": "must be reset",
    "gpu_reset_status/drain_and_reset_recommended": "should be drained of work and reset",
}
# What a GPU is set to or belongs to. Drivers answer "Unknown Error" here on cards in good health (addressing mode on
# consumer cards under 535, for one); where the hardware fails, its sensors, clocks and identity fail too.
_DESCRIPTIVE = re.compile(
    r"addressing_mode|display_\w+|accounting_mode\w*|(?:current|pending)_(?:dm|gom)|relaxed_ordering_mode|"
    r"atomic_caps_\w+|\w*vgpu\w*|virtualization_mode|gsp_firmware_version|egm|pdi|sparse_operation_mode|"
    r"(?:current|pending)_dram_encryption|\w+_part_number|chassis_serial_number|slot_number|tray_index|host_id|"
    r"peer_type|module_id|multigpu_board|board_id|auto_boost\w*"
)
_FABRIC_SIGNS = (
    "summary",
    "bandwidth",
    "route_recovery_in_progress",
    "route_unhealthy",
    "access_timeout_recovery",
    "incorrect_configuration",
)
_FABRIC_FINE = ("healthy", "full", "false", "none", "no")


def _enumerate(names: Sequence[str], most: int = 4) -> str:
    names = list(dict.fromkeys(names))
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more fields" if rest > 0 else "")


def _gpu_problems(gpu: GpuRecord, element: ET.Element, errors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is unhealthy, each a predicate that follows the GPU's name."""
    if gpu.lost:
        yield "is lost: the driver cannot reach it (look for Xid in the kernel log; reboot, then reseat or replace it)"
    for error, tags in errors.items():
        tags = [tag for tag in tags if gpu.lost or not _DESCRIPTIVE.fullmatch(tag)]
        if tags:
            yield f"answers {error!r} for {_enumerate(tags)}"

    ecc = gpu.ecc
    if ecc.row_remap.failure:
        yield "has failed to remap bad memory rows: replace it"
    if ecc.row_remap.pending:
        yield "waits for bad memory rows to be remapped: reset it"
    if ecc.volatile.uncorrected:
        yield f"has had {ecc.volatile.uncorrected} uncorrected ECC errors since its driver was loaded: reset it"
    if ecc.retired_pages.pending:
        yield "waits for bad memory pages to be retired: reset it or reboot"
    for path, sentence in _ALARMS.items():
        if _flag(element, path):
            yield sentence
    action = _text(element, "gpu_recovery_action")
    if action and action.lower() != "none":
        yield f"needs recovery, says the driver: {action}"

    slowed = [reason for reason in _SLOWED if reason in (gpu.throttle_reasons or ())]
    if "hw_slowdown" in slowed and len(slowed) > 1:
        slowed.remove("hw_slowdown")  # only sums up the more precise ones
    for reason in slowed:
        yield _SLOWED[reason]

    fabric = gpu.fabric
    if fabric.state and fabric.state.lower() != "completed":
        yield f"has not joined the NVLink fabric ({fabric.state}): is nvidia-fabricmanager running in this version?"
    elif fabric.state and fabric.status and fabric.status.lower() != "success":
        yield f"has not joined the NVLink fabric ({fabric.status})"
    signs = [(sign, fabric.health.get(sign, "none")) for sign in _FABRIC_SIGNS]
    unwell = [f"{sign} {value}" for sign, value in signs if value.lower() not in _FABRIC_FINE]
    if unwell:
        yield f"is not well in the NVLink fabric: {', '.join(unwell)}"

    if gpu.compute_mode and gpu.compute_mode.lower() == "prohibited":
        yield "is in compute mode Prohibited: no process can use it (nvidia-smi -c 0)"
    if gpu.mig.current and not gpu.mig.instances and not gpu.lost:
        yield "is in MIG mode and has no MIG instance: CUDA sees no device there"
    narrow = gpu.pcie.width and gpu.pcie.width_max and gpu.pcie.width * 4 <= gpu.pcie.width_max
    if narrow and not _beside_the_cpu(element):
        yield f"uses {gpu.pcie.width} of {gpu.pcie.width_max} PCIe lanes: check its seat, riser and slot"


def _beside_the_cpu(element: ET.Element) -> bool:
    """Whether the CPU is reached by NVLink-C2C. PCIe is then a side way: idle down to few lanes, or made up (GB10)."""
    return _flag(element, "c2c_mode") is True or (_text(element, "addressing_mode") or "").upper() == "ATS"


def _gpu_notes(gpu: GpuRecord, element: ET.Element, errors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for error, tags in errors.items():
        tags = [tag for tag in tags if _DESCRIPTIVE.fullmatch(tag)]
        if tags and not gpu.lost:
            yield f"the driver answers {error!r} for {_enumerate(tags)}"
    if not gpu.memory_bytes and not gpu.lost and _beside_the_cpu(element):
        yield "it has no memory of its own: it shares the machine's"
    for name, mode in (("MIG", gpu.mig), ("ECC", gpu.ecc)):
        if mode.current is not None and mode.pending is not None and mode.current != mode.pending:
            yield f"{name} is switched {'on' if mode.pending else 'off'} at the next reset"


# --- nvidia-smi topo -m, nvlink -s, -L --------------------------------------------------------------------------

_DEVICE = re.compile(r"(?:GPU|NIC)\d+\Z")
_LEGEND = re.compile(r"\s*([A-Z][A-Z0-9]*#?)\s+=\s+(\S.*)")
_NIC_NAME = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*\Z")
_AFFINITY = re.compile(r"\d[\d,-]*\Z|N/A\Z|\[N/A\]\Z")
# A terminal that breaks a long line runs words together: `NIC7NIC8`, `SYSSYS`, `NODEX`, `NIC9CPU`, `0N/A`.
_PIECE = re.compile(r"(?:GPU|NIC)\d+|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|C2C|X|CPU|N/A|\d[\d,-]*")


def _words_of(line: str) -> List[str]:
    """The words of a line of a matrix, those that were run together taken apart."""
    words: List[str] = []
    for word in line.split():
        pieces = _PIECE.findall(word)
        words += pieces if "".join(pieces) == word else [word]
    return words


def _is_header(words: Sequence[str]) -> bool:
    """A header names devices side by side; in a row the second word is a link."""
    if not words or not re.match(r"GPU\d+\Z", words[0]):
        return False
    return "Affinity" in words or (len(words) > 1 and bool(_DEVICE.match(words[1]) or re.search("[a-z]", words[1])))


def _trailer(line: str, cells: int, has_gpu_numa_id: bool) -> List[str]:
    """CPU affinity, NUMA affinity and GPU NUMA ID behind a row's cells, "" for what is blank.

    Columns are set apart by one tab, but a NUMA affinity is followed by two; blank ones can be told by tabs only.
    """
    if "\t" not in line:
        return [*_words_of(line)[cells + 1 :], "", "", ""][:3]
    rest = [part.strip() for part in line.split("\t")][cells + 1 :] or [""]
    if rest[0]:
        return [*filter(None, rest), "", "", ""][:3]
    given = [part for part in rest if part]
    if len(given) == 1 and has_gpu_numa_id:
        return ["", "", given[0]]
    return ["", *given, "", ""][:3]


def parse_topology(text: str) -> Optional[Topology]:
    """`nvidia-smi topo -m`, or None where the text holds no matrix. Headers may be old, cut, coloured or missing."""
    header: Optional[List[str]] = None
    has_gpu_numa_id = False
    rows: List[Tuple[str, List[str], str]] = []
    nics: Dict[str, str] = {}
    legend: Dict[str, str] = {}
    for line in _ANSI.sub("", text).splitlines():
        words = _words_of(line)
        meaning = _LEGEND.match(line)
        nic = _NIC_NAME.match(line)
        if meaning:
            legend[meaning.group(1)] = meaning.group(2).strip()
        elif nic:
            nics[nic.group(1)] = nic.group(2)
        elif header is None and not rows and _is_header(words):
            has_gpu_numa_id = words[-3:] == ["GPU", "NUMA", "ID"]
            header = words[: words.index("CPU")] if "CPU" in words else [w for w in words if w != "Affinity"]
        elif len(words) > 1 and (words[0] in header if header is not None else "X" in words[1:]):
            codes = words[1:]
            if header is None:
                end = next((place for place, word in enumerate(codes) if _AFFINITY.match(word)), len(codes))
                codes = codes[:end]
            rows.append((words[0], codes[: len(header)] if header is not None else codes, line))
    if not rows:
        return None
    devices = header if header is not None else [name for name, _codes, _line in rows]
    width = max(len(codes) for _name, codes, _line in rows)
    devices = devices + [f"column{place}" for place in range(len(devices), width)]

    links: Dict[str, Dict[str, str]] = {name: dict(zip(devices, codes)) for name, codes, _line in rows}
    complete = len(rows) == len(devices) and all(len(codes) == len(devices) for _name, codes, _line in rows)
    for name in devices:
        for other in devices:
            if other not in links.get(name, {}) and name in links.get(other, {}):
                links.setdefault(name, {})[other] = links[other][name]
    trailers = {name: _trailer(line, len(codes), has_gpu_numa_id) for name, codes, line in rows}
    columns = [
        {name: trailer[place] for name, trailer in trailers.items() if _given(trailer[place].strip("[]")) is not None}
        for place in range(3)
    ]
    return Topology(tuple(devices), links, columns[0], columns[1], columns[2], nics, legend, complete)


def parse_nvlink(text: str) -> Dict[str, NvLink]:
    """`nvidia-smi nvlink -s`: the links by the GPU's UUID, and by its index as text."""
    speeds: Dict[str, List[Optional[float]]] = {}
    found: List[Optional[float]] = []
    for line in text.splitlines():
        gpu = re.match(r"\s*GPU (\d+):.*?\(UUID: (GPU-[0-9a-fA-F-]+)\)", line)
        link = re.match(r"\s*Link (\d+):\s*(.*)", line)
        if gpu:
            found = []
            speeds[gpu.group(1)] = speeds[gpu.group(2)] = found
        elif link:
            found.append(_number(link.group(2)))
    return {
        name: NvLink(active=sum(speed is not None for speed in links), total=len(links), speeds=tuple(links))
        for name, links in speeds.items()
        if links
    }


def parse_mig_list(text: str) -> Dict[Tuple[int, int], Tuple[str, str]]:
    """`nvidia-smi -L`: (GPU index, MIG device index) to (profile, UUID), which `-q -x` does not tell."""
    found: Dict[Tuple[int, int], Tuple[str, str]] = {}
    index = -1
    for line in text.splitlines():
        gpu = re.match(r"\s*GPU (\d{1,9}):", line)
        mig = re.match(r"\s*MIG (\S+)\s+Device\s+(\d{1,9}):\s*\(UUID:\s*([^\s)]+)\)", line)
        if gpu:
            index = int(gpu.group(1))
        elif mig:
            found[(index, int(mig.group(2)))] = (mig.group(1), mig.group(3))
    return found


# --- failures ---------------------------------------------------------------------------------------------------

_FAILURES = (
    (r"version mismatch|API mismatch|symbol lookup error|NVML: Function Not Found", "library_mismatch"),
    (r"libnvidia-ml|NVML shared library|error while loading shared libraries", "library_missing"),
    (r"suffi?c?i?ent permission|permission denied|operation not permitted|access blocked", "no_permission"),
    (r"could\s*n.{0,3}t communicate with (?:the )?nvidia driver|driver (?:is )?not loaded", "not_loaded"),
    (r"unable to (?:determine|detect) the device handle|gpu is lost|fallen off the bus", "gpu_lost"),
    (r"no (?:supported |nvidia )?(?:devices?|gpus?) (?:were |was )?found", "no_devices"),
    (r"command not found|no such file or directory", "not_installed"),
)
# RETURN VALUE in nvidia-smi(1); 126 and 127 are the shell's
_EXIT_CODES = {
    4: "no_permission",
    6: "no_devices",
    9: "not_loaded",
    12: "library_missing",
    15: "gpu_lost",
    126: "no_permission",
    127: "not_installed",
}
_EXIT_MEANINGS = {
    3: "the operation is not available on a GPU",
    4: "no permission",
    6: "an object was not found",
    8: "a GPU's external power cables are not attached",
    9: "the driver is not loaded",
    10: "the kernel has an interrupt issue with a GPU",
    14: "an infoROM is corrupted",
    15: "a GPU has fallen off the bus",
}
_HINTS = {
    "library_mismatch": (
        "the loaded kernel module and the NVIDIA libraries are of different versions, "
        "as after an upgrade of the driver: reload the module or reboot"
    ),
    "library_missing": "libnvidia-ml, a part of the driver, cannot be loaded: install the driver's libraries",
    "no_permission": "access to the GPUs is denied: check /dev/nvidia*, the user's groups and the container's devices",
    "not_loaded": "the driver's kernel module is not loaded or not in order",
    "gpu_lost": "a GPU cannot be reached: look for Xid in the kernel log; reboot, then reseat or replace it",
    "no_devices": "the driver has no GPU",
    "not_installed": "nvidia-smi is not installed",
    "unknown_error": "nvidia-smi fails for a reason it does not tell",
}


def classify_failure(text: str, rc: int) -> str:
    """The status that a failed nvidia-smi's words tell, or else its exit code."""
    for pattern, status in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            return status
    return _EXIT_CODES.get(rc, "unknown_error")


def _failure_reason(status: str, lines: Sequence[str], rc: int, machine: Machine) -> str:
    reason = _HINTS[status]
    if status == "unknown_error" and any("initialize NVML" in line for line in lines):
        reason = "NVML does not start: in a container, access to /dev/nvidia* was often withdrawn after its start"
    elif status == "library_mismatch" and machine.driver_version:
        reason += f" (kernel module {machine.driver_version})"
    elif status == "not_loaded":
        others = sorted({gpu.driver for gpu in machine.pci_gpus if gpu.driver and not gpu.driver.startswith("nvidia")})
        if others:
            reason += f" (the GPUs are bound to {', '.join(others)})"
        elif machine.module_loaded:
            reason += " (the module is there: see the kernel log for what it says)"
    said = "; ".join(lines)[:400] or (f"it was ended by signal {-rc}" if rc < 0 else f"exit code {rc}, no output")
    return f"{reason}. nvidia-smi: {said}"


def _absence_reason(machine: Machine) -> str:
    """Why there is no nvidia-smi: nothing to drive, no driver, or a driver without its tools."""
    if machine.driver_version or machine.module_loaded:
        version = f" {machine.driver_version}" if machine.driver_version else ""
        return (
            f"the NVIDIA kernel module{version} is loaded, but nvidia-smi is not installed: install the driver's tools"
        )
    if not machine.pci_gpus:
        return "no NVIDIA GPU is on the PCI bus, and no NVIDIA driver is installed"
    gpus = ", ".join(gpu.address for gpu in machine.pci_gpus)
    return f"NVIDIA GPUs are on the PCI bus ({gpus}), but no NVIDIA driver is installed"


# --- all together -----------------------------------------------------------------------------------------------


def build_facts(
    machine: Machine,
    query: Optional[CommandResult],
    topo: Optional[CommandResult] = None,
    nvlink: Optional[CommandResult] = None,
    listing: Optional[CommandResult] = None,
    timeout: float = 0,
) -> GpuFacts:
    """The facts of one machine.

    `query` is `nvidia-smi -q -x` (None: there is no nvidia-smi), `topo` is `topo -m`, `nvlink` is `nvlink -s` and
    `listing` is `-L`, each None if it was not run. `timeout` in seconds is only spoken of.
    """
    if query is None:
        return _without_gpus("not_installed", _absence_reason(machine), machine)
    if query.timed_out:
        reason = (
            f"nvidia-smi did not answer within {timeout:g} s: the driver or a GPU hangs (see the kernel log for Xid)"
        )
        return _without_gpus("timeout", reason, machine)

    log = parse_log(query.stdout, [gpu.address for gpu in machine.pci_gpus if gpu.known_to_driver])
    lines = [*log.lines, *_lines(query.stderr)]
    if not log.gpus and not log.attached:
        status = classify_failure("\n".join(lines), query.rc)
        if log.found and status == "unknown_error" and not log.damaged and query.rc == 0:
            status = "no_devices"
        if status == "not_loaded" and not machine.pci_gpus and not machine.module_loaded:
            lines.append("(no NVIDIA GPU is on the PCI bus)")
        reason = _failure_reason(status, [*lines, *log.damaged], query.rc, machine)
        return replace(
            _without_gpus(status, reason, machine),
            driver_version=log.driver_version or machine.driver_version,
            cuda_version=log.cuda_version,
            attached_gpus=log.attached,
        )

    topology = parse_topology(topo.stdout) if topo is not None else None
    gpus, problems, notes = _place_lines(log.gpus, lines)
    gpus = _with_mig_names(gpus, parse_mig_list(listing.stdout) if listing is not None else {})
    gpus = _with_nvlinks(gpus, parse_nvlink(nvlink.stdout) if nvlink is not None else {})
    gpus = tuple(_with_affinity(gpu, topology, machine) for gpu in gpus)

    whole = len(gpus) >= log.attached if log.attached is not None else not log.damaged
    if log.attached is not None and len(gpus) != log.attached:
        problems.append(f"nvidia-smi announces {log.attached} GPUs, and {len(gpus)} could be read")
    (notes if whole else problems).extend(log.damaged)
    problems += log.problems
    if query.rc:
        meaning = _EXIT_MEANINGS.get(query.rc)
        problems.append(f"nvidia-smi ended with exit code {query.rc}" + (f": {meaning}" if meaning else ""))
    listed = {gpu.address for gpu in machine.pci_gpus if gpu.known_to_driver} - {gpu.pci_address for gpu in gpus}
    problems += [
        f"GPU {address} belongs to the driver, but nvidia-smi does not list it: it is lost, has failed to start, "
        "or is withheld from this container"
        for address in sorted(listed)
    ]
    notes += _topology_notes(topo, topology, timeout)
    if nvlink is not None:
        notes += [line for line in _lines(nvlink.stdout + nvlink.stderr) if "nvlink" in line.lower()]
    for gpu in gpus:
        problems += [f"{_name(gpu)} {problem}" for problem in gpu.problems]
        notes += [f"{_name(gpu)}: {note}" for note in gpu.notes]
    partial = not whole or any(gpu.lost for gpu in gpus) or classify_failure("\n".join(lines), 0) == "gpu_lost"
    good = sum(not gpu.lost for gpu in gpus)
    return GpuFacts(
        status="partial" if partial else "ok",
        reason=(
            f"{good} of {max(log.attached or 0, len(gpus))} GPUs can be reached"
            if partial
            else f"the driver answers for {'its GPU' if good == 1 else f'all its {good} GPUs'}"
        ),
        driver_version=log.driver_version or machine.driver_version,
        cuda_version=log.cuda_version,
        attached_gpus=log.attached,
        gpus=gpus,
        topology=topology,
        pci_gpus=machine.pci_gpus,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _without_gpus(status: str, reason: str, machine: Machine) -> GpuFacts:
    """A machine without a GPU and without a driver is in order; any other without an answer is not."""
    in_order = not machine.pci_gpus and status in ("not_installed", "not_loaded", "no_devices")
    return GpuFacts(
        status=status,
        reason=reason,
        driver_version=machine.driver_version,
        pci_gpus=machine.pci_gpus,
        problems=() if in_order else (reason,),
    )


def _name(gpu: GpuRecord) -> str:
    return f"GPU {gpu.index} ({gpu.pci_address})" if gpu.pci_address else f"GPU {gpu.index}"


def _place_lines(gpus: Sequence[GpuRecord], lines: Sequence[str]) -> Tuple[Tuple[GpuRecord, ...], List[str], List[str]]:
    """Lines beside the record: to the GPU whose PCI address they name, to problems or to notes."""
    problems: List[str] = []
    notes: List[str] = []
    own: Dict[str, List[str]] = {gpu.pci_address: [] for gpu in gpus if gpu.pci_address}
    for line in lines:
        address = pci_address(line)
        if address in own:
            own[address].append(f"is complained of: {line}")
        elif address or _SERIOUS.search(line):
            problems.append(f"nvidia-smi says: {line}")
        else:
            notes.append(f"nvidia-smi says: {line}")
    placed = tuple(
        replace(
            gpu,
            problems=gpu.problems + tuple(own.get(gpu.pci_address, ())),
            lost=gpu.lost or any(_LOST.search(line) for line in own.get(gpu.pci_address, ())),
        )
        for gpu in gpus
    )
    return placed, problems, notes


def _with_mig_names(
    gpus: Sequence[GpuRecord], names: Mapping[Tuple[int, int], Tuple[str, str]]
) -> Tuple[GpuRecord, ...]:
    def named(gpu: GpuRecord, instance: MigInstance) -> MigInstance:
        profile, uuid = names.get((gpu.index, instance.index), (None, None))
        return replace(instance, profile=profile, uuid=instance.uuid or uuid)

    return tuple(
        replace(gpu, mig=replace(gpu.mig, instances=tuple(named(gpu, one) for one in gpu.mig.instances)))
        for gpu in gpus
    )


def _with_nvlinks(gpus: Sequence[GpuRecord], links: Mapping[str, NvLink]) -> Tuple[GpuRecord, ...]:
    """Links of a GPU that are down are a fault if a GPU of the same model has more of them up; else a way to build."""
    own = {gpu.index: links.get(gpu.uuid) or links.get(str(gpu.index)) for gpu in gpus}
    placed = []
    for gpu in gpus:
        mine = own[gpu.index]
        most = max(
            [peer.active for other in gpus for peer in (own[other.index],) if peer and other.model == gpu.model] or [0]
        )
        problems = gpu.problems
        if mine is not None and 0 < mine.active < most:
            problems += (f"has {mine.active} NVLinks up where others of its kind have {most}",)
        placed.append(replace(gpu, nvlink=mine, problems=problems))
    return tuple(placed)


def _with_affinity(gpu: GpuRecord, topology: Optional[Topology], machine: Machine) -> GpuRecord:
    """NUMA node and CPUs close to the GPU: from the matrix, or else from sysfs."""
    name = f"GPU{gpu.index}"
    numa = topology.numa_affinity.get(name, "") if topology else ""
    cpus = topology.cpu_affinity.get(name) if topology else None
    seen = next((one for one in machine.pci_gpus if one.address == gpu.pci_address), None)
    return replace(
        gpu,
        numa_node=int(numa) if re.match(r"\d{1,9}\Z", numa) else (seen.numa_node if seen else None),
        cpu_affinity=cpus or (seen.cpu_affinity if seen else None),
    )


def _topology_notes(topo: Optional[CommandResult], topology: Optional[Topology], timeout: float) -> List[str]:
    if topo is None:
        return []
    if topo.timed_out:
        return [f"no topology: nvidia-smi topo -m did not answer within {timeout:g} s"]
    if topology is None:
        return [
            f"no topology: {'; '.join(_lines(topo.stdout + topo.stderr))[:200] or 'nvidia-smi topo -m says nothing'}"
        ]
    return [] if topology.complete else ["the topology matrix is cut: rows or cells are missing"]
