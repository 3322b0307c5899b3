"""Small trainings for the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import keras
import numpy as np

BACKEND = os.environ.get("KERAS_BACKEND", "")
# On TensorFlow XLA would take seconds to compile what ranks run without it.
AS_RANKS_DO: dict[str, Any] = {"jit_compile": False} if BACKEND == "tensorflow" else {}
BATCH = 12  # Of all ranks; a number that 1, 2 and 3 share equally.


def sgd(rate: Any = 0.1, **arguments: Any) -> keras.Optimizer:
    return keras.optimizers.SGD(rate, **arguments)


def model_of(seed: int = 1) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5, activation="tanh", name="first"), keras.layers.Dense(3, name="last")]
    )


def data_of(batches: int = 2) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    shape = (batches * BATCH,)
    return random.normal(size=(*shape, 4)).astype("float32"), random.normal(size=(*shape, 3)).astype("float32")


def share_of(hvd: ModuleType, data: np.ndarray) -> np.ndarray:
    """This rank's part of each batch, one below the other."""
    return np.concatenate([data[at : at + BATCH][hvd.rank() :: hvd.size()] for at in range(0, len(data), BATCH)])


def values(variables: Any) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(one.value) for one in variables]


def same_on_all_ranks(hvd: ModuleType, model: keras.Model) -> None:
    mine = [one.tobytes() for one in values(model.weights)]
    assert all(other == mine for other in hvd.allgather_object(mine, name="weights")), "weights differ between ranks"


def fit(hvd: ModuleType, model: keras.Model, batches: int = 2, epochs: int = 2, **arguments: Any) -> Any:
    inputs, targets = (share_of(hvd, one) for one in data_of(batches))
    size = BATCH // hvd.size()
    return model.fit(inputs, targets, batch_size=size, epochs=epochs, shuffle=False, verbose=0, **arguments)


_alone: dict[str, list[np.ndarray]] = {}  # Most of the time of a test goes into compiling.


def weights_alone(make: Callable[[], Any], batches: int) -> list[np.ndarray]:
    """What one process makes of the data of all ranks."""
    optimizer = make()
    settings = {key: value for key, value in optimizer.get_config().items() if key != "name"}
    key = f"{type(optimizer).__name__} {settings} {batches}"
    if key not in _alone:
        model = model_of()
        model.compile(optimizer, loss="mse", **AS_RANKS_DO)
        model.fit(*data_of(batches), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        _alone[key] = values(model.weights)
    return _alone[key]


def train(
    hvd: ModuleType,
    make: Callable[[], Any],
    alone: Callable[[], Any] | None = None,
    compiling: dict[str, Any] | None = None,
    fitting: dict[str, Any] | None = None,
    tolerance: float = 2e-5,
    batches: int = 2,
    **arguments: Any,
) -> keras.Model:
    """A model trained on all ranks, which must become what one process makes of the data of all."""
    mine = model_of()
    mine.compile(hvd.DistributedOptimizer(make(), **arguments), loss="mse", **(compiling or {}))
    fit(hvd, mine, batches=batches, **(fitting or {}))
    same_on_all_ranks(hvd, mine)
    for one, expected in zip(values(mine.weights), weights_alone(alone or make, batches), strict=True):
        np.testing.assert_allclose(one, expected, rtol=tolerance, atol=tolerance)
    return mine
