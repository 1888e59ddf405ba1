#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: member_firewall
short_description: Open a node's firewall to the other members of the cluster
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Opens the firewall that a node has (firewalld, ufw, nftables) to the addresses of the members, and to nobody else;
    or takes that back for members that are none any more.
  - Never turns a firewall on or off, and never closes what others opened. A node without a firewall is left alone.
options:
  state:
    description: V(absent) takes openings of this collection back, for O(members) or, without them, for all.
    type: str
    choices: [present, absent]
    default: present
  members:
    description: Addresses of the members. What is not an address is left out. Required with O(state=present).
    type: list
    elements: str
  ports:
    description: TCP ports and ranges to open, for example V(29500) and V(50000-51000). Without them, everything.
    type: list
    elements: str
    default: []
  prune:
    description: Take openings of this collection back for addresses that are not in O(members).
    type: bool
    default: true
  known:
    description:
      - Host names of members all of whose addresses are in O(members). What the node's C(/etc/hosts) and O(user)'s
        C(authorized_keys) hold of them besides is where they were before, and is let in no longer, also without
        O(prune).
    type: list
    elements: str
    default: []
  user:
    description: The training user.
    type: str
    default: root
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Let the members in
  torchfleet.cluster.member_firewall:
    members: [198.51.100.11, 198.51.100.12]

- name: Let one in no longer
  torchfleet.cluster.member_firewall:
    members: [198.51.100.12]
    state: absent
"""

RETURN = r"""
firewall:
  description: The firewall of the node, V(firewalld), V(ufw) or V(nftables); empty where none closes anything.
  returned: when O(state=present)
  type: str
  sample: nftables
lasting:
  description: Whether the opening is there again after a restart of the firewall.
  returned: when O(state=present)
  type: bool
  sample: true
members:
  description: The addresses that are let in.
  returned: when O(state=present)
  type: list
  elements: str
  sample: [198.51.100.11, 198.51.100.12]
"""

import os
import pwd
import socket
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _retire
from ansible_collections.torchfleet.cluster.plugins.module_utils import _member_firewall as fw

SCRIPT = "/etc/torchfleet/firewall.nft"
DROP_IN = "/etc/systemd/system/nftables.service.d/torchfleet.conf"


class Node:
    """The node's tools."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def tool(self, name: str) -> Optional[str]:
        return self.module.get_bin_path(name, opt_dirs=["/usr/sbin", "/sbin"])

    def ask(self, *argv: str) -> Tuple[int, str]:
        code, out, err = self.module.run_command(list(argv), environ_update={"LC_ALL": "C"})
        return code, out or err

    def do(self, *argv: str) -> None:
        code, words = self.ask(*argv)
        if code:
            last = (words.strip().splitlines() or [f"exit status {code}"])[-1]
            self.module.fail_json(msg=f"{socket.gethostname()}: {' '.join(argv)}: {last}")

    def active(self, unit: str) -> bool:
        return self.ask("systemctl", "is-active", "--quiet", unit)[0] == 0


def noted(names: Iterable[str], user: str) -> Set[str]:
    """The addresses of these members alone, as the last provision noted them on the node."""
    try:
        home = pwd.getpwnam(user).pw_dir
    except KeyError:  # role ssh_trust says so
        home = "/nonexistent"
    keys = _files.read(os.path.join(home, ".ssh", "authorized_keys"))
    members = _retire.addresses(_files.read("/etc/hosts"), keys)
    return {one for name in names for one in _retire.of_it_alone(members, name)}


def wanted_opening(now: FrozenSet[str], params: Dict[str, Any]) -> fw.Opening:
    members = fw.addresses(params["members"])
    kept = frozenset() if params["prune"] else now - noted(params["known"], params["user"])
    return fw.Opening(members | kept, tuple(params["ports"]))


def do_firewalld(node: Node, params: Dict[str, Any]) -> Tuple[List[str], str, str]:
    cmd = node.tool("firewall-cmd") or "firewall-cmd"
    code, text = node.ask(cmd, "--permanent", f"--zone={fw.ZONE}", "--list-all")
    now = fw.read_zone(text) if code == 0 else None
    opening = wanted_opening(now.sources if now else frozenset(), params)
    commands = fw.zone_commands(now, opening)
    if not node.module.check_mode:
        for one in commands:
            node.do(cmd, "--permanent", *one)
        if commands:
            node.do(cmd, "--reload")
    return opening.of(4) + opening.of(6), text if code == 0 else "", "\n".join(" ".join(one) for one in commands)


def do_ufw(node: Node, params: Dict[str, Any]) -> Tuple[List[str], str, str]:
    ufw = node.tool("ufw") or "ufw"
    now = fw.ufw_open(node.ask(ufw, "show", "added")[1])
    opening = wanted_opening(frozenset(now), params)
    commands = fw.ufw_commands(now, opening)
    if not node.module.check_mode:
        for one in commands:
            node.do(ufw, *one)
    return opening.of(4) + opening.of(6), "", "\n".join(" ".join(one) for one in commands)


def do_nftables(node: Node, params: Dict[str, Any], nft: str, chains: List[fw.Chain]) -> Tuple[List[str], str, str]:
    before, after = [], []
    opening = fw.Opening(frozenset())
    for chain in chains:
        listing = node.ask(nft, "-a", "-n", "list", "chain", chain.family, chain.table, chain.name)[1]
        now, handles = fw.nft_open(listing)
        opening = wanted_opening(now.members, params)
        rules = fw.nft_rules(chain, opening)
        before += [line.strip() for line in listing.splitlines() if f'comment "{fw.MARK}"' in line]
        if (now.members, set(now.ports)) == (fw.members_of(chain, opening), set(opening.ports)) and len(handles) == len(
            rules
        ):
            after += before[len(after) :]
            continue
        after += rules
        if not node.module.check_mode:
            for handle in handles:
                node.do(nft, "delete", "rule", chain.family, chain.table, chain.name, "handle", str(handle))
            for rule in rules:
                node.do(nft, "insert", "rule", rule)
    return opening.of(4) + opening.of(6), "\n".join(before), "" if before == after else "\n".join(after)


def put_file(module: AnsibleModule, path: str, text: str) -> bool:
    if _files.read(path) == text:
        return False
    if not module.check_mode:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _files.replace(path, text)
    return True


def keep_nftables(node: Node, nft: str, chains: List[fw.Chain], opening: fw.Opening) -> Tuple[bool, bool]:
    """Whether the files changed that open the chains again after a restart, and whether there is such a restart."""
    if node.ask("systemctl", "cat", "nftables.service")[0]:
        return False, False
    changed = put_file(node.module, SCRIPT, fw.nft_script(chains, opening))
    unit = put_file(node.module, DROP_IN, fw.nft_unit(nft, SCRIPT))
    if unit and not node.module.check_mode:
        node.do("systemctl", "daemon-reload")
    return changed or unit, True


def take_back(node: Node, gone: Optional[FrozenSet[str]]) -> Tuple[bool, List[str]]:
    """Closes what was opened for these addresses, or for all; whether a file changed, and the commands.

    All firewalls are looked at: what is not active now has its rules all the same.
    """
    done: List[str] = []

    def do(*argv: str) -> None:
        done.append(" ".join(argv))
        if not node.module.check_mode:
            node.do(*argv)

    cmd, ufw, nft = node.tool("firewall-cmd"), node.tool("ufw"), node.tool("nft")
    if cmd and node.active("firewalld"):
        code, text = node.ask(cmd, "--permanent", f"--zone={fw.ZONE}", "--list-all")
        zone = fw.read_zone(text)
        commands = fw.zone_taken_back(zone, zone.sources if gone is None else gone) if code == 0 else []
        for one in commands:
            do(cmd, "--permanent", *one)
        if commands:
            do(cmd, "--reload")
    if ufw:
        now = fw.ufw_open(node.ask(ufw, "show", "added")[1])
        for one in fw.ufw_taken_back(now, frozenset(now) if gone is None else gone):
            do(ufw, *one)
    for chain in fw.closing_chains(node.ask(nft, "list", "ruleset")[1]) if nft else ():
        listing = node.ask(nft, "-a", "-n", "list", "chain", chain.family, chain.table, chain.name)[1]
        opened, handles = fw.nft_open(listing)
        left = frozenset() if gone is None else opened.members - gone
        if left == opened.members:
            continue
        for handle in handles:
            do(nft, "delete", "rule", chain.family, chain.table, chain.name, "handle", str(handle))
        for rule in fw.nft_rules(chain, fw.Opening(left, opened.ports)):
            do(nft, "insert", "rule", rule)
    return forget_nftables(node, gone), done


def forget_nftables(node: Node, gone: Optional[FrozenSet[str]]) -> bool:
    """Whether the files changed that open the chains again after a restart."""
    if gone is not None:
        script = _files.read(SCRIPT)
        return bool(script) and put_file(node.module, SCRIPT, fw.nft_script_without(script, gone))
    found = [path for path in (SCRIPT, DROP_IN) if os.path.exists(path)]
    if found and not node.module.check_mode:
        for path in found:
            os.unlink(path)
        node.do("systemctl", "daemon-reload")
    return bool(found)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "members": {"type": "list", "elements": "str"},
            "ports": {"type": "list", "elements": "str", "default": []},
            "prune": {"type": "bool", "default": True},
            "known": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str", "default": "root"},
        },
        required_if=[("state", "present", ["members"])],
        supports_check_mode=True,
    )
    node, params = Node(module), module.params
    if params["state"] == "absent":
        changed, done = take_back(node, None if params["members"] is None else fw.addresses(params["members"]))
        diff = {"before": "", "after": "".join(f"{one}\n" for one in done)}
        module.exit_json(changed=changed or bool(done), diff=diff)
    nft = node.tool("nft")
    members: List[str] = sorted(fw.addresses(params["members"]))
    before = after = firewall = ""
    changed, lasting = False, True
    if node.tool("firewall-cmd") and node.active("firewalld"):
        firewall = "firewalld"
        members, before, after = do_firewalld(node, params)
    elif node.tool("ufw") and "Status: active" in node.ask(node.tool("ufw") or "ufw", "status")[1]:
        firewall = "ufw"
        members, before, after = do_ufw(node, params)
    elif nft:
        chains = fw.closing_chains(node.ask(nft, "list", "ruleset")[1])
        if chains:
            firewall = "nftables"
            members, before, after = do_nftables(node, params, nft, chains)
            changed, lasting = keep_nftables(node, nft, chains, fw.Opening(frozenset(members), tuple(params["ports"])))
    module.exit_json(
        changed=changed or bool(after),
        firewall=firewall,
        lasting=lasting,
        members=members,
        diff={"before": before + "\n" if after else "", "after": after + "\n" if after else ""},
    )


if __name__ == "__main__":
    main()
