# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare every member's keys with those that its peers hold. No connection: all was collected before."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.torchfleet.cluster.plugins.module_utils._ssh_trust import Peer, Record, strangers
from ansible_collections.torchfleet.cluster.plugins.plugin_utils._identities import peers_from_task_vars


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec={"accept": {"type": "list", "elements": "str"}})
        # "[node3]" is what `-e name=[node3]` makes of a list.
        accepted = {name.strip("[]'\" ") for name in args["accept"] or ()}
        raw, known = peers_from_task_vars(task_vars or {}, self._templar)
        peers = [
            Peer(**{**peer, **{key: tuple(peer[key]) for key in ("aliases", "host_keys", "addresses")}}) for peer in raw
        ]
        records = {
            observer: {
                name: Record(str(held["public_key"]), tuple(held["host_keys"])) for name, held in entries.items()
            }
            for observer, entries in known.items()
        }
        found = strangers(peers, records)
        refused = [stranger for stranger in found if stranger.name not in accepted]
        if refused:
            raise AnsibleActionFail("No trust was given. " + "; ".join(str(stranger) for stranger in refused))
        held_somewhere = {name for entries in records.values() for name in entries}
        return {
            **result,
            "changed": False,
            "accepted": [stranger.name for stranger in found],
            "newcomers": [peer.name for peer in peers if peer.name not in held_somewhere],
        }
