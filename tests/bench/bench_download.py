# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bytes that come from the network when many nodes want one artifact: a server on loopback counts them.

Those of package managers are counted by the molecule scenario `stack`, as it did last; it runs where it never did.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._download import fetch

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "downloads.json"
NODES = (1, 8, 64)
SIZE = 64 << 20


class Server(http.server.SimpleHTTPRequestHandler):
    """Counts what it serves."""

    served = 0

    def copyfile(self, source: Any, outputfile: Any) -> None:
        super().copyfile(source, outputfile)
        Server.served += source.tell()

    def log_message(self, *_words: Any) -> None:
        pass


def open_from(url: str, start: int) -> Any:
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    return urllib.request.urlopen(request, timeout=60)


def one(nodes: int, url: str, sha256: str, cache: Path) -> tuple[int, float]:
    Server.served = 0
    began = time.monotonic()
    threads = [threading.Thread(target=fetch, args=(url, sha256, cache, open_from)) for _node in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Server.served, time.monotonic() - began


def packages() -> str:
    if not RESULTS.exists():
        subprocess.run([str(ROOT / "scripts" / "molecule.sh"), "stack"], check=True)
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = [
        f"| {name} | {one['nodes']} | {one['files']} | {one['bytes'] / (1 << 20):.1f} |"
        for name, one in sorted(found.items())
    ]
    return (
        "Packages that all nodes of a lab lack, from a repository and a channel by HTTP that count what they are asked for, and wheels "
        "from an\nindex that one node alone can reach: as one node fetches for all (`once`), or every node for itself. A second provision "
        "asks for nothing.\n\n"
        "| packages of | nodes | files fetched | MiB |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def measure() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "www").mkdir()
        content = os.urandom(SIZE)
        (folder / "www" / "installer.run").write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Server, directory=str(folder / "www"))
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/installer.run"
        rows = []
        for nodes in NODES:
            served, seconds = one(nodes, url, sha256, folder / f"cache{nodes}")
            rows.append(f"| {nodes} | {served >> 20} | {(nodes * SIZE) >> 20} | {seconds:.1f} |")
        server.shutdown()
    table = "\n".join(rows)
    return (
        "## Downloads\n\nAn artifact of 64 MiB that all nodes want at once: MiB that the controller fetched for them, MiB that they would "
        "fetch each for itself,\nand seconds until the last of them has the verified file at hand on the controller.\n\n"
        f"| nodes | fetched | each for itself | seconds |\n| --- | --- | --- | --- |\n{table}\n\n" + packages()
    )
