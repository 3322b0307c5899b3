"""Messages between two ranks, in every order that does not hang by itself."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
import torch
from values import ALL, equal, of_rank

SIZES = [0, 1, 8192, 8193, 200_000]  # Elements of 4 bytes: below, at and above what goes at once.


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_type_is_sent_around_a_ring(dist: ModuleType, rank: int, size: int, dtype: torch.dtype) -> None:
    mine, got = of_rank(rank, (5, 3), dtype), torch.empty(5, 3, dtype=dtype)
    before = (rank - 1) % size
    if rank == 0:
        dist.send(mine, 1)
        assert dist.recv(got, before) == before
    else:
        assert dist.recv(got, before) == before
        dist.send(mine, (rank + 1) % size)
    assert equal(got, of_rank(before, (5, 3), dtype))


@pytest.mark.parametrize("count", SIZES)
def test_sends_cross_in_both_directions(dist: ModuleType, rank: int, size: int, count: int) -> None:
    works = [dist.isend(torch.full((count,), float(rank)), to) for to in range(size) if to != rank]
    got = {one: torch.empty(count) for one in range(size) if one != rank}
    works += [dist.irecv(tensor, one) for one, tensor in got.items()]
    for work in works:
        work.wait()
    assert all((tensor == one).all() for one, tensor in got.items())


def test_a_batch_of_both_is_waited_for_together(dist: ModuleType, rank: int, size: int) -> None:
    after, before = (rank + 1) % size, (rank - 1) % size
    out, got = torch.full((50_000,), float(rank)), torch.empty(50_000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, out, after)])
    for work in works:
        work.wait()
    assert (got == before).all()


def test_tags_are_found_out_of_order(dist: ModuleType, rank: int) -> None:
    tags = list(range(20))
    random.Random(7).shuffle(tags)
    if rank == 0:
        works = [dist.isend(torch.full((tag * 1000 + 1,), tag), 1, tag=tag) for tag in range(20)]
        for work in works:
            work.wait()
    elif rank == 1:
        for tag in tags:
            got = torch.empty(tag * 1000 + 1, dtype=torch.int64)
            dist.recv(got, 0, tag=tag)
            assert (got == tag).all()


def test_equal_tags_keep_their_order(dist: ModuleType, rank: int) -> None:
    if rank == 0:
        works = [dist.isend(torch.full((size,), number), 1) for number, size in enumerate([1, 100_000] * 5)]
        for work in works:
            work.wait()
    elif rank == 1:
        for number, size in enumerate([1, 100_000] * 5):
            got = torch.empty(size, dtype=torch.int64)
            dist.recv(got, 0)
            assert (got == number).all()


def test_messages_come_from_anybody(dist: ModuleType, rank: int, size: int) -> None:
    if rank != 0:
        for step in range(3):
            dist.send(torch.tensor([rank, step]), 0, tag=5)
        return
    seen: dict[int, list[int]] = {}
    for _ in range(3 * (size - 1)):
        got = torch.empty(2, dtype=torch.int64)
        source = dist.recv(got, tag=5)
        assert got[0] == source
        seen.setdefault(source, []).append(int(got[1]))
    assert seen == {one: [0, 1, 2] for one in range(1, size)}


def test_messages_and_collectives_do_not_wait_for_each_other(dist: ModuleType, rank: int, size: int) -> None:
    total, word = torch.ones(3), torch.zeros(100_000)
    if rank == 0:
        work = dist.all_reduce(total, async_op=True)
        dist.send(torch.full((100_000,), 3.0), 1)
        work.wait()
    elif rank == 1:
        dist.recv(word, 0)
        assert (word == 3).all()
        dist.all_reduce(total)
    else:
        dist.all_reduce(total)
    assert (total == size).all()


def test_groups_have_messages_of_their_own(dist: ModuleType, rank: int, size: int) -> None:
    pair = dist.new_group([0, size - 1])
    if rank not in (0, size - 1):
        return
    got = torch.zeros(1)
    if rank == 0:
        dist.send(torch.tensor([1.0]), size - 1, tag=1)
        dist.send(torch.tensor([2.0]), size - 1, group=pair, tag=1)
    else:
        assert dist.recv(got, 0, group=pair, tag=1) == 0
        assert got == 2
        assert dist.recv(got, group=None, tag=1) == 0
        assert got == 1
    dist.destroy_process_group(pair)


def test_tensors_with_gaps_are_sent_and_received(dist: ModuleType, rank: int) -> None:
    if rank == 0:
        dist.send(torch.arange(12.0).view(3, 4).t(), 1)
    elif rank == 1:
        got = torch.zeros(8, 6)[::2, ::2]
        dist.irecv(got, 0).wait()
        assert torch.equal(got, torch.arange(12.0).view(3, 4).t())


def test_another_length_is_an_error_that_names_both(dist: ModuleType, rank: int) -> None:
    for count in (10, 100_000):
        if rank == 0:
            work = dist.isend(torch.zeros(count), 1)
            if count > 10:
                with pytest.raises(RuntimeError, match="expects 12"):
                    work.wait()
        elif rank == 1:
            with pytest.raises(RuntimeError, match=f"{count * 4} bytes, but this rank expects 12"):
                dist.recv(torch.zeros(3), 0)


def test_random_messages_of_all_ranks_arrive(dist: ModuleType, rank: int, size: int) -> None:
    plan = random.Random(11)
    messages = []
    for number in range(80):
        source = plan.randrange(size)
        target = (source + plan.randrange(1, size)) % size
        messages.append((number, source, target, plan.randrange(3), plan.choice([1, 100, 9000, 70_000])))
    mine = random.Random(rank)
    outgoing = [one for one in messages if one[1] == rank]
    works = [dist.isend(torch.full((one[4],), one[0]), one[2], tag=one[3]) for one in outgoing]
    # Per sender and tag in order, otherwise mixed.
    queues: dict[tuple[int, int], list] = {}
    for one in messages:
        if one[2] == rank:
            queues.setdefault((one[1], one[3]), []).append(one)
    while queues:
        key = mine.choice(sorted(queues))
        number, source, _, tag, count = queues[key].pop(0)
        got = torch.empty(count, dtype=torch.int64)
        dist.recv(got, source, tag=tag)
        assert (got == number).all()
        if not queues[key]:
            del queues[key]
    for work in works:
        work.wait()
