"""Gradients of the operations, against finite differences and in loops of training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf
from values import MODES, in_mode

pytestmark = pytest.mark.parametrize("mode", MODES)
STEP = 1e-4


def check(
    hvd: ModuleType, mode: str, operation: Callable[[tf.Tensor], tf.Tensor], shape: tuple[int, ...], factor: float
) -> None:
    """The gradient of the sum of all ranks' losses with respect to this rank's input, times `factor`: Horovod's
    gradients of operations that move are averages where the sum of losses would have sums."""
    random = np.random.default_rng(3 + hvd.rank())
    x = tf.constant(random.normal(size=shape))
    weights = None

    def loss(given: tf.Tensor) -> tf.Tensor:
        nonlocal weights
        done = operation(given)
        if weights is None:
            with tf.init_scope():
                weights = np.random.default_rng(17 + hvd.rank()).normal(size=1000)
        flat = tf.reshape(done, [-1])
        return tf.reduce_sum(tf.sin(flat) * tf.constant(weights)[: tf.size(flat)])

    @functools.partial(in_mode, mode)
    def gradient(given: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(given)
            value = loss(given)
        return tape.gradient(value, given)

    got = gradient(x).numpy()
    # Every element of every rank in turn; all ranks run the same operations.
    wanted = np.zeros(shape)
    for rank in range(hvd.size()):
        sizes = hvd.broadcast_object(shape, rank, name="shape")
        for place in np.ndindex(*sizes):
            ends = []
            for sign in (1, -1):
                moved = x.numpy().copy()
                if rank == hvd.rank():
                    moved[place] += sign * STEP
                ends.append(hvd.allreduce(loss(tf.constant(moved)), op=hvd.Sum, name="losses").numpy())
            if rank == hvd.rank():
                wanted[place] = (ends[0] - ends[1]) / (2 * STEP)
    np.testing.assert_allclose(got, wanted * factor, rtol=1e-5, atol=1e-7)


def test_of_allreduce(hvd: ModuleType, mode: str) -> None:
    check(hvd, mode, lambda x: hvd.allreduce(x, op=hvd.Sum, name="a"), (2,), 1)
    check(hvd, mode, lambda x: hvd.allreduce(x, name="b", prescale_factor=2.0, postscale_factor=3.0), (2,), 1)


def test_of_grouped_allreduce(hvd: ModuleType, mode: str) -> None:
    def both(x: tf.Tensor) -> tf.Tensor:
        return tf.concat(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, name="c"), 0)

    check(hvd, mode, both, (2,), 1)


def test_of_allgather(hvd: ModuleType, mode: str) -> None:
    check(hvd, mode, lambda x: hvd.allgather(x, name="d"), (1 + hvd.rank(),), 1 / hvd.size())


def test_of_broadcast(hvd: ModuleType, mode: str) -> None:
    check(hvd, mode, lambda x: hvd.broadcast(x, hvd.size() - 1, name="e"), (2,), 1 / hvd.size())


def test_of_alltoall(hvd: ModuleType, mode: str) -> None:
    splits = [1 + (hvd.rank() + to) % 2 for to in range(hvd.size())]
    check(hvd, mode, lambda x: hvd.alltoall(x, splits, name="f")[0], (sum(splits),), 1)


def test_of_reducescatter(hvd: ModuleType, mode: str) -> None:
    def scattered(x: tf.Tensor) -> tf.Tensor:
        return hvd.reducescatter(x, op=hvd.Sum, name="g", postscale_factor=2.0)

    # Horovod's: times the number of ranks with Sum.
    check(hvd, mode, scattered, (hvd.size() + 1,), hvd.size())
