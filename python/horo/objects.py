"""Python objects from rank to rank. They are pickled: the ranks of a job trust each other, and prove who they are."""

from __future__ import annotations

import io
import pickle
from typing import Any

from horo.basics import rank
from horo.operations import allgather, broadcast_
from horo.pickling import dumps
from horo.process_sets import ProcessSet, global_process_set
from horo.world import world


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The object of `root_rank`, a rank of the job."""
    import numpy as np

    base = world.name("broadcast_object", name, process_set.number())
    is_root = rank() == root_rank
    data = np.frombuffer(bytearray(dumps(obj)), np.uint8) if is_root else np.empty(0, np.uint8)
    size = broadcast_(np.array([data.size], np.int64), root_rank, f"{base}.sz", process_set)
    if not is_root:
        data = np.empty(int(size[0]), np.uint8)
    broadcast_(data, root_rank, f"{base}.t", process_set)
    return obj if is_root else pickle.loads(data.data)


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, in the order of the ranks."""
    import numpy as np

    base = world.name("allgather_object", name, process_set.number())
    data = np.frombuffer(dumps(obj), np.uint8)
    sizes = allgather(np.array([data.size], np.int64), f"{base}.sz", process_set)
    everything = io.BytesIO(allgather(data, f"{base}.t", process_set).data)
    return [pickle.loads(everything.read(int(size))) for size in sizes]
