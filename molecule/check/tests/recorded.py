"""What nvidia-smi and dmesg answer in this lab: outputs of our own making, in the shape of the real ones."""

from __future__ import annotations

GPU = """
<gpu id="00000000:{bus}:00.0">
<product_name>NVIDIA H100 80GB HBM3</product_name><product_brand>NVIDIA</product_brand>
<product_architecture>Hopper</product_architecture><persistence_mode>{persistence}</persistence_mode>
<mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode><mig_devices>None</mig_devices>
<uuid>GPU-00000000-0000-4000-8000-0000000000{bus}</uuid><minor_number>{index}</minor_number>
<pci><pci_bus_id>00000000:{bus}:00.0</pci_bus_id><pci_gpu_link_info>
<pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>5</current_link_gen></pcie_gen>
<link_widths><max_link_width>16x</max_link_width><current_link_width>{width}x</current_link_width></link_widths>
</pci_gpu_link_info></pci>
<clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_thermal_slowdown>{thermal}</clocks_event_reason_hw_thermal_slowdown></clocks_event_reasons>
<fb_memory_usage><total>81559 MiB</total><used>4 MiB</used></fb_memory_usage><compute_mode>Default</compute_mode>
<ecc_mode><current_ecc>{ecc}</current_ecc><pending_ecc>{ecc}</pending_ecc></ecc_mode>
<ecc_errors><volatile><dram_correctable>0</dram_correctable><dram_uncorrectable>{uncorrected}</dram_uncorrectable></volatile>
</ecc_errors>
<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc>
<remapped_row_pending>{remap}</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>
<processes>{processes}</processes>
</gpu>"""

HEALTHY = {
    "persistence": "Enabled",
    "mig": "Disabled",
    "width": "16",
    "thermal": "Not Active",
    "ecc": "Enabled",
    "uncorrected": "0",
    "remap": "No",
    "processes": "",
}

MISMATCH = """Failed to initialize NVML: Driver/library version mismatch
NVML library version: 580.95
"""

# A tool that answers with what lies beside it, and fails as told.
TOOL = """#!/bin/sh
case "$1" in
-q) cat /etc/recorded/query.xml; exit $(cat /etc/recorded/code) ;;
topo) cat <<'X'
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      NV18    0-1     0
GPU1    NV18     X      0-1     0
X
;;
esac
"""

KERNEL_LOG = """[    0.000000] Linux version 6.1.0 (own make)
[   12.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06
[  700.250000] NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
[  701.000000] NVRM: Xid (PCI:0000:1b:00): 45, pid=1234, name=python, Ch 00000008
"""


def query(gpus: int = 2, driver: str = "580.65.06", **fault: str) -> str:
    """`nvidia-smi -q -x` of a node; the fault is on its last GPU."""
    records = ""
    for index in range(gpus):
        values = {**HEALTHY, **(fault if index == gpus - 1 else {})}
        records += GPU.format(bus=("1b", "c3")[index], index=index, **values)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
        f"<driver_version>{driver}</driver_version><cuda_version>13.0</cuda_version>"
        f"<attached_gpus>{gpus}</attached_gpus>{records}\n</nvidia_smi_log>\n"
    )


def process(pid: int) -> str:
    return (
        f"<process_info><pid>{pid}</pid><type>C</type><process_name>python3</process_name>"
        "<used_memory>17000 MiB</used_memory></process_info>"
    )
