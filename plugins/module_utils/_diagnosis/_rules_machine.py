# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Rules: GPUs, driver, CUDA, memory, shared memory, disks and limits."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import (
    EXIT_CODE,
    HINT,
    KILLED,
    LIKELY,
    STATED,
    SYMPTOM,
    Rule,
    Sign,
    fact,
    sign,
    signs,
)

_NEWER_DRIVER = (
    "Install a driver that serves this CUDA (nvidia_driver role; reboot with its consent variable), or a torch build "
    "for an "
    "older CUDA (pytorch role): the table in docs says which goes with which."
)
_MORE_SHM = (
    "Give /dev/shm room: mount -o remount,size=50% /dev/shm (node_tuning makes it lasting); for containers "
    "--shm-size=16g or "
    "--ipc=host, in a pod an emptyDir with medium Memory. Fewer DataLoader workers need less."
)


def _code(*numbers: int) -> Sign:
    """Numbers of CUDA's errors, for programs that print no more than that."""
    return sign(
        r"(?:\b(?:cuInit|cuda[A-Z]\w+)\W{0,4}(?:returned|failed)|CUDA (?:\w+ )?(?:error|failure))\W{1,4}"
        r"(?:(?:error|code|status)\W{1,3})?(?:" + "|".join(map(str, numbers)) + r")\b",
        *("cuinit", "cudaget", "cudaset", "cudamalloc", "cuda error", "cuda failure", "cuda runtime ", "cuda driver "),
    )


def _ended(codes: str, signal: str) -> Sign:
    """A process that a signal ended, as launchers and shells tell it: by its exit code or the signal's number."""
    return sign(
        r"(?:exit|return|crash|terminat|died|fail).{0,32}?(?:code|status|with)\W{1,6}(?:" + codes + r")\b|"
        r"(?:exited|killed|terminated|died|interrupted)\b.{0,12}? signal:? \(?" + signal + r"\b",
        *EXIT_CODE,
        *("exited with", "crashed with", "terminated with", "with code"),
        *("by signal", "on signal", "with signal", "from signal"),
    )


RULES: Tuple[Rule, ...] = (
    # Ranks and GPUs.
    Rule(
        id="duplicate_gpu",
        label="duplicate_gpu",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"Duplicate GPU detected ?: rank (?P<first>\d+) and rank (?P<second>\d+) both on CUDA device "
            r"(?P<device>\w+)",
            r"Duplicate GPU detected",
            r"rank (?P<first>\d+) and rank (?P<second>\d+) both on CUDA device (?P<device>\w+)",
            r"Multiple Ranks are using the same GPU",
            r"multiple ranks using the same NVML device",
        ),
        cause="Ranks {first} and {second} use one GPU (PCI {device}).",
        fix=(
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the process group, no hard-coded device, and "
            "torchfleet_slots no higher than the node's GPUs; look at CUDA_VISIBLE_DEVICES in launch_env."
        ),
    ),
    Rule(
        id="device_ordinal",
        label="gpu_count_mismatch",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"invalid device ordinal",
            r"number of required GPUs exceeds the total number of available",
            r"Invalid device id",
            r"device >= 0 && device < num_gpus",
            r"cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE\b",
            r"CUDA error \(101\)",
            r"device_id \S+ is out of range",
            r"(?:requested|need) \d+ GPUs?,? but only \d+ (?:are |is )?available",
            r"But your machine only has: (?!\[\])|GPUs but your machine only has",
            r"invalid device count (?:\(\d+\) )?requested",
            r"[Rr]equest\w* \d+ (?:processes|ranks|devices),? but only \d+",
            sign(
                r"(?:local.?rank|world.size|parallel.size|nproc_per_node|processes)\b.{0,40}"
                r"(?:greater|larger|more|less|exceed|>=).{0,40}(?:GPUs?|devices?|device.count)\b",
                *("local rank", "local_rank", "world size", "world_size", "parallel size", "parallel_size"),
                *("nproc_per_node", "processes"),
            ),
            r"local rank \d+ is out of bounds",
            r"Error: Not enough GPUs",
            r"[Rr]equest\w* more GPUs than",
            r"assert .*<=? ?torch\.cuda\.device_count\(\)",
            r"listed an invalid GPU id",
            _code(101),
            r"but only \d+ GPUs? (?:are |is )?(?:visible|present|there)",
            r"device \d+ is not visible|local_rank \d+ exceeds available GPUs",
        ),
        cause="A rank asks for a GPU that its process does not see: more ranks on the node than visible GPUs.",
        fix=(
            "Set torchfleet_slots of that node to the GPUs it has; look at CUDA_VISIBLE_DEVICES in launch_env and at "
            "the GPU binding of the scheduler."
        ),
        probe="gpu_count",
    ),
    # Hardware.
    Rule(
        id="xid_hardware",
        label="gpu_hw_fault",
        level=STATED,
        confidence=0.92,
        signs=signs(
            # Hardware, firmware and link faults of NVIDIA's Xid catalogue; 13, 31, 43, 45 and 137 come from programs.
            r"Xid \((?P<pci>[^)]*)\): (?P<xid>26|3[238]|4[468]|5[4-9]|6[1-4]|74|79|8[0-2]|88|9[2-7]|109"
            r"|1[12]\d|13[369]|14\d|15\d|16\d|17\d)\b",
            r"caused by previous Xid (?P<xid>\d+)",
            sign(r"\bXid[ :=#]{1,2}(?P<xid>48|74|79|94|95|119|120|14[05]|149)\b", "xid ", "xid:", "xid=", "xid#"),
        ),
        outranks=("cuda_oom", "driver_not_loaded"),
        cause="The driver reports Xid {xid} for GPU {pci}: a hardware, firmware or link fault.",
        fix=(
            "Take the node out of torchfleet_group, nvidia-smi -r or reboot it; if it comes again run "
            "nvidia-bug-report.sh and "
            "have the GPU (or its NVLink, riser, power) replaced."
        ),
        probe="xid",
    ),
    Rule(
        id="gpu_lost",
        label="gpu_hw_fault",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"Critical Xid",
            r"nvidia\.com/gpu.{0,4} device marked unhealthy",
            r"GPU \S+ (?:is currently|is) in an error state",
            r"GPU \S+ has (?:uncorrectable|too many)",
            r"pending retired pages",
            r"fallen off the bus",
            r"GPU is lost",
            # As the driver and NVML name it.
            r"ERR(?:OR)?_(?:GPU_IS_LOST|RESET_REQUIRED)",
            r"Unable to determine the device handle for",
            r"uncorrectable ECC",
            r"ECCUncorrectable|CUDA_ERROR_ECC_UNCORR",
            r"uncorrectable NVLink",
            r"cudaErrorNvlinkUncorrectable|CUDA_ERROR_NVLINK_UNCORR",
            r"cudaErrorHardwareStackError|CUDA_ERROR_HARDWARE_STACK|hardware stack error",
            r"cudaErrorContained|CUDA_ERROR_CONTAINED",
            r"Timeout .*waiting for RPC response from GPU",
            sign(r"NVRM: .*GSP.*(?:timeout|heartbeat)", "nvrm: "),
            r"RmInitAdapter failed",
            r"GPU requires reset",
            r"nvswitch\d*: SXid (?!.*Non-fatal)",
            r"detected NVSwitch (?:fatal )?error|NVLink training failed",
            r"P2P is disabled between NVLINK connected",
            r"NVRM: .*Possible bad register read",
            r"DPC: (?:containment event|unmasked uncorrectable)",
            r"Hardware Error\]: event severity: fatal",
            r"amdgpu.*GPU reset|HW Exception by GPU",
            r"row remapping fail",
            r"double bit error",
            r"NVRM: .*GPU .*(?:crash dump|has been lost)",
            sign(
                r"PCIe Bus Error: severity=Uncorrect|AER: .*(?:Fatal|Uncorrect)|PCIe link lost",
                "pcie bus error",
                "aer: ",
                "pcie link lost",
            ),
            r"rm_init_adapter failed",
            r"infoROM is corrupted",
            r"over nvlink or a hardware error",
            r"GSP Failure",
            r"NVRM: .*rpc\w+ failed with status",
            r"NVRM: .*_GSP: .*failed: hClient",
            r"NVRM: .*FSP command timed out",
            r"NVRM: .*Cannot (?:attach gpu|initialize GSP firmware RM)",
            r"GPU is probably locked",
            sign(r"AER: Uncorrected|pciehp: Slot\(\S+\): Link Down", "aer: uncorrected", "pciehp: slot"),
            r"nvidia \S+: Unable to change power state",
            r"EDAC .* UE ",
            r"amdgpu_job_timedout",
            r"NvLink link \d+ is currently down|FR_NVLINK_DOWN",
            r"page retirement pending|pending retired page has been",
            r"DBE volatile ECC errors|fatal errors on NvSwitch|page retirements together with a DBE",
            r"NvLinks are up out of the expected|NVSwitch \d+'s NvLink \d+ is down",
            r"faulty memory elements on GPU|GPU had a contained error|corrupt InfoROM",
            r"Recovery action: \d+ \((?:NODE_REBOOT|GPU_RESET|DRAIN_AND_RESET)\)",
            r"double-bit ECC error has",
            r"GPU Recovery Action\s*: (?!None)",
            r"nvmlDeviceGetHandleByIndex\(\d+\) failed",
            sign(r"\|.*\bERR!", "err!"),
            _code(214, 220, 226, 714),
        ),
        outranks=("driver_not_loaded",),
        cause="A GPU failed: uncorrectable memory, lost on PCIe or NVLink, or its firmware stopped answering.",
        fix=(
            "Take the node out of torchfleet_group, reset the GPU (nvidia-smi -r) or reboot; if it comes again have it "
            "replaced. dmesg | grep -i xid tells which."
        ),
        probe="xid",
    ),
    Rule(
        id="cuda_unknown_error",
        label="gpu_hw_fault",
        level=LIKELY,
        confidence=0.5,
        signs=signs(
            r"CUDA error: unknown error",
            r"cudaErrorUnknown\b|(?<!cuInit: )CUDA_ERROR_UNKNOWN\b",
            r"cudaErrorLaunch(?:Failure|Timeout)|CUDA_ERROR_LAUNCH_(?:FAILED|TIMEOUT)",
            r"CUDA (?:driver error:|failure \S+) '?unknown error",
            _code(702, 719),
            r"CUDA error \(999\)|cuda runtime error \(30\)",
            r"unspecified launch failure",
            r"Cuda failure '?(?:\d+ ')?(?:unknown error|hardware)",
            r"launch timed out and was terminated",
            r"(?:busy or unavailable|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE)",
        ),
        outranks=("collective_timeout_desync",),
        cause="CUDA fails in a way that a program rarely causes: mostly a GPU that has just failed.",
        fix=(
            "Look for Xid lines (dmesg | grep -i xid) on that node; take it out of torchfleet_group and reboot; if it "
            "comes again the GPU is faulty."
        ),
        probe="xid",
    ),
    Rule(
        id="fabric_manager",
        label="fabric_manager_down",
        level=STATED,
        confidence=0.92,
        signs=signs(
            r"Error 802\b",
            r"Error: 802\b",
            r"runtime error \(802\)",
            r"returned 802",
            r"code=802",
            r"cudaErrorSystemNotReady",
            r"system not yet initialized",
            r"(?:fabric manager|fabricmanager).*(?:don't match|do(?:es)? not match|mismatch|never reported|not "
            r"running|failed|inactive)",
            r"(?:failed|inactive).*nvidia-fabricmanager",
            r"Failed to bind NVLink SHARP(?!.*Proceeding without)",
            r"Failed to multicast-bind user buffer",
            r"nvls\.cc:\d+ (?:\(\w+\) )?NCCL WARN .*cannot be performed in the present state",
            r"failed to initialize NVSwitch",
            r"configuration error in the Fabric Manager",
            sign(r"\[802\]|failed:? 802\b", "[802]", "failed 802", "failed: 802"),
            r"NV_WARN_NOTHING_TO_DO",
            r"nv-fabricmanager.*fail",
            r"MNNVL \(cliqueSize \d+\) .*not (?:working|supported) on this system",
            # A handle for the fabric is refused: the process has no IMEX channel.
            r"include/alloc\.h:\d+ (?:\(\w+\) )?NCCL WARN Cuda failure 800\b",
            r"CUDA_ERROR_SYSTEM_NOT_READY",
            r"Fabric State(?:\s*:| is) (?:Not Started|In Progress)",
            r"\bIMEX \S+ status is (?!UP|READY)",
            sign(r"^\s+State\s+: (?:In Progress|Not Started)\s*$", ": in progress", ": not started"),
            _code(802),
        ),
        outranks=("cuda_driver_too_old",),
        cause=(
            "The NVSwitch fabric is not set up: the fabric manager is absent, down, or of another version than the "
            "driver."
        ),
        fix=(
            "Install nvidia-fabricmanager of the driver's very version and start it: systemctl enable --now "
            "nvidia-fabricmanager; then nvidia-smi -q must show Fabric State: Completed."
        ),
        probe="fabric_manager",
    ),
    fact("fabric_manager_asked", r"nvidia-fabricmanager\.service - "),
    Rule(
        id="fabric_manager_inactive",
        label="fabric_manager_down",
        level=LIKELY,
        confidence=0.8,
        signs=signs(r"^\W*Active: (?:failed|inactive)"),
        needs=("fabric_manager_asked",),
        cause="The fabric manager does not run on this node.",
        fix="systemctl enable --now nvidia-fabricmanager; it must be of the driver's very version.",
        probe="fabric_manager",
    ),
    # Driver.
    Rule(
        id="library_mismatch",
        label="driver_library_mismatch",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"NVRM: components have the same version",
            r"Driver/library version mismatch",
            r"Error 803\b",
            r"Error: 803\b",
            r"unsupported display driver / cuda driver combination",
            r"cudaErrorSystemDriverMismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            r"NVRM: API mismatch",
            r"LIB_?RM_?VERSION_?MISMATCH",
            r"RM API version mismatch|kernel module has the version",
            _code(803),
        ),
        outranks=("driver_not_loaded", "cuda_driver_too_old"),
        cause=(
            "The driver's libraries are of another version than the kernel module that is loaded: it was upgraded "
            "under a running system."
        ),
        fix=(
            "Reboot the node (or unload and load the nvidia modules); hold the driver packages so that unattended "
            "upgrades leave them alone."
        ),
        probe="driver_versions",
    ),
    Rule(
        id="forward_compat",
        label="cuda_forward_compat",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"Error 804\b",
            r"Error: 804\b",
            r"forward compatibility was attempted",
            r"cudaErrorCompatNotSupportedOnDevice",
            r"CUDA_ERROR_COMPAT_NOT_SUPPORTED",
            _code(804),
        ),
        outranks=("cuda_driver_too_old",),
        cause=(
            "The forward-compatibility libcuda is loaded on a GPU that does not support it: the driver is older than "
            "the image's CUDA."
        ),
        fix=(
            "Install a newer driver, or remove the compat libraries from the image (/usr/local/cuda/compat, its "
            "ld.so.conf.d entry, LD_LIBRARY_PATH)."
        ),
        probe="driver_versions",
    ),
    Rule(
        id="driver_too_old",
        label="cuda_driver_too_old",
        level=STATED,
        confidence=0.92,
        signs=signs(
            r"UNSUPPORTED_PTX_VERSION",
            r"driver version is insufficient",
            r"NVIDIA driver on your system is too old(?: \(found version (?P<version>\d+)\))?",
            r"cudaErrorInsufficientDriver",
            r"\binsufficient driver(?: version)?\s*$",
            r"PTX was compiled with an unsupported toolchain",
            r"cudaErrorUnsupportedPtxVersion",
            r"unsatisfied condition: (?:cuda|driver)",
            r"driver version .{0,40}(?:is too old|older than (?:required|the minimum))",
            r"CUDA Driver version found is \d+\. Minimum",
            r"named symbol not found",
            r"device kernel image is invalid|cudaErrorInvalidKernelImage|CUDA_ERROR_INVALID_IMAGE",
            r"not supported in the installed CUDA driver",
            r"cudaErrorCallRequiresNewerDriver",
            r"CUDA some PFN functions not found",
            r"requires CUDA driver \d",
            r"installed CUDA driver (?:< R\d|is older than)",
            r"built for NVIDIA Driver Release",
            r"driver is too old for this container",
            _code(35, 222),
        ),
        cause="The NVIDIA driver is older than the CUDA that the program was built with.",
        fix=_NEWER_DRIVER,
        probe="driver_versions",
    ),
    Rule(
        id="driver_absent",
        label="driver_not_loaded",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"ROCk module is NOT loaded",
            r"communicate with the NVIDIA driver",
            r"could not insert (?:module )?'?\"?nvidia",
            # The kernel's, modprobe's, udev's and dkms's words for a module that does not fit.
            r"\bnvidia(?:[_-](?:uvm|modeset|drm))?: (?:version magic|disagrees about version|Unknown symbol)",
            r"module nvidia\S* is rejected",
            r"Error inserting nvidia",
            r"modprobe (?:\S+ )?nvidia[\w-]*'? failed",
            r"/dkms/nvidia\S*/build/make\.log",
            r"None of the NVIDIA (?:devices|graphics adapters) were initialized",
            r"could not open the device file /dev/nvidia",
            r"Failed to query NVIDIA devices",
            r"failed to load the NVIDIA kernel module",
            r"NVIDIA driver is not loaded",
            r"Module nvidia(?:-current)? not found",
            r"Failed to initialize NVML: Driver Not Loaded|NVML_ERROR_DRIVER_NOT_LOADED",
            r"NVRM: .*nouveau",
            r"Kernel driver in use: nouveau",
            r"Unable to load the kernel module '?nvidia",
            r"probe routine was not called",
            r"No NVIDIA graphics adapter probed",
            r"could not find module by name='nvidia",
            r"nvidia.*Key was rejected by service",
            r"(?:No NVIDIA driver|driver not) .{0,30}loaded",
            r"NVIDIA kernel module .*(?:not loaded|missing|failed)",
            r"FATAL: Module nvidia",
            r"NVIDIA probe routine failed",
            r"Loading of unsigned module is rejected",
            r"Bad return status for module build on kernel",
            r"Your kernel headers for kernel \S+ cannot be found",
            r"/dev/nvidia\w*\W{1,3}no such file",
            r"nvidia-container-cli(?:\.real)?: initialization error: (?:nvml|driver)",
            r"load library failed: libnvidia-ml",
            r"modpost: .*\bnvidia\S*\.ko",
            r"DKMS module '?nvidia\S* failed",
            r"DKMS module .nvidia.* FAILED",
            r"dkms build -m nvidia",
            r"Unable to load the .?nvidia\S* kernel module",
            r"kernel source tree for the currently running kernel",
            r"nvidia\S* appears to already be loaded",
            r"Nouveau kernel driver is currently in use",
            r"The kernel module failed to load",
            r"region assigned to your NVIDIA device is invalid",
            r"already bound to nouveau",
            r"unsigned module loading is restricted",
            r"failed for module\(s\): .*nvidia",
            r"install the kernel module through DKMS",
            r"NVRM: installed in this system is not supported",
            r"nvidia\.ko because it does not include",
            r"nvidia-persistenced\.service: Failed",
            r"performing the step: .Building kernel modules",
        ),
        cause=(
            "The nvidia kernel module is not loaded: nouveau in its place, Secure Boot without a signature, or a new "
            "kernel without a rebuilt module."
        ),
        fix=(
            "Run the nvidia_driver role on the node (dkms rebuild, nouveau off; sign the module or turn Secure Boot "
            "off), then reboot."
        ),
        probe="driver_loaded",
    ),
    Rule(
        id="driver_tools_absent",
        label="driver_not_loaded",
        level=HINT,
        confidence=0.4,
        signs=signs(r"nvidia-smi\W{1,3}(?:command |executable file )?not found"),
        recovers=True,
        cause="nvidia-smi is not there: no driver is installed on this node, or the container has none of its tools.",
        fix="Run the nvidia_driver role on the node; containers need the NVIDIA runtime (--gpus all).",
        probe="driver_loaded",
    ),
    Rule(
        id="no_gpu_seen",
        label="gpu_not_visible",
        level=LIKELY,
        confidence=0.8,
        signs=signs(
            r"[Ff]ailed to open libnvidia-ml",
            r"nvml(?:Init\w*|DeviceGetHandleByPciBusId)\(\) failed: (?:Unknown Error|Insufficient|Not Found)",
            r"GPU access blocked by the operating system",
            r"cudaGetDeviceCount\b.*(?:Error|returned) (?:3|30|304|999)\b",
            r"cuInit: (?:CUDA_ERROR_UNKNOWN|UNKNOWN ERROR)",
            r"(?<!')OS call failed or operation not supported|CUDA_ERROR_OPERATING_SYSTEM",
            r"NCCL WARN Failed to find CUDA library|^\W*Failed to find CUDA library",
            r"nable to open /dev/kfd",
            r"hipErrorNoDevice",
            r"No CUDA GPUs are available",
            r"no CUDA-capable device is detected",
            r"No CUDA runtime is found",
            r"Failed to initialize NVML: (?:Unknown Error|Insufficient Permissions|Not Found)",
            r"Can't initialize NVML",
            r"no GPUs found!",
            r"could not select device driver .*gpu",
            r"might not have a CUDA gpu",
            r"Found no NVIDIA driver on your system",
            r"cudaErrorNoDevice",
            r"CUDA unknown error - this may be due to an incorrectly set up environment",
            r"CUDA_ERROR_NO_DEVICE",
            r"No devices were found",
            r"Torch not compiled with CUDA enabled|was compiled without CUDA",
            r"libcudart functions unavailable",
            r"NVMLError_(?:NoPermission|Unknown|NotFound)\b",
            r"torch\.cuda\.is_available\(\) is False",
            r"Distributed package doesn't have NCCL",
            r"No supported gpu backend found",
            r"doesn't support bf16/gpu",
            r"kernel driver does not appear to be running",
            r"NVIDIA Driver was not detected",
            sign(
                r"\bno (?:(?:NVIDIA|CUDA|supported) )?GPUs?(?: devices?)? (?:(?:was|were|are) )?"
                r"(?:found|detected|available)",
                *("no gpu", "no nvidia gpu", "no cuda gpu", "no supported gpu"),
            ),
            r"nvidia-container-cli: (?:device|detection|mount|ldcache|container|requirement) error",
            r"could not apply required modification to OCI specification",
            r"nvidia-container-(?:runtime|toolkit)\S*\"?: executable file not found",
            r"could not find nvidia-container-cli",
            r"WSL environment detected but no adapters",
            r"nknown (?:or invalid )?runtime (?:specified|name:?) nvidia",
            r"executing hook .*nvidia-container",
            r"unresolvable CDI devices",
            r"Insufficient nvidia\.com/gpu",
            r"devices unavailable for nvidia\.com/gpu",
            r"no known GPU vendor found",
            r"did you configure the NVIDIA Container Toolkit",
            r"can only be used on CUDA devices",
            r"mixed precision requires a GPU",
            r"CUDA is not available",
            r"No HIP GPUs are available",
            r"no GPU resources available",
            r"CUDA_VISIBLE_DEVICES is set to an empty",
            r"cuda\.device_count\(\) ?=+ ?0",
            _code(100),
            r"No devices found\. Waiting",
            r"0 active drivers \(|found no CUDA devices",
            r"Found 0 GPUs?\b",
            r"CUDA unavailable, invalid device",
            r"But your machine only has: \[\]",
            r"(?:CUDA|GPU)Accelerator.? can ?not run on your system",
            r"GPUs requested but none",
            r"Ray does not allocate any GPUs",
            r"Failed to infer device type|Device string must not be empty",
            r"Invalid CUDA 'device=",
            r"NVML Shared Library Not Found",
            r"NVML_ERROR_(?:NOT_FOUND|LIBRARY_NOT_FOUND)",
        ),
        recovers=True,
        cause=(
            "The process sees no GPU: hidden by CUDA_VISIBLE_DEVICES or a device cgroup, a container started without "
            "GPUs, or a CPU build of torch."
        ),
        fix=(
            "Check CUDA_VISIBLE_DEVICES in launch_env and nvidia-smi -L as the job's user; containers need the "
            "NVIDIA runtime "
            "(--gpus all); after 'NVML: Unknown Error' restart the container. torch must be a CUDA build (pytorch "
            "role)."
        ),
        probe="gpu_count",
    ),
    fact("cuda_asked", r"torch\.cuda\.is_available\(\)\s*\)?\s*$"),
    Rule(
        id="cuda_answers_no",
        label="gpu_not_visible",
        level=LIKELY,
        confidence=0.6,
        # What a prompt answers.
        signs=signs(sign(r"^\W*(?:Out\W*\d+\W+)?False\s*$", "false")),
        needs=("cuda_asked",),
        recovers=True,
        cause="torch sees no GPU here: hidden, a container started without GPUs, or a CPU build of torch.",
        fix=(
            "nvidia-smi -L as the job's user; containers need the NVIDIA runtime (--gpus all); torch must be a CUDA "
            "build (pytorch role)."
        ),
        probe="gpu_count",
    ),
    Rule(
        id="cuda_listed_absent",
        label="gpu_not_visible",
        level=HINT,
        confidence=0.4,
        # Of torch's own and accelerate's lists of the environment.
        signs=signs(r"^\W*(?:Is )?CUDA (?:is )?available\W*(?:\?|: *)\s*(?:False|No)\b"),
        recovers=True,
        cause="A list of the environment says that torch sees no GPU on this machine.",
        fix=(
            "nvidia-smi -L as the job's user; containers need the NVIDIA runtime (--gpus all); torch must be a CUDA "
            "build (pytorch role)."
        ),
        probe="gpu_count",
    ),
    Rule(
        id="no_kernel",
        label="no_kernel_image",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"invalid value for --gpu-architecture",
            r"(?:CUDNN|CUBLAS)_STATUS_ARCH_MISMATCH",
            r"no kernel image is available",
            r"(?P<sm>sm_\d+) is not compatible with the current PyTorch",
            r"current PyTorch install supports CUDA capabilities",
            r"invalid device function",
            r"only supports? (?:Ampere|Hopper|Blackwell)\S* GPUs or newer",
            r"cudaErrorNoKernelImageForDevice",
            r"cudaErrorInvalidDeviceFunction",
            _code(98),
            r"ptxas fatal.*Value '(?P<sm>sm_\w+)' is not defined",
            r"cuBLAS error 15\b",
            r"only supports? Hopper",
            r"only supported on GPUs with compute capability",
            r"CUDA_ERROR_NO_BINARY_FOR_GPU",
            r"PyTorch no longer supports this GPU",
            r"TensileLibrary",
            r"Illegal seek for GPU arch",
            r"Unknown CUDA arch \([^)]*\) or GPU not supported",
            r"too old to be supported by the triton|only supports devices of CUDA Capability",
            r"no compute capabilities remaining after",
            _code(209),
            r"is for sm\d\S*, but was built for sm",
            r"but your GPU has capability",
        ),
        recovers=True,
        cause="This torch (or extension) holds no kernels for the GPU's architecture {sm}.",
        fix=(
            "Install a torch build whose architecture list has it (pytorch role; python -c 'import torch; "
            "print(torch.cuda.get_arch_list())'); rebuild extensions with TORCH_CUDA_ARCH_LIST."
        ),
        probe="torch_arch_list",
    ),
    # Memory.
    Rule(
        id="cuda_oom",
        label="cuda_oom",
        level=STATED,
        confidence=0.9,
        signs=signs(
            r"HIP failure:? '?out of memory",
            r"HSA_STATUS_ERROR_OUT_OF_RESOURCES",
            # Not where a warning tells of such errors in general.
            r"CUDA out of memory(?! errors?\b)",
            r"(?:HIP|XPU|NPU|MLU|MUSA|HPU) out of memory",
            r"Triton Error \[CUDA\]: out of memory|hipErrorOutOfMemory",
            r"CUDA (?:driver )?error: out of memory",
            r"cudaMalloc\w* failed: out of memory",
            r"cuda failure (?:\d+ )?'out of memory'",
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"cudaErrorMemoryAllocation",
            r"torch\.(?:cuda\.)?OutOfMemoryError",
            r"Failed to CUDA (?:host )?(?:calloc|malloc)",
            r"CUBLAS_STATUS_ALLOC_FAILED",
            r"(?:CUDNN|CUSOLVER)_STATUS_ALLOC_FAILED",
            r"runtime error \(2\) ?: out of memory",
            r"Failed to CUDA host alloc",
            r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)",
            r"OOM when allocating tensor",
            r"No available memory for the cache blocks",
            r"HIP error: out of memory",
            r"CUDA error \d+ .*out of memory",
            r"Test CUDA failure \S+ 'out of memory",
            # torch asks NVML who uses the memory when it has run out.
            r"NVML_SUCCESS == .*INTERNAL ASSERT FAILED",
            r"less than desired GPU memory utilization",
            r"can be stored in KV cache|larger than the available KV cache memory",
            r"increase --mem-fraction-static|Some GPUs may be occupied by other processes",
            _code(2),
            r"ran out of memory trying to allocate(?!.*not a failure)",
            r"Tried to allocate [\d.]+ [GMK]i?B\. GPU",
        ),
        # Some programs catch it and go on with a smaller batch.
        recovers=True,
        cause="A rank ran out of GPU memory; what other ranks report is the echo.",
        fix=(
            "Smaller micro batch, activation checkpointing or sharding (ZeRO, FSDP); free the GPU of other processes "
            "(nvidia-smi); launch_env: {{PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}} against fragmentation."
        ),
        probe="gpu_processes",
    ),
    Rule(
        id="cublas_handle",
        label="cuda_oom",
        level=SYMPTOM,
        confidence=0.4,
        signs=signs(r"(?:CUBLAS|CUSPARSE|CUSOLVER)_STATUS_NOT_INITIALIZED"),
        recovers=True,
        cause="A CUDA library gets no handle: mostly no GPU memory is left, else another version of it is loaded.",
        fix="nvidia-smi for what holds memory; smaller micro batch; then launch_env: {{LD_LIBRARY_PATH: ''}} once.",
        probe="gpu_processes",
    ),
    Rule(
        id="kernel_oom",
        label="host_oom_sigkill",
        level=STATED,
        confidence=0.95,
        signs=signs(
            r"Out of memory: Kill",
            r"memory cgroup out of memory",
            r"oom-kill",
            r"oom_kill",
            r"invoked oom-killer",
            r"OOMKilled",
            r"low on resource: memory",
            r"cgroup out-of-memory handler",
            r"killed by the OOM killer",
            r"is killed by signal: Killed",
            r"task \d+: Out Of Memory",
            r"JobState=OUT_OF_MEMORY",
            r"killed due to the node running low on memory",
            r"exceeded (?:virtual )?memory limit",
            r"Exceeded (?:job|step) memory limit",
            r"job killed: v?mem ",
            r"TERM_(?:MEMLIMIT|SWAP)",
            r"exceeds job hard limit \"[hs]_(?:vmem|rss|data)",
            r"killed due to memory pressure",
            r"systemd-oomd\S* Killed",
            r"earlyoom\S* sending SIG",
            r"Killed process \d+ \(",
            r"exceeds the memory usage threshold",
            r"NODE_OUT_OF_MEMORY",
        ),
        cause="The kernel (or the cgroup) killed a process because the node's memory was used up.",
        fix=(
            "Fewer DataLoader workers, low_cpu_mem_usage or meta-device loading, no offload to host memory, or more "
            "memory for the job; dmesg -T | grep -i oom names the process."
        ),
        probe="kernel_oom",
    ),
    # MPICH's exit code 9 is that of its own cleaning; this is what ended the process.
    fact("ended_by_another_signal", r"EXIT STRING: (?!Killed)\w"),
    Rule(
        id="killed",
        label="host_oom_sigkill",
        level=KILLED,
        confidence=0.7,
        signs=signs(
            sign(r"exit ?code:? ?\(?-9\b", "exitcode", "exit code"),
            r"exitcode\s*: -9\b",
            r"exitcode: -9\b",
            r"return code = -9\b",
            r"Signal 9 \(SIGKILL\)",
            r"exited on signal 9 \(Killed\)",
            r"died with <Signals\.SIGKILL",
            r"terminated with signal SIGKILL",
            r"KILLED BY SIGNAL: 9\b",
            r"^=? *EXIT CODE: 9\b",
            sign(r"exit(?:ed with)? (?:status|code):? 137\b", "status 137", "code 137", "code: 137"),
            sign(r"(?:line \d+: +|^)\d+ Killed  ", " killed  "),
            r"^\W*Killed\W*$",
            sign(r"tasks? \d[\d,-]*: Killed\s*$", ": killed"),
            r"fatal error: Killed signal terminated",
            _ended(r"-9|137", r"9"),
        ),
        unless=("ended_by_another_signal",),
        outranks=("collective_timeout_desync", "external_sigterm"),
        cause="A rank was killed by signal 9: nearly always the kernel or the cgroup, out of host memory.",
        fix=(
            "Confirm: dmesg -T | grep -i -E 'oom|killed process' on that node; then fewer DataLoader workers, "
            "lower-memory loading, less offload, or more memory for the job."
        ),
        probe="kernel_oom",
    ),
    Rule(
        id="host_allocation",
        label="host_oom_sigkill",
        level=LIKELY,
        confidence=0.6,
        signs=signs(
            r"DefaultCPUAllocator: (?:can't|not enough)",
            r"Torch: not enough memory: you tried",
            r"std::bad_alloc",
            r"^\W*(?:\[\S+\]:? ?)?(?:numpy\S*\.)?(?:_Array)?MemoryError",
            r"fork: Cannot allocate memory",
            r"\[Errno 12\] Cannot allocate memory",
            r"unable to mmap \d+ bytes from file <filename not specified>",
            r"unable to mmap \d+ bytes from file <[^/>][^>]*>: Cannot allocate",
            r"(?:NCCL WARN |^\W*)Failed to malloc",
            r"Unrecoverable error detected: malloc",
            r"(?-i:OSError|RuntimeError|MemoryError): Cannot allocate memory",
        ),
        cause="The node's main memory is used up.",
        fix=(
            "Fewer DataLoader workers, low_cpu_mem_usage or meta-device loading, no offload to host memory, or more "
            "memory for the job."
        ),
        probe="kernel_oom",
    ),
    # Shared memory, disks, limits.
    fact("semaphore_stack", r"SemLock", r"multiprocessing/(?:synchronize|heap|shared_memory)\.py", r"shm_open"),
    Rule(
        id="shm_full",
        label="shm_too_small",
        level=STATED,
        confidence=0.92,
        signs=signs(
            r"/dev/shm.*No space left",
            r"No space left on device.*/dev/shm",
            r" 100% /dev/shm",
            r"failed to extend /dev/shm/(?!.*retrying)",
            r"Error while creating shared memory segment .*No space left",
            r"insufficient shared memory",
            r"out of shared memory",
            r"killed by signal: Bus error",
            r"raise your shared memory limit",
            r"unable to (?:write to|allocate shared memory\S* for|mmap \d+ bytes from) file </?torch_",
            r"unable to allocate shared memory",
            r"posix_fallocate failed ?: No space",
            r"shared memory mmap\(.*No space left",
            r"unable to open shared memory object .*No space left",
            r"unable to resize file </?torch_.*",
            r"/dev/shm .{0,40}(?:too small|is full|100%)",
            r"not enough space for .*(?:shared-memory backing|sm_segment)",
            r"Please check that /dev/shm",
        ),
        outranks=("disk_full",),
        cause="/dev/shm is full or too small (containers start with 64 MB).",
        fix=_MORE_SHM,
        probe="shm_free",
    ),
    fact("shm_not_pinned", r"(?:shmutils\.cc|include/shm\.h):\d+ (?:\(\w+\) )?NCCL WARN Cuda failure"),
    Rule(
        id="shm_not_made",
        label="shm_too_small",
        level=STATED,
        confidence=0.88,
        # NCCL before 2.19 does not print the reason, and this is nearly always it.
        signs=signs(r"Error while creating shared memory segment (?!.*(?:No such file|Permission|not permitted))"),
        unless=("shm_not_pinned",),
        outranks=("disk_full",),
        cause="NCCL cannot make its segment in /dev/shm: it is full or too small (containers start with 64 MB).",
        fix=_MORE_SHM,
        probe="shm_free",
    ),
    Rule(
        id="shm_full_semaphore",
        label="shm_too_small",
        level=STATED,
        confidence=0.8,
        signs=signs(r"\[Errno 28\] No space left on device"),
        needs=("semaphore_stack",),
        outranks=("disk_full",),
        cause="Python's semaphores and shared blocks find no room: /dev/shm is full.",
        fix=_MORE_SHM,
        probe="shm_free",
    ),
    Rule(
        id="bus_error",
        label="shm_too_small",
        level=KILLED,
        confidence=0.6,
        signs=signs(
            r"Signal 7 \(SIGBUS\)",
            r"Bus error \(core dumped\)",
            r"(?:exitcode|return code)\s*[:=]\s*(?:-7|135)\b",
            r"Bus error: (?:nonexistent|non-existent) physical address",
            r"Fatal Python error: Bus error|Signal: Bus error \(7\)",
            r"\bSIGBUS\b",
            _ended(r"-7|135", r"7"),
        ),
        cause="A rank died of a bus error: mostly shared memory that could not be backed because /dev/shm is full.",
        fix=_MORE_SHM,
        probe="shm_free",
    ),
    Rule(
        id="shm_gone",
        label="shm_other",
        level=LIKELY,
        confidence=0.8,
        signs=signs(
            r"unlink shared memory \S+ failed",
            r"attaching to shared memory segment (?!.*No space)",
            r"Could not map \S*/?nccl-\w+ size",
            r"mm_posix\.c.* open\(file_name=/proc/\d+/fd/.* failed",
            r"(?:creat(?:ing|e)|opening) shared memory (?:segment|file) .*(?:No such file|Permission|not permitted)",
            r"unable to open shared memory object <\S+ in read-write mode: Permission denied",
            r"shm_open.*(?:No such file|Permission denied|Function not implemented)",
            r"cudaHostRegister.*(?:fail|error)",
            r"could not (?:register|host register).*shared",
            r"shmutils\.cc:\d+ (?:\(\w+\) )?NCCL WARN (?:Cuda failure|Call to open failed)",
            r"transport/shm\.cc:\d+ (?:\(\w+\) )?NCCL WARN",
            r"include/shm\.h:\d+ (?:\(\w+\) )?NCCL WARN (?:Cuda failure|Call to \w+ failed ?: (?:Permission|"
            r"No such file))",
            r"failed to (?:attach to|allocate|create) shm(?:seg| segment)",
            r"shm(?:at|get|ctl)\(.{0,80}\) failed",
            r"check shared memory limits by .?ipcs",
            r"failed to open shared memory mapping",
            r"munmap of shared memory .* failed",
            r"No such file or directory: '/?psm_",
            r"_posixshmem\.shm_open\(",
            r"(?:File exists|Permission denied|No such file or directory): '/\d{6}_[a-z]",
            r"could not unlink the shared memory file",
            r"unable to open shared memory object <\S+ in read-write mode: No such file",
            r"Permission denied: '/dev/shm",
            r"failed during shared memory initialization",
        ),
        cause="A shared-memory segment vanished or could not be mapped, and not for want of room.",
        fix=(
            "RemoveIPC=no in /etc/systemd/logind.conf (systemd deletes segments of users who log out), the same "
            "/dev/shm for "
            "all ranks of a node; work-arounds: nccl_env_extra: {{NCCL_CUMEM_HOST_ENABLE: '0'}} or "
            "{{NCCL_SHM_DISABLE: '1'}}."
        ),
        probe="remove_ipc",
    ),
    Rule(
        id="disk_full",
        label="disk_full",
        level=STATED,
        confidence=0.85,
        signs=signs(
            r"No space left on device",
            r"disk quota exceeded",
            r"database or disk is full",
            r"PytorchStreamWriter failed writing file",
            r"inline_container\.cc.*unexpected pos",
            r"No usable temporary directory found",
            r"StorageFull",
            r"Not enough disk space",
            r"DiskPressure",
            r"low on resource: ephemeral|ephemeral local storage usage|exceeded its local ephemeral|OutOfDiskError",
            r"not enough space on the disk",
            r"\(disk full\?\)",
        ),
        cause="A file system (or a quota on it) is full.",
        fix=(
            "Free space where the run writes: df -h and df -i on that node; move checkpoints, TMPDIR and caches in "
            "launch_env."
        ),
        probe="disk_free",
    ),
    Rule(
        id="file_not_written",
        label="disk_full",
        level=LIKELY,
        confidence=0.55,
        signs=signs(
            r"write\(\): fd \d+ failed with",
            r"File \S+\.(?:pt|pth|ckpt|bin) cannot be opened",
            r"FileStream\.Write incomplete|std::fwrite\(",
            r"\[Errno 5\] Input/output error",
            r"\[Errno 30\] Read-only file system",
            r"\d+ requested and \d+ written",
            r"EXT4-fs error",
            r"Stale (?:NFS )?file handle",
        ),
        cause="A checkpoint could not be written: the file system is full, over its quota, or failing.",
        fix="df -h, df -i and the quota on that node; dmesg tells of a failing disk or a lost network file system.",
        probe="disk_free",
    ),
    Rule(
        id="open_files",
        label="ulimit_nofile",
        level=STATED,
        confidence=0.92,
        signs=signs(
            r"Too many open files",
            r"VFS: file-max limit \d+ reached",
            r"max open files limit \(ulimit -n\)",
            r"\[Errno 24\]",
            r"received 0 items of ancdata",
            r"\bEMFILE\b",
            r"system limit on number of (?:pipes|network connections)|system limit exceeded on number of pipes",
        ),
        outranks=("shm_too_small",),
        cause="A process reached its limit of open files.",
        fix=(
            "Raise nofile as the job gets it (node_tuning role sets limits.d and systemd's LimitNOFILE; ulimit -n "
            "1048576), or torch.multiprocessing.set_sharing_strategy('file_system')."
        ),
        probe="nofile",
    ),
    Rule(
        id="process_limit",
        label="ulimit_nofile",
        level=SYMPTOM,
        confidence=0.4,
        signs=signs(
            r"can't start new thread",
            r"pthread_create failed.*: Resource temporarily unavailable",
            r"Thread creation failed: Resource temporarily",
            r"fork: (?:retry: )?Resource temporarily unavailable",
        ),
        cause="A limit of the user or of the cgroup on processes and threads is reached.",
        fix=(
            "Raise nproc and the cgroup's pids.max as the job gets them (ulimit -u; systemd's TasksMax), or start "
            "less: fewer DataLoader workers, OMP_NUM_THREADS in launch_env."
        ),
        probe="nofile",
    ),
    Rule(
        id="shm_object_unopened",
        label="ulimit_nofile",
        level=SYMPTOM,
        confidence=0.45,
        signs=signs(
            r"unable to open shared memory object </?torch_\S+ in read-write mode(?!: (?:No such|No space|Perm))"
        ),
        cause="A worker could not open a shared tensor: most often the limit of open files.",
        fix=(
            "Raise nofile as the job gets it (ulimit -n), or torch.multiprocessing.set_sharing_strategy('file_system')."
        ),
        probe="nofile",
    ),
)
