"""Collectives that move: all element types, shapes and layouts, under the names of both generations."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from values import ALL, equal, of_rank


@pytest.mark.parametrize("dtype", [*ALL, torch.float8_e4m3fnuz], ids=str)
def test_everything_moves_every_way(dist: ModuleType, rank: int, size: int, dtype: torch.dtype) -> None:
    def of(one: int, seed: int = 0) -> torch.Tensor:
        return of_rank(one, (3, 2), dtype, seed)

    root = size - 1
    mine = of(rank)
    dist.broadcast(mine, root)
    assert equal(mine, of(root))

    gathered = [torch.empty(3, 2, dtype=dtype) for _ in range(size)]
    dist.all_gather(gathered, of(rank))
    assert all(equal(one, of(index)) for index, one in enumerate(gathered))
    joined = torch.empty(3 * size, 2, dtype=dtype)
    dist.all_gather_into_tensor(joined, of(rank))
    stacked = torch.cat([of(one).view(torch.uint8) for one in range(size)]).view(dtype)
    assert equal(joined, stacked)
    for name in ("_allgather_base", "all_gather_single"):
        again = torch.empty(size, 3, 2, dtype=dtype)
        getattr(dist.group.WORLD, name)(again, of(rank)).wait()
        assert equal(again.view(-1, 2), stacked)

    collected = [torch.empty(3, 2, dtype=dtype) for _ in range(size)] if rank == root else None
    dist.gather(of(rank), collected, root)
    assert collected is None or all(equal(one, of(index)) for index, one in enumerate(collected))

    handed = torch.empty(3, 2, dtype=dtype)
    dist.scatter(handed, [of(root, seed=to) for to in range(size)] if rank == root else None, root)
    assert equal(handed, of(root, seed=rank))

    swapped = [torch.empty(3, 2, dtype=dtype) for _ in range(size)]
    dist.all_to_all(swapped, [of(rank, seed=to) for to in range(size)])
    assert all(equal(one, of(index, seed=rank)) for index, one in enumerate(swapped))
    source = torch.cat([of(rank, seed=to).view(torch.uint8) for to in range(size)]).view(dtype)
    wanted = torch.cat([of(one, seed=rank).view(torch.uint8) for one in range(size)]).view(dtype)
    for name in ("alltoall_base", "all_to_all_single"):
        target = torch.empty(3 * size, 2, dtype=dtype)
        getattr(dist.group.WORLD, name)(target, source, [], []).wait()
        assert equal(target, wanted)


def test_shares_of_an_alltoall_may_differ(dist: ModuleType, rank: int, size: int) -> None:
    sent = [to + 1 for to in range(size)]
    received = [rank + 1] * size
    source = torch.cat([torch.full((to + 1, 2), 10.0 * rank + to) for to in range(size)])
    target = torch.empty(sum(received), 2)
    dist.all_to_all_single(target, source, received, sent)
    wanted = torch.cat([torch.full((rank + 1, 2), 10.0 * one + rank) for one in range(size)])
    assert torch.equal(target, wanted)
    nothing = torch.empty(0, 2)
    dist.all_to_all_single(nothing, nothing, [0] * size, [0] * size)
    with pytest.raises((RuntimeError, ValueError), match=r"[Ss]plit"):
        dist.all_to_all_single(target, source, received, [1] * (size + 1))
    with pytest.raises((RuntimeError, ValueError), match=r"[Ss]plit"):
        dist.all_to_all_single(target, source, received, [0] * size)


def test_an_allgather_takes_tensors_of_different_sizes(dist: ModuleType, rank: int, size: int) -> None:
    outputs = [torch.empty(one, 2) for one in range(size)]
    dist.all_gather(outputs, torch.full((rank, 2), float(rank)))
    assert all(torch.equal(one, torch.full((index, 2), float(index))) for index, one in enumerate(outputs))


def test_chunks_of_one_tensor_are_filled_where_they_lie(dist: ModuleType, rank: int, size: int) -> None:
    whole = torch.zeros(2 * size + 1)
    dist.all_gather(list(whole[: 2 * size].chunk(size)), torch.full((2,), float(rank)))
    assert whole.tolist() == [float(one) for one in range(size) for _ in range(2)] + [0.0]


def test_tensors_with_gaps_and_of_other_orders_are_taken(dist: ModuleType, rank: int, size: int) -> None:
    def scattered() -> torch.Tensor:
        return torch.zeros(4, 6)[::2, ::3]

    mine = scattered()
    mine.fill_(rank + 1)
    dist.all_reduce(mine)
    total = size * (size + 1) / 2
    assert (mine == total).all()
    dist.broadcast(mine.fill_(rank), size - 1)
    assert (mine == size - 1).all()
    outputs = [scattered() for _ in range(size)]
    dist.all_gather(outputs, torch.full((2, 2), float(rank)).t())
    assert all((one == index).all() for index, one in enumerate(outputs))
    target, source = torch.empty(2, size).t(), torch.arange(2.0 * size * size).view(size, 2, size).transpose(1, 2)
    part = torch.empty(size, 2).t()
    dist.reduce_scatter_tensor(part, source.reshape(size * size, 2).t().contiguous().t())
    assert part.shape == (2, size)
    dist.all_to_all_single(target, torch.full((2, size), float(rank)).t())
    assert torch.equal(target, torch.arange(float(size)).view(size, 1).expand(size, 2))
    # Channels last here, rows there: elements must not change places.
    image = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5)
    mine = image.clone(memory_format=torch.channels_last) if rank == 0 else image.clone()
    dist.all_reduce(mine)
    assert torch.equal(mine, image * size)


def test_empty_tensors_are_no_special_case(dist: ModuleType, size: int) -> None:
    empty = torch.empty(0, 3)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.all_gather([torch.empty(0, 3) for _ in range(size)], empty)
    dist.all_gather_into_tensor(torch.empty(0, 3), empty)
    dist.reduce_scatter_tensor(torch.empty(0, 3), empty)
    dist.all_reduce(torch.empty(0, dtype=torch.int64), dist.ReduceOp.MAX)


def test_several_are_gathered_together(dist: ModuleType, rank: int, size: int) -> None:
    group = dist.group.WORLD
    inputs = [torch.full((2,), float(rank)), torch.full((3,), rank * 10.0)]
    for name in ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"):
        outputs = [torch.empty(2 * size), torch.empty(3 * size)]
        getattr(group, name)(outputs, inputs).wait()
        assert outputs[1].view(size, 3)[:, 0].tolist() == [10.0 * one for one in range(size)]
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, inputs)
    assert [one[1][0].item() for one in lists] == [10.0 * index for index in range(size)]


def test_objects_move(dist: ModuleType, rank: int, size: int) -> None:
    mine = {"rank": rank, "long": list(range(rank * 1000))}
    every: list[dict | None] = [None] * size
    dist.all_gather_object(every, mine)
    assert [one["rank"] for one in every if one] == list(range(size))
    told = [mine, "two"] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, 0)
    assert told[0]["rank"] == 0
    collected = [None] * size if rank == 0 else None
    dist.gather_object(mine, collected, 0)
    assert collected is None or [one["rank"] for one in collected] == list(range(size))
    got: list[int | None] = [None]
    dist.scatter_object_list(got, [one * 7 for one in range(size)] if rank == 0 else None, 0)
    assert got == [rank * 7]
    if rank == 0:
        dist.send_object_list([mine, 5], dst=1)
    elif rank == 1:
        words = [None, None]
        dist.recv_object_list(words, src=0)
        assert words[1] == 5


def test_functional_collectives_work(dist: ModuleType, rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    mine = torch.full((4,), float(rank + 1))
    total = size * (size + 1) / 2
    assert (functional.all_reduce(mine, "sum", group) == total).all()
    assert functional.all_gather_tensor(mine, 0, group).shape == (4 * size,)
    part = functional.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, group)
    assert part.tolist() == [size, size]
    together = functional.all_reduce_coalesced([mine, mine * 2], "sum", group)
    assert (together[1] == 2 * total).all()
    parts = functional.all_gather_into_tensor_coalesced([mine, mine], group)
    assert parts[0].shape == (4 * size,)
    swapped = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, group)
    assert swapped.tolist() == [float(one) for one in range(size)]
    assert (functional.broadcast(mine, 0, group) == 1).all()
