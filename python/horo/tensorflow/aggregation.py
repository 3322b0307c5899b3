"""Gradients of several backward passes that become one reduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horo.tensorflow.graph import unconverted
from horo.tensorflow.reductions import dense


class LocalGradientAggregationHelper:
    """Adds up gradients here, and has them reduced at every `backward_passes_per_step`-th pass.

    Works in a tf.function and outside. `allreduce_func(gradients, variables)` gives those of all ranks.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self._allreduce = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.counter: tf.Variable | None = None
        self._sums: dict[int, tf.Variable] = {}

    def _prepare(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        with tf.init_scope():
            if self.counter is None:
                self.counter = tf.Variable(0, trainable=False, dtype=tf.int32, name="horo_passes")
            for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
                if gradient is not None and index not in self._sums:
                    zeros = tf.zeros(variable.shape, gradient.dtype)
                    self._sums[index] = tf.Variable(zeros, trainable=False, name=f"horo_sum_{index}")

    @unconverted
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """The reduced sums at the last pass of a step; at others what has come together here."""
        if self.backward_passes_per_step == 1:
            return self._allreduce(grads, vars)
        if any(isinstance(one, tf.IndexedSlices) for one in grads) and not self.sparse_as_dense:
            raise ValueError("sparse gradients of several passes add up with sparse_as_dense=True only")
        self._prepare(grads, vars)
        assert self.counter is not None
        places = [index for index, one in enumerate(grads) if one is not None]
        added = [self._sums[index].assign_add(dense(grads[index])) for index in places]
        passes = self.counter.assign_add(1)
        with tf.control_dependencies([passes]):
            sums = [tf.identity(one) for one in added]
            last = tf.equal(passes, self.backward_passes_per_step)

        def reduced() -> list[tf.Tensor]:
            given: list[Any] = [None] * len(grads)
            for index, one in zip(places, sums, strict=True):
                given[index] = one / self.backward_passes_per_step if self.average_aggregated_gradients else one
            done = self._allreduce(given, vars)
            for index in places:
                self._sums[index].assign(tf.zeros_like(self._sums[index]))
            self.counter.assign(0)
            return [tf.convert_to_tensor(done[index]) for index in places]

        chosen = tf.cond(last, reduced, lambda: [tf.identity(one) for one in sums])
        result: list[Any] = [None] * len(grads)
        for index, one in zip(places, chosen, strict=True):
            result[index] = one
        return result

    @unconverted
    def apply_gradients(self, apply_grads_closure: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        """Calls it where compute_gradients() has just reduced; does nothing else."""
        if self.backward_passes_per_step == 1 or self.counter is None:
            return apply_grads_closure()
        if tf.executing_eagerly():
            return apply_grads_closure() if int(self.counter) == 0 else None

        def apply() -> tf.Tensor:
            apply_grads_closure()
            return tf.constant(True)

        return tf.cond(tf.equal(self.counter, 0), apply, lambda: tf.constant(False))
