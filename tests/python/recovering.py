"""A training script whose ranks are killed from outside: digits, a convolutional network, elastic.

Trains until there are enough epochs and the file TEST_ENOUGH exists. Says "born PID", "epoch N with S ranks",
"accuracy A after N steps". No step may be applied twice, and parameters must be equal on all ranks at each commit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "python"))

import digits
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import horo.torch as hvd

EPOCHS = int(os.environ["TEST_EPOCHS"])
BATCH = 16


def enough() -> bool:
    """As rank 0 sees it, for all ranks."""
    there = Path(os.environ["TEST_ENOUGH"]).exists()
    return bool(hvd.broadcast(torch.tensor(int(there)), 0, name="enough").item())


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    print("born", os.getpid(), flush=True)
    torch.manual_seed(1)
    training, testing = digits.load()
    sampler = hvd.elastic.ElasticSampler(training, seed=1)
    loader = DataLoader(training, batch_size=BATCH, sampler=sampler)
    model = digits.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.epoch < EPOCHS or not enough():
            state.sampler.set_epoch(state.epoch)
            # The weights come to rest, however long it takes until there is enough.
            for group in optimizer.param_groups:
                group["lr"] = 0.05 if state.epoch < EPOCHS // 2 else 0.005
            for index, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                state.applied += 1
                state.last = [*state.last, state.applied][-50:]
                state.sampler.record_batch(index, BATCH)
                if index % 5 == 4:
                    digits.check_equal(model)
                    state.commit()
            state.epoch += 1
            digits.check_equal(model)
            state.commit()
            if hvd.rank() == 0:
                print(f"epoch {state.epoch} with {hvd.size()} ranks", flush=True)

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, applied=0, last=[])
    train(state)
    assert state.last == list(range(state.applied - len(state.last) + 1, state.applied + 1)), state.last
    digits.check_equal(model)
    if hvd.rank() == 0:
        print(f"accuracy {digits.accuracy(model, testing):.4f} after {state.applied} steps", flush=True)


if __name__ == "__main__":
    main()
