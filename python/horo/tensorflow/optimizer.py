"""Optimizers that apply the gradients of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horo.collectives import Average
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.aggregation import LocalGradientAggregationHelper
from horo.tensorflow.compression import Compression
from horo.tensorflow.gradients import Reduction


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """Around an optimizer of tf.compat.v1: compute_gradients() reduces."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, reduction: Reduction, passes: int, average: bool
    ) -> None:
        super().__init__(use_locking, name or f"Distributed{type(optimizer).__name__}")
        self._optimizer = optimizer
        self._aggregation = LocalGradientAggregationHelper(passes, reduction.reduce, reduction.sparse_as_dense, average)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        reduced = self._aggregation.compute_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._aggregation.apply_gradients(lambda: self._optimizer.apply_gradients(*args, **kwargs))

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        return self._optimizer.variables()


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer, but it applies the gradients of all ranks. For optimizers of Keras, and of tf.compat.v1.

    Gradients of `backward_passes_per_step` passes add up before they are reduced; with `average_aggregated_gradients`
    they are divided by that number. Groups are as of DistributedGradientTape().
    """
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("this optimizer is distributed already: its gradients would be reduced twice")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        reduction = Reduction(
            compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set
        ).checked()
        return _DistributedOptimizer(
            optimizer, name, use_locking, reduction, backward_passes_per_step, average_aggregated_gradients
        )
    if not hasattr(optimizer, "apply_gradients"):
        raise ValueError(
            f"DistributedOptimizer wraps optimizers of Keras or of tf.compat.v1.train, not {type(optimizer).__name__}"
        )
    from horo.tensorflow import keras

    return keras.DistributedOptimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
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
