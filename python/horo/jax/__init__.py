"""horo for JAX: `import horo.jax as hvd`. Operations on arrays, inside and outside of `jax.jit`."""

from __future__ import annotations

try:
    import jax.ffi  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("jax", "jaxlib", "jax.ffi"):
        raise
    raise ModuleNotFoundError(
        "horo.jax needs JAX 0.5 or later, which is not installed here: pip install jax", name=error.name
    ) from None

from horo.basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from horo.collectives import Adasum, Average, Max, Min, Product, Sum
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horo.jax.operations import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_tree,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horo.launch import run
from horo.objects import allgather_object, broadcast_object
from horo.observe import metrics, start_timeline, stop_timeline
from horo.operations import barrier, join
from horo.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_tree",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "metrics",
    "rank",
    "reducescatter",
    "remove_process_set",
    "run",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
