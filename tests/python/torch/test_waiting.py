"""What a thread does, and what it leaves to others, while it waits."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from types import ModuleType

import pytest
import torch


def last_comes_late(hvd: ModuleType, name: str, seconds: float) -> float:
    """All ranks reduce; the last rank comes only when this much time has passed. Returns how long it took here."""
    begin = time.monotonic()
    if hvd.rank() == hvd.size() - 1:
        threading.Event().wait(seconds)
    hvd.synchronize(hvd.allreduce_async_(torch.ones(1), name=name))
    return time.monotonic() - begin


def test_waiting_costs_no_cpu(hvd: ModuleType) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank waits for nobody")
    hvd.barrier()
    before = time.process_time()
    waited = last_comes_late(hvd, "cpu", 1.0)
    used = time.process_time() - before
    assert waited > 0.5
    assert used < 0.25 * waited, f"{used} s of CPU in {waited} s"


def test_other_threads_run_meanwhile(hvd: ModuleType) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank waits for nobody")
    turns, end = [0], threading.Event()

    def turn() -> None:
        while not end.is_set():
            turns[0] += 1

    thread = threading.Thread(target=turn)
    hvd.barrier()
    thread.start()
    before = turns[0]
    last_comes_late(hvd, "gil", 0.3)
    during = turns[0] - before
    end.set()
    thread.join()
    assert during > 1000, "a thread that holds the interpreter's lock would have stopped this one"


def test_an_operation_is_under_way_until_all_ranks_have_come(hvd: ModuleType) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank waits for nobody")
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(1000), name="poll", op=hvd.Sum)
        assert not hvd.poll(handle)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(torch.ones(1000), name="poll", op=hvd.Sum)
    end = time.monotonic() + 30
    while not hvd.poll(handle):
        assert time.monotonic() < end
        threading.Event().wait(0.001)
    assert hvd.synchronize(handle)[0] == hvd.size()


def test_memory_lives_until_its_operation_is_done(hvd: ModuleType) -> None:
    watched = []
    for index in range(50):
        mine = torch.full((2000,), float(index))
        watched.append(weakref.ref(mine.untyped_storage()))
        hvd.allreduce_async_(mine, name=f"dropped{index}")
        mine.data = torch.zeros(1)  # Its first memory is the operation's alone from now on.
        del mine
    kept = torch.ones(3)
    hvd.synchronize(hvd.allreduce_async_(kept, name="kept"))
    hvd.barrier()
    for _ in range(100):  # Each call lets go of some that are done.
        hvd.allreduce(torch.ones(1))
    gc.collect()
    assert sum(one() is not None for one in watched) < 5
    gathered = hvd.allgather(torch.full((500,), float(hvd.rank())))
    view = gathered[-500:]
    del gathered
    gc.collect()
    assert view.unique().tolist() == [hvd.size() - 1], "a view of a result holds it"


def test_threads_hand_in_at_the_same_time(hvd: ModuleType) -> None:
    wrong: list[str] = []

    def work(thread: int) -> None:
        for step in range(20):
            name = f"{thread}.{step}"
            total = hvd.allreduce(torch.full((10,), float(step)), name=name, op=hvd.Sum)
            if total.unique().tolist() != [step * hvd.size()]:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


class _Native:
    """An operation on a GPU as a handle sees it."""

    def __init__(self) -> None:
        self.waited: list[tuple] = []

    def done(self) -> bool:
        return False

    def wait(self, *arguments: object) -> bool:
        self.waited.append(arguments[1:])
        return True


@pytest.mark.parametrize("variable", ["HORO_ASYNC_COMPLETION", "HOROVOD_ENABLE_ASYNC_COMPLETION"])
def test_where_asked_for_the_stream_waits_for_results_on_a_gpu(
    hvd: ModuleType, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    from horo.handles import Handle
    from horo.torch import tensors

    monkeypatch.setattr(tensors, "current_stream", lambda device: 70 + device)
    native = _Native()
    hvd.synchronize(Handle(native, lambda _: None, 1))
    monkeypatch.setenv(variable, "1")
    hvd.synchronize(Handle(native, lambda _: None, 1))
    hvd.synchronize(Handle(native, lambda _: None))
    monkeypatch.setenv(variable, "0")
    hvd.synchronize(Handle(native, lambda _: None, 1))
    assert native.waited == [(), (71,), (), ()]
