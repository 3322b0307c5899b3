"""Sparse gradients: rows are gathered, not added up densely."""

from __future__ import annotations

import torch

from horo.torch.parallel.members import Members


def gradient_of(param: torch.Tensor) -> torch.Tensor:
    """The gradient as a sparse tensor, an empty one where there is none."""
    gradient = param.grad
    if gradient is None:
        return torch.sparse_coo_tensor(size=param.shape, dtype=param.dtype)
    return gradient.detach() if gradient.is_sparse else gradient.detach().to_sparse(1)


def average(param: torch.Tensor, members: Members, divisor: float) -> None:
    """Gives a parameter the average of all members' gradients. Who has none adds nothing; if nobody has one, it keeps
    what it has."""
    gradient = param.grad
    mine = None
    if gradient is not None:
        mine = (gradient.detach() if gradient.is_sparse else gradient.detach().to_sparse(1)).coalesce()
    facts = [-1, 0, 0] if mine is None else [mine._nnz(), mine.sparse_dim(), int(gradient.is_sparse)]
    everybody = members.exchange_numbers(facts)
    having = [one for one in everybody if one[0] >= 0]
    if not having:
        return
    dims = having[0][1]
    rows = [max(one[0], 0) for one in everybody]
    if mine is None:
        indices = torch.empty((0, dims), dtype=torch.int64)
        values = torch.empty((0, *param.shape[dims:]), dtype=param.dtype)
    else:
        indices, values = mine.indices().t(), mine.values()
    where = members.gather(indices, rows).t()
    what = members.gather(values, rows)
    mean = what / (divisor or members.size)
    total = torch.sparse_coo_tensor(where, mean, param.shape, check_invariants=False).coalesce()
    param.grad = total if any(one[2] for one in having) else total.to_dense()
