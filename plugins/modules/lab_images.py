#!/usr/bin/python
# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_images
short_description: Make the base images of lab nodes
version_added: 0.1.0
description:
  - Makes one image per Debian release, a minimal system with systemd, sshd and the system's Python.
  - Without O(stock_image) it is made from the distribution's packages with mmdebstrap, so that no image registry is
    needed. With it, a stock image is pulled and the missing packages are added.
  - An image is made once; its name carries a digest of what went in, so that a change makes a new one.
options:
  executable:
    description: The podman command of the lab.
    type: path
    required: true
  nodes:
    description: The nodes, as for M(torchfleet.cluster.lab_nodes); only C(release) is read.
    type: list
    elements: dict
    default: []
  stock_image:
    description: A stock Debian image to start from, for all releases.
    type: str
  init:
    description: The text of the script that runs before systemd.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: Nothing is made.
  diff_mode:
    support: none
    description: There is no text to compare.
author:
  - The torchfleet authors (@torchfleet)
"""

EXAMPLES = r"""
- name: Make the image of Debian 12
  torchfleet.cluster.lab_images:
    executable: /var/lib/torchfleet-lab/podman.sh
    init: "{{ lookup('file', 'lab-init') }}"
    nodes:
      - name: node1
        release: bookworm
"""

RETURN = r"""
images:
  description: The image of each release that the nodes use.
  returned: success
  type: dict
  sample: {"bookworm": "localhost/torchfleet-lab:bookworm-1a2b3c4d"}
made:
  description: Releases whose image this call made.
  returned: success
  type: list
  elements: str
  sample: [bookworm]
"""

import hashlib
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.torchfleet.cluster.plugins.module_utils._lab import RELEASES, canonical_release

# What a minimal server has; no pip, no venv, no rsync: the roles bring what they need.
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "iproute2", "iputils-ping", "sudo",
    "ca-certificates", "procps",
)  # fmt: skip


def image_name(release: str, stock_image: str | None, init: str) -> str:
    digest = hashlib.sha256("\n".join([*PACKAGES, stock_image or "", init]).encode()).hexdigest()[:8]
    return f"localhost/torchfleet-lab:{release}-{digest}"


def checked(module: AnsibleModule, what: str, args: list[str], cure: str) -> None:
    code, out, err = module.run_command(args)
    if code:
        words = [line for line in (err or out).splitlines() if line.strip()]
        module.fail_json(msg=f"{what} failed: {words[-1] if words else code}. {cure}", cmd=args, stderr=err[-4000:])


def bootstrap(module: AnsibleModule, release: str, image: str, init_path: str) -> None:
    mmdebstrap = module.get_bin_path("mmdebstrap", required=True)
    with tempfile.TemporaryDirectory(prefix="torchfleet-lab-", dir=module.tmpdir) as folder:
        tar = os.path.join(folder, "root.tar")
        checked(
            module,
            f"Making the base image of Debian {release} with mmdebstrap",
            [
                mmdebstrap, "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}",
                f"--customize-hook=upload {init_path} /usr/local/sbin/lab-init",
                '--customize-hook=chmod 0755 "$1/usr/local/sbin/lab-init"',
                '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*',
                release, tar,
            ],
            "Check that this machine's package sources answer: apt-get update",
        )  # fmt: skip
        checked(
            module,
            f"Importing the image {image}",
            [
                module.params["executable"],
                "import",
                "--quiet",
                "--change",
                'CMD ["/usr/local/sbin/lab-init"]',
                tar,
                image,
            ],
            "Check the disk space of the container engine's storage",
        )


def from_stock(module: AnsibleModule, stock: str, image: str, init_path: str) -> None:
    executable = module.params["executable"]
    if module.run_command([executable, "image", "exists", stock])[0]:
        checked(
            module,
            f"Pulling {stock}",
            [executable, "pull", "--quiet", stock],
            "No image registry in reach? Unset lab_image, and the image is made from the distribution's packages",
        )
    with tempfile.TemporaryDirectory(prefix="torchfleet-lab-", dir=module.tmpdir) as folder:
        recipe = os.path.join(folder, "Containerfile")
        with open(recipe, "w", encoding="utf-8") as stream:
            stream.write(
                f"FROM {stock}\n"
                "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "
                f"{' '.join(PACKAGES)} && rm -f /etc/ssh/ssh_host_* && rm -rf /var/lib/apt/lists/*\n"
                "COPY lab-init /usr/local/sbin/lab-init\n"
                "RUN chmod 0755 /usr/local/sbin/lab-init\n"
                'CMD ["/usr/local/sbin/lab-init"]\n'
            )
        module.run_command(["cp", init_path, os.path.join(folder, "lab-init")], check_rc=True)
        checked(
            module,
            f"Building {image} from {stock}",
            # chroot: a machine may not let the engine raise the limits that it gives a build container.
            [executable, "build", "--quiet", "--isolation", "chroot", "--tag", image, folder],
            "lab_image must be a Debian image whose package sources answer",
        )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "executable": {"type": "path", "required": True},
            "nodes": {"type": "list", "elements": "dict", "default": []},
            "stock_image": {"type": "str"},
            "init": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    releases = sorted({canonical_release(node.get("release")) for node in module.params["nodes"] or [{}]})
    unknown = [release for release in releases if release not in RELEASES]
    if unknown:
        module.fail_json(
            msg=f"Debian release {unknown[0]!r} is not one of {', '.join(RELEASES)}: set release in lab_nodes"
        )
    stock, init = module.params["stock_image"], module.params["init"]
    images = {release: image_name(release, stock, init) for release in releases}
    made = [
        release
        for release in releases
        if module.run_command([module.params["executable"], "image", "exists", images[release]])[0]
    ]
    if not module.check_mode:
        with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, suffix="-lab-init", encoding="utf-8") as init_file:
            init_file.write(init)
            init_file.flush()
            for release in made:
                if stock:
                    from_stock(module, stock, images[release], init_file.name)
                else:
                    bootstrap(module, release, images[release], init_file.name)
    module.exit_json(changed=bool(made), images=images, made=made)


if __name__ == "__main__":
    main()
