#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sync_fetch
short_description: Fetch a URL on the node from which all others copy it
version_added: 0.1.0
description:
  - Where the node has the file already, in O(folder) or as part of the tree O(dest), nothing is fetched. In check mode
    it says that, and does no more.
  - What broke off is continued by the next call, where the server goes along with that and still has the same file.
    Nothing is fetched for which there is no room.
options:
  url:
    description: Where the file is.
    type: str
    required: true
  folder:
    description: Folder that keeps the file until it is part of the tree, and what is known of it.
    type: path
    required: true
  dest:
    description: The tree that it becomes.
    type: path
    required: true
  checksum:
    description: What the file has to be, algorithm and hash as V(sha256:...).
    type: str
attributes:
  check_mode:
    support: full
    description: Fetches nothing.
  diff_mode:
    support: none
    description: Files are not shown.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Fetch the model on one node
  torchfleet.cluster.sync_fetch:
    url: https://example.org/model.bin
    folder: /data/.models.fetched
    dest: /data/models
"""

RETURN = r"""
path:
  description: The file; empty where the node does not have it.
  returned: success
  type: str
  sample: /data/.models.fetched/model.bin
fetched_bytes:
  description: Bytes that this call fetched.
  returned: success
  type: int
  sample: 91750400
"""

import hashlib
import json
import socket
import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.torchfleet.cluster.plugins.module_utils import _download
from ansible_collections.torchfleet.cluster.plugins.module_utils._sync_agent import signature, write_json

SECONDS = 60
MODE = 0o644


def open_from(url: str, headers: dict):
    return open_url(url, headers=headers, timeout=SECONDS)


class Fetched:
    """What the URL led to the last time, by a note in the folder."""

    def __init__(self, folder: Path, url: str, checksum: str) -> None:
        self.note, self.url = folder / "source.json", url
        try:
            known = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        self.known = known if known.get("url") == url else {}
        self.wanted = (checksum or self.known.get("sum") or "").lower()
        self.algorithm = self.wanted.partition(":")[0] or "sha256"
        if self.algorithm not in hashlib.algorithms_available:
            raise _download.DownloadError(
                f"sync_checksum is {checksum!r}, wanted an algorithm and a hash as sha256:..."
            )

    def sum_of(self, path: Path) -> str:
        return f"{self.algorithm}:{_download.digest(path, self.algorithm)}"

    def is_at(self, path: Path) -> bool:
        """Whether the node has it there. The file is read only where it looks touched."""
        if not self.known or not path.is_file() or stat.S_IMODE(path.stat().st_mode) != MODE:
            return False
        noted = (self.known["sum"], self.known["signature"]) == (self.wanted, signature(path.stat()))
        return noted or self.sum_of(path) == self.wanted

    def keep(self, path: Path) -> None:
        word = {"url": self.url, "sum": self.wanted, "signature": signature(path.stat())}
        if word != self.known:
            write_json(str(self.note), word)


def fetch(fetched: Fetched, done: Path, checksum: bool) -> int:
    part = done.with_name(done.name + ".part")
    # Of another URL, or of what this one led to before.
    for other in done.parent.iterdir():
        if not other.name.startswith(part.name):
            other.unlink()
    fetched.wanted = fetched.wanted if checksum else ""
    size = _download.receive(fetched.url, part, open_from, socket.gethostname(), "sync_dest", known=checksum)
    found = fetched.sum_of(part)
    if fetched.wanted not in ("", found):
        part.unlink()
        raise _download.DownloadError(f"{fetched.url} has {found}, wanted {fetched.wanted} (sync_checksum)")
    fetched.wanted = found
    part.chmod(MODE)
    part.replace(done)
    return size


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "checksum": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params, host = module.params, socket.gethostname()
    folder, name = Path(params["folder"]), _download.file_name(params["url"])
    done, size = folder / name, 0
    try:
        fetched = Fetched(folder, params["url"], params["checksum"] or "")
        path = next((place for place in (Path(params["dest"]) / name, done) if fetched.is_at(place)), None)
        if module.check_mode:
            module.exit_json(changed=path is None, path=str(path or ""), fetched_bytes=0)
        if path is None:
            path, size = done, fetch(fetched, done, bool(params["checksum"]))
        fetched.keep(path)
    except _download.DownloadError as error:
        module.fail_json(msg=f"{host}: {error}")
    except OSError as error:
        module.fail_json(msg=f"{host}: {error.filename or folder}: {error.strerror}: see to the disk of sync_dest")
    module.exit_json(changed=size > 0, path=str(path), fetched_bytes=size)


if __name__ == "__main__":
    main()
