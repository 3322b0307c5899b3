"""Horovod's interface for Keras 3, on horo: `import horo.keras as hvd`. Works on its back ends TensorFlow, JAX and
torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import keras as _keras
except ModuleNotFoundError as error:
    if error.name != "keras":
        raise
    raise ModuleNotFoundError(
        "horo.keras needs Keras 3, which is not installed here: pip install keras, and one of its back ends "
        "(tensorflow-cpu, jax or torch)",
        name="keras",
    ) from None

from horo.exceptions import HorovodVersionMismatchError

if int(_keras.__version__.partition(".")[0]) < 3:
    raise HorovodVersionMismatchError("Keras", "3", _keras.__version__)

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
from horo.collectives import Adasum, Average, Max, Min, Product, Sum
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horo.keras import callbacks, elastic
from horo.keras.compression import Compression
from horo.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from horo.keras.optimizer import wrap as _wrap
from horo.keras.variables import broadcast_variables
from horo.launch import run
from horo.objects import allgather_object, broadcast_object
from horo.observe import start_timeline, stop_timeline
from horo.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A copy of an optimizer, with its state, that steps with the gradients of all ranks, averaged.

    Gradients are reduced before the optimizer clips, scales, averages or checks them. With the dtype policy
    "mixed_float16" it scales the loss, as compile() would see to. Files of models hold a plain optimizer, and load
    without horo; load_model() wraps it again.

    :param name: of the optimizer; that of the original without it.
    :param device_dense, device_sparse: accepted; operations run on the host.
    :param compression: how gradients travel, such as `Compression.fp16`.
    :param sparse_as_dense: sparse gradients are made dense before they are reduced.
    :param gradient_predivide_factor: gradients are divided by it before and multiplied after the sum; with Average.
    :param op: `Average` or `Sum`.
    :param num_groups: the older name of an integer `groups`.
    :param groups: how many groups of gradients are reduced together, or the groups themselves, as lists of variables.
    :param backward_passes_per_step: a step is made, and gradients are reduced, after so many batches: Keras's
        gradient_accumulation_steps.
    :param average_aggregated_gradients: gradients of these batches are averaged; else they are added up.
    :param process_set: the ranks that reduce together.
    :param scale_local_gradients: gradients that stay on their rank (`register_local_var()`) are divided by size().
    """
    return _wrap(
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


def PartialDistributedOptimizer(
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
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A DistributedOptimizer for models of which some layers belong to this rank alone.

    :param local_layers: a layer or several whose gradients are not reduced. Give their variables to
        BroadcastGlobalVariablesCallback as `local_variables`.
    """
    if local_layers is None:
        local_layers = []
    elif isinstance(local_layers, _keras.layers.Layer):
        local_layers = [local_layers]
    return _wrap(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        local_layers=local_layers,
        scale_local_gradients=scale_local_gradients,
    )


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "run",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
