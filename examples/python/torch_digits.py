"""A convolutional network that learns digits on several ranks.

horo run -np 2 python examples/python/torch_digits.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import digits
import torch
from torch.nn import functional

import horo.torch as hvd


class Pace:
    """How fast each rank is, and how much of its time it waits for others. Written down now and then, by rank 0."""

    def __init__(self, record: Path | None) -> None:
        self.file = record.open("w") if record is not None and hvd.rank() == 0 else None
        self.enabled = record is not None
        self.begin = time.perf_counter()
        self.reset()

    def reset(self) -> None:
        self.since, self.images, self.waited = time.perf_counter(), 0, 0.0
        self.until: float | None = None

    def stop(self) -> None:
        """What follows is not training."""
        self.until = time.perf_counter()

    def note(self, **facts: Any) -> None:
        """All ranks call this together."""
        if not self.enabled:
            return
        now = self.until or time.perf_counter()
        spent = max(now - self.since, 1e-9)
        every = hvd.allgather(torch.tensor([[self.images / spent, self.waited / spent]]), name="pace").tolist()
        if self.file is not None:
            facts |= {"rates": [one[0] for one in every], "share": sum(one[1] for one in every) / len(every)}
            self.file.write(json.dumps(facts | {"seconds": now - self.begin}) + "\n")
            self.file.flush()
        self.reset()


def main() -> None:
    parser = digits.arguments(__doc__, epochs=4)
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    parser.add_argument("--record", type=Path, help="file for how it went, a line of JSON every few steps")
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    loader, sampler = digits.shard(training, args.batch_size, args.seed)

    model = digits.Net(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    losses = []
    pace = Pace(args.record)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        pace.reset()
        for step, (images, labels) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            # step() would wait, too; here it is seen for how long. (backward() itself waits, unless
            # HORO_WAIT_IN_BACKWARD=0 says otherwise.)
            begin = time.perf_counter()
            optimizer.synchronize()
            pace.waited += time.perf_counter() - begin
            with optimizer.skip_synchronize():
                optimizer.step()
            pace.images += len(images)
            total += loss.item()
            if step % 8 == 0:
                pace.note(epoch=epoch + step / len(loader), loss=total / step)
        pace.stop()
        losses.append(digits.mean_over_ranks(total / len(loader)))
        right = digits.accuracy(model, testing)
        pace.note(epoch=epoch + 1, loss=losses[-1], accuracy=right)

    digits.check_equal(model)
    digits.report(losses, right)


if __name__ == "__main__":
    main()
