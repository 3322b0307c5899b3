"""How groups of the back end horo begin and end. Forks the ranks of each case off one process that has imported torch.

python distributed_life.py FOLDER [case ...]    # Says "ok CASE" for each.
"""

# ruff: noqa: PT017  Ranks run these functions without pytest.

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import jobs
import torch
import torch.distributed as dist

import horo.torch

LIMIT_SECONDS = 60
CASES: dict[str, tuple[Callable[[int, int, str], None], int, list[int]]] = {}


def case(ranks: int, codes: list[int] | None = None) -> Callable:
    """Of so many ranks, which end with these codes (0 otherwise)."""

    def add(body: Callable[[int, int, str], None]) -> Callable[[int, int, str], None]:
        CASES[body.__name__] = (body, ranks, codes or [0] * ranks)
        return body

    return add


@contextlib.contextmanager
def fails(*words: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("it went on")


def join(where: str, rank: int, size: int, **arguments: object) -> None:
    dist.init_process_group("horo", init_method=where, rank=rank, world_size=size, **arguments)


def join_at(store: dist.Store, rank: int, size: int) -> None:
    dist.init_process_group("horo", store=store, rank=rank, world_size=size)


def lasting_store(where: str, size: int) -> dist.Store:
    """For groups that are made one after the other: a file of torch's is deleted when the last one closes it, even if
    somebody has just opened it for the next group."""
    return dist.FileStore(where.removeprefix("file://"), size)


@case(2)
def a_group_is_destroyed_and_made_again_at_the_same_place(rank: int, size: int, where: str) -> None:
    store = lasting_store(where, size)
    for _ in range(3):
        join_at(store, rank, size)
        value = torch.ones(1)
        dist.all_reduce(value)
        assert value == size
        group = dist.new_group([0, 1])
        dist.barrier(group)
        dist.destroy_process_group()
        assert not dist.is_initialized()
        with fails("destroyed"):
            group.barrier()


@case(2)
def it_stands_beside_another_back_end_and_horo_itself(rank: int, size: int, where: str) -> None:
    import horo

    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
    first, second = dist.new_group(backend="horo"), dist.new_group([0, 1], backend="horo")
    assert first.engine is not second.engine
    port = [jobs.free_port()] if rank == 0 else [0]
    dist.broadcast_object_list(port, 0)
    os.environ.update(HORO_RANK=str(rank), HORO_SIZE=str(size), HORO_STORE=f"127.0.0.1:{port[0]}")
    horo.init()
    value = torch.full((1000,), float(rank))
    work = dist.all_reduce(value, group=first, async_op=True)
    horo.allreduce(value.numpy() * 0, name="named")
    work.wait()
    dist.all_reduce(value, group=second)
    dist.all_reduce(value)
    assert (value == 4).all(), value
    horo.shutdown()
    dist.destroy_process_group()


@case(2)
def hosts_that_differ_meet_at_an_address_of_rank_0(rank: int, size: int, where: str) -> None:
    os.environ.update(HORO_HOST_ID=f"host{rank}", HORO_INTERFACE="lo")
    join(where, rank, size)
    value = torch.ones(5)
    dist.all_reduce(value)
    assert (value == size).all()
    assert dist.group.WORLD.native_group.transport() == "tcp"
    got = torch.zeros(100_000)
    if rank == 0:
        dist.send(torch.ones(100_000), 1)
    else:
        dist.recv(got, 0)
        assert (got == 1).all()
    dist.destroy_process_group()


@case(2)
def an_interface_that_is_not_there_is_an_error(rank: int, size: int, where: str) -> None:
    os.environ.update(HORO_HOST_ID=f"host{rank}", HORO_INTERFACE="no-such-interface")
    store = lasting_store(where, size)
    store.set_timeout(timedelta(seconds=1))
    try:
        dist.init_process_group("horo", store=store, rank=rank, world_size=size)
    except (ValueError, RuntimeError) as error:
        assert rank == 1 or "no-such-interface" in str(error), error
    else:
        raise AssertionError("it went on")


@case(2)
def the_key_is_taken_out_of_the_store(rank: int, size: int, where: str) -> None:
    store = lasting_store(where, size)
    dist.init_process_group("horo", store=store, rank=rank, world_size=size)
    dist.barrier()
    prefixes = [
        f"{first}{second}" for first in ("", "default_pg/", "default_pg//") for second in ("", "0/", "0//cpu//")
    ]
    here = [prefix for prefix in prefixes if store.check([f"{prefix}horo/came"])]
    assert here, "where does torch put the keys of a group?"
    assert not any(store.check([f"{prefix}horo/0/meeting"]) for prefix in here)
    dist.destroy_process_group()


@case(3, [-signal.SIGKILL, 0, 0])
def a_killed_rank_ends_collectives_and_messages_of_the_others(rank: int, size: int, where: str) -> None:
    join(where, rank, size)
    try:
        dist.barrier()
    except RuntimeError as error:  # The others may still be in it when rank 0 is through, and gone.
        assert rank != 0, error
        assert "rank 0" in str(error), error
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    for wait in (
        lambda: dist.all_reduce(torch.ones(10)),
        lambda: dist.recv(torch.ones(1), 0),
        lambda: dist.recv(torch.ones(1), tag=9),
        lambda: dist.send(torch.ones(1_000_000), 0),
        lambda: dist.all_reduce(torch.ones(10), async_op=True).get_future().wait(),
    ):
        with fails("rank 0"):
            wait()
    assert time.monotonic() - began < 5
    # Messages of the others go on.
    got = torch.zeros(1)
    if rank == 1:
        dist.send(torch.ones(1), 2)
    else:
        dist.recv(got, 1)
        assert got == 1
    dist.destroy_process_group()


@case(2)
def what_takes_too_long_ends_with_the_timeout_of_its_group(rank: int, size: int, where: str) -> None:
    join(where, rank, size, timeout=timedelta(seconds=30))
    quick = dist.new_group(timeout=timedelta(seconds=0.3))
    dist.barrier()
    if rank == 0:
        for wait in (
            lambda: dist.recv(torch.ones(1), 1, group=quick),
            lambda: dist.all_reduce(torch.ones(1), group=quick),
        ):
            began = time.monotonic()
            with fails("Timed out"):
                wait()
            assert 0.2 < time.monotonic() - began < 10
    dist.barrier()
    dist.destroy_process_group()


@case(2)
def an_aborted_group_ends_on_all_ranks_and_is_made_again(rank: int, size: int, where: str) -> None:
    from torch.distributed import distributed_c10d as c10d

    store = lasting_store(where, size)
    join_at(store, rank, size)
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        c10d._abort_process_group()
        with fails():
            work.wait()
    else:
        with fails():
            dist.recv(torch.ones(1), 0)
        c10d._abort_process_group()
    join_at(store, rank, size)
    dist.barrier()
    dist.destroy_process_group()


@case(2)
def ctrl_c_ends_a_wait(rank: int, size: int, where: str) -> None:
    join(where, rank, size)
    dist.barrier()
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
        began = time.monotonic()
        try:
            dist.recv(torch.ones(1), 1)
        except KeyboardInterrupt:
            assert time.monotonic() - began < 5
        else:
            raise AssertionError("it came")
        dist.send(torch.ones(1), 1, tag=3)
    else:
        dist.recv(torch.ones(1), 0, tag=3)
    dist.destroy_process_group()


@case(3)
def a_rank_that_is_done_may_leave_while_others_talk(rank: int, size: int, where: str) -> None:
    join(where, rank, size)
    if rank == 0:
        dist.send(torch.ones(100_000), 1)
    else:
        got = torch.zeros(100_000)
        if rank == 1:
            dist.recv(got, 0)
        for step in range(20):
            if (step + rank) % 2:
                dist.send(got, 3 - rank)
            else:
                dist.recv(got, 3 - rank)
        assert (got == 1).all()
    dist.destroy_process_group()


@case(2)
def a_program_may_end_with_work_under_way(rank: int, size: int, where: str) -> None:
    join(where, rank, size)
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
    dist.irecv(torch.ones(1), 1 - rank).get_future()


@case(1)
def one_rank_is_a_group_too(rank: int, size: int, where: str) -> None:
    join(where, rank, size)
    value = torch.full((3,), 2.0)
    dist.all_reduce(value)
    dist.all_gather([value], value)
    dist.reduce_scatter_tensor(value, value.clone())
    dist.broadcast(value, 0)
    dist.barrier()
    objects = [None]
    dist.all_gather_object(objects, 5)
    horo.torch.monitored_barrier()
    assert value.tolist() == [2.0] * 3
    dist.destroy_process_group()


def fork(body: Callable[[int, int, str], None], rank: int, size: int, where: str) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(LIMIT_SECONDS)
        body(rank, size, where)
        code = 0
    except BaseException:
        traceback.print_exc()
    # As the interpreter does at its end, which a forked child leaves out.
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> int:
    folder, wanted = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    torch.set_num_threads(1)
    failures = 0
    for number, name in enumerate(wanted):
        body, size, codes = CASES[name]
        began = time.monotonic()
        children = [fork(body, rank, size, f"file://{folder}/store{number}") for rank in range(size)]
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        good = ended == codes
        failures += not good
        print("ok" if good else f"FAILED with {ended}", name, f"{time.monotonic() - began:.2f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
