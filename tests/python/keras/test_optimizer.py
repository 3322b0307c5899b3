"""Optimizers that step with the gradients of all ranks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import keras
import numpy as np
import pytest
from training import (
    AS_RANKS_DO,
    BACKEND,
    BATCH,
    data_of,
    fit,
    model_of,
    same_on_all_ranks,
    sgd,
    share_of,
    train,
    values,
    weights_alone,
)

from horo.keras.optimizer import is_distributed

optimizers = keras.optimizers


def test_a_step_that_is_not_compiled(hvd: ModuleType) -> None:
    train(hvd, sgd, compiling={"run_eagerly": True})


@pytest.mark.skipif(BACKEND == "torch", reason="Keras on torch has one step per execution")
def test_several_steps_per_execution(hvd: ModuleType) -> None:
    train(hvd, sgd, compiling={"steps_per_execution": 4}, batches=6)


@pytest.mark.parametrize(
    ("arguments", "alone", "tolerance"),
    [
        ({"op": 1}, lambda ranks: sgd(0.1 * ranks), 2e-5),
        ({"gradient_predivide_factor": 4.0}, lambda ranks: sgd(), 2e-5),
        ({"compression": "fp16"}, lambda ranks: sgd(), 2e-3),
        ({"groups": 3}, lambda ranks: sgd(), 2e-5),
        (
            {"backward_passes_per_step": 2, "average_aggregated_gradients": True},
            lambda ranks: sgd(gradient_accumulation_steps=2),
            2e-5,
        ),
        ({"backward_passes_per_step": 2}, lambda ranks: sgd(0.2, gradient_accumulation_steps=2), 2e-5),
    ],
    ids=["sum", "predivided", "compressed", "groups", "passes averaged", "passes added up"],
)
def test_arguments_of_the_wrapper(hvd: ModuleType, arguments: dict, alone, tolerance: float) -> None:
    if "compression" in arguments:
        arguments = {"compression": hvd.Compression.fp16}
    train(hvd, sgd, lambda: alone(hvd.size()), tolerance=tolerance, **arguments)


def test_groups_of_variables_and_others_alone(hvd: ModuleType) -> None:
    model = model_of()
    kernels = [layer.kernel for layer in model.layers]
    model.compile(hvd.DistributedOptimizer(sgd(), groups=[kernels]), loss="mse")
    fit(hvd, model)
    same_on_all_ranks(hvd, model)


def test_gradients_that_a_loop_applies_itself(hvd: ModuleType) -> None:
    variable = keras.Variable([1.0, 2.0], name="one")
    optimizer = hvd.DistributedOptimizer(sgd(1.0))
    gradient = keras.ops.convert_to_tensor(np.array([1.0, 3.0], "float32") * hvd.rank())
    optimizer.apply([gradient], [variable])
    mean = (hvd.size() - 1) / 2
    np.testing.assert_allclose(values([variable])[0], [1.0 - mean, 2.0 - 3 * mean])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow")
def test_a_loop_in_a_graph(hvd: ModuleType) -> None:
    import tensorflow as tf

    variable = keras.Variable([1.0, 2.0], name="in a graph")
    optimizer = hvd.DistributedOptimizer(sgd(1.0))
    optimizer.build([variable])

    @tf.function
    def steps(factor: tf.Tensor) -> None:
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable.value * factor)
            optimizer.apply_gradients(zip(tape.gradient(loss, [variable.value]), [variable], strict=True))

    steps(tf.constant(float(hvd.rank())))
    np.testing.assert_allclose(values([variable])[0], np.array([1.0, 2.0]) - 3 * (hvd.size() - 1) / 2, rtol=1e-6)


def test_variables_without_a_gradient_stay_as_they_are(hvd: ModuleType) -> None:
    first, second = keras.Variable([1.0], name="first"), keras.Variable([1.0], name="second")
    optimizer = hvd.DistributedOptimizer(sgd(1.0))
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([None, keras.ops.convert_to_tensor([1.0])], [first, second])
    assert [one.item() for one in values([first, second])] == [1.0, 0.0]


def test_local_layers_are_not_reduced(hvd: ModuleType) -> None:
    model = model_of()
    optimizer = hvd.PartialDistributedOptimizer(sgd(), local_layers=model.layers[-1])
    model.compile(optimizer, loss="mse")
    fit(hvd, model)
    first, last = ([one.tobytes() for one in values(layer.weights)] for layer in (model.layers[0], model.layers[-1]))
    others = hvd.allgather_object((first, last), name="partial")
    assert hvd.size() == 1 or any(other[1] != last for other in others)


def test_an_optimizer_that_is_built_keeps_its_state(hvd: ModuleType) -> None:
    model = model_of()
    model.compile(sgd(momentum=0.9), loss="mse", **AS_RANKS_DO)
    model.fit(*data_of(1), batch_size=BATCH, verbose=0)
    wrapped = hvd.DistributedOptimizer(model.optimizer)
    assert wrapped.built
    for one, other in zip(values(wrapped.variables), values(model.optimizer.variables), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_schedule_and_a_function_as_learning_rate_are_kept(hvd: ModuleType) -> None:
    schedule = optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)
    assert hvd.DistributedOptimizer(sgd(schedule))._learning_rate is schedule
    rate = lambda: 0.25  # noqa: E731
    assert hvd.DistributedOptimizer(sgd(rate)).learning_rate == 0.25


@pytest.mark.skipif(BACKEND != "torch", reason="Keras on torch alone wraps models")
def test_gradients_that_keras_averages_itself_are_left_alone(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    model = model_of()
    model.compile(hvd.DistributedOptimizer(sgd()), loss="mse")
    object.__setattr__(model, "ddp_model", model)  # As where torch.distributed is initialised.
    inputs, targets = (share_of(hvd, one) for one in data_of(1))
    with pytest.warns(UserWarning, match="averages gradients itself"):
        model.train_on_batch(inputs, targets)
    everybody = hvd.allgather_object([one.tobytes() for one in values(model.weights)], name="ddp")
    assert everybody[0] != everybody[1]


@pytest.mark.skipif(BACKEND != "torch", reason="a model on torch alone is one of its modules")
def test_a_model_in_torchs_own_wrapper_learns_what_one_process_does(hvd: ModuleType, tmp_path: Path) -> None:
    """Gradients are averages when the optimizer gets them, and the average of these is the same."""
    import torch

    import horo.torch  # noqa: F401  It makes the back end known.

    place = hvd.broadcast_object((tmp_path / "meeting").as_uri(), 0)
    torch.distributed.init_process_group("horo", place, rank=hvd.rank(), world_size=hvd.size())
    try:
        model = model_of()
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = hvd.DistributedOptimizer(sgd())
        inputs, targets = (torch.from_numpy(share_of(hvd, one)) for one in data_of(2))
        rows = BATCH // hvd.size()
        for _ in range(2):
            for at in (0, rows):
                model.zero_grad()
                torch.nn.functional.mse_loss(wrapped(inputs[at : at + rows]), targets[at : at + rows]).backward()
                optimizer.apply([one.value.grad for one in model.trainable_weights], model.trainable_weights)
        same_on_all_ranks(hvd, model)
        for one, expected in zip(values(model.weights), weights_alone(sgd, 2), strict=True):
            np.testing.assert_allclose(one, expected, rtol=2e-5, atol=2e-5)
    finally:
        torch.distributed.destroy_process_group()


def test_it_says_that_it_is_the_optimizer_that_it_wraps(hvd: ModuleType) -> None:
    plain = optimizers.Adam()
    wrapped = hvd.DistributedOptimizer(plain, name="mine")
    assert is_distributed(wrapped)
    assert not is_distributed(plain)
    assert isinstance(wrapped, optimizers.Adam)
    assert wrapped.__class__ is plain.__class__
    assert wrapped.name == "mine"
