#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: link_bench
short_description: Measure bandwidth and latency between nodes in disjoint rounds
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Sends at full speed between pairs of nodes, first one way and then the other, and times round trips.
  - All nodes run O(state=prepared) and then, at the same time, O(state=measured). Each meets its partners in the order
    of the rounds, one at a time, so that no pair disturbs another at the same node.
  - Bandwidth is that of several TCP streams in plain Python, as the receiver counts it. Above some 10 Gb/s it measures
    the processor.
options:
  state:
    description:
      - V(prepared) finds a free port and reads what the NIC can do and how it is shaped.
      - V(measured) meets all partners.
    type: str
    required: true
    choices: [prepared, measured]
  interface:
    description: The interface on the training network.
    type: str
    default: ""
  address:
    description: The node's address there.
    type: str
    required: true
  node:
    description: This node's name.
    type: str
    default: ""
  bench_id:
    description: A word that all nodes share and that is new for each measurement.
    type: str
    default: ""
  port:
    description: The port that O(state=prepared) found.
    type: int
    default: 0
  meetings:
    description: >-
      Whom to meet, in order. Each has C(round), C(peer), C(opens) (whether this node makes the connection), C(address)
      and C(port) of the peer.
    type: list
    elements: dict
    default: []
  seconds:
    description: How long to send in each direction.
    type: float
    default: 1
  streams:
    description: TCP streams side by side.
    type: int
    default: 4
  round_trips:
    description: How many round trips to time.
    type: int
    default: 200
  patience:
    description: Seconds to wait for a partner.
    type: float
    default: 30
attributes:
  check_mode:
    description: Measures nothing in check mode.
    support: full
  diff_mode:
    description: There is nothing to show, because nothing changes.
    support: none
"""

EXAMPLES = r"""
- name: Find a port
  torchfleet.cluster.link_bench:
    state: prepared
    address: 10.0.0.1
    interface: eth1
  register: prepared

- name: Measure against one peer
  torchfleet.cluster.link_bench:
    state: measured
    node: node1
    address: 10.0.0.1
    bench_id: a1b2
    port: "{{ prepared.port }}"
    meetings:
      - {round: 0, peer: node2, opens: true, address: 10.0.0.2, port: 40123}
"""

RETURN = r"""
port:
  description: A TCP port of the address that was free.
  returned: when O(state=prepared)
  type: int
  sample: 40123
master_port:
  description: Another one, for the ranks of an all-reduce.
  returned: when O(state=prepared)
  type: int
  sample: 40124
capable_mbps:
  description: The fastest mode that the NIC supports, in megabits a second. V(null) where the driver does not tell.
  returned: when O(state=prepared)
  type: int
  sample: 1000
shaped_mbps:
  description: The rate that traffic control allows the interface. V(null) where there is none.
  returned: when O(state=prepared)
  type: float
  sample: 100.0
links:
  description: What the meetings that this node opened gave, both directions of each.
  returned: when O(state=measured)
  type: list
  elements: dict
  sample:
    - {source: node1, target: node2, mbps: 940.2, latency_seconds: 0.00012, latency_median_seconds: 0.00015}
    - {source: node2, target: node1, mbps: 941.0, latency_seconds: 0.00012, latency_median_seconds: 0.00015}
problems:
  description: Meetings that failed, one sentence each.
  returned: when O(state=measured)
  type: list
  elements: str
  sample: ["node1 does not reach node4 at 10.0.0.4 port 40123: timed out"]
"""

import contextlib
import ctypes
import fcntl
import socket
import struct
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._bench import (
    fastest_mode,
    link_settings_request,
    median,
    read_link_settings,
    shaped_mbps,
)
from ansible_collections.torchfleet.cluster.plugins.module_utils._probe import line, read_line

CHUNK = 1 << 20
MAX_LINE = 4096
CONNECT_SECONDS = 5
# The kernel's SIOCETHTOOL: Python's socket module does not name it.
SIOCETHTOOL = 0x8946


def family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


# ---- what the node says of itself


def free_ports(address: str, count: int) -> List[int]:
    """Ports that nobody holds at this moment, all different."""
    with contextlib.ExitStack() as stack:
        found = []
        for _number in range(count):
            sock = stack.enter_context(socket.socket(family(address), socket.SOCK_STREAM))
            sock.bind((address, 0))
            found.append(int(sock.getsockname()[1]))
    return found


def capable(interface: str) -> Optional[int]:
    """Mb/s of the fastest mode that the NIC supports, asked of the kernel in two steps as ethtool does."""
    words: Tuple[int, ...] = ()
    count = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _step in range(2):
            buffer = bytearray(link_settings_request(-count))
            place = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
            request = struct.pack("16sP", interface.encode(), place)
            try:
                fcntl.ioctl(sock, SIOCETHTOOL, request)
            except OSError:
                return None
            count, words = read_link_settings(bytes(buffer))
            if words:
                break
    return fastest_mode(words)


def shaping(module: AnsibleModule, interface: str) -> Optional[float]:
    binary = module.get_bin_path("tc", opt_dirs=["/sbin", "/usr/sbin"])
    if not binary or not interface:
        return None
    texts = [module.run_command([binary, what, "show", "dev", interface])[1] for what in ("qdisc", "class")]
    return shaped_mbps("\n".join(texts))


# ---- meetings


class Stream:
    """A socket that is read by lines and by blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rest = b""

    def say(self, **words: Any) -> None:
        self.sock.sendall(line(**words))

    def hear(self) -> Dict[str, Any]:
        while b"\n" not in self.rest:
            more = self.sock.recv(MAX_LINE)
            if not more or len(self.rest) > MAX_LINE:
                raise ConnectionError("the connection ended")
            self.rest += more
        head, _newline, self.rest = self.rest.partition(b"\n")
        words = read_line(head)
        if words is None:
            raise ConnectionError("somebody else answered")
        return words


class Meeting:
    """All that two nodes do with each other: one connection for words, and the streams."""

    def __init__(self, words: Stream, streams: List[socket.socket], seconds: float) -> None:
        self.words = words
        self.streams = streams
        self.seconds = seconds

    def send(self) -> None:
        """Fill all streams for the time set, then end each with a mark of its length."""
        until = time.monotonic() + self.seconds

        def fill(sock: socket.socket) -> None:
            block = memoryview(bytes(CHUNK))
            with contextlib.suppress(OSError):
                while time.monotonic() < until:
                    sock.sendall(block)
                # The block's first byte tells the last one.
                sock.sendall(b"\1" + bytes(CHUNK - 1))

        in_threads(fill, self.streams)

    def receive(self) -> float:
        """Mb/s that arrived between the first and the last byte of all streams."""
        counts = [0] * len(self.streams)
        stamps: List[float] = []

        def drain(numbered: Tuple[int, socket.socket]) -> None:
            number, sock = numbered
            buffer = bytearray(CHUNK)
            view = memoryview(buffer)
            with contextlib.suppress(OSError):
                ended = False
                while not ended:
                    filled = 0
                    while filled < CHUNK:
                        got = sock.recv_into(view[filled:])
                        if not got:
                            return
                        if not counts[number]:
                            stamps.append(time.monotonic())
                        filled += got
                        counts[number] += got
                    ended = buffer[0] == 1
                stamps.append(time.monotonic())

        in_threads(drain, list(enumerate(self.streams)))
        took = max(stamps) - min(stamps) if len(stamps) > 1 else 0
        return round(8e-6 * sum(counts) / took, 1) if took > 0 else 0.0


def in_threads(function: Any, items: List[Any]) -> None:
    threads = [threading.Thread(target=function, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Node:
    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.name = str(params["node"])
        self.links: List[Dict[str, Any]] = []
        self.problems: List[str] = []
        # Connections of partners that came before their round, by round.
        self.early: Dict[int, List[Tuple[Stream, Dict[str, Any]]]] = {}

    def run(self) -> None:
        address = self.params["address"]
        with socket.socket(family(address), socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, self.params["port"]))
            listener.listen(256)
            for meeting in self.params["meetings"]:
                try:
                    if meeting["opens"]:
                        with self.opened(meeting) as one:
                            self.lead(one, str(meeting["peer"]))
                    else:
                        with self.accepted(listener, meeting) as one:
                            self.follow(one)
                except OSError as error:
                    why = str(error.strerror or error)
                    verb = "does not reach" if meeting["opens"] else "waited in vain for"
                    self.problems.append(
                        f"{self.name} {verb} {meeting['peer']} at {meeting['address']} port {meeting['port']}: {why}"
                    )
        for streams in self.early.values():
            for stream, _words in streams:
                stream.sock.close()

    def connect(self, meeting: Mapping[str, Any], until: float) -> socket.socket:
        """The partner's module may start a little later: a refusal is tried again."""
        while True:
            sock = socket.socket(family(self.params["address"]), socket.SOCK_STREAM)
            try:
                sock.settimeout(CONNECT_SECONDS)
                sock.bind((self.params["address"], 0))
                sock.connect((meeting["address"], meeting["port"]))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(self.params["patience"])
                return sock
            except ConnectionRefusedError:
                sock.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            except OSError:
                sock.close()
                raise

    @contextlib.contextmanager
    def opened(self, meeting: Mapping[str, Any]) -> Iterator[Meeting]:
        until = time.monotonic() + self.params["patience"]
        with contextlib.ExitStack() as stack:
            socks = []
            for number in range(self.params["streams"] + 1):
                sock = stack.enter_context(self.connect(meeting, until))
                stream = Stream(sock)
                stream.say(probe=self.params["bench_id"], node=self.name, round=meeting["round"], stream=number)
                if not number:
                    first = stream
                    # The partner answers when it has come to this round.
                    answer = first.hear()
                    if answer.get("probe") != self.params["bench_id"] or answer.get("node") != meeting["peer"]:
                        raise ConnectionError("somebody else answered")
                else:
                    socks.append(sock)
            yield Meeting(first, socks, self.params["seconds"])

    @contextlib.contextmanager
    def accepted(self, listener: socket.socket, meeting: Mapping[str, Any]) -> Iterator[Meeting]:
        until = time.monotonic() + self.params["patience"]
        first = self.next_of(listener, meeting["round"], until)
        first.say(probe=self.params["bench_id"], node=self.name)
        with contextlib.ExitStack() as stack:
            stack.enter_context(first.sock)
            streams = []
            for _number in range(self.params["streams"]):
                streams.append(stack.enter_context(self.next_of(listener, meeting["round"], until).sock))
            yield Meeting(first, streams, self.params["seconds"])

    def next_of(self, listener: socket.socket, number: int, until: float) -> Stream:
        """The next connection of this round; those of later ones are kept, strangers are sent away."""
        while True:
            if self.early.get(number):
                return self.early[number].pop(0)[0]
            listener.settimeout(max(0.01, until - time.monotonic()))
            sock, _peer = listener.accept()
            sock.settimeout(self.params["patience"])
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = Stream(sock)
            try:
                words = stream.hear()
            except OSError:
                words = {}
            if words.get("probe") != self.params["bench_id"]:
                sock.close()
                continue
            self.early.setdefault(int(words.get("round", -1)), []).append((stream, words))

    def lead(self, meeting: Meeting, peer: str) -> None:
        trips = []
        words = meeting.words
        for _number in range(self.params["round_trips"]):
            began = time.perf_counter()
            words.sock.sendall(b"?")
            if words.sock.recv(1) != b"!":
                raise ConnectionError("the connection ended")
            trips.append(time.perf_counter() - began)
        words.say(send=False)
        meeting.send()
        there = float(words.hear()["mbps"])
        words.say(send=True)
        back = meeting.receive()
        words.say(mbps=back)
        latency = {
            "latency_seconds": round(min(trips), 7) if trips else None,
            "latency_median_seconds": round(median(trips), 7) if trips else None,
        }
        self.links += [
            {"source": self.name, "target": peer, "mbps": there, **latency},
            {"source": peer, "target": self.name, "mbps": back, **latency},
        ]

    def follow(self, meeting: Meeting) -> None:
        words = meeting.words
        for _number in range(self.params["round_trips"]):
            if words.sock.recv(1) != b"?":
                raise ConnectionError("the connection ended")
            words.sock.sendall(b"!")
        words.hear()
        words.say(mbps=meeting.receive())
        words.hear()
        meeting.send()
        words.hear()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["prepared", "measured"]},
            "interface": {"type": "str", "default": ""},
            "address": {"type": "str", "required": True},
            "node": {"type": "str", "default": ""},
            "bench_id": {"type": "str", "default": ""},
            "port": {"type": "int", "default": 0},
            "meetings": {"type": "list", "elements": "dict", "default": []},
            "seconds": {"type": "float", "default": 1},
            "streams": {"type": "int", "default": 4},
            "round_trips": {"type": "int", "default": 200},
            "patience": {"type": "float", "default": 30},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["state"] == "prepared":
        try:
            port, master_port = free_ports(params["address"], 2)
        except OSError as error:
            module.fail_json(msg=f"{params['address']} cannot be bound: {error.strerror}")
        module.exit_json(
            changed=False,
            port=port,
            master_port=master_port,
            capable_mbps=capable(params["interface"]) if params["interface"] else None,
            shaped_mbps=shaping(module, params["interface"]),
        )
    if module.check_mode:
        module.exit_json(changed=False, links=[], problems=[])
    node = Node(params)
    try:
        node.run()
    except OSError as error:
        module.fail_json(msg=f"{params['address']} port {params['port']} cannot be listened on: {error.strerror}")
    module.exit_json(changed=False, links=node.links, problems=node.problems)


if __name__ == "__main__":
    main()
