"""Gradient accumulation: four backward passes for each step, and one reduction of their sum.

horo run -np 2 python examples/python/torch_accumulation.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional

import horo.torch as hvd

PASSES = 4


def main() -> None:
    args = digits.arguments(__doc__, epochs=6).parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size // PASSES, args.seed)

    model = digits.Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=PASSES
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        batches = list(loader)
        batches = batches[: len(batches) // PASSES * PASSES]
        for first in range(0, len(batches), PASSES):
            optimizer.zero_grad()
            for images, labels in batches[first : first + PASSES]:
                loss = functional.cross_entropy(model(images), labels)
                (loss / PASSES).backward()
                total += loss.item()
            optimizer.step()
        losses.append(digits.mean_over_ranks(total / len(batches)))

    digits.check_equal(model)
    digits.report(losses, digits.accuracy(model, testing))


if __name__ == "__main__":
    main()
