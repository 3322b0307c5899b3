"""Horovod's interface for torch, name by name and signature by signature."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
import torch

import horo

PS = "process_set=global_process_set"
SCALE = "prescale_factor=1.0, postscale_factor=1.0"

# Parameters as Horovod has them; horo may have more at the end, with defaults.
OPERATIONS = {
    "allreduce": f"tensor, average=None, name=None, compression=Compression.none, op=None, {SCALE}, {PS}",
    "allreduce_async": f"tensor, average=None, name=None, op=None, {SCALE}, {PS}",
    "allreduce_": f"tensor, average=None, name=None, op=None, {SCALE}, {PS}",
    "allreduce_async_": f"tensor, average=None, name=None, op=None, {SCALE}, {PS}",
    "grouped_allreduce": f"tensors, average=None, name=None, compression=Compression.none, op=None, {SCALE}, {PS}",
    "grouped_allreduce_async": f"tensors, average=None, name=None, op=None, {SCALE}, {PS}",
    "grouped_allreduce_": f"tensors, average=None, name=None, op=None, {SCALE}, {PS}",
    "grouped_allreduce_async_": f"tensors, average=None, name=None, op=None, {SCALE}, {PS}",
    "sparse_allreduce_async": f"tensor, name, op, {PS}",
    "allgather": f"tensor, name=None, {PS}",
    "allgather_async": f"tensor, name=None, {PS}",
    "grouped_allgather": f"tensors, name=None, {PS}",
    "grouped_allgather_async": f"tensors, name=None, {PS}",
    "broadcast": f"tensor, root_rank, name=None, {PS}",
    "broadcast_async": f"tensor, root_rank, name=None, {PS}",
    "broadcast_": f"tensor, root_rank, name=None, {PS}",
    "broadcast_async_": f"tensor, root_rank, name=None, {PS}",
    "alltoall": f"tensor, splits=None, name=None, {PS}",
    "alltoall_async": f"tensor, splits=None, name=None, {PS}",
    "reducescatter": f"tensor, name=None, compression=Compression.none, op=Average, {PS}, {SCALE}",
    "reducescatter_async": f"tensor, name=None, op=Average, {PS}, {SCALE}",
    "grouped_reducescatter": f"tensors, name=None, compression=Compression.none, op=Average, {PS}, {SCALE}",
    "grouped_reducescatter_async": f"tensors, name=None, op=Average, {PS}, {SCALE}",
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": PS,
}
STATE = {
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": f"obj, root_rank=0, name=None, {PS}",
    "allgather_object": "obj, name=None",
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
}
BASICS = {
    "init": "comm=None, process_sets=None",
    **dict.fromkeys(["shutdown", "is_initialized", "size", "rank", "local_size", "local_rank"], ""),
    **dict.fromkeys(["cross_size", "cross_rank", "mpi_threads_supported", "mpi_enabled", "mpi_built"], ""),
    **dict.fromkeys(["gloo_enabled", "gloo_built", "nccl_built", "ddl_built", "ccl_built"], ""),
    **dict.fromkeys(["cuda_built", "rocm_built", "stop_timeline"], ""),
    "start_timeline": "file_path, mark_cycles=False",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
REDUCTIONS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
FUNCTIONS = [
    *("HorovodAllreduce", "HorovodGroupedAllreduce", "HorovodAllgather", "HorovodGroupedAllgather"),
    *("HorovodBroadcast", "HorovodAlltoall", "HorovodReducescatter", "HorovodGroupedReducescatter"),
]


def words(value: object, hvd: ModuleType) -> str:
    if value is hvd.global_process_set:
        return "global_process_set"
    if value is hvd.Compression.none:
        return "Compression.none"
    return repr(value)


def signature(function: object, hvd: ModuleType) -> list[str]:
    empty = inspect.Parameter.empty
    return [
        one.name if one.default is empty else f"{one.name}={words(one.default, hvd)}"
        for one in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("name", [*OPERATIONS, *STATE, *BASICS])
def test_each_function_is_there_with_its_parameters(hvd: ModuleType, name: str) -> None:
    wanted = {**OPERATIONS, **STATE, **BASICS}[name].replace("op=Average", "op=0")
    assert name in hvd.__all__
    function = getattr(hvd, name)
    got = signature(function, hvd)
    count = len(wanted.split(", ")) if wanted else 0
    assert ", ".join(got[:count]) == wanted
    assert all("=" in one for one in got[count:])
    assert function.__name__ == name
    if name not in STATE:
        assert getattr(hvd.mpi_ops, name) is function, "libraries import it from there"
        assert name in hvd.mpi_ops.__all__


def test_the_constants_and_classes_are_there(hvd: ModuleType) -> None:
    assert {name: getattr(hvd, name) for name in REDUCTIONS} == REDUCTIONS
    assert {name: getattr(hvd.mpi_ops, name) for name in REDUCTIONS} == REDUCTIONS
    for name in FUNCTIONS:
        assert issubclass(getattr(hvd.mpi_ops, name), torch.autograd.Function)
    assert hvd.mpi_ops.is_homogeneous() in (True, False)
    assert hvd.HorovodInternalError is horo.HorovodInternalError
    assert hvd.ProcessSet is horo.ProcessSet
    assert hvd.global_process_set.process_set_id == 0
    assert hvd.Compression.fp16.compress(torch.ones(1))[0].dtype == torch.float16
    kept, context = hvd.Compression.none.compress(torch.ones(1))
    assert hvd.Compression.none.decompress(kept, context) is kept


def test_every_public_name_exists(hvd: ModuleType) -> None:
    for module in (hvd, hvd.mpi_ops, hvd.functions):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_compressors_can_be_ones_own(hvd: ModuleType) -> None:
    class Halves:
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
            return (tensor * 2).to(torch.int32), tensor.dtype

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
            return tensor.to(ctx) / 2

    got = hvd.allreduce(torch.tensor([0.5, 1.5]), compression=Halves, op=hvd.Sum)
    assert got.tolist() == [0.5 * hvd.size(), 1.5 * hvd.size()]
