"""The operations, on NumPy arrays.

Every operation has a form that waits and one that returns a handle (``_async``) for poll() and synchronize(). They are
handed in in any order, from any thread; the ranks know them by their names. Unnamed ones are counted, so they have to
come in the same order on all ranks. Arrays must not be written until their operation is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horo import _horo
from horo.arrays import ArrayAdapter, as_input, result_array
from horo.collectives import Average, Collectives, Given, Sum
from horo.handles import Handle
from horo.process_sets import ProcessSet, global_process_set
from horo.world import world

if TYPE_CHECKING:
    import numpy as np

_adapter = ArrayAdapter()
_NOTHING = Given(None, _horo.DTYPES["uint8"], (0,), 0)
_now = Collectives(_adapter, wait=True)
_later = Collectives(_adapter, wait=False)

allreduce = _now.allreduce
allreduce_ = _now.allreduce_
allreduce_async = _later.allreduce
allreduce_async_ = _later.allreduce_
grouped_allreduce = _now.grouped_allreduce
grouped_allreduce_ = _now.grouped_allreduce_
grouped_allreduce_async = _later.grouped_allreduce
grouped_allreduce_async_ = _later.grouped_allreduce_
allgather = _now.allgather
allgather_async = _later.allgather
grouped_allgather = _now.grouped_allgather
grouped_allgather_async = _later.grouped_allgather
broadcast = _now.broadcast
broadcast_ = _now.broadcast_
broadcast_async = _later.broadcast
broadcast_async_ = _later.broadcast_
alltoall_async = _later.alltoall
reducescatter = _now.reducescatter
reducescatter_async = _later.reducescatter
grouped_reducescatter = _now.grouped_reducescatter
grouped_reducescatter_async = _later.grouped_reducescatter


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """(output, received_splits) with `splits`, output without."""
    output, received = _now.alltoall(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def sparse_allreduce_async(
    indices: Any,
    values: Any,
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Rows `values` at `indices` of all ranks, one below the other; an index may come several times, its rows add up.
    With Average, the default, the values are divided by the number of ranks. Gives (indices, values)."""
    reduction = Average if op is None else op
    if reduction not in (Average, Sum):
        raise ValueError("a sparse allreduce has Average and Sum only")
    where, what = as_input(indices), as_input(values)
    if where.ndim != 1 or what.ndim == 0 or len(where) != len(what):
        raise ValueError(f"a sparse allreduce needs one index per row, not {where.shape} for {what.shape}")
    members = process_set.size() if reduction == Average else 1

    def read(native: _horo.Handle) -> tuple[np.ndarray, np.ndarray]:
        rows = result_array(native, 1, what.dtype)
        if members > 1:
            rows[...] = rows / members  # Integers are cut off, as everywhere.
        return result_array(native, 0, where.dtype), rows

    given = [_adapter.take(one, "allgather") for one in (where, what)]
    return _later.hand_in("allgather", given, name, process_set, grouped=True, read=read)


def sparse_allreduce(
    indices: Any,
    values: Any,
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[np.ndarray, np.ndarray]:
    return sparse_allreduce_async(indices, values, name, op, process_set).wait()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks of the set are here."""
    _now.hand_in("barrier", [_NOTHING], None, process_set, read=lambda _: None)


def join(device: int = -1) -> int:
    """This rank has no more data: it takes part in the reductions of the others with data that changes nothing, until
    all ranks have joined. Returns the last rank that did. `device` is accepted and not used."""
    last = Handle(world.runtime.join(0), lambda native: native.answer()).wait()
    world.forget_names(0)
    return last
