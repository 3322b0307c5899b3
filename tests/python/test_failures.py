"""What goes wrong, and what must go on."""
# ruff: noqa: PT017, PT018  Ranks run these functions as programs, without pytest.

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import weakref

import jobs
import numpy as np

import horo


def disagree() -> None:
    horo.init()
    rank = horo.rank()
    for tensor in (np.ones(4 + (rank == 1)), np.ones(4, np.float32 if rank == 1 else np.float64)):
        try:
            horo.allreduce(tensor, name="w")
        except horo.HorovodInternalError as error:
            assert error.code == "mismatch" and "'allreduce.w'" in str(error) and "rank 1" in str(error), error
        else:
            raise AssertionError("no error")
        assert (tensor == 1).all()
    assert isinstance(horo.HorovodInternalError(), RuntimeError)
    assert list(horo.allreduce(np.ones(2), name="w", op=horo.Sum)) == [3, 3], "the job goes on"
    horo.barrier()


def test_ranks_that_disagree_all_get_the_error_and_go_on() -> None:
    jobs.run(3, disagree)


def come_again() -> None:
    """Rank 0 gives up before rank 1 has come, and is let in the second time."""
    import tempfile

    marker = os.path.join(tempfile.gettempdir(), os.environ["HORO_JOB_ID"])
    if os.environ["HORO_RANK"] == "0":
        os.environ["HORO_TIMEOUT"] = "300ms"
        try:
            horo.init()
        except horo.InitializationError as error:
            assert error.code == "timeout" and "rank 1 of 2 did not join" in str(error), error
        else:
            raise AssertionError("rank 1 had not come")
        assert not horo.is_initialized()
        del os.environ["HORO_TIMEOUT"]
        open(marker, "w").close()
    else:
        while not os.path.exists(marker):
            threading.Event().wait(0.01)
    horo.init()
    assert list(horo.allreduce(np.ones(2), op=horo.Sum)) == [2, 2]
    if horo.rank() == 0:
        os.remove(marker)


def test_init_can_be_repeated_after_it_has_failed() -> None:
    jobs.launch(2, come_again)


def duplicate_name() -> None:
    horo.init()
    if horo.rank() == 0:
        first = horo.allreduce_async(np.ones(2), name="x", op=horo.Sum)
        for call in (
            lambda: horo.allreduce(np.ones(2), name="x"),
            lambda: horo.allreduce_async_(np.ones(2), name="x"),
        ):
            try:
                call()
            except ValueError as error:
                assert "allreduce.x" in str(error)
            else:
                raise AssertionError("no error")
        horo.barrier()
        assert list(first.wait()) == [2, 2]
    else:
        horo.barrier()
        horo.allreduce(np.ones(2), name="x", op=horo.Sum)
    horo.barrier()


def test_a_name_in_use_is_a_value_error() -> None:
    jobs.run(2, duplicate_name)


def asynchronous() -> None:
    horo.init()
    # The other rank hands "late" in only after this one has been seen not to be done: it cannot be, whoever is fast.
    if horo.rank() == 0:
        late = horo.allreduce_async(np.ones(3_000_000, np.float32), name="late", op=horo.Sum)
        assert not horo.poll(late)
        horo.barrier()
        while not horo.poll(late):
            threading.Event().wait(0.001)
        assert horo.synchronize(late)[-1] == 2 and horo.synchronize(late)[0] == 2, "twice"
    else:
        horo.barrier()
        horo.allreduce(np.ones(3_000_000, np.float32), name="late", op=horo.Sum)
    # Any order, and nobody holds the arrays.
    names = [f"t{index}" for index in range(50)]
    if horo.rank() == 1:
        names.reverse()
    handles = {}
    for name in names:
        handles[name] = horo.allreduce_async(np.full(1000, int(name[1:]), np.int64), name=name, op=horo.Sum)
    for name, handle in handles.items():
        assert (horo.synchronize(handle) == 2 * int(name[1:])).all()
    # Dropped handles finish too, and hold their arrays until then.
    for index in range(200):
        horo.allreduce_async_(np.full(5000, index), name=f"dropped{index}")
    horo.barrier()


def test_asynchronous_operations_are_asynchronous_and_meet_in_any_order() -> None:
    jobs.run(2, asynchronous)


def threads() -> None:
    horo.init()
    wrong = []

    def work(thread: int) -> None:
        for step in range(50):
            total = horo.allreduce(np.full(10, thread * 100 + step), name=f"{thread}.{step}", op=horo.Sum)
            if (total != 2 * (thread * 100 + step)).any():
                wrong.append((thread, step))

    workers = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    horo.barrier()


def test_eight_threads_at_once() -> None:
    jobs.run(2, threads)


def joins() -> None:
    horo.init()
    rank = horo.rank()
    for _ in range(rank * 2):
        total = horo.allreduce(np.ones(2), op=horo.Sum)
        assert 1 <= total[0] <= horo.size()
    last = horo.join()
    assert last == horo.size() - 1
    assert horo.allreduce(np.ones(1), op=horo.Sum)[0] == horo.size(), "unnamed operations meet again"
    horo.barrier()


def test_a_rank_without_data_joins() -> None:
    jobs.run(3, joins)


def process_sets() -> None:
    outer = horo.ProcessSet([0, 2])
    horo.init(process_sets=[outer])
    rank = horo.rank()
    assert outer.process_set_id == 1 and outer.ranks == [0, 2] and outer.size() == 2
    assert outer.included() == (rank != 1)
    assert horo.global_process_set.ranks == [0, 1, 2] and horo.global_process_set.rank() == rank
    if rank != 1:
        assert outer.rank() == rank // 2
        assert horo.allreduce(np.ones(1), op=horo.Sum, process_set=outer)[0] == 2
        assert horo.broadcast(np.array([rank]), 2, process_set=outer)[0] == 2
        assert horo.allgather_object(rank, process_set=outer) == [0, 2]
    else:
        try:
            horo.allreduce(np.ones(1), process_set=outer)
        except ValueError as error:
            assert "rank 1 is not in process set 1" in str(error)
        else:
            raise AssertionError("no error")
    pair = horo.add_process_set([1, 2])
    try:
        horo.add_process_set([2, 1])
    except ValueError as error:
        assert "already" in str(error)
    else:
        raise AssertionError("no error")
    if rank:
        assert horo.allreduce(np.ones(1), op=horo.Sum, process_set=pair)[0] == 2
    assert horo.remove_process_set(pair) and not horo.remove_process_set(pair)
    assert pair.process_set_id is None
    assert horo.allreduce(np.ones(1), op=horo.Sum)[0] == 3
    horo.barrier()


def test_process_sets_come_and_go() -> None:
    jobs.run(3, process_sets)


def killed() -> None:
    horo.init()
    try:
        horo.barrier()  # In which the others may still be when one is through.
        if horo.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            horo.allreduce(np.ones(1000))
    except horo.HorovodInternalError as error:
        assert error.code == "peer-lost" and 1 in error.lost_ranks, error


def test_a_killed_rank_is_an_error_of_the_others() -> None:
    job = jobs.start(3, killed)
    codes = job.wait()
    assert codes == [0, -signal.SIGKILL, 0], job.outputs


def leave_with_work() -> None:
    horo.init()
    if horo.rank() == 0:
        horo.barrier()
        handles = [horo.allreduce_async(np.ones(100_000), name=f"never{index}") for index in range(20)]
        assert not horo.poll(handles[0])
        sys.exit(3)  # The exit hook says goodbye.
    try:
        horo.barrier()  # In which this rank may still be when the other is through.
        horo.allreduce(np.ones(1), name="alone")
    except horo.HorovodInternalError as error:
        print("rank 1 knows:", error.code)


def test_a_rank_can_exit_with_work_in_flight() -> None:
    job = jobs.start(2, leave_with_work)
    begin = time.monotonic()
    assert job.wait() == [3, 0], job.outputs
    assert "rank 1 knows: peer-lost" in job.outputs[1], job.outputs
    assert time.monotonic() - begin < 20


def raise_with_work() -> None:
    horo.init()
    with contextlib.suppress(horo.HorovodInternalError):  # The other may have ended before.
        horo.barrier()
        horo.allreduce_async(np.ones(100_000), name=f"never{horo.rank()}")
    if horo.rank() == 0:
        os._exit(4)
    raise ValueError("unhandled")


def test_ranks_that_end_hard_or_raise_do_not_hang() -> None:
    job = jobs.start(2, raise_with_work)
    assert job.wait() == [4, 1]
    assert "ValueError: unhandled" in job.outputs[1]


def interrupted() -> None:
    horo.init()
    horo.barrier()
    if horo.rank() == 0:
        handle = horo.allreduce_async(np.ones(10), name="late", op=horo.Sum)
        try:
            print("waiting")
            horo.synchronize(handle)
        except KeyboardInterrupt:
            print("interrupted")
        assert not horo.poll(handle)
        horo.barrier()
        assert horo.synchronize(handle)[0] == 2, "it goes on"
    else:
        horo.barrier()
        horo.allreduce(np.ones(10), name="late", op=horo.Sum)
    horo.barrier()


def test_ctrl_c_ends_the_waiting_and_not_the_operation() -> None:
    job = jobs.start(2, interrupted)
    try:
        assert job.line(0) == "waiting"
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.line(0) == "interrupted"
    finally:
        codes = job.wait()
    assert codes == [0, 0], job.outputs


def interrupted_without_a_handle() -> None:
    alone = horo.ProcessSet([0])
    horo.init(process_sets=[alone])
    horo.barrier()
    if horo.rank() == 0:
        array = np.ones(1_000_000)
        watched = weakref.ref(array)

        def tell() -> None:
            while "allreduce" not in horo.metrics()["process_sets"][0]["operations"]:
                threading.Event().wait(0.001)
            print("waiting")

        threading.Thread(target=tell).start()
        try:
            horo.allreduce_(array, name="late", op=horo.Sum)
        except KeyboardInterrupt:
            print("interrupted")
        del array
        assert watched() is not None, "the operation has it, which goes on"
        horo.barrier()
        horo.allreduce(np.ones(1), name="late again", op=horo.Sum)
        deadline = time.monotonic() + 30
        while watched() is not None:  # Each call lets go of some that are done.
            assert time.monotonic() < deadline
            horo.allreduce(np.ones(1), process_set=alone)
    else:
        horo.barrier()
        horo.allreduce(np.ones(1_000_000), name="late", op=horo.Sum)
        horo.allreduce(np.ones(1), name="late again", op=horo.Sum)
    horo.barrier()


def test_ctrl_c_in_a_call_that_waits_leaves_the_memory_to_the_operation() -> None:
    job = jobs.start(2, interrupted_without_a_handle)
    try:
        assert job.line(0) == "waiting"
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.line(0) == "interrupted"
    finally:
        codes = job.wait()
    assert codes == [0, 0], job.outputs


def cycles() -> None:
    for cycle in range(200):
        horo.init()
        assert horo.allreduce(np.array([cycle]), op=horo.Sum)[0] == 2 * cycle
        horo.shutdown()
    try:
        horo.size()
    except ValueError:
        print("done")


def test_two_hundred_starts_in_one_process() -> None:
    assert jobs.launch(2, cycles, seconds=120).count("done") == 2


def forks() -> None:
    horo.init()
    horo.barrier()
    child = os.fork()
    if child == 0:
        try:
            horo.allreduce(np.ones(1))
        except horo.HorovodInternalError as error:
            sys.exit(0 if error.code == "forked" else 5)
        sys.exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert horo.allreduce(np.ones(1), op=horo.Sum)[0] == 2
    horo.barrier()


def test_a_forked_child_is_refused_and_its_end_is_not_the_ranks() -> None:
    jobs.run(2, forks)


def alone() -> None:
    try:
        horo.init()
    except ValueError as error:
        assert "Horovod initialization failed" in str(error), error
        assert isinstance(error, horo.HorovodInternalError)
        assert not horo.is_initialized()
        print("refused")


def test_a_job_that_does_not_come_together_is_a_value_error() -> None:
    assert "refused" in jobs.run(1, alone, HORO_SIZE="2", HORO_TIMEOUT="1s")[0]


def interrupted_start() -> None:
    try:
        print("starting")
        horo.init()
    except KeyboardInterrupt:
        assert not horo.is_initialized()
        print("interrupted")


def test_ctrl_c_ends_the_waiting_for_ranks_that_do_not_come() -> None:
    job = jobs.start(1, interrupted_start, HORO_SIZE="2", HORO_TIMEOUT="30s")
    begin = time.monotonic()
    try:
        assert job.line(0) == "starting"
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.line(0) == "interrupted"
    finally:
        codes = job.wait()
    assert codes == [0], job.outputs
    assert time.monotonic() - begin < 15
