"""The arguments of DistributedDataParallel: what they mean, and what is wrong with them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

_MEBIBYTE = 1 << 20
_DEFAULT_BUCKET_MB = 25
_FIRST_BUCKET_BYTES = 1 << 20
BROADCAST_BYTES = 250 << 20  # What torch puts together at most; here buffers and parameters are sent as they are.


class Caps(NamedTuple):
    """How large buckets are, in bytes."""

    cap: int
    first: int
    each: tuple[int, ...]  # One for each bucket; the last holds for those that follow.

    @classmethod
    def of(cls, bucket_cap_mb: float | None, bucket_cap_mb_list: Sequence[float] | None) -> Caps:
        if bucket_cap_mb_list:
            each = tuple(int(one * _MEBIBYTE) for one in bucket_cap_mb_list)
            if min(each) < 1:
                raise ValueError(f"bucket_cap_mb_list has sizes of buckets in MiB, not {list(bucket_cap_mb_list)}")
            return cls(max(each), max(each), each)
        if bucket_cap_mb is None:
            return cls(_DEFAULT_BUCKET_MB * _MEBIBYTE, _FIRST_BUCKET_BYTES, ())
        cap = int(bucket_cap_mb * _MEBIBYTE)
        if cap < 1:
            raise ValueError(f"bucket_cap_mb is the size of a bucket in MiB, not {bucket_cap_mb}")
        return cls(cap, cap, ())

    def at_first(self, *, static_graph: bool, find_unused: bool) -> list[int]:
        """Limits before the order of the gradients is known. None: everything is one bucket."""
        if self.each:
            return list(self.each)
        if static_graph or not find_unused:
            return []
        return [self.first, self.cap] if self.first < self.cap else [self.cap]

    def rebuilt(self) -> list[int]:
        if self.each:
            return list(self.each)
        return [self.first, self.cap] if self.first < self.cap else [self.cap]


class Buffers(NamedTuple):
    """When buffers are brought from one rank to the others."""

    forward: bool
    init: bool

    @classmethod
    def of(cls, broadcast_buffers: bool | None, forward_sync_buffers: bool | None) -> Buffers:
        if broadcast_buffers is not None:
            words = (
                "`broadcast_buffers` is deprecated, and not looked at beside `forward_sync_buffers`."
                if forward_sync_buffers is not None
                else "`broadcast_buffers` is deprecated. Use `forward_sync_buffers` instead; it is for forward passes "
                "only: buffers are always those of rank 0 when the model is wrapped."
            )
            warnings.warn(words, FutureWarning, stacklevel=4)
        if forward_sync_buffers is not None:
            return cls(bool(forward_sync_buffers), True)
        wanted = True if broadcast_buffers is None else bool(broadcast_buffers)
        return cls(wanted, wanted)


def check_module(module: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"DistributedDataParallel wraps a torch.nn.Module, not {type(module).__name__}")
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        raise ValueError("the module is wrapped in DistributedDataParallel already")


def check_parameters(named: Sequence[tuple[str, torch.Tensor]]) -> None:
    """`named` are those that are reduced."""
    for name, one in named:
        if isinstance(one, torch.nn.parameter.UninitializedParameter):
            raise RuntimeError(
                f"parameter '{name}' is not initialised yet; run the module once before it is wrapped in "
                "DistributedDataParallel"
            )
    if not any(one.requires_grad for _, one in named):
        raise RuntimeError(
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
        )
    first = named[0][1].device
    for name, one in named:
        if one.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"parameter '{name}' is on {one.device}: horo.torch.DistributedDataParallel reduces gradients of "
                "modules on the CPU or on a CUDA device"
            )
        if one.device != first:
            raise ValueError(
                f"parameter '{name}' is on {one.device}, but '{named[0][0]}' is on {first}: "
                "horo.torch.DistributedDataParallel reduces gradients of modules on one device"
            )


def check_devices(device_ids: Any, output_device: Any, device: torch.device) -> list[int] | None:
    """What torch calls device_ids: where inputs are moved; None where they stay."""
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError("device_ids can only be None or contain a single element.")
    if device.type == "cuda":
        for one in [*(device_ids or []), *([] if output_device is None else [output_device])]:
            given = torch.device("cuda", one) if isinstance(one, int) else torch.device(one)
            if given != device:
                raise ValueError(f"the module is on {device}, but device_ids or output_device says {given}")
        return [device.index] if device_ids else None
    if device_ids or output_device is not None:
        raise ValueError(
            f"DistributedDataParallel of a module on the CPU has no device_ids ({device_ids}) and no output_device "
            f"({output_device}); leave them out"
        )
    return None


def group_of(process_group: Any, device_mesh: Any) -> Any:
    """What `process_group` is, if need be by way of a mesh."""
    if device_mesh is None:
        return process_group
    if process_group is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh.ndim != 1:
        raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
    return device_mesh.get_group(mesh_dim=0)


def refuse_delayed(delay_all_reduce_named_params: Any, param_to_hook_all_reduce: Any) -> None:
    if delay_all_reduce_named_params is not None or param_to_hook_all_reduce is not None:
        raise ValueError(
            "delay_all_reduce_named_params and param_to_hook_all_reduce are not supported: horo reduces every bucket "
            "as soon as its gradients are there; leave them out"
        )


def refuse_optimizers_in_backward(parameters: Sequence[torch.Tensor]) -> None:
    if any(hasattr(one, "_in_backward_optimizers") for one in parameters):
        raise ValueError(
            "an optimizer that steps in the backward pass (_apply_optimizer_in_backward) would use gradients before "
            "they are averages; step after backward() instead"
        )


def refuse_torch_sync_batch_norm(module: torch.nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.SyncBatchNorm):
            raise ValueError(
                f"'{name}' is torch's SyncBatchNorm, which works on GPUs only; use "
                "horo.torch.SyncBatchNorm.convert_sync_batchnorm(module) before wrapping it"
            )
