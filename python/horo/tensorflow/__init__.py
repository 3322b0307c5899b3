"""Horovod's interface for TensorFlow, on horo: `import horo.tensorflow as hvd`."""

from __future__ import annotations

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

import horo.tensorflow.derivatives  # noqa: F401
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horo.launch import run
from horo.process_sets import ProcessSet
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
from horo.tensorflow.reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter

__all__ = [
    *_operations,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ProcessSet",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
    "run",
]
