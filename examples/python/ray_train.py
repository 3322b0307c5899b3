"""Ray Train's guide for Horovod, on the Ray of today: the import of HorovodTrainer is what differs.

python examples/python/ray_train.py
"""

import argparse
import tempfile
from pathlib import Path

import horovod.torch as hvd
import torch
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from sklearn.datasets import load_digits
from torch import nn

from horo.ray import HorovodTrainer  # In the guide: from ray.train.horovod import HorovodTrainer


def train_func(config):
    hvd.init()
    torch.manual_seed(hvd.rank())
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32)[hvd.rank() :: hvd.size()] / 16
    labels = torch.tensor(digits.target)[hvd.rank() :: hvd.size()]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Average)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(config["epochs"]):
        for begin in range(0, len(images), 32):
            loss = nn.functional.cross_entropy(model(images[begin : begin + 32]), labels[begin : begin + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        average = hvd.allreduce(loss.detach(), name="loss").item()
        weights = hvd.allgather(model[0].weight.detach().reshape(1, -1))
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            checkpoint = Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
            equal = bool((weights == weights[0]).all())
            train.report({"epoch": epoch, "loss": average, "equal": equal}, checkpoint=checkpoint)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--storage", default=None, help="folder for checkpoints")
    args = parser.parse_args()

    # For GPU training, set use_gpu to True.
    trainer = HorovodTrainer(
        train_func,
        train_loop_config={"epochs": args.epochs},
        scaling_config=ScalingConfig(use_gpu=False, num_workers=2),
        run_config=RunConfig(storage_path=args.storage),
    )
    result = trainer.fit()
    losses = [metrics["loss"] for _, metrics in result.best_checkpoints]
    assert result.metrics["equal"]
    print(f"2 workers: loss {losses[0]:.3f} -> {losses[-1]:.3f}, all equal")
