"""The operations, on tensors of torch.

Every operation has a form that waits and one that returns a handle (``_async``) for poll() and synchronize(); a
trailing underscore works in place. Gradients flow through the forms that wait and return a new tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from horo import operations
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
from horo.exceptions import HorovodInternalError
from horo.handles import Handle
from horo.observe import start_timeline, stop_timeline
from horo.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horo.torch.autograd import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from horo.torch.compiling import uncompiled
from horo.torch.compression import Compression
from horo.torch.tensors import completion_stream, later, now
from horo.world import world

allreduce_ = uncompiled(now.allreduce_, "allreduce_")
allreduce_async = uncompiled(later.allreduce, "allreduce_async")
allreduce_async_ = uncompiled(later.allreduce_, "allreduce_async_")
grouped_allreduce_ = uncompiled(now.grouped_allreduce_, "grouped_allreduce_")
grouped_allreduce_async = uncompiled(later.grouped_allreduce, "grouped_allreduce_async")
grouped_allreduce_async_ = uncompiled(later.grouped_allreduce_, "grouped_allreduce_async_")
allgather_async = uncompiled(later.allgather, "allgather_async")
grouped_allgather_async = uncompiled(later.grouped_allgather, "grouped_allgather_async")
broadcast_ = uncompiled(now.broadcast_, "broadcast_")
broadcast_async = uncompiled(later.broadcast, "broadcast_async")
broadcast_async_ = uncompiled(later.broadcast_, "broadcast_async_")
alltoall_async = uncompiled(later.alltoall, "alltoall_async")
reducescatter_async = uncompiled(later.reducescatter, "reducescatter_async")
grouped_reducescatter_async = uncompiled(later.grouped_reducescatter, "grouped_reducescatter_async")
barrier = uncompiled(operations.barrier)
join = uncompiled(operations.join)


def _check_has_gpu() -> bool:
    return torch.cuda.is_available()


def _flows(tensor: Any) -> bool:
    """Whether a gradient comes back."""
    return torch.is_grad_enabled() and isinstance(tensor, torch.Tensor) and tensor.requires_grad


@uncompiled
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Elements of all ranks become one; the average without `op`."""
    sent, context = compression.compress(tensor)
    operation = HorovodAllreduce.apply if _flows(sent) else now.allreduce
    reduced = operation(sent, average, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, context)


@uncompiled
def grouped_allreduce(
    tensors: Iterable[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Several tensors that become ready together."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    sent = [tensor for tensor, _ in pairs]
    reduced = HorovodGroupedAllreduce.apply(average, name, op, prescale_factor, postscale_factor, process_set, *sent)
    return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]


@uncompiled
def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Sums or averages sparse tensors (COO). Returns a function that waits and gives the result."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError("sparse_allreduce_async takes a sparse tensor (torch.sparse_coo)")
    if op not in (Average, Sum):
        raise ValueError("a sparse allreduce has Average and Sum only")
    base = world.name("sparse_allreduce", name, process_set.number())
    entries = tensor.detach().coalesce()
    members = process_set.size() if op == Average else 1
    indices = allgather_async(entries.indices().t().contiguous(), f"{base}.indices", process_set)
    values = allgather_async(entries.values(), f"{base}.values", process_set)

    def wait() -> torch.Tensor:
        where, what = indices.wait().t(), values.wait()
        total = torch.sparse_coo_tensor(where, what, tensor.shape, check_invariants=False).coalesce()
        if members == 1:
            return total
        exact = what.dtype.is_floating_point or what.dtype.is_complex
        mean = torch.div(total.values(), members, rounding_mode=None if exact else "trunc")
        return torch.sparse_coo_tensor(total.indices(), mean, tensor.shape, is_coalesced=True, check_invariants=False)

    return wait


@uncompiled
def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The rows of all ranks, one below the other; ranks may have different numbers of rows."""
    return HorovodAllgather.apply(tensor, name, process_set)


@uncompiled
def grouped_allgather(
    tensors: Iterable[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))


@uncompiled
def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The tensor of `root_rank`, a rank of the job."""
    return HorovodBroadcast.apply(tensor, root_rank, name, process_set)


@uncompiled
def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends `splits[i]` rows to the i-th rank, equal shares without it. (output, received_splits) with `splits`."""
    output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


@uncompiled
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's share of the rows of an allreduce; the first ranks get the rows that are left over."""
    sent, context = compression.compress(tensor)
    reduced = HorovodReducescatter.apply(sent, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


@uncompiled
def grouped_reducescatter(
    tensors: Iterable[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    sent = [tensor for tensor, _ in pairs]
    reduced = HorovodGroupedReducescatter.apply(name, op, process_set, prescale_factor, postscale_factor, *sent)
    return [compression.decompress(one, context) for one, (_, context) in zip(reduced, pairs, strict=True)]


@uncompiled
def poll(handle: Any) -> bool:
    """Whether an operation is done: synchronize() returns at once then."""
    if not isinstance(handle, Handle):
        raise ValueError(f"poll takes what an _async function returned, not {handle!r}")
    return handle.done()


@uncompiled
def synchronize(handle: Any) -> Any:
    """Waits for an operation and returns its result; None for what is no handle. Raises HorovodInternalError when it
    failed. A handle is synchronised once. With HORO_ASYNC_COMPLETION=1, of CUDA tensors, it is the current stream that
    waits for the result: see docs/gpu.md."""
    if not isinstance(handle, Handle):
        return None
    if handle.taken:
        raise ValueError(
            "this handle was synchronised before; keep what synchronize() returned, or hand the tensor in again"
        )
    return handle.wait() if handle.device < 0 else handle.wait(completion_stream(handle.device))


__all__ = [
    "Adasum",
    "Average",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodInternalError",
    "HorovodReducescatter",
    "Max",
    "Min",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
