#!/usr/bin/env python3
"""A step of training on digits: no communication, horo's tape, and TensorFlow's own collectives, in one run.

horo run -np 2 python bench/tensorflow_step.py

The third is tf.distribute.MultiWorkerMirroredStrategy with its ring on CPUs, in a loop of one's own (strategy.run), in
the same processes and with the same network. In each round every contender has one turn.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "python"))

import horo

STEPS = 20


def make_strategy() -> object:
    """Before TensorFlow has done anything else."""
    import tensorflow as tf

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        mine = f"127.0.0.1:{probe.getsockname()[1]}"
    workers = horo.allgather_object(mine)
    task = {"type": "worker", "index": horo.rank()}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def contenders(strategy: object, batch_size: int) -> dict[str, Callable[[], float]]:
    import digits_tf as digits
    import tensorflow as tf

    import horo.tensorflow as hvd

    images, labels, *_ = digits.load()
    images, labels = tf.constant(images[:batch_size]), tf.constant(labels[:batch_size])

    def trained(reduce: Callable[[tf.GradientTape, tf.Tensor, tuple[tf.Variable, ...]], list[tf.Tensor]]) -> Callable:
        model = digits.Net(1)
        optimizer = digits.Momentum(model.trainable_variables, rate=0.01)

        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = digits.loss_of(model(images), labels)
            optimizer.apply(reduce(tape, loss, model.trainable_variables))
            return loss

        return step

    def by_strategy(tape: tf.GradientTape, loss: tf.Tensor, variables: tuple[tf.Variable, ...]) -> list[tf.Tensor]:
        here = tf.distribute.get_replica_context()
        return here.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, variables))

    distributed = trained(by_strategy)
    functions = {
        "no communication": tf.function(trained(lambda tape, loss, variables: tape.gradient(loss, variables))),
        "horo": tf.function(
            trained(lambda tape, loss, variables: hvd.DistributedGradientTape(tape).gradient(loss, variables))
        ),
        "MultiWorkerMirroredStrategy": tf.function(lambda: strategy.run(distributed)),
    }

    def turn(function: Callable[[], tf.Tensor]) -> float:
        function()
        horo.barrier()
        times = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            function()
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.fmean(times)

    return {name: lambda function=function: turn(function) for name, function in functions.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    horo.init()
    turns = contenders(make_strategy(), arguments.batch_size)
    figures: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(arguments.rounds):
        for name, turn in turns.items():
            figures[name].append(max(horo.allgather_object(turn())))
    if horo.rank() == 0:
        print(f"{horo.size()} ranks, {os.cpu_count()} cores, {arguments.rounds} rounds of {STEPS} steps, milliseconds")
        alone = statistics.median(figures["no communication"])
        for name, values in figures.items():
            middle = statistics.median(values)
            print(f"{name:30} {middle:8.2f} (+{middle - alone:.2f})   ({min(values):.2f} .. {max(values):.2f})")
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
