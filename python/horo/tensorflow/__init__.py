"""Horovod's interface for TensorFlow, on horo: `import horo.tensorflow as hvd`."""

from __future__ import annotations

import importlib

try:
    import tensorflow as _tensorflow  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ModuleNotFoundError(
        "horo.tensorflow needs TensorFlow, which is not installed here: pip install tensorflow-cpu (or tensorflow, "
        "where that has no wheel)",
        name="tensorflow",
    ) from None

import horo.tensorflow.derivatives  # noqa: F401  The gradients of operations are known from here on.
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horo.launch import run
from horo.process_sets import ProcessSet
from horo.tensorflow import elastic
from horo.tensorflow.aggregation import LocalGradientAggregationHelper
from horo.tensorflow.compression import Compression
from horo.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horo.tensorflow.mpi_ops import *  # noqa: F403
from horo.tensorflow.mpi_ops import __all__ as _operations
from horo.tensorflow.optimizer import DistributedOptimizer
from horo.tensorflow.reductions import allreduce, dense, grouped_allreduce, grouped_reducescatter, reducescatter
from horo.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horo.tensorflow.util import _executing_eagerly, gpu_available

# Imported by who uses them, and not with *: Keras takes a while.
_LATER = {"SyncBatchNormalization": "horo.tensorflow.sync_batch_norm"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value


__all__ = [  # noqa: PLE0604  Of strings, all of them.
    *_operations,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "_executing_eagerly",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "dense",
    "elastic",
    "gpu_available",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
    "run",
]
