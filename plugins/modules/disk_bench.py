#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: disk_bench
short_description: Measure how fast folders are written and read
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Writes one large file into each folder, to the disk and not to the page cache, reads it back the same way, and
    removes it.
  - Where the file system knows no direct access, the file is synchronised and dropped from the cache instead.
options:
  paths:
    description: The folders. One that does not exist is measured at the nearest folder above it.
    type: list
    elements: path
    required: true
  bytes:
    description: Size of the file.
    type: int
    default: 268435456
  seconds:
    description: After so long a measurement ends, whatever it has come to.
    type: float
    default: 5
attributes:
  check_mode:
    description: Writes nothing in check mode, and measures nothing.
    support: full
  diff_mode:
    description: There is nothing to show, because nothing lasts.
    support: none
"""

EXAMPLES = r"""
- name: Measure the disk of checkpoints
  torchfleet.cluster.disk_bench:
    paths: [/var/lib/torchfleet]
"""

RETURN = r"""
disks:
  description: One element for each folder.
  returned: always
  type: list
  elements: dict
  contains:
    path:
      description: The folder, as it was given.
      type: str
      returned: always
      sample: /var/lib/torchfleet
    measured_in:
      description: The folder that the file lay in.
      type: str
      returned: always
      sample: /var/lib/torchfleet
    direct:
      description: Whether the page cache was passed by.
      type: bool
      returned: when measured
      sample: true
    write_mbps:
      description: Megabytes a second.
      type: float
      returned: when measured
      sample: 1210.5
    read_mbps:
      description: Megabytes a second.
      type: float
      returned: when measured
      sample: 2100.0
    problem:
      description: Why it was not measured.
      type: str
      returned: when not measured
      sample: No space left on device
"""

import contextlib
import mmap
import os
import time
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._files import nearest_folder

BLOCK = 4 << 20
# What stays free on the disk, whatever is asked for.
SPARE_BYTES = 256 << 20


def open_file(path: str) -> Any:
    """A new file without a name, past the page cache where the file system allows: descriptor, and whether it does."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600), True
    except OSError:
        # The name may be there already where opening failed after making it.
        with contextlib.suppress(OSError):
            os.unlink(path)
        return os.open(path, flags, 0o600), False


def measure(folder: str, size: int, seconds: float) -> Dict[str, Any]:
    space = os.statvfs(folder)
    size = min(size, space.f_bavail * space.f_frsize - SPARE_BYTES) // BLOCK * BLOCK
    if size < BLOCK:
        return {"problem": "too little free space to measure"}
    path = os.path.join(folder, f".torchfleet-bench-{os.getpid()}")
    handle, direct = open_file(path)
    # From here on the file goes with the process, whatever ends it.
    os.unlink(path)
    block = mmap.mmap(-1, BLOCK)  # aligned, as direct access wants it
    block.write(os.urandom(BLOCK))
    try:
        began = time.monotonic()
        written = 0
        while written < size and (not written or time.monotonic() - began < seconds):
            written += os.write(handle, block)
        os.fsync(handle)
        wrote = time.monotonic() - began
        if not direct:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(handle, 0, os.SEEK_SET)
        began = time.monotonic()
        count = 0
        while count < written and (not count or time.monotonic() - began < seconds):
            got = os.readv(handle, [block])
            if not got:
                break
            count += got
        read = time.monotonic() - began
    finally:
        os.close(handle)
        block.close()
    return {
        "direct": direct,
        "write_mbps": round(1e-6 * written / wrote, 1),
        "read_mbps": round(1e-6 * count / read, 1) if count else None,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path", "required": True},
            "bytes": {"type": "int", "default": 268435456},
            "seconds": {"type": "float", "default": 5},
        },
        supports_check_mode=True,
    )
    disks = []
    for path in [] if module.check_mode else module.params["paths"]:
        folder = nearest_folder(os.path.normpath(path))
        try:
            found = measure(folder, module.params["bytes"], module.params["seconds"])
        except OSError as error:
            found = {"problem": str(error.strerror)}
        disks.append({"path": path, "measured_in": folder, **found})
    module.exit_json(changed=False, disks=disks)


if __name__ == "__main__":
    main()
