"""Gradients of the operations. They are operations too, of all ranks."""

from __future__ import annotations

import struct
from typing import Any

import tensorflow as tf

from horo import _horo
from horo.tensorflow.graph import identity_of_gradient, token
from horo.tensorflow.library import ops
from horo.world import world

_SUM = _horo.REDUCTIONS["sum"]
_AVERAGE = _horo.REDUCTIONS["average"]
_NO_FACTOR = 0x3FF0000000000000  # The bits of 1.0.


def _common(op: Any) -> dict[str, Any]:
    return {**{key: op.get_attr(key) for key in ("grouped", "process_set_id")}, **identity_of_gradient(op)}


def _members(op: Any) -> list[int]:
    return world.runtime.set_ranks(op.get_attr("process_set_id"))


def _averages(op: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    bits = {"prescale_bits": _NO_FACTOR, "postscale_bits": _NO_FACTOR}
    return ops().horo_allreduce(tensors=gradients, reduction=_AVERAGE, **bits, **_common(op))


@tf.RegisterGradient("HoroAllreduce")
def _allreduce(op: Any, *gradients: tf.Tensor) -> list[Any]:
    same = {key: op.get_attr(key) for key in ("reduction", "prescale_bits", "postscale_bits")}
    return [*ops().horo_allreduce(tensors=list(gradients), **same, **_common(op)), None]


@tf.RegisterGradient("HoroBroadcast")
def _broadcast(op: Any, *gradients: tf.Tensor) -> list[Any]:
    averages = _averages(op, list(gradients))
    if world.runtime.rank() != op.get_attr("root_rank"):
        # Who optimises a graph knows what times 0 is, leaves the operation out, and all other ranks wait for this one.
        never = token()[0] < 0
        averages = [tf.where(never, one, tf.zeros_like(one)) for one in averages]
    return [*averages, None]


@tf.RegisterGradient("HoroAllgather")
def _allgather(op: Any, *gradients: tf.Tensor) -> list[Any]:
    rows = op.outputs[-1]
    mine = _members(op).index(world.runtime.rank())
    averages = _averages(op, list(gradients[:-1]))
    own = []
    for index, one in enumerate(averages):
        start = tf.reduce_sum(rows[index, :mine])
        part = one[start : start + rows[index, mine]]
        part.set_shape(op.inputs[index].shape)
        own.append(part)
    return [*own, None]


@tf.RegisterGradient("HoroAlltoall")
def _alltoall(op: Any, *gradients: tf.Tensor) -> list[Any]:
    back = ops().horo_alltoall(tensors=list(gradients[:-1]), splits=op.outputs[-1][0], **_common(op)).received
    for one, given in zip(back, op.inputs, strict=False):
        one.set_shape(given.shape)
    return [*back, None, None]


@tf.RegisterGradient("HoroReducescatter")
def _reducescatter(op: Any, *gradients: tf.Tensor) -> list[Any]:
    bits = [op.get_attr(key) for key in ("prescale_bits", "postscale_bits")]
    before, after = struct.unpack("<dd", struct.pack("<qq", *bits))
    factor = before * after * (len(_members(op)) if op.get_attr("reduction") == _SUM else 1)
    scaled = [one if factor == 1 else one * tf.cast(factor, one.dtype) for one in gradients]
    gathered = ops().horo_allgather(tensors=scaled, **_common(op)).gathered
    for one, given in zip(gathered, op.inputs, strict=False):
        one.set_shape(given.shape)
    return [*gathered, None]
