"""Gradients of embeddings, which are sparse on TensorFlow."""

from __future__ import annotations

from types import ModuleType

import keras
import numpy as np
import pytest
from training import AS_RANKS_DO, BACKEND, same_on_all_ranks, values

COUNT = 12


def embedding() -> keras.Model:
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((2,), dtype="int32"), keras.layers.Embedding(20, 3), keras.layers.Flatten()])
    model.add(keras.layers.Dense(1))
    return model


@pytest.mark.parametrize("arguments", [{}, {"sparse_as_dense": True}, {"backward_passes_per_step": 2}])
def test_embeddings_are_those_of_one_process(hvd: ModuleType, arguments: dict) -> None:
    if BACKEND != "tensorflow" and arguments:
        return
    random = np.random.default_rng(1)
    inputs, targets = random.integers(0, 20, (COUNT, 2)), random.normal(size=(COUNT, 1)).astype("float32")
    mine, alone = embedding(), embedding()
    mine.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **arguments), loss="mse")
    rank, size = hvd.rank(), hvd.size()
    mine.fit(inputs[rank::size], targets[rank::size], batch_size=COUNT, epochs=2, verbose=0)
    passes = arguments.get("backward_passes_per_step")
    alone.compile(
        keras.optimizers.SGD(0.1 * (passes or 1), gradient_accumulation_steps=passes), loss="mse", **AS_RANKS_DO
    )
    alone.fit(inputs, targets, batch_size=COUNT, epochs=2, verbose=0)
    same_on_all_ranks(hvd, mine)
    for one, expected in zip(values(mine.weights), values(alone.weights), strict=True):
        np.testing.assert_allclose(one, expected, rtol=2e-5, atol=2e-6)
