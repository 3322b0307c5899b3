"""What collectives return: work, futures, errors."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import ModuleType

import pytest
import torch


def test_work_says_whether_it_is_done(dist: ModuleType, rank: int, size: int) -> None:
    late = torch.ones(10)
    if rank == 0:
        work = dist.all_reduce(late, async_op=True)
        with pytest.raises(RuntimeError, match="Timed out"):
            work.wait(timedelta(milliseconds=50))
        assert not work.is_completed()
        assert work.exception() is None
        dist.send(torch.ones(1), 1)
    else:
        if rank == 1:
            dist.recv(torch.ones(1), 0)
        work = dist.all_reduce(late, async_op=True)
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.result()[0] is late
    work.synchronize()
    assert (late == size).all()


def test_a_future_has_the_result_and_runs_what_follows(dist: ModuleType, size: int) -> None:
    mine = torch.ones(1000)
    work = dist.all_reduce(mine, async_op=True)
    follows = work.get_future().then(lambda future: future.value()[0] / size)
    assert torch.equal(follows.wait(), torch.ones(1000))
    assert work.get_future() is work.get_future()
    done = dist.all_reduce(mine, async_op=True)
    done.wait()
    assert (done.get_future().value()[0] == size * size).all()


def test_futures_end_in_any_order(dist: ModuleType, rank: int, size: int) -> None:
    # The first one asked for ends last: it must not keep the others back.
    got = torch.zeros(1)
    if rank == 0:
        waits = dist.irecv(got, 1).get_future()
        assert dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
        dist.send(torch.ones(1), 1)
        waits.wait()
        assert got == 5
    else:
        dist.all_reduce(torch.ones(3))
        if rank == 1:
            dist.recv(got, 0)
            dist.send(torch.full((1,), 5.0), 0)


def test_memory_lives_until_the_work_is_done(dist: ModuleType, rank: int, size: int) -> None:
    works = []
    for step in range(30):
        works.append(dist.all_reduce(torch.full((5000,), float(step)), async_op=True))
    results = [work.result()[0] for work in works]
    assert all((one == step * size).all() for step, one in enumerate(results))


def test_threads_may_share_a_group_for_messages(dist: ModuleType, rank: int, size: int) -> None:
    failures: list[BaseException] = []

    def talk(tag: int) -> None:
        try:
            for step in range(5):
                got = torch.zeros(1)
                if rank == 0:
                    dist.send(torch.tensor([float(step)]), 1, tag=tag)
                    dist.recv(got, 1, tag=tag)
                elif rank == 1:
                    dist.recv(got, 0, tag=tag)
                    dist.send(got + 1, 0, tag=tag)
                assert rank > 1 or got == step + (rank == 0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(tag,)) for tag in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_ranks_that_disagree_get_an_error_and_the_group_lives_on(dist: ModuleType, rank: int, size: int) -> None:
    cases = [
        lambda: dist.all_reduce(torch.ones(3 if rank else 4)),
        lambda: dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank else torch.float32)),
        lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM),
        lambda: dist.broadcast(torch.ones(3 if rank else 4), 0),
        lambda: dist.broadcast(torch.ones(3), 0 if rank else 1),
        lambda: dist.barrier() if rank else dist.all_reduce(torch.ones(1)),
        lambda: dist.gather(torch.ones(3), [torch.ones(2) for _ in range(size)] if rank == 0 else None, 0),
        lambda: dist.scatter(torch.ones(3), [torch.ones(2) for _ in range(size)] if rank == 1 else None, 1),
    ]
    for case in cases:
        with pytest.raises(RuntimeError, match="mismatch") as caught:
            case()
        assert isinstance(caught.value, dist.DistBackendError)
        assert caught.value.code == "mismatch"
        dist.barrier()


def test_a_failure_reaches_the_future_too(dist: ModuleType, rank: int) -> None:
    work = dist.all_reduce(torch.ones(3 if rank else 4), async_op=True)
    with pytest.raises(RuntimeError, match="mismatch"):
        work.get_future().wait()
    assert not work.is_success()
    assert work.exception().code == "mismatch"
    dist.barrier()


def test_calls_that_cannot_be_are_refused_here(dist: ModuleType, rank: int, size: int) -> None:
    group = dist.group.WORLD
    for wrong in (
        lambda: group.allgather([[torch.ones(1)] * (size + 1)], [torch.ones(1)]),
        lambda: dist.all_gather_into_tensor(torch.ones(size * 2 + 1), torch.ones(2)),
        lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(size * 2 + 1)),
        lambda: group.alltoall([torch.ones(1)], [torch.ones(1)] * (size + 1)),
        lambda: group.all_gather_single(torch.ones(size), torch.ones(1, dtype=torch.float64)),
        lambda: group.send([torch.ones(1)], size + 3, 0),
        lambda: dist.all_reduce(torch.ones(2, device="meta")),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            wrong()
    with pytest.raises(RuntimeError, match="CPU and CUDA tensors"):
        dist.all_reduce(torch.ones(2, device="meta"))
    dist.barrier()


def test_one_tensor_is_taken_for_a_list(dist: ModuleType, rank: int, size: int) -> None:
    group = dist.group.WORLD
    value = torch.full((2,), float(rank))
    group.allreduce(value, dist.ReduceOp.MAX).wait()
    assert (value == size - 1).all()
    group.broadcast(value.fill_(rank), 1).wait()
    assert (value == 1).all()
    group.reduce(value, 0, dist.ReduceOp.SUM, timedelta(seconds=30)).wait()
    group.barrier(timeout=timedelta(seconds=30)).wait()
    assert group._get_sequence_number_for_group() > 3


def test_waiting_does_not_keep_other_threads_from_running(dist: ModuleType, rank: int) -> None:
    if rank == 0:
        counted = 0
        work = dist.irecv(torch.zeros(1), 1)
        waiter = threading.Thread(target=work.wait)
        waiter.start()
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            counted += 1
        assert counted > 1000
        dist.send(torch.ones(1), 1)
        waiter.join(30)
        assert work.is_completed()
    elif rank == 1:
        dist.recv(torch.zeros(1), 0)
        dist.send(torch.ones(1), 0)
