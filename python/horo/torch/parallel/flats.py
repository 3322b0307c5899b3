"""Buckets in the memory of a GPU that the other ranks of the host can map, packed in the stream of the backward pass.

The library's reducer has the order, the unused parameters and the failures here, too: to it every parameter is one
that the caller reduces, as sparse ones are, and they come one by one, in the same order on all ranks. Here as many of
them as the limits say become one operation of the group, which waits for the stream and not the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from horo import _horo
from horo.torch.memory import room
from horo.torch.parallel import wires
from horo.torch.parallel.hooks import BuiltinHook, GradBucket, PythonHook
from horo.torch.parallel.members import Members, finish
from horo.torch.parallel.parameters import Parameters
from horo.torch.tensors import dtype_number, place_of, strides_of

_ALLREDUCE = _horo.KINDS["allreduce"]
_UNTOUCHED = _horo.OUTCOMES["untouched"]


def are_needed(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the host cannot read the gradients."""
    return tensors[0].is_cuda


def check(parameters: Parameters) -> None:
    for name, is_sparse in zip(parameters.names, parameters.sparse, strict=True):
        if is_sparse:
            raise ValueError(
                f"parameter '{name}' gets sparse gradients, which horo.torch.DistributedDataParallel reduces on the "
                "CPU only; make the embedding with sparse=False, or keep the module on the CPU"
            )


class _Flat:
    """What one operation reduces."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.numbers: list[int] = []
        self.bytes = 0
        self.memory: torch.Tensor | None = None
        self.views: list[torch.Tensor] = []
        self.taken: set[int] = set()
        self.streams: dict[int, torch.cuda.Stream] = {}
        self.wire: wires.Wire | None = None  # Of gradients that are made short.
        self.wire_is_known = False
        self.request: _horo.Request | None = None
        self.launched = False

    def lay_out(self, tensors: Sequence[torch.Tensor], group: _horo.Group) -> None:
        if self.memory is not None:
            return
        mine = [tensors[number] for number in self.numbers]
        self.memory = room(group, sum(one.numel() for one in mine), self.dtype, mine[0].device)
        offset = 0
        for one in mine:
            self.views.append(self.memory.as_strided(one.shape, strides_of(one), offset))
            offset += one.numel()

    def reset(self) -> None:
        self.taken.clear()
        self.streams.clear()
        self.request = None
        self.launched = False


class Flats:
    """All buckets of one module. Used by one thread at a time: that of the backward pass, then that of its caller."""

    def __init__(self, parameters: Parameters, members: Members, dtype: torch.dtype | None, *, views: bool) -> None:
        check(parameters)
        self._tensors = parameters.tensors
        self._names = parameters.names
        self._members = members
        self._dtype = dtype
        self._shows_views = views
        self._hook_name = "allreduce"
        self._all: list[_Flat] = []
        self._of: dict[int, _Flat] = {}
        self.divisor = 0.0

    # ---- Which are together

    def plan(self, order: Sequence[int], limits: Sequence[int]) -> list[list[int]]:
        """Parameters of one dtype, in this order, until they have as many bytes as the next limit; the last holds for
        all that follow. Equal on all ranks, as the order is."""
        self._all, closed = [], {}
        begun: dict[torch.dtype, _Flat] = {}
        for number in order:
            one = self._tensors[number]
            dtype = one.dtype if self._dtype is None or not one.is_floating_point() else self._dtype
            if dtype not in begun:
                begun[dtype] = _Flat(dtype)
                self._all.append(begun[dtype])
            flat = self._of[number] = begun[dtype]
            flat.numbers.append(number)
            flat.bytes += one.numel() * dtype.itemsize
            if limits and flat.bytes >= limits[min(closed.get(dtype, 0), len(limits) - 1)]:
                closed[dtype] = closed.get(dtype, 0) + 1
                del begun[dtype]
        return [list(flat.numbers) for flat in self._all]

    def set_hook(self, hook: BuiltinHook) -> None:
        if hook.name not in wires.NAMES:
            raise ValueError(
                f"{hook} works on the CPU only, and the module's parameters are on {self._tensors[0].device}; there "
                f"the hooks are {', '.join(wires.NAMES)}, and functions of your own"
            )
        self._hook_name = hook.name

    # ---- One iteration

    def reset(self) -> None:
        for flat in self._all:
            flat.reset()

    def take(self, number: int, hook: PythonHook | None) -> None:
        """A gradient is there, or none will come."""
        flat = self._of[number]
        flat.taken.add(number)
        device, stream = place_of(self._tensors[number])
        if device >= 0 and stream not in flat.streams:
            flat.streams[stream] = torch.cuda.current_stream(device)
        if len(flat.taken) == len(flat.numbers):
            self._launch(flat, hook)

    def launch_rest(self, hook: PythonHook | None) -> None:
        """Those of which a part is skipped."""
        for flat in self._all:
            if flat.taken and not flat.launched:
                self._launch(flat, hook)

    @torch.no_grad()
    def _launch(self, flat: _Flat, hook: PythonHook | None) -> None:
        flat.launched = True
        self._join_streams(flat)
        wire = self._wire_of(flat) if hook is None else None
        if wire is None or self._shows_views:
            flat.lay_out(self._tensors, self._members.group)
        factor = 1.0 / (self.divisor or self._members.size)
        if wire is not None:
            wire.send([self._gradient(flat, number) for number in flat.numbers], factor)
            return
        assert flat.memory is not None
        self._pack(flat)
        if hook is not None:
            tensors = [self._tensors[number] for number in flat.numbers]
            given = GradBucket(self._all.index(flat), len(self._all), flat.memory, flat.views, tensors)
            hook.call(given, self._names[flat.numbers[0]])
            return
        device, stream = place_of(flat.memory)
        address = flat.memory.data_ptr()
        flat.request = self._members.group.submit(
            _ALLREDUCE,
            address,
            address,
            flat.memory,
            dtype=dtype_number(flat.memory, "allreduce"),
            count=flat.memory.numel(),
            prescale=factor,
            device=device,
            stream=stream,
        )

    def _wire_of(self, flat: _Flat) -> wires.Wire | None:
        if not flat.wire_is_known:
            tensors = [self._tensors[number] for number in flat.numbers]
            flat.wire = wires.wire_for(self._hook_name, flat.dtype, self._members, tensors)
            flat.wire_is_known = True
        return flat.wire

    def _join_streams(self, flat: _Flat) -> None:
        """Gradients may come in streams of their own."""
        if flat.streams:
            current = torch.cuda.current_stream(self._tensors[flat.numbers[0]].device)
            for stream in flat.streams.values():
                if stream != current:
                    current.wait_stream(stream)

    def _empty(self, flat: _Flat, number: int) -> torch.Tensor:
        one = self._tensors[number]
        return torch.empty_strided(one.shape, strides_of(one), dtype=flat.dtype, device=one.device)

    def _fits(self, flat: _Flat, number: int, gradient: torch.Tensor | None) -> bool:
        """Whether its elements are of the bucket's kind and lie as the parameter's do."""
        if gradient is None or gradient.is_sparse or gradient.dtype != flat.dtype:
            return False
        return gradient.stride() == tuple(strides_of(self._tensors[number]))

    def _gradient(self, flat: _Flat, number: int) -> torch.Tensor:
        """As it lies in a bucket: zeros where there is none."""
        gradient = self._tensors[number].grad
        if self._fits(flat, number, gradient):
            return gradient
        if gradient is None:
            return self._empty(flat, number).zero_()
        return self._empty(flat, number).copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def _pack(self, flat: _Flat) -> None:
        views, gradients = [], []
        for number, view in zip(flat.numbers, flat.views, strict=True):
            gradient = self._tensors[number].grad
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr() or gradient.dtype != view.dtype:
                views.append(view)
                gradients.append(gradient.to_dense() if gradient.is_sparse else gradient)
        if views:
            torch._foreach_copy_(views, gradients)

    @torch.no_grad()
    def deliver(self, bucket: GradBucket, result: torch.Tensor) -> None:
        """What a hook of the caller's has made of a bucket."""
        memory = self._all[bucket.index()].memory
        if result.data_ptr() != memory.data_ptr():
            memory.copy_(result.reshape(-1))

    @torch.no_grad()
    def place(self, outcomes: Sequence[int]) -> None:
        """Gives parameters their gradients. All ranks have agreed that the iteration is good."""
        for flat in self._all:
            if flat.launched and flat.request is None and flat.wire is not None:
                flat.wire.reduce()
        targets, views = [], []
        for flat in self._all:
            if flat.request is not None:
                finish(flat.request, flat.memory)
            elif flat.launched and flat.wire is not None:
                self._unwire(flat, outcomes)
                continue
            for number, view in zip(flat.numbers, flat.views, strict=True) if flat.launched else ():
                param = self._tensors[number]
                if outcomes[number] == _UNTOUCHED:
                    continue
                if self._shows_views:
                    param.grad = view
                elif param.grad is None or param.grad.is_sparse:
                    param.grad = view.to(param.dtype, copy=True)
                else:
                    targets.append(param.grad)
                    views.append(view)
        if targets:
            torch._foreach_copy_(targets, views)

    def _unwire(self, flat: _Flat, outcomes: Sequence[int]) -> None:
        """Straight to where the gradients are, if they lie as their parameter does."""
        targets: list[torch.Tensor | None] = []
        for place, number in enumerate(flat.numbers):
            param = self._tensors[number]
            if outcomes[number] == _UNTOUCHED:
                targets.append(None)
            elif self._shows_views:
                targets.append(flat.views[place])
            else:
                fits = self._fits(flat, number, param.grad)
                targets.append(param.grad if fits else self._empty(flat, number))
        flat.wire.receive(targets)
        for number, target in zip(flat.numbers, targets, strict=True):
            param = self._tensors[number]
            if target is None or target is param.grad:
                continue
            if self._shows_views or param.grad is None or param.grad.is_sparse:
                param.grad = target if self._shows_views else target.to(param.dtype)
            else:
                param.grad.copy_(target)
