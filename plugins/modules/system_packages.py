#!/usr/bin/python

# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_packages
short_description: Packages of the distribution, by what they are for
version_added: 0.1.0
author:
  - The torchfleet authors (@torchfleet)
description:
  - Installs packages of apt or dnf by purpose, whose names this collection knows for each distribution, or by name.
  - Needs nothing on the node but the package manager, so that check mode works on a bare one.
  - Waits for a package manager that is busy, and holds packages where that is asked for.
  - Package files may come from another node that fetched them.
options:
  purposes:
    description: What the packages are for, for example V(pdsh) or V(libaio).
    type: list
    elements: str
    choices:
      - driver_distribution
      - kernel_headers
      - dkms
      - cuda_toolkit
      - cudnn
      - cudnn8
      - nccl
      - build
      - python
      - pdsh
      - libaio
      - ninja
      - time
    default: []
  names:
    description: Packages by name, V(name) or V(name=version); the version may end in V(*).
    type: list
    elements: str
    default: []
  values:
    description:
      - What names of packages are filled in with, C(driver), C(cuda), C(kernel), C(python), C(modules).
      - With C(cudnn) or C(nccl), a version, the packages are of that version, and refused where no repository has it.
    type: dict
    default: {}
  hold:
    description: Keep these packages from being upgraded or removed. V(true) where all of them are meant.
    type: bool
    default: false
  update:
    description: Read the package lists anew before something is installed.
    type: bool
    default: true
  pin:
    description:
      - What keeps O(names) and all that they bring to one version, written before they are installed. Of apt a file of
        preferences, of dnf locks.
    type: dict
    suboptions:
      name:
        description: What it is for, the end of the file's name.
        type: str
        required: true
      packages:
        description: Patterns of packages' names.
        type: list
        elements: str
        required: true
      version:
        description: The version, which may end in V(*).
        type: str
        required: true
  fetch_to:
    description: Download what is missing into this folder, for other nodes that are like this one, and install nothing.
    type: path
  take_from:
    description:
      - A folder that another node filled by O(fetch_to). Files that this node's own package lists ask for, hash by
        hash, are taken from it and not from the network. Nothing is wrong with a folder that is not there.
    type: path
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  platform:
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Install pdsh and what asynchronous reading needs
  torchfleet.cluster.system_packages:
    purposes: [pdsh, libaio]

- name: Install a driver and keep it
  torchfleet.cluster.system_packages:
    names: ["nvidia-driver=535.261.03-*"]
    hold: true
"""

RETURN = r"""
packages:
  description: The packages and their versions after the call.
  returned: success
  type: dict
  sample: {pdsh: 2.34-0.2+b3, libaio-dev: 0.3.113-4}
missing:
  description: Those that were not there before.
  returned: success
  type: list
  elements: str
  sample: [pdsh]
kind:
  description: What has to be the same for one node's package files to serve another, release and machine.
  returned: success
  type: str
  sample: debian 12 x86_64
files:
  description: Package files that were put into O(fetch_to), or taken from O(take_from).
  returned: success
  type: int
  sample: 12
bytes:
  description: Their size.
  returned: success
  type: int
  sample: 351872313
held:
  description: Those that were put on hold by this call.
  returned: success
  type: list
  elements: str
  sample: []
"""

import glob
import os
import shlex
import shutil
import socket
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _fetch, _files, _packages, _software

LOCK_SECONDS = 300
LOCK_PAUSE = 3
ATTEMPTS = 3
APT = ["apt-get", "-y", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "-o", "Dpkg::Options::=--force-confold"]
NO_QUESTIONS = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
APT_PREFERENCES = "/etc/apt/preferences.d"
DNF_CACHE = "/var/cache/dnf"


class Installation(NamedTuple):
    """What the package manager is told: its options, and the packages."""

    manager: str
    options: Tuple[str, ...]
    packages: Tuple[str, ...]

    def command(self, *options: str) -> List[str]:
        begin = [*APT, "-q", "--no-install-recommends"] if self.manager == "apt" else ["dnf", "-y"]
        # dnf's own options belong to its verb.
        verb = ["install", *options] if self.manager == "dnf" else [*options, "install"]
        return [*begin, *self.options, *verb, *self.packages]


def run(module: AnsibleModule, argv: List[str], attempts: int = 1, allow: bool = False) -> str:
    """The command's output. Those that use the network are tried again.

    apt waits for dpkg's lock by itself, and gives up at once where another holds the one of its lists.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        code, out, err = module.run_command(argv, environ_update=NO_QUESTIONS)
        if code == 0 or allow:
            return str(out)
        if "Could not get lock" in err and time.monotonic() < deadline:
            time.sleep(LOCK_PAUSE)
            continue
        attempts -= 1
        if attempts <= 0:
            words = [line for line in (err + out).splitlines() if line.strip() and not line.startswith("W:")]
            module.fail_json(msg=f"{socket.gethostname()}: {' '.join(argv)}: {' '.join(words[-4:]) or code}")


def installed(module: AnsibleModule, manager: str, wanted: Sequence[str]) -> Dict[str, str]:
    if manager == "apt":
        names = [_packages.split_name(one)[0] for one in wanted]
        form = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n"
        return _packages.installed_apt(run(module, ["dpkg-query", "-W", "-f", form, *names], allow=True))
    form = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"
    asked = _packages.names_for_rpm(wanted)
    return _packages.installed_rpm(run(module, ["rpm", "-q", "--qf", form, *asked], allow=True))


def held_now(module: AnsibleModule, manager: str) -> List[str]:
    if manager == "apt":
        return run(module, ["apt-mark", "showhold"]).split()
    return run(module, ["dnf", "-q", "versionlock", "list"], allow=True).split()


def is_held(name: str, held: List[str]) -> bool:
    return any(
        one == name or (one.startswith(f"{name}-") and one[len(name) + 1 : len(name) + 2].isdigit()) for one in held
    )


def platform_here(module: AnsibleModule) -> Optional[_packages.Platform]:
    release = _software.read_release(_files.read("/etc/os-release"))
    return _packages.platform_of(release.id, release.version)


def kind_here(manager: str) -> str:
    release = _software.read_release(_files.read("/etc/os-release"))
    # Minor releases of the RedHat family share their repositories.
    version = release.version.partition(".")[0] if manager == "dnf" else release.version
    return f"{release.id} {version} {os.uname().machine}"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "purposes": {"type": "list", "elements": "str", "choices": list(_packages.PURPOSES), "default": []},
            "names": {"type": "list", "elements": "str", "default": []},
            "values": {"type": "dict", "default": {}},
            "hold": {"type": "bool", "default": False},
            "update": {"type": "bool", "default": True},
            "pin": {
                "type": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "packages": {"type": "list", "elements": "str", "required": True},
                    "version": {"type": "str", "required": True},
                },
            },
            "fetch_to": {"type": "path"},
            "take_from": {"type": "path"},
        },
        mutually_exclusive=[("fetch_to", "take_from")],
        supports_check_mode=True,
    )
    params = module.params
    platform = platform_here(module)
    manager = platform.manager if platform else "apt" if os.path.exists("/usr/bin/dpkg") else "dnf"
    wanted = list(params["names"])
    if params["purposes"] and platform is None:
        module.fail_json(
            msg=f"{socket.gethostname()}: this distribution is not known here, so neither are its packages for "
            f"{', '.join(params['purposes'])}: install them, and leave the role out"
        )
    try:
        for purpose in params["purposes"] if platform else ():
            wanted += _packages.packages_for(platform, purpose, **params["values"])
    except _packages.PackageError as error:
        module.fail_json(msg=f"{socket.gethostname()}: {error}")
    names = [_packages.split_name(one)[0] for one in wanted]
    before = installed(module, manager, wanted) if wanted else {}
    missing = list(_packages.missing_packages(wanted, before))
    held = held_now(module, manager) if params["hold"] and not missing else []
    to_hold = [name for name in names if params["hold"] and not is_held(name, held)]
    after = before
    moved: Dict[str, int] = {}
    if not module.check_mode:
        if missing:
            needs = [
                need for purpose in params["purposes"] if platform for need in platform.repositories.get(purpose, ())
            ]
            for command in _packages.repository_commands(platform, needs) if platform else ():
                run(module, list(command), ATTEMPTS)
            installation = prepare(module, manager, missing, params)
            if params["fetch_to"]:
                moved = fetch(module, installation, params["fetch_to"])
                module.exit_json(changed=bool(moved), missing=missing, held=[], packages=before, **told(manager, moved))
            moved = install(module, installation, params["take_from"])
            after = installed(module, manager, wanted)
            still = _packages.missing_packages(wanted, after)
            if still:
                module.fail_json(
                    msg=f"{socket.gethostname()}: after the installation still missing: {', '.join(still)}"
                )
        if to_hold and manager == "apt":
            run(module, ["apt-mark", "hold", *to_hold])
        elif to_hold:
            run(module, ["dnf", "-y", "install", "python3-dnf-plugin-versionlock"], ATTEMPTS)
            run(module, ["dnf", "versionlock", "add", *to_hold])
    shown = {name: after.get(name, "") for name in names}
    module.exit_json(
        changed=bool(missing or to_hold),
        packages=shown,
        missing=missing,
        held=to_hold,
        **told(manager, moved),
        diff={
            "before": "".join(f"{name} {before[name]}\n" for name in names if name in before),
            "after": "".join(f"{one} (to be installed)\n" for one in missing)
            + "".join(f"{name} {after[name]}\n" for name in names if name in after and name not in missing),
        },
    )


def told(manager: str, moved: Dict[str, int]) -> Dict[str, Any]:
    return {"kind": kind_here(manager), "files": len(moved), "bytes": sum(moved.values())}


def prepare(module: AnsibleModule, manager: str, missing: List[str], params: Dict[str, Any]) -> Installation:
    """Lists read anew, versions chosen and pinned; fails where a repository has not what is wanted."""
    exact = [one for one in missing if "=" in one]
    pin = params["pin"]
    if manager == "dnf":
        locked = [_packages.split_name(one)[0] for one in exact]
        locked += _packages.lock_patterns(pin["packages"], pin["version"]) if pin else ()
        if locked:
            # A lock hides every other version.
            run(module, ["dnf", "versionlock", "delete", *locked], allow=True)
        if exact:
            require_versions(module, exact, offered(module, manager, exact))
        if pin:
            run(module, ["dnf", "-y", "install", "python3-dnf-plugin-versionlock"], ATTEMPTS)
            run(module, ["dnf", "versionlock", "add", *[f"{one}-{pin['version']}" for one in pin["packages"]]])
        return Installation(manager, (), tuple(one.replace("=", "-", 1) for one in missing))
    if params["update"]:
        run(module, [*APT, "-q", "update"], ATTEMPTS)
    # A version that was asked for by name may be older than the one there, or than the one on hold.
    options = ("--allow-downgrades", "--allow-change-held-packages") if exact else ()
    if exact:
        there = offered(module, manager, exact)
        require_versions(module, exact, there)
        chosen = [
            f"{name}={_packages.newest_match(version, there[name])}"
            for name, version in map(_packages.split_name, exact)
        ]
        named = {_packages.split_name(one)[0] for one in missing}
        along = _packages.exact_dependencies(run(module, ["apt-cache", "show", *chosen], allow=True))
        missing = [*missing, *[one for one in along if _packages.split_name(one)[0] not in named]]
    if pin:
        text = _packages.apt_preferences(pin["packages"], pin["version"])
        _files.replace(os.path.join(APT_PREFERENCES, f"torchfleet-{pin['name']}"), text)
    return Installation(manager, options, tuple(missing))


def install(module: AnsibleModule, installation: Installation, folder: Optional[str]) -> Dict[str, int]:
    """Install, and say which files came from the folder, by size. What was taken from it goes again."""
    taken: Dict[str, int] = {}
    placed: List[str] = []
    try:
        if folder and os.path.isdir(folder):
            for path in take(module, installation, folder):
                placed.append(path)
                taken[os.path.basename(path)] = os.path.getsize(path)
        run(module, installation.command(), ATTEMPTS)
    finally:
        for path in placed:
            remove(path)
    return taken


def fetch(module: AnsibleModule, installation: Installation, folder: str) -> Dict[str, int]:
    """Download what an installation needs into the folder, and say what that is, by size."""
    _files.fresh_folder(folder)
    found: Dict[str, int] = {}
    if installation.manager == "apt":
        work = f"{folder}.part"
        os.makedirs(os.path.join(work, "partial"), exist_ok=True)
        run(module, installation.command("--download-only", "-o", f"Dir::Cache::archives={work}"), ATTEMPTS)
        for path in glob.glob(os.path.join(work, "*.deb")):
            found[os.path.basename(path)] = os.path.getsize(path)
            os.rename(path, os.path.join(folder, os.path.basename(path)))
        shutil.rmtree(work, ignore_errors=True)
        return found
    began = time.time()
    run(module, installation.command("--downloadonly"), ATTEMPTS)
    for path in glob.glob(os.path.join(DNF_CACHE, "*", "packages", "*.rpm")):
        if os.stat(path).st_ctime < began - 1:
            continue
        # dnf has a folder for each repository, and looks for a package in that of its own.
        place = os.path.join(folder, os.path.relpath(path, DNF_CACHE))
        if not os.path.isdir(os.path.dirname(place)):
            _files.fresh_folder(os.path.dirname(place))
        shutil.copyfile(path, place)
        os.chmod(place, 0o644)
        found[os.path.basename(path)] = os.path.getsize(path)
    return found


def take(module: AnsibleModule, installation: Installation, folder: str) -> Iterator[str]:
    """Put into the package manager's cache what it would fetch and the folder has; yields where each file now lies.

    Copies, as others than root may have written what is in the folder. apt looks at the size alone of what lies in its
    cache: the hash of its index is compared here. dnf compares it.
    """
    if installation.manager == "apt":
        ask = installation.command("--print-uris", "-o", "Acquire::ForceHash=SHA256")
        wanted = _fetch.wanted_by_apt(run(module, ask, allow=True))
        answer = run(module, ["apt-config", "shell", "A", "Dir::Cache::archives/d"], allow=True)
        archives = "".join(shlex.split(answer)).partition("=")[2] or "/var/cache/apt/archives/"
        for name, file in wanted.items():
            place = os.path.join(archives, name)
            if _files.copy_checked(os.path.join(folder, name), place, file.sha256):
                yield place
        return
    run(module, ["dnf", "-q", "-y", "makecache"], allow=True)
    for path in glob.glob(os.path.join(folder, "*", "packages", "*.rpm")):
        repository, name = path.split(os.sep)[-3], os.path.basename(path)
        if os.path.isdir(os.path.join(DNF_CACHE, repository)):
            os.makedirs(os.path.join(DNF_CACHE, repository, "packages"), exist_ok=True)
            place = os.path.join(DNF_CACHE, repository, "packages", name)
            if _files.copy_checked(path, place):
                yield place


def remove(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)


def offered(module: AnsibleModule, manager: str, exact: List[str]) -> Dict[str, Tuple[str, ...]]:
    names = [_packages.split_name(one)[0] for one in exact]
    if manager == "apt":
        return _packages.offered_apt(run(module, ["apt-cache", "madison", *names], allow=True))
    form = "%{name}\\t%{evr}\\n"
    return _packages.offered_dnf(run(module, ["dnf", "-q", "repoquery", "--qf", form, *names], ATTEMPTS))


def require_versions(module: AnsibleModule, exact: List[str], there: Dict[str, Tuple[str, ...]]) -> None:
    problem = _packages.refused_versions(exact, there)
    if problem:
        module.fail_json(msg=f"{socket.gethostname()}: {problem}: nothing was installed")


if __name__ == "__main__":
    main()
