"""Training as a job of Spark: the ranks are tasks of one barrier stage.

python examples/python/spark_run.py                     (or: spark-submit --master yarn ...)
"""

import argparse

from pyspark.sql import SparkSession

import horo.spark


def train(epochs):
    import horovod.torch as hvd
    import torch
    from sklearn.datasets import load_digits

    hvd.init()
    torch.manual_seed(hvd.rank())
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32)[hvd.rank() :: hvd.size()] / 16
    labels = torch.tensor(digits.target)[hvd.rank() :: hvd.size()]
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for _ in range(epochs):
        for begin in range(0, len(images), 32):
            loss = torch.nn.functional.cross_entropy(model(images[begin : begin + 32]), labels[begin : begin + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
    weights = hvd.allgather(model[0].weight.detach().reshape(1, -1))
    assert (weights == weights[0]).all()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--master", default=None, help="where Spark is, unless spark-submit says it: local[2]")
    args = parser.parse_args()

    builder = SparkSession.builder.appName("digits")
    spark = (builder.master(args.master) if args.master else builder).getOrCreate()
    losses = horo.spark.run(train, args=(args.epochs,), num_proc=2)[0]
    print(f"2 ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, all equal")
    spark.stop()
