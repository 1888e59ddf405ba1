# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Launchers: one file each with one function, `plan(cluster, job) -> LaunchPlan`."""

from __future__ import annotations

from typing import Callable, Dict

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._launchers import (
    _accelerate,
    _accelerate_pdsh,
    _colossalai,
    _deepspeed,
    _mpirun,
    _python,
    _slurm,
    _torchrun,
)

LAUNCHERS: Dict[str, Callable[[Cluster, Job], LaunchPlan]] = {
    "accelerate": _accelerate.plan,
    "accelerate_pdsh": _accelerate_pdsh.plan,
    "colossalai": _colossalai.plan,
    "deepspeed": _deepspeed.plan,
    "mpirun": _mpirun.plan,
    "python": _python.plan,
    "slurm": _slurm.plan,
    "torchrun": _torchrun.plan,
}


def plan(cluster: Cluster, job: Job) -> LaunchPlan:
    """The LaunchPlan of the job's launcher. Raises ClusterError where there is no such launcher."""
    try:
        launcher = LAUNCHERS[job.launcher]
    except KeyError:
        known = ", ".join(sorted(LAUNCHERS))
        raise ClusterError([f"launch_launcher is {job.launcher!r}, wanted one of: {known}"]) from None
    return launcher(cluster, job)
