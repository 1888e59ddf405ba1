# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Checks of the machine: clock, disks, limits, services, runs, and the code that is to run."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Set

from ansible_collections.torchfleet.cluster.plugins.module_utils._checks._check import (
    Check,
    Cluster,
    Hit,
    get,
    listed,
    size,
    usual_value,
)

GIB = 1 << 30
# torch's dynamic rendezvous drops a node whose last heartbeat is older than 3 * 5 s by the clocks of the others
# (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py: keep_alive_interval, keep_alive_max_attempt).
CLOCK_FAIL = 10.0
CLOCK_WARN = 1.0


def clocks(cluster: Cluster) -> Iterator[Hit]:
    """Against the median of all nodes, so that the controller's own clock does not matter."""
    known = {
        str(node["name"]): (float(clock["offset"]), float(clock["uncertainty"]))
        for node in cluster.nodes
        for clock in [get(node, "system.clock")]
        if clock
    }
    if len(known) < 2:
        return
    ordered = sorted(offset for offset, _uncertainty in known.values())
    median = ordered[(len(ordered) - 1) // 2]
    for name, (offset, uncertainty) in known.items():
        apart = abs(offset - median) - uncertainty
        if apart >= CLOCK_WARN:
            values = {"value": f"{abs(offset - median):.1f}", "side": "ahead of" if offset > median else "behind"}
            yield Hit((name,), values, severity="fail" if apart >= CLOCK_FAIL else "warn")


def rdma_memlock(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        limit = get(node, "limits.memlock_soft")
        if get(node, "rdma.active", 0) and limit is not None and limit >= 0:
            yield Hit((str(node["name"]),), {"value": size(float(limit))})


def master_port(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for holder in get(node, "system.port.holders", []):
            if node.get("head") and not holder.get("run_id"):
                yield Hit(
                    (str(node["name"]),),
                    {
                        "port": get(node, "system.port.number"),
                        "next": int(get(node, "system.port.number", 29500)) + 1,
                        "pid": holder.get("pid"),
                        "user": holder.get("user") or "an unknown user",
                        "value": holder.get("command") or "its command cannot be read",
                    },
                )


def stale_runs(cluster: Cluster) -> Iterator[Hit]:
    """A run takes every node: what is left on some only, or without its supervisor, was not cleared away."""
    where: Dict[str, Set[str]] = {}
    for node in cluster.nodes:
        for run in get(node, "system.runs", []):
            if run.get("agent"):
                where.setdefault(str(run["run_id"]), set()).add(str(node["name"]))
    for node in cluster.nodes:
        for run in get(node, "system.runs", []):
            run_id, pids = str(run["run_id"]), [str(pid) for pid in run.get("pids") or ()]
            values = {"run": run_id, "value": listed(pids, 5), "count": len(pids)}
            alive = where.get(run_id, set())
            if not run.get("agent"):
                yield Hit((str(node["name"]),), values)
            elif len(alive) < len(cluster.nodes):
                yield Hit(
                    (str(node["name"]),),
                    values,
                    sentence="{nodes}: run {run} goes on here, and no longer on the other nodes",
                )
            else:
                yield Hit(
                    (str(node["name"]),),
                    values,
                    sentence="{nodes}: run {run} is going on",
                    remedy="nothing, where it is meant to; GPUs and network are in use while this was measured",
                    severity="info",
                )


def accelerate_defaults(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        for config in get(node, "system.accelerate_configs", []):
            yield Hit((str(node["name"]),), {"value": config["path"], "lines": listed(config.get("lines") or [], 4)})


def upgrades(cluster: Cluster) -> Iterator[Hit]:
    for node in cluster.nodes:
        packages = get(node, "system.upgrades.driver_packages", [])
        if get(node, "system.upgrades.automatic") and packages:
            yield Hit(
                (str(node["name"]),),
                {"value": listed(packages, 3), "all": " ".join(packages), "by": get(node, "system.upgrades.automatic")},
                remedy=(
                    "apt-mark hold {all}"
                    if get(node, "system.upgrades.automatic") != "dnf-automatic"
                    else "dnf versionlock add {all}, or exclude them in /etc/dnf/automatic.conf"
                ),
            )


def revisions(cluster: Cluster) -> Iterator[Hit]:
    paths: List[str] = []
    for node in cluster.nodes:
        paths += [path for path in get(node, "system.revisions", {}) if path not in paths]
    for path in paths:
        found: Dict[str, Mapping[str, Any]] = {
            str(node["name"]): get(node, "system.revisions", {}).get(path) or {}
            for node in cluster.nodes
            if get(node, "system.revisions") is not None
        }
        hashes = {name: str(one.get("hash") or "") for name, one in found.items()}
        usual = usual_value(hashes)
        reference = next((one.get("listing") or {} for name, one in found.items() if hashes[name] == usual), {})
        for name, value in hashes.items():
            if value == usual:
                continue
            values = {"path": path, "value": value[:12], "usual": str(usual)[:12], "files": "files"}
            if not value:
                yield Hit((name,), values, sentence="{nodes} {does} not have {path}, which other nodes have")
                continue
            listing = found[name].get("listing") or {}
            differing = sorted(file for file in {*listing, *reference} if listing.get(file) != reference.get(file))
            values["files"] = listed(differing, 4) or "files"
            yield Hit((name,), values)


CHECKS = (
    Check(
        id="clock",
        area="machine",
        title="clock",
        reads="system.clock",
        rule=clocks,
        severity="fail",
        sentence="{nodes}: the clock is {value} s {side} that of the other nodes",
        remedy="start time synchronisation: systemctl enable --now systemd-timesyncd (or chrony)",
        source=(
            f"warn from {CLOCK_WARN:g} s, fail from {CLOCK_FAIL:g} s: torch's dynamic rendezvous takes a node for dead "
            "after 15 s by the others' clocks; certificates and file times suffer before"
        ),
    ),
    Check(
        id="disk-space",
        area="machine",
        title="free disk space",
        reads="system.disks[].free_bytes",
        rule={"at_least": 2 * GIB},
        severity="fail",
        sentence="{nodes}: {value} are free on {item[mount]} ({item[path]}), wanted {wanted}",
        remedy="free space there, or set torchfleet_root to a larger file system",
        source="a checkpoint with optimiser state takes about 16 bytes a parameter: 2 GiB is one of 130 M parameters",
        unit="bytes",
    ),
    Check(
        id="disk-inodes",
        area="machine",
        title="free inodes",
        reads="system.disks[].inodes_free_percent",
        rule={"at_least": 2},
        severity="fail",
        sentence="{nodes}: {value} % of the inodes are free on {item[mount]} ({item[path]}): no file can be made soon",
        remedy="delete small files there (df -i; caches, old runs)",
        source="without a free inode nothing can be written, however much space there is",
    ),
    Check(
        id="disk-read-only",
        area="machine",
        title="disks can be written",
        reads="system.disks[].read_only",
        rule={"equals": False},
        severity="fail",
        sentence="{nodes}: {item[mount]} ({item[path]}) is mounted read-only",
        remedy="look into the kernel log for disk errors, then mount -o remount,rw {item[mount]}",
        source="a file system that meets an error is made read-only",
    ),
    Check(
        id="shm-size",
        area="limits",
        title="size of /dev/shm",
        reads="nccl.shm.size_bytes",
        rule={"at_least": GIB},
        severity="warn",
        sentence="{nodes}: /dev/shm has {value}, wanted {wanted}: NCCL and DataLoader workers share memory there",
        remedy="mount -o remount,size={room} /dev/shm, and in /etc/fstab; of a container --shm-size={room}",
        source="NCCL user guide, Troubleshooting, Docker: --shm-size=1g",
        unit="bytes",
    ),
    Check(
        id="shm-free",
        area="limits",
        title="free space in /dev/shm",
        reads="nccl.shm.free_bytes",
        rule={"at_least": 64 << 20},
        severity="fail",
        sentence="{nodes}: {value} are free in /dev/shm, wanted {wanted}",
        remedy="remove what earlier runs left there: ls -l /dev/shm (names with torch_ or nccl-)",
        source="NCCL takes about 10 MB for each pair of ranks of a node",
        unit="bytes",
    ),
    Check(
        id="memlock-rdma",
        area="limits",
        title="memlock with RDMA",
        reads="limits.memlock_soft",
        rule=rdma_memlock,
        severity="fail",
        sentence="{nodes}: ssh sessions may lock {value} of memory, and RDMA needs it without limit",
        remedy="`* - memlock unlimited` in /etc/security/limits.d/90-torchfleet.conf, then log in anew",
        source="NCCL user guide, Troubleshooting, Memory issues: ulimit -l unlimited",
    ),
    Check(
        id="same-memlock",
        area="limits",
        title="memlock of ssh sessions",
        reads="limits.memlock_soft",
        rule={"same": "whole"},
        severity="warn",
        sentence="{nodes}: ssh sessions may lock {value} of memory, on {others} {usual}",
        remedy="`* - memlock unlimited` in /etc/security/limits.d/90-torchfleet.conf, then log in anew",
        source="what works on one node is to work on all",
        unit="bytes",
    ),
    Check(
        id="nofile",
        area="limits",
        title="open files of ssh sessions",
        reads="limits.nofile_hard",
        rule={"at_least": 4096},
        severity="warn",
        sentence="{nodes}: ssh sessions may open {value} files at most, wanted {wanted}",
        remedy="`* - nofile 1048576` in /etc/security/limits.d/90-torchfleet.conf, then log in anew",
        source="a rank holds sockets to its peers and files of DataLoader workers; the kernel's own limit is 4096",
    ),
    Check(
        id="nofile-soft",
        area="limits",
        title="open files, soft limit",
        reads="limits.nofile_soft",
        rule={"at_least": 1024},
        severity="warn",
        sentence="{nodes}: ssh sessions start with {value} open files, wanted {wanted}",
        remedy="`* - nofile 1048576` in /etc/security/limits.d/90-torchfleet.conf, then log in anew",
        source="1024 is the kernel's own soft limit",
    ),
    Check(
        id="master-port",
        area="runs",
        title="master port",
        reads="system.port",
        rule=master_port,
        severity="fail",
        sentence="{nodes}: port {port} is held by process {pid} of {user} ({value})",
        remedy="end it (kill {pid}), or `torchfleet_master_port: {next}` in the inventory",
        source="the head's ranks listen there (29500 is torch.distributed.run's own default)",
    ),
    Check(
        id="stale-run",
        area="runs",
        title="stale runs",
        reads="system.runs",
        rule=stale_runs,
        severity="fail",
        sentence="{nodes}: {count} processes of run {run} are left without their supervisor ({value})",
        remedy="systemctl stop torchfleet-{run}.service; then kill what is left: {value}",
        source="left processes hold GPU memory and ports",
    ),
    Check(
        id="accelerate-default",
        area="runs",
        title="default accelerate configuration",
        reads="system.accelerate_configs",
        rule=accelerate_defaults,
        severity="warn",
        sentence="{nodes}: {value} steers every `accelerate launch` without --config_file there ({lines})",
        remedy="remove {value}; runs of this collection bring their own",
        source="accelerate's documentation: the default configuration is read from the cache",
    ),
    Check(
        id="revision",
        area="code",
        title="code and data",
        reads="system.revisions",
        rule=revisions,
        severity="fail",
        sentence="{nodes}: {path} differs from the other nodes in {files} (revision {value}, usual {usual})",
        remedy="copy it anew: launch.yml does so before each run; data with role sync",
        source="ranks that run other code, or other data, hang or diverge",
    ),
    Check(
        id="reboot",
        area="machine",
        title="pending reboot",
        reads="system.reboot.pending",
        rule={"equals": False},
        severity="warn",
        sentence="{nodes} {is} waiting for a reboot",
        remedy="reboot it between two runs; a driver that was upgraded does not answer until then",
        source="/run/reboot-required, or a kernel that is newer than the running one",
    ),
    Check(
        id="unattended-upgrades",
        area="machine",
        title="automatic upgrades of the driver",
        reads="system.upgrades",
        rule=upgrades,
        severity="warn",
        sentence="{nodes}: {by} may replace the driver in the middle of a run ({value})",
        remedy="apt-mark hold {all}",
        source="after an upgrade of the driver nothing that uses CUDA starts until the module is loaded anew",
    ),
)
