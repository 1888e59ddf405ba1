# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""How facts about GPUs are gathered on a node. Takes the module as it is, to need nothing of Ansible."""

from __future__ import annotations

import os
import signal
from typing import Any, List, Optional

from ansible_collections.torchfleet.cluster.plugins.module_utils import _nvidia_smi

ROOT = "/"
EXTRA_DIRS = ["/usr/lib/wsl/lib", "/opt/bin", "/usr/local/nvidia/bin", "/run/nvidia/driver/usr/bin"]
NVIDIA = "0x10de"


class _TooSlow(Exception):
    """A command has used up its time."""


def _read(*parts: str) -> str:
    try:
        with open(os.path.join(ROOT, *parts), encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _names(*parts: str) -> List[str]:
    try:
        return sorted(os.listdir(os.path.join(ROOT, *parts)))
    except OSError:
        return []


def read_machine() -> _nvidia_smi.Machine:
    """What /sys and /proc tell of GPUs and driver, none of which needs nvidia-smi."""
    devices = "sys/bus/pci/devices"
    known = [name.lower() for name in _names("proc/driver/nvidia/gpus")]
    gpus = []
    for address in _names(devices):
        # class 0x03: display controllers, be they VGA (0x0300) or 3D (0x0302)
        if _read(devices, address, "vendor") != NVIDIA or not _read(devices, address, "class").startswith("0x03"):
            continue
        link = os.path.join(ROOT, devices, address, "driver")
        numa = _read(devices, address, "numa_node")
        gpus.append(
            _nvidia_smi.PciGpu(
                address=address.lower(),
                driver=os.path.basename(os.readlink(link)) if os.path.islink(link) else None,
                numa_node=int(numa) if numa.isdigit() else None,
                cpu_affinity=_read(devices, address, "local_cpulist") or None,
                known_to_driver=address.lower() in known,
            )
        )
    return _nvidia_smi.Machine(
        pci_gpus=tuple(gpus),
        driver_text=_read("proc/driver/nvidia/version"),
        module_loaded=os.path.isdir(os.path.join(ROOT, "sys/module/nvidia")),
    )


def count_nvswitches() -> int:
    """NVSwitches on the PCI bus: bridges of NVIDIA's of the class "other" (0x0680). They need fabric manager."""
    devices = "sys/bus/pci/devices"
    return sum(
        _read(devices, address, "vendor") == NVIDIA and _read(devices, address, "class").startswith("0x0680")
        for address in _names(devices)
    )


def run(module: Any, argv: List[str], timeout: float) -> _nvidia_smi.CommandResult:
    """Run a command and give it up when its time is over.

    A process that hangs in the driver survives SIGKILL and keeps its pipes open: so nobody may wait for it, as
    timeout(1) and subprocess.run() do. The alarm leaves run_command from within.
    """
    started: List[Any] = []

    def give_up(_signum: int, _frame: Any) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        rc, out, err = module.run_command(
            argv,
            errors="surrogate_then_replace",
            environ_update={"LC_ALL": "C", "LANGUAGE": "C"},
            before_communicate_callback=started.append,
            handle_exceptions=False,
        )
    except _TooSlow:
        for process in started:
            process.kill()
        return _nvidia_smi.CommandResult(timed_out=True)
    except OSError as error:
        return _nvidia_smi.CommandResult(rc=255, stderr=str(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return _nvidia_smi.CommandResult(rc, out, err)


def find_nvidia_smi(module: Any) -> Optional[str]:
    found: Optional[str] = module.params["executable"] or module.get_bin_path("nvidia-smi")
    return found or module.get_bin_path("nvidia-smi", opt_dirs=EXTRA_DIRS)


def gather(module: Any) -> _nvidia_smi.GpuFacts:
    machine = read_machine()
    nvidia_smi = find_nvidia_smi(module)
    if nvidia_smi is None:
        return _nvidia_smi.build_facts(machine, None)
    timeout = module.params["timeout"]
    query = run(module, [nvidia_smi, "-q", "-x"], timeout)
    if "<gpu " not in query.stdout:
        return _nvidia_smi.build_facts(machine, query, timeout=timeout)
    return _nvidia_smi.build_facts(
        machine,
        query,
        topo=run(module, [nvidia_smi, "topo", "-m"], timeout),
        nvlink=run(module, [nvidia_smi, "nvlink", "-s"], timeout),
        listing=run(module, [nvidia_smi, "-L"], timeout) if "<mig_device>" in query.stdout else None,
        timeout=timeout,
    )
