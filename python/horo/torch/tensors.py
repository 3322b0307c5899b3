"""Tensors of torch as the library takes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from horo import _horo
from horo.collectives import Collectives, Given
from horo.torch.memory import DeviceBytes

# Those that this torch has; the names are the library's.
_DTYPES = {getattr(torch, name): number for name, number in _horo.DTYPES.items() if hasattr(torch, name)}
# It does not matter where an element lies, as long as it lies there on all ranks; the result has the input's shape.
_ELEMENTWISE = ("allreduce", "broadcast")
_TRUE = ("1", "true", "yes", "on")


def dtype_number(tensor: Any, kind: str) -> int:
    """The number of the dtype."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{kind} takes a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{kind} takes dense tensors, not one of layout {tensor.layout}; use sparse_allreduce_async, or to_dense()"
        )
    if not tensor.is_cpu and not tensor.is_cuda:
        raise ValueError(
            f"{kind} of a tensor on {tensor.device}: horo has operations on CPU and CUDA tensors; give it tensor.cpu()"
        )
    number = _DTYPES.get(tensor.dtype)
    if number is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return number


def place_of(tensor: torch.Tensor) -> tuple[int, int]:
    """The device, and its stream that this thread works on; -1 for the host."""
    if not tensor.is_cuda:
        return -1, 0
    device = tensor.get_device()
    return device, current_stream(device)


def _make_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


# The number alone: an object for it takes 4 us.
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _make_stream)


def stream_of(tensor: torch.Tensor) -> int | None:
    """The stream of its device that this thread works on, to wait in; None for the host."""
    return current_stream(tensor.get_device()) if tensor.is_cuda else None


def tensor_reader(*, exchange: bool = True) -> _horo.TensorReader:
    """Looks at tensors from compiled code; without `exchange` through attributes, as where torch has no better."""
    return _horo.TensorReader(torch.Tensor, torch.strided, _DTYPES, exchange)


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether what lies in memory is not yet what the tensor says."""
    return tensor.is_conj() or tensor.is_neg()


def dense_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The strides if the elements lie without gaps and overlaps, in whatever order of dimensions."""
    strides = tensor.stride()
    expected = 1
    for stride, extent in sorted((stride, extent) for stride, extent in zip(strides, tensor.shape, strict=True)):
        if extent != 1:
            if stride != expected:
                return None
            expected *= extent
    return strides


def strides_of(param: torch.Tensor) -> tuple[int, ...]:
    """Of what belongs to a parameter and has a place of its own: the parameter's, unless that has gaps."""
    strides = dense_strides(param)
    return torch.empty(param.shape, device="meta").stride() if strides is None else strides


def completion_stream(device: int) -> int | None:
    """The stream that waits for the result of an operation on a device; None where the thread does, as in Horovod."""
    if device < 0:
        return None
    words = os.environ.get("HORO_ASYNC_COMPLETION") or os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION") or ""
    return current_stream(device) if words.strip().lower() in _TRUE else None


class _TorchAdapter:
    reader = tensor_reader()
    completion_stream = staticmethod(completion_stream)

    def take(self, tensor: torch.Tensor, kind: str) -> Given:
        number = dtype_number(tensor, kind)
        source = tensor.detach()
        strides = None
        if is_lazy(source):
            source = source.resolve_conj().resolve_neg()
        if not source.is_contiguous():
            strides = dense_strides(source) if kind in _ELEMENTWISE else None
            if strides is None:
                source = source.contiguous()
        device, stream = place_of(source)
        if kind not in _ELEMENTWISE:
            return Given(source, number, source.shape, source.data_ptr(), device=device, stream=stream)
        result = torch.empty_like(source)
        return Given(
            source, number, source.shape, source.data_ptr(), result.data_ptr(), strides, result, None, device, stream
        )

    def take_in_place(self, tensor: torch.Tensor, kind: str) -> Given:
        number = dtype_number(tensor, kind)
        strides = None
        as_it_lies = not is_lazy(tensor)
        if as_it_lies and not tensor.is_contiguous():
            strides = dense_strides(tensor)
            as_it_lies = strides is not None
        if as_it_lies:
            # The storage: the tensor may be given another one meanwhile (tensor.data = ...).
            address = tensor.data_ptr()
            storage = tensor.untyped_storage()
            return Given(storage, number, tensor.shape, address, address, strides, tensor, None, *place_of(tensor))
        if any(stride == 0 and extent > 1 for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)):
            raise ValueError(f"{kind} in place needs memory of its own for each element; clone() the expanded tensor")
        target = tensor.detach()
        copy = target.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        address = copy.data_ptr()
        place = place_of(copy)
        return Given(copy, number, copy.shape, address, address, None, tensor, lambda: target.copy_(copy), *place)

    def read(self, native: _horo.Handle, index: int, given: Given) -> torch.Tensor:
        shape = native.shape(index)
        count = 1
        for extent in shape:
            count *= extent
        dtype = given.source.dtype
        if count == 0:
            return torch.empty(shape, dtype=dtype, device=given.source.device)
        if given.device >= 0:
            device = given.source.device
            bytes_ = torch.as_tensor(DeviceBytes(native, native.address(index), count * dtype.itemsize), device=device)
            result = bytes_.view(dtype).view(shape).clone()
            # The library lends the memory to the next operation, whose stream does not wait for this one.
            torch.cuda.current_stream(device).synchronize()
            return result
        return torch.from_numpy(native.memory(index, count * dtype.itemsize)).view(dtype).view(shape)

    def splits(self, rows: Sequence[int], like: Any) -> torch.Tensor:
        kind = (
            {"dtype": like.dtype, "device": like.device} if isinstance(like, torch.Tensor) else {"dtype": torch.int32}
        )
        return torch.tensor(rows, **kind)


_adapter = _TorchAdapter()
now = Collectives(_adapter, wait=True)
later = Collectives(_adapter, wait=False)


def allgather_with_rows(tensor: torch.Tensor, name: str | None, process_set: Any) -> tuple[torch.Tensor, list[int]]:
    """What an allgather gives, and how many rows of it are each rank's."""
    given = _adapter.take(tensor, "allgather")
    return now.hand_in(
        "allgather",
        [given],
        name,
        process_set,
        read=lambda native: (_adapter.read(native, 0, given), native.received_splits(0)),
    )


def grouped_allgather_with_rows(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: Any
) -> list[tuple[torch.Tensor, list[int]]]:
    given = [_adapter.take(tensor, "allgather") for tensor in tensors]
    return now.hand_in(
        "allgather",
        given,
        name,
        process_set,
        grouped=True,
        read=lambda native: [
            (_adapter.read(native, index, one), native.received_splits(index)) for index, one in enumerate(given)
        ],
    )
