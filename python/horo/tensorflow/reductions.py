"""Reductions with what surrounds them: compression, and gradients of embeddings (IndexedSlices)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horo.collectives import Average, Sum, reduction
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.compression import Compression
from horo.tensorflow.graph import unconverted
from horo.tensorflow.mpi_ops import grouped_allgather, reduce_tensors, size_op


def divided(values: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    """By the number of ranks. In a graph that is their number when it runs: some may be lost after it was traced."""
    members = process_set.size() if tf.executing_eagerly() else size_op(process_set.process_set_id)
    divisor = tf.cast(members, values.dtype)
    # Integers are cut off, as everywhere.
    return tf.math.truncatediv(values, divisor) if values.dtype.is_integer else values / divisor


def dense(tensor: Any) -> Any:
    """IndexedSlices as a tensor; others as they are."""
    return tf.convert_to_tensor(tensor) if isinstance(tensor, tf.IndexedSlices) else tensor


def allreduce_slices(
    slices: tf.IndexedSlices,
    name: str | None,
    number: int,
    process_set: ProcessSet,
    compression: Any = Compression.none,
) -> tf.IndexedSlices:
    """Rows of all ranks one below the other, in one operation; an index may come several times, its rows add up."""
    if number not in (reduction(None, Average), reduction(None, Sum)):
        raise NotImplementedError("a sparse allreduce has Average and Sum only; sparse_as_dense=True makes it dense")
    sent, context = compression.compress(slices.values)
    values, indices = grouped_allgather([sent, slices.indices], name, process_set=process_set)
    values = compression.decompress(values, context)
    if number == reduction(None, Average):
        values = divided(values, process_set)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _check_sparse(prescale_factor: float, postscale_factor: float) -> None:
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("prescale_factor and postscale_factor are for dense tensors only")


@unconverted
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Elements of all ranks become one; the average without `op`. IndexedSlices stay such.

    `device_dense`, `device_sparse` and `ignore_name_scope` are accepted and not needed.
    """
    number = reduction(average, op)
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(prescale_factor, postscale_factor)
        return allreduce_slices(tensor, name, number, process_set, compression)
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    factors = (prescale_factor, postscale_factor)
    reduced = reduce_tensors("allreduce", [sent], name, number, *factors, process_set, False)[0]
    return compression.decompress(reduced, context)


@unconverted
def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Several tensors that become ready together; IndexedSlices among them are operations of their own."""
    number = reduction(average, op)
    given = list(tensors)
    if not given:
        return given
    done: list[Any] = list(given)
    dense = [index for index, one in enumerate(given) if not isinstance(one, tf.IndexedSlices)]
    for index, one in enumerate(given):
        if isinstance(one, tf.IndexedSlices):
            _check_sparse(prescale_factor, postscale_factor)
            own = None if name is None else f"{name}.{index}"
            done[index] = allreduce_slices(one, own, number, process_set, compression)
    if dense:
        pairs = [compression.compress(tf.convert_to_tensor(given[index])) for index in dense]
        sent = [tensor for tensor, _ in pairs]
        factors = (prescale_factor, postscale_factor)
        reduced = reduce_tensors("allreduce", sent, name, number, *factors, process_set, True)
        for index, one, (_, context) in zip(dense, reduced, pairs, strict=True):
            done[index] = compression.decompress(one, context)
    return done


@unconverted
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's share of the rows of an allreduce; the first ranks get the rows that are left over."""
    number = reduction(None, op)
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    factors = (prescale_factor, postscale_factor)
    reduced = reduce_tensors("reducescatter", [sent], name, number, *factors, process_set, False)[0]
    return compression.decompress(reduced, context)


@unconverted
def grouped_reducescatter(
    tensors: Iterable[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    number = reduction(None, op)
    pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    if not pairs:
        return []
    sent = [tensor for tensor, _ in pairs]
    factors = (prescale_factor, postscale_factor)
    reduced = reduce_tensors("reducescatter", sent, None, number, *factors, process_set, True)
    return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]
