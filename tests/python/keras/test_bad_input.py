"""What cannot be right is refused, on every rank, with words that say what to do."""

from __future__ import annotations

from types import ModuleType

import keras
import pytest


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
