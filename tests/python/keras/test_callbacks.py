"""Callbacks of fit()."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import keras
import numpy as np
import pytest
from training import BACKEND, data_of, fit, model_of, same_on_all_ranks, share_of, train, values


def unbuilt() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(3)])


@pytest.mark.parametrize("built", [True, False])
def test_all_ranks_begin_with_the_variables_of_the_root(hvd: ModuleType, built: bool) -> None:
    root = hvd.size() - 1
    keras.utils.set_random_seed(10 + hvd.rank())
    model = model_of(seed=10 + hvd.rank()) if built else unbuilt()
    begin = values(model.weights)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
    seen: list[list[np.ndarray]] = []
    look = keras.callbacks.LambdaCallback(on_train_begin=lambda logs=None: seen.append(values(model.weights)))
    fit(hvd, model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(root), look])
    same_on_all_ranks(hvd, model)
    momentums = [one.tobytes() for one in values(model.optimizer.variables)]
    assert all(one == momentums for one in hvd.allgather_object(momentums, name="slots"))
    if built:  # Before the first step.
        expected = hvd.broadcast_object(begin, root)
        for one, other in zip(seen[0], expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_rank_whose_model_is_built_waits_for_the_others(hvd: ModuleType) -> None:
    model = unbuilt()
    if hvd.rank() == 0:
        model.build((None, 4))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    fit(hvd, model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    same_on_all_ranks(hvd, model)


def test_different_models_are_named(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    variables = [keras.Variable(np.zeros(3 + hvd.rank(), "float32"), name="odd")]
    with pytest.raises(ValueError, match=r"odd.* float32\[4\] on rank 1 and .*odd.* float32\[3\] on rank 0"):
        hvd.broadcast_variables(variables, 0)
    with pytest.raises(ValueError, match="rank 1 has 2 variables and rank 0 has 1"):
        hvd.broadcast_variables([keras.Variable(0.0) for _ in range(1 + hvd.rank())], 0)


def test_metrics_are_averages_over_ranks(hvd: ModuleType) -> None:
    callback = hvd.callbacks.MetricAverageCallback()
    logs = {"loss": float(hvd.rank()), "accuracy": np.float32(hvd.rank() * 2), "word": [1, 2]}
    if hvd.rank() == 0:
        logs["only here"] = 5.0
    callback.on_epoch_end(0, logs)
    mean = (hvd.size() - 1) / 2
    assert logs["loss"] == mean
    assert logs["accuracy"] == 2 * mean
    assert logs["word"] == [1, 2]
    assert logs.get("only here", 5.0) == 5.0


def rates(hvd: ModuleType, callback: keras.callbacks.Callback, epochs: int, batches: int = 2) -> list[float]:
    """The learning rate of every step."""
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.5)), loss="mse")
    seen: list[float] = []

    def look(batch: int, logs: object = None) -> None:
        if BACKEND == "jax":
            model.jax_state_sync()
        seen.append(float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))

    history = fit(
        hvd,
        model,
        batches=batches,
        epochs=epochs,
        callbacks=[callback, keras.callbacks.LambdaCallback(on_train_batch_end=look)],
    )
    assert history.history["lr"] == pytest.approx(seen[batches - 1 :: batches])
    same_on_all_ranks(hvd, model)
    return seen


def test_a_schedule_sets_the_rate_of_its_epochs(hvd: ModuleType) -> None:
    callback = hvd.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.1**epoch, start_epoch=1, end_epoch=3)
    assert rates(hvd, callback, epochs=4) == pytest.approx([1.0, 1.0, 0.05, 0.05, 0.005, 0.005, 0.005, 0.005])


def test_a_warmup_ends_with_the_whole_rate(hvd: ModuleType) -> None:
    callback = hvd.callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2)
    size = hvd.size()
    steps = [0.8 / size * (done * (size - 1) + 1) for done in (0.25, 0.5, 0.75, 1.0)]
    assert rates(hvd, callback, epochs=3) == pytest.approx([*steps, 0.8, 0.8])


def test_momentum_is_scaled_with_the_rate(hvd: ModuleType) -> None:
    """As if the momentum had been gathered with the new rate: steps of sum(0.5**k * gradient) times the rate."""
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.5)), loss="mse")
    fit(hvd, model, batches=1, epochs=1)
    slots = values(model.optimizer.momentums)
    callback = hvd.callbacks.LearningRateScheduleCallback(1.0, 0.25)
    callback.set_model(model)
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    for now, before in zip(values(model.optimizer.momentums), slots, strict=True):
        np.testing.assert_allclose(now, before * 0.25, rtol=1e-6)
    callback.on_train_batch_begin(0)  # The rate stays, and so do they.
    np.testing.assert_allclose(values(model.optimizer.momentums)[0], slots[0] * 0.25, rtol=1e-6)


def test_a_schedule_of_the_optimizer_and_one_of_a_callback_do_not_go_together(hvd: ModuleType) -> None:
    model = model_of()
    decay = keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.9)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(decay)), loss="mse")
    with pytest.raises(ValueError, match="has a schedule of its own"):
        fit(hvd, model, callbacks=[hvd.callbacks.LearningRateScheduleCallback(1.0, 0.5)])
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 0.5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="XLA compiles our operations on JAX, and torch does not ask it")
def test_compiling_by_xla_is_switched_off_or_refused(hvd: ModuleType) -> None:
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model = train(
        hvd, lambda: keras.optimizers.SGD(0.1), compiling={"jit_compile": True}, fitting={"callbacks": callbacks}
    )
    assert not model.jit_compile
    if hvd.size() == 1:
        return
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse", jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile=False"):
        fit(hvd, model)


def test_the_best_model_is_kept_by_rank_0(hvd: ModuleType, tmp_path: Path) -> None:
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    with pytest.raises(ValueError, match="filepath"):
        fit(hvd, model, callbacks=[best])
    best.filepath = str(tmp_path / f"best-{hvd.rank()}.keras")
    fit(hvd, model, callbacks=[best])
    assert Path(best.filepath).exists() == (hvd.rank() == 0)


def test_validation_data_may_differ(hvd: ModuleType) -> None:
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    inputs, targets = (share_of(hvd, one) for one in data_of(1))
    count = 2 + hvd.rank()  # Evaluation has no operations.
    history = fit(
        hvd,
        model,
        validation_data=(inputs[:count], targets[:count]),
        callbacks=[hvd.callbacks.MetricAverageCallback()],
    )
    losses = hvd.allgather_object(history.history["val_loss"], name="losses")
    assert all(one == losses[0] for one in losses)
