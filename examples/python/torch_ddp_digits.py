"""DistributedDataParallel: the module is wrapped, and backward() gives averages over all ranks.

horo run -np 2 python examples/python/torch_ddp_digits.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional

import horo.torch as hvd


def main() -> None:
    parser = digits.arguments(__doc__, epochs=4)
    parser.add_argument(
        "--accumulate", type=int, default=1, help="batches that are added up before ranks exchange them"
    )
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(args.seed + hvd.rank())  # The parameters will be those of rank 0.
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size, args.seed)

    model = hvd.DistributedDataParallel(digits.Net(), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for step, (images, labels) in enumerate(loader, 1):
            model.require_backward_grad_sync = step % args.accumulate == 0 or step == len(loader)
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            total += loss.item()
            if model.require_backward_grad_sync:
                optimizer.step()
                optimizer.zero_grad()
        losses.append(digits.mean_over_ranks(total / len(loader)))

    digits.check_equal(model)
    digits.report(losses, digits.accuracy(model.module, testing))


if __name__ == "__main__":
    main()
