"""Train a small network on handwritten digits over all nodes with DistributedDataParallel.

The data (1,797 images of 8x8 pixels) comes with scikit-learn, so nothing is downloaded. On CPUs the gradients travel by
gloo, on GPUs by NCCL; nothing else differs. Rank 0 saves model.pt and metrics.json in $TORCHFLEET_OUTPUT_DIR.

Runs under any launcher that sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT:

    ansible-playbook playbooks/launch.yml -e launch_script=examples/digits/train.py
    torchrun --nproc-per-node 2 examples/digits/train.py
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="samples a rank takes in one step")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--accuracy", type=float, default=0.95, help="test accuracy that must be reached")
    return parser.parse_args()


def data(device):
    """Images scaled to 0..1 and labels; every fifth sample is kept for the test."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32, device=device)
    labels = torch.tensor(labels, dtype=torch.long, device=device)
    test = torch.arange(len(labels), device=device) % 5 == 0
    return (images[~test], labels[~test]), (images[test], labels[test])


def finish():
    """Leave together and at once: gloo's destructors sometimes abort a process that has done all its work."""
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main():
    args = arguments()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(0)

    (images, labels), (test_images, test_labels) = data(device)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    # Every rank draws the same order and takes its own share of each batch.
    order = torch.Generator().manual_seed(1)
    total = args.batch_size * world

    losses = []
    for epoch in range(args.epochs):
        began = time.monotonic()
        summed = torch.zeros(2, device=device)
        permutation = torch.randperm(len(labels), generator=order).to(device)
        for start in range(0, len(labels) - total + 1, total):
            mine = permutation[start + rank * args.batch_size : start + (rank + 1) * args.batch_size]
            loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 0 and start == 0 and rank == 0:
                print(f"first step done at {time.time():.3f}", flush=True)
            summed += torch.stack([loss.detach(), torch.ones((), device=device)])
        dist.all_reduce(summed)
        losses.append((summed[0] / summed[1]).item())
        if rank == 0:
            print(f"epoch {epoch + 1:2d}  loss {losses[-1]:.4f}  {time.monotonic() - began:.2f} s", flush=True)

    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"rank {rank} of {world} on {os.uname().nodename}: accuracy {accuracy:.4f}", flush=True)
    if rank == 0:
        folder = Path(os.environ.get("TORCHFLEET_OUTPUT_DIR", "."))
        torch.save(model.module.state_dict(), folder / "model.pt")
        metrics = {"accuracy": accuracy, "losses": losses, "world_size": world, "device": device.type}
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=2))
        print(f"saved {folder / 'model.pt'}", flush=True)
    if accuracy < args.accuracy:
        sys.exit(f"accuracy {accuracy:.4f} is below the {args.accuracy} that was to be reached")
    finish()


if __name__ == "__main__":
    main()
