"""Stand-ins for what no registry has: conda's installer, NVIDIA's .run files, driver packages.

They take the same options and leave the same files; what they install does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import os
import re
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import ClassVar

# A stand-in for conda: the real one's options, and its package cache as conda/core/package_cache_data.py has it, where a file
# counts by its URL in urls.txt and by its hash. Packages are wheels under conda's names; the Python is the node's.
_CONDA = r"""#!/usr/bin/python3
import fnmatch, glob, hashlib, json, os, subprocess, sys, urllib.request, zipfile

verb, *words = sys.argv[1:]
options, channels, specs = {}, [], []
while words:
    word = words.pop(0)
    if word in ("--prefix", "--file"):
        options[word] = words.pop(0)
    elif word == "--channel":
        channels.append(words.pop(0))
    elif word in ("--yes", "--quiet", "--override-channels", "--explicit", "--md5", "--offline"):
        options[word] = True
    elif word.startswith("-"):
        sys.exit("conda: error: unrecognized arguments: " + word)
    else:
        specs.append(word)
prefix, cache = options["--prefix"], os.environ["CONDA_PKGS_DIRS"]
links = prefix + "/conda-meta/stand-in"


def md5(path):
    with open(path, "rb") as stream:
        return hashlib.md5(stream.read()).hexdigest()


def solve():
    chosen, open_specs = {}, list(specs)
    found = {}
    for channel in channels:
        with urllib.request.urlopen(channel + "/noarch/repodata.json") as stream:
            for name, entry in json.load(stream)["packages.conda"].items():
                found[channel + "/noarch/" + name] = entry
    while open_specs:
        name, version, build = (open_specs.pop(0).replace("==", "=").split("=") + ["*", "*"])[:3]
        if name.startswith("__"):
            if not os.environ.get("CONDA_OVERRIDE_CUDA"):
                sys.exit("LibMambaUnsatisfiableError: nothing provides " + name)
            continue
        fit = [
            (url, entry)
            for url, entry in found.items()
            if entry["name"] == name
            and (version == "*" or (entry["version"] + ".").startswith(version + "."))
            and fnmatch.fnmatchcase(entry["build"], build)
        ]
        if not fit:
            sys.exit("PackagesNotFoundError: the following packages are not available: " + name + "=" + version + "=" + build)
        url, entry = fit[-1]
        if name not in chosen:
            chosen[name] = url + "#" + entry["md5"]
            open_specs += entry["depends"]
    return list(chosen.values())


def fetch(line):
    url, _hash, digest = line.partition("#")
    path, listed = os.path.join(cache, os.path.basename(url)), os.path.join(cache, "urls.txt")
    os.makedirs(cache, exist_ok=True)
    urls = open(listed).read().split() if os.path.exists(listed) else []
    if url in urls and os.path.exists(path) and md5(path) == digest:
        return path
    if "--offline" in options:
        sys.exit("RuntimeError: EnforceUnusedAdapter called with url " + url)
    urllib.request.urlretrieve(url, path)
    if md5(path) != digest:
        sys.exit("ChecksumMismatchError: " + url)
    with open(listed, "a") as stream:
        stream.write(url + "\n")
    return path


if verb == "create":
    lines = open(options["--file"]).read().split() if "--file" in options else solve()
    lines = [line for line in lines if line != "@EXPLICIT"]
    paths = [fetch(line) for line in lines]
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", prefix], check=True)
    (target,) = glob.glob(prefix + "/lib/python3*/site-packages")
    for path in paths:
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(target)
    os.mkdir(prefix + "/conda-meta")
    with open(links, "w") as stream:
        stream.write("".join(line + "\n" for line in lines))
elif verb == "list":
    print("# This file may be used to create an environment using:\n# platform: linux-64\n@EXPLICIT")
    print(open(links).read(), end="")
else:
    sys.exit("conda: error: argument COMMAND: invalid choice: " + verb)
"""

CONDA = r"""#!/bin/sh
# A stand-in for conda's installer.
prefix=
while [ $# -gt 0 ]; do
    case $1 in
    -b) silent=yes ;;
    -p) prefix=$2; shift ;;
    esac
    shift
done
[ "$silent" = yes ] || { echo "this would ask questions"; exit 1; }
[ -e "$prefix" ] && { echo "ERROR: File or directory already exists: '$prefix'"; exit 1; }
mkdir -p "$prefix/bin" "$prefix/conda-meta" "$prefix/pkgs" || exit 1
[ -e /tmp/pull-the-plug ] && kill -9 $PPID
head -c 20000000 /dev/zero > "$prefix/pkgs/payload" || exit 1
echo VERSION > "$prefix/conda-meta/version"
cat > "$prefix/bin/conda" <<'SCRIPT'
@CONDA@
SCRIPT
chmod 755 "$prefix/bin/conda"
""".replace("@CONDA@\n", _CONDA)

TOOLKIT = r"""#!/bin/sh
# A stand-in for the .run file of CUDA VERSION.
for option; do
    case $option in
    --silent) silent=yes ;;
    --toolkit) toolkit=yes ;;
    --toolkitpath=*) path=${option#*=} ;;
    esac
done
[ "$silent$toolkit" = yesyes ] || { echo "this would ask, or install a driver"; touch /tmp/driver-was-touched; exit 1; }
mkdir -p "$path/bin" "$path/lib64" || exit 1
head -c 20000000 /dev/zero > "$path/lib64/libcublas.so" || { echo "No space left on device"; exit 1; }
printf '#!/bin/sh\necho "Cuda compilation tools, release VERSION, VVERSION.85"\n' > "$path/bin/nvcc"
chmod 755 "$path/bin/nvcc"
echo '{"cuda": {"name": "CUDA SDK", "version": "VERSION.3"}}' > "$path/version.json"
"""

DRIVER = r"""#!/bin/sh
# A stand-in for NVIDIA's driver installer.
echo "$@" >> /var/lib/driver-stand-in
case " $* " in
*" --silent "*) ;;
*) exit 1 ;;
esac
"""


# nvidia-smi with a driver VERSION and one V100, in the shape of the real one.
SMI = """<?xml version="1.0" ?>
<nvidia_smi_log>
<timestamp>Tue Jan 20 10:00:00 2026</timestamp><driver_version>VERSION</driver_version><cuda_version>11.4</cuda_version>
<attached_gpus>1</attached_gpus>
<gpu id="00000000:1B:00.0"><product_name>Tesla V100-SXM2-32GB</product_name><product_architecture>Volta</product_architecture>
<uuid>GPU-00000000-0000-4000-8000-00000000001b</uuid><minor_number>0</minor_number>
<pci><pci_bus_id>00000000:1B:00.0</pci_bus_id></pci>
<fb_memory_usage><total>32510 MiB</total><used>4 MiB</used></fb_memory_usage></gpu>
</nvidia_smi_log>
"""


class Index(http.server.SimpleHTTPRequestHandler):
    """Serves files, and remembers what was asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_args):
        pass


@contextlib.contextmanager
def served(folder, address):
    """The folder by HTTP at that address of this machine; yields the URL."""
    Index.asked.clear()
    server = http.server.ThreadingHTTPServer((address, 0), functools.partial(Index, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()


def asked(*endings: str) -> list[str]:
    """The files with these endings that were asked for, each as often as it was."""
    return sorted(path.rpartition("/")[2] for path in Index.asked if path.endswith(endings))


def address_of(lab) -> str:
    """This machine, as the nodes reach it."""
    return lab.nodes["node1"]["ansible_host"].rpartition(".")[0] + ".1"


def channel(folder: Path, *packages: tuple[str, str, str, list[str], Path | None]) -> None:
    """A conda channel of these packages: name, version, build, dependencies, and the wheel that it is, or None for an empty one."""
    place = folder / "noarch"
    place.mkdir(parents=True)
    entries = {}
    for name, version, build, depends, wheel in packages:
        path = place / f"{name}-{version}-{build}.conda"
        if wheel is None:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(f"{name}.payload", os.urandom(1 << 20))
        else:
            os.link(wheel, path)
        digest = hashlib.md5(path.read_bytes()).hexdigest()
        entries[path.name] = {"name": name, "version": version, "build": build, "depends": depends, "md5": digest}
    (place / "repodata.json").write_text(json.dumps({"packages.conda": entries}), encoding="utf-8")


def wheels_as_packages(folder: Path, build: str) -> list[tuple[str, str, str, list[str], Path | None]]:
    """The folder's wheels as conda's packages, torch under its name there and with all others as what it needs."""
    found = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version = re.split("-", wheel.name)[:2]
        found.append((name.lower().replace("_", "-"), version.partition("+")[0], wheel))
    rest = [name for name, _version, _wheel in found if name != "torch"]
    return [
        ("pytorch", version, build, ["python", *rest], wheel) if name == "torch" else (name, version, "py_0", [], wheel)
        for name, version, wheel in found
    ]


def deb(folder: Path, name: str, version: str, size: int = 0, depends: str = "") -> None:
    """A package of that many bytes that no compression makes smaller, as dpkg-deb would build it."""

    def packed(*files: tuple[str, bytes]) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path, content in files:
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return stream.getvalue()

    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\n"
    control += (f"Depends: {depends}\n" if depends else "") + "Description: a stand-in\n"
    members = (
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", packed(("./control", control.encode()))),
        ("data.tar.gz", packed((f"./usr/share/{name}", os.urandom(size)))),
    )
    content = b"!<arch>\n"
    for member, data in members:
        content += (
            f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    path = folder / f"{name}_{version}_all.deb"
    path.write_bytes(content)
    with (folder / "Packages").open("a", encoding="utf-8") as stream:
        stream.write(
            f"{control}Filename: ./{path.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n\n"
        )


def driver(host, version: str | None) -> None:
    """The node answers as one with that driver, or as one without any."""
    host.check_output("rm -rf /usr/bin/nvidia-smi /etc/stand-in.xml")
    if version:
        host.check_output(f"cat > /etc/stand-in.xml <<'E'\n{SMI.replace('VERSION', version)}E")
        host.check_output(
            "printf '#!/bin/sh\\n[ \"$1\" = -q ] && cat /etc/stand-in.xml\\n' > /usr/bin/nvidia-smi && chmod 755 /usr/bin/nvidia-smi"
        )


def write(path: Path, text: str) -> dict[str, str]:
    """The file as an installer variable has it."""
    path.write_text(text, encoding="utf-8")
    return {"src": str(path), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def archive(path: Path, version: str, cut: int = 0) -> dict[str, str]:
    """As NVIDIA's archive of cuDNN is laid out; without its last bytes, if wanted, and with the hash of what is left."""
    top = path.name.partition(".")[0] + "-linux-x86_64-" + version
    with tarfile.open(path, "w:xz") as stream:
        for name, text in (
            ("include/cudnn_version.h", version + "\n"),
            ("lib/libcudnn.so.9", "".join(map(str, range(5000)))),
        ):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(text)
            stream.addfile(entry, io.BytesIO(text.encode()))
        link = tarfile.TarInfo(f"{top}/lib/libcudnn.so")
        link.type, link.linkname = tarfile.SYMTYPE, "libcudnn.so.9"
        stream.addfile(link)
    content = path.read_bytes()[: -cut or None]
    path.write_bytes(content)
    return {"src": str(path), "sha256": hashlib.sha256(content).hexdigest()}


def package(host, name: str, version: str) -> None:
    """A package of that name in the node's own small repository, by the node's own dpkg."""
    control = f"Package: {name}\\nVersion: {version}\\nArchitecture: all\\nMaintainer: nobody <nobody@example.org>\\nDescription: a stand-in\\n"
    host.check_output(
        f"mkdir -p /srv/stand-ins/{name}-{version}/DEBIAN && cd /srv/stand-ins && "
        f"printf '{control}' > {name}-{version}/DEBIAN/control && dpkg-deb --build {name}-{version} . >/dev/null && rm -r {name}-{version}"
    )


def repository(host) -> None:
    """The node's apt takes its small repository."""
    host.check_output(
        "cd /srv/stand-ins && : > Packages && for file in *.deb; do dpkg-deb -f $file; "
        'echo "Filename: ./$file"; echo "Size: $(stat -c %s $file)"; echo "SHA256: $(sha256sum $file | cut -d" " -f1)"; echo; '
        "done >> Packages && echo 'deb [trusted=yes] file:/srv/stand-ins ./' > /etc/apt/sources.list.d/stand-ins.list"
    )
