"""Ranks that mpirun of Open MPI and mpiexec of MPICH start: the real ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import jobs
import launched
import numpy as np
import pytest

import horo


def computes() -> None:
    """Every operation and the elements that MPI does not know, against what they must be."""
    horo.init()
    rank, size = horo.rank(), horo.size()
    assert (horo.local_rank(), horo.local_size()) == (rank, size)
    assert horo.mpi_built()
    assert horo.mpi_enabled()
    assert horo.mpi_threads_supported()
    total = size * (size + 1) // 2
    for dtype in (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64, np.complex64):
        mine = np.full((3, 7), rank + 1, dtype)
        assert (horo.allreduce(mine, op=horo.Sum) == total).all(), dtype
        assert (mine == rank + 1).all()
    big = np.arange(1 << 18, dtype=np.float32) * (rank + 1)
    assert np.allclose(horo.allreduce(big, op=horo.Average), np.arange(1 << 18) * total / size)
    assert np.allclose(
        horo.allreduce(big, op=horo.Sum, prescale_factor=0.5, postscale_factor=4.0), big / (rank + 1) * total * 2
    )
    nan = np.array([np.nan if rank == 0 else 1.0, rank])
    assert np.isnan(horo.allreduce(nan, op=horo.Max)[0])
    assert horo.allreduce(nan, op=horo.Max)[1] == size - 1
    assert horo.allreduce(nan, op=horo.Min)[1] == 0
    assert horo.allreduce(np.array([2.0]), op=horo.Product)[0] == 2.0**size
    assert (horo.broadcast(np.full(5, rank), root_rank=size - 1) == size - 1).all()
    rows = horo.allgather(np.full((rank + 1, 2), rank))
    assert rows[:, 0].tolist() == [other for other in range(size) for _ in range(other + 1)]
    parts, splits = horo.alltoall(np.repeat(np.arange(size), 2) + 10 * rank, splits=[2] * size)
    assert parts.tolist() == [rank + 10 * other for other in range(size) for _ in range(2)]
    assert list(splits) == [2] * size
    assert (horo.reducescatter(np.ones((size, 3)), op=horo.Sum) == size).all()
    handles = [horo.allreduce_async(np.full(100, rank + i), name=f"many.{i}", op=horo.Sum) for i in range(20)]
    for i, handle in enumerate(handles):
        assert (horo.synchronize(handle) == sum(range(size)) + size * i).all()
    even = horo.add_process_set([other for other in range(size) if other % 2 == 0])
    if even.included():
        assert (horo.allreduce(np.ones(3), op=horo.Sum, process_set=even) == even.size()).all()
    horo.remove_process_set(even)
    horo.barrier()
    plane = "mpi" if os.environ.get("HOROVOD_CPU_OPERATIONS") == "MPI" else "shm"
    print(f"rank {rank} of {size} is done over {plane}", flush=True)


def disagrees() -> None:
    """MPI itself would hang, or mix up bytes, where ranks call different operations on an ordered group."""
    from horo.world import world

    rank, size = horo.rank(), horo.size()
    group = world.runtime.group(list(range(size)))
    assert group.transport() == "mpi"
    mine, result = np.full(100, rank + 1, np.float32), np.zeros(100, np.float32)
    allreduce, broadcast, f32 = 1, 7, 10
    calls = [
        {"count": 50 + rank, "words": "rank 0 calls allreduce of 50 f32, sum, rank 1 allreduce of 51 f32, sum"},
        {
            "kind": broadcast if rank == 0 else allreduce,
            "words": "rank 0 calls broadcast of 100 f32, root 0, rank 1 all",
        },
        {"postscale": 1.0 + rank, "words": "with other counts or factors"},
    ]
    for call in calls:
        words, kind = call.pop("words"), call.pop("kind", allreduce)
        found = None
        try:
            group.run(kind, mine.ctypes.data, result.ctypes.data, **{"dtype": f32, "op": 0, "count": 100, **call})
        except horo.HorovodInternalError as error:
            found = error
        assert found is not None, "nobody has noticed"
        assert found.code == "mismatch", found
        assert words in str(found), found
        group.run(allreduce, mine.ctypes.data, result.ctypes.data, dtype=f32, op=0, count=100)
        assert (result == size * (size + 1) // 2).all(), "the next one works"


def two_planes() -> None:
    """Both data planes in one start of the processes."""
    computes()
    horo.shutdown()
    os.environ["HOROVOD_CPU_OPERATIONS"] = "MPI"
    computes()
    disagrees()
    horo.shutdown()
    del os.environ["HOROVOD_CPU_OPERATIONS"]


def trains() -> None:
    import torch

    import horo.torch as hvd

    two_planes()
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    weights = hvd.allgather(model.weight.detach())
    assert (weights == weights[0]).all()
    print(f"rank {hvd.rank()} has trained", flush=True)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("family", launched.FAMILIES)
def test_ranks_of_mpirun_compute_the_same_with_either_data_plane(family: str, count: int) -> None:
    torch = count == 2 and find_spec("torch") is not None  # Which takes a while to import.
    body = (trains, two_planes, computes, disagrees) if torch else (two_planes, computes, disagrees)
    said = launched.mpirun(family, count, body, HORO_LOG_LEVEL="info")
    for rank in range(count):
        for plane in ("shm", "mpi"):
            assert f"rank {rank} of {count} is done over {plane}" in said
        assert not torch or f"rank {rank} has trained" in said
    assert "over mpi" in said
    assert "over shm" in said
    assert {"openmpi": "started by Open MPI", "mpich": "started by MPICH"}[family] in said


def splits() -> None:
    """mpi4py has initialised MPI; horo runs on halves of its processes, then on all of them with process sets."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    half = world.Split(world.rank % 2, -world.rank)
    horo.init(comm=half)
    assert (horo.rank(), horo.size()) == (half.rank, half.size)
    members = half.allgather(world.rank)
    assert horo.allreduce(np.array([float(world.rank)]), op=horo.Sum)[0] == sum(members)
    horo.shutdown()

    mine = horo.ProcessSet(half)
    horo.init(process_sets=[mine])
    assert (horo.rank(), horo.size()) == (world.rank, world.size)
    assert mine.ranks == sorted(members)
    assert mine.included()
    assert horo.allreduce(np.array([float(world.rank)]), op=horo.Sum, process_set=mine)[0] == sum(members)
    assert horo.allreduce(np.array([1.0]), op=horo.Sum)[0] == world.size
    horo.shutdown()
    horo.init(comm=[world, half])
    assert horo.size() == world.size
    horo.shutdown()

    chosen = [world.size - 1, 0]
    if world.rank in chosen:
        horo.init(comm=chosen)
        assert (horo.rank(), horo.size()) == (chosen.index(world.rank), 2)
        assert horo.allreduce(np.array([1.0]), op=horo.Sum)[0] == 2
        horo.shutdown()
    else:
        with contextlib.suppress(horo.HorovodInternalError, ValueError):
            horo.init(comm=chosen)
            raise AssertionError("it is not one of them")

    # MPI belongs to mpi4py, which ends it while horo runs on it: horo is shut down before.
    os.environ["HORO_CPU_OPERATIONS"] = "mpi"
    horo.init(comm=world)
    assert horo.allreduce(np.array([1.0]), op=horo.Sum)[0] == world.size
    horo.barrier()
    rank = world.rank
    MPI.Finalize()
    try:
        horo.allreduce(np.array([1.0]), op=horo.Sum)
    except horo.HorovodInternalError as error:
        print(f"rank {rank} is done: {error}", flush=True)


@pytest.mark.parametrize("family", launched.FAMILIES)
def test_communicators_of_mpi4py_are_jobs_and_process_sets(family: str) -> None:
    pytest.importorskip("mpi4py")
    with launched.mpi4py_finds(family) as settings:
        said = launched.mpirun(family, 4, splits, **settings)
    for rank in range(4):
        assert f"rank {rank} is done: " in said


def adds() -> None:
    horo.init()
    total = horo.allreduce(np.ones(1000), op=horo.Sum)
    assert (total == horo.size()).all()
    print(f"rank {horo.rank()} of {horo.size()} is done, {horo.mpi_enabled()}", flush=True)


def test_several_jobs_at_once_never_meet(tmp_path: Path) -> None:
    """Of both launchers, of torchrun and of horo run, all at the same time."""
    started_by_mpi = [launched.mpi_command(family, 2) for family in ("openmpi", "openmpi", "mpich")]
    # Two mpirun that start together race for the folder of their sessions, and one may give up: each has its own.
    for number in range(2):
        started_by_mpi[number] += ["--mca", "orte_tmpdir_base", str(tmp_path / str(number))]
    commands = [[*command, sys.executable, "-u"] for command in started_by_mpi]
    commands.append([jobs.launcher(), "run", "-np", "2", sys.executable, "-u"])
    commands += [[sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]] * 2
    with launched.script_file(adds) as path:
        started = [launched.start(command, path) for command in commands]
        outputs = [one.communicate(timeout=100)[0] for one in started]
    for one, said in zip(started, outputs, strict=True):
        assert one.returncode == 0, said
        for rank in range(2):
            assert f"rank {rank} of 2 is done" in said, said


def test_without_mpi_ranks_of_mpirun_meet_through_a_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"HORO_CONTROLLER": "horo", "TMPDIR": folder, "OMPI_MCA_orte_tmpdir_base": "/tmp"}
        said = launched.mpirun("openmpi", 2, adds, **settings)
    assert "rank 1 of 2 is done, False" in said


def test_what_is_missing_is_said() -> None:
    # Hydra tells nothing that a file could be named by.
    said = launched.mpirun("mpich", 2, adds, succeeds=False, HORO_CONTROLLER="horo")
    assert "set HORO_STORE" in said
    said = launched.mpirun("openmpi", 2, adds, succeeds=False, HORO_CONTROLLER="mpi", HORO_MPI_LIBRARY="/no/such.so")
    assert "no MPI library was found" in said
    assert "/no/such.so" in said
    both = {"HORO_MPI_THREADS_DISABLE": "1", "HORO_CPU_OPERATIONS": "mpi"}
    said = launched.mpirun("mpich", 2, adds, succeeds=False, **both)
    assert "MPI_THREAD_MULTIPLE" in said
    # A process that nobody has started as one of several.
    done = jobs.run(1, _alone, HORO_CPU_OPERATIONS="horo")
    assert "ValueError" in done[0]


def _alone() -> None:
    horo.init()
    assert horo.mpi_built()
    assert not horo.mpi_enabled()
    try:
        horo.mpi_threads_supported()
    except ValueError as error:
        print("ValueError", error)


def one_dies() -> None:
    os.environ["HORO_CPU_OPERATIONS"] = "mpi"
    horo.init()
    horo.allreduce(np.ones(10), op=horo.Sum)
    if horo.rank() == 1:
        raise SystemExit(3)
    horo.allreduce(np.ones(10), op=horo.Sum)


@pytest.mark.parametrize("family", launched.FAMILIES)
def test_a_rank_that_fails_ends_the_job(family: str) -> None:
    launched.mpirun(family, 2, one_dies, succeeds=False)


def test_horo_run_starts_ranks_through_mpirun() -> None:
    launched.mpi_command("openmpi", 1)
    with launched.script_file(adds) as path:
        done = subprocess.run(
            # As root here, and with more ranks than cores, to which mpirun alone says no.
            [jobs.launcher(), "run", "--mpi", "-np", "3", "--log-level", "INFO", sys.executable, "-u", path],
            env=launched.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1 of 3 is done, True" in done.stdout
    assert "ranks meet through" in done.stdout + done.stderr
