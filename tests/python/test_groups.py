"""Ordered groups and engines of the extension module, which other front ends stand on."""
# ruff: noqa: PT017, PT018  Ranks run these functions as programs, without pytest.

from __future__ import annotations

import os
import secrets
import signal
import threading
import weakref
from collections.abc import Callable

import jobs
import numpy as np
import pytest

import horo
from horo import _horo

KINDS, DTYPES, OPS = _horo.KINDS, _horo.DTYPES, _horo.REDUCTIONS


def groups_of_a_runtime() -> None:
    import gc

    from horo import _horo
    from horo.world import world

    horo.init()
    rank, size = horo.rank(), horo.size()
    kinds, dtypes, ops = _horo.KINDS, _horo.DTYPES, _horo.REDUCTIONS
    group = world.runtime.group(range(size))
    assert (group.rank, group.size, group.ranks) == (rank, size, list(range(size)))

    values = np.full(1000, rank + 1.0, np.float32)
    address = values.ctypes.data
    group.run(kinds["allreduce"], address, address, dtype=dtypes["float32"], op=ops["sum"], count=values.size)
    assert (values == size * (size + 1) / 2).all()

    # Under way beside named tensors, and in memory that nobody else keeps.
    requests = []
    for step in range(50):
        mine = np.full(2000, step + rank, np.int64)
        at = mine.ctypes.data
        requests.append(
            group.submit(kinds["allreduce"], at, at, mine, dtype=dtypes["int64"], op=ops["max"], count=mine.size)
        )
        alive = weakref.ref(mine)
        del mine
        assert alive() is not None or requests[-1].done()
    horo.allreduce(values, name="named")
    completions = _horo.Completions()
    for number, request in enumerate(requests):
        request.tell(completions, number)
    told = set()
    while len(told) < len(requests):
        told.update(completions.take(5))
    assert told == set(range(len(requests)))
    for request in requests:
        assert request.wait(5) and request.done()

    # Dropped while it is under way: it goes on, and its memory goes with it.
    dropped = np.ones(1 << 20, np.float32)
    at, freed = dropped.ctypes.data, threading.Event()
    weakref.finalize(dropped, freed.set)
    request = group.submit(kinds["allreduce"], at, at, dropped, dtype=dtypes["float32"], count=dropped.size)
    del request, dropped
    gc.collect()
    for _ in range(3):
        group.run(kinds["barrier"], 0, 0)
        group.submit(kinds["barrier"], 0, 0, None).wait(5)
    assert freed.wait(5), "the memory was never let go"

    counts = [r + 1 for r in range(size)]
    rows = np.full(rank + 1, rank, np.uint8)
    gathered = np.zeros(sum(counts), np.uint8)
    group.run(kinds["allgather"], rows.ctypes.data, gathered.ctypes.data, dtype=dtypes["uint8"], counts=counts)
    assert list(gathered) == [r for r in range(size) for _ in range(r + 1)]
    bits = np.array([1 << rank], np.int32)
    at = bits.ctypes.data
    group.run(kinds["allreduce"], at, at, dtype=dtypes["int32"], op=ops["or"], count=1)
    assert bits[0] == (1 << size) - 1

    # A disagreement is an error of all, and the group lives on.
    try:
        group.run(kinds["allreduce"], at, at, dtype=dtypes["int32"], count=1 if rank else 0)
        raise SystemExit("ranks that disagree went on")
    except horo.HorovodInternalError as error:
        assert error.code == "mismatch", error
    for wrong in [[size - 1, 0], [0, size], [(rank + 1) % size]]:
        try:
            world.runtime.group(wrong)
            raise SystemExit(f"{wrong} was taken")
        except ValueError:
            pass
    try:
        group.run(kinds["allgather"], 0, 0, counts=[1])
        raise SystemExit("too few counts were taken")
    except ValueError:
        pass

    # Ctrl-C ends a wait, not the operation.
    late = np.ones(1, np.float32)
    at = late.ctypes.data
    request = None
    if rank == 0:
        request = group.submit(kinds["allreduce"], at, at, late, dtype=dtypes["float32"], count=1)
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            while not request.wait(10):
                pass
            raise SystemExit("Ctrl-C was not seen")
        except KeyboardInterrupt:
            assert not request.done()
    horo.barrier()
    if rank == 0:
        assert request.wait(10)
    else:
        group.run(kinds["allreduce"], at, at, dtype=dtypes["float32"], count=1)
    assert late[0] == size

    # Given up by one, over for all; others live on.
    other = world.runtime.group(range(size))
    horo.barrier()
    if rank == 0:
        group.give_up("enough")
    try:
        group.run(kinds["barrier"], 0, 0)
        raise SystemExit("a group that was given up went on")
    except horo.HorovodInternalError as error:
        assert error.code == "stopped", error
    other.run(kinds["barrier"], 0, 0)
    horo.barrier()
    horo.shutdown()
    try:
        other.run(kinds["barrier"], 0, 0)
        raise SystemExit("a group outlived its job")
    except horo.HorovodInternalError as error:
        assert error.code == "stopped", error


def test_a_group_of_a_runtime_runs_ordered_operations_beside_named_tensors() -> None:
    jobs.run(2, groups_of_a_runtime)


def start_engines(size: int, key: bytes | None, body: Callable[[_horo.Engine], None]) -> None:
    """Ranks as threads, each with an engine of its own, which meet at a store of ours."""
    job = secrets.token_hex(8)
    store = _horo.Store("127.0.0.1:0", job, key)
    failures: list[BaseException] = []

    def rank_of(rank: int) -> None:
        try:
            settings = ["HORO_INTERFACE=127.0.0.1", "HORO_STAGING=8MiB"]
            engine = _horo.Engine(rank, size, store.address, job, key, settings)
            body(engine)
            engine.shutdown()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    store.close()
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["without a key", "with a key"])
def test_engines_meet_at_a_store_of_the_program(key: bytes | None) -> None:
    def body(engine: _horo.Engine) -> None:
        assert engine.size() == 3 == engine.local_size()
        assert engine.members() == [0, 1, 2]
        memory = engine.allocate(4096).view(np.float64)
        memory[:] = engine.rank()
        at = memory.ctypes.data
        engine.world().run(KINDS["allreduce"], at, at, dtype=DTYPES["float64"], count=memory.size)
        assert (memory == 3).all()
        if engine.rank() != 1:
            pair = engine.group([0, 2])
            assert (pair.rank, pair.size) == (engine.rank() // 2, 2)
            pair.submit(KINDS["barrier"], 0, 0, None).wait(10)
        engine.world().run(KINDS["barrier"], 0, 0)

    start_engines(3, key, body)


def test_a_wrong_key_is_not_let_in() -> None:
    key = os.urandom(32)
    store = _horo.Store("127.0.0.1:0", "job", key)
    with pytest.raises(RuntimeError, match="unauthenticated"):
        _horo.Engine(1, 2, store.address, "job", os.urandom(32), ["HORO_INTERFACE=127.0.0.1", "HORO_TIMEOUT=5s"])
    store.close()


def test_a_store_without_a_key_stays_on_loopback() -> None:
    with pytest.raises(ValueError, match="key"):
        _horo.Store("0.0.0.0:0", "job", None)
    with pytest.raises(ValueError, match="32"):
        _horo.Store("127.0.0.1:0", "job", b"short")
