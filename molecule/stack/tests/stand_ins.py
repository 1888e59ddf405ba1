"""Stand-ins for what no registry has: conda's installer, NVIDIA's .run files, driver packages.

They take the same options and leave the same files; what they install does nothing.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

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
#!/bin/sh
verb=$1; shift
specs= file= prefix=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix) prefix=$2; shift ;;
    --file) file=$2; shift ;;
    --channel) shift ;;
    --*) ;;
    *) specs="$specs $1" ;;
    esac
    shift
done
case $verb in
create)
    mkdir -p "$prefix/bin" "$prefix/conda-meta"
    ln -s /usr/bin/python3 "$prefix/bin/python"
    if [ -n "$file" ]; then grep -v '^@' "$file" > "$prefix/conda-meta/stand-in"
    else for spec in $specs; do echo "https://conda.example/noarch/$spec-$(date +%N).conda#0"; done > "$prefix/conda-meta/stand-in"; fi ;;
list)
    echo "# made $(date)"; echo @EXPLICIT; cat "$prefix/conda-meta/stand-in" ;;
esac
SCRIPT
chmod 755 "$prefix/bin/conda"
"""

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
