"""Adam whose state is divided among the ranks (ZeRO stage 1), and a checkpoint that any number of ranks can load.

horo run -np 2 python examples/python/torch_sharded_optimizer.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import digits
import torch
from torch.nn import functional

import horo.torch as hvd


def bytes_of(state: dict[Any, dict[str, Any]]) -> int:
    return sum(value.nbytes for values in state.values() for value in values.values())


def save_and_load(model: torch.nn.Module, optimizer: hvd.ShardedOptimizer) -> None:
    """All ranks bring the state together; one writes it. It is the state of a plain Adam."""
    optimizer.consolidate_state_dict(to=0)
    if hvd.rank() != 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        torch.save(optimizer.state_dict(), file)
        whole = torch.optim.Adam(model.parameters())
        whole.load_state_dict(torch.load(file, weights_only=True))
    share = bytes_of(optimizer.local.state) / bytes_of(whole.state)
    print(f"rank 0 keeps {share:.0%} of the optimizer's state; the checkpoint has all of it")


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size, args.seed)

    model = digits.Net()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam, model.parameters(), lr=0.002)

    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.clip_grad_norm_(5.0)  # Of the gradients of all ranks.
            optimizer.step()
            total += loss.item()
        losses.append(digits.mean_over_ranks(total / len(loader)))

    save_and_load(model, optimizer)
    digits.check_equal(model)
    digits.report(losses, digits.accuracy(model, testing))


if __name__ == "__main__":
    main()
