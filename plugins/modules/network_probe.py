#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: network_probe
short_description: Measure which addresses of its peers a node really reaches
version_added: 0.1.0
description:
  - Finds out by trying which address of each peer a node reaches from each of its own addresses, and what packets that
    path carries. That a NIC is up and has an address says nothing about whether the peers answer on it.
  - All nodes run O(state=listening), then all run O(state=probed) with everybody's listeners, then all run
    O(state=stopped).
  - A listener is a background process with one ephemeral port on each address. It ends by O(state=stopped), or by
    itself after O(lifetime).
  - Connections carry O(probe_id) and the name of the node, so that another machine with the same address is told apart.
  - Nodes meet in rounds of disjoint pairs, so that none is flooded. Each direction is measured by its own sender.
options:
  state:
    description:
      - V(listening) starts the listener and returns it.
      - V(probed) tries all peers and returns the links.
      - V(stopped) ends this node's listener.
    type: str
    required: true
    choices: [listening, probed, stopped]
  node:
    description: This node's name, the key of its listener in O(listeners).
    type: str
    required: true
  probe_id:
    description: A word that all nodes share and that is new for each probe. It keeps two probes apart; it is no secret.
    type: str
    required: true
  interfaces:
    description:
      - The node's interfaces, as M(torchfleet.cluster.nccl_facts) returns them. Used by O(state=listening).
      - Loopback, interfaces that are down, members of a bond or bridge, and IPv6 link-local addresses are left out.
    type: list
    elements: dict
    default: []
  listeners:
    description: The listeners of all nodes by node name. O(state=stopped) needs this node's only.
    type: dict
    default: {}
  lifetime:
    description: Seconds after which a listener ends by itself.
    type: int
    default: 120
  timeout:
    description:
      - Seconds to wait for a connection, and for each answer on it.
      - The kernel takes 3 seconds to find that nobody has an address in its own subnet.
    type: float
    default: 3.5
  round_interval:
    description: Seconds between the starts of two rounds. Rounds overlap, so that dead addresses cost their time once.
    type: float
    default: 0.05
  bandwidth_seconds:
    description:
      - Seconds to send at full speed to each address that answers. V(0) measures no bandwidth.
      - One TCP stream, received by one node at a time. Above some 10 Gb/s it measures the processor.
    type: float
    default: 0
  bandwidth_bytes:
    description: Most bytes sent in one measurement of the bandwidth.
    type: int
    default: 1073741824
attributes:
  check_mode:
    description: Runs as usual in check mode. Nothing that it starts lasts.
    support: full
  diff_mode:
    description: There is nothing to show, because nothing changes.
    support: none
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Listen on every address of every node
  torchfleet.cluster.network_probe:
    state: listening
    node: "{{ inventory_hostname }}"
    probe_id: "{{ __probe_id }}"
    interfaces: "{{ __nccl_facts.interfaces }}"
  register: __listening

- name: Gather the listeners once
  ansible.builtin.set_fact:
    __listeners: >-
      {{ dict(ansible_play_hosts
              | zip(ansible_play_hosts | map('extract', hostvars, ['__listening', 'listener']))) }}
  run_once: true

- name: Try every peer at every address
  torchfleet.cluster.network_probe:
    state: probed
    node: "{{ inventory_hostname }}"
    probe_id: "{{ __probe_id }}"
    listeners: "{{ __listeners }}"
  register: __probed

- name: End the listeners
  torchfleet.cluster.network_probe:
    state: stopped
    node: "{{ inventory_hostname }}"
    probe_id: "{{ __probe_id }}"
    listeners: "{{ {inventory_hostname: __listeners[inventory_hostname]} }}"
"""

RETURN = r"""
listener:
  description: This node's listener, for O(listeners).
  returned: when O(state=listening)
  type: dict
  contains:
    node:
      description: The node's name.
      type: str
      returned: always
      sample: node1
    addresses:
      description: All addresses of the node, so that a peer with the same address is not mistaken for it.
      type: list
      elements: str
      returned: always
      sample: [127.0.0.1, 10.0.0.1, 172.17.0.1]
    endpoints:
      description: Where it listens. An address that could not be bound has C(error) in place of the ports.
      type: list
      elements: dict
      returned: always
      sample: [{interface: eth0, address: 10.0.0.1, port: 40123, udp_port: 40123}]
    pid:
      description: The background process. V(0) where there is no address to listen on.
      type: int
      returned: always
      sample: 4711
links:
  description: What was found, one element for each pair of this node's and a peer's addresses of one family.
  returned: when O(state=probed)
  type: list
  elements: dict
  contains:
    source:
      description: This node.
      type: str
      returned: always
      sample: node1
    source_address:
      description: The address that the connection was made from.
      type: str
      returned: always
      sample: 10.0.0.1
    target:
      description: The peer.
      type: str
      returned: always
      sample: node2
    target_address:
      description: The peer's address.
      type: str
      returned: always
      sample: 10.0.0.2
    ok:
      description: Whether the peer itself answered there and full-size packets arrived.
      type: bool
      returned: always
      sample: true
    why:
      description:
        - Why not. One of V(timeout), V(refused), V(unreachable), V(stranger) (somebody else answered), V(own_address)
          (this node has that address too), V(mtu) (full-size packets are lost), V(not_listening), or the system's name
          of the error.
      type: str
      returned: when the link does not work
      sample: timeout
    path_mtu:
      description: The largest IP packet that the path carries, in bytes.
      type: int
      returned: when known
      sample: 1500
    via:
      description: The address that this node's routing prefers towards the peer, where it is another than the source.
      type: str
      returned: when different
      sample: 192.168.0.1
    bandwidth_mbps:
      description: What one TCP stream carried, in megabits a second.
      type: float
      returned: when measured
      sample: 9410.5
stopped:
  description: Whether a listener was there to be ended.
  returned: when O(state=stopped)
  type: bool
  sample: true
"""

import contextlib
import errno
import heapq
import os
import resource
import selectors
import signal
import socket
import time
from collections import deque
from typing import Any, Deque, Dict, Generator, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._candidates import all_addresses, find_candidates
from ansible_collections.torchfleet.cluster.plugins.module_utils._probe import (
    EXCHANGE_BYTES,
    LEAST_MTU,
    MAX_LINE,
    Attempt,
    datagram_payload,
    judge_answer,
    line,
    link,
    narrowed,
    packet_sizes,
    plan,
    read_line,
    tcp_path_mtu,
    why_of_errno,
    worth_measuring,
)

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
CHUNK = 262144
MAX_OPEN = 400
# A client of the listener that says nothing for this many seconds is dropped.
PATIENCE = 30
# How long answers to one burst of datagrams are awaited, and how often each size is sent.
BURST_SECONDS = 0.4
BURST_COPIES = 2

# From the kernel's uapi headers: Python's socket module does not name them.
IP_MTU_DISCOVER = 10
IP_MTU = 14
IPV6_MTU_DISCOVER = 23
IPV6_MTU = 24
PMTUDISC_PROBE = 3
TCP_INFO_OPTIONS = 5
TCP_OPTION_TIMESTAMPS = 1

# A job yields a socket, the event it waits for and until when, and is sent whether that came in time.
Wait = Tuple[socket.socket, int, float]
Job = Generator[Wait, bool, None]
Step = Generator[Wait, bool, str]


class Loop:
    """Runs jobs side by side in one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._later: Deque[Tuple[float, Job]] = deque()
        self._deadlines: List[Tuple[float, int, socket.socket]] = []
        self._serial = 0
        self.stopped = False

    def start(self, job: Job) -> None:
        self._await(job, next(job, None))

    def start_later(self, at: float, job: Job) -> None:
        """Queue a job. They come in the order of their times."""
        self._later.append((at, job))

    def run(self) -> None:
        waiting = self._selector.get_map()
        while not self.stopped and (self._later or waiting):
            now = time.monotonic()
            while self._later and self._later[0][0] <= now and len(waiting) < MAX_OPEN:
                self.start(self._later.popleft()[1])
            for key, _events in self._selector.select(self._next_time()):
                self._resume(key, True)
            now = time.monotonic()
            while self._deadlines and self._deadlines[0][0] <= now:
                _deadline, serial, sock = heapq.heappop(self._deadlines)
                # A socket that has moved on since, or is closed, has no use for this deadline.
                late = waiting.get(sock) if sock.fileno() >= 0 else None
                if late is not None and late.data[1] == serial:
                    self._resume(late, False)

    def _next_time(self) -> float:
        """Seconds until something is due even if no socket becomes ready."""
        times = [self._deadlines[0][0]] if self._deadlines else []
        if self._later and len(self._selector.get_map()) < MAX_OPEN:
            times.append(self._later[0][0])
        return max(0.0, min(times, default=0.0) - time.monotonic())

    def _resume(self, key: selectors.SelectorKey, ready: bool) -> None:
        self._selector.unregister(key.fileobj)
        job: Job = key.data[0]
        try:
            self._await(job, job.send(ready))
        except (StopIteration, OSError):
            return

    def _await(self, job: Job, wait: Optional[Wait]) -> None:
        if wait is None:
            return
        sock, event, deadline = wait
        self._serial += 1
        self._selector.register(sock, event, (job, self._serial))
        heapq.heappush(self._deadlines, (deadline, self._serial, sock))


def new_socket(address: str, kind: int) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)


# ---- the listener


def bind_pair(address: str) -> Tuple[socket.socket, socket.socket]:
    """A TCP and a UDP socket on one address, on ephemeral ports."""
    tcp, udp = new_socket(address, socket.SOCK_STREAM), new_socket(address, socket.SOCK_DGRAM)
    try:
        tcp.bind((address, 0))
        tcp.listen(512)
        udp.bind((address, 0))
    except OSError:
        tcp.close()
        udp.close()
        raise
    tcp.setblocking(False)
    udp.setblocking(False)
    return tcp, udp


class Listener:
    """The background process: answers handshakes, swallows what is sent, echoes the heads of datagrams."""

    def __init__(self, node: str, probe_id: str, lifetime: float) -> None:
        self.node = node
        self.probe_id = probe_id
        self.ends = time.monotonic() + lifetime
        self.loop = Loop()
        self.receiving = False

    def serve(self, pairs: Sequence[Tuple[socket.socket, socket.socket]]) -> None:
        for tcp, udp in pairs:
            self.loop.start(self.accept(tcp))
            self.loop.start(self.echo(udp))
        self.loop.run()

    def say(self, client: socket.socket, **words: Any) -> None:
        client.send(line(probe=self.probe_id, node=self.node, **words))

    def accept(self, tcp: socket.socket) -> Job:
        while (yield tcp, READ, self.ends):
            try:
                client, _peer = tcp.accept()
            except BlockingIOError:
                continue
            except OSError:
                # Out of descriptors: give those in use a moment to end.
                time.sleep(0.01)
                continue
            client.setblocking(False)
            self.loop.start(self.answer(client))
        self.loop.stopped = True

    def echo(self, udp: socket.socket) -> Job:
        prefix = self.probe_id.encode()
        while (yield udp, READ, self.ends):
            try:
                data, peer = udp.recvfrom(65535)
                if data.startswith(prefix):
                    udp.sendto(data[: len(prefix) + 8], peer)
            except OSError:
                continue

    def answer(self, client: socket.socket) -> Job:
        with client:
            data = b""
            while b"\n" not in data and len(data) < MAX_LINE:
                if not (yield client, READ, time.monotonic() + PATIENCE):
                    return
                more = client.recv(MAX_LINE - len(data))
                if not more:
                    return
                data += more
            head, _newline, rest = data.partition(b"\n")
            words = read_line(head)
            if not words or words.get("probe") != self.probe_id:
                return
            verb = words.get("verb")
            if verb == "stop":
                # Only from this very machine.
                self.loop.stopped = client.getpeername()[0] == client.getsockname()[0]
            elif verb == "flood" and self.receiving:
                self.say(client, busy=True)
            elif verb == "flood":
                self.receiving = True
                try:
                    self.say(client)
                    yield from self.swallow(client, None)
                finally:
                    self.receiving = False
            else:
                self.say(client)
                yield from self.swallow(client, EXCHANGE_BYTES - len(rest))

    def swallow(self, client: socket.socket, wanted: Optional[int]) -> Job:
        """Read so many bytes, or to the end, and say how many there were and how long they took."""
        count, began = 0, 0.0
        while wanted is None or count < wanted:
            if not (yield client, READ, time.monotonic() + PATIENCE):
                return
            got = len(client.recv(CHUNK))
            if not got:
                break
            began = began or time.monotonic()
            count += got
        self.say(client, bytes=count, seconds=round(time.monotonic() - began, 6) if began else 0)


def listen(node: str, probe_id: str, interfaces: Sequence[Mapping[str, Any]], lifetime: float) -> Dict[str, Any]:
    """Bind every candidate and leave a background process with the sockets."""
    pairs = []
    endpoints: List[Dict[str, Any]] = []
    for candidate in find_candidates(interfaces)[0]:
        endpoint: Dict[str, Any] = {"interface": candidate.interface, "address": candidate.address}
        try:
            pair = bind_pair(candidate.address)
        except OSError as error:
            endpoints.append({**endpoint, "error": str(error.strerror)})
            continue
        pairs.append(pair)
        port, udp_port = (sock.getsockname()[1] for sock in pair)
        endpoints.append({**endpoint, "port": port, "udp_port": udp_port})
    pid = fork_listener(node, probe_id, lifetime, pairs) if pairs else 0
    for pair in pairs:
        for sock in pair:
            sock.close()
    return {"node": node, "addresses": sorted(all_addresses(interfaces)), "endpoints": endpoints, "pid": pid}


def fork_listener(
    node: str, probe_id: str, lifetime: float, pairs: Sequence[Tuple[socket.socket, socket.socket]]
) -> int:
    """Detach from the caller's session, so that neither its end nor its terminal matters. Returns the process id."""
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        os.waitpid(child, 0)
        with os.fdopen(told) as pipe:
            return int(pipe.read() or 0)
    try:
        os.setsid()
        grandchild = os.fork()
        if grandchild:
            os.write(tell, str(grandchild).encode())
            os._exit(0)
        os.chdir("/")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        # Whatever else was inherited would hold the caller's pipes open.
        last = 2
        for descriptor in sorted(sock.fileno() for pair in pairs for sock in pair):
            os.closerange(last + 1, descriptor)
            last = descriptor
        os.closerange(last + 1, 65536)
        raise_descriptor_limit()
        Listener(node, probe_id, lifetime).serve(pairs)
    finally:
        os._exit(0)


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# ---- the node that tries


class Prober:
    """Tries all attempts of one node and keeps what comes of them."""

    def __init__(self, node: str, probe_id: str, timeout: float) -> None:
        self.node = node
        self.probe_id = probe_id
        self.timeout = timeout
        self.links: List[Dict[str, Any]] = []
        self.ports: Dict[Tuple[str, str], int] = {}

    def run(self, attempts: Sequence[Attempt], round_interval: float) -> None:
        loop = Loop()
        began = time.monotonic()
        for attempt in attempts:
            self.ports[attempt.peer, attempt.address] = attempt.port
            loop.start_later(began + attempt.round * round_interval, self.attempt(attempt))
        loop.run()

    def attempt(self, attempt: Attempt) -> Job:
        """One connection: handshake, a full-size exchange, and where that stalls the search for what passes."""
        measured: Dict[str, Any] = {}
        known_mtu = None
        with new_socket(attempt.address, socket.SOCK_STREAM) as sock:
            try:
                sock.setblocking(False)
                sock.bind((attempt.source, 0))
                measured["via"] = preferred_source(attempt)
                why = yield from self.connect(sock, attempt)
                if not why:
                    why = yield from self.handshake(sock, attempt.peer)
                if not why:
                    why = yield from self.exchange(sock)
                    known_mtu = path_mtu(sock)
            except OSError as error:
                why = why_of_errno(error.errno or 0)
        if why == "mtu":
            known_mtu = yield from self.search_mtu(attempt, known_mtu or 1500)
        self.links.append(
            link(self.node, attempt.source, attempt.peer, attempt.address, why, path_mtu=known_mtu, **measured)
        )

    def connect(self, sock: socket.socket, attempt: Attempt) -> Step:
        code = sock.connect_ex((attempt.address, attempt.port))
        if code == errno.EINPROGRESS:
            if not (yield sock, WRITE, time.monotonic() + self.timeout):
                return "timeout"
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return why_of_errno(code) if code else ""

    def handshake(self, sock: socket.socket, peer: str) -> Step:
        sock.send(line(probe=self.probe_id, verb="link"))
        data = b""
        while b"\n" not in data and len(data) < MAX_LINE:
            if not (yield sock, READ, time.monotonic() + self.timeout):
                return "timeout"
            more = sock.recv(MAX_LINE)
            if not more:
                break
            data += more
        return judge_answer(read_line(data), self.probe_id, peer)

    def exchange(self, sock: socket.socket) -> Step:
        """Small packets came through; whether full ones do shows only when some are sent."""
        left = EXCHANGE_BYTES
        while left:
            if not (yield sock, WRITE, time.monotonic() + self.timeout):
                return "mtu"
            left -= sock.send(bytes(left))
        if not (yield sock, READ, time.monotonic() + self.timeout):
            return "mtu"
        return "" if sock.recv(MAX_LINE) else "stranger"

    def search_mtu(self, attempt: Attempt, high: int) -> Generator[Wait, bool, Optional[int]]:
        """The largest packet that passes unfragmented, by datagrams of known size; None where none is answered."""
        prefix = self.probe_id.encode()
        low = 0
        with new_socket(attempt.address, socket.SOCK_DGRAM) as sock:
            try:
                sock.setblocking(False)
                if attempt.family == 6:
                    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
                else:
                    sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
                sock.bind((attempt.source, 0))
                sock.connect((attempt.address, attempt.udp_port))
            except OSError:
                return None
            while low < high:
                sizes = packet_sizes(low, high) if low else (*packet_sizes(LEAST_MTU, high), LEAST_MTU)
                for size in sizes * BURST_COPIES:
                    body = prefix + b"%08d" % size
                    try:
                        sock.send(body.ljust(datagram_payload(size, attempt.family), b"\0"))
                    except OSError:
                        continue
                passed: List[int] = []
                until = time.monotonic() + BURST_SECONDS
                while max(sizes) not in passed and (yield sock, READ, until):
                    try:
                        passed.append(int(sock.recv(MAX_LINE)[len(prefix) :]))
                    except (OSError, ValueError):
                        continue
                low, high = narrowed(sizes, passed, low)
                if not low:
                    return None
        return low

    def measure_bandwidth(self, seconds: float, most: int) -> None:
        """Send at full speed, one peer after the other; a peer receives from one node at a time and says when busy."""
        for position in worth_measuring(self.links):
            found = self.links[position]
            give_up = time.monotonic() + 20 * seconds + self.timeout
            while time.monotonic() < give_up:
                try:
                    mbps = self.flood(found, seconds, most)
                except OSError:
                    break
                if mbps is not None:
                    found["bandwidth_mbps"] = mbps
                    break
                time.sleep(seconds / 4)

    def flood(self, found: Mapping[str, Any], seconds: float, most: int) -> Optional[float]:
        """Mb/s that arrived, or None where the peer is busy."""
        address = found["target_address"]
        with new_socket(address, socket.SOCK_STREAM) as sock:
            sock.settimeout(self.timeout)
            sock.bind((found["source_address"], 0))
            sock.connect((address, self.ports[found["target"], address]))
            sock.sendall(line(probe=self.probe_id, verb="flood"))
            with sock.makefile("rb") as answers:
                words = read_line(answers.readline(MAX_LINE))
                if not words or words.get("busy") or judge_answer(words, self.probe_id, found["target"]):
                    return None
                chunk = bytes(CHUNK)
                sent, until = 0, time.monotonic() + seconds
                while sent < most and time.monotonic() < until:
                    sent += sock.send(chunk[: most - sent])
                sock.shutdown(socket.SHUT_WR)
                # What is still in the buffers of a slow link needs time to drain.
                sock.settimeout(self.timeout + 10 * seconds)
                words = read_line(answers.readline(MAX_LINE)) or {}
        took = float(words.get("seconds") or 0)
        return round(8e-6 * int(words.get("bytes") or 0) / took, 1) if took else None


def preferred_source(attempt: Attempt) -> Optional[str]:
    """The address that routing would send from, where it is not the attempt's own. Sends nothing."""
    with new_socket(attempt.address, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((attempt.address, attempt.port))
        except OSError:
            return None
        source = str(sock.getsockname()[0])
    return None if source == attempt.source else source


def path_mtu(sock: socket.socket) -> Optional[int]:
    """What a connection has learnt of its path."""
    family = 6 if sock.family == socket.AF_INET6 else 4
    level, option = (socket.IPPROTO_IPV6, IPV6_MTU) if family == 6 else (socket.IPPROTO_IP, IP_MTU)
    try:
        kernel_mtu: Optional[int] = sock.getsockopt(level, option)
    except OSError:
        kernel_mtu = None
    segment = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return tcp_path_mtu(kernel_mtu, segment, bool(info[TCP_INFO_OPTIONS] & TCP_OPTION_TIMESTAMPS), family)


def stop(probe_id: str, listener: Mapping[str, Any], timeout: float) -> bool:
    """Ask this node's own listener to end, and wait until it hangs up."""
    for endpoint in listener.get("endpoints") or ():
        if not endpoint.get("port"):
            continue
        address = endpoint["address"]
        with new_socket(address, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout)
            try:
                sock.bind((address, 0))
                sock.connect((address, endpoint["port"]))
                sock.sendall(line(probe=probe_id, verb="stop"))
            except OSError:
                continue
            with contextlib.suppress(OSError):
                sock.recv(MAX_LINE)
            return True
    return False


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["listening", "probed", "stopped"]},
            "node": {"type": "str", "required": True},
            "probe_id": {"type": "str", "required": True},
            "interfaces": {"type": "list", "elements": "dict", "default": []},
            "listeners": {"type": "dict", "default": {}},
            "lifetime": {"type": "int", "default": 120},
            "timeout": {"type": "float", "default": 3.5},
            "round_interval": {"type": "float", "default": 0.05},
            "bandwidth_seconds": {"type": "float", "default": 0},
            "bandwidth_bytes": {"type": "int", "default": 1073741824},
        },
        supports_check_mode=True,
    )
    given = module.params
    node, probe_id, listeners = given["node"], given["probe_id"], given["listeners"]
    if given["state"] == "listening":
        module.exit_json(changed=False, listener=listen(node, probe_id, given["interfaces"], given["lifetime"]))
    if node not in listeners:
        module.fail_json(msg=f"listeners has no {node!r}, wanted what state=listening returned for each node")
    if given["state"] == "stopped":
        module.exit_json(changed=False, stopped=stop(probe_id, listeners[node], given["timeout"]))
    attempts, settled = plan(node, listeners)
    raise_descriptor_limit()
    prober = Prober(node, probe_id, given["timeout"])
    prober.run(attempts, given["round_interval"])
    if given["bandwidth_seconds"] > 0:
        prober.measure_bandwidth(given["bandwidth_seconds"], given["bandwidth_bytes"])
    module.exit_json(changed=False, links=settled + prober.links)


if __name__ == "__main__":
    main()
