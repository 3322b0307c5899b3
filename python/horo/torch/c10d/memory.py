"""Tensors as addresses: where they lie already, or in a place of their own that is copied in or out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from horo import _horo
from horo.torch.tensors import current_stream

_DTYPES = {getattr(torch, name): number for name, number in _horo.DTYPES.items() if hasattr(torch, name)}


def check_device(tensor: torch.Tensor, what: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} takes tensors, not {type(tensor).__name__}")
    if not tensor.is_cpu and not tensor.is_cuda:
        raise RuntimeError(
            f"{what} of a tensor on {tensor.device}: the back end horo has operations on CPU and CUDA tensors. Use "
            "tensor.cpu(), or another back end for this device"
        )
    if tensor.layout is not torch.strided:
        raise RuntimeError(f"{what} of a tensor of layout {tensor.layout}: the back end horo takes dense ones there")


def dtype_of(tensor: torch.Tensor, what: str) -> int:
    """For arithmetic."""
    number = _DTYPES.get(tensor.dtype)
    if number is None:
        raise RuntimeError(f"{what} does not take tensors of {tensor.dtype}")
    return number


@dataclass
class Place:
    """Some tensors, one after the other, in one piece of memory."""

    memory: torch.Tensor  # Keeps it.
    address: int
    counts: list[int]  # Elements of each tensor.
    dtype: int | None  # None: what the library has no name for, which it moves as bytes.
    back: Callable[[], None] | None = field(default=None)  # Brings the result to the tensors.

    @property
    def arguments(self) -> dict[str, int]:
        """The element type and the device, as Group.submit takes them."""
        arguments = {} if self.dtype is None else {"dtype": self.dtype}
        if self.memory.is_cuda:
            device = arguments["device"] = self.memory.get_device()
            arguments["stream"] = current_stream(device)
        return arguments

    @property
    def element(self) -> int:
        """How many of the library's elements one of the tensor's is."""
        return self.memory.element_size() if self.dtype is None else 1


def _in_order(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they lie one after the other, as the chunks of a tensor do."""
    storage = tensors[0].untyped_storage().data_ptr()
    at = tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.untyped_storage().data_ptr() != storage:
            return False
        if tensor.numel() > 0 and tensor.data_ptr() != at:
            return False
        at += tensor.numel() * tensor.element_size()
    return not (tensors[0].is_conj() or tensors[0].is_neg())


def place_of(tensors: Sequence[torch.Tensor], what: str, *, read: bool, write: bool) -> Place:
    """Where an operation reads and writes these tensors. They have one dtype."""
    for tensor in tensors:
        check_device(tensor, what)
        if tensor.dtype != tensors[0].dtype:
            raise RuntimeError(f"{what} takes tensors of one dtype, not {tensors[0].dtype} and {tensor.dtype}")
        if tensor.device != tensors[0].device:
            raise RuntimeError(f"{what} takes tensors of one device, not {tensors[0].device} and {tensor.device}")
    counts = [tensor.numel() for tensor in tensors]
    dtype = _DTYPES.get(tensors[0].dtype)
    if _in_order(tensors):
        first = tensors[0].detach()
        return Place(first, first.data_ptr(), counts, dtype)
    flat = torch.empty(sum(counts), dtype=tensors[0].dtype, device=tensors[0].device)
    if read:
        for tensor, part in zip(tensors, flat.split(counts), strict=True):
            part.view(tensor.shape).copy_(tensor.detach())

    def back() -> None:
        for one, part in zip(tensors, flat.split(counts), strict=True):
            one.detach().copy_(part.view(one.shape))

    return Place(flat, flat.data_ptr(), counts, dtype, back if write else None)
