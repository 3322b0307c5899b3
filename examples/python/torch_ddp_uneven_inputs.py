"""Uneven inputs: ranks have different numbers of batches, and every one of them counts.

horo run -np 2 python examples/python/torch_ddp_uneven_inputs.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Subset

import horo.torch as hvd


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    # Rank 0 has one part, rank 1 two, and so on.
    parts = hvd.size() * (hvd.size() + 1) // 2
    begin = hvd.rank() * (hvd.rank() + 1) // 2
    mine = [index for index in range(len(training)) if begin <= index % parts <= begin + hvd.rank()]
    loader = DataLoader(Subset(training, mine), batch_size=args.batch_size, shuffle=True)

    model = hvd.DistributedDataParallel(digits.Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = hvd.allgather_object(len(loader))
    losses = []
    for _ in range(args.epochs):
        total = 0.0
        with model.join(divide_by_initial_world_size=False):
            for images, labels in loader:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                total += loss.item()
        losses.append(digits.mean_over_ranks(total / len(loader)))

    digits.check_equal(model)
    if hvd.rank() == 0:
        print(f"batches of the ranks in an epoch: {batches}")
    digits.report(losses, digits.accuracy(model.module, testing))


if __name__ == "__main__":
    main()
