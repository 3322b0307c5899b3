"""How the gradients of a bucket travel when they are made short: cast by the library's kernels straight from where they
lie into memory that the other ranks can read, all in one launch, and back in one.

Halves are reduced as they are. As 8-bit integers every rank sends each other its slice of the bucket, with the largest
absolute value of each tensor; the owner of a slice adds up in f32, and gives the average to all in the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from horo import _horo
from horo.torch.memory import room
from horo.torch.parallel.members import Members, finish
from horo.torch.tensors import dtype_number, place_of

_ALLREDUCE = _horo.KINDS["allreduce"]
_ALLGATHER = _horo.KINDS["allgather"]
_ALLTOALL = _horo.KINDS["alltoall"]
_F32 = _horo.DTYPES["float32"]
_I8 = _horo.DTYPES["int8"]
_LINE = 16  # Elements and bytes: where wide loads begin.

Array = tuple[int, int, int, int]


def _lines(count: int) -> int:
    return -(-count // _LINE) * _LINE


class Halves:
    """f16 or bf16."""

    def __init__(self, members: Members, tensors: Sequence[torch.Tensor], wire: torch.dtype) -> None:
        self._members = members
        self._counts = [one.numel() for one in tensors]
        self._memory = room(members.group, sum(self._counts), wire, tensors[0].device)
        ends = accumulate(self._counts, initial=0)
        self._places = [self._memory.data_ptr() + end * wire.itemsize for end in ends]
        self._request: _horo.Request | None = None

    def send(self, gradients: Sequence[torch.Tensor], factor: float) -> None:
        wire = dtype_number(self._memory, "allreduce")
        device, stream = place_of(self._memory)
        arrays = [
            (place, one.data_ptr(), count, 0)
            for place, one, count in zip(self._places, gradients, self._counts, strict=False)
        ]
        _horo.cast(self._members.group, wire, dtype_number(gradients[0], "cast"), arrays, device, stream)
        address = self._memory.data_ptr()
        self._request = self._members.group.submit(
            _ALLREDUCE,
            address,
            address,
            self._memory,
            dtype=wire,
            count=self._memory.numel(),
            prescale=factor,
            device=device,
            stream=stream,
        )

    def reduce(self) -> None:
        """What comes between sending and receiving."""

    def receive(self, targets: Sequence[torch.Tensor | None]) -> None:
        """To where a gradient is wanted."""
        assert self._request is not None
        finish(self._request, self._memory)
        some = [
            (one, place, count)
            for one, place, count in zip(targets, self._places, self._counts, strict=False)
            if one is not None
        ]
        if some:
            device, stream = place_of(self._memory)
            arrays = [(one.data_ptr(), place, count, 0) for one, place, count in some]
            number = dtype_number(some[0][0], "cast")
            _horo.cast(self._members.group, number, dtype_number(self._memory, "cast"), arrays, device, stream)


class _Piece(NamedTuple):
    """What of a tensor lies in a slice."""

    tensor: int
    begin: int  # In the tensor.
    at: int  # In the slice.
    count: int


class _Slice:
    """What one rank owns. On the way it is one f32 for each piece, then the elements, each filled up to whole lines."""

    def __init__(self, counts: Sequence[int], begin: int, end: int) -> None:
        self.pieces: list[_Piece] = []
        self.elements = end - begin
        for tensor, (first, count) in enumerate(zip(accumulate(counts, initial=0), counts, strict=False)):
            low, high = max(first, begin), min(first + count, end)
            if low < high:
                self.pieces.append(_Piece(tensor, low - first, low - begin, high - low))
        self.head = _lines(4 * len(self.pieces))
        self.bytes = self.head + _lines(self.elements)


class Int8:
    """f32 as 8-bit integers, and one f32 for each tensor: docs/ddp.md says how far results may be off."""

    def __init__(self, members: Members, tensors: Sequence[torch.Tensor]) -> None:
        self._group = members.group
        device = tensors[0].device
        counts = [one.numel() for one in tensors]
        total, size = sum(counts), members.size
        each = _lines(-(-total // size))
        self._slices = [_Slice(counts, min(m * each, total), min((m + 1) * each, total)) for m in range(size)]
        self._bytes = [one.bytes for one in self._slices]
        self._begins = list(accumulate(self._bytes, initial=0))
        self._own = self._slices[members.rank]

        def memory(bytes_: int) -> torch.Tensor:
            return room(members.group, max(bytes_, _LINE), torch.uint8, device)

        self._sent, self._received = memory(sum(self._bytes)), memory(self._own.bytes * size)
        self._mine = memory(self._own.bytes)
        self._sum = torch.empty(max(self._own.elements, 1), dtype=torch.float32, device=device)
        self._largest = torch.zeros(len(counts), dtype=torch.float32, device=device)
        # Where the f32 of each piece stands in what is sent, and of which tensor it is.
        places = [begin // 4 + i for begin, one in self._each() for i in range(len(one.pieces))]
        owners = [piece.tensor for _, one in self._each() for piece in one.pieces]
        self._places = torch.tensor(places, dtype=torch.int64, device=device)
        self._owners = torch.tensor(owners, dtype=torch.int64, device=device)
        self._factor = 1.0
        self._request: _horo.Request | None = None

    def _each(self) -> zip[tuple[int, _Slice]]:
        return zip(self._begins, self._slices, strict=False)

    def _cast(self, to: int, source: int, arrays: list[Array], *, add: bool = False, factor: float = 1.0) -> None:
        if arrays:
            _horo.cast(self._group, to, source, arrays, *place_of(self._sent), add, factor)

    def _submit(self, kind: int, given: torch.Tensor, taken: torch.Tensor, **arguments: list[int]) -> None:
        device, stream = place_of(given)
        self._request = self._group.submit(
            kind, given.data_ptr(), taken.data_ptr(), (given, taken), device=device, stream=stream, **arguments
        )

    def send(self, gradients: Sequence[torch.Tensor], factor: float) -> None:
        self._factor = factor
        sent, largest = self._sent.data_ptr(), self._largest.data_ptr()
        addresses = [one.data_ptr() for one in gradients]
        arrays = [
            (sent + begin + one.head + at, addresses[tensor] + 4 * first, count, largest + 4 * tensor)
            for begin, one in self._each()
            for tensor, first, at, count in one.pieces
        ]
        self._cast(_I8, _F32, arrays)
        self._sent.view(torch.float32).index_copy_(0, self._places, self._largest.index_select(0, self._owners))
        self._submit(
            _ALLTOALL,
            self._sent,
            self._received,
            counts=self._bytes,
            receive_counts=[self._own.bytes] * len(self._bytes),
        )

    def reduce(self) -> None:
        """Adds up what this rank owns, in rank order, and gives it to all."""
        assert self._request is not None
        finish(self._request, self._received)
        own, sums, mine = self._own, self._sum.data_ptr(), self._mine.data_ptr()
        last = len(self._slices) - 1
        for member in range(len(self._slices)):
            begin = self._received.data_ptr() + member * own.bytes
            arrays = [
                (sums + 4 * piece.at, begin + own.head + piece.at, piece.count, begin + 4 * i)
                for i, piece in enumerate(own.pieces)
            ]
            factor = self._factor if member == last else 1.0
            self._cast(_F32, _I8, arrays, add=member > 0, factor=factor)
        arrays = [
            (mine + own.head + piece.at, sums + 4 * piece.at, piece.count, mine + 4 * i)
            for i, piece in enumerate(own.pieces)
        ]
        self._cast(_I8, _F32, arrays)
        self._submit(_ALLGATHER, self._mine, self._sent, counts=self._bytes)

    def receive(self, targets: Sequence[torch.Tensor | None]) -> None:
        assert self._request is not None
        finish(self._request, self._sent)
        sent = self._sent.data_ptr()
        arrays = [
            (target.data_ptr() + 4 * piece.begin, sent + begin + one.head + piece.at, piece.count, sent + begin + 4 * i)
            for begin, one in self._each()
            for i, piece in enumerate(one.pieces)
            if (target := targets[piece.tensor]) is not None
        ]
        self._cast(_F32, _I8, arrays)


Wire = Halves | Int8
_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
NAMES = ("allreduce", *_HALVES, "int8")


def wire_for(hook: str, dtype: torch.dtype, members: Members, tensors: Sequence[torch.Tensor]) -> Wire | None:
    """None where the gradients travel as they are: what a hook cannot make short does."""
    if sum(one.numel() for one in tensors) == 0:
        return None
    if hook in _HALVES and dtype in (torch.float32, torch.float64):
        return Halves(members, tensors, _HALVES[hook])
    if hook == "int8" and dtype is torch.float32:
        return Int8(members, tensors)
    return None
