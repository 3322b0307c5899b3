"""Joining the job, and who this process is in it."""

from __future__ import annotations

from collections.abc import Sequence

from horo import _horo
from horo.process_sets import ProcessSet, enter_static_sets, follow_reform, leave_all_sets
from horo.world import world


def init(comm: None = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
    """Joins the job and waits until all ranks have. Does nothing when that has been done.

    `process_sets` exist from the start and are the same on all ranks; "dynamic" is understood and not needed, since
    process sets can always be added. There are no communicators to pass as `comm`.
    """
    if comm is not None:
        raise ValueError("horo has no MPI communicators; choose ranks with process_sets=[ProcessSet([...]), ...]")
    if isinstance(process_sets, str):
        if process_sets != "dynamic":
            raise ValueError(f"process_sets is a list of ProcessSet or 'dynamic', not {process_sets!r}")
        process_sets = None
    sets = list(process_sets or [])
    if world.start([one.wanted_ranks() for one in sets]):
        enter_static_sets(sets)


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
    """Raises ValueError, since there is no MPI to ask."""
    world.runtime  # noqa: B018  Without init() that is what is wrong.
    raise ValueError("MPI is not enabled: horo's ranks talk through shared memory and sockets of its own")


def mpi_enabled() -> bool:
    """False: horo has a controller of its own, also for ranks that mpirun started."""
    world.runtime  # noqa: B018
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    """False: horo has a controller of its own."""
    world.runtime  # noqa: B018
    return False


def gloo_built() -> bool:
    return False


def nccl_built() -> int:
    """NCCL's version code, or 0: this build has no operations on devices."""
    return 0


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
