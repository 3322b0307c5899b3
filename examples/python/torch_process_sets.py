"""Process sets: two halves of the job train a network each, and all ranks together ask both.

horo run -np 4 python examples/python/torch_process_sets.py
"""

from __future__ import annotations

import digits
import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import horo.torch as hvd


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    hvd.init()
    if hvd.size() % 2 != 0:
        raise SystemExit("an even number of ranks can be halved")
    halves = [hvd.add_process_set(range(0, hvd.size(), 2)), hvd.add_process_set(range(1, hvd.size(), 2))]
    mine = halves[hvd.rank() % 2]

    torch.manual_seed(args.seed + hvd.rank() % 2)
    training, testing = digits.load()
    sampler = DistributedSampler(training, num_replicas=mine.size(), rank=mine.rank(), seed=args.seed)
    loader = DataLoader(training, batch_size=args.batch_size, sampler=sampler)

    model = digits.Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), process_set=mine)
    for name, parameter in model.named_parameters():
        hvd.broadcast_(parameter.data, root_rank=mine.ranks[0], name=name, process_set=mine)

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

    digits.check_equal(model, mine)
    images, labels = testing.tensors
    with torch.no_grad():
        opinion = hvd.allreduce(functional.softmax(model(images), 1), name="opinion")
    together = (opinion.argmax(1) == labels).float().mean().item()
    alone = hvd.allgather_object(digits.accuracy(model, testing))[:2]
    if hvd.rank() == 0:
        print(f"the two networks alone: {alone[0]:.3f} and {alone[1]:.3f}; both together: {together:.3f}")
    digits.report(losses, together)


if __name__ == "__main__":
    main()
