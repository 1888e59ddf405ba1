"""Import torch and sum numbers over several ranks on this node: what a training needs, in a few seconds.

Reads nothing, writes only to a folder of its own; prints one line of JSON.
"""

import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import traceback

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
# Lets device_count() ask the driver without starting CUDA, which a fork would not survive.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch
import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=60)


def rank_main(rank, world, store, backend):
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=TIMEOUT)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    value = torch.full((1024,), float(rank + 1), device=device)
    dist.all_reduce(value)
    wanted = world * (world + 1) / 2
    assert bool((value == wanted).all()), f"rank {rank}: the sum is {value[0].item()}, wanted {wanted}"


def foreign_libraries():
    """CUDA's libraries in this process that did not come with torch: whoever loaded them may break it."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as stream:
            paths = {line.split()[-1] for line in stream if "/" in line}
    except OSError:
        return []
    names = ("libcudart", "libcublas", "libcudnn", "libnccl", "libcufft", "libcusparse", "libcusolver")
    found = [path for path in paths if os.path.basename(path).startswith(names)]
    own = tuple(os.path.realpath(path) for path in (sys.prefix, os.path.dirname(torch.__file__)))
    return sorted(path for path in found if not os.path.realpath(path).startswith(own))


def companions():
    """Versions of torch and what belongs to it; what does not load is a failure of the proof."""
    found = {"torch": torch.__version__}
    for name in ("torchvision", "torchaudio"):
        if not importlib.util.find_spec(name):
            continue
        try:
            found[name] = importlib.import_module(name).__version__
            if name == "torchvision":
                # Its operators are compiled for one build of torch: another one does not know them.
                boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
                importlib.import_module("torchvision.ops").nms(boxes, torch.tensor([1.0, 0.5]), 0.5)
        except Exception as error:
            version = importlib.metadata.version(name)
            sys.exit(f"{name} {version} does not load with torch {torch.__version__}, it is of another build: {error}")
    return found


def main():
    found = companions()
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = "nccl" if gpus else "gloo"
    world = gpus or 2
    with tempfile.TemporaryDirectory(prefix="torchfleet-prove-") as folder:
        children = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                os.dup2(2, 1)  # the line of JSON stands alone: gloo of torch 2.8 prints to where it goes
                code = 1
                try:
                    rank_main(rank, world, os.path.join(folder, "store"), backend)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(code)  # gloo sometimes aborts in its destructors
            children.append(pid)
        failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    if failed:
        sys.exit(f"the all-reduce over {world} ranks ({backend}) failed")
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "gpus": gpus,
                "backend": backend,
                "world_size": world,
                "foreign": foreign_libraries(),
                "versions": ", ".join(f"{name} {version}" for name, version in found.items()),
            }
        )
    )


main()
