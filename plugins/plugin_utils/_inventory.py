# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""From a play's variables to the Cluster: the one way that every action plugin and role takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import (
    DEFAULT_MASTER_PORT,
    Cluster,
    ClusterError,
    Reason,
    build_cluster,
    normalise_address,
)

DEFAULT_GROUP = "train"


def cluster_from_task_vars(task_vars: Mapping[str, Any], templar: Any = None, **overrides: Any) -> Cluster:
    """The Cluster of the group that `torchfleet_group` names, as the inventory and the facts have it.

    `templar` is the action's own: with it the play's variables count for `torchfleet_group`, `torchfleet_head`,
    `torchfleet_master_port` and `torchfleet_transport`, without it the inventory's alone. `overrides` (`group`,
    `head`, `master_port`, `transport`) win over both. Raises AnsibleActionFail with every problem found.
    """
    try:
        hosts = members(task_vars, templar, overrides.get("group"))
        problems = _gaps(hosts)
        try:
            cluster = _build(hosts, task_vars, templar, overrides)
        except ClusterError as error:
            raise ClusterError([*problems, *error.problems]) from None
        if problems:
            raise ClusterError(problems)
    except ClusterError as error:
        raise AnsibleActionFail(str(error)) from error
    return cluster


def launch_problems(task_vars: Mapping[str, Any], templar: Any = None) -> list[str]:
    """What of the inventory a launch would refuse, one sentence for each culprit.

    A launch chooses the addresses that nobody set by hand: until then each host has one that no other has.
    """
    problems: list[str] = []
    try:
        hosts = [
            host if host["by_hand"] else {**host, "address": f"2001:db8::{number:x}"}
            for number, host in enumerate(members(task_vars, templar), start=1)
        ]
        root = str(_option(task_vars, templar, {}, "root", "/"))
        if not root.startswith("/"):
            problems.append(f"torchfleet_root is {root!r}, wanted an absolute path")
        _build(hosts, task_vars, templar, {})
    except ClusterError as error:
        problems += error.problems
    return problems


def members(task_vars: Mapping[str, Any], templar: Any = None, group: str | None = None) -> list[dict[str, Any]]:
    """The group's hosts, in inventory order, as `check_members` and `build_cluster` take them.

    Beside the fields of Node each has `host`, its name in the inventory. Raises ClusterError.
    """
    group = group or _option(task_vars, templar, {}, "group") or DEFAULT_GROUP
    hosts = task_vars.get("groups", {}).get(group)
    if hosts is None:
        raise ClusterError([f"the inventory has no group {group!r}: add it, or set torchfleet_group to yours"])
    read, problems = [], []
    for host in hosts:
        try:
            read.append(_member(host, task_vars["hostvars"][host]))
        except ClusterError as error:
            problems += [f"{host}: {problem}" for problem in error.problems]
    if problems:
        raise ClusterError(problems)
    return read


def read_members(task_vars: Mapping[str, Any], templar: Any = None) -> list[dict[str, Any]]:
    """`members` for an action plugin: problems are an AnsibleActionFail."""
    try:
        return members(task_vars, templar)
    except ClusterError as error:
        raise AnsibleActionFail(str(error)) from error


def read_in_launch_order(task_vars: Mapping[str, Any], templar: Any = None) -> list[dict[str, Any]]:
    """`read_members`, the head first, as the Cluster has them. A head that is no member is none."""
    found = read_members(task_vars, templar)
    head = _head(_option(task_vars, templar, {}, "head"), found)
    return sorted(found, key=lambda member: head is not None and member["name"] != head)


def asked(task_vars: Mapping[str, Any]) -> set[str]:
    """The hosts of the play, whether or not they answer; the group's others are outside of --limit."""
    return set(task_vars.get("ansible_play_hosts_all") or ())


def acting_host(task: Any, task_vars: Mapping[str, Any]) -> str:
    """The inventory's name of the host that a task works on: the one it is delegated to, where it is."""
    return str(task.delegate_to or task_vars["inventory_hostname"])


def node_name(task_vars: Mapping[str, Any], host: str | None = None) -> str:
    """The name in the Cluster of a host, by default the one that a task runs for."""
    host = host or str(task_vars["inventory_hostname"])
    return _read(task_vars["hostvars"][host], "hosts_hostname") or host


def _build(
    hosts: Sequence[Mapping[str, Any]], task_vars: Mapping[str, Any], templar: Any, overrides: Mapping[str, Any]
) -> Cluster:
    transport = _option(task_vars, templar, overrides, "transport", "auto")
    return build_cluster(
        hosts,
        head=_head(_option(task_vars, templar, overrides, "head"), hosts),
        master_port=_option(task_vars, templar, overrides, "master_port", DEFAULT_MASTER_PORT),
        transport=_transport(hosts) if transport == "auto" else transport,
        reasons=[Reason(f"network of {h['name']}", h["interface"], h["reason"]) for h in hosts if h["reason"]],
    )


def _member(host: str, hostvars: Mapping[str, Any]) -> dict[str, Any]:
    def get(*names: str) -> Any:
        return next((value for value in (_read(hostvars, name) for name in names) if value not in (None, "")), None)

    choice = get("torchfleet_network_choice") or {}
    if not isinstance(choice, dict):
        raise ClusterError([f"torchfleet_network_choice is {choice!r}, wanted a mapping with address and interface"])
    ansible_host = get("ansible_host", "ansible_ssh_host")
    address = get("torchfleet_address")
    # An address set by hand outranks the choice, and takes away the choice's interface unless it is the same one.
    chosen = choice if address is None or _same(address, choice.get("address")) else {}
    return {
        "host": host,
        "name": get("hosts_hostname") or host,
        "aliases": _words(get("hosts_aliases")),
        "address": address or choice.get("address") or normalise_address(ansible_host or host),
        "interface": get("torchfleet_interface") or chosen.get("interface"),
        "hcas": chosen.get("hcas") or (),
        "gid_index": chosen.get("gid_index"),
        "transport": chosen.get("transport"),
        "reason": chosen.get("reason"),
        "ssh_user": get("torchfleet_user", "ansible_user", "ansible_ssh_user"),
        "ssh_host": ansible_host or host,
        "ssh_port": get("torchfleet_ssh_port", "ansible_port", "ansible_ssh_port"),
        "slots": get("torchfleet_slots"),
        "gpus": get("torchfleet_gpus"),
        "python": get("torchfleet_python"),
        "env_extra": get("nccl_env_extra") or {},
        "by_choice": bool(choice),
        "by_hand": address is not None,
    }


def _words(value: Any) -> list[str]:
    """A list of names; a text is one of several, divided by blanks."""
    return value.split() if isinstance(value, str) else [str(word) for word in value or ()]


def _gaps(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Hosts of which less is known than of their peers, as `--limit` leaves them: guesses there would mix networks."""
    problems = []
    without = [h["name"] for h in hosts if not h["by_choice"] and not h["by_hand"]]
    if without and any(host["by_choice"] for host in hosts):
        problems.append(
            f"no network was chosen for {', '.join(without)} but one was for other nodes: run without --limit, "
            "or set torchfleet_address"
        )
    uncounted = [h["name"] for h in hosts if h["gpus"] is None and h["slots"] is None]
    if uncounted and any(host["gpus"] for host in hosts):
        problems.append(
            f"the GPUs of {', '.join(uncounted)} are not known but those of other nodes are: run without --limit, "
            "or set torchfleet_slots"
        )
    return problems


def _transport(hosts: Sequence[Mapping[str, Any]]) -> str:
    """The transport of the chosen network; TCP unless every node's choice says the same other one."""
    chosen = {host["transport"] or "tcp" for host in hosts}
    return chosen.pop() if len(chosen) == 1 else "tcp"


def _head(head: Any, hosts: Sequence[Mapping[str, Any]]) -> str | None:
    """The head's name, which an inventory may give as the host's own or as the inventory's."""
    if head in (None, ""):
        return None
    return next((host["name"] for host in hosts if head in (host["host"], host["name"])), str(head))


def _option(
    task_vars: Mapping[str, Any], templar: Any, overrides: Mapping[str, Any], name: str, default: Any = None
) -> Any:
    """A setting of the whole cluster: an override, the play's variable, the inventory's, or the default."""
    if overrides.get(name) is not None:
        return overrides[name]
    variable = f"torchfleet_{name}"
    if templar is not None and variable in task_vars:
        value = _readable(lambda: templar.template(task_vars[variable]), variable)
    else:
        value = _read(task_vars["hostvars"][task_vars["inventory_hostname"]], variable)
    return default if value in (None, "") else value


def _read(hostvars: Mapping[str, Any], name: str) -> Any:
    """A variable of a host, templated in that host's context; None where it is not set."""
    return _readable(lambda: hostvars[name], name) if name in hostvars else None


def _readable(read: Callable[[], Any], name: str) -> Any:
    try:
        return _plain(read())
    except AnsibleError as error:
        raise ClusterError([f"{name} cannot be read: {error}"]) from error


def _plain(value: Any) -> Any:
    """The value in Python's own types, without the tags and the laziness that Ansible's carry."""
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _same(one: Any, other: Any) -> bool:
    return normalise_address(one) is not None and normalise_address(one) == normalise_address(other)
