"""What tests let the workers of Ray do."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
from elastic_functions import die_in_seat_1, train_elastically
from ray.train import Checkpoint

import horo


def tell_place() -> list[dict[str, Any]]:
    """Joins, leaves and joins again; rank 0 returns what all ranks found."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    environment = dict(os.environ)
    for _ in range(2):
        horo.init()
        assert horo.allreduce(np.full(1000, horo.rank() + 1.0), op=horo.Sum)[0] == sum(range(horo.size() + 1))
        horo.shutdown()
    horo.init()
    place = {
        "rank": horo.rank(),
        "local": (horo.local_rank(), horo.local_size()),
        "cross": (horo.cross_rank(), horo.cross_size()),
        "ray": ray.train.get_context().get_world_rank(),
        "node": ray.get_runtime_context().get_node_id(),
        "variables": [int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "SIZE", "LOCAL_RANK", "CROSS_SIZE")],
        "main thread": threading.current_thread() is threading.main_thread(),
        "handlers kept": handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "environment kept": environment == dict(os.environ),
        "keys": [name for name in os.environ if "KEY" in name and name.startswith("HORO")],
    }
    return horo.allgather_object(place)


def train_with_torch(config: dict[str, Any]) -> None:
    """Four epochs, a checkpoint after each; in its first life rank 1 dies in the third."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters())
    checkpoint, first = ray.train.get_checkpoint(), 0
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    with open(f"{config['diary']}.{hvd.rank()}", "a", encoding="ascii") as diary:
        for epoch in range(first, 4):
            print(epoch, file=diary, flush=True)
            hvd.barrier()  # Nobody dies before all have written.
            if epoch == 2 and first == 0 and hvd.rank() == 1:
                # Ray takes reports in its own time, and its workers begin anew after the last that it has taken.
                ray.train.get_all_reported_checkpoints(timeout_s=60)
                os.kill(os.getpid(), signal.SIGKILL)
            data = torch.randn(16, 4)
            optimizer.zero_grad()
            loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            weights = hvd.allgather(model.weight.detach())
            assert (weights == weights[0]).all()
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder) / "state.pt")
                saved = Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
                ray.train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=saved)


def raise_on_rank_1() -> None:
    horo.init()
    if horo.rank() == 1:
        raise LookupError("nothing to be found")
    horo.barrier()


def train_with_tensorflow() -> tuple[float, bool, float]:
    """An operation of TensorFlow, then a model of Keras: whether the weights are equal, and the loss at last."""
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    import keras
    import tensorflow as tf

    hvd.init()
    total = float(hvd.allreduce(tf.fill([3], float(hvd.rank() + 1)), op=hvd.Sum)[0])
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    data = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras.callbacks.MetricAverageCallback()]
    past = model.fit(data, data.sum(1), batch_size=16, epochs=4, verbose=0, callbacks=callbacks)
    weights = hvd.allgather(tf.reshape(model.get_weights()[0], [1, -1])).numpy()
    assert past.history["loss"][-1] < past.history["loss"][0] / 2
    return total, bool((weights == weights[0]).all()), past.history["loss"][-1]


class Counter:
    def __init__(self, start: int, step: int) -> None:
        self.value = start
        self.step = step

    def count(self) -> int:
        self.value += self.step
        return self.value


def reduce_value(value: float, *, times: float = 1) -> tuple[int, float]:
    horo.init()
    return horo.rank(), float(horo.allreduce(np.full(10, value * times), op=horo.Sum)[0])


def fail_on_rank_0(before_init: bool) -> None:
    if not before_init:
        horo.init()
    if os.environ["HOROVOD_RANK"] == "0":
        raise LookupError("nothing to be found")
    horo.init()
    horo.barrier()


def die_on_rank_1() -> None:
    horo.init()
    if horo.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    horo.barrier()


def tell_devices(_: Any) -> tuple[int, int, str]:
    horo.init()
    return horo.local_rank(), horo.cross_rank(), os.environ["CUDA_VISIBLE_DEVICES"]


def train_while_slots_change(folder: str) -> dict[str, Any]:
    """The second rank dies before the job has begun, which begins anew, and again when it trains: another one comes in
    its place. Then there is room for a third, and then not any more."""
    from horo.ray import logger

    logger.log({"seat": os.environ["HORO_SEAT"]})
    early = Path(folder) / "early"
    if os.environ["HORO_SEAT"] == "1" and not early.exists():
        early.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def goes_on(state: Any) -> bool:
        die_in_seat_1(state)
        if state.step == 10:
            (Path(folder) / "grow").touch()
        if 3 in state.sizes:
            (Path(folder) / "shrink").touch()
        return 3 not in state.sizes or state.sizes[-3:] != [2] * 3

    return train_elastically(goes_on)


def fail_on_seat_1(counter: Counter) -> int:
    horo.init()
    if os.environ["HORO_SEAT"] == "1":
        raise LookupError(f"nothing to be found after {counter.count()}")
    horo.barrier()
    return 0
