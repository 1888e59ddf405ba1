# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""Rules: RDMA, GPUDirect, network plugins, NCCL itself."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils._diagnosis._rule import (
    CONTAINER,
    ECHO,
    HINT,
    LIKELY,
    STATED,
    SYMPTOM,
    Rule,
    fact,
    sign,
    signs,
)

# Of the plugin's warnings: what it prints while it runs tells of the peers, and some parts it does without.
_OFI_STARTS = (
    r"(?!.*(?:completed with error|Unresponsive|Error posting|failed to (?:post|process)|progress failed"
    r"|disabling shared memory|not configuring|inflight requests|non-existent))"
)

RULES: Tuple[Rule, ...] = (
    fact(
        "gid_listing",
        r"GID\[ *\d+\]:",
        sign(r"PORT\s+INDEX\s+GID\s", "\tindex\t", " index "),
        r"NCCL_IB_GID_INDEX",
        r"show_gids",
    ),
    fact("segfault", r"Segmentation fault", r"SIGSEGV", r"exitcode\s*: -11\b", r"core dumped", r"Segfault encountered"),
    fact("rdma_devices_listed", r"NET/IB : Using \["),
    # Both ends name an IPv4 address, so the index is right and the way between them is not.
    fact("gids_with_address", r"local ?GID :?:ffff:.*remote ?GIDs? ?:?:ffff:"),
    # On InfiniBand every GID begins with fe80:: and there is no index to choose.
    fact("infiniband", r"NET/IB : Using (?!.*/RoCE).*:\d+/IB\b"),
    Rule(
        id="gid_rejected",
        label="ib_gid_index",
        level=LIKELY,
        confidence=0.85,
        signs=signs(
            r"ibv_modify_qp failed.*(?:Invalid argument|\b22\b)",
            r"read failed in ncclIbRoceGetVersionNum",
            r"(?:ncclIbGetGidIndex|ibv_query_gid\w*).*(?:fail|error)",
            r"ibv_modify_qp failed.*(?:No data available|Network is unreachable)",
            r"Got completion .*(?:localGid|remoteGids?) ?fe80:",
            r"open failed in ncclIbRoceGetVersionNum",
            r"ibv_create_ah\w*(?:\(.*\).*)? failed",
        ),
        unless=("infiniband",),
        outranks=("ib_fabric_unreachable",),
        cause=(
            "The RoCE address NCCL uses cannot carry the connection: the GID index is wrong (a link-local or RoCE v1 "
            "entry, "
            "or one that this node does not have)."
        ),
        fix=(
            "With NCCL 2.21 and later remove NCCL_IB_GID_INDEX everywhere; with older ones set it per node to the "
            "RoCE v2 "
            "entry with the routable IPv4 (show_gids; often 3): nccl_env_extra: {{NCCL_IB_GID_INDEX: '3'}} in "
            "host_vars."
        ),
        probe="rdma_gids",
    ),
    Rule(
        id="gid_empty",
        label="ib_gid_index",
        level=LIKELY,
        confidence=0.8,
        # As perftest prints it, and NCCL where it connects over RoCE.
        signs=signs(r"\bGID: (?:00:){15}00\b", r"NET/IB: Dev \d+ .* GID \d+ \(0/0\)"),
        outranks=("ib_fabric_unreachable",),
        cause="The GID index in use is empty: this node or container has no address at that place of the table.",
        fix=(
            "Choose an index that show_gids lists with an address (perftest -x, NCCL_IB_GID_INDEX), or with NCCL 2.21 "
            "and later none; a container sees the entries of its own network interfaces alone."
        ),
        probe="rdma_gids",
    ),
    Rule(
        id="gid_changed",
        label="ib_gid_index",
        level=HINT,
        confidence=0.4,
        signs=signs(r"async event ?: GID table change", r"GID table changed"),
        recovers=True,
        cause="The adapter's table of addresses changed meanwhile, so that a fixed GID index means another one now.",
        fix=(
            "With NCCL 2.21 and later remove NCCL_IB_GID_INDEX everywhere, and start again; see what changes the "
            "adapter's addresses (DHCP, a container's network)."
        ),
        probe="rdma_gids",
    ),
    Rule(
        id="gid_not_routed",
        label="ib_gid_index",
        level=LIKELY,
        confidence=0.7,
        signs=signs(r"ibv_modify_qp failed.*(?:timed out|\b110\b)"),
        unless=("bootstrap_subnets", "bootstrap_roce_peers", "infiniband", "gids_with_address"),
        cause="The RoCE address NCCL uses does not reach the peer: most often a link-local GID index.",
        fix=(
            "With NCCL 2.21 and later remove NCCL_IB_GID_INDEX; with older ones set it to the RoCE v2 entry with the "
            "routable "
            "IPv4 (show_gids; often 3): nccl_env_extra: {{NCCL_IB_GID_INDEX: '3'}} in host_vars."
        ),
        probe="rdma_gids",
    ),
    Rule(
        id="bootstrap_roce_peers",
        label="ib_fabric_unreachable",
        level=LIKELY,
        confidence=0.7,
        signs=signs(r"ibv_modify_qp failed.*(?:timed out|\b110\b|No route to host|\b113\b)"),
        needs=("bootstrap_subnets", "rdma_devices_listed"),
        unless=("gid_listing",),
        cause=(
            "The RDMA ports are up but cannot reach each other: the nodes are in different subnets with no RoCE route "
            "between."
        ),
        fix=(
            "Test pair by pair with ib_write_bw -d <device>; put the RDMA ports into one routed network, or go on "
            "without: "
            "torchfleet_transport: tcp (NCCL_IB_DISABLE=1)."
        ),
        probe="rdma_pair",
    ),
    Rule(
        id="retries_exceeded",
        label="ib_fabric_unreachable",
        level=SYMPTOM,
        confidence=0.75,
        signs=signs(
            r"Unresponsive re(?:ceiver|mote)",
            r"UD endpoint .*unhandled timeout",
            r"UCX error .*Destination is unreachable",
            r"Got completion .*?(?:error|status)[ =](?:IBV_WC_RETRY_EXC_ERR|12\b|13\b|IBV_WC_RNR)",
            r"Transport retry count(?:er)? exceeded",
            r"RETRY EXCEEDED ERROR",
            r"ibv_modify_qp failed.*(?:No route to host|timed out)",
            r"modify QP .{0,20}to RT[RS]",
            r"RNR retry count exceeded",
            r"error modifying QP to RTR",
            r"Unable to Connect the HCA",
            r"Failed status 1[23]:",
            r"no .{0,40}transport to .*unreachable",
        ),
        cause=(
            "The RDMA ports are up but the peer's does not answer (retries used up): routing, another subnet, rails "
            "that do "
            "not meet, or not one fabric; after a while of good work, a peer that died."
        ),
        fix=(
            "Test pair by pair with ib_write_bw -d <device>; on a rail-only fabric nccl_env_extra: {{NCCL_CROSS_NIC: "
            "'0'}}; to "
            "go on over TCP torchfleet_transport: tcp (NCCL_IB_DISABLE=1)."
        ),
        probe="rdma_pair",
    ),
    Rule(
        id="mixed_fabrics",
        label="ib_hca_selection",
        level=LIKELY,
        confidence=0.55,
        signs=signs(
            r"NET/IB : Using .*?(?P<first>\w+):\d+/IB\b.*?(?P<other>\w+):\d+/RoCE",
            r"NET/IB : Using .*?(?P<first>\w+):\d+/RoCE.*?(?P<other>\w+):\d+/IB\b",
            r"NET/IB : Using .*?(?P<first>mlx5_\d+):\d+/RoCE.*?(?P<other>\w*bond\w*):\d+/RoCE",
        ),
        recovers=True,
        outranks=("ib_fabric_unreachable",),
        cause=(
            "NCCL uses adapters of two kinds at once ({first} and {other}): one of them belongs to storage or "
            "management."
        ),
        fix="Leave the wrong one out: nccl_env_extra: {{NCCL_IB_HCA: '^{other}'}}, or list the right ones.",
        probe="rdma_ports",
    ),
    Rule(
        id="device_unusable",
        label="ib_hca_selection",
        level=LIKELY,
        confidence=0.55,
        signs=signs(
            r"network device '(?P<other>[\w:]+)' is not available, please use",
            r"NET/IB : Unable to open device (?P<other>\w+)",
            r"(?:Call to |\b)ibv_\w+ failed.*No such device",
            r"Attempted to (?:connect|merge) incompatible devices",
            r"device is incompatible with the local",
            r"NET/IB : Unable to query device (?P<other>\w+)",
            r"mixed local Net device counts",
            r"valid NCCL_NET_FORCE_MERGE",
            r"Call to ibv_open_device failed",
            r"Can't merge net devices",
            r"non-existent virtual device",
            r"(?:Trying|Tried) to? ?merg(?:e|ing) multiple devices",
            r"Rank \d+ requires NIC \d+ but",
            r"Unable to find the Infiniband/RoCE device",
            r"UCX .*no usable transports/devices",
        ),
        recovers=True,
        cause="NCCL tries an adapter that it cannot use ({other}).",
        fix=(
            "Leave it out on that node: nccl_env_extra: {{NCCL_IB_HCA: '^{other}'}}, or list the right ones in "
            "NCCL_IB_HCA."
        ),
        probe="rdma_ports",
    ),
    Rule(
        id="memlock",
        label="ib_memlock",
        level=STATED,
        confidence=0.9,
        signs=signs(
            sign(
                r"ibv_(?:reg_mr\w*|create_cq\w*|create_qp\w*|alloc_pd|create_srq)(?:\(\))?:? .*(?:Cannot allocate"
                r"|\b12\b.*memory)",
                "ibv_",
            ),
            # NCCL before 2.8 does not print the reason.
            r"ibv_(?:reg_mr(?:_iova2?)?|create_cq|create_qp) failed\W*$",
            # libfabric's words: registering, and the pools of packets that it registers first.
            r"(?:register MR|RX packet pool|register memory)\b.*Cannot allocate memory",
            r"(?:Unable|Failed) to create QP",
            r"Couldn't create IB resource",
            r"max locked memory",
            r"allocate some locked memory",
            r"RLIMIT_MEMLOCK",
            r"memlock limit",
            sign(
                r"ibv_(?:exp_)?(?:reg_mr\w*|create_cq\w*|create_qp\w*)\(.+\) failed.*(?:Cannot allocate|"
                r"Resource temporarily)",
                "ibv_",
            ),
            r"mlx5dv_\w+\b.*Cannot allocate memory",
            r"Couldn't allocate MR: Cannot allocate",
            r"create (?:QP|CQ)\b.{0,40}Cannot allocate memory",
        ),
        recovers=True,
        cause="The limit on locked memory is too low to register buffers for RDMA.",
        fix=(
            "Raise memlock to unlimited as the job gets it: the node_tuning role sets limits.d and systemd's "
            "LimitMEMLOCK; log "
            "in anew; in containers --ulimit memlock=-1. Check inside the job: ulimit -l."
        ),
        probe="memlock",
    ),
    Rule(
        id="gdr_registration",
        label="gdr_unusable",
        level=STATED,
        confidence=0.85,
        signs=signs(
            r"Couldn't register (?:GPU )?MR",
            r"Regist\w*Memory\w* failed.*(?:Invalid argument|Bad address)",
            r"ib_umem_get: failed to get user pages",
            r"ibv_reg_dmabuf_mr\w* failed",
            r"ibv_reg_mr\w*(?:\(.*\))?:? failed.*(?:Bad address|Invalid argument)",
            r"register (?:MR|memory|user buffer|address)\b.*Bad address",
            r"mlx5dv_reg_dmabuf_mr failed(?!.*Cannot allocate)",
            r"with nvidia-peermem mode",
            r"ib_mlx5_log\.c.*(?:Local protection|Remote access) on",
            r"Couldn't allocate MR(?!: Cannot allocate)",
            r"Got completion .*?(?:error|status)[ =](?:IBV_WC_LOC_PROT_ERR|4\b|IBV_WC_REM_ACCESS_ERR|10\b)",
            r"cuMemGetHandleForAddressRange.*(?:fail|error|not supported)",
            r"(?:nvidia[-_]peermem|nv_peer_mem)\b.*(?:could not|not found|not loaded|Invalid argument|failed)",
            r"(?:could not insert|not found).*(?:nvidia[-_]peermem|nv_peer_mem)",
            r"(?:nvidia_peermem|nv_peer_mem): (?:disagrees|Unknown symbol)",
            r"ibv_exp_reg_mr.*failed.*(?:Bad address|Invalid argument)",
            r"please load Nvidia peermem",
            r"Peermem is not supported",
            r"ibv_reg_dmabuf_mr\w*: ",
            r"gdr_(?:pin_buffer|map)\w*\(.*failed",
            r"nvidia_p2p_get_pages",
        ),
        recovers=True,
        cause=(
            "The adapter cannot reach GPU memory directly: nvidia-peermem is absent, DMA-BUF unsupported, or ACS in "
            "the way."
        ),
        fix=(
            "modprobe nvidia-peermem on every node; if DMA-BUF is the trouble nccl_env_extra: {{NCCL_DMABUF_ENABLE: "
            "'0'}}; turn "
            "ACS off; to test that it is this: nccl_env_extra: {{NCCL_NET_GDR_LEVEL: '0'}}."
        ),
        probe="peermem_loaded",
    ),
    Rule(
        id="net_plugin",
        label="net_plugin_unusable",
        level=STATED,
        confidence=0.85,
        signs=signs(
            r"NET/OFI (?:Insufficient Libfabric devices|Caught exception in \w+_init)",
            r"NCCL WARN NET/OFI " + _OFI_STARTS + r".*(?:unable|fail|could ?n[o']t|no |error|not |wrong |mismatch)",
            # Outside NCCL (the plugin's own tests) it writes its own prefix.
            sign(
                r"(?:^|WARN\W.{0,80})NET/OFI " + _OFI_STARTS + r"(?:unable|could ?n[o']t|fail)",
                *("net/ofi unable", "net/ofi could", "net/ofi fail"),
            ),
            r"aws-ofi-nccl initialization failed",
            r"infiniband efa_\d+: Failed to",
            r"fi_getinfo: provider efa output empty list",
            r"NET/OFI .*fi_getinfo\(\) call failed",
            r"NET/OFI Only EFA provider is supported",
            r"libfabric\.so[.\d]*:? .*(?:not found|cannot open)",
            r"(?:NCCL WARN (?:Error: )?|^\W*Error: )network .+ not found",
            r"failed to initialize any NET plugin",
            r"NET/(?:FasTrak|GPUDirectTCPX\w*|Plugin:|Plugin :) .*(?:init\w* failed|failed to init)",
            r"NET/OFI .*requires at least libfabric",
            r"EFA libfabric provider not detected",
            r"^\W*fi_getinfo(?:\(\))?:.*(?:-61\b|No data available)",
            r"NET/OFI Caught exception in plugin",
            r"libnccl-\w+\S*: undefined symbol: fi_",
            r"libnccl-(?:net|ofi)\S*' from LD_PRELOAD cannot",
        ),
        recovers=True,
        cause=(
            "NCCL's network plugin (libnccl-net: OFI/EFA or a vendor's) cannot start: no device, no provider, or "
            "versions that do not fit."
        ),
        fix=(
            "Pass the device nodes into the container (/dev/infiniband/uverbs*, check fi_info -p efa), bring plugin "
            "and "
            "libfabric to matching versions, or do without: nccl_env_extra: {{NCCL_NET_PLUGIN: none}}."
        ),
        probe="net_plugin",
    ),
    # NCCL itself, and ranks that disagree.
    Rule(
        id="nccl_versions_differ",
        label="nccl_version_or_env_mismatch",
        level=LIKELY,
        confidence=0.85,
        signs=signs(r"NCCL version (?P<version>\d[\d.]+)\+"),
        differs="version",
        recovers=True,
        outranks=("nccl_bug_upgrade",),
        cause="The nodes run different releases of NCCL: {version}.",
        fix=(
            "Install one torch build on all nodes (the pytorch role), and look for an other libnccl on "
            "LD_LIBRARY_PATH: playbooks/check.yml names the odd node."
        ),
        probe="same_nccl",
    ),
    Rule(
        id="nccl_wordings_differ",
        label="nccl_version_or_env_mismatch",
        level=SYMPTOM,
        confidence=0.6,
        signs=signs(r"NET/Plugin ?: .*?(?P<wording>No plugin found|Could not find: lib)"),
        differs="wording",
        recovers=True,
        outranks=("nccl_bug_upgrade",),
        cause="The nodes word the same step differently, so they run different releases of NCCL.",
        fix="Install one torch build (or NCCL package) on all nodes; playbooks/check.yml names the odd node.",
        probe="same_nccl",
    ),
    Rule(
        id="nccl_disagree",
        label="nccl_version_or_env_mismatch",
        level=LIKELY,
        confidence=0.7,
        signs=signs(
            r"receiving \d+ bytes instead of \d+",
            r"wrong type \d+ != \d+",
            r"collective mismatch error",
            r"NCCL version mismatch",
            r"mismatched? NCCL version",
            r"wrong magic [0-9a-fx]+ != [0-9a-fx]+",
            r"NCCL library is (?:too old|not backwards compatible)",
            r"compiled with too old version of NCCL",
            r"not all ranks in the communicator support",
            r"Unexpected number of remote (?:control )?rails",
            r"XML (?:Topology|Graph) has wrong version",
            r"mixed local CollNet device counts",
            r"no algorithm/protocol available",
        ),
        cause=(
            "Two ranks speak differently: other NCCL releases, or NCCL_* settings (NCCL_PROTO, NCCL_ALGO, plugins) set "
            "on one only."
        ),
        fix=(
            "Same torch build and same nccl_env_extra on every node: set it in group_vars, not per host; look at "
            "/etc/nccl.conf and ~/.nccl.conf as well."
        ),
        probe="same_nccl",
    ),
    Rule(
        id="bare_invalid_usage",
        label="nccl_version_or_env_mismatch",
        level=ECHO,
        confidence=0.35,
        signs=signs(
            r"ncclInvalidUsage: This usually reflects invalid usage", r"NCCL error(?: \d| in): .*invalid usage"
        ),
        unless=("nccl_warned", "duplicate_gpu"),
        cause=(
            "NCCL rejects the call and the log does not say why: seen where the loaded NCCL does not fit the CUDA "
            "installed, or "
            "two ranks share a GPU."
        ),
        fix=(
            "Run again with nccl_env_extra: {{NCCL_DEBUG: WARN}} for the reason; check that the NCCL loaded is the "
            "wheel's own "
            "(playbooks/check.yml) and that each rank has its own GPU."
        ),
    ),
    Rule(
        id="nccl_crashed",
        label="nccl_bug_upgrade",
        level=LIKELY,
        confidence=0.7,
        signs=signs(r"segfault at .* in libnccl", r"general protection fault.*libnccl", r"Segmentation fault.*libnccl"),
        cause="NCCL itself crashed.",
        fix="Take another release of NCCL or of torch (pytorch role); to go on, turn off the part in the backtrace.",
    ),
    Rule(
        id="nccl_in_backtrace",
        label="nccl_bug_upgrade",
        level=LIKELY,
        confidence=0.65,
        signs=signs(
            r"\blibnccl\.so[.\d]*\(\S*\) ?\[0x",
            sign(r"#\d+ .{0,40} in (?P<function>p?nccl\w+) ?\(", " in nccl", " in pnccl"),
            sign(r"\.(?:cc?|cu|h)\", line \d+, in (?P<function>p?nccl\w+)", " in nccl", " in pnccl"),
        ),
        needs=("segfault",),
        cause="A process crashed within NCCL.",
        fix="Take another release of NCCL or of torch (pytorch role); to go on, turn off the part in the backtrace.",
    ),
    Rule(
        id="topology_not_understood",
        label="nccl_bug_upgrade",
        level=LIKELY,
        confidence=0.6,
        signs=signs(
            r"Failed to find reverse path from remNode",
            r"graph/\w+\.(?:cc|cu):\d+ (?:\(\w+\) )?NCCL WARN (?!.*(?:falling back|[Cc]ould not open|topology file"
            r"|P2P is disabled|requires NIC|NCCL_NET_FORCE_MERGE|multiple devices))",
            r"(?:NCCL WARN |^\W*)Could not find real path of",
            r"Attribute \S+ of node \S+ not found",
            r"(?:NCCL WARN |^\W*)Could not find (?:any local path|NET with id|rev link|node of type|gpu rank|"
            r"intermediate GPU|NIC for rank|net id)",
            sign(
                r"(?:NCCL WARN |^\W*)Error ?: (?:ring \d|could not find CPU|too many|ran out of room|tried to create|"
                r"corrupted comm)",
                *("error : ring", "could not find cpu", "error : too many", "ran out of room", "tried to create"),
                "corrupted comm",
            ),
            r"(?:NCCL WARN |^\W*)Internal error : ",
            r"NCCL WARN XML (?:Import|Mismatch|Parse)",
            r"NCCL WARN (?:GetXmlFrom|ncclTopo)\w+",
            r"(?:NCCL WARN |^\W*)Rank \d+ has no transport",
            r"No transport found for rank \d+",
            r"Failed to determine (?:local|intra proc) ranks",
            r"cudaArch \d+ ncclMaxSharedMem \d+ exceeds",
            r"already connected sendComm",
            r"(?:NCCL WARN |^\W*)Proxy append",
            r"posted incorrect receive info",
        ),
        recovers=True,
        cause="NCCL cannot make sense of this machine's GPUs and links: a fault of that release, or it is too old.",
        fix="Take a newer release of NCCL or of torch (pytorch role); NCCL_TOPO_DUMP_FILE keeps what it saw.",
    ),
    Rule(
        id="nccl_on_top",
        label="nccl_bug_upgrade",
        level=HINT,
        confidence=0.35,
        signs=signs(sign(r"^\W*#0 .{0,40} in (?P<function>p?nccl\w+) ?\(", " in nccl", " in pnccl")),
        cause="A debugger shows the process inside NCCL: it crashed or spins there.",
        fix="Take another release of NCCL or of torch (pytorch role); to go on, turn off the part in the backtrace.",
    ),
    Rule(
        id="nvls_failed",
        label="nccl_bug_upgrade",
        level=LIKELY,
        confidence=0.5,
        signs=signs(r"transport/nvls\.cc:\d+ (?:\(\w+\) )?NCCL WARN (?:Cuda|CUDA|NVLS)"),
        unless=("fabric_manager",),
        cause="NCCL's use of NVLink SHARP (NVLS) fails: a fault of that release with this driver.",
        fix=(
            "Take another release of NCCL or of torch (pytorch role), or a newer driver; to go on: nccl_env_extra: "
            "{{NCCL_NVLS_ENABLE: '0'}}."
        ),
    ),
    Rule(
        id="bootstrap_truncated",
        label="nccl_bug_upgrade",
        level=LIKELY,
        confidence=0.5,
        signs=signs(r"message truncated ?: received [\d,]+ bytes instead of \d+"),
        cause=(
            "NCCL's own start-up exchange got a message of the wrong size: a fault of that release, or two releases "
            "that meet."
        ),
        fix=(
            "Take another NCCL or torch release on all nodes at once (pytorch role); see that none runs a different "
            "one."
        ),
        probe="same_nccl",
    ),
    Rule(
        id="iommu_in_the_way",
        label="p2p_acs_hang",
        level=LIKELY,
        confidence=0.8,
        signs=signs(
            r"ACSCtl:.*(?:SrcValid\+|ReqRedir\+|CmpltRedir\+|UpstreamFwd\+)",
            r"IO_PAGE_FAULT",
            r"DMAR: \[DMA (?:Read|Write)",
            sign(r"Missing \"?iommu=pt", "iommu=pt"),
        ),
        recovers=True,
        outranks=("nccl_wrong_socket_ifname", "collective_timeout_desync"),
        cause=(
            "PCIe access control (ACS) or the IOMMU redirects traffic between GPUs: peer-to-peer transfers hang or "
            "corrupt data."
        ),
        fix=(
            "Turn ACS off on the bridges above the GPUs (setpci, or in the firmware), boot with iommu=pt or iommu "
            "off; to go on "
            "now: nccl_env_extra: {{NCCL_P2P_DISABLE: '1'}}."
        ),
        probe="acs",
    ),
    Rule(
        id="peer_access_refused",
        label="p2p_acs_hang",
        level=STATED,
        confidence=0.8,
        signs=signs(
            r"peer access is not supported between these",
            r"peer mapping resources exhausted",
            r"failed to open CUDA IPC handle",
            r"cudaIpc(?:Open|Get)MemHandle.*(?:fail|error)",
            r"doesn't support faster communication broadband via P2P",
            r"set `?NCCL_P2P_DISABLE=",
            r"cuIpcOpenMemHandle\w*\(?.*\)? failed",
            r"mapping of buffer object failed",
            r"CUDA_ERROR_(?:PEER_ACCESS_UNSUPPORTED|TOO_MANY_PEERS|MAP_FAILED)|cudaErrorTooManyPeers",
            r"transport/p2p\.cc:\d+ (?:\(\w+\) )?NCCL WARN Cuda failure (?:\d+ )?'(?:invalid (?:argument|device|"
            r"resource)|operation not supported)",
            r"failed to peer with device|does not have peer access to GPU",
            r"(?:hip|cuda)ErrorPeerAccess",
            r"CUDA error:? \(?217\b",
            r"Verification error @ element",
            r"Out of bounds values : [1-9]\d* FAILED",
        ),
        cause="The GPUs offer peer-to-peer access that they cannot give.",
        fix=(
            "nccl_env_extra: {{NCCL_P2P_DISABLE: '1'}}; for good, a driver that no longer offers it, or ACS and IOMMU "
            "off."
        ),
        probe="gpu_p2p",
    ),
    Rule(
        id="bare_internal_error",
        label="insufficient_log",
        level=CONTAINER,
        confidence=0.5,
        signs=signs(
            r"NCCL failure \S+ '(?:internal error|unhandled|remote)",
            r"ncclInternalError: Internal check failed",
            r"unhandled cuda error",
            r"\bnccl(?:InvalidUsage|InvalidArgument|InternalError|UnhandledCudaError)\b",
            r"NCCL error in: .*internal error",
            # How NCCL hands an error up, with its code; a warning before it would say more.
            sign(
                r"\b(?:init|bootstrap|group|enqueue)\.(?:cc|cu):\d+ -> [1-6]\b",
                "init.c",
                "bootstrap.c",
                "group.c",
                "enqueue.c",
            ),
        ),
        recovers=True,
        cause="NCCL failed, and the lines that say why are not in this log.",
        fix=(
            "Run again with nccl_env_extra: {{NCCL_DEBUG: INFO}} and keep the log of every node: the first 'NCCL WARN' "
            "of the first failing rank names the cause."
        ),
    ),
)
