# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from ansible_collections.torchfleet.cluster.plugins.module_utils import _cluster
from ansible_collections.torchfleet.cluster.plugins.module_utils import _nvidia_smi as smi

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "nvidia_smi"
SHARED = Path(__file__).resolve().parents[4].parent / "shared" / "fixtures" / "nvidia_smi"
MIB = 1 << 20
NO_MACHINE = smi.Machine()

TWO = (FIXTURES / "two_h100.xml").read_text()
OLD = (FIXTURES / "old_p100.xml").read_text()
MIG = (FIXTURES / "mig_a100.xml").read_text()
TOPO = (FIXTURES / "two_h100.topo.txt").read_text()


def facts(text, rc=0, stderr="", machine=NO_MACHINE, **more):
    return smi.build_facts(machine, smi.CommandResult(rc, text, stderr), timeout=30, **more)


def without_second_gpu(text):
    start = text.index('\t<gpu id="00000000:C3')
    return text[:start] + text[text.index("</nvidia_smi_log>") :]


def swapped(text):
    head, first, second = re.split(r"(?=\t<gpu id=)", text)
    second, tail = second.split("</nvidia_smi_log>")
    return head + second + first + "</nvidia_smi_log>" + tail


# --- a healthy record, field by field


def test_every_fact_of_a_gpu():
    gpu = facts(TWO).gpus[0]
    assert smi.to_facts(gpu) == {
        "index": 0,
        "uuid": "GPU-aaaaaaaa-0000-4000-8000-000000000000",
        "model": "NVIDIA H100 80GB HBM3",
        "architecture": "Hopper",
        "memory_bytes": 81559 * MIB,
        "memory_used_bytes": 4 * MIB,
        "pci_address": "0000:1b:00.0",
        "minor_number": 0,
        "serial": "1001",
        "brand": "NVIDIA",
        "vbios": "96.00.00.00.01",
        "virtualization": "None",
        "lost": False,
        "persistence": True,
        "compute_mode": "Default",
        "performance_state": "P0",
        "mig": {"current": False, "pending": False, "instances": []},
        "ecc": {
            "current": True,
            "pending": True,
            "volatile": {"corrected": 3, "uncorrected": 0},
            "aggregate": {"corrected": 21, "uncorrected": 7},
            "row_remap": {"corrected": 0, "uncorrected": 1, "pending": False, "failure": False},
            "retired_pages": {"single_bit": None, "double_bit": None, "pending": None},
        },
        "clocks": {"graphics": 1980, "sm": 1980, "memory": 2619, "video": 1545},
        "clocks_max": {"graphics": 1980, "sm": 1980, "memory": 2619, "video": 1545},
        "throttle_reasons": ["gpu_idle"],
        "power": {
            "draw": 71.3,
            "limit": 700.0,
            "default_limit": 700.0,
            "min_limit": 200.0,
            "max_limit": 700.0,
            "state": "P0",
        },
        "temperature": {"gpu": 31, "memory": 40, "slowdown": 87, "shutdown": 92},
        "processes": [
            {
                "pid": 4711,
                "kind": "C",
                "name": "/opt/venv/bin/python",
                "memory_bytes": 2048 * MIB,
                "gpu_instance_id": None,
                "compute_instance_id": None,
            }
        ],
        "fabric": {
            "state": "Completed",
            "status": "Success",
            "clique_id": 7,
            "cluster_uuid": "bbbbbbbb-0000-4000-8000-000000000000",
            "health": {
                "summary": "Healthy",
                "bandwidth": "Full",
                "route_unhealthy": "False",
                "incorrect_configuration": "None",
            },
        },
        "nvlink": None,
        "pcie": {"generation": 5, "generation_max": 5, "width": 16, "width_max": 16},
        "numa_node": None,
        "cpu_affinity": None,
        "problems": [],
        "notes": [],
    }


def test_the_record_as_a_whole():
    record = facts(TWO)
    assert (record.status, record.driver_version, record.cuda_version) == ("ok", "570.10.01", "12.8")
    assert (record.attached_gpus, len(record.gpus)) == (2, 2)
    assert record.problems == ()
    assert record.notes == ("GPU 1 (0000:c3:00.0): MIG is switched on at the next reset",)
    json.dumps(smi.to_facts(record))


def test_facts_make_the_gpus_of_a_cluster():
    plain = smi.to_facts(facts(TWO))
    cluster = _cluster.build_cluster([{"name": "a", "address": "10.0.0.1", "gpus": plain["gpus"]}])
    assert cluster.head.slots == 2
    assert cluster.head.gpus[1].memory_bytes == 81559 * MIB
    assert cluster.head.gpus[1].architecture == "Hopper"


def test_an_old_record():
    record = facts(OLD)
    gpu = record.gpus[0]
    assert (record.driver_version, record.cuda_version, gpu.architecture) == ("390.10", None, "")
    assert gpu.ecc.volatile == smi.EccCounts(3, 0)
    assert gpu.ecc.aggregate == smi.EccCounts(11, 1)  # no total: the sum of the parts
    assert gpu.ecc.retired_pages == smi.RetiredPages(2, 1, True)
    assert gpu.power == smi.Power(draw=31.2, limit=200.0, state="P0")
    assert gpu.throttle_reasons == ("sw_power_cap",)
    assert gpu.mig == smi.Mig()
    assert record.problems == ("GPU 0 (0000:04:00.0) waits for bad memory pages to be retired: reset it or reboot",)
    assert record.notes == ("GPU 0 (0000:04:00.0): ECC is switched off at the next reset",)


def test_mig_instances_are_named_by_the_list():
    listing = smi.CommandResult(0, (FIXTURES / "mig_a100.list.txt").read_text())
    gpu = facts(MIG, listing=listing).gpus[0]
    assert gpu.mig.current is True
    assert gpu.mig.instances == (
        smi.MigInstance(0, 2, 0, "3g.40gb", "MIG-eeeeeeee-0000-5000-8000-000000000000", 40192 * MIB, 42),
        smi.MigInstance(1, 5, 0, "1g.10gb+me", "MIG-eeeeeeee-0000-5000-8000-000000000001", 9856 * MIB, 14),
    )
    assert gpu.processes[0].gpu_instance_id == 5
    assert gpu.processes[0].memory_bytes is None
    assert facts(MIG).gpus[0].mig.instances[1].uuid is None


# --- what differs from driver to driver


@pytest.mark.parametrize(
    "old, new, driver, cuda",
    [
        ("driver_version>", "kmd_version>", "570.10.01", "12.8"),
        ("cuda_version>", "cuda_umd_version>", "570.10.01", "12.8"),
        ("cuda_version>", "cuda_driver_version>", "570.10.01", "12.8"),
        (">12.8<", ">N/A<", "570.10.01", None),
        (">12.8<", ">[N/A]<", "570.10.01", None),
        (">12.8<", ">Not Found<", "570.10.01", None),
        (">570.10.01<", "><", None, "12.8"),
    ],
)
def test_versions(old, new, driver, cuda):
    record = facts(TWO.replace(old, new))
    assert (record.driver_version, record.cuda_version, record.status) == (driver, cuda, "ok")


def test_the_kernel_tells_the_driver_version_where_the_record_does_not():
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  610.57.04  Release Build\nGCC version: gcc 13.3.0"
    record = facts(TWO.replace(">570.10.01<", ">N/A<"), machine=smi.Machine(driver_text=text))
    assert record.driver_version == "610.57.04"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(re.sub(r"<!DOCTYPE.*\n", "", TWO), id="no-dtd"),
        pytest.param(TWO.replace("v12.dtd", "v27.dtd"), id="newer-dtd"),
        pytest.param(TWO.split("\n", 2)[2], id="no-prolog"),
        pytest.param("\ufeff" + TWO, id="byte-order-mark"),
        pytest.param(TWO.replace("\n", "\r\n"), id="crlf"),
        pytest.param(
            TWO.replace("<timestamp>", "<novelty><deep at='1'>8 %</deep></novelty><timestamp>"), id="unknown-in-log"
        ),
        pytest.param(TWO.replace("<uuid>", "<novelty><deep>8 %</deep></novelty><uuid>"), id="unknown-in-gpu"),
        pytest.param(TWO.replace(">1001<", ">1001&undefined;<"), id="undefined-entity"),
        pytest.param(TWO.replace(">1001<", ">10\x0001&<"), id="characters-that-xml-forbids"),
        pytest.param(TWO.replace("/opt/venv/bin/python", "[python] <defunct> & sons"), id="process-name-as-it-is"),
        pytest.param(re.sub("<attached_gpus>.*\n", "", TWO), id="no-number-announced"),
        pytest.param(TWO + TWO, id="printed-twice"),
        pytest.param(swapped(TWO), id="out-of-order"),
    ],
)
def test_variants_of_the_same_record(text):
    record = facts(text)
    assert record.status == "ok"
    assert record.problems == ()
    assert [(gpu.index, gpu.uuid[-1], gpu.pci_address) for gpu in record.gpus] == [
        (0, "0", "0000:1b:00.0"),
        (1, "1", "0000:c3:00.0"),
    ]
    assert record.gpus[0].fabric.state == "Completed"
    assert len(record.gpus[0].processes) == 1


def test_process_names_keep_their_characters():
    assert facts(TWO.replace("/opt/venv/bin/python", "a <b> &amp; c")).gpus[0].processes[0].name == "a <b> & c"


def test_a_document_type_is_never_expanded():
    bomb = "<!DOCTYPE nvidia_smi_log [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;'><!ENTITY x SYSTEM 'file:///etc/passwd'>]>"
    text = re.sub(r"<!DOCTYPE.*", bomb, TWO).replace(">1001<", ">&b;&x;<")
    record = facts(text)
    assert record.gpus[0].serial == "&b;&x;"
    assert record.status == "ok"
    assert record.notes == facts(TWO).notes


@pytest.mark.parametrize(
    "value",
    [
        "N/A",
        "[N/A]",
        "Not Supported",
        "[Not Supported]",
        "Requested functionality has been deprecated",
        "Insufficient Permissions",
        "Function Not Found",
        "",
        "garbage",
    ],
)
def test_a_value_that_is_not_given_is_none_and_no_fault(value):
    text = TWO.replace("71.30 W", value).replace("70.00 W", value).replace("31 C", value).replace("81559 MiB", value)
    gpu = facts(text.replace(">1980 MHz<", f">{value}<")).gpus[0]
    assert (gpu.power.draw, gpu.temperature.gpu, gpu.clocks.sm, gpu.memory_bytes) == (None, None, None, 0)
    assert gpu.problems == ()


@pytest.mark.parametrize("text, size", [("80 GiB", 80 << 30), ("81559 MB", 81559 * MIB), ("524288 KiB", 512 * MIB)])
def test_units_of_memory(text, size):
    assert facts(TWO.replace("81559 MiB", text)).gpus[0].memory_bytes == size


# --- missing, cut, damaged


def test_fewer_elements_than_announced():
    record = facts(without_second_gpu(TWO))
    assert record.status == "partial"
    assert record.reason == "1 of 2 GPUs can be reached"
    assert "nvidia-smi announces 2 GPUs, and 1 could be read" in record.problems


@pytest.mark.parametrize(
    "minors, announced, indices",
    [
        (("0", "1", "3"), "4", [0, 1, 3]),  # the third is missing, and minors agree with the order
        (("5", "6", "7"), "4", [0, 1, 2]),  # a container with the later half of the GPUs
        (("3", "0", "1"), "4", [0, 1, 2]),  # minors that do not follow the PCI address
        (("0", "N/A", "3"), "4", [0, 1, 2]),
        (("0", "1", "3"), "3", [0, 1, 2]),  # nothing is missing: the place counts
    ],
)
def test_index_of_gpus_when_some_are_missing(minors, announced, indices):
    gpus = "".join(
        f'<gpu id="00000000:{bus}:00.0"><uuid>GPU-{bus}</uuid><minor_number>{minor}</minor_number></gpu>'
        for bus, minor in zip(("0A", "1B", "C3"), minors)
    )
    log = smi.parse_log(f"<nvidia_smi_log><attached_gpus>{announced}</attached_gpus>{gpus}</nvidia_smi_log>")
    assert [gpu.index for gpu in log.gpus] == indices
    assert [gpu.uuid for gpu in log.gpus] == ["GPU-0A", "GPU-1B", "GPU-C3"]


def test_index_of_gpus_in_a_record_cut_between_two():
    text = TWO[: TWO.index("</gpu>") + 6].replace("<minor_number>0", "<minor_number>1")
    assert [gpu.index for gpu in facts(text).gpus] == [0]


def test_index_of_gpus_when_the_kernel_knows_all_of_them():
    buses = ("0A", "1B", "C3")
    machine = smi.Machine(
        tuple(smi.PciGpu(f"0000:{bus.lower()}:00.0", "nvidia", known_to_driver=True) for bus in buses)
    )
    gpus = "".join(f'<gpu id="00000000:{bus}:00.0"><minor_number>0</minor_number></gpu>' for bus in ("1B", "C3"))
    text = f"<nvidia_smi_log><attached_gpus>3</attached_gpus>{gpus}</nvidia_smi_log>"
    assert [gpu.index for gpu in facts(text, machine=machine).gpus] == [1, 2]


def test_domains_come_before_buses_in_the_order():
    ids = ("00000010:01:00.0", "00000002:09:00.0", "00000002:0A:00.0")
    gpus = "".join(f'<gpu id="{one}"/>' for one in reversed(ids))
    log = smi.parse_log(f"<nvidia_smi_log>{gpus.replace('/>', '></gpu>')}</nvidia_smi_log>")
    assert [gpu.pci_address for gpu in log.gpus] == ["0002:09:00.0", "0002:0a:00.0", "0010:01:00.0"]


def test_a_record_cut_in_the_second_gpu_keeps_the_first():
    record = facts(TWO[: TWO.index("<uuid>GPU-aaaaaaaa-0000-4000-8000-000000000001")])
    assert record.status == "partial"
    assert [gpu.uuid[-1] for gpu in record.gpus] == ["0"]
    assert record.driver_version == "570.10.01"
    assert "the element of GPU 0000:c3:00.0 is cut off" in record.problems
    assert "the output of nvidia-smi -q -x ends before its end" in record.problems


def test_a_record_cut_behind_its_last_gpu_is_whole():
    record = facts(TWO[: TWO.rindex("</gpu>") + len("</gpu>")])
    assert (record.status, len(record.gpus), record.problems) == ("ok", 2, ())
    assert "the output of nvidia-smi -q -x ends before its end" in record.notes


def test_a_damaged_gpu_does_not_hide_the_other():
    record = facts(TWO.replace("</fb_memory_usage>", "", 1))
    assert [gpu.pci_address for gpu in record.gpus] == ["0000:c3:00.0"]
    assert record.gpus[0].index == 1
    assert "the element of GPU 0000:1b:00.0 is damaged" in record.problems


def test_damage_in_the_list_of_clocks_or_of_processes_costs_no_gpu():
    lists = "<supported_clocks><supported_mem_clock><value>2619 MHz</value></supported_clocks>"
    record = facts(TWO.replace("<uuid>", f"{lists}<uuid>", 1))
    assert (record.status, len(record.gpus), record.problems) == ("ok", 2, ())
    assert "the list of clocks or of processes of GPU 0000:1b:00.0 is damaged" in record.notes
    assert record.gpus[0].memory_bytes == 81559 * MIB


def test_any_cut_gives_the_gpus_that_are_whole():
    ends = [match.end() for match in re.finditer("</gpu>", TWO)]
    for cut in range(len(TWO)):
        record = facts(TWO[:cut])
        assert len(record.gpus) == sum(end <= cut for end in ends)
        assert record.status in smi.STATUSES
        if cut < ends[-1]:
            assert record.status != "ok"
            assert record.gpus == () or record.problems != ()


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "-", "\u00b2"])
def test_odd_numbers_do_no_harm(number):
    text = TWO.replace("31 C", number).replace("81559 MiB", f"{number} MiB").replace(">4711<", f">{number}<")
    topo = TOPO.replace("\t0\t\t", f"\t{number}\t\t")
    listing = f"GPU {number}: x\n  MIG 1g.5gb Device {number}: (UUID: MIG-x)\n"
    record = facts(text, topo=smi.CommandResult(0, topo), listing=smi.CommandResult(0, listing))
    assert record.status == "ok"
    json.dumps(smi.to_facts(record))


# --- what nvidia-smi writes beside its record


def test_a_complaint_goes_to_the_gpu_that_it_names():
    line = "WARNING: infoROM is corrupted at gpu 0000:C3:00.0"
    record = facts(TWO + "\n" + line + "\n", rc=14)
    assert record.status == "ok"
    assert record.gpus[0].problems == ()
    assert record.gpus[1].problems == (f"is complained of: {line}",)
    assert "nvidia-smi ended with exit code 14: an infoROM is corrupted" in record.problems


@pytest.mark.parametrize("where", ["before", "after", "stderr", "within", "cut"])
def test_a_gpu_that_is_lost_to_the_whole_record(where):
    line = "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system"
    gpu = re.search(r"\t<gpu id=.*?</gpu>\n", TWO, re.DOTALL).end()
    text = {
        "before": line + "\n" + TWO,
        "after": TWO + line + "\n",
        "stderr": TWO,
        "within": TWO[:gpu] + line + "\n" + TWO[gpu:],
        "cut": TWO[:gpu] + line + "\n",
    }[where]
    record = facts(text, rc=15, stderr=line if where == "stderr" else "")
    assert record.status == "partial"
    assert len(record.gpus) == (1 if where == "cut" else 2)
    assert any("0000:05:00.0" in problem for problem in record.problems)


def test_harmless_lines_are_notes():
    record = facts("Welcome to this machine\n" + TWO)
    assert record.problems == ()
    assert "nvidia-smi says: Welcome to this machine" in record.notes


def test_mig_devices_that_all_claim_one_index_are_counted():
    indices = iter(range(10))
    text = re.sub(r"(<mig_device>\s*<index>)\d+", lambda match: f"{match.group(1)}0", MIG)
    instances = facts(text).gpus[0].mig.instances
    assert len(instances) > 1
    assert all(instance.index == next(indices) for instance in instances)


# --- health


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ("row_failure>No", "row_failure>Yes", "has failed to remap bad memory rows"),
        ("row_pending>No", "row_pending>Yes", "waits for bad memory rows to be remapped"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>2", "has had 2 uncorrected ECC errors"),
        ("<sram_uncorrectable_parity>0", "<sram_uncorrectable_parity>1", "has had 1 uncorrected ECC errors"),
        ("<pending_retirement>N/A", "<pending_retirement>Yes", "waits for bad memory pages"),
        (
            "<pending_retirement>N/A</pending_retirement>",
            "<pending_blacklist>Yes</pending_blacklist>",
            "bad memory pages",
        ),
        ("<channel_repair_pending>No", "<channel_repair_pending>Yes", "repair of a memory channel"),
        (
            "<uuid>",
            "<remapped_banks><bank_remapper_pending>Yes</bank_remapper_pending></remapped_banks><uuid>",
            "memory banks to be remapped",
        ),
        ("<sram_threshold_exceeded>No", "<sram_threshold_exceeded>Yes", "more SRAM errors than allowed"),
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Reset", "needs recovery, says the driver: Reset"),
        (
            "hw_thermal_slowdown>Not Active",
            "hw_thermal_slowdown>Active",
            "slowed down by its hardware because it is too hot",
        ),
        ("power_brake_slowdown>Not Active", "power_brake_slowdown>Active", "brake signal"),
        ("hw_slowdown>Not Active", "hw_slowdown>Active", "slowed down by its hardware"),
        ("sw_thermal_slowdown>Not Active", "sw_thermal_slowdown>Active", "slowed down by the driver"),
        ("<state>Completed", "<state>In Progress", "has not joined the NVLink fabric (In Progress)"),
        ("<state>Completed", "<state>Not Started", "has not joined the NVLink fabric (Not Started)"),
        (
            "<status>Success",
            "<status>Insufficient Resources",
            "has not joined the NVLink fabric (Insufficient Resources)",
        ),
        ("<route_unhealthy>False", "<route_unhealthy>True", "is not well in the NVLink fabric: route_unhealthy True"),
        ("<bandwidth>Full", "<bandwidth>Degraded", "is not well in the NVLink fabric: bandwidth Degraded"),
        ("<compute_mode>Default", "<compute_mode>Prohibited", "no process can use it"),
        ("<current_mig>Disabled", "<current_mig>Enabled", "has no MIG instance"),
        ("<current_link_width>16x", "<current_link_width>4x", "uses 4 of 16 PCIe lanes"),
        ("71.30 W", "ERR!", "answers 'ERR!' for instant_power_draw"),
        ("71.30 W", "[Unknown Error]", "answers 'Unknown Error' for instant_power_draw"),
        ("81559 MiB", "GPU requires reset", "answers 'GPU requires reset' for total"),
    ],
)
def test_what_is_unhealthy_is_said(old, new, sentence):
    assert old in TWO
    record = facts(TWO.replace(old, new, 1))
    assert [sentence in problem for problem in record.gpus[0].problems] == [True]
    assert record.gpus[1].problems == ()
    assert record.problems == (f"GPU 0 (0000:1b:00.0) {record.gpus[0].problems[0]}",)


@pytest.mark.parametrize(
    "old, new",
    [
        ("<state>Completed", "<state>N/A"),
        ("sw_power_cap>Not Active", "sw_power_cap>Active"),
        ("<dram_correctable>2", "<dram_correctable>900"),
        ("<current_link_width>16x", "<current_link_width>8x"),
        ("<current_link_gen>5", "<current_link_gen>1"),
        ("/opt/venv/bin/python", "ERR!"),
        ("<health>", "<health><novelty>On</novelty>"),
        ("<uuid>", "<addressing_mode>Unknown Error</addressing_mode><uuid>"),
        ("<uuid>", "<remapped_banks><bank_remapper_pending>No</bank_remapper_pending></remapped_banks><uuid>"),
    ],
)
def test_what_is_no_fault(old, new):
    assert old in TWO
    assert facts(TWO.replace(old, new)).problems == ()


def test_an_error_in_place_of_a_setting_is_worth_a_note_and_of_a_sensor_a_problem():
    text = TWO.replace("<uuid>", "<addressing_mode>Unknown Error</addressing_mode><uuid>", 1)
    record = facts(text.replace("31 C", "Unknown Error", 1))
    assert record.gpus[0].problems == ("answers 'Unknown Error' for gpu_temp",)
    assert "GPU 0 (0000:1b:00.0): the driver answers 'Unknown Error' for addressing_mode" in record.notes


@pytest.mark.parametrize(
    "sign, problems",
    [
        ("<addressing_mode>ATS</addressing_mode>", 0),
        ("<c2c_mode>Enabled</c2c_mode>", 0),
        ("<addressing_mode>HMM</addressing_mode>", 1),
        ("<c2c_mode>Disabled</c2c_mode>", 1),
        ("", 1),
    ],
)
def test_few_pcie_lanes_are_no_fault_where_pcie_is_not_the_way_to_the_cpu(sign, problems):
    text = TWO.replace("<current_link_width>16x", "<current_link_width>1x").replace("<uuid>", f"{sign}<uuid>")
    record = facts(text)
    assert len(record.problems) == problems
    assert all("uses 1 of 16 PCIe lanes" in problem for problem in record.problems)


def test_a_gpu_without_memory_of_its_own():
    text = TWO.replace("81559 MiB", "N/A").replace("<uuid>", "<addressing_mode>ATS</addressing_mode><uuid>")
    record = facts(text)
    assert [gpu.memory_bytes for gpu in record.gpus] == [0, 0]
    assert "GPU 0 (0000:1b:00.0): it has no memory of its own: it shares the machine's" in record.notes
    assert record.problems == ()


@pytest.mark.parametrize(
    "word", ["GPU is lost", "[GPU is lost]", "GPU is lost.  Reboot the system to recover this GPU"]
)
def test_a_lost_gpu_in_the_record(word):
    head, first, second = re.split(r"(?=\t<gpu id=)", TWO)
    second = re.sub(r">[^<>\n]+<", f">{word}<", second)
    record = facts(head + first + second)
    assert record.status == "partial"
    assert record.reason == "1 of 2 GPUs can be reached"
    assert [gpu.lost for gpu in record.gpus] == [False, True]
    assert (record.gpus[1].pci_address, record.gpus[1].uuid) == ("0000:c3:00.0", "")
    assert record.gpus[1].problems[0].startswith("is lost")
    assert any(problem.startswith("GPU 1 (0000:c3:00.0) is lost") for problem in record.problems)


def test_a_cuda_library_that_does_not_load_is_said():
    assert "libcuda" in facts(TWO.replace(">12.8<", ">ERR!<")).problems[0]


def test_a_gpu_that_the_driver_has_and_nvidia_smi_does_not_list():
    machine = smi.Machine(
        pci_gpus=(
            smi.PciGpu("0000:1b:00.0", "nvidia", known_to_driver=True),
            smi.PciGpu("0000:5d:00.0", "nvidia", known_to_driver=True),
            smi.PciGpu("0000:6e:00.0", "vfio-pci"),
            smi.PciGpu("0000:c3:00.0", "nvidia", known_to_driver=True),
        )
    )
    record = facts(TWO, machine=machine)
    assert len(record.problems) == 1
    assert record.problems[0].startswith("GPU 0000:5d:00.0 belongs to the driver, but")


# --- NVLink


def test_nvlinks():
    record = facts(TWO, nvlink=smi.CommandResult(0, (FIXTURES / "two_h100.nvlink.txt").read_text()))
    assert record.gpus[0].nvlink == smi.NvLink(3, 3, (26.562, 26.562, 26.562))
    assert record.gpus[1].nvlink == smi.NvLink(2, 3, (26.562, None, 26.562))
    assert record.problems == ("GPU 1 (0000:c3:00.0) has 2 NVLinks up where others of its kind have 3",)


@pytest.mark.parametrize(
    "text, notes",
    [
        ("", 0),
        ("NVML: Unable to retrieve NVLink information as all links are inActive\n", 1),
        (
            "GPU 0: X (UUID: GPU-aaaaaaaa-0000-4000-8000-000000000000)\nNvlink queries are not supported in MIG mode\n",
            1,
        ),
        (TWO, 0),
    ],
)
def test_no_nvlinks_are_no_fault(text, notes):
    record = facts(TWO, nvlink=smi.CommandResult(0, text))
    assert [gpu.nvlink for gpu in record.gpus] == [None, None]
    assert record.problems == ()
    assert len(record.notes) == 1 + notes


# --- topology

LINKS = {
    "GPU0": {"GPU0": "X", "GPU1": "NV18", "NIC0": "PIX"},
    "GPU1": {"GPU0": "NV18", "GPU1": "X", "NIC0": "SYS"},
    "NIC0": {"GPU0": "PIX", "GPU1": "SYS", "NIC0": "X"},
}


def test_topology():
    topology = smi.parse_topology(TOPO)
    assert topology.devices == ("GPU0", "GPU1", "NIC0")
    assert topology.links == LINKS
    assert topology.cpu_affinity == {"GPU0": "0-31,64-95", "GPU1": "32-63,96-127"}
    assert topology.numa_affinity == {"GPU0": "0", "GPU1": "1"}
    assert topology.gpu_numa_id == {}
    assert topology.nics == {"NIC0": "mlx5_0"}
    assert set(topology.legend) == {"X", "SYS", "PIX", "NV#"}
    assert topology.complete is True


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TOPO.replace("\x1b[4m", "").replace("\x1b[0m", ""), id="plain"),
        pytest.param(TOPO.replace("\n", "\r\n"), id="crlf"),
        pytest.param(TOPO.split("Legend")[0], id="no-legend"),
        pytest.param(TOPO.replace("\tGPU NUMA ID", "").replace("\t\tN/A", ""), id="no-gpu-numa-id"),
        pytest.param(TOPO.replace("\t", "      "), id="spaces"),
        pytest.param("some warning\n" + TOPO, id="junk-before"),
        pytest.param(TOPO.split("\n", 1)[1], id="no-header"),
        pytest.param("GPU0 GPU1 NIC0\n" + TOPO.split("\n", 1)[1], id="cut-header"),
    ],
)
def test_topology_in_other_dresses(text):
    topology = smi.parse_topology(text)
    assert topology.links == LINKS
    assert topology.cpu_affinity == {"GPU0": "0-31,64-95", "GPU1": "32-63,96-127"}
    assert topology.numa_affinity == {"GPU0": "0", "GPU1": "1"}
    assert topology.complete is True


def test_topology_of_old_drivers_names_the_cards():
    header = "\tGPU0\tGPU1\tmlx4_0\tCPU Affinity\n"
    text = header + "GPU0\t X \tSOC\tPHB\t0-7\nGPU1\tSOC\t X \tSOC\t8-15\nmlx4_0\tPHB\tSOC\t X \n"
    for variant in (text, text.replace("\tCPU Affinity", ""), text.replace("\t", "    ")):
        topology = smi.parse_topology(variant)
        assert topology.devices == ("GPU0", "GPU1", "mlx4_0")
        assert topology.links["mlx4_0"] == {"GPU0": "PHB", "GPU1": "SOC", "mlx4_0": "X"}
        assert topology.cpu_affinity == {"GPU0": "0-7", "GPU1": "8-15"}
        assert topology.numa_affinity == {}


def test_words_that_a_terminal_ran_together_are_taken_apart():
    text = (
        "GPU0    GPU1    NIC0    NIC1NIC2    NIC10CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    PIX     NODENODE    SYS     0-47,96-143 0N/A\n"
        "GPU1    NV18     X      SYS     SYSSYS      PIX     48-95,144-191   1               N/A\n"
        "NIC0    PIX     SYS      X      SYSSYS      SYS\n"
        "NIC1    NODE    SYS     SYS      XPIX       SYS\n"
        "NIC2    NODE    SYS     SYS      PIXX       SYS\n"
        "NIC10   SYS     PIX     SYS      SYSSYS      X\n"
    )
    topology = smi.parse_topology(text)
    assert topology.devices == ("GPU0", "GPU1", "NIC0", "NIC1", "NIC2", "NIC10")
    assert topology.complete
    assert tuple(topology.links["GPU0"].values()) == ("X", "NV18", "PIX", "NODE", "NODE", "SYS")
    assert tuple(topology.links["NIC2"].values()) == ("NODE", "SYS", "SYS", "PIX", "X", "SYS")
    assert topology.cpu_affinity == {"GPU0": "0-47,96-143", "GPU1": "48-95,144-191"}
    assert (topology.numa_affinity, topology.gpu_numa_id) == ({"GPU0": "0", "GPU1": "1"}, {})


def test_a_cut_topology_is_completed_from_the_other_direction():
    topology = smi.parse_topology(TOPO.split("NIC0\tPIX")[0])
    assert topology.complete is False
    assert topology.links["NIC0"] == {"GPU0": "PIX", "GPU1": "SYS"}
    assert topology.links["GPU0"] == LINKS["GPU0"]


@pytest.mark.parametrize(
    "row, cpus, numa, own",
    [
        ("GPU0\t X \t0-23\t0\t\tN/A", "0-23", "0", None),
        ("GPU0\t X \t0-23\t0-1\t\t2", "0-23", "0-1", "2"),
        ("GPU0\t X \t\t\t\tN/A", None, None, None),
        ("GPU0\t X \t\t\t\t9", None, None, "9"),
        ("GPU0\t X \t0-23\tN/A\t\tN/A", "0-23", None, None),
        ("GPU0\t X \t5\t1\t\tN/A", "5", "1", None),
        ("GPU0     X      0-11    N/A        N/A", "0-11", None, None),
    ],
)
def test_affinities_of_one_gpu(row, cpus, numa, own):
    topology = smi.parse_topology(f"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n{row}\n")
    assert topology.cpu_affinity.get("GPU0") == cpus
    assert topology.numa_affinity.get("GPU0") == numa
    assert topology.gpu_numa_id.get("GPU0") == own


def test_any_cut_of_a_topology_is_read():
    for cut in range(len(TOPO)):
        topology = smi.parse_topology(TOPO[:cut])
        for name, links in topology.links.items() if topology else ():
            for other, code in links.items():
                assert LINKS[name][other].startswith(code)


def test_affinity_comes_from_the_matrix_or_else_from_the_kernel():
    machine = smi.Machine(pci_gpus=(smi.PciGpu("0000:1b:00.0", "nvidia", 3, "0-7", True),))
    with_matrix = facts(TWO, topo=smi.CommandResult(0, TOPO), machine=machine).gpus
    assert [(gpu.numa_node, gpu.cpu_affinity) for gpu in with_matrix] == [(0, "0-31,64-95"), (1, "32-63,96-127")]
    without = facts(TWO, topo=smi.CommandResult(255, "ERROR: Option -m is missing its value."), machine=machine)
    assert [(gpu.numa_node, gpu.cpu_affinity) for gpu in without.gpus] == [(3, "0-7"), (None, None)]
    assert without.topology is None
    assert without.problems == ()
    assert "no topology: ERROR: Option -m is missing its value." in without.notes


# --- no record at all


@pytest.mark.parametrize(
    "text, rc, status",
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it runs.",
            9,
            "not_loaded",
        ),
        ("NVIDIA-SMI has failed because it couldn\u2019t communicate with NVIDIA driver.", 1, "not_loaded"),
        ("Failed to initialize NVML: Driver Not Loaded", 9, "not_loaded"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "library_mismatch"),
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.10",
            18,
            "library_mismatch",
        ),
        ("API mismatch: the kernel module has version 1.2, this component has 3.4", 1, "library_mismatch"),
        ("nvidia-smi: symbol lookup error: nvidia-smi: undefined symbol: nvmlX", 127, "library_mismatch"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12, "library_missing"),
        (
            "nvidia-smi: error while loading shared libraries: libx.so: No such file or directory",
            127,
            "library_missing",
        ),
        ("Failed to initialize NVML: Insufficient Permissions", 4, "no_permission"),
        ("NVIDIA-SMI has failed because you do not have suffient permissions.", 4, "no_permission"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", 17, "no_permission"),
        ("[Errno 13] Permission denied: b'/usr/bin/nvidia-smi'", 255, "no_permission"),
        ("No devices were found", 6, "no_devices"),
        ("No devices were found", 0, "no_devices"),
        ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error", 255, "gpu_lost"),
        ("Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system", 15, "gpu_lost"),
        ("Failed to initialize NVML: Unknown Error", 255, "unknown_error"),
        ("bash: nvidia-smi: command not found", 127, "not_installed"),
        ("[Errno 2] No such file or directory: b'/x/nvidia-smi'", 255, "not_installed"),
        ("", 9, "not_loaded"),
        ("", 4, "no_permission"),
        ("", 15, "gpu_lost"),
        ("", 12, "library_missing"),
        ("", -11, "unknown_error"),
        ("", 0, "unknown_error"),
        ("<nvidia_smi_log", 0, "unknown_error"),
        ("<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>", 0, "no_devices"),
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_failures(text, rc, status, stream):
    record = facts(text, rc) if stream == "stdout" or text.startswith("<") else facts("", rc, stderr=text)
    assert record.status == status
    assert record.gpus == ()
    assert text.startswith("<") or text.split("\n")[0] in record.reason
    assert status in smi.STATUSES


GPU_ON_BUS = (smi.PciGpu("0000:1b:00.0"),)


@pytest.mark.parametrize(
    "machine, words, healthy",
    [
        (smi.Machine(), "no NVIDIA GPU is on the PCI bus", True),
        (smi.Machine(pci_gpus=GPU_ON_BUS), "(0000:1b:00.0), but no NVIDIA driver is installed", False),
        (smi.Machine(pci_gpus=GPU_ON_BUS, module_loaded=True), "nvidia-smi is not installed", False),
    ],
)
def test_no_nvidia_smi(machine, words, healthy):
    record = smi.build_facts(machine, None)
    assert record.status == "not_installed"
    assert words in record.reason
    assert (record.problems == ()) is healthy
    assert record.pci_gpus == machine.pci_gpus


@pytest.mark.parametrize(
    "text, machine, words",
    [
        (
            "couldn't communicate with the NVIDIA driver",
            smi.Machine(pci_gpus=(smi.PciGpu("0000:1b:00.0", "nouveau"),)),
            "the GPUs are bound to nouveau",
        ),
        (
            "couldn't communicate with the NVIDIA driver",
            smi.Machine(GPU_ON_BUS, module_loaded=True),
            "see the kernel log",
        ),
        ("couldn't communicate with the NVIDIA driver", smi.Machine(), "no NVIDIA GPU is on the PCI bus"),
        (
            "Failed to initialize NVML: Driver/library version mismatch",
            smi.Machine(GPU_ON_BUS, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1.2  Thu"),
            "kernel module 535.1.2",
        ),
        ("Failed to initialize NVML: Unknown Error", smi.Machine(GPU_ON_BUS), "in a container"),
    ],
)
def test_the_reason_uses_what_the_kernel_says(text, machine, words):
    assert words in facts(text, 1, machine=machine).reason


def test_a_hanging_nvidia_smi():
    record = smi.build_facts(NO_MACHINE, smi.CommandResult(timed_out=True), timeout=2.5)
    assert record.status == "timeout"
    assert "within 2.5 s" in record.reason
    assert record.problems == (record.reason,)


def test_a_hanging_topology_is_a_note():
    record = facts(TWO, topo=smi.CommandResult(timed_out=True))
    assert (record.status, record.problems, record.topology) == ("ok", (), None)
    assert "no topology: nvidia-smi topo -m did not answer within 30 s" in record.notes


# --- recorded output of real machines

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded output of real machines is not here")


def _index():
    if not SHARED.is_dir():
        return []
    with open(SHARED / "INDEX.tsv", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def _recorded(name):
    return (SHARED / name).read_text(encoding="utf-8", errors="replace")


def _mode(flag):
    return "N/A" if flag is None else "Enabled" if flag else "Disabled"


@needs_shared
@pytest.mark.parametrize("row", _index(), ids=lambda row: row["file"])
def test_recorded_record(row):
    record = facts(_recorded(row["file"]))
    models, _x, count = row["gpu_models"].rpartition(" x")
    first = record.gpus[0]
    assert record.status == "ok"
    assert record.driver_version == row["driver"]
    assert (record.cuda_version or "-") == row["cuda"]
    assert record.attached_gpus == int(row["attached_gpus_elem"])
    assert len(record.gpus) == int(row["gpu_elements"]) == int(count)
    assert {gpu.model for gpu in record.gpus} == {models}
    assert {gpu.architecture or "-" for gpu in record.gpus} == {row["architecture"]}
    assert _mode(first.mig.current) == row["mig_mode"].replace("-", "N/A")
    assert sum(len(gpu.mig.instances) for gpu in record.gpus) == int(row["mig_devices"])
    assert _mode(first.ecc.current) == row["ecc_mode"]
    assert first.memory_bytes == int(row["fb_total"].split()[0]) * MIB
    assert (first.virtualization or "N/A") == row["virtualization"]
    assert _mode(first.persistence) == row["persistence"]
    assert sum(len(gpu.processes) for gpu in record.gpus) == int(row["processes"])
    assert (first.fabric.state or "N/A") == row["fabric_state"].replace("-", "N/A")
    assert [gpu.index for gpu in record.gpus] == list(range(len(record.gpus)))
    assert len({gpu.pci_address for gpu in record.gpus}) == len(record.gpus)
    assert bool(record.problems) == ("ecc-injected" in row["file"])


@needs_shared
@pytest.mark.parametrize("row", _index(), ids=lambda row: row["file"])
def test_recorded_record_mutated(row):
    text = _recorded(row["file"])
    whole = facts(text)
    head, *gpus = re.split(r"(?=<gpu id=)", text)
    gpus[-1], tail = gpus[-1].split("</nvidia_smi_log>")
    tail = "</nvidia_smi_log>" + tail

    assert facts(head + "".join(reversed(gpus)) + tail).gpus == whole.gpus
    assert facts(text.replace("<uuid>", "<newest><of>x</of></newest><uuid>")).gpus == whole.gpus
    assert facts("WARNING: noise\n" + text + "\nnoise\n").gpus == whole.gpus
    for place in range(len(gpus)):
        record = facts(head + "".join(gpus[:place] + gpus[place + 1 :]) + tail)
        assert record.status == "partial"
        left = whole.gpus[:place] + whole.gpus[place + 1 :]
        assert [gpu.uuid for gpu in record.gpus] == [gpu.uuid for gpu in left]
        if all(gpu.minor_number == gpu.index for gpu in left):
            assert [gpu.index for gpu in record.gpus] == [gpu.index for gpu in left]
    for cut in range(0, len(text), max(1, len(text) // 97)):
        record = facts(text[:cut])
        assert record.gpus == whole.gpus[: len(record.gpus)]
        assert len(record.gpus) == text[:cut].count("</gpu>")
        assert record.status in ("partial", "unknown_error", "ok")
        assert record.status != "ok" or len(record.gpus) == len(whole.gpus)


@needs_shared
def test_recorded_injected_errors():
    record = facts(_recorded("nvidia__mock-gb200-ecc-injected.xml"))
    assert record.gpus[0].ecc.volatile.uncorrected == 5
    assert record.gpus[0].ecc.row_remap.failure is True
    assert record.gpus[1].problems == ()


@needs_shared
def test_recorded_mig():
    gpu = facts(_recorded("netdata__a100-sxm4-mig.xml")).gpus[0]
    assert [(one.gpu_instance_id, one.memory_bytes, one.multiprocessors) for one in gpu.mig.instances] == [
        (1, 19968 * MIB, 42),
        (2, 19968 * MIB, 42),
    ]


# name: devices, rows' CPU affinity of the first and last GPU, the code from GPU0 to the last device, complete
TOPOLOGIES = {
    "linux-x86_64__nvidia-geforce-rtx-2080-super__595.71.05.txt": (1, 0, "0-23", "0", "X", True),
    "linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04.txt": (1, 0, "0-23", "0", "X", True),
    "linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05.txt": (1, 0, "0-15", "0", "X", True),
    "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt": (1, 0, "0-19", "0", "X", True),
    "linux-x86_64__nvidia-h100-mig__590.48.01.txt": (1, 0, "0-19", "0", "X", True),
    "linux-x86_64__nvidia-h200-mig__590.48.01.txt": (1, 0, "0-23", "0", "X", True),
    "linux-x86_64__nvidia-h200__590.48.01.txt": (1, 0, "0-23", "0", "X", True),
    "linux-x86_64__nvidia-l40s__595.80.txt": (1, 0, "0-7", "0", "X", True),
    "mleng__2gpu_nv2.txt": (2, 0, "0-23", None, "NV2", True),
    "mleng__2gpu_phb.txt": (2, 0, "0-11", None, "PHB", True),
    "mleng__8gpu_a100_nv12_nohdr.txt": (8, 0, "24-47", "1", "NV12", True),
    "mleng__8gpu_h100_nv18_nohdr.txt": (8, 0, "52-103", "1", "NV18", True),
    "mleng__8gpu_nv18_affinity.txt": (8, 0, "52-103,156-207", "1", "NV18", True),
    "t_nccl1453_8h100_9nic_truncated.txt": (8, 9, "80-159", "1", "PIX", False),
    "t_nccl634_4gpu_4mlx5_oldheader.txt": (4, 4, "36-71", "1", "NODE", True),
    "t_nccl933_8gpu_9nic_excerpt.txt": (8, 9, None, None, "NODE", False),
    "windows-x86_64__nvidia-geforce-rtx-2080-super__591.86.txt": None,
    "windows-x86_64__nvidia-geforce-rtx-2080-super__610.62.txt": (1, 0, None, None, "X", True),
}


@needs_shared
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_recorded_topology(name):
    topology = smi.parse_topology(_recorded(f"topo/{name}"))
    if TOPOLOGIES[name] is None:
        assert topology is None
        return
    gpus, nics, cpus, numa, code, complete = TOPOLOGIES[name]
    last = f"GPU{gpus - 1}"
    assert len(topology.devices) == gpus + nics
    assert topology.devices[:gpus] == tuple(f"GPU{place}" for place in range(gpus))
    assert topology.cpu_affinity.get(last) == cpus
    assert topology.numa_affinity.get(last) == numa
    assert topology.links["GPU0"][topology.devices[-1]] == code
    assert topology.complete is complete
    for one in topology.devices:
        for other in topology.devices:
            there, back = topology.links[one].get(other), topology.links[other].get(one)
            assert there == back


@needs_shared
def test_every_recorded_topology_is_in_the_table():
    assert {path.name for path in (SHARED / "topo").iterdir()} == set(TOPOLOGIES)


@needs_shared
@pytest.mark.parametrize(
    "name, status",
    [
        ("comm.txt", "not_loaded"),
        ("mismatch.txt", "library_mismatch"),
        ("mismatch_ver.txt", "library_mismatch"),
        ("handle_unknown.txt", "gpu_lost"),
        ("nvml_unknown.txt", "unknown_error"),
    ],
)
@pytest.mark.parametrize("rc", [0, 1, 255])
def test_recorded_failure(name, status, rc):
    record = facts(_recorded(f"fail/{name}"), rc)
    assert (record.status, record.gpus) == (status, ())


@needs_shared
@pytest.mark.parametrize("name", ["nvlink_inactive.txt", "nvlink_mig.txt"])
def test_recorded_nvlink_refusals_are_notes(name):
    record = facts(TWO, nvlink=smi.CommandResult(255, _recorded(f"fail/{name}")))
    assert record.problems == ()
    assert any("nvlink" in note.lower() for note in record.notes)


@needs_shared
def test_recorded_topology_refusal_is_a_note():
    record = facts(TWO, topo=smi.CommandResult(255, _recorded("fail/topo_win_error.txt")))
    assert record.problems == ()
    assert any(note.startswith("no topology: ERROR") for note in record.notes)
