"""Reductions of all element types by all operations, in all their forms."""

from __future__ import annotations

import functools
import operator
import time
from types import ModuleType

import pytest
import torch
from values import COMPLEX, FLOATS, INTEGERS, averaged, equal, of_rank, of_ranks, summed, wide

EVERY = [*INTEGERS, *FLOATS, torch.bool]


def reduced(dist: ModuleType, op: object, tensors: list[torch.Tensor]) -> torch.Tensor:
    """What one process makes of them."""
    dtype = tensors[0].dtype
    if op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        names = {dist.ReduceOp.BAND: operator.and_, dist.ReduceOp.BOR: operator.or_, dist.ReduceOp.BXOR: operator.xor}
        signed = [one if dtype == torch.bool else one.to(torch.int64) for one in tensors]
        return functools.reduce(names[op], signed).to(dtype)
    stacked = torch.stack([one.to(wide(dtype)) for one in tensors])
    if op == dist.ReduceOp.SUM:
        return summed(tensors)
    if op == dist.ReduceOp.AVG:
        return averaged(tensors)
    if op == dist.ReduceOp.PRODUCT:
        return stacked.prod(0).to(dtype)
    return (stacked.amin(0) if op == dist.ReduceOp.MIN else stacked.amax(0)).to(dtype)


def operations(dist: ModuleType, dtype: torch.dtype) -> list[object]:
    op = dist.ReduceOp
    common = [op.SUM, op.PRODUCT, op.MIN, op.MAX]
    return [*common, op.AVG] if dtype.is_floating_point else [*common, op.BAND, op.BOR, op.BXOR]


def check(got: torch.Tensor, wanted: torch.Tensor) -> None:
    close = {"rtol": 1e-2 if got.dtype in (torch.float16, torch.bfloat16) else 1e-6, "atol": 0}
    if got.dtype.is_floating_point:
        torch.testing.assert_close(got, wanted, **close)
    else:
        assert equal(got, wanted), (got, wanted)


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_every_operation_reduces_every_type(dist: ModuleType, rank: int, size: int, dtype: torch.dtype) -> None:
    for op in operations(dist, dtype):
        everyone = of_ranks(size, (4, 3), dtype, seed=1)
        wanted = reduced(dist, op, everyone)
        mine = everyone[rank].clone()
        dist.all_reduce(mine, op)
        check(mine, wanted)

        mine = everyone[rank].clone()
        work = dist.all_reduce(mine, op, async_op=True)
        assert work.wait()
        check(mine, wanted)

        mine = everyone[rank].clone()
        dist.reduce(mine, size - 1, op)
        check(mine, wanted if rank == size - 1 else everyone[rank])

        parts = [[of_rank(one, (2, 3), dtype, seed=10 + to) for to in range(size)] for one in range(size)]
        part = torch.empty(2, 3, dtype=dtype)
        wanted = reduced(dist, op, [parts[one][rank] for one in range(size)])
        dist.reduce_scatter(part, parts[rank], op)
        check(part, wanted)
        whole = torch.stack(parts[rank]).view(-1, 3)
        part = torch.empty(2, 3, dtype=dtype)
        dist.reduce_scatter_tensor(part, whole, op)
        check(part, wanted)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_complex_numbers_add_up(dist: ModuleType, rank: int, size: int, dtype: torch.dtype) -> None:
    everyone = of_ranks(size, (5,), dtype)
    mine = everyone[rank].clone()
    dist.all_reduce(mine)
    assert equal(mine, summed(everyone))
    mine = everyone[rank].clone()
    dist.group.WORLD.allreduce([mine]).wait()  # Without torch's view of them as pairs.
    assert equal(mine, summed(everyone))
    with pytest.raises((ValueError, RuntimeError), match="MAX"):
        dist.all_reduce(everyone[rank], dist.ReduceOp.MAX)


@pytest.mark.parametrize("factor", [0.25, torch.tensor(2.0)], ids=["number", "tensor"])
def test_the_factor_of_premul_sum_multiplies_before_the_sum(
    dist: ModuleType, rank: int, size: int, factor: float | torch.Tensor
) -> None:
    op = dist._make_nccl_premul_sum(factor)
    everyone = of_ranks(size, (6,), torch.float32)
    mine = everyone[rank].clone()
    dist.all_reduce(mine, op)
    assert equal(mine, summed(everyone) * factor)
    part, whole = torch.empty(2), everyone[rank].repeat(size)[: 2 * size]
    dist.reduce_scatter_tensor(part, whole, op)
    wanted = summed([one.repeat(size)[: 2 * size] for one in everyone]) * factor
    assert equal(part, wanted[2 * rank : 2 * rank + 2])
    with pytest.raises(RuntimeError, match="PREMUL_SUM"):
        dist.all_reduce(torch.ones(2, dtype=torch.int64), op)


def test_whole_numbers_have_no_average_and_floats_no_bits(dist: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="AVG"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        with pytest.raises(RuntimeError, match="Cannot use"):
            dist.all_reduce(torch.ones(3), op)


def test_several_tensors_are_reduced_together(dist: ModuleType, rank: int, size: int) -> None:
    many = [torch.full((index + 1,), float(rank), dtype=torch.float32) for index in range(5)]
    dist.all_reduce_coalesced(many)
    total = sum(range(size))
    assert all((one == total).all() for one in many)
    with dist._coalescing_manager(async_ops=True) as manager:
        for one in many:
            dist.all_reduce(one)
    manager.wait()
    assert all((one == total * size).all() for one in many)
    group = dist.group.WORLD
    group._start_coalescing(torch.device("cpu"))
    group.allreduce([many[0]])
    group.allreduce([many[1]])
    group._end_coalescing(torch.device("cpu")).wait()
    assert (many[1] == total * size * size).all()
    outputs, inputs = [torch.empty(2), torch.empty(3)], [torch.ones(2 * size), torch.ones(3 * size)]
    for name in ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
        getattr(group, name)(outputs, inputs).wait()
        assert all((one == size).all() for one in outputs)


@pytest.mark.parametrize("sparse_dim", [1, 2])
def test_sparse_tensors_add_up(dist: ModuleType, rank: int, size: int, sparse_dim: int) -> None:
    def of(one: int) -> torch.Tensor:
        dense = torch.zeros(6, 3)
        dense[one] = one + 1
        dense[5, 2] = 1
        return dense.to_sparse(sparse_dim)

    mine = of(rank)
    dist.all_reduce(mine)
    assert torch.equal(mine.to_dense(), sum(of(one).to_dense() for one in range(size)))


def test_a_product_that_nobody_waits_for_arrives_all_the_same(dist: ModuleType, rank: int, size: int) -> None:
    scattered = torch.zeros(4, 4)[:, ::2]
    scattered.copy_(torch.full((4, 2), float(rank)))
    work = dist.all_reduce(scattered, async_op=True)
    del work
    dist.barrier()
    limit = time.monotonic() + 20  # A thread brings it back, some time after the operation.
    while not (scattered == sum(range(size))).all():
        assert time.monotonic() < limit
