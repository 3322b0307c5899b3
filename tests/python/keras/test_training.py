"""Training on all ranks is that of one process with the data of all."""

from __future__ import annotations

from types import ModuleType

import keras
import numpy as np
import pytest
from training import data_of, fit, model_of, same_on_all_ranks, sgd, train, values

optimizers = keras.optimizers


MAKE = {
    "momentum": lambda: sgd(momentum=0.9),
    "clipping": lambda: optimizers.Adam(0.01, global_clipnorm=0.1),
    "ema": lambda: sgd(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "accumulation": lambda: sgd(gradient_accumulation_steps=2, clipvalue=0.05),
    "loss scale": lambda: optimizers.LossScaleOptimizer(sgd(), initial_scale=64.0, dynamic_growth_steps=2),
}


@pytest.mark.parametrize("kind", MAKE)
def test_training_is_that_of_one_process(hvd: ModuleType, kind: str) -> None:
    # What an optimizer makes of reduced gradients does not depend on the number of ranks; XLA takes seconds for each.
    if hvd.size() == 2 or kind in ("momentum", "accumulation"):
        train(hvd, MAKE[kind])


def test_a_smaller_last_batch_on_one_rank_renames_nothing(hvd: ModuleType) -> None:
    model = model_of()
    model.compile(hvd.DistributedOptimizer(sgd()), loss="mse")
    count = 13 if hvd.rank() == 0 else 16  # Four batches each.
    inputs, targets = (one[:count] for one in data_of())
    model.fit(inputs, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
    same_on_all_ranks(hvd, model)


def test_ranks_of_a_process_set_train_by_themselves(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        return
    sets = [hvd.add_process_set([0]), hvd.add_process_set(range(1, hvd.size()))]
    mine = sets[min(hvd.rank(), 1)]
    model = model_of()
    model.compile(hvd.DistributedOptimizer(sgd(), process_set=mine), loss="mse")
    fit(hvd, model)
    everybody = hvd.allgather_object([one.tobytes() for one in values(model.weights)], name="sets")
    assert everybody[1] == everybody[2] != everybody[0]
    for one in sets:
        hvd.remove_process_set(one)


def test_ranks_outside_of_a_process_set_train_alone(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        return
    some = hvd.add_process_set([0, 1])
    shared, local = keras.Variable([0.0], name="shared"), keras.Variable([0.0], name="local")
    mine = 1.0 + hvd.rank()
    for passes in (1, 2):
        optimizer = hvd.PartialDistributedOptimizer(
            sgd(1.0), process_set=some, op=hvd.Sum, backward_passes_per_step=passes
        )
        optimizer.register_local_var(local)
        before = [one.item() for one in values([shared, local])]
        for _ in range(passes):
            gradient = keras.ops.convert_to_tensor(np.array([mine], "float32"))
            optimizer.apply([gradient, gradient + 0.0], [shared, local])
        steps = [one.item() - old for one, old in zip(values([shared, local]), before, strict=True)]
        assert steps == ([-3.0 * passes, -mine * passes / 2] if some.included() else [-mine * passes] * 2)
    hvd.remove_process_set(some)


def test_local_variables_are_not_reduced(hvd: ModuleType) -> None:
    shared, local = keras.Variable([0.0], name="shared"), keras.Variable([0.0], name="local")
    optimizer = hvd.DistributedOptimizer(sgd(1.0), scale_local_gradients=False)
    optimizer.register_local_var(local)
    gradient = keras.ops.convert_to_tensor(np.array([1.0 + hvd.rank()], "float32"))
    optimizer.apply([gradient, gradient + 0.0], [shared, local])
    assert values([local])[0].item() == -1.0 - hvd.rank()
    assert values([shared])[0].item() == pytest.approx(-1.0 - (hvd.size() - 1) / 2)
