"""Operations on values: numbers, arrays, and tensors of the back end. Results are arrays."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from horo import operations
from horo.collectives import Average
from horo.keras.compression import Compression, NoneCompressor
from horo.keras.optimizer import wrap


def _array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray | list | tuple | int | float | bool | np.generic):
        return np.asarray(value)
    return keras.ops.convert_to_numpy(value)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Elements of all ranks become one; the average without `op`."""
    array, context = _array(value), None
    if compression is not NoneCompressor:
        sent, context = compression.compress(keras.ops.convert_to_tensor(array))
        array = keras.ops.convert_to_numpy(sent)
    reduced = operations.allreduce(array, average, name, op, prescale_factor, postscale_factor)
    if compression is not NoneCompressor:
        reduced = keras.ops.convert_to_numpy(compression.decompress(keras.ops.convert_to_tensor(reduced), context))
    return reduced


def allgather(value: Any, name: str | None = None) -> Any:
    """The rows of all ranks, one below the other; ranks may have different numbers of rows."""
    return operations.allgather(_array(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of `root_rank`."""
    return operations.broadcast(_array(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's share of the rows of an allreduce; the first ranks get the rows that are left over."""
    return operations.reducescatter(_array(value), name, op)


def broadcast_global_variables(root_rank: int) -> None:
    """Raises RuntimeError: there are no global variables since TensorFlow 2."""
    raise RuntimeError(
        "broadcast_global_variables() is for TensorFlow 1; give fit() the callback BroadcastGlobalVariablesCallback"
        f"({root_rank}), or call broadcast_variables(model.variables + optimizer.variables, {root_rank})"
    )


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """keras.models.load_model() of a model that was saved with a DistributedOptimizer or a plain one; its optimizer is
    distributed, and goes on where it was.

    :param custom_optimizers: classes of optimizers that Keras does not know.
    :param custom_objects: as Keras takes them.
    :param legacy_opts: accepted; Keras 3 has no optimizers of Keras 2.
    """
    del legacy_opts
    objects = {one.__name__: one for one in custom_optimizers or []}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = wrap(model.optimizer, compression=compression)
        if str(filepath).endswith((".h5", ".hdf5")) and not model.optimizer.built:
            _load_slots(model, filepath)
    return model


def _load_slots(model: Any, filepath: Any) -> None:
    """What Keras leaves out for models whose variables are their layers': it builds the optimizer for none of them."""
    import h5py

    model.optimizer.build(model.trainable_variables)
    with h5py.File(filepath) as file:
        saved = file.get("optimizer_weights", {})
        for variable in model.optimizer.variables:
            value = saved.get(variable.path)
            if value is not None and value.shape == tuple(variable.shape):
                variable.assign(value[()])
