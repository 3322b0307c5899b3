"""Models in files: they hold no trace of horo, and load with it and without."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType

import h5py
import keras
import numpy as np
import pytest
from training import BACKEND, fit, model_of, same_on_all_ranks, values

from horo.keras.optimizer import is_distributed


def saved(hvd: ModuleType, path: Path) -> keras.Model:
    model = model_of()
    # Keras does not find a loss again that a .h5 file holds as a word.
    loss = keras.losses.MeanSquaredError()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss=loss)
    fit(hvd, model)
    model.save(path)
    return model


@pytest.mark.parametrize("kind", ["keras", "h5"])
def test_a_model_with_a_wrapped_optimizer_loads_without_horo(hvd: ModuleType, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"{hvd.rank()}.{kind}"
    model = saved(hvd, path)
    if kind == "keras":
        words = zipfile.ZipFile(path).read("config.json").decode()
    else:
        words = str(h5py.File(path).attrs["training_config"])
    assert "horo" not in words
    assert "SGD" in words
    plain = keras.models.load_model(path)
    assert not is_distributed(plain.optimizer)
    assert type(plain.optimizer).__name__ == "SGD"
    for one, other in zip(values(plain.weights), values(model.weights), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["keras", "h5"])
def test_load_model_wraps_again_and_goes_on(hvd: ModuleType, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"{hvd.rank()}.{kind}"
    model = saved(hvd, path)
    loaded = hvd.load_model(path)
    assert is_distributed(loaded.optimizer)
    for one, other in zip(values(loaded.optimizer.variables), values(model.optimizer.variables), strict=True):
        np.testing.assert_array_equal(one, other)
    fit(hvd, model)
    fit(hvd, loaded)
    same_on_all_ranks(hvd, loaded)
    for one, other in zip(values(loaded.weights), values(model.weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


class Mine(keras.optimizers.SGD):
    pass


def test_an_optimizer_that_keras_does_not_know(hvd: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / f"{hvd.rank()}.keras"
    model = model_of()
    model.compile(hvd.DistributedOptimizer(Mine(0.1)), loss="mse")
    fit(hvd, model)
    model.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[Mine])
    assert isinstance(loaded.optimizer, Mine)
    fit(hvd, loaded)
    same_on_all_ranks(hvd, loaded)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's format")
def test_an_exported_model_has_no_operation_of_horo(hvd: ModuleType, tmp_path: Path) -> None:
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    fit(hvd, model)
    model.export(str(tmp_path / str(hvd.rank())), verbose=False)
    graph = (tmp_path / str(hvd.rank()) / "saved_model.pb").read_bytes()
    assert b"Horo" not in graph
