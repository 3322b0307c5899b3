"""Sums of sparse tensors: the entries of all ranks, put together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from horo.torch.c10d.work import Work


def allreduce(group: Any, tensors: list[torch.Tensor], opts: Any) -> Work:
    """Waits for the other ranks: how many entries there are has to be known first."""
    if opts.reduceOp != dist.ReduceOp.SUM:
        raise RuntimeError("allreduce of sparse tensors takes ReduceOp.SUM only")
    for tensor in tensors:
        if tensor.layout is not torch.sparse_coo or not tensor.is_cpu:
            raise RuntimeError(f"allreduce takes sparse COO tensors on the CPU, not {tensor.layout} on {tensor.device}")
        _reduce(group, tensor)
    return Work([], tensors)


def _reduce(group: Any, tensor: torch.Tensor) -> None:
    mine = tensor.detach().coalesce()
    shape = list(mine.shape)
    about = torch.tensor([mine._nnz(), mine.sparse_dim(), mine.dense_dim(), *shape], dtype=torch.int64)
    told = torch.empty(group._size, about.numel(), dtype=torch.int64)
    group.all_gather_single(told, about).wait()
    for rank, theirs in enumerate(told[:, 1:].tolist()):
        if theirs != about[1:].tolist():
            raise RuntimeError(
                f"allreduce of sparse tensors: rank {rank} has another shape, {theirs[2:]} and not {shape}"
            )
    counts = told[:, 0].tolist()
    values, indices = mine.values(), mine.indices().t().contiguous()
    all_values = [torch.empty(count, *values.shape[1:], dtype=values.dtype) for count in counts]
    all_indices = [torch.empty(count, indices.shape[1], dtype=torch.int64) for count in counts]
    group.allgather([all_indices], [indices]).wait()
    group.allgather([all_values], [values.contiguous()]).wait()
    result = torch.sparse_coo_tensor(
        torch.cat(all_indices).t(), torch.cat(all_values), shape, check_invariants=False
    ).coalesce()
    with torch.no_grad():  # A detached one would not see how many entries there are now.
        tensor.copy_(result)
