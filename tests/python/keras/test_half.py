"""Training in float16, where the loss is scaled: all ranks must decide alike whether a step is taken."""

from __future__ import annotations

from types import ModuleType

import keras
import numpy as np
import pytest
from training import data_of, fit, model_of, same_on_all_ranks, share_of, values


def test_a_rank_with_infinite_gradients_stops_the_step_of_all(hvd: ModuleType) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = model_of()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        model.compile(optimizer, loss="mse")
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.optimizer is optimizer
    fit(hvd, model, epochs=1)
    before = values(model.weights)
    scale = float(values([optimizer.dynamic_scale])[0])
    inputs, targets = (share_of(hvd, one) for one in data_of(1))
    if hvd.rank() == hvd.size() - 1:
        targets = targets + np.float32(np.inf)
    model.fit(inputs, targets, batch_size=len(inputs), verbose=0)
    for one, expected in zip(values(model.weights), before, strict=True):
        np.testing.assert_array_equal(one, expected)
    assert float(values([optimizer.dynamic_scale])[0]) == scale / 2
    fit(hvd, model, epochs=1)
    same_on_all_ranks(hvd, model)


def test_loss_scaling_around_the_wrapper_is_refused(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))), loss="mse")
    with pytest.raises(ValueError, match=r"DistributedOptimizer\(keras.optimizers.LossScaleOptimizer"):
        fit(hvd, model, epochs=1)
