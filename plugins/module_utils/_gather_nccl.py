# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""How facts about network and NCCL are gathered on a node. Takes the module as it is, to need nothing of Ansible."""

from __future__ import annotations

import fcntl
import glob
import gzip
import os
import pwd
import resource
import socket
import struct
import sys
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.torchfleet.cluster.plugins.module_utils import _fabric, _fabric_text, _nccl_conf, _p2p, _rdma
from ansible_collections.torchfleet.cluster.plugins.module_utils._cluster import to_dict
from ansible_collections.torchfleet.cluster.plugins.module_utils._probe_run import run_probe
from ansible_collections.torchfleet.cluster.plugins.module_utils._runtime import (
    build_library,
    build_plugins,
    net_plugins,
)

PROBE_SECONDS = 20
SBIN = ["/sbin", "/usr/sbin", "/usr/local/sbin"]
NET_FILES = (
    "type",
    "flags",
    "operstate",
    "carrier",
    "speed",
    "mtu",
    "address",
    "ifindex",
    "iflink",
    "uevent",
    "tun_flags",
)


def read(*parts: str) -> str:
    """A small file's text, '' where it is not there or the kernel refuses to tell."""
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def listdir(*parts: str) -> List[str]:
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def link_name(*parts: str) -> str:
    """The last part of what a symbolic link points to, '' where it is none."""
    try:
        return os.path.basename(os.readlink(os.path.join(*parts)))
    except OSError:
        return ""


def read_net(root: str = "/") -> Dict[str, Dict[str, Any]]:
    """/sys/class/net as build_interfaces wants it."""
    base = os.path.join(root, "sys/class/net")
    found = {}
    for name in listdir(base):
        folder = os.path.join(base, name)
        if not os.path.isdir(folder):  # bonding_masters
            continue
        entry: Dict[str, Any] = {key: text for key in NET_FILES for text in [read(folder, key)] if text}
        device = os.path.join(folder, "device")
        if os.path.isdir(device):
            entry["device"] = os.path.realpath(device)
            entry["bus"] = link_name(device, "subsystem")
            entry["driver"] = link_name(device, "driver")
            entry["device_uevent"] = read(device, "uevent")
            entry["numa_node"] = read(device, "numa_node")
            entry["is_virtual_function"] = os.path.lexists(os.path.join(device, "physfn"))
        entry["master"] = link_name(folder, "master")
        entry["lower"] = [item[len("lower_") :] for item in listdir(folder) if item.startswith("lower_")]
        entry["is_bridge"] = os.path.isdir(os.path.join(folder, "bridge"))
        entry["is_wireless"] = any(os.path.lexists(os.path.join(folder, item)) for item in ("wireless", "phy80211"))
        if os.path.isdir(os.path.join(folder, "bonding")):
            entry["bonding"] = read(folder, "bonding", "mode")
        found[name] = entry
    return found


def read_rdma(root: str = "/") -> Dict[str, Dict[str, Any]]:
    """/sys/class/infiniband as build_rdma_devices wants it. Types are read only where there is a GID."""
    base = os.path.join(root, "sys/class/infiniband")
    found = {}
    for name in listdir(base):
        folder = os.path.join(base, name)
        device = os.path.join(folder, "device")
        entry: Dict[str, Any] = {
            key: read(folder, key) for key in ("hca_type", "fw_ver", "board_id", "node_guid", "node_type")
        }
        entry["is_soft"] = "/devices/virtual/" in os.path.realpath(folder)
        if os.path.isdir(device):
            entry["device"] = os.path.realpath(device)
            entry["driver"] = link_name(device, "driver")
            entry["numa_node"] = read(device, "numa_node")
            entry["is_virtual_function"] = os.path.lexists(os.path.join(device, "physfn"))
            entry["netdevs"] = {netdev: read(device, "net", netdev, "dev_port") for netdev in listdir(device, "net")}
        entry["ports"] = {
            int(number): read_port(os.path.join(folder, "ports", number))
            for number in listdir(folder, "ports")
            if number.isdigit()
        }
        found[name] = entry
    return found


def read_port(folder: str) -> Dict[str, Any]:
    entry: Dict[str, Any] = {key: read(folder, key) for key in ("state", "phys_state", "rate", "link_layer")}
    gids = {int(index): read(folder, "gids", index).strip() for index in listdir(folder, "gids") if index.isdigit()}
    entry["gids"] = {index: gid for index, gid in gids.items() if gid.strip("0:")}
    for key in ("types", "ndevs"):
        entry[key] = {index: read(folder, "gid_attrs", key, str(index)) for index in entry["gids"]}
    return entry


def read_bridges(root: str = "/") -> Dict[str, bytes]:
    """Configuration space of each PCI bridge (class 0604)."""
    base = os.path.join(root, "sys/bus/pci/devices")
    found = {}
    for address in listdir(base):
        if not read(base, address, "class").startswith("0x0604"):
            continue
        try:
            with open(os.path.join(base, address, "config"), "rb") as stream:
                found[address] = stream.read(4096)
        except OSError:
            found[address] = b""
    return found


def kernel_config(root: str, release: str) -> Optional[str]:
    text = read(root, "boot", f"config-{release}")
    if text:
        return text
    try:
        with gzip.open(os.path.join(root, "proc/config.gz"), "rt", encoding="utf-8") as stream:
            return stream.read()
    except OSError:
        return None


def run(module: Any, *argv: str) -> Tuple[str, str]:
    """Standard output and standard error of a tool, both empty where it is not installed."""
    binary = module.get_bin_path(argv[0], opt_dirs=SBIN)
    if not binary:
        return "", ""
    _rc, out, err = module.run_command(
        [binary, *argv[1:]], environ_update={"LC_ALL": "C"}, errors="surrogate_then_replace"
    )
    return out, err


def addresses_by_ioctl() -> List[Dict[str, Any]]:
    """What the kernel tells without any tool: each interface's first IPv4 address, and IPv6 from /proc."""
    six = _fabric.parse_if_inet6(read("/proc/net/if_inet6"))
    links = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for index, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            entries = list(six.get(name, []))
            try:
                address = fcntl.ioctl(sock, 0x8915, request)[20:24]  # SIOCGIFADDR
                mask = fcntl.ioctl(sock, 0x891B, request)[20:24]  # SIOCGIFNETMASK
                prefix = bin(int.from_bytes(mask, "big")).count("1")
                entries.insert(0, {"local": socket.inet_ntoa(address), "prefixlen": prefix})
            except OSError:
                pass
            links.append({"ifname": name, "ifindex": index, "addr_info": entries})
    return links


def gather_links(module: Any) -> List[Dict[str, Any]]:
    links = _fabric.load_json(run(module, "ip", "-d", "-j", "addr")[0])
    if links:
        return links
    # BusyBox and old iproute2 print no JSON.
    return (
        _fabric_text.parse_ip_addr(run(module, "ip", "addr")[0])
        or _fabric_text.parse_ifconfig(run(module, "ifconfig", "-a")[0])
        or addresses_by_ioctl()
    )


def gather_routes(module: Any) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = []
    for family, option in (("ipv4", "-4"), ("ipv6", "-6")):
        found = _fabric.load_json(run(module, "ip", "-j", option, "route")[0])
        if found is None:
            found = _fabric_text.parse_ip_route(run(module, "ip", option, "route")[0])
        rows += [dict(row, family=family) for row in found]
    return rows or _fabric.parse_proc_route(read("/proc/net/route"))


def gather_rdma(module: Any, vendor_tools: bool) -> Tuple[Tuple[_rdma.RdmaDevice, ...], List[str]]:
    devices = _rdma.build_rdma_devices(read_rdma())
    if not vendor_tools:
        return devices, []
    report = _rdma.parse_ibv_devinfo("\n".join(run(module, "ibv_devinfo", "-v")))
    devices = _rdma.supplement(
        devices,
        report.devices,
        _rdma.parse_show_gids(run(module, "show_gids")[0]),
        _rdma.parse_ibdev2netdev(run(module, "ibdev2netdev")[0]),
    )
    return devices, list(report.problems)


def gather_acs(module: Any, vendor_tools: bool) -> _p2p.Acs:
    acs = _p2p.acs_state(read_bridges())
    if acs.status == "unknown" and vendor_tools:
        return _p2p.parse_lspci_acs(run(module, "lspci", "-D", "-vvv")[0])
    return acs


def gather_gpudirect(root: str = "/") -> Dict[str, Any]:
    modules = _p2p.loaded_modules(read(root, "proc/modules"))
    release = os.uname().release
    dmabuf = _p2p.dmabuf_state(
        release,
        kernel_config(root, release),
        read(root, "proc/driver/nvidia/version"),
        os.path.isdir(os.path.join(root, "sys/class/infiniband")),
    )
    return {
        "peer_memory_module": _p2p.peer_memory_module(modules),
        "dmabuf": to_dict(dmabuf),
        "gdrcopy": os.path.exists(os.path.join(root, "dev/gdrdrv")),
    }


def gather_iommu(root: str = "/") -> _p2p.Iommu:
    groups = os.path.join(root, "sys/kernel/iommu_groups")
    return _p2p.iommu_state(
        listdir(root, "sys/class/iommu"),
        read(root, "proc/cmdline"),
        [read(groups, group, "type") for group in listdir(groups)],
    )


def gather_limits(module: Any) -> Dict[str, Any]:
    defaults = _p2p.parse_limits(
        run(module, "systemctl", "show", "-p", "DefaultLimitMEMLOCK", "-p", "DefaultLimitNOFILE")[0]
    )
    found = {}
    for name, number in (("memlock", resource.RLIMIT_MEMLOCK), ("nofile", resource.RLIMIT_NOFILE)):
        soft, hard = resource.getrlimit(number)
        found[name] = {"soft": soft, "hard": hard, "systemd": defaults.get(f"DefaultLimit{name.upper()}")}
    return found


def gather_shm(path: str = "/dev/shm") -> Dict[str, Any]:
    try:
        space = os.statvfs(path)
    except OSError:
        return {"path": path, "size_bytes": None, "free_bytes": None, "filesystem": None}
    # The last mount on a path is the one in effect.
    mounts = [line.split() for line in read("/proc/mounts").splitlines()]
    kinds = [fields[2] for fields in mounts if len(fields) > 2 and fields[1] == path]
    return {
        "path": path,
        "size_bytes": space.f_frsize * space.f_blocks,
        "free_bytes": space.f_frsize * space.f_bavail,
        "filesystem": kinds[-1] if kinds else None,
    }


def gather_ports(root: str = "/") -> Dict[str, Any]:
    bounds = read(root, "proc/sys/net/ipv4/ip_local_port_range").split()
    first, last = (int(bounds[0]), int(bounds[1])) if len(bounds) == 2 else (None, None)
    reserved = read(root, "proc/sys/net/ipv4/ip_local_reserved_ports").strip()
    return {"first": first, "last": last, "reserved": reserved}


def gather_settings(home: str, environment: Dict[str, str], root: str = "/") -> Tuple[_nccl_conf.Setting, ...]:
    """Every place that sets a variable of NCCL or gloo."""
    found: List[_nccl_conf.Setting] = list(_nccl_conf.environment_settings(environment))
    sources = list(_nccl_conf.SOURCES)
    if environment.get("NCCL_CONF_FILE"):
        sources.insert(0, _nccl_conf.Source(environment["NCCL_CONF_FILE"], "nccl"))
    seen = set()
    for source in sources:
        pattern = source.path.replace("~", home, 1) if source.path.startswith("~") else source.path
        for path in sorted(glob.glob(os.path.join(root, pattern.lstrip("/")))):
            if os.path.isfile(path) and path not in seen:
                seen.add(path)
                named = "/" + os.path.relpath(path, root)
                found += _nccl_conf.parse_settings(read(path), named, source.dialect)
    return tuple(found)


def gather_libraries(module: Any) -> Dict[str, Any]:
    path, environment = module.params["python"], module.params["environment"]
    variables = {str(name): str(value) for name, value in environment.items()}
    probe = run_probe(module, path, "libraries", PROBE_SECONDS, variables)
    report = probe.report
    if probe.status == "no_interpreter":
        # Copies and plugins of the system are there without it.
        report = run_probe(module, sys.executable, "libraries", PROBE_SECONDS, variables).report
    found = {"nccl": build_library("nccl", report), "cudnn": build_library("cudnn", report)}
    plugins = build_plugins(report)
    return {
        "python": {
            "path": path,
            "status": probe.status,
            "problem": probe.problem,
            "version": (probe.report.get("python") or {}).get("version", ""),
        },
        "nccl": to_dict(found["nccl"]),
        "cudnn": to_dict(found["cudnn"]),
        "plugins": [to_dict(plugin) for plugin in plugins],
        "net_plugins": net_plugins(plugins),
    }


def gather(module: Any) -> Dict[str, Any]:
    vendor_tools = module.params["vendor_tools"]
    devices, problems = gather_rdma(module, vendor_tools)
    interfaces = _rdma.attach(_fabric.build_interfaces(gather_links(module), read_net()), devices)
    home = module.params["home"] or pwd.getpwuid(os.geteuid()).pw_dir
    environment = dict(os.environ, **{str(name): str(value) for name, value in module.params["environment"].items()})
    settings = gather_settings(home, environment)
    return {
        "interfaces": [to_dict(interface) for interface in interfaces],
        "routes": [to_dict(route) for route in _fabric.build_routes(gather_routes(module))],
        "rdma": [to_dict(device) for device in devices],
        "rdma_problems": problems,
        **gather_libraries(module),
        "gpudirect": gather_gpudirect(),
        "acs": to_dict(gather_acs(module, vendor_tools)),
        "iommu": to_dict(gather_iommu()),
        "limits": gather_limits(module),
        "shm": gather_shm(),
        "ephemeral_ports": gather_ports(),
        "variables": [to_dict(setting) for setting in settings],
        "nccl_reads": {
            name: setting.value for name, setting in _nccl_conf.what_nccl_reads(settings, environment).items()
        },
        "contradictions": {
            name: [to_dict(setting) for setting in found] for name, found in _nccl_conf.contradictions(settings).items()
        },
    }
