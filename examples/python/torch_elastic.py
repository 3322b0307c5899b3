"""Elastic training: what is committed is never lost, and each rank takes up the samples that nobody has processed.

horo run -np 2 python examples/python/torch_elastic.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import horo.torch as hvd


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    hvd.init()
    torch.manual_seed(args.seed)
    training, testing = digits.load()
    sampler = hvd.elastic.ElasticSampler(training, seed=args.seed)
    loader = DataLoader(training, batch_size=args.batch_size, sampler=sampler)

    model = digits.Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> list[float]:
        while state.epoch < args.epochs:
            state.sampler.set_epoch(state.epoch)
            total, count = 0.0, 0
            for index, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                state.sampler.record_batch(index, args.batch_size)
                total, count = total + loss.item(), count + 1
                if index % 10 == 9:
                    state.commit()
            state.losses = [*state.losses, digits.mean_over_ranks(total / max(count, 1))]
            state.epoch += 1
            state.commit()
        return state.losses

    losses = train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, losses=[]))
    digits.check_equal(model)
    digits.report(losses, digits.accuracy(model, testing))


if __name__ == "__main__":
    main()
