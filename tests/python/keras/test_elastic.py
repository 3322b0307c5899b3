"""States of models, and training that goes on after a failure."""

from __future__ import annotations

from types import ModuleType

import keras
import numpy as np
import pytest
from training import BACKEND, data_of, fit, model_of, same_on_all_ranks, share_of, values

import horo
from horo.process_sets import process_set_of


def compiled(hvd: ModuleType, seed: int = 1) -> keras.Model:
    model = model_of(seed)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
    return model


def test_a_state_is_saved_restored_and_synchronised(hvd: ModuleType) -> None:
    model = compiled(hvd, seed=20 + hvd.rank())
    state = hvd.elastic.KerasState(model, batch=hvd.rank(), epoch=3)
    state.sync()
    same_on_all_ranks(hvd, model)
    assert (state.batch, state.epoch) == (0, 3)
    before = values([*model.weights, *model.optimizer.variables])
    fit(hvd, model)
    state.batch = 7
    state.restore()
    assert state.batch == 0
    for one, other in zip(values([*model.weights, *model.optimizer.variables]), before, strict=True):
        np.testing.assert_array_equal(one, other)
    # Newcomers get it from rank 0 alone.
    givers, added = process_set_of(sorted({0, hvd.size() - 1}))
    model.weights[0].assign(np.full(model.weights[0].shape, 1.0 + hvd.rank(), np.float32))
    if givers.included():
        state._give(givers)
        assert np.all(state._saved_values[0] == 1)
    assert state._gives()
    assert np.all(values(model.weights)[0] == (1 if givers.included() else 1 + hvd.rank()))
    if added:
        horo.remove_process_set(givers)
    with pytest.raises(ValueError, match="Input layer"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


def test_callbacks_count_what_is_done(hvd: ModuleType) -> None:
    model = compiled(hvd)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    committed: list[tuple[int, int]] = []
    state.commit = lambda: committed.append((state.epoch, state.batch))
    elastic = hvd.elastic
    callbacks = [
        elastic.UpdateBatchStateCallback(state),
        elastic.UpdateEpochStateCallback(state),
        elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    fit(hvd, model, batches=4, epochs=2, callbacks=callbacks)
    assert committed == [(0, 2), (0, 4), (1, 2), (1, 4)]
    assert (state.epoch, state.batch) == (2, 0)
    fit(hvd, model, batches=4, epochs=3, initial_epoch=2, callbacks=callbacks)
    assert state.epoch == 3


def test_training_goes_on_from_the_last_commit_after_a_failure(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    model = compiled(hvd)
    state = hvd.elastic.KerasState(model, epoch=0)
    attempts: list[int] = []

    class FailOnce(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            if len(attempts) == 1 and epoch == 1:
                raise horo.HorovodInternalError("planted")

    @hvd.elastic.run
    def run(state: object) -> None:
        attempts.append(state.epoch)
        callbacks = [hvd.elastic.UpdateEpochStateCallback(state), FailOnce()]
        for epoch in range(state.epoch, 3):
            fit(hvd, model, epochs=epoch + 1, initial_epoch=epoch, callbacks=callbacks)
            state.commit()

    run(state)
    assert attempts == [0, 1]
    assert state.epoch == 3
    same_on_all_ranks(hvd, model)


class Uneven(keras.layers.Layer):
    """Has a weight whose shape differs from rank to rank."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def build(self, shape: object) -> None:
        self.odd = self.add_weight(shape=(self.count,), name="odd")

    def call(self, inputs: object) -> object:
        return inputs + keras.ops.sum(self.odd)


def test_a_failure_inside_a_step_is_one_of_horos(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    inputs, targets = (share_of(hvd, one) for one in data_of(1))
    good = compiled(hvd)
    bad = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), Uneven(1 + hvd.rank())])
    bad.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    state = hvd.elastic.KerasState(good, tries=0)
    tries: list[int] = []

    @hvd.elastic.run
    def run(state: object) -> str:
        tries.append(1)
        if len(tries) == 1:
            bad.fit(inputs, targets, verbose=0)
        return "done"

    # Ranks that ask for different things do not begin anew: it would not go away.
    with pytest.raises(horo.HorovodInternalError) as caught:
        run(state)
    assert caught.value.code == "mismatch", f"on {BACKEND} the failure of a step is not seen as horo's"
    assert run(state) == "done"
    assert len(tries) == 2
    fit(hvd, good)
    same_on_all_ranks(hvd, good)
