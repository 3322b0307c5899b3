"""Every operation between real processes."""
# ruff: noqa: PT018  Ranks run these functions as programs, without pytest.

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jobs
import numpy as np
import pytest

import horo


def every_operation() -> None:
    horo.init()
    rank, size = horo.rank(), horo.size()
    total = size * (size + 1) / 2
    mine = np.full((2, 3), rank + 1.0, np.float32)

    assert np.array_equal(horo.allreduce(mine, op=horo.Sum), np.full((2, 3), total, np.float32))
    assert np.array_equal(horo.allreduce(mine), np.full((2, 3), total / size, np.float32))
    assert np.array_equal(horo.allreduce(mine, op=horo.Min), np.ones((2, 3), np.float32))
    assert np.array_equal(horo.allreduce(mine, op=horo.Max), np.full((2, 3), size, np.float32))
    assert np.array_equal(horo.allreduce(mine, op=horo.Product)[0, :1], [np.prod(np.arange(1.0, size + 1))])
    assert np.allclose(horo.allreduce(np.ones(4), op=horo.Adasum), np.ones(4))
    scaled = horo.allreduce(mine, op=horo.Sum, prescale_factor=2.0, postscale_factor=0.25)
    assert np.array_equal(scaled, np.full((2, 3), total / 2, np.float32))
    assert np.array_equal(mine, np.full((2, 3), rank + 1.0)), "the input is as it was"

    place = mine.copy()
    assert horo.allreduce_(place, op=horo.Sum) is place
    assert place[0, 0] == total
    one, two = horo.grouped_allreduce([mine, mine.astype(np.int64)], op=horo.Sum)
    assert one.dtype == np.float32 and two.dtype == np.int64 and one[0, 0] == two[0, 0] == total
    pair = [mine.copy(), mine.copy()]
    assert horo.grouped_allreduce_(pair, op=horo.Sum)[1] is pair[1]
    assert pair[0][0, 0] == pair[1][1, 2] == total

    rows = np.full((rank + 1, 2), rank, np.int32)
    expected = np.concatenate([np.full((r + 1, 2), r, np.int32) for r in range(size)])
    assert np.array_equal(horo.allgather(rows), expected)
    first, second = horo.grouped_allgather([rows, rows * 2])
    assert np.array_equal(first, expected) and np.array_equal(second, expected * 2)

    told = horo.broadcast(mine, root_rank=size - 1)
    assert np.array_equal(told, np.full((2, 3), size, np.float32)) and mine[0, 0] == rank + 1
    horo.broadcast_(mine, 0)
    assert mine[0, 0] == 1

    mail = np.concatenate([np.full((r + 1,), rank * 10 + r) for r in range(size)])
    output, received = horo.alltoall(mail, splits=np.arange(1, size + 1, dtype=np.int32))
    assert received.dtype == np.int32 and list(received) == [rank + 1] * size
    assert np.array_equal(output, np.concatenate([np.full((rank + 1,), r * 10 + rank) for r in range(size)]))
    assert list(horo.alltoall(np.arange(size))) == [rank] * size
    _, shares = horo.synchronize(horo.alltoall_async(np.arange(size)))
    assert list(shares) == [1] * size

    grid = np.arange(10.0).reshape(5, 2)
    begin = sum(5 // size + (r < 5 % size) for r in range(rank))
    share = grid[begin : begin + 5 // size + (rank < 5 % size)]
    assert np.array_equal(horo.reducescatter(grid, op=horo.Sum), share * size)
    both = horo.grouped_reducescatter([grid, grid * 2])
    assert np.array_equal(both[0], share) and np.array_equal(both[1], share * 2)

    where, what = horo.sparse_allreduce(np.arange(rank + 1), np.full((rank + 1, 2), size * 1.0))
    assert list(where) == [index for r in range(size) for index in range(r + 1)]
    assert what.shape == (len(where), 2) and (what == 1).all()
    _, summed = horo.sparse_allreduce([rank], [rank + 1], op=horo.Sum)
    assert list(summed) == list(range(1, size + 1))

    horo.barrier()
    horo.shutdown()
    assert not horo.is_initialized()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_operation_gives_what_it_says(count: int) -> None:
    jobs.run(count, every_operation)


def test_every_operation_gives_what_it_says_over_tcp() -> None:
    jobs.run(2, every_operation, HORO_TRANSPORT="tcp")


def test_every_operation_gives_what_it_says_under_the_launcher() -> None:
    jobs.launch(2, every_operation)


def all_dtypes() -> None:
    horo.init()
    types = [np.dtype(name) for name in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16")]
    try:
        import ml_dtypes

        types.append(np.dtype(ml_dtypes.bfloat16))
    except ImportError:
        print("without ml_dtypes")
    for dtype in types:
        mine = np.full(5, horo.rank() + 1, dtype)
        total = horo.allreduce(mine, op=horo.Sum)
        assert total.dtype == dtype and (total == np.full(5, 3, dtype)).all(), dtype
        assert (horo.allgather(mine) == np.repeat([1, 2], 5).astype(dtype)).all(), dtype
        assert (horo.broadcast(mine, 1) == np.full(5, 2, dtype)).all(), dtype
    either = horo.allreduce(np.array([True, False, horo.rank() == 0]), op=horo.Sum)
    assert either.dtype == np.bool_ and list(either) == [True, False, True]
    assert list(horo.allreduce(np.array([horo.rank()], np.int32))) == [0], "integers are cut off"
    horo.barrier()


def test_every_dtype_is_reduced_and_moved() -> None:
    jobs.run(2, all_dtypes)


def odd_arrays() -> None:
    horo.init()
    rank = horo.rank()
    scalar = horo.allreduce(np.float64(rank + 1), op=horo.Sum)
    assert scalar.shape == () and scalar == 3
    zero = np.array(rank + 1.0)
    assert horo.allreduce_(zero, op=horo.Sum).shape == () and zero == 3
    assert horo.broadcast(np.array(7 + rank), 1) == 8
    assert horo.allreduce(np.empty((0, 4), np.float32)).shape == (0, 4)
    gathered = horo.allgather(np.full((3 * rank, 2), 1.5))
    assert gathered.shape == (3, 2) and (gathered == 1.5).all()
    assert horo.allgather(np.empty((0, 2))).shape == (0, 2)
    assert list(horo.allreduce([1, 2, 3], op=horo.Sum)) == [2, 4, 6], "a list"
    wide = np.arange(12.0).reshape(3, 4)
    assert np.array_equal(horo.allreduce(wide.T, op=horo.Sum), wide.T * 2), "an array with gaps is copied"
    result = horo.allreduce(wide, op=horo.Sum)
    result += 1
    assert result[0, 0] == 1, "results can be written"
    horo.barrier()


def test_scalars_empty_arrays_and_views() -> None:
    jobs.run(2, odd_arrays)


def results_outlive() -> None:
    horo.init()
    results = [horo.allgather(np.full(1000, index)) for index in range(20)]
    horo.barrier()
    horo.shutdown()
    for index, result in enumerate(results):
        assert (result == index).all() and result.shape == (2000,)


def test_results_outlive_the_job() -> None:
    jobs.run(2, results_outlive)


def bad_arguments() -> None:
    def message_of(call) -> str:
        try:
            call()
        except ValueError as error:
            return str(error)
        raise AssertionError("no ValueError")

    assert message_of(horo.rank) == "Horovod has not been initialized; use hvd.init()."
    assert message_of(lambda: horo.allreduce(np.ones(1))) == "Horovod has not been initialized; use hvd.init()."
    horo.init()
    horo.init()
    assert "supersedes" in message_of(lambda: horo.allreduce(np.ones(1), average=True, op=horo.Sum))
    assert "no reduction 17" in message_of(lambda: horo.allreduce(np.ones(1), op=17))
    assert "contiguous" in message_of(lambda: horo.allreduce_(np.ones((4, 4))[:, 1]))
    assert "not supported" in message_of(lambda: horo.allreduce(np.array(["a"])))
    assert "not supported" in message_of(lambda: horo.allreduce(np.ones(2, ">f4")))
    assert "in place" in message_of(lambda: horo.broadcast_([1, 2], 0))
    frozen = np.ones(2)
    frozen.flags.writeable = False
    assert "read-only" in message_of(lambda: horo.allreduce_(frozen))
    assert "root rank 5" in message_of(lambda: horo.broadcast(np.ones(2), 5))
    assert "scalar" in message_of(lambda: horo.allgather(np.float32(1)))
    assert "splits" in message_of(lambda: horo.alltoall(np.ones(4), splits=[1, -1]))
    assert "splits" in message_of(lambda: horo.alltoall(np.ones(4), splits=[]))
    assert "scalar" in message_of(lambda: horo.reducescatter(np.float32(1)))
    assert "adasum" in message_of(lambda: horo.reducescatter(np.ones(4), op=horo.Adasum))
    assert "Average and Sum" in message_of(lambda: horo.sparse_allreduce([1], [1.0], op=horo.Max))
    assert "one index per row" in message_of(lambda: horo.sparse_allreduce([1, 2], [1.0]))
    assert "no tensors" in message_of(lambda: horo.grouped_allreduce([]))
    horo.barrier()


def test_bad_arguments_are_value_errors_of_the_call() -> None:
    jobs.run(2, bad_arguments)


def test_the_reductions_have_horovods_numbers() -> None:
    assert [horo.Average, horo.Sum, horo.Adasum, horo.Min, horo.Max, horo.Product] == list(range(6))


def objects() -> None:
    horo.init()
    mine = {"rank": horo.rank(), "text": "x" * 1000 * horo.rank(), "array": np.arange(horo.rank())}
    heard = horo.broadcast_object(mine, root_rank=1)
    assert heard["rank"] == 1 and len(heard["text"]) == 1000 and list(heard["array"]) == [0]
    everyone = horo.allgather_object(mine)
    assert [one["rank"] for one in everyone] == list(range(horo.size()))
    assert [len(one["text"]) for one in everyone] == [1000 * rank for rank in range(horo.size())]
    assert horo.broadcast_object(None) is None
    horo.barrier()


def test_objects_go_from_rank_to_rank() -> None:
    jobs.run(3, objects)


def test_the_example_converges() -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "python" / "train.py"
    command = [jobs.launcher(), "run", "-np", "2", sys.executable, str(example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks: the weights are off by" in done.stdout
