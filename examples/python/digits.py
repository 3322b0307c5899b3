"""What the torch examples share: 8x8 images of digits, a small network for them, and two ways to judge the outcome."""

from __future__ import annotations

import argparse
import hashlib

import torch
from digits_data import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import horo.torch as hvd


def arguments(description: str | None, epochs: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def load() -> tuple[TensorDataset, TensorDataset]:
    """For training and for testing: 1437 and 360 images, the same on every rank."""
    pixels, digits = load_digits()
    images = torch.tensor(pixels, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return TensorDataset(images[:1437], labels[:1437]), TensorDataset(images[1437:], labels[1437:])


def shard(dataset: Dataset, batch_size: int, seed: int) -> tuple[DataLoader, torch.utils.data.Sampler]:
    """This rank's part of the data. Call the sampler's set_epoch() before each epoch."""
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=hvd.size(), rank=hvd.rank(), seed=seed
    )
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler), sampler


class Net(nn.Sequential):
    """A convolutional network with about 150,000 parameters."""

    def __init__(self, width: int = 32) -> None:
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * width, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )


@torch.no_grad()
def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    images, labels = dataset.tensors
    model.eval()
    right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def mean_over_ranks(value: float) -> float:
    return hvd.allreduce(torch.tensor(value), name="mean").item()


def check_equal(model: nn.Module, process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
    """All ranks must have the same parameters, to the last bit."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digests = hvd.allgather_object(digest.hexdigest(), process_set=process_set)
    if len(set(digests)) != 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks have different parameters")


def report(losses: list[float], right: float) -> None:
    """One line, by rank 0; tests read it."""
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {right:.3f}, all equal")
