"""Gradients that live where they are reduced: in memory that the other ranks of the host can read.

Parameters are put into buckets in the order in which their gradients come, the last ones first. A bucket is one flat
tensor, reduced as one when all of its gradients are there; `.grad` of its parameters are views into it. The first
bucket is small, so that the first bytes travel early.
"""

from __future__ import annotations

from typing import Any

import torch

from horo import _horo
from horo.torch.compression import NoneCompressor
from horo.torch.gradients import Gradients
from horo.torch.parcels import Parcel, Slot
from horo.torch.tensors import dtype_number, strides_of

_FIRST_BYTES = 1 << 20
_BUCKET_BYTES = 25 << 20
_ALIGNMENT = 64  # Bytes: gradients begin on cache lines.


class Bucket(Parcel):
    """Several gradients. Large ones are copied in when they come, while they are in the cache, small ones when all are
    there (python/bindings/arrivals.h)."""

    def __init__(self, slots: list[Slot], runtime: _horo.Runtime) -> None:
        super().__init__(slots)
        self.native: _horo.Reduction | None = None
        self.flat = self._allocate(runtime)

    def _allocate(self, runtime: _horo.Runtime) -> torch.Tensor:
        dtype = self.slots[0].param.dtype
        line = max(1, _ALIGNMENT // dtype.itemsize)
        places, count = [], 0
        for slot in self.slots:
            places.append(count)
            count += (slot.param.numel() + line - 1) // line * line
        flat = torch.from_numpy(runtime.allocate(max(count, 1) * dtype.itemsize)).view(dtype).zero_()
        for slot, place in zip(self.slots, places, strict=True):
            slot.view = flat.as_strided(slot.param.shape, strides_of(slot.param), place)
        return flat

    def take(self, slot: Slot, gradient: torch.Tensor) -> None:
        if gradient is not slot.view:
            slot.view.copy_(gradient)
            slot.param.grad = slot.view

    def send(self, gradients: Gradients) -> None:
        unusual = gradients.move_in(self.slots)
        if unusual:
            self.missing += len(unusual)
            gradients.take_again(unusual)  # Sends, with the last of them.
            return
        for slot in self.slots:
            if not slot.sent:
                slot.view.zero_()  # Frozen.
        tensor, context = gradients.settings.compression.compress(self.flat)
        if self.native is None or self.native.dtype != dtype_number(tensor, "allreduce"):
            self.native = gradients.make_native(f"{self.slots[0].name}.bucket", tensor)
        address = tensor.data_ptr()
        self.native.point_to(address, address)
        gradients.hand_in([self.native], [(self, tensor, context)], together=False)

    def finish(self, compression: Any, tensor: torch.Tensor, context: Any) -> None:
        if compression is not NoneCompressor:
            self.flat.copy_(compression.decompress(tensor, context))


class BucketedGradients(Gradients):
    def joined(self) -> None:
        """Memory of this rank's place in the job, whatever it was before."""
        if self._works:
            self._build(list(self.slots.values()))

    def adopt(self) -> list[Slot]:
        new = super().adopt()
        if self._works:
            self._build(new)
        return new

    def _build(self, slots: list[Slot]) -> None:
        waiting: dict[torch.dtype, list[Slot]] = {}
        sizes: dict[torch.dtype, int] = {}
        limit = _FIRST_BYTES
        for slot in reversed(slots):
            param = slot.param
            if not param.requires_grad or not param.is_cpu:
                continue  # Travels alone.
            waiting.setdefault(param.dtype, []).append(slot)
            sizes[param.dtype] = sizes.get(param.dtype, 0) + param.nbytes
            if sizes[param.dtype] >= limit:
                Bucket(waiting.pop(param.dtype), self._runtime)
                del sizes[param.dtype]
                limit = _BUCKET_BYTES
        for rest in waiting.values():
            Bucket(rest, self._runtime)
        for slot in slots:
            # A step may be under way already.
            if slot.param.grad is not None and slot.view is not None and not slot.param.grad.is_sparse:
                slot.parcel.take(slot, slot.param.grad)
