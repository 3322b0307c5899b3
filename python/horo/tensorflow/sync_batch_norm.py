"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horo.collectives import Sum
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.graph import unconverted
from horo.tensorflow.reductions import allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """As Keras' layer, but in training the batch is that of all ranks of `process_set` together, which need not have
    equal shares of it. All of them call it in training. `fused` has to be False."""

    def __init__(self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        if fused:
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not hasattr(tf.keras.layers.BatchNormalization, "_moments"):
            raise ValueError("SyncBatchNormalization needs Keras 3")
        super().__init__(**kwargs)
        self._horo_set = process_set

    def _sum(self, tensor: tf.Tensor, what: str) -> tf.Tensor:
        name = f"sync_batch_norm.{self.path or self.name}.{what}"
        return allreduce(tensor, op=Sum, name=name, process_set=self._horo_set)

    @unconverted
    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        values = tf.cast(inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32)
        weights = tf.ones_like(values[..., :1]) if mask is None else tf.cast(mask, values.dtype)
        weights = tf.broadcast_to(tf.reshape(weights, _padded(weights, values)), tf.shape(values))
        axes = self._reduction_axes
        # Of the values, and of their number: then of their distances from the mean, which squares would cancel.
        sums = tf.stack([tf.reduce_sum(values * weights, axes), tf.reduce_sum(weights, axes)])
        total = self._sum(sums, "mean")
        mean = tf.math.divide_no_nan(total[0], total[1])
        shape = [1] * len(inputs.shape)
        shape[self.axis] = inputs.shape[self.axis]
        distances = tf.reduce_sum(tf.square(values - tf.reshape(mean, shape)) * weights, axes)
        variance = tf.math.divide_no_nan(self._sum(distances, "variance"), total[1])
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)


def _padded(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The shape of a mask with as many dimensions as the values have."""
    missing = len(values.shape) - len(weights.shape)
    return tf.concat([tf.shape(weights), tf.ones([missing], tf.int32)], 0)
