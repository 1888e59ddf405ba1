# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The manifest of a tree, of the controller's or of a node's, kept on the controller for all nodes."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils import _sync_agent
from ansible_collections.torchfleet.cluster.plugins.plugin_utils import _sync
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._inventory import acting_host


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec={
                "path": {"type": "path", "required": True},
                "excludes": {"type": "list", "elements": "str", "default": []},
                "remote": {"type": "bool", "default": False},
                "copy_to": {"type": "path"},
            }
        )
        notes: List[str] = []
        host = ""
        if args["remote"]:
            host = acting_host(self._task, task_vars or {})
            answer = self._execute_module(
                "torchfleet.cluster.sync_source", module_args=dict(self._task.args), task_vars=task_vars
            )
            if answer.get("failed") or "manifest" not in answer:
                return dict(answer)
            release, manifest, top = answer["release"], base64.b64decode(answer["manifest"]), answer["path"]
            notes = list(answer.get("warnings") or ())
            entries = _sync_agent.unpack(manifest)
        else:
            try:
                release, manifest, entries = _sync.scan_here(args["path"], args["excludes"], notes)
                top = args["path"] if os.path.isdir(args["path"]) else os.path.dirname(args["path"])
            except (OSError, _sync_agent.SyncError) as error:
                raise AnsibleActionFail(f"The tree cannot be read: {error}") from error
        _sync.keep_manifest(release, manifest)
        if args["copy_to"] and not self._task.check_mode:
            lines = [
                f"{entry.kind} {entry.mode:04o} {entry.size} {','.join(entry.digests) or '-'} {entry.path!r}"
                + (f" -> {entry.target!r}" if entry.kind == "l" else "")
                for entry in entries
            ]
            Path(args["copy_to"]).write_text(f"# release {release}\n" + "\n".join(lines) + "\n", encoding="utf-8")
        files = [entry for entry in entries if entry.kind == "f"]
        return {
            **result,
            "changed": False,
            "release": release,
            "files": len(files),
            "bytes": sum(entry.size for entry in files),
            "path": top,
            "host": host,
            "folder": tempfile.mkdtemp(prefix="torchfleet-sync-"),
            "warnings": [*result.get("warnings", ()), *notes],
        }
