"""Functions on ranks that are Ray's actors, which stay alive in between.

python examples/python/ray_executor.py
"""

import argparse

import ray

from horo.ray import RayExecutor


class Trainer:
    """Lives on every worker, with what it has learnt."""

    def __init__(self, seed):
        import horovod.torch as hvd
        import torch
        from sklearn.datasets import load_digits

        hvd.init()
        torch.manual_seed(seed + hvd.rank())
        digits = load_digits()
        self.images = torch.tensor(digits.data, dtype=torch.float32)[hvd.rank() :: hvd.size()] / 16
        self.labels = torch.tensor(digits.target)[hvd.rank() :: hvd.size()]
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1 * hvd.size())
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)

    def train(self):
        import horovod.torch as hvd
        import torch

        for begin in range(0, len(self.images), 32):
            images, labels = self.images[begin : begin + 32], self.labels[begin : begin + 32]
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        weights = hvd.allgather(self.model[0].weight.detach().reshape(1, -1))
        assert (weights == weights[0]).all()
        return hvd.allreduce(loss.detach(), name="loss").item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    ray.init()
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), num_workers=2)
    executor.start(executable_cls=Trainer, executable_kwargs={"seed": 1})
    losses = [executor.execute(lambda trainer: trainer.train())[0] for _ in range(args.epochs)]
    executor.shutdown()
    print(f"2 workers: loss {losses[0]:.3f} -> {losses[-1]:.3f}, all equal")
