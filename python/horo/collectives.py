"""The operations, written once for the tensors of any framework: an Adapter says what is special about these."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from horo import _horo
from horo.handles import Handle
from horo.process_sets import ProcessSet, global_process_set
from horo.world import SLICE_SECONDS, world

# Horovod's numbers.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

KINDS = _horo.KINDS
_REDUCTIONS = {
    Average: _horo.REDUCTIONS["average"],
    Sum: _horo.REDUCTIONS["sum"],
    Adasum: _horo.REDUCTIONS["adasum"],
    Min: _horo.REDUCTIONS["min"],
    Max: _horo.REDUCTIONS["max"],
    Product: _horo.REDUCTIONS["product"],
}


class Given(NamedTuple):
    """A tensor as it is handed in."""

    source: Any  # Kept until the operation is done.
    dtype: int
    shape: Sequence[int]
    input: int  # An address, as is the next.
    output: int = 0  # 0: the library's memory.
    strides: Sequence[int] | None = None  # None: row by row.
    result: Any = None  # What synchronize() gives; None: what lies in the library's memory.
    finish: Callable[[], None] | None = None  # Called by synchronize() after a success.
    device: int = -1  # Where the memory is; -1: the host.
    stream: int = 0  # The operation begins after what is in it now.


class Adapter(Protocol):
    reader: _horo.TensorReader | None  # Looks at tensors from compiled code, where there is such a thing.

    def take(self, tensor: Any, kind: str) -> Given:
        """An input; where the result has its shape, also the memory for that."""

    def take_in_place(self, tensor: Any, kind: str) -> Given: ...

    def read(self, native: _horo.Handle, index: int, given: Given) -> Any:
        """The result in the library's memory."""

    def completion_stream(self, device: int) -> int | None:
        """The stream that waits for results on a device; None where the thread does."""

    def splits(self, rows: Sequence[int], like: Any) -> Any:
        """Numbers of rows as a tensor of the type of `like`, which may be None."""


def reduction(average: bool | None, op: int | None) -> int:
    """The reduction's number in the library. `average` is Horovod's older word."""
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=3)
        op = Average if average else Sum
    if op is None:
        op = Average
    if op not in _REDUCTIONS:
        raise ValueError(f"there is no reduction {op!r}; use Average, Sum, Adasum, Min, Max or Product")
    return _REDUCTIONS[op]


def check_one_device(family: str, given: Sequence[Given]) -> None:
    devices = {one.device for one in given}
    if len(devices) > 1:
        names = " and ".join("the host" if one < 0 else f"device {one}" for one in sorted(devices))
        raise ValueError(f"{family} of tensors on {names}; the tensors of a group are in one place")


class Collectives:
    """The operations of a front end. With `wait` they return results, without it handles; a trailing underscore works
    in place."""

    def __init__(self, adapter: Adapter, *, wait: bool) -> None:
        self._adapter = adapter
        self._wait = wait
        self._seconds = SLICE_SECONDS if wait else -1.0

    def hand_in(
        self,
        kind: str,
        given: Sequence[Given],
        name: str | None,
        process_set: ProcessSet,
        *,
        grouped: bool = False,
        op: int = 0,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        splits: Sequence[int] = (),
        read: Callable[[_horo.Handle], Any] | None = None,
        base: str | None = None,
    ) -> Any:
        """`base` is a name that world.name() has given already."""
        number = process_set.number()
        family = f"grouped_{kind}" if grouped else kind
        if not given:
            raise ValueError(f"{family} of no tensors")
        if base is None:
            base = world.name(family, name, number)
        if grouped:
            tensors = [
                (f"{base}_{index}of{len(given)}", one.dtype, one.shape, one.strides, one.input, one.output)
                for index, one in enumerate(given, start=1)
            ]
        else:
            one = given[0]
            tensors = [(base, one.dtype, one.shape, one.strides, one.input, one.output)]
        if read is None:
            read = self._reader(given, grouped)
        device = given[0].device
        stream = self._adapter.completion_stream(device) if self._wait and device >= 0 else None
        wait = self._seconds if stream is None else -1.0
        try:
            if grouped:
                check_one_device(family, given)
            native = world.runtime.submit(
                number,
                KINDS[kind],
                op,
                root,
                prescale,
                postscale,
                splits,
                tensors,
                given,
                wait,
                device,
                given[0].stream,
            )
        except ValueError:
            world.take_back(base, family, number)
            raise
        return self._result(native, read, device, stream)

    def _result(
        self,
        native: _horo.Handle,
        read: Callable[[_horo.Handle], Any] | None,
        device: int = -1,
        stream: int | None = None,
        value: Any = None,
    ) -> Any:
        """What `read` makes of it, or `value`: now or later."""
        if self._wait and native.done():
            return value if read is None else read(native)
        handle = Handle(native, read, device, value)
        return handle.wait(stream) if self._wait else handle

    def _reader(self, given: Sequence[Given], grouped: bool) -> Callable[[_horo.Handle], Any]:
        adapter = self._adapter
        first = given[0]
        if not grouped and first.result is not None and first.finish is None:
            return lambda _: first.result  # The usual case, and small operations feel every line.

        def result(native: _horo.Handle, index: int, one: Given) -> Any:
            if one.finish is not None:
                one.finish()
            return adapter.read(native, index, one) if one.result is None else one.result

        if grouped:
            return lambda native: [result(native, index, one) for index, one in enumerate(given)]
        return lambda native: result(native, 0, given[0])

    def allreduce(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Elements of all ranks become one; the average without `op`."""
        return self.hand_in(
            "allreduce",
            [self._adapter.take(tensor, "allreduce")],
            name,
            process_set,
            op=reduction(average, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
        )

    def allreduce_(
        self,
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """In place."""
        number = reduction(average, op)
        adapter = self._adapter
        if adapter.reader is None:
            given = adapter.take_in_place(tensor, "allreduce")
            base = None
        else:
            # The usual tensor in one call: small ones feel every line.
            process_set_number = process_set.number()
            base = world.name("allreduce", name, process_set_number)
            try:
                native = world.runtime.allreduce_in_place(
                    adapter.reader,
                    tensor,
                    base,
                    process_set_number,
                    number,
                    prescale_factor,
                    postscale_factor,
                    self._seconds,
                )
                given = adapter.take_in_place(tensor, "allreduce") if native is None else None
            except (TypeError, ValueError):
                world.take_back(base, "allreduce", process_set_number)
                raise
            if given is None:
                return self._result(native, None, value=tensor)
        return self.hand_in(
            "allreduce",
            [given],
            name,
            process_set,
            op=number,
            prescale=prescale_factor,
            postscale=postscale_factor,
            base=base,
        )

    def grouped_allreduce(
        self,
        tensors: Iterable[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Several tensors that become ready together; the result is a list."""
        return self.hand_in(
            "allreduce",
            [self._adapter.take(tensor, "allreduce") for tensor in tensors],
            name,
            process_set,
            grouped=True,
            op=reduction(average, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
        )

    def grouped_allreduce_(
        self,
        tensors: Iterable[Any],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """In place."""
        return self.hand_in(
            "allreduce",
            [self._adapter.take_in_place(tensor, "allreduce") for tensor in tensors],
            name,
            process_set,
            grouped=True,
            op=reduction(average, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
        )

    def allgather(self, tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
        """The rows of all ranks, one below the other; ranks may have different numbers of rows."""
        return self.hand_in("allgather", [self._adapter.take(tensor, "allgather")], name, process_set)

    def grouped_allgather(
        self, tensors: Iterable[Any], name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        given = [self._adapter.take(tensor, "allgather") for tensor in tensors]
        return self.hand_in("allgather", given, name, process_set, grouped=True)

    def broadcast(
        self, tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """The tensor of `root_rank`, a rank of the job."""
        given = [self._adapter.take(tensor, "broadcast")]
        return self.hand_in("broadcast", given, name, process_set, root=root_rank)

    def broadcast_(
        self, tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """In place."""
        given = [self._adapter.take_in_place(tensor, "broadcast")]
        return self.hand_in("broadcast", given, name, process_set, root=root_rank)

    def alltoall(
        self,
        tensor: Any,
        splits: Any = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Sends `splits[i]` rows to the i-th rank, equal shares without it. Gives (output, received_splits)."""
        adapter = self._adapter
        rows: list[int] = []
        if splits is not None:
            listed = splits.tolist() if hasattr(splits, "tolist") else list(splits)
            rows = [int(split) for split in listed]
            if not rows or min(rows) < 0:
                raise ValueError(f"splits are one number of rows for each rank, not {splits!r}")
        given = adapter.take(tensor, "alltoall")

        def read(native: _horo.Handle) -> tuple[Any, Any]:
            return adapter.read(native, 0, given), adapter.splits(native.received_splits(0), splits)

        return self.hand_in("alltoall", [given], name, process_set, splits=rows, read=read)

    def reducescatter(
        self,
        tensor: Any,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Any:
        """This rank's share of the rows of an allreduce; the first ranks get the rows that are left over."""
        return self.hand_in(
            "reducescatter",
            [self._adapter.take(tensor, "reducescatter")],
            name,
            process_set,
            op=reduction(None, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
        )

    def grouped_reducescatter(
        self,
        tensors: Iterable[Any],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Any:
        return self.hand_in(
            "reducescatter",
            [self._adapter.take(tensor, "reducescatter") for tensor in tensors],
            name,
            process_set,
            grouped=True,
            op=reduction(None, op),
            prescale=prescale_factor,
            postscale=postscale_factor,
        )
