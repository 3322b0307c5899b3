"""The operations, on NumPy arrays.

Every operation has a form that waits and one that returns a handle (``_async``) for poll() and synchronize(). They are
handed in in any order, from any thread; the ranks know them by their names. Unnamed ones are counted, so they have to
come in the same order on all ranks. Arrays must not be written until their operation is done.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from horo import _horo
from horo.arrays import address, as_input, as_output, dtype_number, result_array
from horo.handles import Handle
from horo.process_sets import ProcessSet, global_process_set
from horo.world import world

if TYPE_CHECKING:
    import numpy as np

# Horovod's numbers.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

_REDUCTIONS = {
    Average: _horo.REDUCTIONS["average"],
    Sum: _horo.REDUCTIONS["sum"],
    Adasum: _horo.REDUCTIONS["adasum"],
    Min: _horo.REDUCTIONS["min"],
    Max: _horo.REDUCTIONS["max"],
    Product: _horo.REDUCTIONS["product"],
}


def _reduction(average: bool | None, op: int | None) -> int:
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=4)
        op = Average if average else Sum
    if op is None:
        op = Average
    if op not in _REDUCTIONS:
        raise ValueError(f"there is no reduction {op!r}; use horo.Average, Sum, Adasum, Min, Max or Product")
    return _REDUCTIONS[op]


def _names(base: str, count: int) -> list[str]:
    return [f"{base}_{index}of{count}" for index in range(1, count + 1)]


def _submit(
    kind: str,
    inputs: Sequence[np.ndarray],
    name: str | None,
    process_set: ProcessSet,
    *,
    grouped: bool = False,
    outputs: Sequence[np.ndarray] | None = None,
    op: int = 0,
    root: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    splits: list[int] | None = None,
    read: Callable[[_horo.Handle], Any] | None = None,
) -> Handle:
    runtime = world.runtime
    number = process_set.number()
    if grouped and not inputs:
        raise ValueError(f"grouped_{kind} of no tensors")
    types = [dtype_number(array.dtype) for array in inputs]
    base = world.name(f"grouped_{kind}" if grouped else kind, name, number)
    names = _names(base, len(inputs)) if grouped else [base]
    tensors = [
        _horo.Tensor(
            names[index],
            _horo.KINDS[kind],
            types[index],
            op,
            root,
            prescale,
            postscale,
            list(array.shape),
            address(array),
            0 if outputs is None else address(outputs[index]),
            splits or [],
        )
        for index, array in enumerate(inputs)
    ]
    dtypes = [array.dtype for array in inputs]

    def results(native: _horo.Handle) -> Any:
        made = [result_array(native, index, dtype) for index, dtype in enumerate(dtypes)]
        return made if grouped else made[0]

    def given(_: _horo.Handle) -> Any:
        assert outputs is not None
        return list(outputs) if grouped else outputs[0]

    native = runtime.submit(tensors, number)
    return Handle(native, (inputs, outputs), read or (results if outputs is None else given))


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Elements of all ranks become one; the average without `op`."""
    return _submit(
        "allreduce",
        [as_input(tensor)],
        name,
        process_set,
        op=_reduction(average, op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    return allreduce_async(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def allreduce_async_(
    tensor: np.ndarray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """In place."""
    array = as_output(tensor)
    return _submit(
        "allreduce",
        [array],
        name,
        process_set,
        outputs=[array],
        op=_reduction(average, op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def allreduce_(
    tensor: np.ndarray,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async(
    tensors: Iterable[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Several tensors that become ready together; the result is a list."""
    return _submit(
        "allreduce",
        [as_input(tensor) for tensor in tensors],
        name,
        process_set,
        grouped=True,
        op=_reduction(average, op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[np.ndarray]:
    return grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async_(
    tensors: Iterable[np.ndarray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """In place."""
    arrays = [as_output(tensor) for tensor in tensors]
    return _submit(
        "allreduce",
        arrays,
        name,
        process_set,
        grouped=True,
        outputs=arrays,
        op=_reduction(average, op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def grouped_allreduce_(
    tensors: Iterable[np.ndarray],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[np.ndarray]:
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def allgather_async(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Handle:
    """The rows of all ranks, one below the other; ranks may have different numbers of rows."""
    return _submit("allgather", [as_input(tensor)], name, process_set)


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> np.ndarray:
    return allgather_async(tensor, name, process_set).wait()


def grouped_allgather_async(
    tensors: Iterable[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    return _submit("allgather", [as_input(tensor) for tensor in tensors], name, process_set, grouped=True)


def grouped_allgather(
    tensors: Iterable[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[np.ndarray]:
    return grouped_allgather_async(tensors, name, process_set).wait()


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """The tensor of `root_rank`, a rank of the job."""
    return _submit("broadcast", [as_input(tensor)], name, process_set, root=root_rank)


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_async_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """In place."""
    array = as_output(tensor)
    return _submit("broadcast", [array], name, process_set, outputs=[array], root=root_rank)


def broadcast_(
    tensor: np.ndarray, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def alltoall_async(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Sends `splits[i]` rows to the i-th rank, equal shares without it. Gives (output, received_splits)."""
    import numpy as np

    array = as_input(tensor)
    rows = None
    if splits is not None:
        rows = [int(split) for split in np.asarray(splits).reshape(-1)]
        if not rows or min(rows) < 0:
            raise ValueError(f"splits are one number of rows for each rank, not {splits!r}")

    def read(native: _horo.Handle) -> tuple[np.ndarray, np.ndarray]:
        received = np.array(native.received_splits(0), dtype=np.int32 if splits is None else np.asarray(splits).dtype)
        return result_array(native, 0, array.dtype), received

    return _submit("alltoall", [array], name, process_set, splits=rows, read=read)


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """(output, received_splits) with `splits`, output without."""
    output, received = alltoall_async(tensor, splits, name, process_set).wait()
    return output if splits is None else (output, received)


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """This rank's share of the rows of an allreduce; the first ranks get the rows that are left over."""
    return _submit(
        "reducescatter",
        [as_input(tensor)],
        name,
        process_set,
        op=_reduction(None, op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> np.ndarray:
    return reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor).wait()


def grouped_reducescatter_async(
    tensors: Iterable[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    return _submit(
        "reducescatter",
        [as_input(tensor) for tensor in tensors],
        name,
        process_set,
        grouped=True,
        op=_reduction(None, op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def grouped_reducescatter(
    tensors: Iterable[Any],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[np.ndarray]:
    return grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor).wait()


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

    return _submit("allgather", [where, what], name, process_set, grouped=True, read=read)


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
    runtime = world.runtime
    number = process_set.number()
    name = world.name("barrier", None, number)
    tensor = _horo.Tensor(name, _horo.KINDS["barrier"], _horo.DTYPES["uint8"], 0, 0, 1.0, 1.0, [0], 0, 0, [])
    Handle(runtime.submit([tensor], number), None, lambda _: None).wait()


def join(device: int = -1) -> int:
    """This rank has no more data: it takes part in the reductions of the others with data that changes nothing, until
    all ranks have joined. Returns the last rank that did. `device` is accepted and not used."""
    last = Handle(world.runtime.join(0), None, lambda native: native.answer()).wait()
    world.forget_names(0)
    return last
