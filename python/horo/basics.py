"""Joining the job, and who this process is in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from horo import _horo
from horo.communicators import is_communicator
from horo.process_sets import (
    ProcessSet,
    enter_sets_of_communicators,
    enter_static_sets,
    follow_reform,
    leave_all_sets,
)
from horo.world import world


def init(
    comm: Any | Sequence[int] | Sequence[Any] | None = None, process_sets: Sequence[ProcessSet] | str | None = None
) -> None:
    """Joins the job and waits until all ranks have. Does nothing when that has been done.

    `process_sets` exist from the start and are the same on all ranks; "dynamic" is understood and not needed, since
    process sets can always be added.

    `comm` chooses the processes of the job: a communicator of mpi4py, or a list of ranks among all processes, whose
    order is that of the new ranks; only those processes call init() with it. Of a list of communicators the first is
    the job, and the others are process sets.
    """
    if isinstance(process_sets, str):
        if process_sets != "dynamic":
            raise ValueError(f"process_sets is a list of ProcessSet or 'dynamic', not {process_sets!r}")
        process_sets = None
    sets = list(process_sets or [])
    communicator, ranks, more = _members(comm)
    sets = [ProcessSet(one) for one in more] + sets
    if any(one.mpi_comm is not None for one in sets):
        if world.start([], communicator, ranks):
            enter_sets_of_communicators(sets)
    elif world.start([one.wanted_ranks() for one in sets], communicator, ranks):
        enter_static_sets(sets)


def _members(comm: Any | Sequence[Any] | None) -> tuple[Any | None, list[int], list[Any]]:
    """The job's communicator or its ranks, and further communicators."""
    if comm is None or is_communicator(comm):
        return comm, [], []
    try:
        chosen = list(comm)
    except TypeError:
        chosen = []
    if chosen and all(is_communicator(one) for one in chosen):
        return chosen[0], [], chosen[1:]
    if chosen and all(isinstance(one, int) for one in chosen):
        return None, chosen, []
    raise ValueError(f"comm is a communicator of mpi4py, a list of them, or a list of ranks, not {comm!r}")


def shutdown() -> None:
    """Leaves the job. What is under way fails. Also called at the end of the process."""
    world.shutdown()
    leave_all_sets()


def reform(timeout: float = 600.0) -> None:
    """Goes on without the ranks that are gone, in place: no process restarts, nothing connects again.

    All survivors call it when their operations have failed because of a lost rank, and have `timeout` seconds to come.
    They are numbered anew in the order of their ranks: rank(), size() and the places on hosts change. Process sets that
    have lost a rank are over; the others go on. Without a loss the same ranks begin anew.
    """
    world.reform(timeout)
    follow_reform()


def is_initialized() -> bool:
    return world.initialized


def rank() -> int:
    return world.runtime.rank()


def size() -> int:
    return world.runtime.size()


def local_rank() -> int:
    """This rank's place among the ranks of its host."""
    return world.runtime.local_rank()


def local_size() -> int:
    return world.runtime.local_size()


def cross_rank() -> int:
    """This rank's place among the ranks with the same local rank, one per host."""
    return world.runtime.cross_rank()


def cross_size() -> int:
    return world.runtime.cross_size()


def mpi_threads_supported() -> bool:
    """Whether MPI may be called by several threads at once. Raises ValueError where MPI is not enabled."""
    runtime = world.runtime
    if not runtime.mpi_enabled():
        raise ValueError("MPI is not enabled: the ranks of this job did not meet through it")
    return runtime.mpi_threads()


def mpi_enabled() -> bool:
    """Whether the ranks of this job met through MPI, as those do that mpirun started."""
    return world.runtime.mpi_enabled()


def mpi_built() -> bool:
    """Whether horo's plugin for MPI is installed. The MPI library itself is opened when it is needed."""
    return _horo.mpi_built()


def gloo_enabled() -> bool:
    """False: horo has a controller of its own."""
    world.runtime  # noqa: B018
    return False


def gloo_built() -> bool:
    return False


def nccl_built() -> int:
    """NCCL's version code where it is loaded (frameworks that use it have done so), 1 where it is only found, or 0."""
    words, usable = _horo.devices()
    found = re.search(r"^NCCL: (?:(\d+) \(|/)", words, re.MULTILINE)
    if not usable or found is None:
        return 0
    return int(found[1] or 1)


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    """Whether operations on CUDA tensors can run here; `horo check` says what is missing."""
    return _horo.devices()[1]


def rocm_built() -> bool:
    return False


def is_homogeneous() -> bool:
    """Whether all hosts have equally many ranks."""
    return world.runtime.is_homogeneous()
