"""What cannot be right is refused, on every rank, with words that say what to do."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType

import keras
import numpy as np
import pytest
from training import BACKEND


def test_an_optimizer_is_wrapped_once(hvd: ModuleType) -> None:
    wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(wrapped)
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(wrapped))


def test_an_optimizer_of_keras_2_is_refused(hvd: ModuleType) -> None:
    class SGD:
        def get_gradients(self) -> None: ...

    SGD.__module__ = "tf_keras.optimizers"
    with pytest.raises(ValueError, match=r"tf_keras.optimizers.SGD is an optimizer of Keras 2"):
        hvd.DistributedOptimizer(SGD())


@pytest.mark.skipif(BACKEND != "tensorflow" or not find_spec("tf_keras"), reason="Keras 2 is not installed here")
def test_objects_of_keras_2_are_refused(hvd: ModuleType) -> None:
    import tf_keras

    for optimizer in (tf_keras.optimizers.Adam(), tf_keras.optimizers.legacy.SGD()):
        with pytest.raises(ValueError, match=r"is an optimizer of Keras 2, and horo works with Keras 3"):
            hvd.DistributedOptimizer(optimizer)
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", loss="mse")
    with pytest.raises(ValueError, match=r"tf_keras.*Sequential is no model of Keras 3"):
        model.fit(np.ones((2, 2)), np.ones((2, 1)), callbacks=[hvd.callbacks.MetricAverageCallback()], verbose=0)
    with pytest.raises(ValueError, match="is no model of Keras 3"):
        hvd.elastic.KerasState(model)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"op": 2}, "op must be Average or Sum"),
        ({"op": 1, "gradient_predivide_factor": 2.0}, "predivide"),
        ({"gradient_predivide_factor": -1.0}, "larger than 0"),
        ({"groups": 0}, "groups"),
        ({"groups": [1]}, "groups"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
    ],
)
def test_arguments_that_do_not_go_together(hvd: ModuleType, arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), **arguments)
    with pytest.raises(ValueError, match="leave one of them out"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(gradient_accumulation_steps=3), backward_passes_per_step=2)


def test_something_that_is_no_optimizer(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"not builtins\.int"):
        hvd.DistributedOptimizer(3)
    assert isinstance(hvd.DistributedOptimizer("sgd"), keras.optimizers.SGD)


def test_functions_of_tensorflow_1_name_what_replaces_them(hvd: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="BroadcastGlobalVariablesCallback"):
        hvd.broadcast_global_variables(0)
