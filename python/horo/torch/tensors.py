"""Tensors of torch as the library takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horo import _horo
from horo.collectives import Collectives, Given

_NAMES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32"]
_NAMES += ["float64", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"]
_DTYPES = {getattr(torch, name): _horo.DTYPES[name] for name in _NAMES if hasattr(torch, name)}
# The result has the shape of the input, and it does not matter where in it an element lies.
_ELEMENTWISE = ("allreduce", "broadcast")


def dtype_number(tensor: Any, kind: str) -> int:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{kind} takes a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{kind} takes dense tensors, not one of layout {tensor.layout}; see sparse_allreduce_async")
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{kind} of a tensor on {tensor.device}: this build of horo has operations on CPU tensors only; "
            "give it tensor.cpu()"
        )
    number = _DTYPES.get(tensor.dtype)
    if number is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return number


class _TorchAdapter:
    def take(self, tensor: torch.Tensor, kind: str) -> Given:
        number = dtype_number(tensor, kind)
        source = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if kind not in _ELEMENTWISE:
            return Given(source, number, source.shape, source.data_ptr())
        result = torch.empty_like(source)
        return Given(source, number, source.shape, source.data_ptr(), result.data_ptr(), result)

    def take_in_place(self, tensor: torch.Tensor, kind: str) -> Given:
        number = dtype_number(tensor, kind)
        plain = tensor.detach()
        source = plain.resolve_conj().resolve_neg().contiguous()
        address = source.data_ptr()
        if address == tensor.data_ptr():
            return Given(source, number, source.shape, address, address, tensor)

        def write_back() -> None:
            plain.copy_(source)

        return Given((source, tensor), number, source.shape, address, address, tensor, write_back)

    def read(self, native: _horo.Handle, index: int, given: Given) -> torch.Tensor:
        shape = native.shape(index)
        count = 1
        for extent in shape:
            count *= extent
        dtype = given.source.dtype
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        return torch.from_numpy(native.memory(index, count * dtype.itemsize)).view(dtype).view(shape)

    def splits(self, rows: Sequence[int], like: Any) -> torch.Tensor:
        return torch.tensor(rows, dtype=like.dtype if isinstance(like, torch.Tensor) else torch.int32)


_adapter = _TorchAdapter()
now = Collectives(_adapter, wait=True)
later = Collectives(_adapter, wait=False)
