"""Role cuda: toolkits side by side, by stand-ins for NVIDIA's .run files and by the real wheels."""

from __future__ import annotations

import pytest
import stand_ins

# Those that PyPI's torch 2.13.0 is built with, and what they answer by themselves.
CUDNN, NCCL = ("9.20.0.48", "92000"), ("2.29.7", "22907")
ASK = """\
import ctypes, glob
(cudnn,) = glob.glob("/opt/torchfleet/cuda-13.0/lib/python3*/site-packages/nvidia/cudnn/lib/libcudnn.so.9")
(nccl,) = glob.glob("/opt/torchfleet/cuda-13.0/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")
version = ctypes.c_int()
assert ctypes.CDLL(nccl).ncclGetVersion(ctypes.byref(version)) == 0
print(ctypes.CDLL(cudnn).cudnnGetVersion(), version.value)
"""
# cuDNN's wheel takes any cuBLAS: which one there is, and which one belongs to the toolkit.
CUBLAS = """\
import importlib.metadata as metadata
(wanted,) = [one for one in metadata.requires("cuda-toolkit") if "cublas==" in one and "extra == 'cublas'" in one]
print(metadata.version("nvidia-cublas"), metadata.version("cuda-toolkit"), wanted.split("==")[1].split("*")[0])
"""
KERNEL = "__global__ void add(float *x) { x[threadIdx.x] += 1; }\nint main() { return 0; }\n"


@pytest.fixture(scope="module")
def installers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    return {
        version: stand_ins.write(folder / f"cuda_{version}.run", stand_ins.TOOLKIT.replace("VERSION", version))
        for version in ("12.6", "11.8")
    }


@pytest.fixture(autouse=True, scope="module")
def bare(hosts):
    yield
    for host in hosts.values():
        host.run_test(
            "rm -rf /usr/local/cuda* /opt/torchfleet/cuda-* /opt/torchfleet/cudnn /etc/profile.d/torchfleet-cuda.sh"
        )


def cuda(lab, *flags, **variables):
    done = lab.playbook("provision", "-t", "cuda", *flags, timeout=1200, cuda_enabled=True, **variables)
    return done, " ".join(done.output.split())


def test_two_toolkits_side_by_side(lab, hosts, installers):
    options = {"cuda_method": "run", "cuda_installers": installers, "cuda_versions": ["12.6", "11.8"], "cuda_room": 0}
    assert cuda(lab, "--check", **options)[0].code == 0
    done, _words = cuda(lab, **options)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert "release 12.6" in host.check_output("bash -lc 'nvcc --version'")
        assert "release 11.8" in host.check_output("/usr/local/cuda-11.8/bin/nvcc --version")
        assert host.check_output("bash -lc 'echo \"[$LD_LIBRARY_PATH]\"'") == "[]"
        assert not host.file("/tmp/driver-was-touched").exists
    assert set(cuda(lab, **options)[0].changed().values()) == {0}
    done, _words = cuda(lab, **{**options, "cuda_versions": ["11.8", "12.6"]})
    assert done.code == 0, done.output
    assert hosts["node1"].check_output("readlink /usr/local/cuda") == "/usr/local/cuda-11.8"


def test_an_archive_has_a_folder_of_its_own(lab, hosts, installers, tmp_path):
    """Laid out as NVIDIA's archive of cuDNN is; made here."""
    options = {"cuda_method": "run", "cuda_installers": installers, "cuda_versions": ["12.6"], "cuda_room": 0}
    archives = {"cudnn": stand_ins.archive(tmp_path / "cudnn.tar.xz", "9.8.0")}
    assert cuda(lab, "--check", **options, cuda_archives=archives)[0].code == 0
    done, _words = cuda(lab, **options, cuda_archives=archives)
    assert done.code == 0, done.output
    for host in hosts.values():
        assert host.file("/opt/torchfleet/cudnn/include/cudnn_version.h").content_string == "9.8.0\n"
        library = host.check_output("readlink -f /opt/torchfleet/cudnn/lib/libcudnn.so")
        assert library == "/opt/torchfleet/cudnn/lib/libcudnn.so.9"
    assert set(cuda(lab, **options, cuda_archives=archives)[0].changed().values()) == {0}
    broken = stand_ins.archive(tmp_path / "broken.tar.xz", "9.9.0", cut=200)
    done, words = cuda(lab, **options, cuda_archives={"cudnn": broken})
    assert done.code != 0
    assert "failed (1), and /opt/torchfleet/cudnn is as it was: the archive cannot be unpacked" in words
    assert hosts["node1"].file("/opt/torchfleet/cudnn/include/cudnn_version.h").content_string == "9.8.0\n"


def test_no_room_changes_nothing(lab, hosts, installers):
    options = {"cuda_method": "run", "cuda_installers": {"12.8": installers["12.6"]}, "cuda_versions": ["12.8"]}
    done, words = cuda(lab, **options, cuda_room=10**15)
    assert done.code != 0
    assert "MiB are free for /usr/local/cuda-12.8" in words
    assert not hosts["node1"].file("/usr/local/cuda-12.8").exists


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"cuda_versions": ["12.6"], "cuda_method": "wheels"}, "which have an nvcc from CUDA 13 on"),
        (
            {"cuda_versions": ["12.6"], "cuda_method": "run"},
            "for run, each of the versions with url or src, and sha256",
        ),
        ({"cuda_versions": ["12.7"], "cuda_method": "repository"}, "CUDA 12.7 is not a release known here"),
    ],
)
def test_bad_input(lab, variables, words):
    done, said = cuda(lab, **variables)
    assert done.code != 0
    assert words in said


def test_a_driver_too_old_and_a_card_too_old_are_refused_with_both_figures(lab, hosts):
    """Drivers and a card that a stand-in for nvidia-smi tells of."""
    for host in hosts.values():
        stand_ins.driver(host, "470.57.02")
    try:
        done, words = cuda(lab, cuda_versions=["12.6"])
        assert done.code != 0
        assert "node1, node2: driver 470.57.02 is too old for CUDA 12.6" in words
        assert "wanted 560.28.03 or newer, at the very least 525.60.13" in words
        done, words = cuda(lab, cuda_versions=["13.0"], cuda_method="wheels")
        assert "CUDA 13.0 cannot compile for Tesla V100-SXM2-32GB (sm_70)" in words
        done, words = cuda(lab, torchfleet_stack={"torch": "2.13.0", "torch_cuda": "13.0"})
        assert "torch 2.13.0 for CUDA 13.0 has no kernels for Tesla V100-SXM2-32GB (sm_70)" in words
        assert set(done.changed().values()) == {0}
    finally:
        for host in hosts.values():
            stand_ins.driver(host, None)


def test_a_line_that_breaks_torch_is_reported(lab, hosts):
    host = hosts["node2"]
    host.run_test("echo 'export LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH' >> /root/.bashrc")
    try:
        done = lab.playbook("provision", "-t", "torchfleet_stack")
        assert "makes torch load that folder's libraries in place of its own" in " ".join(done.output.split())
    finally:
        host.run_test("sed -i '/LD_LIBRARY_PATH/d' /root/.bashrc")


def test_the_real_nvcc_cudnn_and_nccl_from_wheels(lab, hosts):
    options = {"cuda_method": "wheels", "cuda_versions": ["13.0"], "cuda_cudnn": CUDNN[0], "cuda_nccl": NCCL[0]}
    done, _words = cuda(lab, **options)
    assert done.code == 0, done.output
    assert set(cuda(lab, **options)[0].changed().values()) == {0}
    host = hosts["node1"]
    assert "release 13.0" in host.check_output("/usr/local/cuda/bin/nvcc --version")
    compiler = lab.playbook(
        "provision",
        "-t",
        "cuda,compiler",
        timeout=1200,
        cuda_enabled=True,
        torchfleet_stack={"cuda": "13.0"},
        **options,
    )
    assert compiler.code == 0, compiler.output
    host.run_test(f"cat > /tmp/add.cu <<'E'\n{KERNEL}E")
    host.check_output("/usr/local/cuda/bin/nvcc -ccbin /usr/bin/g++-12 -arch=sm_80 -o /tmp/add /tmp/add.cu && /tmp/add")
    for one in hosts.values():
        assert one.check_output(f"python3 - <<'E'\n{ASK}E").split() == [CUDNN[1], NCCL[1]]
        cublas, toolkit, wanted = one.check_output(f"/opt/torchfleet/cuda-13.0/bin/python - <<'E'\n{CUBLAS}E").split()
        assert f"{cublas}.".startswith(wanted) and toolkit.startswith("13.0.")
