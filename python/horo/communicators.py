"""Communicators of mpi4py, which horo takes without importing it: as numbers that every MPI library can read."""

from __future__ import annotations

import sys
from typing import Any


def is_communicator(value: object) -> bool:
    return callable(getattr(value, "py2f", None)) and callable(getattr(value, "Get_group", None))


def handle_of(communicator: Any) -> int:
    """As Fortran knows it, and so any library: MPI_Comm_f2c."""
    return int(communicator.py2f())


def ranks_among(communicator: Any, job: Any | None) -> list[int]:
    """The members' ranks in the job, whose communicator is `job`; None: all processes."""
    mpi = sys.modules[type(communicator).__module__]
    group, of_job = communicator.Get_group(), (job or mpi.COMM_WORLD).Get_group()
    try:
        ranks = [int(rank) for rank in mpi.Group.Translate_ranks(group, list(range(group.Get_size())), of_job)]
    finally:
        group.Free()
        of_job.Free()
    if mpi.UNDEFINED in ranks:
        raise ValueError("a process set's communicator has members that are not in the job's communicator")
    return sorted(ranks)
