"""A training script whose back end was written for Horovod: run by test_backends.py, on several ranks.

Nothing here is horo's but what `import horovod.torch` finds.
"""

import argparse
import importlib
import os
import pathlib

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FOLDER = pathlib.Path(os.environ["SCRIPT_FOLDER"])


class Backend:
    """The usual shape: what training needs, in terms of Horovod's functions."""

    def __init__(self):
        self.hvd = importlib.import_module("horovod.torch")

    def initialize(self):
        self.hvd.init()
        if torch.cuda.is_available():
            torch.cuda.set_device(self.hvd.local_rank())

    def local_barrier(self):
        # For lack of something better in older versions.
        self.hvd.join()

    def distribute(self, model, optimizer):
        optimizer = self.hvd.DistributedOptimizer(optimizer)
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        return model, optimizer

    def average_all(self, tensor):
        return self.hvd.allreduce(tensor)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(8, 8).requires_grad_(False)
        self.used = torch.nn.Linear(8, 4)
        self.now_and_then = torch.nn.Linear(8, 4)

    def forward(self, inputs, both):
        inputs = self.frozen(inputs)
        return self.used(inputs) + (self.now_and_then(inputs) if both else 0)


def download(backend, name):
    """The first rank of a host fetches, which takes it a while; the others wait for it."""
    file = FOLDER / name
    if backend.hvd.local_rank() == 0:
        matrix = torch.randn(300, 300)
        for _ in range(50):
            matrix = matrix @ matrix / matrix.norm()
        file.write_text("data")
    backend.local_barrier()
    assert file.read_text() == "data"


def main():
    argparse.ArgumentParser().parse_args()
    backend = Backend()
    backend.initialize()
    rank, size = backend.hvd.rank(), backend.hvd.size()
    for number in range(3):
        download(backend, f"downloaded.{number}")

    torch.manual_seed(100 + rank)  # Broadcasting has to make the models equal.
    model = Model()
    truth = torch.arange(4)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(inputs, (inputs[:, :4].argmax(1) + truth[0]) % 4)
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)

    opt = torch.optim.Adam([param for param in model.parameters() if param.requires_grad], lr=0.05)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
    distr_model, distr_opt = backend.distribute(model, opt)
    losses = []
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for step, (batch, labels) in enumerate(loader):
            # One of the layers has no gradient in every other step, on all ranks alike.
            loss = functional.cross_entropy(distr_model(batch, both=step % 2 == 0), labels)
            if epoch % 2 == 0:
                distr_opt.zero_grad()
                loss.backward()
                distr_opt.step()
            else:
                loss.backward()
                # While reductions may still be under way.
                torch.nn.utils.clip_grad_norm_(distr_model.parameters(), 0.5)
                distr_opt.step()
                distr_opt.zero_grad()
            averaged = backend.average_all(loss)
            assert averaged.requires_grad, "gradients flow through an average"
        losses.append(averaged.item())
        sched.step()
    assert losses[-1] < losses[0] / 1.5, losses
    assert abs(distr_opt.param_groups[0]["lr"] - 0.05 * 0.9**8) < 1e-9, "the scheduler's rate is the wrapper's, too"

    state = opt.state_dict()
    assert len(state["state"]) == 4, "what the wrapper has done is in the original's state"
    assert all(entry["exp_avg"].abs().sum() > 0 for entry in state["state"].values())
    for name, tensor in model.state_dict().items():
        everybody = backend.hvd.allgather(tensor.reshape(1, -1), name=name)
        assert (everybody == everybody[0]).all(), f"{name} differs between ranks"
    print(f"trained: {losses[0]:.3f} -> {losses[-1]:.3f}")
    backend.local_barrier()


main()
