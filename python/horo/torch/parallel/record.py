"""What a model's reductions were like, under the names that torch's logging data has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from horo.process_sets import ProcessSet
from horo.torch.parallel import hooks
from horo.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from horo.torch.parallel.module import DistributedDataParallel

_NANOSECONDS = 1e9


def _sizes(ddp: DistributedDataParallel) -> list[int]:
    tensors = ddp.reducer.parameters.tensors
    return [sum(tensors[number].nbytes for number in numbers) for numbers in ddp.reducer.buckets]


def _joined(numbers: list[int]) -> str:
    return ", ".join(str(one) for one in numbers)


def _arguments(ddp: DistributedDataParallel) -> dict[str, Any]:
    members = ddp.reducer.members
    tensors = ddp.reducer.parameters.tensors
    hook = ddp._comm_hooks[0][0] if ddp._comm_hooks else None
    return {
        "world_size": members.size,
        "rank": members.rank,
        "module_name": type(ddp.module).__name__,
        "is_multi_device_module": 0,
        "device_ids": "",
        "output_device": -1,
        "backend_name": "horo",
        "process_set": str(ddp.process_group) if isinstance(ddp.process_group, ProcessSet) else "",
        "broadcast_buffers": int(ddp.forward_sync_buffers),
        "bucket_cap_bytes": ddp.bucket_bytes_cap,
        "find_unused_parameters": int(ddp.find_unused_parameters),
        "gradient_as_bucket_view": int(ddp.gradient_as_bucket_view),
        "static_graph": int(ddp.static_graph),
        "has_sync_bn": int(any(isinstance(one, SyncBatchNorm) for one in ddp.module.modules())),
        "join_uneven_inputs": int(ddp.uneven is not None),
        "comm_hook": "" if hook is None else hook if isinstance(hook, str) else _hook_name(hook),
        "num_parameter_tensors": len(tensors),
        "total_parameter_size_bytes": sum(one.nbytes for one in tensors),
        "dtypes": ", ".join(sorted({str(one.dtype).removeprefix("torch.") for one in tensors})),
        "torch_version": torch.__version__,
        "master_addr": os.environ.get("MASTER_ADDR", "N/A"),
        "master_port": os.environ.get("MASTER_PORT", "N/A"),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", "N/A"),
    }


def _hook_name(hook: Any) -> str:
    return repr(hook) if isinstance(hook, hooks.BuiltinHook) else hooks.name_of(hook)


def logging_data(ddp: DistributedDataParallel) -> dict[str, Any]:
    """Times are in nanoseconds, as torch has them."""
    seen: dict[str, Any] = ddp.reducer.native.statistics()
    sizes = _joined(_sizes(ddp))
    rebuilt = ddp.reducer.rebuilt
    last = seen["last"]
    spans = {
        "forward_compute_time": last["backward_start"] - last["forward_start"],
        "backward_compute_time": last["backward_end"] - last["backward_start"],
        "backward_comm_time": last["communication_end"] - last["communication_start"],
        "backward_compute_comm_overlap_time": last["backward_end"] - last["communication_start"],
        "avg_forward_compute_time": seen["mean_forward"],
        "avg_backward_compute_time": seen["mean_backward"],
        "avg_backward_comm_time": seen["mean_communication"],
        "avg_backward_compute_comm_overlap_time": seen["mean_overlap"],
        "forward_compute_time_start": last["forward_start"],
        "backward_compute_time_start": last["backward_start"],
        "backward_comm_time_start": last["communication_start"],
        "backward_compute_time_end": last["backward_end"],
        "backward_comm_time_end": last["communication_end"],
    }
    return {
        **_arguments(ddp),
        "iteration": seen["iterations"],
        "failures": seen["failures"],
        "bucket_sizes": sizes,
        "has_rebuilt_buckets": int(rebuilt),
        "rebuilt_bucket_sizes": sizes if rebuilt else "",
        "rebuilt_per_bucket_param_indices": (
            ", ".join(" ".join(str(one) for one in numbers) for numbers in ddp.reducer.buckets) if rebuilt else ""
        ),
        "prev_iteration_grad_ready_order_indices": _joined(ddp.reducer.native.ready_order()),
        "can_set_static_graph": int(ddp.static_graph or ddp.reducer.graph_is_static),
        "num_buckets_reduced": seen["buckets_reduced"],
        "unused_parameter_size": seen["unused_bytes"],
        "gradient_bytes": seen["gradient_bytes"],
        "sent_bytes": seen["sent_bytes"],
        **{name: max(0, int(seconds * _NANOSECONDS)) for name, seconds in spans.items()},
    }
