"""A training script whose ranks are killed from outside, and replaced: digits, a convolutional network, elastic.

Trains until it has applied TEST_STEPS steps and the file TEST_ENOUGH exists. Says "started PID", "trains PID" when it
has the job's state, and at the end "accuracy A after N steps". Each process writes what it does to a file of TEST_LOGS:
"from N HASH SIZE" when it (re)starts with so many steps applied, "step N" for each one, "commit N HASH SIZE" when all
ranks have saved it. The hash is that of parameters and optimizer.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "python"))

import digits
import torch
from torch.nn import functional
from torch.utils.data import DataLoader

import horo.torch as hvd

STEPS = int(os.environ["TEST_STEPS"])
BATCH = 16
COMMIT_EVERY = 3


def digest(state: hvd.elastic.TorchState) -> str:
    found = hashlib.sha256()
    for parameter in state.model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    optimizer = state.optimizer.state_dict()
    for values in optimizer["state"].values():
        found.update(values["momentum_buffer"].numpy().tobytes())
    found.update(str(optimizer["param_groups"][0]["lr"]).encode())
    return found.hexdigest()


def is_over(state: hvd.elastic.TorchState) -> bool:
    """As rank 0 sees it, for all ranks."""
    over = state.applied >= STEPS and Path(os.environ["TEST_ENOUGH"]).exists()
    return bool(hvd.broadcast(torch.tensor(int(over)), 0, name="over").item())


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    training, testing = digits.load()
    model = digits.Net()
    print("started", os.getpid(), flush=True)
    hvd.init()  # A newcomer waits here until it is let in.
    sampler = hvd.elastic.ElasticSampler(training, seed=1)
    loader = DataLoader(training, batch_size=BATCH, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    log = (Path(os.environ["TEST_LOGS"]) / str(os.getpid())).open("w", buffering=1)

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        if log.tell() == 0:
            print("trains", os.getpid(), flush=True)
        log.write(f"from {state.applied} {digest(state)} {hvd.size()}\n")
        while not is_over(state):
            for index, (images, labels) in enumerate(loader):
                # The weights come to rest, however long it takes until there is enough.
                state.optimizer.param_groups[0]["lr"] = 0.05 if state.applied < 150 else 0.005
                optimizer.zero_grad()
                functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                state.applied += 1
                log.write(f"step {state.applied}\n")
                state.sampler.record_batch(index, BATCH)
                if state.applied % COMMIT_EVERY == 0:
                    state.commit()
                    # All ranks have come to the end of commit(), or nobody has: so all have saved it.
                    log.write(f"commit {state.applied} {digest(state)} {hvd.size()}\n")
                    if is_over(state):
                        return
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, applied=0)
    train(state)
    digits.check_equal(model)
    if hvd.rank() == 0:
        print(f"accuracy {digits.accuracy(model, testing):.4f} after {state.applied} steps", flush=True)


if __name__ == "__main__":
    main()
