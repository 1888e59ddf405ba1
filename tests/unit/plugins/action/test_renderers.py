# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The three rendering actions as a playbook meets them: three hosts, each a folder of this machine."""

from __future__ import annotations

import copy
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("ansible", reason="the actions run in ansible-core")

from ansible_collections.torchfleet.cluster.plugins.plugin_utils._render import FILE_SPEC

ROOT = Path(__file__).resolve().parents[4]

INVENTORY: dict[str, Any] = {
    "all": {
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "torchfleet_user": "trainer",
            "subnet": "10.20.0",
        },
        "children": {
            "train": {
                "hosts": {
                    # Everything that an inventory does in real life: templates, an alias, another port, facts.
                    "rack1-left": {
                        "hosts_hostname": "n{{ number }}",
                        "number": 1,
                        "torchfleet_address": "{{ subnet }}.1",
                        "torchfleet_gpus": [{"index": 0, "model": "A100"}, {"index": 1, "model": "A100"}],
                    },
                    "n2": {
                        "ansible_host": "192.168.7.2",
                        "torchfleet_network_choice": {"address": "{{ subnet }}.2", "interface": "ens3", "hcas": []},
                        "torchfleet_gpus": [{"index": 0}, {"index": 1}],
                        "ansible_port": 2222,
                    },
                    "n3": {
                        "torchfleet_address": "10.20.0.3",
                        "torchfleet_gpus": "{{ [{'index': 0}, {'index': 1}] }}",
                    },
                }
            }
        },
    }
}

PLAYBOOK = """
- hosts: "{{ torchfleet_group | default('train') }}"
  gather_facts: false
  tasks:
    - name: Write the hostfile
      torchfleet.cluster.hostfile:
        dest: "{{ out }}/{{ inventory_hostname }}/hostfile"
        mode: "0640"
        backup: true
    - name: Write the ssh entries
      torchfleet.cluster.ssh_config:
        dest: "{{ out }}/{{ inventory_hostname }}/ssh_config"
        identity_file: ~/.ssh/id_train
        mode: "0644"
    - name: Write the accelerate configuration
      torchfleet.cluster.accelerate_config:
        dest: "{{ out }}/{{ inventory_hostname }}/accelerate.yml"
        mixed_precision: no
        mode: "0644"
"""

HOSTFILE = "n1 slots=2\nn2 slots=2\nn3 slots=2\n"


class Site:
    """A folder with an inventory, a playbook and one output folder for each host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        for host in ("rack1-left", "n2", "n3"):
            (self.out / host).mkdir(parents=True)
        self.inventory = copy.deepcopy(INVENTORY)
        self.hosts = self.inventory["all"]["children"]["train"]["hosts"]

    def run(self, *options: str, playbook: str = PLAYBOOK) -> tuple[int, dict[str, Any], str]:
        """Exit status, Ansible's own account of the run, and all that it printed."""
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(self.inventory, sort_keys=False))
        (self.folder / "play.yml").write_text(playbook)
        env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        env.update(
            ANSIBLE_COLLECTIONS_PATH=str(ROOT / "playbooks" / "collections"),
            ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default",
            ANSIBLE_INJECT_FACT_VARS="0",
            ANSIBLE_LOCAL_TEMP=str(self.folder / "tmp"),
            ANSIBLE_REMOTE_TEMP=str(self.folder / "tmp"),
            ANSIBLE_NOCOLOR="1",
            ANSIBLE_HOME=str(self.folder / "home"),
        )
        beside = Path(sys.executable).parent / "ansible-playbook"
        program = str(beside) if beside.exists() else shutil.which("ansible-playbook")
        if program is None:
            pytest.skip("there is no ansible-playbook")
        done = subprocess.run(
            [program, "-i", "hosts.yml", "play.yml", "-e", f"out={self.out}", *options],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = done.stdout + done.stderr
        recap = {}
        for line in done.stdout.split("PLAY RECAP")[-1].splitlines():
            host, colon, counts = line.partition(" : ")
            if colon:
                recap[host.strip()] = {key: int(value) for key, value in (c.split("=") for c in counts.split())}
        return done.returncode, recap, printed

    def read(self, host: str, name: str) -> str:
        return (self.out / host / name).read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_check_mode_shows_the_difference_and_writes_nothing(site: Site) -> None:
    code, recap, printed = site.run("--check", "--diff")
    assert code == 0, printed
    assert {host: counts["changed"] for host, counts in recap.items()} == {"rack1-left": 3, "n2": 3, "n3": 3}
    assert "+n2 slots=2" in printed
    assert '+main_process_ip: "10.20.0.1"' in printed
    assert [path for path in site.out.rglob("*") if path.is_file()] == []


def test_files_are_written_once_and_follow_the_inventory(site: Site) -> None:
    code, recap, printed = site.run()
    assert code == 0, printed
    for host in recap:
        assert site.read(host, "hostfile") == HOSTFILE
    assert (site.out / "n2" / "hostfile").stat().st_mode & 0o777 == 0o640

    entries = site.read("n3", "ssh_config")
    assert "Host n2 10.20.0.2\n    HostName 10.20.0.2\n    User trainer\n    Port 2222\n" in entries

    ranks = {host: yaml.safe_load(site.read(host, "accelerate.yml")) for host in recap}
    assert {host: config["machine_rank"] for host, config in ranks.items()} == {"rack1-left": 0, "n2": 1, "n3": 2}
    assert {(c["num_processes"], c["main_process_ip"], c["mixed_precision"]) for c in ranks.values()} == {
        (6, "10.20.0.1", "no")
    }

    code, recap, printed = site.run()
    assert code == 0, printed
    assert {counts["changed"] for counts in recap.values()} == {0}

    site.inventory["all"]["vars"]["torchfleet_head"] = "n3"
    site.inventory["all"]["vars"]["torchfleet_master_port"] = 29700
    code, recap, printed = site.run("--diff")
    assert code == 0, printed
    assert site.read("n2", "hostfile") == "n3 slots=2\nn1 slots=2\nn2 slots=2\n"
    assert list((site.out / "n2").glob("hostfile.*~")), "backup: true keeps the old file"
    assert yaml.safe_load(site.read("n3", "accelerate.yml"))["machine_rank"] == 0
    assert "-main_process_port: 29500" in printed and "+main_process_port: 29700" in printed


def test_variables_of_the_play_set_the_cluster_wide_choices(site: Site) -> None:
    playbook = PLAYBOOK.replace(
        "  tasks:", "  vars:\n    port: 30100\n    torchfleet_master_port: '{{ port }}'\n  tasks:"
    )
    code, _recap, printed = site.run(playbook=playbook)
    assert code == 0, printed
    assert yaml.safe_load(site.read("n2", "accelerate.yml"))["main_process_port"] == 30100


def test_every_culprit_is_named_and_nothing_is_written(site: Site) -> None:
    site.hosts["n3"]["torchfleet_address"] = "10.20.0.1"
    site.hosts["n2"]["torchfleet_slots"] = "two"
    code, _recap, printed = site.run()
    assert code != 0
    assert "n1 and n3 both have the address 10.20.0.1" in printed
    assert "n2: torchfleet_slots is 'two'" in printed
    assert [path for path in site.out.rglob("*") if path.is_file()] == []


def test_a_template_that_fails_is_named_with_its_host(site: Site) -> None:
    site.hosts["n2"]["torchfleet_network_choice"]["address"] = "{{ no_such_thing }}.2"
    code, _recap, printed = site.run("--check")
    assert code != 0
    assert "n2: torchfleet_network_choice cannot be read" in printed
    assert "no_such_thing" in printed


def test_a_misspelt_option_is_named(site: Site) -> None:
    code, _recap, printed = site.run(playbook=PLAYBOOK.replace("mixed_precision", "mixed_percision"))
    assert code != 0
    assert "mixed_percision" in printed


@pytest.mark.parametrize("name", ["hostfile", "ssh_config", "accelerate_config"])
def test_the_documented_options_are_those_that_the_action_takes(name: str) -> None:
    package = "ansible_collections.torchfleet.cluster.plugins"
    documented = yaml.safe_load(importlib.import_module(f"{package}.modules.{name}").DOCUMENTATION)["options"]
    spec = {**importlib.import_module(f"{package}.action.{name}").ActionModule.spec, "dest": FILE_SPEC["dest"]}
    told = {
        option: {key: value for key, value in about.items() if key != "description"}
        for option, about in documented.items()
    }
    assert told == spec
