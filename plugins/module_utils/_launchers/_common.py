# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""What all launchers share: environments, the command of one rank, the plan's frame, and what they cannot do."""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    Cluster,
    ClusterError,
    Job,
    LaunchPlan,
    Node,
    NodePlan,
    RankPlan,
    Reason,
    planned_ranks,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._nccl_env import node_settings, values

RANK_SHIM = "rank.py"  # plugins/plugin_utils/node/rank.py
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What a remote shell takes as it stands.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*\Z")

# Where a launcher's tool comes from, for who has to install it.
_PACKAGES = {
    "mpirun": "openmpi-bin (Debian) or openmpi",
    "pdsh": "pdsh, and pdsh-rcmd-ssh where that is a package of its own",
    "sbatch": "Slurm's client tools",
}


def rank_command(node: Node, job: Job) -> Tuple[str, ...]:
    """What the launcher starts for each rank: the shim that keeps the rank's log and exit status, then the script."""
    return (*bare_rank_command(node, job), *payload(node, job))


def bare_rank_command(node: Node, job: Job) -> Tuple[str, ...]:
    """The same where the shim finds the rank's command on its node: fit for any shell."""
    return (node.python, "-u", f"{job.lib}/{RANK_SHIM}", job.run_dir)


def payload(node: Node, job: Job) -> Tuple[str, ...]:
    return (node.python, "-u", *job.payload)


def base_env(cluster: Cluster, node: Node, job: Job, extra: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The environment that a node's ranks need on top of a bare one, with `extra` of the launcher.

    The job's own variables win over ours. Interface names are the node's own and never travel to another.
    """
    env = {
        **head_env(node, job),
        "TORCHFLEET_RUN_DIR": job.run_dir,
        "TORCHFLEET_OUTPUT_DIR": job.output_dir or f"{job.run_dir}/output",
        "TORCHFLEET_ATTEMPT": str(job.attempt),
        "PATH": f"{node.python.rpartition('/')[0]}:{SYSTEM_PATH}",
        "PYTHONUNBUFFERED": "1",
        # A rank that crashes, or that hangs and is aborted, then says where it was.
        "PYTHONFAULTHANDLER": "1",
    }
    env.update(values(node_settings(cluster, node)))
    # torchrun sets it to 1 with a warning where it is absent; said once here, it is part of the plan.
    env["OMP_NUM_THREADS"] = "1"
    env.update(extra or {})
    env.update(job.env)
    return env


def head_env(node: Node, job: Job) -> Dict[str, str]:
    """The environment of a launcher that passes its own on to other nodes: nothing of one node, nothing of the user."""
    return {
        "TORCHFLEET_RUN_ID": job.run_id,
        "TORCHFLEET_NODE": node.name,
        "PATH": f"{node.python.rpartition('/')[0]}:{SYSTEM_PATH}",
        "PYTHONUNBUFFERED": "1",
    }


def on_each_node(
    cluster: Cluster,
    job: Job,
    argv: Callable[[Node], Tuple[str, ...]],
    env: Optional[Mapping[str, str]] = None,
    files: Optional[Callable[[Node], Mapping[str, str]]] = None,
    own_env: Callable[[Node], Mapping[str, str]] = lambda _node: {},
    sealed: bool = False,
    **more: Any,
) -> LaunchPlan:
    """The plan of a launcher that is started on every node.

    `env` is what it needs beside the common variables, `own_env` what it needs on one node. A `sealed` one, which would
    write its environment down, starts `bare_rank_command` in the run's folder.
    """
    nodes = [
        NodePlan(
            node=node.name,
            node_rank=node.node_rank,
            argv=argv(node),
            env={**head_env(node, job), **(env or {}), **own_env(node)},
            cwd=job.run_dir,
            files=files(node) if files else {},
            rank=_rank_plan(cluster, node, job, {**(env or {}), "PYTHONPATH": job.workdir}),
        )
        if sealed
        else NodePlan(
            node=node.name,
            node_rank=node.node_rank,
            argv=argv(node),
            env=base_env(cluster, node, job, {**(env or {}), **own_env(node)}),
            cwd=job.workdir,
            files=files(node) if files else {},
        )
        for node in cluster.nodes
    ]
    return _plan(cluster, job, nodes, **more)


def from_head(
    cluster: Cluster,
    job: Job,
    argv: Tuple[str, ...],
    env: Optional[Mapping[str, str]] = None,
    files: Optional[Mapping[str, str]] = None,
    rank_env: Optional[Mapping[str, str]] = None,
    own_env: Callable[[Node], Mapping[str, str]] = lambda _node: {},
    queued: bool = False,
) -> LaunchPlan:
    """The plan of a launcher that is started on the head alone and starts `bare_rank_command` on all nodes.

    `env` is the launcher's, `rank_env` what the ranks need beside the common variables and `own_env` what those of one
    node need; `files` go to all nodes.
    """
    problems = remote_shell_problems(cluster, job)
    if problems:
        raise ClusterError(problems)
    nodes = []
    for node in cluster.nodes:
        rank = _rank_plan(cluster, node, job, {**(rank_env or {}), **own_env(node)}, queued)
        nodes.append(
            NodePlan(
                node=node.name,
                node_rank=node.node_rank,
                argv=argv if node is cluster.head else (),
                env={**head_env(node, job), **(env or {})},
                cwd=job.run_dir,
                files=dict(files or {}),
                rank=rank,
            )
        )
    return _plan(cluster, job, nodes)


def _rank_plan(cluster: Cluster, node: Node, job: Job, env: Mapping[str, str], queued: bool = False) -> RankPlan:
    return RankPlan(
        argv=payload(node, job),
        env=base_env(cluster, node, job, {"LOCAL_WORLD_SIZE": str(node.slots), **env}),
        cwd=job.workdir,
        count=node.slots,
        queued=queued,
    )


def _plan(
    cluster: Cluster, job: Job, nodes: Sequence[NodePlan], reasons: Sequence[Reason] = (), **more: Any
) -> LaunchPlan:
    return LaunchPlan(
        run_id=job.run_id,
        launcher=job.launcher,
        world_size=cluster.world_size,
        master_address=cluster.master_address,
        master_port=cluster.master_port,
        transport=cluster.transport,
        nodes=tuple(nodes),
        ranks=planned_ranks(cluster),
        reasons=(*cluster.reasons, *reasons),
        **more,
    )


# What the user chose


def choose_via(job: Job, ways: Sequence[str], default: str) -> str:
    """Which of the launcher's ways to start is taken."""
    if job.via and job.via not in ways:
        raise ClusterError([f"launch_{job.launcher}_via is {job.via!r}, wanted one of: {', '.join(ways)}"])
    return job.via or default


def read_options(job: Job, known: Mapping[str, Callable[[Any], Any]]) -> Dict[str, Any]:
    """The job's launcher options. `known` maps a name to what reads it, or raises ValueError with what it wants.

    Raises ClusterError with every problem found.
    """
    problems = []
    read: Dict[str, Any] = {}
    for name, value in job.options.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            there_are = f"there are: {', '.join(known)}" if known else "it has none"
            meant = f"did you mean {close[0]}?" if close else there_are
            problems.append(f"launch_launcher_options: {job.launcher} has no option {str(name)!r}: {meant}")
            continue
        try:
            read[name] = known[name](value)
        except ValueError as error:
            problems.append(f"launch_launcher_options: {name} is {value!r}, wanted {error}")
    if problems:
        raise ClusterError(problems)
    return read


def seconds(value: Any) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) < 1:
        raise ValueError("whole seconds, 1 or more")
    return int(value)


def flag(value: Any) -> bool:
    words = {"true": True, "yes": True, "false": False, "no": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError("true or false")
    return words[str(value).lower()]


def word(value: Any) -> str:
    if not isinstance(value, str) or not value or any(ord(char) < 32 for char in value):
        raise ValueError("text on one line")
    return value


def absolute_path(value: Any) -> str:
    if not str(value).startswith("/") or any(ord(char) < 32 for char in str(value)):
        raise ValueError("an absolute path")
    return str(value)


def strings(value: Any) -> Tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, (str, int, float)) for part in value):
        raise ValueError("a list of arguments")
    return tuple(str(part) for part in value)


# What a launcher cannot do, or lacks


def not_elastic(job: Job) -> List[str]:
    """Most launchers cannot deal ranks anew."""
    return [
        f"{variable} works with launch_launcher torchrun alone, and that is {job.launcher}: unset it, or set torchrun"
        for variable, value in (("launch_max_restarts", job.max_restarts), ("launch_min_nodes", job.min_nodes))
        if value
    ]


def unequal_slots(cluster: Cluster, because: str) -> List[str]:
    if len({node.slots for node in cluster.nodes}) == 1:
        return []
    listed = ", ".join(f"{node.name} has {node.slots}" for node in cluster.nodes)
    return [
        f"{because}, and the slots differ: {listed}. Set launch_launcher to torchrun, which starts each node with its "
        "own number, or make torchfleet_slots the same"
    ]


def remote_shell_problems(cluster: Cluster, job: Job) -> List[str]:
    """What a launcher that goes through other nodes' shells with one command for all cannot carry."""
    problems = [
        f"{what} {path!r} has characters that the remote shells of {job.launcher} would take apart: set {variable} to "
        "a path of letters, digits and . _ - +, or launch_launcher to torchrun"
        for what, path, variable in (
            ("the run's folder", job.run_dir, "launch_remote_root"),
            ("the interpreter", cluster.head.python, "torchfleet_python"),
        )
        if not _PLAIN_PATH.match(path)
    ]
    others = [node for node in cluster.nodes if node.python != cluster.head.python]
    if others:
        listed = ", ".join(f"{node.python} on {node.name}" for node in (cluster.head, *others))
        problems.append(
            f"{job.launcher} starts one interpreter on all nodes, and torchfleet_python differs ({listed}): make it "
            "the same, or set launch_launcher to torchrun"
        )
    return problems


def missing_packages(cluster: Cluster, *names: str) -> List[str]:
    """Python packages that were looked for on a node and are not there."""
    return [
        f"{node.name}: {node.python} has no {name}: add {name} to pytorch_extra_packages and run provision.yml"
        for node in cluster.nodes
        for name in names
        if node.packages is not None and name not in node.packages
    ]


def program(node: Node, name: str) -> str:
    """The tool's absolute path on the node; a bare name where nobody has looked. Raises ClusterError."""
    if node.programs is None:
        return name
    path = node.programs.get(name)
    if path is None:
        raise ClusterError([f"{node.name}: there is no {name}: install {_PACKAGES.get(name, name)} there"])
    return path


def programs(nodes: Sequence[Node], *names: str) -> List[str]:
    """What is missing of tools that must be there on nodes, under one name each."""
    problems: List[str] = []
    for node in nodes:
        for name in names:
            try:
                program(node, name)
            except ClusterError as error:
                problems += error.problems
    return problems


def network_of(cluster: Cluster) -> str:
    """The smallest network that holds all nodes' addresses, as `10.0.1.0/24`: how MPI is told the training network."""
    addresses = [ipaddress.ip_address(node.address) for node in cluster.nodes]
    network = ipaddress.ip_network(str(addresses[0]))
    while not all(address in network for address in addresses):
        network = network.supernet()
    return str(network)
