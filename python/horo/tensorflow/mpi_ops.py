"""The operations, on tensors of TensorFlow, in graphs and outside. Gradients flow through them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horo import _horo, operations
from horo.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)
from horo.collectives import Adasum, Average, Max, Min, Product, Sum, reduction
from horo.observe import start_timeline, stop_timeline
from horo.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horo.tensorflow.errors import horo_errors
from horo.tensorflow.graph import identity, unconverted
from horo.tensorflow.library import ops
from horo.world import world


def _bits(factor: float) -> int:
    """A double as the integer with the same bits: attributes of kind float have 32 of them only."""
    return struct.unpack("<q", struct.pack("<d", factor))[0]


def _tensors(given: Iterable[Any], kind: str) -> list[tf.Tensor]:
    tensors = [tf.convert_to_tensor(one) for one in given]
    if not tensors:
        raise ValueError(f"grouped_{kind} of no tensors")
    return tensors


def _run(
    kind: str, tensors: Sequence[tf.Tensor], name: str | None, process_set: ProcessSet, grouped: bool, **special: Any
) -> Any:
    """One operation of the graph, or of now."""
    for one in tensors:
        if one.dtype.name not in _horo.DTYPES:
            raise ValueError(f"Tensor type {one.dtype.name} is not supported.")
    if tf.executing_eagerly():
        world.runtime  # noqa: B018  Without init() that is what is wrong.
    number = process_set.number()
    family = f"grouped_{kind}" if grouped else kind
    known = identity(family, name, number)
    try:
        with horo_errors():
            return getattr(ops(), f"horo_{kind}")(
                tensors=tensors,
                grouped=grouped,
                process_set_id=number,
                name=re.sub(r"\W", "_", f"horo_{known['tensor_name']}", flags=re.ASCII),
                **known,
                **special,
            )
    except ValueError:
        if tf.executing_eagerly():
            world.take_back(known["tensor_name"], family, number)
        raise


def reduce_tensors(
    kind: str,
    tensors: Sequence[tf.Tensor],
    name: str | None,
    number: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    grouped: bool,
) -> list[tf.Tensor]:
    """An allreduce or reducescatter; `number` is the library's of the reduction."""
    bits = {"prescale_bits": _bits(prescale_factor), "postscale_bits": _bits(postscale_factor)}
    return _run(kind, tensors, name, process_set, grouped, reduction=number, **bits)


@unconverted
def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    tensors = [tf.convert_to_tensor(tensor)]
    factors = (prescale_factor, postscale_factor)
    return reduce_tensors("allreduce", tensors, name, reduction(None, op), *factors, process_set, False)[0]


@unconverted
def _grouped_allreduce(
    tensors: Iterable[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    factors = (prescale_factor, postscale_factor)
    number = reduction(None, op)
    return reduce_tensors("allreduce", _tensors(tensors, "allreduce"), name, number, *factors, process_set, True)


@unconverted
def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    tensors = [tf.convert_to_tensor(tensor)]
    factors = (prescale_factor, postscale_factor)
    return reduce_tensors("reducescatter", tensors, name, reduction(None, op), *factors, process_set, False)[0]


@unconverted
def _grouped_reducescatter(
    tensors: Iterable[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    given = _tensors(tensors, "reducescatter")
    factors = (prescale_factor, postscale_factor)
    return reduce_tensors("reducescatter", given, name, reduction(None, op), *factors, process_set, True)


@unconverted
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The rows of all ranks, one below the other; ranks may have different numbers of rows."""
    return _run("allgather", [tf.convert_to_tensor(tensor)], name, process_set, False).gathered[0]


@unconverted
def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    return list(_run("allgather", _tensors(tensors, "allgather"), name, process_set, True).gathered)


@unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The tensor of `root_rank`, a rank of the job."""
    return _run("broadcast", [tf.convert_to_tensor(tensor)], name, process_set, False, root_rank=root_rank)[0]


@unconverted
def grouped_broadcast(
    tensors: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Several tensors of `root_rank` in one operation."""
    return _run("broadcast", _tensors(tensors, "broadcast"), name, process_set, True, root_rank=root_rank)


@unconverted
def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives variables the values that they have on `root_rank`. Returns them."""
    given = list(variables)
    received = grouped_broadcast(given, root_rank, name, process_set)
    for variable, value in zip(given, received, strict=True):
        variable.assign(value)
    return given


@unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends `splits[i]` rows to the i-th rank, equal shares without it. (output, received_splits) with `splits`."""
    kind = tf.int32
    if splits is not None:
        splits = tf.convert_to_tensor(splits)
        kind = splits.dtype
    rows = tf.zeros([0], tf.int64) if splits is None else tf.cast(splits, tf.int64)
    done = _run("alltoall", [tf.convert_to_tensor(tensor)], name, process_set, False, splits=rows)
    return done.received[0] if splits is None else (done.received[0], tf.cast(done.rows[0], kind))


@unconverted
def join() -> tf.Tensor:
    """This rank has no more data: it takes part in the reductions of the others with data that changes nothing, until
    all ranks have joined. Gives the last rank that did."""
    if tf.executing_eagerly():
        return tf.constant(operations.join(), tf.int32)
    return ops().horo_join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks of the set are here. At once: not an operation of a graph."""
    operations.barrier(process_set)


@unconverted
def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks when it runs, not when it is traced."""
    with horo_errors():
        return ops().horo_size(process_set_id=process_set_id, name=name)


@unconverted
def rank_op(name: str | None = None) -> tf.Tensor:
    with horo_errors():
        return ops().horo_rank(name=name)


@unconverted
def local_size_op(name: str | None = None) -> tf.Tensor:
    with horo_errors():
        return ops().horo_local_size(name=name)


@unconverted
def local_rank_op(name: str | None = None) -> tf.Tensor:
    with horo_errors():
        return ops().horo_local_rank(name=name)


@unconverted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 if this rank is in the set, else 0."""
    with horo_errors():
        return ops().horo_process_set_included(process_set_id=process_set_id, name=name)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_broadcast",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
