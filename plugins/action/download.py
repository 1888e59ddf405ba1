# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.urls import open_url
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._download import DownloadError, digest
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._download import (
    check_sha256,
    fetch,
    fetch_current,
    local_file,
)

SECONDS = 60


def open_from(url: str, headers: Mapping[str, str]) -> Any:
    return open_url(url, headers=dict(headers), timeout=SECONDS)


class ActionModule(ActionBase):
    """The controller fetches and verifies; `copy` writes, whole or not at all."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec={
                "url": {"type": "str"},
                "src": {"type": "path"},
                "sha256": {"type": "str"},
                "dest": {"type": "path", "required": True},
                "cache": {"type": "path", "default": "~/.cache/torchfleet"},
                "mode": {"type": "raw", "default": "0644"},
            },
            mutually_exclusive=[["url", "src"]],
            required_one_of=[["url", "src"]],
            required_by={"src": ["sha256"]},
        )
        result.update(changed=False, dest=args["dest"], fetched_bytes=0)
        try:
            wanted = check_sha256(args["sha256"]) if args["sha256"] is not None else ""
            # The node's own word first: where the file is in place nothing is read here either.
            there = self._remote_sha256(args["dest"], task_vars)
            if there and (there == wanted or (not wanted and self._task.check_mode)):
                return result
            if self._task.check_mode:
                return {**result, "changed": True, "msg": f"would bring {args['url'] or args['src']}"}
            cache = Path(os.path.expanduser(args["cache"])) / "downloads"
            if args["src"]:
                path = local_file(args["src"], wanted)
            elif wanted:
                path, result["fetched_bytes"] = fetch(args["url"], wanted, cache, open_from)
            else:
                path, result["fetched_bytes"] = fetch_current(args["url"], cache, open_from, time.time())
                if digest(path) == there:
                    return result
        except DownloadError as error:
            raise AnsibleActionFail(str(error)) from error
        copied = self._copy(path, args, task_vars)
        if copied.get("failed"):
            words = str(copied.get("msg") or copied.get("module_stderr") or "the copy failed").strip()
            copied["msg"] = f"{path.name} could not be written to {args['dest']}, which is as it was: {words}"
        return {**result, **copied}

    def _remote_sha256(self, dest: str, task_vars: dict[str, Any]) -> str:
        found = self._execute_module(
            module_name="ansible.legacy.stat",
            module_args={"path": dest, "get_checksum": True, "checksum_algorithm": "sha256", "get_mime": False},
            task_vars=task_vars,
        )
        return str((found.get("stat") or {}).get("checksum") or "")

    def _copy(self, path: Path, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        task = self._task.copy()
        task.args = {"src": str(path), "dest": args["dest"], "mode": args["mode"]}
        action = self._shared_loader_obj.action_loader.get(
            "ansible.legacy.copy",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        copied: dict[str, Any] = action.run(task_vars=task_vars)
        return copied
