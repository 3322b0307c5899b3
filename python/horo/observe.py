"""Looking at a running job: its timeline and its metrics."""

from __future__ import annotations

import os
from typing import Any

from horo._horo import KINDS
from horo.exceptions import HorovodInternalError
from horo.world import world

# What a process set has; the other kinds are of ordered groups.
_NAMED = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier")


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Writes a timeline (Chrome trace) from now on; the file can be read at any time.

    `file_path` is rank 0's file; rank 3 turns "t.json" into "t.rank3.json". Ranks that do not call it write none.
    Another timeline is finished first. HOROVOD_TIMELINE=DYNAMIC is understood and not needed. OSError: the file cannot
    be written.
    """
    try:
        world.runtime.start_timeline(os.fspath(file_path), mark_cycles)
    except HorovodInternalError as error:
        if error.code == "unavailable":
            raise OSError(str(error)) from None
        raise


def stop_timeline() -> None:
    """The file is complete afterwards. Nothing happens when none is written."""
    world.runtime.stop_timeline()


def metrics() -> dict[str, Any]:
    """What this rank has done since init(), in numbers: by process set, and there by operation.

    `metrics()["process_sets"][0]["operations"]["allreduce"]["bytes"]`, for one. Operations that were never used are
    left out. docs/metrics.md explains every number.
    """
    runtime = world.runtime
    sets: dict[int, dict[str, Any]] = {}
    for number in runtime.set_numbers():
        operations: dict[str, Any] = {}
        for name in _NAMED:
            numbers = runtime.operation_metrics(KINDS[name], number)
            if numbers["handed_in"] > 0 or numbers["batches"] > 0:
                operations[name] = numbers
        sets[number] = {**runtime.set_metrics(number), "operations": operations}
    return {"rank": runtime.rank(), "size": runtime.size(), "process_sets": sets}


def metrics_text() -> str:
    """The same in the format of Prometheus."""
    return world.runtime.metrics_text()
