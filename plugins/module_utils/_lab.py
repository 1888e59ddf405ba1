# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The lab as data: which containers, networks and addresses a lab of a given prefix consists of."""

from __future__ import annotations

import ipaddress
import re
import zlib
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

# One Debian release a node; the Python that each brings decides what the modules must bear.
RELEASES = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13"}
RELEASE_NUMBERS = {"11": "bullseye", "12": "bookworm", "13": "trixie"}

# Each systemd node takes 7 of root's 128 inotify instances (fs.inotify.max_user_instances).
MAX_SYSTEMD_NODES = 16

# Second bytes that the networks of labs may have.
_BLOCKS = 120

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\Z")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_RATE = re.compile(r"[0-9]+(\.[0-9]+)?(k|m|g)bit\Z")


class LabError(ValueError):
    """The lab as asked for cannot be built. `problems` holds one sentence per culprit."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Network:
    """One bridge. `full_name` is unique on the machine; `rate` shapes every node's link to it (tc's notation)."""

    name: str
    full_name: str
    subnet: str
    internal: bool
    rate: Optional[str]


@dataclass(frozen=True)
class Link:
    """One interface of a node: its name inside the node, its network, address and rate (None: unshaped)."""

    interface: str
    network: str
    address: str
    prefix_length: int
    rate: Optional[str]


@dataclass(frozen=True)
class LabNode:
    """One container. The first link is the one Ansible comes in by; the last is the training network."""

    name: str
    container: str
    release: str
    links: Tuple[Link, ...]
    ssh_port: int
    user: str
    variables: Mapping[str, Any]


@dataclass(frozen=True)
class Lab:
    prefix: str
    networks: Tuple[Network, ...]
    nodes: Tuple[LabNode, ...]


def default_nodes(count: int) -> List[Dict[str, Any]]:
    """node1 to nodeN, for a lab of which only the size is given."""
    return [{"name": f"node{number}"} for number in range(1, count + 1)]


def canonical_release(release: Any) -> str:
    """The code name of a Debian release given by number or name; unknown ones come back as they are."""
    text = str(release or "bookworm")
    return RELEASE_NUMBERS.get(text, text)


def default_subnet(prefix: str, index: int, taken: Sequence[str] = ()) -> str:
    """A /24 of 10.128-10.247.<index>.0/24 by the prefix; where it meets one of `taken` (CIDRs), the next that does not.

    Raises LabError where none is free.
    """
    used = [ipaddress.ip_network(subnet, strict=False) for subnet in taken]
    for step in range(_BLOCKS):
        subnet = ipaddress.ip_network(f"10.{128 + (zlib.crc32(prefix.encode()) + step) % _BLOCKS}.{index}.0/24")
        if not any(subnet.overlaps(other) for other in used):
            return str(subnet)
    raise LabError([f"all of 10.128.{index}.0/24 to 10.247.{index}.0/24 is in use here: set subnet in lab_networks"])


def plan_lab(
    prefix: str,
    networks: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    existing: Optional[Mapping[str, str]] = None,
    taken: Sequence[str] = (),
) -> Lab:
    """The whole lab from what the user asked for. Raises LabError with every problem found.

    `existing` holds the subnets (CIDR) of networks that are there, by full name; `taken` what others use: a network
    without a subnet of its own keeps the one that it has, or is put where nobody is.
    """
    problems: List[str] = []
    if not _NAME.match(prefix):
        problems.append(f"lab_prefix is {prefix!r}, wanted lower-case letters, digits and '-'")
    if not networks:
        problems.append("lab_networks is empty: give the lab at least one network")
    if not nodes:
        problems.append("lab_nodes is empty: give the lab at least one node")
    if len(nodes) > MAX_SYSTEMD_NODES:
        problems.append(
            f"lab_nodes has {len(nodes)} nodes; more than {MAX_SYSTEMD_NODES} systems on one machine exceed its "
            "inotify instances: ask for fewer"
        )
    planned: Dict[str, Network] = {}
    for index, raw in enumerate(networks):
        network = _network(prefix, index, raw, existing or {}, taken, problems)
        if network.name in planned:
            problems.append(f"lab_networks: {network.name!r} is there twice")
        planned[network.name] = network
    hosts: Dict[str, int] = {}
    seen: List[str] = []
    owners: Dict[Tuple[str, str], str] = {}
    lab_nodes = []
    for raw in nodes:
        node = _node(prefix, raw, planned, hosts, problems)
        if node.name in seen:
            problems.append(f"lab_nodes: {node.name!r} is there twice")
        seen.append(node.name)
        for link in node.links:
            other = owners.setdefault((link.network, link.address), node.name)
            if other != node.name:
                problems.append(f"lab_nodes: {other} and {node.name} both have the address {link.address}")
        lab_nodes.append(node)
    if problems:
        raise LabError(problems)
    return Lab(prefix=prefix, networks=tuple(planned.values()), nodes=tuple(lab_nodes))


def _network(
    prefix: str,
    index: int,
    raw: Mapping[str, Any],
    existing: Mapping[str, str],
    taken: Sequence[str],
    problems: List[str],
) -> Network:
    name = str(raw.get("name", ""))
    full_name = f"{prefix}-{name}"
    subnet = str(raw.get("subnet") or existing.get(full_name) or default_subnet(prefix, index, taken))
    rate = raw.get("rate")
    if not _NAME.match(name):
        problems.append(f"lab_networks: {name!r} is not a name of lower-case letters, digits and '-'")
    try:
        if ipaddress.ip_network(subnet).num_addresses < 16:
            problems.append(f"lab_networks: {name}: {subnet} is too small for a lab")
    except ValueError as error:
        problems.append(f"lab_networks: {name}: {error}")
    _check_rate(f"lab_networks: {name}", rate, problems)
    # Only the first network leads out (package registries, by NAT): training networks rarely do.
    return Network(name, full_name, subnet, bool(raw.get("internal", index > 0)), rate)


def _check_rate(where: str, rate: Any, problems: List[str]) -> None:
    if rate is not None and not _RATE.match(str(rate)):
        problems.append(f"{where}: rate is {rate!r}, wanted for example 100mbit or 1gbit")


def _node(
    prefix: str,
    raw: Mapping[str, Any],
    networks: Mapping[str, Network],
    used: Dict[str, int],
    problems: List[str],
) -> LabNode:
    name = str(raw.get("name", ""))
    if not _NAME.match(name):
        problems.append(f"lab_nodes: {name!r} is not a name of lower-case letters, digits and '-'")
    release = canonical_release(raw.get("release"))
    if release not in RELEASES:
        problems.append(
            f"lab_nodes: {name}: release is {release!r}, wanted one of {', '.join(RELEASES)} (or 11, 12, 13)"
        )
    links = []
    wanted = raw.get("networks") or [{"name": network} for network in networks]
    for index, link in enumerate(wanted):
        link = {"name": link} if isinstance(link, str) else link
        network = networks.get(str(link.get("name")))
        if network is None:
            problems.append(f"lab_nodes: {name}: no network {link.get('name')!r} in lab_networks")
            continue
        _check_rate(f"lab_nodes: {name}", link.get("rate"), problems)
        interface = str(link.get("interface") or f"eth{index}")
        if not _INTERFACE.match(interface):
            problems.append(f"lab_nodes: {name}: interface is {interface!r}, wanted a name of 15 characters at most")
        try:
            space = ipaddress.ip_network(network.subnet)
        except ValueError:
            continue  # said above
        used[network.name] = used.get(network.name, 10) + 1  # .1 is the bridge; .2-.10 stay free for tests
        address = str(link.get("address") or space.network_address + used[network.name])
        if not _is_host(address, space):
            problems.append(
                f"lab_nodes: {name}: {address} cannot be a node's in {space}: set another or a larger subnet"
            )
        links.append(
            Link(
                interface=interface,
                network=network.full_name,
                address=address,
                prefix_length=space.prefixlen,
                rate=link.get("rate") or network.rate,
            )
        )
    ssh_port = str(raw.get("ssh_port") or 22)
    if not ssh_port.isdecimal() or not 0 < int(ssh_port) < 65536:
        problems.append(f"lab_nodes: {name}: ssh_port is {ssh_port!r}, wanted a port (1 to 65535)")
        ssh_port = "22"
    user = str(raw.get("user") or "root")
    if not _USER.match(user):
        problems.append(f"lab_nodes: {name}: user is {user!r}, wanted a plain login name")
    return LabNode(
        name=name,
        container=f"{prefix}-{name}",
        release=release,
        links=tuple(links),
        ssh_port=int(ssh_port),
        user=user,
        variables=dict(raw.get("vars") or {}),
    )


def _is_host(address: str, space: Any) -> bool:
    """Whether a node can have the address: its first is the network's, the next the bridge's, the last broadcast."""
    try:
        at = ipaddress.ip_address(address)
        return at in space and space.network_address + 1 < at < space.broadcast_address
    except (TypeError, ValueError):
        return False


def parse_pip_config(text: str) -> Dict[str, str]:
    """`pip config list` as option -> value. Environment settings win, as they do in pip itself."""
    settings: Dict[str, str] = {}
    from_env: Dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if not separator:
            continue
        value = value.strip().strip("'\"").replace("\\n", " ").strip()
        section, _dot, option = key.rpartition(".")
        (from_env if section == ":env:" else settings)[option] = value
    return {**settings, **from_env}


_INHERITED = ("index-url", "extra-index-url", "find-links", "cert", "trusted-host", "default-timeout", "proxy")


def inherited_pip(settings: Mapping[str, str]) -> Tuple[str, Tuple[str, ...]]:
    """What lab nodes take over of the controller's pip: the text of their pip.conf, and the folders they must see.

    A wheel folder or index on the controller's disk is of use to a node only when it is mounted there.
    """
    lines = ["[global]"]
    mounts: List[str] = []
    for option in _INHERITED:
        value = settings.get(option)
        if not value:
            continue
        lines.append(f"{option} = {value}")
        if option not in ("index-url", "extra-index-url", "find-links", "cert"):
            continue
        for token in value.split():
            path = token[len("file://") :] if token.startswith("file://") else token
            if path.startswith("/") and not path.startswith("/etc/ssl/certs/"):  # lab nodes have that folder anyhow
                # A PEP 503 tree links from simple/ to files beside it.
                path = path.rstrip("/")
                mounts.append(path[: -len("/simple")] if path.endswith("/simple") else path)
    return "\n".join(lines) + "\n", tuple(sorted(set(mounts)))


def inventory(lab: Lab, group: str) -> Dict[str, Any]:
    """The lab as an Ansible inventory, beside which lie the key and known_hosts that it names."""
    hosts = {}
    for node in lab.nodes:
        hosts[node.name] = {
            "ansible_host": node.links[0].address,
            "ansible_port": node.ssh_port,
            "ansible_user": node.user,
            "torchfleet_address": node.links[-1].address,
            **node.variables,
        }
    return {
        group: {
            "hosts": hosts,
            "vars": {
                "ansible_ssh_private_key_file": "{{ inventory_dir }}/id_ed25519",
                "ansible_ssh_common_args": (
                    # Quoted for Ansible and for ssh: a folder may have a blank in its name.
                    "-o 'UserKnownHostsFile=\"{{ inventory_dir }}/known_hosts\"' -o StrictHostKeyChecking=yes "
                    "-o IdentitiesOnly=yes"
                ),
                "ansible_python_interpreter": "/usr/bin/python3",
            },
        }
    }


def known_hosts(keys: Mapping[str, Sequence[str]], lab: Lab) -> str:
    """known_hosts lines for the address Ansible uses. `keys` maps a node's name to its public host keys."""
    lines = []
    for node in lab.nodes:
        address = node.links[0].address
        host = address if node.ssh_port == 22 else f"[{address}]:{node.ssh_port}"
        lines += [f"{host} {' '.join(key.split()[:2])}" for key in keys.get(node.name, ())]
    return "\n".join(lines) + "\n"
