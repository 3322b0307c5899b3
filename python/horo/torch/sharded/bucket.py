"""Parameters in flat memory, of which each rank updates one slice.

A bucket holds parameters of one group and dtype one behind the other, in memory that the other ranks of the host can
read, and is cut into as many equal slices as there are ranks. What of a parameter lies in this rank's slice is a
*piece*: a flat view that the local optimizer updates. The parameters themselves are views of the same memory, so that
an allgather in place brings the updates of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from horo import _horo
from horo.torch.memory import room
from horo.torch.tensors import dtype_number, place_of, strides_of

_BUCKET_BYTES = 25 << 20
_LINE = 64  # Bytes: parameters and slices begin on cache lines.


class Member(NamedTuple):
    """A parameter of a bucket."""

    number: int  # Among all parameters of the optimizer.
    param: torch.Tensor
    place: int  # Where it begins.
    shape: torch.Size
    strides: tuple[int, ...]

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Its place in memory laid out as the bucket's."""
        return flat.as_strided(self.shape, self.strides, self.place)

    def lay_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """The elements of a tensor of its shape in the order in which the parameter has them, flat."""
        if tensor.stride() != self.strides:
            tensor = torch.empty_strided(self.shape, self.strides, dtype=tensor.dtype, device=tensor.device).copy_(
                tensor
            )
        return tensor.as_strided((tensor.numel(),), (1,))


class Piece(NamedTuple):
    """What of a parameter is this rank's."""

    member: Member
    begin: int  # In the slice.
    end: int
    offset: int  # Of its first element in the parameter, as that lies in memory.
    values: torch.nn.Parameter

    def of(self, slice_: torch.Tensor) -> torch.Tensor:
        return slice_[self.begin : self.end]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """Its part of a tensor of the parameter's shape."""
        return self.member.lay_out(tensor)[self.offset : self.offset + self.end - self.begin]


def allocate(runtime: _horo.Runtime, bytes_: int, device: torch.device) -> torch.Tensor:
    """Bytes that the other ranks of the host can read."""
    if device.type == "cpu":
        return torch.from_numpy(runtime.allocate(bytes_))
    return room(runtime, bytes_, torch.uint8, device)


class Bucket:
    def __init__(self, members: Sequence[tuple[int, torch.Tensor]], runtime: _horo.Runtime, group: _horo.Group) -> None:
        self.dtype = members[0][1].dtype
        self._group = group
        line = max(1, _LINE // self.dtype.itemsize)
        self.members: list[Member] = []
        count = 0
        for number, param in members:
            self.members.append(Member(number, param, count, param.shape, tuple(strides_of(param))))
            count += -(-param.numel() // line) * line
        self.slice = -(-max(count, 1) // (line * group.size)) * line
        self.begin = self.slice * group.rank
        device = members[0][1].device
        self.flat = allocate(runtime, self.elements * self.dtype.itemsize, device).view(self.dtype).zero_()
        for member in self.members:
            self._move_in(member)
        self.gradient = torch.zeros(self.slice, dtype=self.dtype, device=device)
        self.pieces = [piece for member in self.members if (piece := self._piece(member)) is not None]

    @property
    def elements(self) -> int:
        return self.slice * self._group.size

    @property
    def own(self) -> torch.Tensor:
        return self.flat[self.begin : self.begin + self.slice]

    def _move_in(self, member: Member) -> None:
        with torch.no_grad():
            view = member.view(self.flat)
            view.copy_(member.param)
            member.param.data = view

    def _piece(self, member: Member) -> Piece | None:
        first = max(member.place, self.begin)
        last = min(member.place + member.param.numel(), self.begin + self.slice)
        if first >= last:
            return None
        values = torch.nn.Parameter(self.flat[first:last])
        return Piece(member, first - self.begin, last - self.begin, first - member.place, values)

    def fits(self, member: Member) -> bool:
        """Whether the parameter is still one that lies here, or can. One that was given other memory, by
        load_state_dict(assign=True) say, comes back with its values."""
        param = member.param
        if param.device != self.flat.device or param.dtype != self.dtype or param.shape != member.shape:
            return False
        if param.data_ptr() != member.view(self.flat).data_ptr() or param.stride() != member.strides:
            self._move_in(member)
        return True

    def pack(self, memory: torch.Tensor) -> None:
        """All gradients, zeros for those that did not come here."""
        for member in self.members:
            view = member.view(memory)
            if member.param.grad is None:
                view.zero_()
            else:
                view.copy_(member.param.grad)

    def reduce(self, memory: torch.Tensor, op: int) -> _horo.Request:
        """Begins to reduce what was packed; this rank's slice goes to `gradient`."""
        return self._submit("reducescatter", memory, memory.data_ptr(), self.gradient, op=op)

    def take_gradients(self) -> None:
        """The same where the gradients are those of all ranks already."""
        for piece in self.pieces:
            if piece.member.param.grad is not None:
                piece.of(self.gradient).copy_(piece.cut(piece.member.param.grad))

    def gather(self) -> _horo.Request:
        """Begins to bring the parameters' other slices."""
        return self._submit("allgather", self.flat, self.own.data_ptr(), self.flat)

    def gather_like(self, own: torch.Tensor) -> tuple[_horo.Request, torch.Tensor]:
        """The same for something else that is laid out in the same way."""
        whole = torch.empty(self.elements, dtype=own.dtype, device=own.device)
        return self._submit("allgather", own, own.data_ptr(), whole), whole

    def _submit(self, kind: str, given: torch.Tensor, address: int, taken: torch.Tensor, op: int = 0) -> _horo.Request:
        device, stream = place_of(taken)
        return self._group.submit(
            _horo.KINDS[kind],
            address,
            taken.data_ptr(),
            (given, taken),
            dtype=dtype_number(given, kind),
            op=op,
            counts=[self.slice] * self._group.size,
            device=device,
            stream=stream,
        )


def fill_buckets(
    members: Sequence[tuple[int, torch.Tensor]], runtime: _horo.Runtime, group: _horo.Group
) -> list[Bucket]:
    """In the order of the parameters, by dtype. Equal on all ranks, as the parameters are."""
    waiting: dict[torch.dtype, list[tuple[int, torch.Tensor]]] = {}
    sizes: dict[torch.dtype, int] = {}
    buckets = []
    for number, param in members:
        dtype = param.dtype
        waiting.setdefault(dtype, []).append((number, param))
        sizes[dtype] = sizes.get(dtype, 0) + param.nbytes
        if sizes[dtype] >= _BUCKET_BYTES:
            buckets.append(Bucket(waiting.pop(dtype), runtime, group))
            del sizes[dtype]
    return buckets + [Bucket(rest, runtime, group) for rest in waiting.values()]
