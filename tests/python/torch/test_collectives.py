"""All operations on all element types, in all their forms."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from values import ALL, COMPLEX, FLOATS, INTEGERS, averaged, equal, of_rank, of_ranks, summed


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX], ids=str)
def test_an_allreduce_in_every_form(hvd: ModuleType, dtype: torch.dtype) -> None:
    everyone = of_ranks(hvd.size(), (5, 3), dtype)
    mine = everyone[hvd.rank()]
    before = mine.clone()
    total, mean = summed(everyone), averaged(everyone)
    assert equal(hvd.allreduce(mine, op=hvd.Sum), total)
    assert equal(hvd.synchronize(hvd.allreduce_async(mine, name="later", op=hvd.Sum)), total)
    many = hvd.grouped_allreduce([mine, mine[:2], mine[4]], name="many", op=hvd.Sum)
    assert [equal(one, wanted) for one, wanted in zip(many, [total, total[:2], total[4]], strict=True)] == [True] * 3
    assert equal(hvd.synchronize(hvd.grouped_allreduce_async([mine], op=hvd.Sum))[0], total)
    assert equal(mine, before), "the input is as it was"
    close = {"rtol": 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6, "atol": 0}
    averages = [hvd.allreduce(mine), hvd.allreduce(mine, op=hvd.Average)]
    for one in averages:
        assert one.dtype == dtype
        torch.testing.assert_close(one, mean, **close)
    places = [mine.clone() for _ in range(4)]
    assert hvd.allreduce_(places[0], op=hvd.Sum) is places[0]
    assert hvd.synchronize(hvd.allreduce_async_(places[1], op=hvd.Sum)) is places[1]
    assert hvd.grouped_allreduce_([places[2]], op=hvd.Sum)[0] is places[2]
    assert hvd.synchronize(hvd.grouped_allreduce_async_([places[3]], op=hvd.Sum))[0] is places[3]
    assert all(equal(one, total) for one in places)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, torch.bool], ids=str)
def test_the_least_the_greatest_and_the_product(hvd: ModuleType, dtype: torch.dtype) -> None:
    everyone = [one.double() for one in of_ranks(hvd.size(), (7,), dtype)]
    mine = everyone[hvd.rank()].to(dtype)
    stacked = torch.stack(everyone)
    assert equal(hvd.allreduce(mine, op=hvd.Min), stacked.amin(0).to(dtype))
    assert equal(hvd.allreduce(mine, op=hvd.Max), stacked.amax(0).to(dtype))
    assert equal(hvd.allreduce(mine, op=hvd.Product), stacked.prod(0).to(dtype))


def test_bools_add_up_to_or(hvd: ModuleType) -> None:
    mine = torch.tensor([hvd.rank() == 0, False, True])
    assert hvd.allreduce(mine, op=hvd.Sum).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="bool has no average"):
        hvd.allreduce(mine)


def test_factors_scale_before_and_after(hvd: ModuleType) -> None:
    everyone = of_ranks(hvd.size(), (4,), torch.float32)
    mine, total = everyone[hvd.rank()], summed(everyone)
    got = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert equal(got, total * 2)
    got = hvd.grouped_allreduce([mine, mine], op=hvd.Sum, prescale_factor=2.0)
    assert equal(got[1], total * 2)


def test_adasum_of_equal_tensors_is_the_tensor(hvd: ModuleType) -> None:
    mine = of_rank(0, (6,), torch.float32) + 1
    torch.testing.assert_close(hvd.allreduce(mine, op=hvd.Adasum), mine)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_everything_can_be_moved(hvd: ModuleType, dtype: torch.dtype) -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = [of_rank(one, (one + 1, 2), dtype) for one in range(size)]
    joined = torch.cat([one.view(torch.uint8) for one in rows]).view(dtype)
    assert equal(hvd.allgather(rows[rank]), joined)
    both = hvd.grouped_allgather([rows[rank], rows[rank]])
    assert equal(both[0], joined)
    assert equal(both[1], joined)
    assert equal(hvd.synchronize(hvd.grouped_allgather_async([rows[rank]]))[0], joined)

    root = size - 1
    mine, wanted = of_rank(rank, (3, 2), dtype, 1), of_rank(root, (3, 2), dtype, 1)
    before = mine.clone()
    assert equal(hvd.broadcast(mine, root), wanted)
    assert equal(hvd.synchronize(hvd.broadcast_async(mine, root)), wanted)
    assert equal(mine, before)
    assert hvd.broadcast_(mine, root) is mine
    assert equal(mine, wanted)
    again = before.clone()
    assert hvd.synchronize(hvd.broadcast_async_(again, root)) is again
    assert equal(again, wanted)

    # Rank i sends i + j rows to rank j.
    sent = [of_rank(one, (sum(one + to for to in range(size)), 2), dtype, 2) for one in range(size)]
    begins = [sum(one + to for to in range(rank)) for one in range(size)]
    parts = [
        one.view(torch.uint8)[begin : begin + index + rank]
        for index, (one, begin) in enumerate(zip(sent, begins, strict=True))
    ]
    splits = torch.tensor([rank + to for to in range(size)], dtype=torch.int32)
    output, received = hvd.alltoall(sent[rank], splits)
    assert equal(output, torch.cat(parts).view(dtype))
    assert received.dtype == torch.int32
    assert received.tolist() == [one + rank for one in range(size)]


def test_an_alltoall_without_splits_gives_equal_shares(hvd: ModuleType) -> None:
    size, rank = hvd.size(), hvd.rank()
    mine = torch.arange(2 * size).float() + 100 * rank
    wanted = torch.cat([torch.arange(2 * rank, 2 * rank + 2).float() + 100 * one for one in range(size)])
    assert equal(hvd.alltoall(mine), wanted)
    output, received = hvd.synchronize(hvd.alltoall_async(mine))
    assert equal(output, wanted)
    assert received.tolist() == [2] * size


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float64], ids=str)
def test_a_reducescatter_gives_the_first_ranks_what_is_left_over(hvd: ModuleType, dtype: torch.dtype) -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = 2 * size + 1
    everyone = of_ranks(size, (rows, 3), dtype)
    begin = 2 * rank + min(rank, 1)
    share = summed(everyone)[begin : begin + 2 + (rank < 1)]
    assert equal(hvd.reducescatter(everyone[rank], op=hvd.Sum), share)
    assert equal(hvd.synchronize(hvd.reducescatter_async(everyone[rank], op=hvd.Sum)), share)
    both = hvd.grouped_reducescatter([everyone[rank], everyone[rank]], op=hvd.Sum, prescale_factor=2.0)
    assert equal(both[0], share * 2)
    assert equal(hvd.synchronize(hvd.grouped_reducescatter_async([everyone[rank]], op=hvd.Sum))[0], share)
    if dtype == torch.float64:
        mean = averaged(everyone)[begin : begin + 2 + (rank < 1)]
        torch.testing.assert_close(hvd.reducescatter(everyone[rank]), mean)


def test_scalars_and_nothing(hvd: ModuleType) -> None:
    size = hvd.size()
    assert hvd.allreduce(torch.tensor(2.0), op=hvd.Sum).item() == 2 * size
    scalar = torch.tensor(hvd.rank())
    assert hvd.broadcast_(scalar, 0).item() == 0
    for shape in [(0,), (3, 0, 2)]:
        nothing = torch.empty(shape)
        assert hvd.allreduce(nothing).shape == shape
        assert hvd.allreduce_(nothing) is nothing
        assert hvd.broadcast(nothing, 0).shape == shape
        assert hvd.allgather(nothing).shape == (shape[0] * size, *shape[1:])
    # One rank has no rows.
    mine = torch.ones(hvd.rank(), 2)
    assert hvd.allgather(mine).shape == (size * (size - 1) // 2, 2)
    one_row = hvd.reducescatter(torch.ones(1, 2), op=hvd.Sum)
    assert one_row.shape == (1 if hvd.rank() == 0 else 0, 2)
    for call in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with pytest.raises(ValueError, match="scalar"):
            call(torch.tensor(1.0))


def test_sparse_tensors_add_up(hvd: ModuleType) -> None:
    size, rank = hvd.size(), hvd.rank()
    dense = torch.zeros(size + 1, 2)
    dense[rank] = rank + 1.0
    dense[size] = 1.0
    total = sum(torch.zeros(size + 1, 2).index_fill_(0, torch.tensor([one]), one + 1.0) for one in range(size))
    total[size] = size
    assert equal(hvd.sparse_allreduce_async(dense.to_sparse(), "s", hvd.Sum)().to_dense(), total)
    mean = hvd.sparse_allreduce_async(dense.to_sparse(1), "s", hvd.Average)().to_dense()
    torch.testing.assert_close(mean, total / size)
    numbers = hvd.sparse_allreduce_async((-dense).int().to_sparse(), "i", hvd.Average)().to_dense()
    assert numbers[size, 0] == -1, "cut off, as everywhere"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_fp16_compression_halves_what_travels_and_gives_back_the_type(hvd: ModuleType, dtype: torch.dtype) -> None:
    everyone = of_ranks(hvd.size(), (9,), dtype)
    mine = everyone[hvd.rank()]
    for got in (
        hvd.allreduce(mine, compression=hvd.Compression.fp16, op=hvd.Sum),
        hvd.grouped_allreduce([mine], compression=hvd.Compression.fp16, op=hvd.Sum)[0],
    ):
        assert equal(got, summed(everyone))
    share = hvd.reducescatter(mine, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert share.dtype == dtype
    whole = hvd.allgather(share)
    assert equal(whole, summed(everyone))


def test_operations_of_process_sets(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        pytest.skip("two ranks have no set but the one of all, and themselves")
    last = hvd.size() - 1
    some = hvd.add_process_set([0, last])
    try:
        if hvd.rank() in (0, last):
            assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=some).tolist() == [2, 2]
            assert hvd.broadcast(torch.tensor([hvd.rank()]), last, process_set=some).tolist() == [last]
            assert hvd.allgather_object(hvd.rank(), process_set=some) == [0, last]
            assert hvd.broadcast_object(hvd.rank(), last, process_set=some) == last
            hvd.barrier(process_set=some)
        elif hvd.rank() == 1:
            with pytest.raises(ValueError, match="not in process set"):
                hvd.allreduce(torch.ones(2), process_set=some)
    finally:
        assert hvd.remove_process_set(some)


def test_ranks_that_have_joined_give_nothing(hvd: ModuleType) -> None:
    for step in range(hvd.rank() + 1):
        total = hvd.allreduce(torch.ones(2), name=f"step{step}", op=hvd.Sum)
        assert total.tolist() == [hvd.size() - step] * 2
    assert hvd.join() in range(hvd.size())
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
