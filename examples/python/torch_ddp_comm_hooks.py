"""Communication hooks: fewer bytes between ranks, or gradients put together in a way of one's own.

horo run -np 2 python examples/python/torch_ddp_comm_hooks.py --hook int8
"""

from __future__ import annotations

import argparse
from typing import Any

import digits
import torch
from torch.nn import functional

import horo.torch as hvd

HOOKS = ["allreduce", "fp16", "bf16", "int8", "powersgd", "median"]


def median(state: None, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """Takes the median of all ranks' gradients instead of their average: one rank with odd data does no harm."""
    everybody = hvd.allgather(bucket.buffer().unsqueeze(0), name=f"median.{bucket.index()}")
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    middle = everybody.sort(0).values[(hvd.size() - 1) // 2 : hvd.size() // 2 + 1]  # Two of an even number of ranks.
    future.set_result(middle.mean(0))
    return future


def train(hook: str, args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size, args.seed)
    model = hvd.DistributedDataParallel(digits.Net())
    if hook == "powersgd":
        state = hvd.hooks.PowerSGDState(matrix_approximation_rank=2, start_powerSGD_iter=10)
        model.register_comm_hook(state, hvd.hooks.powersgd)
    else:
        model.register_comm_hook(None, median if hook == "median" else hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

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
    facts = model._get_ddp_logging_data()
    if hvd.rank() == 0 and hook != "median":
        share = facts["sent_bytes"] / facts["gradient_bytes"]
        print(f"{hook}: {share:.3f} of the gradients' bytes were sent")
    digits.report(losses, digits.accuracy(model.module, testing))


def main() -> None:
    parser = digits.arguments(__doc__, epochs=4)
    parser.add_argument("--hook", choices=[*HOOKS, "all"], default="fp16", help="all: one after another")
    args = parser.parse_args()
    hvd.init()
    for hook in HOOKS if args.hook == "all" else [args.hook]:
        train(hook, args)


if __name__ == "__main__":
    main()
