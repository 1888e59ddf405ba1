"""The built and installed collection, by its full name, from a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder to run in, with the collection installed below it and nothing else of the checkout in sight."""
    folder = tmp_path_factory.mktemp("user")
    # A setting of the tests' own would find the checkout, and install nothing.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    build = [str(BIN / "ansible-galaxy"), "collection", "build", str(ROOT), "--output-path", str(folder)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder, env=environment)
    (tarball,) = folder.glob("torchfleet-cluster-*.tar.gz")
    install = [str(BIN / "ansible-galaxy"), "collection", "install", str(tarball), "-p", "collections"]
    subprocess.run(install, check=True, capture_output=True, cwd=folder, env=environment)
    return folder


def run(lab, folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHONPATH"))}
    environment |= {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"), "ANSIBLE_NOCOLOR": "1", "PWD": str(folder)}
    command = [str(BIN / "ansible-playbook"), "-i", str(lab.folder / "hosts.yml"), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_provision_by_full_name_changes_nothing_on_what_the_checkout_provisioned(lab, installed):
    done = run(lab, installed, "torchfleet.cluster.provision")
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = [line for line in done.stdout.splitlines() if line.startswith("node")]
    assert len(nodes) == 3
    assert all("changed=0" in line for line in nodes)


def test_launch_by_full_name(lab, installed):
    script = installed / "hello.py"
    script.write_text(
        "import os; print('hello from', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n", encoding="utf-8"
    )
    done = run(
        lab, installed, "torchfleet.cluster.launch", "-e", f"launch_script={script}", "-e", "launch_run_id=by-name"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "node2:1 | hello from 1 of 3" in done.stdout
    assert (installed / "runs" / "by-name" / "manifest.json").exists()
