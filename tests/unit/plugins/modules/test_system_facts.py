# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""system_facts on trees in the shape of /sys, /proc and /etc, and as a whole on the machine that runs the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import yaml

from ansible_collections.torchfleet.cluster.plugins.modules import system_facts

MODULE = "ansible_collections.torchfleet.cluster.plugins.modules.system_facts"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_process(root: Path, pid: int, command: str, run_id: str = "", *files: str) -> None:
    folder = root / "proc" / str(pid)
    write(folder / "cmdline", command.replace(" ", "\0") + "\0")
    write(folder / "environ", f"A=1\0TORCHFLEET_RUN_ID={run_id}\0" if run_id else "A=1\0")
    for number, name in enumerate(files):
        (folder / "fd").mkdir(exist_ok=True)
        (folder / "fd" / str(number)).symlink_to(name)


def test_processes_runs_and_the_holder_of_the_port(tmp_path):
    write(
        tmp_path / "proc/net/tcp",
        "head\n 0: 00000000:733C 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n",
    )
    add_process(tmp_path, 10, "python old.py", "", "socket:[4711]")
    add_process(tmp_path, 11, "python agent.py run /r", "digits-1")
    add_process(tmp_path, 12, "train", "digits-1", "/dev/nvidia0")
    add_process(tmp_path, 13, "train", "digits-0")
    add_process(tmp_path, 14, "sleep 1")
    add_process(tmp_path, 15, "vlc", "", "/dev/nvidiactl", "/dev/nvidia1")
    write(tmp_path / "proc/2/cmdline", "")
    known, runs, holders = system_facts.gather_processes(29500, str(tmp_path))
    assert sorted(known) == ["10", "11", "12", "13", "15"]
    assert {pid for pid, about in known.items() if about["gpu"]} == {"12", "15"}
    assert {run["run_id"]: (sorted(run["pids"]), run["agent"]) for run in runs} == {
        "digits-1": ([11, 12], True),
        "digits-0": ([13], False),
    }
    assert [(holder["pid"], holder["command"]) for holder in holders] == [(10, "python old.py")]


def test_a_port_whose_holder_is_hidden(tmp_path):
    write(tmp_path / "proc/net/tcp6", "head\n 0: 0:733C 0:0000 0A 0:0 0:0 0 0 0 4711 1\n")
    assert system_facts.gather_processes(29500, str(tmp_path))[2][0]["pid"] is None


def add_pci(root: Path, slot: str, address: str, kind: str, vendor: str, **files: str) -> Path:
    device = root / "sys/devices/pci0000:00" / slot / address
    for name, text in {"class": kind, "vendor": vendor, **files}.items():
        write(device / name, text + "\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(os.path.relpath(device, bus))
    return device


def test_pcie_links(tmp_path):
    width = {
        "current_link_width": "8",
        "max_link_width": "16",
        "current_link_speed": "16.0 GT/s PCIe",
        "max_link_speed": "16.0 GT/s PCIe",
    }
    add_pci(tmp_path, "0000:00:01.0", "0000:41:00.0", "0x020000", "0x15b3", **width)
    write(tmp_path / "sys/devices/pci0000:00/0000:00:01.0/max_link_width", "8\n")
    add_pci(tmp_path, "0000:00:02.0", "0000:42:00.0", "0x030200", "0x10de", **width)
    add_pci(tmp_path, "0000:00:03.0", "0000:43:00.0", "0x068000", "0x10de")
    add_pci(tmp_path, "0000:00:04.0", "0000:44:00.0", "0x0c0330", "0x8086", **width)
    virtual = add_pci(tmp_path, "0000:00:01.0", "0000:41:00.1", "0x020000", "0x15b3", **width)
    (virtual / "physfn").symlink_to("../0000:41:00.0")
    links, switches = system_facts.gather_pcie(str(tmp_path))
    assert [(link["address"], link["kind"], link["width"], link["width_max"]) for link in links] == [
        ("0000:41:00.0", "network card", 8, 8),
        ("0000:42:00.0", "GPU", 8, 16),
    ]
    assert switches == 1


def test_pending_reboot(tmp_path):
    assert system_facts.gather_reboot("6.1.0-28-amd64", str(tmp_path)) == {"pending": False, "why": ""}
    write(tmp_path / "boot/vmlinuz-6.1.0-28-amd64", "")
    write(tmp_path / "boot/vmlinuz-6.1.0-30-amd64", "")
    assert system_facts.gather_reboot("6.1.0-28-amd64", str(tmp_path))["pending"]
    write(tmp_path / "run/reboot-required", "")
    write(tmp_path / "run/reboot-required.pkgs", "libc6\nlinux-base\n")
    assert system_facts.gather_reboot("6.1.0-28-amd64", str(tmp_path))["why"] == "for libc6, linux-base"


def test_upgrades_by_dnf(tmp_path, monkeypatch):
    write(tmp_path / "etc/dnf/automatic.conf", "[commands]\napply_updates = yes\n")
    told = "Package: kmod-nvidia-open-dkms\nStatus: install ok installed\n\nPackage: bash\nStatus: install ok installed\n\n"
    monkeypatch.setattr(system_facts, "run", lambda argv, timeout=5: (0, told, ""))
    assert system_facts.gather_upgrades(str(tmp_path)) == {
        "automatic": "dnf-automatic",
        "driver_packages": ["kmod-nvidia-open-dkms"],
    }


def test_revision_is_of_names_and_contents(tmp_path):
    def tree(name: str, **files: str) -> str:
        for file, text in files.items():
            write(tmp_path / name / file.replace("__", "/"), text)
        return system_facts.revision(str(tmp_path / name), time.monotonic() + 60)["hash"]

    one = tree("a", train="1", lib__net="2")
    assert tree("b", train="1", lib__net="2") == one
    write(tmp_path / "b/__pycache__/train.pyc", "x")
    write(tmp_path / "b/.git/HEAD", "x")
    assert system_facts.revision(str(tmp_path / "b"), time.monotonic() + 60)["hash"] == one
    assert tree("c", train="3", lib__net="2") != one
    assert tree("d", train="1", lib__nets="2") != one


def test_revision_without_time_goes_by_size(tmp_path):
    write(tmp_path / "a", "12")
    told = system_facts.revision(str(tmp_path), 0.0)
    assert (told["by_size"], told["listing"]) == (1, {"a": "2 bytes"})
    assert system_facts.revision(str(tmp_path / "none"), 0.0) is None


def test_accelerate_configuration_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    write(tmp_path / "hf/accelerate/default_config.yaml", "num_machines: 2\n")
    write(tmp_path / ".cache/huggingface/accelerate/default_config.json", '{"num_machines": 4}')
    found = system_facts.gather_accelerate(str(tmp_path))
    assert [one["lines"] for one in found] == [["num_machines: 4"], ["num_machines: 2"]]


def test_own_questions(tmp_path):
    write(tmp_path / "rack", "r1\n")
    assert system_facts.answer({"id": "a", "file": str(tmp_path / "rack")}) == {"value": "r1"}
    assert system_facts.answer({"id": "a", "command": ["echo", "x  y"]}) == {"value": "x  y"}
    assert "No such file" in system_facts.answer({"id": "a", "file": str(tmp_path / "none")})["problem"]
    assert system_facts.answer({"id": "a", "command": ["false"]}) == {"problem": "false: exit status 1"}
    assert system_facts.answer({"id": "a", "command": ["no-such-tool"]}) == {"problem": "no-such-tool: exit status 127"}


def test_an_own_question_that_takes_too_long(monkeypatch):
    ask = system_facts.run
    monkeypatch.setattr(system_facts, "run", lambda argv: ask(argv, 0.2))
    assert system_facts.answer({"id": "a", "command": ["sleep", "30"]}) == {"problem": "sleep 30 did not end in 5 s"}
    assert system_facts.answer({"id": "a", "command": ["sh", "-c", "echo no >&2; exit 124"]}) == {"problem": "no"}


def test_a_disk_that_is_not_there_is_looked_for_above(tmp_path):
    assert len(system_facts.gather_disks(["not/yet"])) == 1
    disks = system_facts.gather_disks([str(tmp_path), str(tmp_path / "not" / "yet")])
    assert len(disks) == 1
    assert disks[0]["free_bytes"] > 0
    assert not disks[0]["read_only"]


def test_as_a_whole_on_this_machine():
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    given = {
        "ANSIBLE_MODULE_ARGS": {
            "user": user,
            "names": ["localhost"],
            "revision_roots": [],
            "include": ["gpu", "nccl", "runtime"],
        }
    }
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4] / "playbooks" / "collections")},
    )
    facts = json.loads(done.stdout)
    assert facts["reached"] and not facts["changed"]
    assert "127.0.0.1" in facts["names"]["localhost"] or "::1" in facts["names"]["localhost"]
    assert facts["kernel"] == os.uname().release
    assert facts["ssh"] == {}
    assert facts["gpu"]["status"]
    assert facts["nccl"]["interfaces"]
    assert facts["runtime"]["python"]["path"] == "/opt/torchfleet/venv/bin/python"
    documented = yaml.safe_load(system_facts.RETURN)
    # The clock is the action's to add.
    assert set(documented) - {"clock"} == set(facts) - {"changed", "invocation"}


def test_one_gatherer_that_breaks_does_not_take_the_rest_along(monkeypatch):
    params = {"include": ["gpu", "nccl"], "python": "/p", "environment": {}, "import_torch": False}
    module = SimpleNamespace(params=params, run_command=None, get_bin_path=None)
    monkeypatch.setattr(system_facts._gather_nccl, "gather", lambda asking: {"python": asking.params["python"]})
    monkeypatch.setattr(system_facts._gather_gpu, "gather", lambda asking: 1 / 0)
    assert system_facts.included(module) == {
        "gpu": {"failed": True, "msg": "ZeroDivisionError: division by zero"},
        "nccl": {"python": "/p"},
    }


def test_the_releases_that_sync_keeps_are_no_trees_of_their_own(tmp_path):
    release = tmp_path / ".digits.releases" / "ab12.1795263495346175273"
    release.mkdir(parents=True)
    (release / "train.py").write_text("print(1)")
    (tmp_path / "digits").symlink_to(release)
    found = system_facts.gather_revisions([str(tmp_path)], [], 60)
    assert list(found) == [str(tmp_path / "digits")]
    assert list(found[str(tmp_path / "digits")]["listing"]) == ["train.py"]
