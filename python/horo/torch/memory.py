"""Tensors in memory that the other ranks of the host read where it lies."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from horo import _horo
from horo.exceptions import HorovodInternalError
from horo.world import world


class DeviceBytes:
    """Memory of the library's on a GPU, as torch reads it. Lives as long as a tensor over it."""

    def __init__(self, keeper: object, address: int, count: int) -> None:
        self._keeper = keeper
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def shared_bytes(place: _horo.Group | _horo.Runtime, count: int, device: torch.device) -> torch.Tensor:
    """Of a GPU."""
    index = torch.cuda.current_device() if device.index is None else device.index
    try:
        memory = _horo.allocate_on(place, index, count)
    except HorovodInternalError:
        torch.cuda.empty_cache()  # What torch keeps for later may be all that is left.
        memory = _horo.allocate_on(place, index, count)
    return torch.as_tensor(DeviceBytes(memory, memory.address, count), device=device)


def room(place: _horo.Group | _horo.Runtime, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Flat, on a GPU in shared memory where that can be had: without it operations take copies more."""
    if device.type == "cuda" and count > 0:
        try:
            return shared_bytes(place, count * dtype.itemsize, device).view(dtype)
        except HorovodInternalError:
            pass
    return torch.empty(count, dtype=dtype, device=device)


def shared_empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: torch.device | str | int | None = None
) -> torch.Tensor:
    """Like torch.empty, in memory that the other ranks of the host can read where it lies: operations in place on such
    a tensor need no copies of it. It is the tensor's as long as there is one over it, after shutdown() too."""
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    where = torch.get_default_device() if device is None else torch.device(device)
    if where.type not in ("cpu", "cuda"):
        raise ValueError(f"shared_empty makes tensors on the CPU and on CUDA devices, not on {where}")
    count = shape.numel() * dtype.itemsize
    if count == 0:
        return torch.empty(shape, dtype=dtype, device=where)
    if where.type == "cpu":
        flat = torch.from_numpy(world.runtime.allocate(count))
    else:
        flat = shared_bytes(world.runtime, count, where)
    return flat.view(dtype).view(shape)
