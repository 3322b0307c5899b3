"""Adasum: updates of the ranks are combined by their directions, so that the learning rate of one rank fits any number.

horo run -np 2 python examples/python/torch_adasum.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional

import horo.torch as hvd


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size, args.seed)

    model = digits.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Adasum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(digits.mean_over_ranks(total / len(loader)))

    digits.check_equal(model)
    digits.report(losses, digits.accuracy(model, testing))


if __name__ == "__main__":
    main()
