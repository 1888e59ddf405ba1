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
held:
  description: Those that were put on hold by this call.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import socket
import time
from typing import Dict, List, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils import _files, _packages, _software

LOCK_SECONDS = 300
LOCK_PAUSE = 3
ATTEMPTS = 3
APT = ["apt-get", "-y", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "-o", "Dpkg::Options::=--force-confold"]
NO_QUESTIONS = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


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


def installed(module: AnsibleModule, manager: str, names: List[str]) -> Dict[str, str]:
    if manager == "apt":
        form = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n"
        return _packages.installed_apt(run(module, ["dpkg-query", "-W", "-f", form, *names], allow=True))
    form = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"
    return _packages.installed_rpm(run(module, ["rpm", "-q", "--qf", form, *names], allow=True))


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


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "purposes": {"type": "list", "elements": "str", "choices": list(_packages.PURPOSES), "default": []},
            "names": {"type": "list", "elements": "str", "default": []},
            "values": {"type": "dict", "default": {}},
            "hold": {"type": "bool", "default": False},
            "update": {"type": "bool", "default": True},
        },
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
    before = installed(module, manager, names) if names else {}
    missing = list(_packages.missing_packages(wanted, before))
    held = held_now(module, manager) if params["hold"] and not missing else []
    to_hold = [name for name in names if params["hold"] and not is_held(name, held)]
    after = before
    if not module.check_mode:
        if missing:
            needs = [
                need for purpose in params["purposes"] if platform for need in platform.repositories.get(purpose, ())
            ]
            for command in _packages.repository_commands(platform, needs) if platform else ():
                run(module, list(command), ATTEMPTS)
            install(module, manager, missing, params)
            after = installed(module, manager, names)
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
        diff={
            "before": "".join(f"{name} {before[name]}\n" for name in names if name in before),
            "after": "".join(f"{one} (to be installed)\n" for one in missing)
            + "".join(f"{name} {after[name]}\n" for name in names if name in after and name not in missing),
        },
    )


def install(module: AnsibleModule, manager: str, missing: List[str], params: Dict[str, object]) -> None:
    exact = [one for one in missing if "=" in one]
    if manager == "dnf":
        if exact:
            # A lock hides every other version.
            run(module, ["dnf", "versionlock", "delete", *[_packages.split_name(one)[0] for one in exact]], allow=True)
            require_versions(module, exact, offered(module, manager, exact))
        run(module, ["dnf", "-y", "install", *[one.replace("=", "-", 1) for one in missing]], ATTEMPTS)
        return
    if params["update"]:
        run(module, [*APT, "-q", "update"], ATTEMPTS)
    # A version that was asked for by name may be older than the one there, or than the one on hold.
    options = ["--allow-downgrades", "--allow-change-held-packages"] if exact else []
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
    run(module, [*APT, "-q", "--no-install-recommends", *options, "install", *missing], ATTEMPTS)


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
