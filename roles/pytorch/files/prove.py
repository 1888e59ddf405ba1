"""Import torch and sum numbers over several ranks on this node: what a training needs, in a few seconds.

Reads nothing, writes only to a folder of its own; prints one line of JSON.
"""

import datetime
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


def main():
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    backend = "nccl" if gpus else "gloo"
    world = gpus or 2
    with tempfile.TemporaryDirectory(prefix="torchfleet-prove-") as folder:
        children = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
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
            }
        )
    )


main()
