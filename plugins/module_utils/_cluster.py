# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The nouns of the collection: Node, Cluster, Job and LaunchPlan, and the one place a Cluster is built.

Everything that is rendered or started takes a Cluster as its only source, so that a hostfile, an accelerate
configuration and a torchrun command cannot disagree on ranks, slots, ports or addresses.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

TRANSPORTS = ("tcp", "ib", "roce")
DEFAULT_MASTER_PORT = 29500  # torch.distributed.run's own default

# One label of a host name: RFC 1123 section 2.1, lower case only (gloo and torch compare names as text).
_HOSTNAME = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")


class ClusterError(ValueError):
    """The inventory cannot be made into a Cluster or a plan. `problems` holds one sentence per culprit."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Reason:
    """A choice made on the user's behalf: what was chosen for which subject, and why."""

    subject: str
    choice: str
    because: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.choice} ({self.because})"


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver lists it. `index` is nvidia-smi's; `memory_bytes` is the frame buffer's total."""

    index: int
    uuid: str = ""
    model: str = ""
    architecture: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True)
class Node:
    """One machine of the cluster.

    Invariants: `address` is an IP literal that the node owns on the training network; `slots` >= 1 is the number of
    ranks the node runs; `python` is an absolute path; `node_rank` is the place in `Cluster.nodes`.
    `aliases` are further names of the node in /etc/hosts. `env_extra` are the user's NCCL and gloo variables
    (nccl_env_extra; a value of None takes ours away). `interface` carries `address` (None: not looked at yet). `hcas`
    are RDMA ports as NCCL names them (`mlx5_0:1`). `programs` are absolute paths of launchers' tools by name,
    `packages` versions of `python`'s packages (None: not looked at).
    """

    name: str
    node_rank: int
    address: str
    ssh_user: str = "root"
    ssh_host: str = ""
    ssh_port: int = 22
    slots: int = 1
    gpus: Tuple[Gpu, ...] = ()
    interface: Optional[str] = None
    hcas: Tuple[str, ...] = ()
    gid_index: Optional[int] = None
    python: str = "/opt/torchfleet/venv/bin/python"
    aliases: Tuple[str, ...] = ()
    env_extra: Mapping[str, Any] = field(default_factory=dict)
    programs: Optional[Mapping[str, str]] = None
    packages: Optional[Mapping[str, str]] = None


@dataclass(frozen=True)
class Cluster:
    """The nodes in launch order, head first.

    Invariants: names and addresses are unique; `nodes[i].node_rank == i`; `master_address` is the head's address;
    1024 <= `master_port` <= 65535 and no node's sshd listens there.
    """

    nodes: Tuple[Node, ...]
    master_address: str
    master_port: int = DEFAULT_MASTER_PORT
    transport: str = "tcp"
    reasons: Tuple[Reason, ...] = ()

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes."""
        return sum(node.slots for node in self.nodes)

    def first_rank(self, node: Node) -> int:
        """Global rank of the node's local rank 0: ranks are dealt node by node, in launch order."""
        return sum(other.slots for other in self.nodes[: node.node_rank])

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


@dataclass(frozen=True)
class Job:
    """What to run, the same on every node.

    Exactly one of `script` (path below `workdir`, or absolute) and `module` is set. `env` is added to every rank's
    environment; `secret_env` names further variables, whose values no plan ever holds: they reach the node's supervisor
    by another way. `lib` is the folder on the nodes that holds our scripts. `via` is which of a launcher's own ways to
    start is taken (empty: its default), `options` what the launcher is told beyond that. `max_restarts` is how often an
    elastic launcher deals the ranks anew after a failure, `min_nodes` with how few nodes it goes on (None: all).
    `output_dir` is where the script leaves its files (empty: below `run_dir`); a further `attempt` has that of the
    first. `restarts` is the number of times a failed run is begun anew. `time_limit`, `stop_grace`, `lease` and
    `stall_timeout` are seconds, 0 is none.
    """

    run_id: str
    run_dir: str
    workdir: str
    script: Optional[str] = None
    module: Optional[str] = None
    args: Tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Tuple[str, ...] = ()
    launcher: str = "torchrun"
    lib: str = "/var/lib/torchfleet/lib"
    via: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    max_restarts: int = 0
    min_nodes: Optional[int] = None
    restarts: int = 0
    time_limit: float = 0
    stop_grace: float = 10
    lease: float = 0
    stall_timeout: float = 0
    stall_action: str = "report"
    collect: Tuple[str, ...] = ()
    attempt: int = 1
    output_dir: str = ""

    def __post_init__(self) -> None:
        problems = []
        if not _RUN_ID.match(self.run_id):
            problems.append(f"run id {self.run_id!r} is not a plain name: set launch_run_id to letters, digits, . _ -")
        if (self.script is None) == (self.module is None):
            problems.append("set exactly one of launch_script and launch_module")
        for label, path in (("run directory", self.run_dir), ("working directory", self.workdir)):
            if not path.startswith("/") or "\n" in path or "\0" in path:
                problems.append(f"{label} {path!r} is not an absolute path on one line: set torchfleet_root")
        for variable, names in (("launch_env", tuple(self.env)), ("launch_secret_env", self.secret_env)):
            for name in names:
                if not _ENV_NAME.match(name):
                    problems.append(f"{variable}: {name!r} is not a name that an environment variable can have")
                elif name.startswith("TORCHFLEET_"):
                    problems.append(f"{variable}: {name} is the collection's own, which finds a run by it: rename it")
        problems += [
            f"launch_env: the value of {name} contains a NUL byte" for name, value in self.env.items() if "\0" in value
        ]
        problems += [
            f"{name} is in launch_env, which is shown, and in launch_secret_env: take it out of launch_env"
            for name in self.secret_env
            if name in self.env
        ]
        problems += [f"argument {arg!r} contains a NUL byte" for arg in self.args if "\0" in arg]
        problems += [
            f"{variable} is {value}, wanted seconds, 0 or more"
            for variable, value in (
                ("launch_time_limit", self.time_limit),
                ("launch_stop_grace", self.stop_grace),
                ("launch_lease", self.lease),
                ("launch_stall_timeout", self.stall_timeout),
            )
            if not 0 <= value < float("inf")
        ]
        if self.stall_action not in ("report", "stop"):
            problems.append(f"launch_stall_action is {self.stall_action!r}, wanted report or stop")
        if 0 < self.lease < 60:
            problems.append(f"launch_lease is {self.lease} s, wanted 60 or more: a busy controller may ask late")
        if _whole(self.max_restarts) is None:
            problems.append(f"launch_max_restarts is {self.max_restarts!r}, wanted a whole number, 0 or more")
        if self.min_nodes is not None and not _whole(self.min_nodes):
            problems.append(f"launch_min_nodes is {self.min_nodes!r}, wanted a whole number of nodes, 1 or more")
        if problems:
            raise ClusterError(problems)

    @property
    def payload(self) -> Tuple[str, ...]:
        """The user's command behind the interpreter: `script arg …` or `-m module arg …`."""
        head = (self.script,) if self.script is not None else ("-m", str(self.module))
        return head + tuple(self.args)


@dataclass(frozen=True)
class Rank:
    """One process of the training world, as planned."""

    rank: int
    local_rank: int
    node: str


@dataclass(frozen=True)
class RankPlan:
    """What each rank of a node is, where it does not come through the launcher.

    It lies on the node, and the shim reads it there: nothing of it, and no secret, crosses a remote shell or a command
    line. `count` ranks are to appear on the node. `queued`: a queue owns them (Slurm), and they may come at any time.
    """

    argv: Tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    count: int
    queued: bool = False


@dataclass(frozen=True)
class NodePlan:
    """What one node executes, to the last argument.

    `argv` is empty on a node that a launcher reaches from the head by itself. `env` is the launcher's whole added
    environment. `files` maps absolute paths to contents that must be there before the start. Without `rank` the ranks
    inherit all from the launcher.
    """

    node: str
    node_rank: int
    argv: Tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    files: Mapping[str, str] = field(default_factory=dict)
    rank: Optional[RankPlan] = None

    @property
    def rank_env(self) -> Mapping[str, str]:
        """The environment that the node's ranks are given."""
        return self.env if self.rank is None else self.rank.env


@dataclass(frozen=True)
class LaunchPlan:
    """What every node of the cluster executes for one run. `ranks` is the world that has to come up.

    `elastic`: the launcher itself deals the ranks to the nodes, in any order, and anew after a failure, as long as
    `min_nodes` are left.
    """

    run_id: str
    launcher: str
    world_size: int
    master_address: str
    master_port: int
    transport: str
    nodes: Tuple[NodePlan, ...]
    ranks: Tuple[Rank, ...]
    reasons: Tuple[Reason, ...] = ()
    elastic: bool = False
    min_nodes: int = 0

    def node(self, name: str) -> NodePlan:
        for node in self.nodes:
            if node.node == name:
                return node
        raise KeyError(name)


def planned_ranks(cluster: Cluster) -> Tuple[Rank, ...]:
    """The world of a cluster: ranks dealt node by node, in launch order."""
    return tuple(
        Rank(rank=cluster.first_rank(node) + local, local_rank=local, node=node.name)
        for node in cluster.nodes
        for local in range(node.slots)
    )


def to_dict(noun: Any) -> Dict[str, Any]:
    """A noun as plain dicts and lists, fit for JSON and for Ansible."""
    plain: Dict[str, Any] = asdict(noun)
    return plain


def is_hostname(name: str) -> bool:
    """Whether the name can be a host's name: RFC 1123 labels, lower case, 63 characters at most (Linux takes 64)."""
    return bool(_HOSTNAME.match(name)) and not name.replace(".", "").isdigit()


def is_localhost(name: str) -> bool:
    """Whether the name is one of those that every machine gives to loopback."""
    return name.partition(".")[0] in ("localhost", "localhost4", "localhost6")


def normalise_address(text: Any) -> Optional[str]:
    """The IP literal in its canonical form, or None where the text is not one."""
    try:
        return str(ipaddress.ip_address(str(text).strip()))
    except ValueError:
        return None


def _address_problem(name: str, raw: Any) -> Optional[str]:
    if raw in (None, ""):
        return f"{name} has no address on the training network: set torchfleet_address (or ansible_host) for it"
    address = normalise_address(raw)
    if address is None:
        return f"{name}: torchfleet_address is {str(raw)!r}, wanted an IP address"
    parsed = ipaddress.ip_address(address)
    if parsed.is_loopback or parsed.is_unspecified or parsed.is_multicast:
        return f"{name}: torchfleet_address is {address}, which no peer can reach: set the address peers use"
    if parsed.version == 6 and parsed.is_link_local:
        return f"{name}: torchfleet_address is {address}, which is link-local and needs a zone: set another address"
    return None


def check_members(hosts: Sequence[Mapping[str, Any]]) -> List[str]:
    """What is wrong with the members as the inventory has them, one sentence per culprit.

    Each host has `name` (the host name it is to bear), `address` and optionally `aliases`.
    """
    problems: List[str] = []
    by_name: Dict[str, int] = {}
    by_address: Dict[str, str] = {}
    names = [str(host.get("name", "")) for host in hosts]
    by_alias: Dict[str, str] = {}
    for host in hosts:
        name = str(host.get("name", ""))
        if not is_hostname(name):
            problems.append(
                f"{name!r} is not a valid host name: use lower-case letters, digits, '-' and '.', 63 at most "
                "(set hosts_hostname or rename the host in the inventory)"
            )
        elif is_localhost(name):
            problems.append(f"{name!r} means loopback on every machine: set hosts_hostname to a name of the host's own")
        by_name[name] = by_name.get(name, 0) + 1
        if by_name[name] == 2:
            problems.append(
                f"host name {name!r} is used by more than one host: set hosts_hostname so that each is unique"
            )
        for alias in map(str, host.get("aliases") or ()):
            if not is_hostname(alias) or is_localhost(alias):
                problems.append(f"{name}: {alias!r} in hosts_aliases is not a valid host name")
            owner = alias if alias in names else by_alias.setdefault(alias, name)
            if owner != name:
                problems.append(f"{name}: {alias!r} in hosts_aliases is a name of {owner} too: take one of them out")
        problem = _address_problem(name, host.get("address"))
        if problem:
            problems.append(problem)
            continue
        address = str(normalise_address(host["address"]))
        if address in by_address:
            problems.append(
                f"{by_address[address]} and {name} both have the address {address}: "
                "set torchfleet_address of one of them"
            )
        by_address.setdefault(address, name)
    return problems


def _port(value: Any) -> Optional[int]:
    number = _whole(value)
    return number if number is not None and 0 < number < 65536 else None


def _whole(value: Any) -> Optional[int]:
    text = str(value)
    return int(text) if text.isdecimal() and not isinstance(value, bool) else None


def _gpus(raw: Any) -> Tuple[Gpu, ...]:
    """Raises TypeError or ValueError for what is no list of mappings with an index."""
    known = Gpu.__dataclass_fields__
    return tuple(Gpu(**{key: value for key, value in dict(gpu).items() if key in known}) for gpu in raw)


def build_cluster(
    hosts: Sequence[Mapping[str, Any]],
    head: Optional[str] = None,
    master_port: Any = DEFAULT_MASTER_PORT,
    transport: str = "tcp",
    reasons: Sequence[Reason] = (),
) -> Cluster:
    """Build the Cluster: the only way there is.

    `hosts` are plain mappings in inventory order with the fields of `Node` (all but `name` and `address` optional).
    `slots` of None means one rank per GPU, or one on a node without. `head` names the first node.
    Raises ClusterError with every problem found.
    """
    problems = check_members(hosts)
    names = [str(host.get("name", "")) for host in hosts]
    if not hosts:
        problems.append("the cluster has no nodes: put hosts into the group named by torchfleet_group")
    if head is not None and head not in names:
        problems.append(f"torchfleet_head is {head!r}, which is not one of the nodes {', '.join(names)}")
    if transport not in TRANSPORTS:
        problems.append(f"torchfleet_transport is {transport!r}, wanted one of {', '.join(TRANSPORTS)}")
    ordered = sorted(hosts, key=lambda host: str(host.get("name")) != head) if head else list(hosts)

    nodes = []
    for rank, host in enumerate(ordered):
        name = str(host.get("name", ""))
        gpus: Tuple[Gpu, ...] = ()
        try:
            gpus = _gpus(host.get("gpus") or ())
        except (TypeError, ValueError):
            problems.append(
                f"{name}: torchfleet_gpus is {host.get('gpus')!r}, wanted GPUs as gpu_facts lists them "
                "(for a number of ranks set torchfleet_slots)"
            )
        slots = len(gpus) or 1 if host.get("slots") is None else _whole(host["slots"])
        if not slots:
            problems.append(f"{name}: torchfleet_slots is {host['slots']!r}, wanted a whole number of ranks, 1 or more")
        ssh_port = _port(22 if host.get("ssh_port") in (None, "") else host["ssh_port"])
        if ssh_port is None:
            problems.append(f"{name}: ssh port {host.get('ssh_port')!r} is not a port (1 to 65535): set ansible_port")
        python = str(host.get("python") or Node.python)
        if not python.startswith("/") or "\n" in python:
            problems.append(f"{name}: torchfleet_python is {python!r}, wanted an absolute path")
        nodes.append(
            Node(
                name=name,
                node_rank=rank,
                address=normalise_address(host.get("address")) or "",
                ssh_user=str(host.get("ssh_user") or "root"),
                ssh_host=str(host.get("ssh_host") or host.get("address") or ""),
                ssh_port=ssh_port or 22,
                slots=slots or 1,
                gpus=gpus,
                interface=host.get("interface"),
                hcas=tuple(host.get("hcas") or ()),
                gid_index=host.get("gid_index"),
                python=python,
                aliases=tuple(str(alias) for alias in host.get("aliases") or ()),
                env_extra=dict(host.get("env_extra") or {}),
            )
        )

    port = _port(master_port)
    if port is None or port < 1024:
        problems.append(f"torchfleet_master_port is {master_port!r}, wanted an unprivileged port (1024 to 65535)")
    problems += [
        f"torchfleet_master_port {port} is where sshd of {node.name} listens: choose another"
        for node in nodes
        if port == node.ssh_port
    ]
    if problems:
        raise ClusterError(problems)
    chosen = Reason("head", nodes[0].name, "torchfleet_head" if head else "first host of the group")
    return Cluster(
        nodes=tuple(nodes),
        master_address=nodes[0].address,
        master_port=int(port or 0),
        transport=transport,
        reasons=(chosen, *reasons),
    )
