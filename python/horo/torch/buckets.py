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
from horo.torch.gradients import Gradients, Parcel, Slot
from horo.torch.tensors import dtype_number

_FIRST_BYTES = 1 << 20
_BUCKET_BYTES = 25 << 20
_ALIGNMENT = 64  # Bytes: gradients begin on cache lines.


class Bucket(Parcel):
    def __init__(self, slots: list[Slot], runtime: _horo.Runtime) -> None:
        super().__init__(slots)
        self.native: _horo.Tensor | None = None
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
            param = slot.param.detach()
            strides = param.stride() if _is_dense(param) else torch.empty(param.shape, device="meta").stride()
            slot.view = flat.as_strided(param.shape, strides, place)
        return flat

    def take(self, slot: Slot, gradient: torch.Tensor) -> None:
        if gradient is slot.view:
            return
        slot.view.copy_(gradient)
        slot.param.grad = slot.view

    def send(self, gradients: Gradients) -> None:
        compression = gradients.settings.compression
        tensor, context = compression.compress(self.flat)
        name = f"{self.slots[0].name}.bucket"
        if self.native is None or self.native.dtype != dtype_number(tensor, "allreduce"):
            self.native = gradients.make_native(name, tensor)
        self.native.point_to(tensor.data_ptr())
        gradients.hand_in([self.native], [(self, tensor, context)])

    def finish(self, compression: Any, tensor: torch.Tensor, context: Any) -> None:
        if compression is not NoneCompressor:
            self.flat.copy_(compression.decompress(tensor, context))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie without gaps and overlaps, in whatever order."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return False
        expected *= extent
    return True


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
        open_buckets: dict[torch.dtype, list[Slot]] = {}
        sizes: dict[torch.dtype, int] = {}
        limit = _FIRST_BYTES
        for slot in reversed(slots):
            if not slot.param.requires_grad or slot.param.device.type != "cpu":
                continue  # Travels alone, should it get a gradient.
            dtype = slot.param.dtype
            open_buckets.setdefault(dtype, []).append(slot)
            sizes[dtype] = sizes.get(dtype, 0) + slot.param.nbytes
            if sizes[dtype] >= limit:
                Bucket(open_buckets.pop(dtype), self._runtime)
                del sizes[dtype]
                limit = _BUCKET_BYTES
        for rest in open_buckets.values():
            Bucket(rest, self._runtime)
        for slot in slots:
            # A step may be under way already.
            if slot.param.grad is not None and slot.view is not None and not slot.param.grad.is_sparse:
                slot.parcel.take(slot, slot.param.grad)
