#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: training_run
short_description: Start or end this node's part of a training run
version_added: 0.1.0
description:
  - Starts what the LaunchPlan has for this node as one transient systemd unit, C(torchfleet-<run_id>), so that the
    whole process tree ends with it. On a node without systemd it is a detached process that is found again by its run
    id.
  - Ends it gracefully first, then by force, and proves that no process of the run is left.
options:
  state:
    description:
      - Whether the run is to be running here.
      - V(prepared) lays out its files and starts nothing, for a launcher on another node may start ranks here at once.
      - V(started) then goes on from there.
    type: str
    choices: [prepared, started, stopped]
    default: started
  run_id:
    description: The run.
    type: str
    required: true
  run_dir:
    description: The run's folder on the node.
    type: path
    required: true
  user:
    description: The training user; the run's folder is readable by this user only.
    type: str
    default: root
  python:
    description: The interpreter that runs the supervisor as the training user (any Python from 3.8 on).
    type: path
    default: /usr/bin/python3
  plan:
    description:
      - This node's part of the plan (C(argv), C(env), C(cwd), C(files), C(rank), C(peers), C(others), C(turn),
        C(time_limit), C(stop_grace)).
      - Without C(argv) the ranks that a launcher on the head starts here are waited for, and ended with the run.
    type: dict
    default: {}
  secret_env:
    description: Variables of the ranks' environment whose values are never shown.
    type: dict
    default: {}
  launch:
    description:
      - What any controller needs to take up the run, without secrets. It is kept in the run's folder for
        M(torchfleet.cluster.training_run_info).
    type: dict
    default: {}
  reason:
    description: Why the run is ended, kept in the run's folder for whoever follows it.
    type: str
    default: ''
  scripts:
    description: The supervisor's files by name. Filled in on the controller.
    type: dict
    default: {}
  lib:
    description: The folder on the node for these files, which root alone can change. Filled in on the controller.
    type: path
    default: /var/lib/torchfleet/lib
  stop_grace:
    description: Seconds between the polite signal and the forced one.
    type: float
    default: 10
  master_port:
    description: The run's port on this node, which has to be free when it is over; 0 where it has none here.
    type: int
    default: 0
attributes:
  check_mode:
    support: full
    description: Nothing is started or ended.
  diff_mode:
    support: none
    description: The plan is shown before, by M(torchfleet.cluster.launch_plan).
  action:
    support: full
    description: Adds the supervisor's files.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: End a run on this node
  torchfleet.cluster.training_run:
    state: stopped
    run_id: digits-20261121-101500
    run_dir: /var/lib/torchfleet/runs/digits-20261121-101500
"""

RETURN = r"""
unit:
  description: The systemd unit; empty where the node has no systemd.
  returned: success
  type: str
  sample: torchfleet-digits-20261121-101500.service
agent:
  description: The command that looks at runs on this node, for M(torchfleet.cluster.training_follow).
  returned: success
  type: list
  elements: str
  sample: [/usr/bin/python3, -I, /var/lib/torchfleet/lib/3f2a9c0d1b7e4a55/agent.py]
left:
  description: Process ids of the run that could not be ended.
  returned: when state is stopped
  type: list
  elements: int
  sample: []
"""

import base64
import json
import os
import pwd
import shutil
import socket
import sys
import time
from subprocess import DEVNULL, Popen

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files
from ansible_collections.torchfleet.cluster.plugins.module_utils._account import becoming
from ansible_collections.torchfleet.cluster.plugins.module_utils._ports import port_holder
from ansible_collections.torchfleet.cluster.plugins.module_utils._units import has_systemd, memlock_can_be_raised

SLACK = 5.0  # seconds for the agent to end by itself once the grace is over
PREPARED = "prepared.json"  # a launch that was laid out, until it begins


def unit_name(run_id: str) -> str:
    return f"torchfleet-{run_id}.service"


def agent(module: AnsibleModule) -> list[str]:
    """The supervisor as root runs it: by Ansible's interpreter, not the training's, which another user may own."""
    return [sys.executable, "-I", os.path.join(module.params["lib"], "agent.py")]


def install(module: AnsibleModule) -> None:
    try:
        _files.install_scripts(module.params["lib"], module.params["scripts"])
    except OSError as error:
        module.fail_json(msg=f"{socket.gethostname()}: the supervisor's files cannot be put on the node: {error}")


def sweep(module: AnsibleModule, number: int) -> list[int]:
    params = module.params
    command = agent(module)
    if not os.path.exists(command[-1]):
        return []
    code, out, err = module.run_command([*command, "sweep", params["run_dir"], str(number)])
    if code:
        module.fail_json(
            msg=f"{socket.gethostname()}: processes of {params['run_id']} cannot be looked for: {err.strip()[-300:]}"
        )
    return list(json.loads(out))


def write_owned(path: str, text: str, account: pwd.struct_passwd, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as stream:
        os.fchmod(stream.fileno(), mode)
        os.fchown(stream.fileno(), account.pw_uid, account.pw_gid)
        stream.write(text)


def prepare(module: AnsibleModule, account: pwd.struct_passwd) -> None:
    """The run's folder: private, because environments hold secrets and logs may.

    It becomes the user's when all is in it: until then nobody can put a link where root is about to write.
    """
    run_dir = module.params["run_dir"]
    os.umask(0o022)  # the training user has to get through the folders above
    os.makedirs(os.path.dirname(run_dir), exist_ok=True)
    os.mkdir(run_dir, 0o700)
    plan = dict(module.params["plan"])
    files = plan.pop("files", None) or {}
    for path in files:
        if not os.path.normpath(path).startswith(f"{run_dir}/"):
            raise PermissionError(f"the plan has a file outside of the run's folder: {path}")
    for folder in ("logs", "ranks", "output", *(os.path.relpath(os.path.dirname(path), run_dir) for path in files)):
        os.makedirs(os.path.join(run_dir, folder), 0o700, exist_ok=True)
    for path, text in files.items():
        write_owned(path, text, account, 0o700 if text.startswith("#!") else 0o600)
    env = {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "LANG": "C.UTF-8",
        **plan["env"],
    }
    secret = {name: str(value) for name, value in module.params["secret_env"].items()}
    rank = plan.pop("rank", None)
    if rank is None:
        env.update(secret)
    else:
        # Such a launcher shows its environment to other nodes and to files: the ranks get theirs from this one.
        payload = {**rank, "env": {**env, **rank["env"], **secret}}
        write_owned(os.path.join(run_dir, "payload.json"), json.dumps(payload), account, 0o600)
        plan["cwd"] = run_dir
        if not plan["argv"]:
            plan["argv"] = [module.params["python"], "-I", os.path.join(module.params["lib"], "attend.py"), run_dir]
    write_owned(os.path.join(run_dir, "plan.json"), json.dumps({**plan, "env": env}), account, 0o600)
    launch = json.dumps(module.params["launch"])
    for name in ("launch.json", PREPARED) if module.params["state"] == "prepared" else ("launch.json",):
        write_owned(os.path.join(run_dir, name), launch, account, 0o600)
    for folder, _folders, _names in os.walk(run_dir, topdown=False):
        os.chown(folder, account.pw_uid, account.pw_gid)


def is_prepared(module: AnsibleModule) -> bool:
    """Whether this very launch was laid out here and has not begun."""
    run_dir = module.params["run_dir"]
    try:
        handle = os.open(os.path.join(run_dir, PREPARED), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, encoding="utf-8") as stream:
            return not os.path.islink(run_dir) and json.load(stream) == module.params["launch"]
    except (OSError, ValueError):
        return False


def begin(run_dir: str) -> None:
    """It begins once, and now: followers give the supervisor a while to come up, from the plan's time on."""
    os.unlink(os.path.join(run_dir, PREPARED))
    os.utime(os.path.join(run_dir, "plan.json"), follow_symlinks=False)


def start(module: AnsibleModule) -> None:
    params = module.params
    run_dir, run_id = params["run_dir"], params["run_id"]
    account = pwd.getpwnam(params["user"])
    goes_on = params["state"] == "started" and is_prepared(module)
    if os.path.lexists(run_dir) and not goes_on:
        module.fail_json(msg=f"{socket.gethostname()}: a run {run_id} is there already: choose another launch_run_id")
    if module.check_mode:
        module.exit_json(changed=True, unit=unit_name(run_id) if has_systemd() else "", agent=agent(module))
    install(module)
    if goes_on:
        begin(run_dir)
    else:
        try:
            prepare(module, account)
        except OSError as error:
            shutil.rmtree(run_dir, ignore_errors=True)
            module.fail_json(msg=f"{socket.gethostname()}: the run's folder cannot be made: {error}")
    if params["state"] == "prepared":
        module.exit_json(changed=True, unit="", agent=agent(module))
    command = [params["python"], "-I", os.path.join(params["lib"], "agent.py"), "run", run_dir]
    if has_systemd():
        properties = [
            "Type=exec",
            f"User={account.pw_name}",
            "WorkingDirectory=/",
            "KillMode=mixed",  # the agent passes the polite signal on; what then remains is killed
            f"TimeoutStopSec={params['stop_grace'] + SLACK}",  # the agent keeps the grace itself, and lives to report
            "OOMPolicy=continue",  # the rank that was killed is to be named, not the unit
            "TasksMax=infinity",
        ]
        if memlock_can_be_raised():
            properties.append("LimitMEMLOCK=infinity")
        args = [module.get_bin_path("systemd-run", True), f"--unit={unit_name(run_id)}", "--collect", "--quiet"]
        args += [f"--property={entry}" for entry in properties]
        args += [f"--setenv=TORCHFLEET_RUN_ID={run_id}", f"--description=torchfleet run {run_id}", "--", *command]
        code, out, err = module.run_command(args)
        if code:
            shutil.rmtree(run_dir, ignore_errors=True)
            words = (err or out).strip().splitlines()
            module.fail_json(
                msg=f"{socket.gethostname()}: systemd does not start the run: {words[-1] if words else code}"
            )
        module.exit_json(changed=True, unit=unit_name(run_id), agent=agent(module))

    # Not run_command, which waits: the run outlives this module.
    Popen(  # pylint: disable=ansible-bad-function
        command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        env={"PATH": os.defpath, "TORCHFLEET_RUN_ID": run_id},
        cwd="/",
        start_new_session=True,
        preexec_fn=becoming(account),
    )
    module.exit_json(changed=True, unit="", agent=agent(module))


def note(module: AnsibleModule) -> None:
    run_dir = module.params["run_dir"]
    reason = base64.b64encode(module.params["reason"].encode()).decode()
    code, _out, err = module.run_command([*agent(module), "note", run_dir, reason])
    if code and os.path.isdir(run_dir) and not os.access(run_dir, os.W_OK):
        owner = pwd.getpwuid(os.lstat(run_dir).st_uid).pw_name
        module.fail_json(
            msg=f"{socket.gethostname()}: run {module.params['run_id']} is {owner}'s, who alone can end it, beside root"
        )
    if code:  # a full disk, say: it ends all the same
        module.warn(f"the reason could not be noted: {err.strip()[-200:]}")


def on_gpus(module: AnsibleModule, pids: list[int]) -> list[int]:
    """Of processes that are gone, those that the driver still holds GPU memory for."""
    nvidia_smi = module.get_bin_path("nvidia-smi")
    if not nvidia_smi or not pids:
        return []
    code, out, _err = module.run_command([nvidia_smi, "--query-compute-apps=pid", "--format=csv,noheader,nounits"])
    told = {int(word) for word in out.split() if word.isdigit()} if code == 0 else set()
    return sorted(pid for pid in told & set(pids) if not os.path.exists(f"/proc/{pid}"))


def require_free_port(module: AnsibleModule) -> None:
    """Processes are known by their environment; one that cleared its own still listens where the run did."""
    port = module.params["master_port"]
    holder = port_holder(port) if port and not module.check_mode else None
    if holder and not holder.run_id:
        module.fail_json(
            msg=f"{socket.gethostname()}: port {port} of run {module.params['run_id']} is still held by {holder}: "
            f"end it (kill {holder.pid}), or set torchfleet_master_port to another port",
            left=[holder.pid],
        )


def stop(module: AnsibleModule) -> None:
    params = module.params
    systemctl = module.get_bin_path("systemctl") if has_systemd() else None
    unit = unit_name(params["run_id"])
    if not module.check_mode:
        install(module)

    def is_active() -> bool:
        return bool(systemctl) and module.run_command([systemctl, "is-active", "--quiet", unit])[0] == 0

    active = is_active()
    pids = sweep(module, 0)
    if module.check_mode or not (active or pids):
        require_free_port(module)
        module.exit_json(changed=bool(active or pids), unit=unit if systemctl else "", left=[], agent=agent(module))
    if params["reason"]:
        note(module)
    begun = time.monotonic()
    if active:
        code, _out, err = module.run_command([systemctl, "stop", unit])
        if code and is_active():  # else it has ended by itself meanwhile
            module.fail_json(msg=f"{socket.gethostname()}: {unit} cannot be ended: {err.strip()[-300:]}")
    # Also what a launcher started over ssh, outside the unit.
    left = sweep(module, 15)
    # With the unit's end, one grace in all; what was told only now has a moment at least.
    deadline = max(begun + params["stop_grace"], time.monotonic() + min(params["stop_grace"], 1))
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = sweep(module, 0)
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        left = sweep(module, 9)
        time.sleep(0.1)
        left = sweep(module, 0)
    held = left or on_gpus(module, pids)
    deadline = time.monotonic() + SLACK  # the driver frees memory a moment after the process
    while held and not left and time.monotonic() < deadline:
        time.sleep(0.5)
        held = on_gpus(module, pids)
    if held and not left:
        module.fail_json(
            msg=f"{socket.gethostname()}: GPU memory of run {params['run_id']} is still held for processes {held}, "
            "which are gone: the driver has to be reset (nvidia-smi --gpu-reset), or the node rebooted",
            left=held,
        )
    if left:
        module.fail_json(
            msg=f"{socket.gethostname()}: processes {left} of run {params['run_id']} cannot be ended", left=left
        )
    require_free_port(module)
    module.exit_json(changed=True, unit=unit if systemctl else "", left=[], agent=agent(module))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["prepared", "started", "stopped"], "default": "started"},
            "run_id": {"type": "str", "required": True},
            "run_dir": {"type": "path", "required": True},
            "user": {"type": "str", "default": "root"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "plan": {"type": "dict", "default": {}},
            "secret_env": {"type": "dict", "default": {}, "no_log": True},
            "launch": {"type": "dict", "default": {}},
            "reason": {"type": "str", "default": ""},
            "scripts": {"type": "dict", "default": {}},
            "lib": {"type": "path", "default": "/var/lib/torchfleet/lib"},
            "stop_grace": {"type": "float", "default": 10},
            "master_port": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    if module.params["state"] == "stopped":
        stop(module)
    start(module)


if __name__ == "__main__":
    main()
