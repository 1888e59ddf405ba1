# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""The text of `ip addr`, `ip route` and `ifconfig`, for nodes whose `ip` cannot print JSON (BusyBox, old iproute2).

Each parser returns rows of the shape that `ip -j` prints, so that `_fabric` builds both alike. Cut or filtered output
(`ip addr | grep mtu`) gives what is left of it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Dict, List, Optional

from ansible_collections.torchfleet.cluster.plugins.module_utils._fabric import ADDRESS_FLAGS, KERNEL_KINDS

_IP_HEAD = re.compile(r"\s*(\d+):\s+(\S+?)(?:@(\S+?))?:\s+<([^>]*)>(.*)")
_IP_ONELINE = re.compile(r"\s*\d+:\s+(\S+)\s+(inet6?)\s+(.*)")
_IF_HEAD_NEW = re.compile(r"(\S+?):?\s+flags=\d+<([^>]*)>(.*)")
_IF_HEAD_OLD = re.compile(r"(\S+)\s+Link encap:\s*(.*)")

# The letters of `ifconfig -s` (net-tools): the ones that matter here.
_IF_LETTERS = {"B": "BROADCAST", "L": "LOOPBACK", "O": "NOARP", "P": "POINTOPOINT", "R": "RUNNING", "U": "UP"}
_ROUTE_TYPES = (
    "unicast",
    "local",
    "broadcast",
    "multicast",
    "anycast",
    "unreachable",
    "blackhole",
    "prohibit",
    "throw",
)
_ROUTE_WORDS = {
    "via": "gateway",
    "dev": "dev",
    "src": "prefsrc",
    "metric": "metric",
    "scope": "scope",
    "proto": "protocol",
}
_OLD_LINK_TYPES = (("Local Loopback", "loopback"), ("InfiniBand", "infiniband"), ("IPIP Tunnel", "ipip"))


def _words(text: str) -> Dict[str, str]:
    """`key value key value …` as a dict: the attributes behind a link's or an address's first word."""
    fields = text.split()
    return dict(zip(fields, fields[1:]))


def _ip_address(text: str) -> Optional[Dict[str, Any]]:
    """`10.0.0.1/24 brd … scope global eth0` as an addr_info entry."""
    fields = text.split()
    if not fields:
        return None
    words = _words(text)
    peer = words.get("peer", "")
    # A point-to-point address carries the prefix on its peer's side.
    address, _rest, prefix = fields[0].partition("/")
    if peer and not prefix:
        prefix = peer.partition("/")[2]
    entry: Dict[str, Any] = {"local": address, "scope": words.get("scope", "")}
    if prefix:
        entry["prefixlen"] = prefix
    if peer:
        entry["address"] = peer.partition("/")[0]
    for flag in ADDRESS_FLAGS:
        if flag in fields:
            entry[flag] = True
    return entry


def _ip_head(index: str, name: str, behind: Optional[str], flags: str, rest: str) -> Dict[str, Any]:
    words = _words(rest)
    link: Dict[str, Any] = {"ifindex": int(index), "ifname": name, "flags": flags.split(","), "addr_info": []}
    for key, word in (("mtu", "mtu"), ("operstate", "state"), ("master", "master")):
        if word in words:
            link[key] = words[word]
    # `name@parent`; `name@if7` has its other end in another network namespace.
    elsewhere = re.match(r"if(\d+)\Z", behind or "")
    if elsewhere:
        link["link_index"] = int(elsewhere.group(1))
    elif behind and behind != "NONE":
        link["link"] = behind
    return link


def parse_ip_addr(text: str) -> List[Dict[str, Any]]:
    """`ip addr`, `ip -d addr` or `ip -o addr` as rows of `ip -j addr`."""
    links: Dict[str, Dict[str, Any]] = {}
    link: Dict[str, Any] = {}
    for line in text.splitlines():
        head = _IP_HEAD.match(line)
        if head:
            link = _ip_head(*head.groups())
            links[link["ifname"]] = link
            # One-line output continues with the link's type behind a backslash.
            line = head.group(5).partition("\\")[2]
        oneline = None if head else _IP_ONELINE.match(line)
        if oneline:
            name = oneline.group(1)
            link = links.setdefault(name, {"ifname": name, "flags": [], "addr_info": []})
            line = f"{oneline.group(2)} {oneline.group(3)}"
        first, _rest, rest = line.strip().partition(" ")
        if not link:
            continue
        if first.startswith("link/"):
            link["link_type"] = first[len("link/") :]
            link["address"] = rest.split(" ")[0]
        elif first in ("inet", "inet6"):
            entry = _ip_address(rest)
            if entry:
                link["addr_info"].append(entry)
        elif first == "altname":
            link.setdefault("altnames", []).append(rest.strip())
        elif first in KERNEL_KINDS:
            link["linkinfo"] = {"info_kind": first, "info_data": _words(rest)}
    return list(links.values())


def _ifconfig_line(link: Dict[str, Any], line: str) -> None:
    """One indented line of a block, of either net-tools format."""
    text = line.strip()
    four = re.match(r"inet (?:addr:)?(\S+)", text)
    if four:
        mask = re.search(r"(?:netmask |Mask:)(\S+)", text)
        peer = re.search(r"(?:destination |P-t-P:)(\S+)", text)
        entry: Dict[str, Any] = {"local": four.group(1).partition("/")[0]}
        if mask:
            entry["prefixlen"] = _mask_length(mask.group(1))
        if peer:
            entry["address"] = peer.group(1)
        link["addr_info"].append(entry)
    six = re.match(r"inet6 (?:addr: ?)?([0-9a-fA-F:.]+)(?:/(\d+))?", text)
    if six:
        prefix = six.group(2) or (re.search(r"prefixlen (\d+)", text) or [None, "128"])[1]
        scope = re.search(r"(?:scopeid \S*<|Scope:)(link|host|site|global)", text, re.I)
        link["addr_info"].append(
            {"local": six.group(1), "prefixlen": prefix, "scope": scope.group(1).lower() if scope else "global"}
        )
    mac = re.match(r"(ether|infiniband|loop|tunnel|unspec)\b ?(\S*)", text)
    if mac:
        link["link_type"] = {"loop": "loopback", "tunnel": "ipip"}.get(mac.group(1), mac.group(1))
        link["address"] = mac.group(2) if ":" in mac.group(2) else ""
    mtu = re.search(r"\bMTU:(\d+)", text)
    if mtu:
        link["mtu"] = int(mtu.group(1))
        link["flags"] = text[: mtu.start()].split()


def _mask_length(mask: str) -> int:
    if mask.startswith("0x"):
        return bin(int(mask, 16)).count("1")
    return ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen


def _ifconfig_short(text: str) -> List[Dict[str, Any]]:
    """`ifconfig -s`: the table, whose last column holds the flags as letters. A cut row has no flags."""
    links = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 2 or fields[0] == "Iface" or not fields[1].isdigit():
            continue
        letters = fields[-1] if len(fields) > 2 and fields[-1].isalpha() else ""
        flags = [word for letter, word in _IF_LETTERS.items() if letter in letters]
        if "s" in letters:
            flags.append("SLAVE")
        if not letters:
            flags = ["UP", "RUNNING"]  # the table lists interfaces that are up
        links.append({"ifname": fields[0].rstrip(":"), "mtu": int(fields[1]), "flags": flags, "addr_info": []})
    return links


def parse_ifconfig(text: str) -> List[Dict[str, Any]]:
    """`ifconfig`, `ifconfig -a` (net-tools old and new, BusyBox) or `ifconfig -s` as rows of `ip -j addr`."""
    if re.match(r"\s*Iface\s+MTU", text):
        return _ifconfig_short(text)
    links: List[Dict[str, Any]] = []
    for line in text.splitlines():
        new, old = _IF_HEAD_NEW.match(line), _IF_HEAD_OLD.match(line)
        if new:
            mtu = re.search(r"mtu (\d+)", new.group(3))
            links.append({"ifname": new.group(1), "flags": new.group(2).split(","), "addr_info": []})
            if mtu:
                links[-1]["mtu"] = int(mtu.group(1))
        elif old:
            links.append({"ifname": old.group(1), "flags": [], "addr_info": []})
            for words, link_type in _OLD_LINK_TYPES:
                if old.group(2).startswith(words):
                    links[-1]["link_type"] = link_type
            mac = re.search(r"HWaddr (\S+)", old.group(2))
            links[-1]["address"] = mac.group(1).lower() if mac else ""
        elif links and line.startswith((" ", "\t")):
            _ifconfig_line(links[-1], line)
    return _fold_aliases(links)


def _fold_aliases(links: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """`eth0:1` is a second address of eth0, not an interface."""
    folded: Dict[str, Dict[str, Any]] = {}
    for link in links:
        name = link["ifname"].partition(":")[0]
        if name in folded:
            folded[name]["addr_info"] += link["addr_info"]
        else:
            folded[name] = dict(link, ifname=name)
    return list(folded.values())


def parse_ip_route(text: str) -> List[Dict[str, Any]]:
    """`ip route` or `ip -6 route` as rows of `ip -j route`."""
    rows: List[Dict[str, Any]] = []
    for line in text.splitlines():
        fields = line.split()
        if not fields:
            continue
        if fields[0] == "nexthop" and rows:
            words = _words(line)
            rows[-1].setdefault("nexthops", []).append({"gateway": words.get("via", ""), "dev": words.get("dev", "")})
            continue
        kind = fields.pop(0) if fields[0] in _ROUTE_TYPES else ""
        words = _words(" ".join(fields[1:]))
        row: Dict[str, Any] = {"dst": fields[0], "type": kind}
        row.update({key: words[word] for word, key in _ROUTE_WORDS.items() if word in words})
        rows.append(row)
    return rows
