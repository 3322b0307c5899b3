"""Operations on values, and the names that scripts use."""

from __future__ import annotations

import inspect
from types import ModuleType

import keras
import numpy as np
import pytest
from training import BACKEND


def test_values_are_numbers_arrays_and_tensors(hvd: ModuleType) -> None:
    rank, size = hvd.rank(), hvd.size()
    mean = (size - 1) / 2
    assert hvd.allreduce(float(rank)) == pytest.approx(mean)
    assert hvd.allreduce(float(rank), name="sum", op=hvd.Sum) == size * mean
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(float(rank), average=False) == size * mean
    tensor = keras.ops.convert_to_tensor(np.array([rank, 1.0], "float32"))
    np.testing.assert_allclose(hvd.allreduce(tensor, compression=hvd.Compression.fp16), [mean, 1.0])
    np.testing.assert_array_equal(hvd.allgather(np.array([[rank]]), name="rows"), np.arange(size)[:, None])
    np.testing.assert_array_equal(hvd.broadcast(tensor, size - 1), [size - 1, 1.0])
    rows = np.arange(2.0 * size)
    np.testing.assert_allclose(hvd.reducescatter(rows, op=hvd.Sum), rows[2 * rank : 2 * rank + 2] * size)


OPTIMIZER = "optimizer, name=None, device_dense='', device_sparse='', compression=none, sparse_as_dense=False, "
VALUE = "value, name=None"
SIGNATURES = {
    "allreduce": f"{VALUE}, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=none",
    "allgather": VALUE,
    "broadcast": "value, root_rank, name=None",
    "reducescatter": f"{VALUE}, op=0",
    "broadcast_global_variables": "root_rank",
    "load_model": "filepath, custom_optimizers=None, custom_objects=None, compression=none, legacy_opts=False",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "callbacks.MetricAverageCallback": "device=''",
    "callbacks.LearningRateScheduleCallback": "initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, "
    "momentum_correction=True, steps_per_epoch=None",
    "callbacks.LearningRateWarmupCallback": "initial_lr, warmup_epochs=5, momentum_correction=True, "
    "steps_per_epoch=None, verbose=0",
    "elastic.KerasState": "model, optimizer=None, kwargs",
    "elastic.CommitStateCallback": "state, batches_per_commit=1",
    "elastic.UpdateBatchStateCallback": "state",
    "elastic.UpdateEpochStateCallback": "state",
    "elastic.run": "func",
}
OF_KERAS = {
    "DistributedOptimizer": f"{OPTIMIZER}gradient_predivide_factor=1.0, op=0, num_groups=0, groups=None",
    "PartialDistributedOptimizer": f"{OPTIMIZER}gradient_predivide_factor=1.0, op=0, backward_passes_per_step=1, "
    "average_aggregated_gradients=False, groups=None, process_set=global, local_layers=None, "
    "scale_local_gradients=True",
}
OF_TENSORFLOW = {
    "DistributedOptimizer": f"{OPTIMIZER}gradient_predivide_factor=1.0, op=0, backward_passes_per_step=1, "
    "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global, scale_local_gradients=True",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', "
    "save_freq='epoch'",
}


def words(value: object, module: ModuleType) -> str:
    if value is module.global_process_set:
        return "global"
    return "none" if value is module.Compression.none else repr(value)


def check(module: ModuleType, expected: dict[str, str]) -> None:
    for name, wanted in expected.items():
        found: object = module
        for part in name.split("."):
            found = getattr(found, part)
        parameters = [
            one.name if one.default is one.empty else f"{one.name}={words(one.default, module)}"
            for one in inspect.signature(found).parameters.values()
        ]
        count = len(wanted.split(", "))
        assert ", ".join(parameters[:count]) == wanted, name


def test_the_interface_is_horovods(hvd: ModuleType) -> None:
    import horovod.keras
    import horovod.keras.callbacks
    import horovod.keras.elastic

    check(horovod.keras, SIGNATURES | OF_KERAS)
    assert horovod.keras.DistributedOptimizer is hvd.DistributedOptimizer
    assert horovod.keras.callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
    assert horovod.keras.elastic.KerasState is hvd.elastic.KerasState
    basics = ["init", "shutdown", "rank", "size", "local_rank", "local_size", "nccl_built", "start_timeline", "Adasum"]
    assert all(hasattr(horovod.keras, name) for name in basics)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow")
def test_the_interface_for_tensorflow_is_horovods(hvd: ModuleType) -> None:
    import horovod.tensorflow.keras as names
    from horovod.tensorflow.keras import callbacks, elastic

    check(names, SIGNATURES | OF_TENSORFLOW)
    assert elastic.KerasState is hvd.elastic.KerasState
    assert callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
    assert names.callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
    assert names.ProcessSet is hvd.ProcessSet
    assert isinstance(names.DistributedOptimizer(keras.optimizers.SGD()), keras.optimizers.SGD)
