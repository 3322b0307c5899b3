"""Horovod's interface for Keras in TensorFlow, on horo: `import horo.tensorflow.keras as hvd`. It is horo.keras, with
DistributedOptimizer's arguments in the order that scripts for TensorFlow have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horo import keras as _keras
from horo.keras import *  # noqa: F403
from horo.keras import Average, Compression, ProcessSet, global_process_set


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    return _keras.DistributedOptimizer(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


DistributedOptimizer.__doc__ = _keras.DistributedOptimizer.__doc__

__all__ = [*_keras.__all__]  # noqa: PLE0604  Of strings, all of them.
