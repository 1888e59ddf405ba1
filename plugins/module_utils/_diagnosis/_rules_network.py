# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Rules: interfaces, names, ports, rendezvous and who joined it."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import (
    ECHO,
    HINT,
    LIKELY,
    STATED,
    SYMPTOM,
    Rule,
    fact,
    sign,
    signs,
)

# Names of interfaces that containers, virtual machines and tunnels make: addresses on them end at the node.
_VIRTUAL = (
    r"(?:docker\d|br-[0-9a-f]{6,}|virbr\d|veth\w+|cni\d|flannel[\w.]*|cali\w+|cilium\w+|weave\w*|kube-\w+|lxdbr\d"
    r"|lxcbr\d|"
    r"podman\d|vmnet\d|vboxnet\d|tun\d|tap\d|wg\d|tailscale\d|zt\w{8,}|ip6tnl\d|tunl\d|sit\d|gre\d|dummy\d|usb\d)"
)
# Addresses that a peer on another machine cannot mean: loopback, Docker's and libvirt's bridges, link-local.
_NOWHERE = r"(?:127\.\d+\.\d+\.\d+|172\.1[78]\.0\.\d+|192\.168\.122\.\d+|169\.254\.\d+\.\d+|fe80:[\w:]*(?:%\w+)?|::1)"
_SET_IFNAME = (
    "Name the interface that carries torchfleet_address on each node: nccl_env_extra: "
    "{{NCCL_SOCKET_IFNAME: '=<interface>', GLOO_SOCKET_IFNAME: <interface>}} in that node's host_vars (names may "
    "differ "
    "from node to node), or leave both unset and let the network probe choose; at the least exclude with "
    "^lo,docker,veth."
)

_OPEN_PORTS = (
    "Let the nodes reach each other on all TCP ports (firewall-cmd --zone=trusted --add-source=<training subnet>)"
)

# Lightning's ranks, as each comes.
_MEMBERS = signs(r"GLOBAL_RANK: \d+, MEMBER: (?P<joined>\d+)/(?P<world>\d+)")

RULES: Tuple[Rule, ...] = (
    # What other rules ask for.
    fact(
        "connect_failed",
        r"(?:Call to connect|Connect to|connect timeout|socketPollConnect|socketStartConnect|connecting:).*?"
        r"(?:refused|timed out|timeout|unreachable|No route)",
        r"NCCL Connection timed out",
        r"NCCL connect timeout",
    ),
    fact("store_timeout", r"connect\(\) timed out", r"client socket has timed out", r"RuntimeError: Socket Timeout"),
    fact(
        "several_nodes",
        r"num_machines[\"']?[ =:]+(?:[2-9]|\d\d)",
        r"--nnodes[ =]+(?:\d+:)?(?:[2-9]|\d\d)",
        r"--num_nodes[ =]+(?:[2-9]|\d\d)",
        r"pdsh -\S.* -w \S+,\S+",
        r"nnodes=(?:[2-9]|\d\d)",
        r"nNodes (?:[2-9]|\d\d)",
    ),
    fact("nccl_system_error", r"unhandled system error", r"ncclSystemError", r"Connection reset by peer"),
    fact("nccl_ready", r"Init COMPLETE"),
    fact("nccl_interfaces", r"INFO (?:Bootstrap|NET|NET/Socket) ?: Using"),  # names the hosts
    fact("barrier_passed", r"Completed store-based barrier"),
    fact("gloo_mesh", r"connectFullMesh failed"),
    fact(
        "nccl_warned",
        r"NCCL WARN(?! (?:NET/IB : No device|Failed to open libibverbs))",
        # As torch repeats it.
        r"^\W*(?:UDS: |Could not receive type from|Accept failed |Failed to execute operation)",
        r"^\W*(?:Proxy (?:Service|Call to rank)|Service thread\] |ncclProxy\w+ )",
    ),
    Rule(
        id="bootstrap_subnets",
        label="",
        level=SYMPTOM,
        confidence=0,
        signs=signs(r"Bootstrap : Using (?:\[0\])?[\w.-]+:(?P<subnet>\d+\.\d+\.\d+)\.\d+<"),
        differs="subnet",
    ),
    # Interfaces.
    Rule(
        id="no_socket_interface",
        label="nccl_no_socket_interface",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"no socket interface found",
            r"(?:Bootstrap|NET/Socket) ?: no (?:usable |NCCL_SOCKET_IFNAME )?(?:listening )?interface",
            r"Socket creation failed ?: Address family not supported",
            r"No interface found (?:in the same subnet|matching)",
            r"verify NCCL_OOB_NET_IFNAME",
            r"NET/IB ?: No IP interface found",
        ),
        cause="NCCL finds no IP interface to use: none is up, or NCCL_SOCKET_IFNAME (or its family) leaves none over.",
        fix=(
            "Bring the interface up (ip -br address), then correct or remove NCCL_SOCKET_IFNAME and "
            "NCCL_SOCKET_FAMILY in "
            "nccl_env_extra, /etc/nccl.conf and launch_env; in a container use the host's network."
        ),
        probe="interfaces",
    ),
    Rule(
        id="socket_family_garbage",
        label="nccl_wrong_socket_ifname",
        level=STATED,
        confidence=0.75,
        signs=signs(
            r"connecting to address .*with family \d+ is neither AF_INET",
            r"Call to bind failed ?: (?:Cannot assign|Invalid argument)",
        ),
        cause=(
            "A rank uses an address that is none, or not its own: NCCL_SOCKET_IFNAME names an interface that does not "
            "exist on that node, or one without an address."
        ),
        fix=_SET_IFNAME,
        probe="interface_exists",
    ),
    Rule(
        id="ifname_set_to_local",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.85,
        signs=signs(
            r"NCCL_SOCKET_IFNAME(?: set by environment)?(?: set)?(?: to |=| |: )[\"']?=?(?P<ifname>lo|"
            + _VIRTUAL
            + r")\b"
        ),
        needs=("several_hosts|several_nodes|connect_failed|nccl_system_error",),
        recovers=True,
        cause="NCCL_SOCKET_IFNAME is {ifname}, which ends at the node itself: peers on other nodes cannot reach it.",
        fix=_SET_IFNAME,
        probe="interface_reachable",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="loopback_offered",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.8,
        signs=signs(
            r"NCCL INFO Bootstrap : Using .*?\b(?P<ifname>lo):127\.",
            r"NCCL INFO NET/Socket : Using .*?\b(?P<ifname>lo):127\.",
            r"INFO NET : Using interface (?P<ifname>lo):127\.",
        ),
        needs=("several_hosts|several_nodes|connect_failed|nccl_system_error",),
        recovers=True,
        outranks=("firewall_blocked_ports", "node_network_down"),
        cause="NCCL offers the loopback interface to its peers, who cannot reach it.",
        fix=_SET_IFNAME,
        probe="interface_reachable",
        probe_parameters={"interface": "lo"},
    ),
    Rule(
        id="virtual_interface_first",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.7,
        signs=signs(r"Bootstrap ?: Using (?:\[0\])?(?P<ifname>" + _VIRTUAL + r"):"),
        unless=("nccl_ready",),
        recovers=True,
        outranks=("firewall_blocked_ports", "node_network_down"),
        cause=(
            "NCCL starts over {ifname}, an interface of containers, virtual machines or a tunnel that ends at the node."
        ),
        fix=_SET_IFNAME,
        probe="interface_reachable",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="link_local_first",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.65,
        signs=signs(r"Bootstrap ?: Using (?:\[0\])?(?P<ifname>[\w.-]+):fe80:"),
        recovers=True,
        cause=(
            "NCCL starts over {ifname} with a link-local IPv6 address, which is not routed and needs a zone on each "
            "peer."
        ),
        fix=_SET_IFNAME + " NCCL_SOCKET_FAMILY: AF_INET keeps it to IPv4.",
        probe="interface_reachable",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="unusable_interface_listed",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.6,
        signs=signs(
            r"(?:Bootstrap|NET/Socket) : Using .*?\[\d+\](?P<ifname>[\w.-]+):fe80:",
            r"(?:Bootstrap|NET/Socket) : Using .*?\[\d+\](?P<ifname>" + _VIRTUAL + r"):",
            r"NET : Using interface (?P<ifname>[\w.-]+):fe80:",
            r"NET : Using interface (?P<ifname>" + _VIRTUAL + r"):",
        ),
        needs=("several_hosts|connect_failed",),
        recovers=True,
        outranks=("firewall_blocked_ports", "node_network_down"),
        cause="NCCL spreads its traffic over {ifname} as well, which peers cannot reach.",
        fix=_SET_IFNAME,
        probe="interface_reachable",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="several_interfaces",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.5,
        signs=signs(
            r"(?:Bootstrap|NET/Socket) : Using \[0\](?P<first>[\w.-]+):\S+ \[1\](?P<ifname>[\w.-]+):",
            r"NET/Socket : (?:[2-9]|\d\d) interfaces found",
        ),
        needs=("connect_failed",),
        recovers=True,
        outranks=("firewall_blocked_ports", "node_network_down"),
        cause="NCCL uses several interfaces ({first}, {ifname}), and a peer cannot be reached over one of them.",
        fix=_SET_IFNAME,
        probe="interface_reachable",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="bootstrap_networks_differ",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.5,
        signs=signs(r"Bootstrap : Using (?:\[0\])?(?P<ifname>[\w.-]+):(?P<network>\d+\.\d+)\.\d+\.\d+<"),
        differs="network",
        unless=("nccl_ready", "rdma_devices_listed"),
        recovers=True,
        outranks=("firewall_blocked_ports", "node_network_down"),
        cause="The nodes start NCCL on networks that differ ({network}, over {ifname}): they may not reach each other.",
        fix=_SET_IFNAME,
        probe="interface_reachable",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="connect_to_nowhere",
        label="nccl_wrong_socket_ifname",
        level=LIKELY,
        confidence=0.75,
        signs=signs(
            r"NCCL WARN .*?Connect(?:ing)? to (?P<peer>" + _NOWHERE + r")<\d+>",
            r"Net : Connect to (?P<peer>" + _NOWHERE + r")<\d+> failed",
        ),
        outranks=("firewall_blocked_ports", "node_network_down"),
        cause="A peer advertised {peer}, an address of loopback, a bridge or a single link.",
        fix=_SET_IFNAME,
    ),
    Rule(
        id="network_unreachable",
        label="nccl_wrong_socket_ifname",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(
            r"Connect to (?P<peer>[^ <]+)<\d+> (?:failed|returned) ?:?.*Network is unreachable",
            r"Call to connect (?:failed|returned|timeout).*Network is unreachable",
        ),
        cause=(
            "There is no route to the address a peer advertises: NCCL picked an interface outside the common network."
        ),
        fix=_SET_IFNAME,
    ),
    Rule(
        id="connect_timed_out",
        label="nccl_wrong_socket_ifname",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"(?:Call to connect|NCCL connect) (?:failed|returned|timeout)(?!.*, retrying).*(?:time(?:d )?out|refused)",
            r"NCCL Connection timed out",
            # What is left of refusals (retries) and of silence (timeouts) when NCCL gives up.
            r"ocket(?:Start|Poll)Connect: exceeded (?:retries|timeouts) \(\d+\)\s*$",
            r"ocketPollConnect poll\(\) returned \d+, no POLLOUT",
            r"Connect to [^ <]+<\d+> (?:failed|returned).*(?:Software caused|Invalid argument|not available|Cannot "
            r"assign)",
        ),
        cause="NCCL cannot connect to the address a peer advertises: most often the wrong interface, else a firewall.",
        fix=_SET_IFNAME,
    ),
    Rule(
        id="horovod_interfaces",
        label="nccl_wrong_socket_ifname",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"NoValidAddressesFound",
            r"Unable to find a set of common task-to-task",
            r"Horovod was unable to connect to \w",
            r"available network interface found matching",
        ),
        cause="Horovod finds no interface over which all nodes reach one another: wrong names, else a firewall.",
        fix="Name one that every node has (horovodrun --network-interfaces); else " + _SET_IFNAME,
    ),
    Rule(
        id="connect_peer_timed_out",
        label="firewall_blocked_ports",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"Connect to (?P<peer>[^ <]+)<(?P<port>\d+)> (?:failed|returned)(?!.*, retrying).*(?:timed out|timeout)",
            r"\bconnect\(fd=\d+, dest_addr=(?P<peer>[\w.:]+):(?P<port>\d+)\) failed: Connection timed out",
        ),
        cause=(
            "Connections to {peer} on NCCL's own ports go unanswered: a firewall drops them, or the address is not "
            "routed."
        ),
        fix=(_OPEN_PORTS + ", or narrow net.ipv4.ip_local_port_range and open that range."),
        probe="tcp_port_reachable",
        probe_parameters={"host": "{peer}", "port": "{port}"},
    ),
    Rule(
        id="gloo_no_such_interface",
        label="gloo_wrong_ifname",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"ifa != nullptr",
            r"(?<!rp != nullptr\. )Unable to find address for: (?P<ifname>\S+)",
            r"Unable to find interface for: (?P<ifname>\S+)",
            r"makeDeviceFor(?:Interface|Hostname).*(?:unsupported|fail)",
        ),
        cause=(
            "Gloo has no interface named {ifname}: GLOO_SOCKET_IFNAME takes the plain name of one interface, no ^ and "
            "no =."
        ),
        fix=(
            "nccl_env_extra: {{GLOO_SOCKET_IFNAME: <interface>}} in host_vars, the one that carries the node's "
            "torchfleet_address."
        ),
        probe="interface_exists",
        probe_parameters={"interface": "{ifname}"},
    ),
    Rule(
        id="gloo_loopback",
        label="hostname_resolves_loopback",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"connecting: .*remote=\[(?P<address>127\.\d+\.\d+\.\d+|::1)\]",
            r"connectFullMesh failed.*?\[?(?P<address>127\.\d+\.\d+\.\d+)\]?",
            r"connect \[(?P<address>127\.\d+\.\d+\.\d+)\]:\d+: Connection refused",
            r"gloo/transport/tcp/.*refused, remote=\[(?P<address>127\.\d+\.\d+\.\d+|::1)\]",
        ),
        cause="The node's own name resolves to {address}, so Gloo offers loopback to its peers on other nodes.",
        fix=(
            "Map the host name to torchfleet_address in /etc/hosts (the hosts role does; no 127.0.1.1 line for it), or "
            "nccl_env_extra: {{GLOO_SOCKET_IFNAME: <interface>}} per node."
        ),
        probe="resolve_own_name",
    ),
    Rule(
        id="gloo_mesh_fallback",
        label="hostname_resolves_loopback",
        level=LIKELY,
        confidence=0.75,
        signs=signs(r"Unable to resolve hostname to a \(local\) address\. Using the loopback"),
        needs=("gloo_mesh|several_hosts",),
        recovers=True,
        cause=(
            "Gloo could not map the host name to an address of this node and fell back to loopback; peers cannot reach "
            "that."
        ),
        fix=(
            "Map the host name to torchfleet_address in /etc/hosts (the hosts role does), or nccl_env_extra: "
            "{{GLOO_SOCKET_IFNAME: <interface>}} per node."
        ),
        probe="resolve_own_name",
    ),
    Rule(
        id="gloo_mesh_failed",
        label="gloo_wrong_ifname",
        level=SYMPTOM,
        confidence=0.55,
        signs=signs(
            r"Gloo connectFullMesh failed",
            r"gloo/transport/tcp/\w+\.cc.*(?:timed out connecting|connect timeout|no error|\] connect \[|bind_rv == 0"
            r"|ss1\.ss_family)",
        ),
        cause="Gloo's ranks cannot connect to one another: it took an address that peers do not reach.",
        fix=(
            "nccl_env_extra: {{GLOO_SOCKET_IFNAME: <interface>}} in host_vars, the one that carries the node's "
            "torchfleet_address."
        ),
        probe="interface_reachable",
    ),
    # Names.
    Rule(
        id="name_not_known",
        label="hostname_unresolvable",
        level=LIKELY,
        confidence=0.85,
        signs=signs(
            r"addresses of \[?\(?(?P<name>[\w.-]+)[,\]:].*cannot be retrieved \(gai error",
            r"gai error: -?\d+",
            r"Could not resolve hostname (?P<name>[\w.-]+)",
            r"rp != nullptr\. Unable to find address for: (?P<name>\S+)",
            sign(
                # Not a download from the internet: that is no member of the cluster.
                r"^(?!.*(?:https?[:'(]|urllib|requests\.exceptions|HTTPSConnection|huggingface|pypi|docker\.io|registry)).*"
                r"(?:Name or service not known|failure in name resolution|nodename nor servname|No address associated"
                r"|getaddrinfo failed|lookup \S+ (?:on \S+ )?no such host|Name does not resolve|: unknown host)",
                *("getaddrinfo failed", "no such host", "name does not resolve", ": unknown host"),
                "Name or service not known",
                "failure in name resolution",
                "nodename nor servname",
                "No address associated",
            ),
            r"gethostbyname\(.(?P<name>[\w.-]+).\) failed",
            r"Unable to resolve \W?(?P<name>[\w.-]+)\W?: Unknown host",
            r"getaddrinfo returned error",
            r"error encountered when getting address info",
        ),
        recovers=True,
        outranks=("gloo_wrong_ifname",),
        cause="A node's name ({name}) does not resolve on the node that asks for it.",
        fix=(
            "Let the hosts role write every node's name and torchfleet_address into /etc/hosts on all nodes (its own "
            "name "
            "included), or use the head's address as master address."
        ),
        probe="resolve_name",
        probe_parameters={"name": "{name}"},
    ),
    # Ports and rendezvous.
    # NCCL's monitor finds its port taken by another job's, and does without.
    fact("monitor_port_taken", r"RAS failed to establish a client listening socket"),
    Rule(
        id="port_taken",
        label="port_in_use",
        level=STATED,
        confidence=0.9,
        signs=signs(
            sign(r":(?P<port>\d{2,5}) \(errno: 98", "(errno: 98"),
            r"port: (?P<port>\d+), .*(?:EADDRINUSE|code: -98)",
            r"EADDRINUSE",
            r"Address already in use",
            r"communication on port [`'\"]?(?P<port>\d+)[`'\"]?, but another process is utilizing it",
            r"Required ports are in use",
            r"[Pp]ort:? (?P<port>\d+) (?:is )?already (?:in use|being used|used|occupied|allocated|bound)(?!, attempt)",
            r"trying to start at \S+:(?P<port>\d+), but is already running",
            r"port is already (?:allocated|in use|being used)",
            r"Only one usage of each socket address",
            sign(r"\b(?:error|errno|WinError)[: ]+10048\b", "10048"),
            r"[Pp]ort (?P<port>\d+) (?:is )?(?:in use|occupied|taken|busy)\b",
            r"\[Errno 98\]",
            r"[Ff]ailed to bind to address",
        ),
        unless=("monitor_port_taken",),
        recovers=True,
        cause="The port the run wants ({port}) is taken by another process on that node: a stale run or a second job.",
        fix=(
            "End what holds it (ss -ltnp 'sport = :{port}'; playbooks/stop.yml for a stale run), or choose another: "
            "torchfleet_master_port: <free port>."
        ),
        probe="tcp_port_taken",
        probe_parameters={"port": "{port}"},
    ),
    Rule(
        id="no_route_to_host",
        label="firewall_blocked_ports",
        level=SYMPTOM,
        confidence=0.7,
        signs=signs(
            r"Connect to (?P<peer>[^ <]+)<(?P<port>\d+)> (?!.*, retrying).*No route to host",
            r"Call to connect (?!.*, retrying).*No route to host",
            r"connect(?:ing)? (?:to (?P<peer>[^ <]+)<(?P<port>\d+)> )?returned No route to host(?!.*, retrying)",
            r"\bconnect\(fd=\d+, dest_addr=(?P<peer>[\w.:]+):(?P<port>\d+)\) failed: No route to host",
            r"connect\(\) to \[?(?P<peer>[\w.:-]+?)\]?(?::(?P<port>\d+))? .*?No route to host",
            r"SO_ERROR: No route to host, remote=\[(?P<peer>[\w.:-]+)\]",
            r"^\W*(?:\[[\w:.-]+\]:? ?)?(?:RuntimeError|OSError|"
            r"ConnectionError): (?:\[Errno 113\] )?No route to host",
            r"port \d+ \(tcp\) failed: No route to host",
        ),
        cause=(
            "{peer} answers 'No route to host' to a connection between nodes: a firewall rejects NCCL's ports "
            "(firewalld does so by default)."
        ),
        fix=(
            "Let the nodes reach each other on all TCP ports (firewall-cmd --permanent --zone=trusted "
            "--add-source=<training subnet>), or narrow net.ipv4.ip_local_port_range and open that range."
        ),
        probe="tcp_port_reachable",
        probe_parameters={"host": "{peer}", "port": "{port}"},
    ),
    Rule(
        id="packets_dropped",
        label="firewall_blocked_ports",
        level=LIKELY,
        confidence=0.6,
        # What ufw and firewalld write to the kernel's log.
        signs=signs(r"\[UFW BLOCK\].* PROTO=TCP", r"(?:FINAL_REJECT|_REJECT: ).* PROTO=TCP"),
        recovers=True,
        cause="The kernel's log shows connections that a firewall drops or rejects.",
        fix=(
            "Let the nodes reach each other on all TCP ports: firewall-cmd --permanent --zone=trusted "
            "--add-source=<training subnet>, or ufw allow from <training subnet>."
        ),
    ),
    Rule(
        id="mpi_on_bridge",
        label="launcher_args_mismatch",
        level=LIKELY,
        confidence=0.75,
        # Every host has a bridge of containers with this address, so it is never the peer's.
        signs=signs(
            r"btl_tcp_endpoint.*connect\(\) to (?P<peer>172\.(?:1[7-9]|2\d|3[01])\.0\.1|192\.168\.122\.1|127\.\S+) "
            r"failed",
            r"btl_tcp_endpoint.*received unexpected process identifier",
        ),
        outranks=("firewall_blocked_ports",),
        cause="MPI offers its peers the address of a local bridge ({peer}), which is another machine's own there.",
        fix="Keep MPI to the training network: --mca btl_tcp_if_include <CIDR> --mca oob_tcp_if_include <CIDR>.",
    ),
    Rule(
        id="mpi_connection_blocked",
        label="firewall_blocked_ports",
        level=LIKELY,
        confidence=0.75,
        signs=signs(
            r"unable to complete a TCP connection",
            r"Open MPI (?:failed to TCP connect|detected an inbound)",
            r"check for firewalls",
            r"btl_tcp_endpoint.*connect\(\) to (?P<peer>\S+) failed",
        ),
        cause=(
            "MPI's processes cannot open TCP connections between the nodes: a firewall, or a network they do not share."
        ),
        fix=(
            "Open the nodes to each other on all TCP ports, or keep MPI to the training network: "
            "--mca btl_tcp_if_include <CIDR> --mca oob_tcp_if_include <CIDR>."
        ),
    ),
    Rule(
        id="connection_refused",
        label="node_network_down",
        level=SYMPTOM,
        confidence=0.45,
        signs=signs(
            r"Connect to (?P<peer>[^ <]+)<\d+> (?:failed|returned) ?:?(?!.*, retrying).*Connection refused",
            r"\bconnect\(fd=\d+, dest_addr=(?P<peer>[\w.:]+):\d+\) failed: Connection refused",
        ),
        cause="{peer} refuses NCCL's connection: its network is broken, or its process has already ended.",
        fix=(
            "Look for the rank on {peer} and its own log first; if that node answers to nobody, take it out of "
            "torchfleet_group (playbooks/check.yml shows the matrix of who reaches whom)."
        ),
        probe="host_reachable",
        probe_parameters={"host": "{peer}"},
    ),
    # NCCL tries again by itself; these lines alone are of a run that hangs in it, or that found its peer later.
    Rule(
        id="connect_tried_again",
        label="firewall_blocked_ports",
        level=ECHO,
        confidence=0.45,
        signs=signs(
            r"connect (?:to (?P<peer>[^ <]+)<(?P<port>\d+)> )?returned (?:.*(?:No route to host|timed out)).*, retrying"
        ),
        unless=("nccl_ready",),
        recovers=True,
        cause=(
            "NCCL tries again and again to connect to {peer}: a firewall drops its ports, or the address is not routed."
        ),
        fix=(_OPEN_PORTS + "; look that the address is on the network that the nodes share."),
        probe="tcp_port_reachable",
        probe_parameters={"host": "{peer}", "port": "{port}"},
    ),
    Rule(
        id="connect_refused_again",
        label="node_network_down",
        level=ECHO,
        confidence=0.4,
        signs=signs(r"connect (?:to (?P<peer>[^ <]+)<\d+> )?returned (?:.*Connection refused).*, retrying"),
        unless=("nccl_ready",),
        recovers=True,
        cause="{peer} refuses NCCL's connection time and again: its process has ended, or the address is not its own.",
        fix="Look in the log of the rank on {peer} first, then whether the nodes reach each other (check.yml).",
        probe="host_reachable",
        probe_parameters={"host": "{peer}"},
    ),
    Rule(
        id="link_down",
        label="node_network_down",
        level=STATED,
        confidence=0.75,
        signs=signs(
            r"missed too many heartbeats",
            r"transport endpoint shutdown|Transport endpoint is not connected",
            r"NETDEV WATCHDOG",
            r"NIC Link is Down",
            r"network is down\b",
            r"NET/IB : .*(?:async event|Got async).*(?:port error|catastrophic error|device fatal|fatal device)",
            r"(?:mlx|irdma|bnxt)\S*.*link down",
            r"carrier lost",
            r"has lost communication with",
            r"Timeout, server \S+ not responding",
            r"srun: error: Node failure on",
            r"Node (?:\S+ )?unexpectedly rebooted",
            r"Node\(s\) \S+ not responding",
            r"NET/IB ?: .*async fatal event",
            r"Fatal error\. Detected \d+ failed devices",
            r"NET/IB ?: Device \d+ marked as failed",
            r"device's health compromised",
            r"mlx5_core .*(?:Health issue observed|health recovery failed|Cable error)",
            r"mlx5_core .*wait_func:\d+.* timeout",
            r"poll_health:\d+: Fatal",
            r"mlx5_error_sw_reset",
            sign(r"eth\d|(?:en|ib)\w+: Link is [Dd]own", "link is down"),
            r"link status definitely down",
            r"can not test connection to node",
            r"io error (?:with slurmstepd |and missing step )?on node",
            r"failed on node \S+ Communication connection failure",
            r"DUE TO NODE \S+ FAILURE",
            r"sys files not found \(/sys/class/infiniband",
            r"Nodes \S+ (?:not responding|are still not ready)",
            r"\bNodeNotReady\b",
        ),
        recovers=True,
        cause="A network link of one node went down.",
        fix=(
            "Take the node out of torchfleet_group or repair cable, transceiver or switch port; then "
            "playbooks/check.yml."
        ),
        probe="link_state",
    ),
    Rule(
        id="host_unreachable",
        label="node_network_down",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(
            r"connect to host (?P<host>\S+) port \d+: (?:No route to host|Connection timed out|Operation timed out"
            r"|Network is unreachable)",
            r"(?P<host>[\w.-]+): ssh: connect .*timed out",
            r"connect to host (?P<host>\S+) port \d+: Host is down",
            r"Destination Host Unreachable",
            r"pdsh@\S+: (?P<host>\S+): mcmd: connect failed",
        ),
        cause="{host} cannot be reached at all: it is down or off the network.",
        fix="Bring {host} back or take it out of torchfleet_group; check ansible_host and torchfleet_address of it.",
        probe="host_reachable",
        probe_parameters={"host": "{host}"},
    ),
    Rule(
        id="bare_system_error",
        label="node_network_down",
        level=ECHO,
        confidence=0.35,
        signs=signs(r"unhandled system error", r"ncclSystemError: System call"),
        unless=("nccl_warned",),
        cause=(
            "A system call of NCCL failed and the log does not say which: most often one node's network. "
            "NCCL_DEBUG=WARN prints the call."
        ),
        fix=(
            "Run again with nccl_env_extra: {{NCCL_DEBUG: INFO}} to see the failing call and node; meanwhile "
            "playbooks/check.yml "
            "shows which node cannot reach the others: take that one out."
        ),
    ),
    Rule(
        id="endpoint_not_local",
        label="rdzv_endpoint_not_local",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(r"c10d_rendezvous_backend\.py\W+line \d+, in _create_tcp_store"),
        needs=("store_timeout",),
        outranks=("master_addr_unreachable", "missing_ranks"),
        cause=(
            "Nobody hosts the rendezvous store: every node took itself for a client, because none recognised the "
            "endpoint's "
            "address as its own (or the node that owns it was not started)."
        ),
        fix=(
            "Give as endpoint the address that the head's host name resolves to (torchfleet_address of "
            "torchfleet_head), or "
            "is_host=true in --rdzv_conf on node 0 only; static rendezvous with a node rank avoids the question."
        ),
        probe="tcp_port_reachable",
    ),
    Rule(
        id="store_unreachable",
        label="master_addr_unreachable",
        level=SYMPTOM,
        confidence=0.65,
        signs=signs(
            r"client socket has timed out after \S+ while trying to connect to \(?(?P<host>[\w.:\[\]-]+?)[,:] "
            r"?(?P<port>\d+)\)?",
            r"connect\(\) timed out(?:\.| at /)",
            r"DistStoreError: Socket Timeout",
            # Not where node 0 has left first at the end of a good run.
            r"^(?!.*failed to shutdown the rendezvous).*RendezvousConnectionError",
            r"connection to the C10d store has failed",
            r"client socket has failed to connect to any network address of \(?(?P<host>[\w.-]+), ?(?P<port>\d+)",
            r"TCP client failed to connect/validate to host (?P<host>[\w.-]+):(?P<port>\d+)",
            # The answer of a store that is going down, or of something else that listens there.
            r"(?:Stop_waiting|wait_canceled|not_ready) response (?:is )?expected",
            r"Ping failed, invalid value returned from server",
            # An address that no machine has looks like a firewall that rejects. The store's was given by hand.
            r"client socket has failed to connect to \[?(?P<host>[\w.:-]+?)\]?:(?P<port>\d+) \(errno: 11[23]",
            r"(?:[Uu]nable|[Ff]ailed) to connect to (?:the )?(?:GCS|coordinator)\b",
            r"EtcdConnectionFailed",
            r"Could not find any running Ray instance|ray client connection timeout",
            r"HTTPConnectionPool\(host='(?P<host>[^']+)', port=(?P<port>\d+)\): .* url: /(?:v2/|version)",
            r"HTTPConnectionPool\(host='(?P<host>[^']+)', port=(?P<port>2379)\)",
        ),
        cause=(
            "The rendezvous at {host}:{port} cannot be reached, or went away: wrong address or port, node 0 is not up, "
            "or a firewall there."
        ),
        fix=(
            "Check torchfleet_head and torchfleet_master_port, start node 0 first, and give all nodes the same "
            "--rdzv_id "
            "(launch.yml does all three); then test: nc -zv {host} {port} from each node."
        ),
        probe="tcp_port_reachable",
        probe_parameters={"host": "{host}", "port": "{port}"},
    ),
    fact("rendezvous_lost", r"failed to (?:shutdown the|send a keep-alive .{0,40}) rendezvous", r"Rendezvous\w+Error"),
    Rule(
        id="rendezvous_id_differs",
        label="master_addr_unreachable",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(r"config has no run_id, generated a random"),
        needs=("rendezvous_lost",),
        recovers=True,
        cause="No --rdzv_id was given, so each node made its own, and they do not meet.",
        fix="Give all nodes the same --rdzv_id (launch.yml does).",
    ),
    Rule(
        id="refused_by_store",
        label="master_addr_unreachable",
        level=ECHO,
        confidence=0.45,
        # How c10d and Gloo word it before torch 1.11.
        signs=signs(
            r"\bRuntimeError: (?:Connection refused|Connection timed out|Network is unreachable)(?: at /|\s*$)",
            r"failed to connect to all addresses",
        ),
        cause="The rendezvous takes no connections: node 0 is not up, or the address or port is wrong.",
        fix="Check torchfleet_head and torchfleet_master_port, and that the rank on node 0 started first.",
        probe="tcp_port_reachable",
    ),
    Rule(
        id="store_not_yet_up",
        label="master_addr_unreachable",
        level=SYMPTOM,
        confidence=0.5,
        signs=signs(
            r"client socket has failed to connect to \[?(?P<host>[\w.:-]+?)\]?:(?P<port>\d+) \(errno: 1(?:01|04|10|11)",
            r"DistNetworkError: failed to connect to \[?(?P<host>[\w.:-]+?)\]?:(?P<port>\d+)",
        ),
        recovers=True,
        cause="{host}:{port} does not take the store's connections: node 0 is not up, or the address or port is wrong.",
        fix=(
            "Check torchfleet_head and torchfleet_master_port, and that the rank on node 0 started: nc -zv {host} "
            "{port}."
        ),
        probe="tcp_port_reachable",
        probe_parameters={"host": "{host}", "port": "{port}"},
    ),
    Rule(
        id="fewer_joined",
        label="missing_ranks",
        level=SYMPTOM,
        confidence=0.85,
        signs=signs(r"world_size=(?P<world>\d+), (?:worker_count|num_workers_joined)=(?P<joined>\d+)"),
        compare=("joined", "<", "world"),
        unless=("barrier_passed",),
        recovers=True,
        cause="{joined} of {world} ranks joined: the others were never started, or ended before they got there.",
        fix=(
            "Look in the logs of the ranks that are missing; check that each node of torchfleet_group was started "
            "with the "
            "same node count, and that the sum of torchfleet_slots is {world}."
        ),
        probe="ranks_alive",
    ),
    Rule(
        id="clients_missing",
        label="missing_ranks",
        level=SYMPTOM,
        confidence=0.85,
        signs=signs(
            r"waiting for (?:clients|workers)\. ?(?P<joined>\d+)/(?P<world>\d+)",
            r"(?P<joined>\d+)/(?P<world>\d+) (?:clients joined|workers joined)",
        ),
        compare=("joined", "<", "world"),
        cause="{joined} of {world} ranks joined: the others were never started, or cannot reach the store.",
        fix=(
            "Look in the logs of the missing ranks; check node count, torchfleet_slots and that all nodes were started."
        ),
        probe="ranks_alive",
    ),
    fact("all_registered", r"All distributed processes registered"),
    Rule(
        id="members_missing",
        label="missing_ranks",
        level=ECHO,
        confidence=0.5,
        signs=_MEMBERS,
        tally=("joined", "world", "once"),
        unless=("all_registered",),
        recovers=True,
        cause="Of {world} processes only the number {joined} comes: the others were not started, or hang before.",
        fix="Look in the logs of the ranks that are missing; start one process for each, on every node.",
        probe="ranks_alive",
    ),
    Rule(
        id="members_alike",
        label="too_many_ranks_joined",
        level=LIKELY,
        confidence=0.6,
        signs=_MEMBERS,
        tally=("joined", "world", "twice"),
        unless=("all_registered",),
        recovers=True,
        cause="Several of {world} processes take themselves for the same one ({joined}): each was started on its own.",
        fix=(
            "Use one launcher only, and give each process its own rank: launch.yml sets NODE_RANK, RANK and LOCAL_RANK "
            "on every node."
        ),
    ),
    Rule(
        id="worlds_differ",
        label="launcher_args_mismatch",
        level=LIKELY,
        confidence=0.6,
        signs=signs(r"dist_world_size=(?P<world>\d+)", r"global_world_sizes=\[(?P<world>\d+)"),
        differs="world",
        needs=("several_hosts",),
        recovers=True,
        cause="The nodes were started with world sizes that differ: {world}.",
        fix="The same node count and processes per node on every node; launch.yml renders them from torchfleet_slots.",
    ),
    Rule(
        id="port_state_down",
        label="node_network_down",
        level=HINT,
        confidence=0.4,
        # As ibstat, ibstatus and ibv_devinfo print it.
        signs=signs(
            sign(r"^\s*State: Down\s*$", "state: down"),
            r"Port number \d+ state is Down",
            sign(r"^\s*state:\s+(?:\d: DOWN|PORT_DOWN)\b", ": down", "port_down"),
        ),
        recovers=True,
        cause="A port of an RDMA adapter is down.",
        fix="Look at cable, transceiver and switch port, or leave that adapter out (NCCL_IB_HCA in nccl_env_extra).",
        probe="rdma_ports",
    ),
    Rule(
        id="rendezvous_timeout",
        label="missing_ranks",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(
            r"RendezvousTimeout(?:Error|Exception)",
            r"rendezvous .{0,80}(?:did not complete|timed out|times out)",
            r"Exceeded max number of attempts to join",
            r"timed out waiting for all \d+ members",
            r"Cannot provide a placement group of|Placement group creation timed out",
            r"Timeout while waiting for keys in EtcdStore",
            r"Timed out waiting for hosts to",
            r"Barrier timed out\b.*tasks? ",
            r"still waiting for response from worker",
            r"check connectivity between servers",
            r"imed out initializing process group in store.based barrier",
        ),
        cause="The rendezvous ended before all nodes were there.",
        fix=(
            "Start all nodes within the join time-out, with the same --nnodes and --rdzv_id; look at the node that did "
            "not join."
        ),
    ),
    Rule(
        id="rank_zero_silent",
        label="missing_ranks",
        level=ECHO,
        confidence=0.45,
        signs=signs(
            r"store->get\('?0'?\) got error(?:: (?:Socket Timeout|wait timeout)|\W*$)",
            r"waitForInput: .*timed out after",
            r"RuntimeError: Socket Timeout",
            r"[Ww]ait timeout for key",
            r"DistStoreError: wait timeout",
            r"RuntimeError: Wait timeout",
            r"Timeout waiting for key: ",
            r"Timed out waiting on barrier on rank ",
        ),
        cause="This rank waited in vain for a peer's key in the store: the peer never came that far.",
        fix="Look in the log of the rank that published nothing (rank 0 for the communicator id).",
    ),
    Rule(
        id="more_joined",
        label="too_many_ranks_joined",
        level=SYMPTOM,
        confidence=0.9,
        signs=signs(r"world_size=(?P<world>\d+), (?:worker_count|num_workers_joined)=(?P<joined>\d+)"),
        compare=("joined", ">", "world"),
        outranks=("missing_ranks", "collective_timeout_desync"),
        cause=(
            "{joined} ranks joined a world of {world}: the program is launched twice, or the init file or store is an "
            "old one's."
        ),
        fix=(
            "Use one launcher only (no torchrun inside mpirun), delete the file:// init file, and take a fresh "
            "torchfleet_master_port or --rdzv_id."
        ),
    ),
    Rule(
        id="rank_joined_twice",
        label="too_many_ranks_joined",
        level=LIKELY,
        confidence=0.75,
        signs=signs(
            r"Bootstrap Root : rank \d+ of \d+ ranks has already checked in",
            r"Bootstrap Root : mismatch in rank count from procs",
            r"mismatch in info from procs",
        ),
        cause=(
            "Two processes claim one rank, or two worlds of other sizes meet at one address: a double launch or a "
            "stale run."
        ),
        fix=(
            "Stop what is left of earlier runs (playbooks/stop.yml), use one launcher only, and take a fresh "
            "torchfleet_master_port."
        ),
    ),
)
