"""Which openings a firewall has for the members, and what brings them about."""

from __future__ import annotations

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _member_firewall as fw
from ansible_collections.torchfleet.cluster.plugins.module_utils._member_firewall import Chain, Opening

TWO = Opening(frozenset({"10.0.0.2", "10.0.0.11"}))
RULESET = """\
table inet filter {
	set blocked {
		type ipv4_addr
	}
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
table ip nat {
	chain INPUT {
		type nat hook input priority 100; policy accept;
	}
}
table ip site {
	chain guard {
		type filter hook input priority 10; policy accept;
		tcp dport 111 reject with icmp port-unreachable
	}
	chain unhooked {
		drop
	}
}
table netdev early {
	chain in {
		type filter hook ingress device "eth0" priority 0; policy accept;
		ip saddr 192.0.2.1 drop
	}
}
"""


def test_every_chain_that_closes_the_way_in_is_found():
    assert fw.closing_chains(RULESET) == [Chain("inet", "filter", "input"), Chain("ip", "site", "guard")]
    assert fw.closing_chains("") == []


def test_rules_for_members_and_nobody_else():
    (rule,) = fw.nft_rules(Chain("inet", "filter", "input"), TWO)
    assert rule == 'inet filter input ip saddr { 10.0.0.2, 10.0.0.11 } accept comment "torchfleet"'


def test_ports_confine_the_opening():
    (rule,) = fw.nft_rules(Chain("ip", "f", "i"), Opening(frozenset({"10.0.0.2"}), ("22", "50000-51000")))
    assert "tcp dport { 22, 50000-51000 } accept" in rule


def test_families():
    both = Opening(frozenset({"10.0.0.2", "fd00::2"}))
    assert len(fw.nft_rules(Chain("inet", "f", "i"), both)) == 2
    (rule,) = fw.nft_rules(Chain("ip6", "f", "i"), both)
    assert "fd00::2" in rule
    assert fw.members_of(Chain("ip6", "f", "i"), both) == frozenset({"fd00::2"})
    assert fw.nft_rules(Chain("ip6", "f", "i"), TWO) == []


@pytest.mark.parametrize(
    ("line", "members", "ports"),
    [
        ('ip saddr { 10.0.0.2, 10.0.0.11 } accept comment "torchfleet" # handle 9', {"10.0.0.2", "10.0.0.11"}, ()),
        ('ip saddr 10.0.0.2 accept comment "torchfleet" # handle 9', {"10.0.0.2"}, ()),
        (
            'ip saddr 10.0.0.2 tcp dport { 22, 50000-51000 } accept comment "torchfleet" # handle 9',
            {"10.0.0.2"},
            ("22", "50000-51000"),
        ),
    ],
)
def test_what_is_open_is_read_back(line, members, ports):
    opening, handles = fw.nft_open(f"\t\tct state established accept # handle 8\n\t\t{line}\n")
    assert opening == Opening(frozenset(members), ports)
    assert handles == [9]


def test_only_addresses_of_hosts_count():
    values = ["10.0.0.2", "gpu1", "", "127.0.0.1", "fe80::1", "[fd00::2]", "10.0.0.0/24"]
    assert fw.addresses(values) == frozenset({"10.0.0.2", "fd00::2"})


def test_ufw_opens_and_takes_back_its_own_alone():
    added = (
        "Added user rules (see 'ufw status' for running firewall):\n"
        "ufw allow 22/tcp\n"
        "ufw allow from 192.0.2.1 comment 'office'\n"
        "ufw allow from 10.0.0.2 comment 'torchfleet'\n"
        "ufw allow from 10.0.0.9 comment 'torchfleet'\n"
    )
    assert fw.ufw_commands(fw.ufw_open(added), TWO) == [
        ("--force", "delete", "allow", "from", "10.0.0.9"),
        ("prepend", "allow", "from", "10.0.0.11", "comment", "torchfleet"),
    ]


def test_ufw_with_ports():
    ports = Opening(frozenset({"10.0.0.2"}), ("22", "50000-51000"))
    added = "ufw allow from 10.0.0.2 to any port 22,50000:51000 proto tcp comment 'torchfleet'\n"
    assert fw.ufw_commands(fw.ufw_open(added), ports) == []
    assert fw.ufw_commands({}, ports) == [
        (
            "prepend",
            "allow",
            "proto",
            "tcp",
            "from",
            "10.0.0.2",
            "to",
            "any",
            "port",
            "22,50000:51000",
            "comment",
            "torchfleet",
        )
    ]


ZONE = """\
torchfleet
  target: ACCEPT
  icmp-block-inversion: no
  interfaces:
  sources: 10.0.0.2 10.0.0.9
  services:
  ports:
"""


def test_firewalld_gets_a_zone_of_the_members():
    assert fw.zone_commands(fw.read_zone(ZONE), TWO) == [
        ("--zone=torchfleet", "--remove-source=10.0.0.9"),
        ("--zone=torchfleet", "--add-source=10.0.0.11"),
    ]
    assert fw.zone_commands(None, TWO)[:2] == [("--new-zone=torchfleet",), ("--zone=torchfleet", "--set-target=ACCEPT")]


def test_firewalld_that_is_right_is_left_alone():
    now = fw.read_zone(ZONE.replace("10.0.0.9", "10.0.0.11"))
    assert fw.zone_commands(now, TWO) == []


def test_firewalld_with_ports_lets_in_nothing_else():
    commands = fw.zone_commands(fw.read_zone(ZONE), Opening(frozenset({"10.0.0.2", "10.0.0.9"}), ("22",)))
    assert commands == [("--zone=torchfleet", "--set-target=default"), ("--zone=torchfleet", "--add-port=22/tcp")]


def test_what_was_opened_for_one_is_taken_back_and_the_rest_stays():
    gone = frozenset({"10.0.0.11"})
    chains = [Chain("inet", "filter", "input")]
    left = Opening(TWO.members - gone)
    assert fw.nft_script_without(fw.nft_script(chains, TWO), gone) == fw.nft_script(chains, left)
    assert fw.nft_script_without(fw.nft_script(chains, TWO), TWO.members) == fw.nft_script(chains, Opening(frozenset()))
    now = {"10.0.0.2": (), "10.0.0.11": ("22", "50000-51000")}
    assert fw.ufw_taken_back(now, gone) == [
        ("--force", "delete", *fw.ufw_rule("10.0.0.11", ("22", "50000-51000"))),
    ]
    assert fw.ufw_taken_back(now, frozenset({"10.0.0.9"})) == []
    zone = fw.Zone("ACCEPT", TWO.members)
    assert fw.zone_taken_back(zone, gone) == [("--zone=torchfleet", "--remove-source=10.0.0.11")]
    assert fw.zone_taken_back(zone, TWO.members) == [("--delete-zone=torchfleet",)]
    assert fw.zone_taken_back(zone, frozenset({"10.0.0.9"})) == []
