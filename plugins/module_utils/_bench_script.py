# Copyright (c) 2026 The torchfleet authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private: for use inside this collection only; it may change without notice.
"""A script that the training's interpreter runs to measure its devices, or, as one rank of many, the all-reduce.

Its text goes to `<python> -`, its task as JSON in an environment variable, so it needs nothing but torch. It prints one
marked line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import sys
import time
from typing import Any, Callable, Dict, List

MARK = "@@torchfleet-bench@@"
TASK = "TORCHFLEET_BENCH"
# Side of the matrices: large enough that a GPU is busy, small enough for one core.
GPU_SIDE = 8192
CPU_SIDE = 1024
COPY_BYTES = 256 << 20
MOST_ITERATIONS = 50


def emit(report: Dict[str, Any]) -> None:
    sys.stdout.write("\n" + MARK + json.dumps(report) + "\n")
    sys.stdout.flush()


def repeat(step: Callable[[], None], wait: Callable[[], None], seconds: float) -> List[float]:
    """Seconds of each call of `step`, at least three after one to warm up."""
    step()
    wait()
    took: List[float] = []
    until = time.perf_counter() + seconds
    while len(took) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        step()
        wait()
        took.append(time.perf_counter() - began)
    return took


def processor() -> str:
    """The processor's model, with the number of cores that this process may use."""
    model = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            model = next((line.partition(":")[2].strip() for line in stream if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model} x{len(os.sched_getaffinity(0))}"


def multiply(torch: Any, device: Any, dtype: Any, side: int, wait: Callable[[], None], seconds: float) -> float:
    """TFLOP/s of the quickest product of two square matrices."""
    one = torch.randn(side, side, device=device).to(dtype)
    other = torch.randn(side, side, device=device).to(dtype)
    result = torch.empty_like(one)
    best = min(repeat(lambda: torch.mm(one, other, out=result), wait, seconds))
    return float(2.0 * side**3 / best / 1e12)


def local(torch: Any, seconds: float) -> Dict[str, Any]:
    """The node's own devices: products on each, copies from the host and between GPUs."""
    devices: List[Dict[str, Any]] = []
    peers: List[Dict[str, Any]] = []
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        found = multiply(torch, "cpu", torch.float32, CPU_SIDE, lambda: None, seconds)
        devices.append({"index": None, "model": processor(), "dtype": "float32", "tflops": round(found, 5)})
    for index in range(count):

        def wait(index: int = index) -> None:
            torch.cuda.synchronize(index)

        device = torch.device("cuda", index)
        half = torch.bfloat16 if torch.cuda.get_device_capability(index)[0] >= 8 else torch.float16
        entry: Dict[str, Any] = {
            "index": index,
            "model": torch.cuda.get_device_name(index),
            "dtype": str(half).rpartition(".")[2],
        }
        try:
            entry["tflops"] = round(multiply(torch, device, half, GPU_SIDE, wait, seconds), 2)
            host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
            block = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
            for name, target, source in (("from_host_gbps", block, host), ("to_host_gbps", host, block)):

                def copy(target: Any = target, source: Any = source) -> None:
                    target.copy_(source, non_blocking=True)

                entry[name] = round(COPY_BYTES / min(repeat(copy, wait, 0.2)) / 1e9, 2)
        except RuntimeError as error:
            entry["problem"] = str(error).splitlines()[0]
        devices.append(entry)
    for source in range(count):
        for target in range(count):
            if source != target:
                try:
                    peers.append(peer(torch, source, target))
                except RuntimeError as error:
                    peers.append({"source": source, "target": target, "gbps": 0.0, "problem": str(error)[:200]})
    return {"devices": devices, "peers": peers}


def peer(torch: Any, source: int, target: int) -> Dict[str, Any]:
    """GB/s from one GPU to another."""
    one = torch.empty(COPY_BYTES, dtype=torch.uint8, device=torch.device("cuda", source))
    other = torch.empty(COPY_BYTES, dtype=torch.uint8, device=torch.device("cuda", target))

    def copy() -> None:
        other.copy_(one, non_blocking=True)

    def wait() -> None:
        torch.cuda.synchronize(source)
        torch.cuda.synchronize(target)

    return {
        "source": source,
        "target": target,
        "gbps": round(COPY_BYTES / min(repeat(copy, wait, 0.1)) / 1e9, 2),
        "direct": bool(torch.cuda.can_device_access_peer(source, target)),
    }


def collective(torch: Any, task: Dict[str, Any]) -> Dict[str, Any]:
    """The all-reduce over all ranks: seconds by size, the median of as many calls as the time allows."""
    from datetime import timedelta

    dist = torch.distributed
    backend = task["backend"]
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=task["timeout"]))

    def wait() -> None:
        if backend == "nccl":
            torch.cuda.synchronize()

    def agreed(value: float) -> float:
        """The slowest rank's figure, so that all ranks go on alike."""
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return float(shared.item())

    def once(block: Any) -> float:
        began = time.perf_counter()
        dist.all_reduce(block)
        wait()
        return time.perf_counter() - began

    rows = []
    rate = 0.0
    for size in task["sizes"]:
        if rate and size / rate > task["step_seconds"]:
            break
        block = torch.zeros(size // 4, dtype=torch.float32, device=device)
        once(block)
        first = agreed(once(block))
        count = max(1, min(MOST_ITERATIONS, int(task["seconds"] / max(first, 1e-9))))
        took = [once(block) for _number in range(count)]
        seconds = agreed(statistics.median([first, *took] if count == 1 else took))
        rate = size / seconds
        rows.append({"bytes": size, "seconds": seconds, "count": count})
    dist.barrier()
    return {"backend": backend, "world": dist.get_world_size(), "rows": rows}


def main() -> None:
    task = json.loads(os.environ[TASK])
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        emit({"problem": f"torch cannot be imported: {error}"})
        return
    try:
        if task["measure"] == "local":
            emit({**local(torch, task["seconds"]), "torch": str(torch.__version__)})
        else:
            report = collective(torch, task)
            if os.environ["RANK"] == "0":
                emit(report)
    except Exception as error:
        emit({"problem": f"{type(error).__name__}: {error}"})
        raise
    # A process group that is taken down by the interpreter's end may hang or print, and all is said.
    os._exit(0)


if __name__ == "__main__":
    main()
