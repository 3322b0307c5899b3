"""torch's own DistributedDataParallel on the back end horo: a program for torch.distributed, with one import more.

torchrun --nproc-per-node 2 examples/python/torch_distributed_ddp.py
horo run -np 2 python examples/python/torch_distributed_ddp.py
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horo.torch  # noqa: F401  Makes the back end known; torch 2.14 finds it without.


def join() -> None:
    """With torchrun's variables, or with those of `horo run`, whose ranks on one host can meet at a file."""
    if "RANK" in os.environ:
        dist.init_process_group("horo")
        return
    rank, size = int(os.environ.get("HORO_RANK", "0")), int(os.environ.get("HORO_SIZE", "1"))
    place = os.path.join(tempfile.gettempdir(), f"horo-{os.environ.get('HORO_JOB_ID', os.getpid())}")
    dist.init_process_group("horo", init_method=f"file://{place}", rank=rank, world_size=size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    join()
    rank, size = dist.get_rank(), dist.get_world_size()

    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    training = TensorDataset(images[:1500], labels[:1500])
    sampler = DistributedSampler(training, seed=1)
    loader = DataLoader(training, batch_size=32, sampler=sampler)

    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total, dist.ReduceOp.AVG)
        losses.append(total.item())

    digest = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters())).hexdigest()
    digests: list[str | None] = [None] * size
    dist.all_gather_object(digests, digest)
    if len(set(digests)) != 1:
        raise SystemExit(f"rank {rank}: the ranks have different parameters")
    if rank == 0:
        right = (model.module(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
        print(f"{size} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {right:.3f}, all equal")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
