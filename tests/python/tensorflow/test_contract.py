"""Horovod's interface for TensorFlow, name by name and signature by signature."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from types import ModuleType, SimpleNamespace

import pytest
import tensorflow as tf

import horo
from horo.tensorflow import library

PS = "process_set=global_process_set"
SCALE = "prescale_factor=1.0, postscale_factor=1.0"
NONE = "compression=Compression.none"
TAPE = (
    f"gradtape, device_dense='', device_sparse='', {NONE}, sparse_as_dense=False, op=Average, "
    f"gradient_predivide_factor=1.0, num_groups=0, groups=None, {PS}"
)

# Parameters as Horovod has them; horo may have more at the end, with defaults.
NAMES = {
    "allreduce": f"tensor, average=None, device_dense='', device_sparse='', {NONE}, op=None, {SCALE}, name=None, {PS}, "
    "ignore_name_scope=False",
    "grouped_allreduce": f"tensors, average=None, device_dense='', device_sparse='', {NONE}, op=None, {SCALE}, {PS}, "
    "ignore_name_scope=False, name=None",
    "reducescatter": f"tensor, device_dense='', {NONE}, op=Average, name=None, {PS}, ignore_name_scope=False, {SCALE}",
    "grouped_reducescatter": f"tensors, device_dense='', {NONE}, op=Average, {PS}, {SCALE}",
    "allgather": f"tensor, name=None, ignore_name_scope=False, {PS}",
    "grouped_allgather": f"tensors, name=None, ignore_name_scope=False, {PS}",
    "broadcast": f"tensor, root_rank, name=None, ignore_name_scope=False, {PS}",
    "broadcast_": f"variables, root_rank, name=None, {PS}",
    "alltoall": f"tensor, splits=None, name=None, ignore_name_scope=False, {PS}",
    "join": "",
    "size_op": "process_set_id=0, name=None",
    "rank_op": "name=None",
    "local_size_op": "name=None",
    "local_rank_op": "name=None",
    "process_set_included_op": "process_set_id=0, name=None",
    "broadcast_variables": f"variables, root_rank, {PS}, inplace=False",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
    "broadcast_object": f"obj, root_rank=0, session=None, name=None, {PS}",
    "broadcast_object_fn": f"root_rank=0, session=None, name=None, {PS}",
    "allgather_object": f"obj, session=None, name=None, {PS}",
    "DistributedGradientTape": f"{TAPE}, scale_local_gradients=True",
    "PartialDistributedGradientTape": f"{TAPE}, local_layers=None, scale_local_gradients=True",
    "DistributedOptimizer": f"optimizer, name=None, use_locking=False, device_dense='', device_sparse='', {NONE}, "
    "sparse_as_dense=False, backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, "
    f"average_aggregated_gradients=False, num_groups=0, groups=None, {PS}, scale_local_gradients=True",
    "SyncBatchNormalization": "fused=False",
    "init": "comm=None, process_sets=None",
    **dict.fromkeys(["shutdown", "is_initialized", "size", "rank", "local_size", "local_rank", "is_homogeneous"], ""),
    **dict.fromkeys(["cross_size", "cross_rank", "mpi_threads_supported", "mpi_enabled", "mpi_built"], ""),
    **dict.fromkeys(["gloo_enabled", "gloo_built", "nccl_built", "ddl_built", "ccl_built"], ""),
    **dict.fromkeys(["cuda_built", "rocm_built", "stop_timeline"], ""),
    "start_timeline": "file_path, mark_cycles=False",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "check_num_rank_power_of_2": "num_rank",
    "LocalGradientAggregationHelper": "backward_passes_per_step, allreduce_func",
    "gpu_available": "ext_base_name='tensorflow', verbose=False",
    "_executing_eagerly": "",
}
STATES = {
    "run": "func",
    "TensorFlowState": "variables=None, session=None",
    "TensorFlowKerasState": "model, optimizer=None, backend=None",
}


def words(value: object, hvd: ModuleType) -> str:
    if value is hvd.global_process_set:
        return "global_process_set"
    if value is hvd.Compression.none:
        return "Compression.none"
    return repr(value)


def signature(function: object, hvd: ModuleType) -> list[str]:
    empty, open_ended = inspect.Parameter.empty, inspect.Parameter.VAR_KEYWORD
    return [
        one.name if one.default is empty else f"{one.name}={words(one.default, hvd)}"
        for one in inspect.signature(function).parameters.values()
        if one.kind != open_ended
    ]


def test_each_name_is_there_with_its_parameters(hvd: ModuleType) -> None:
    for module, names in ((hvd, NAMES), (hvd.elastic, STATES)):
        for name, parameters in names.items():
            wanted = parameters.replace("op=Average", "op=0")
            got = signature(getattr(module, name), hvd)
            count = len(wanted.split(", ")) if wanted else 0
            assert ", ".join(got[:count]) == wanted, name
            assert all("=" in one for one in got[count:]), name


def test_the_constants_and_classes_are_there(hvd: ModuleType) -> None:
    wanted = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
    assert {name: getattr(hvd, name) for name in wanted} == wanted
    assert hvd.HorovodInternalError is horo.HorovodInternalError
    assert hvd.ProcessSet is horo.ProcessSet
    assert hvd.Compression.fp16.compress(tf.ones([1]))[0].dtype == tf.float16
    for module in (hvd, hvd.mpi_ops, hvd.elastic):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_horovods_names_are_these(hvd: ModuleType) -> None:
    assert importlib.util.find_spec("horovod.tensorflow") is not None
    old = importlib.import_module("horovod.tensorflow")
    assert [name for name in NAMES if getattr(old, name) is not getattr(hvd, name)] == []
    for name in ("mpi_ops", "util", "elastic", "functions", "compression"):
        module = importlib.import_module(f"horovod.tensorflow.{name}")
        origin = importlib.import_module(f"horo.tensorflow.{name}")
        public = [one for one in getattr(origin, "__all__", vars(origin)) if not one.startswith("__")]
        assert [one for one in public if one[0] != "_" and getattr(module, one) is not getattr(origin, one)] == []


class Problem:
    """In place of the plugin's function, where a TensorFlow lacks something."""

    def __call__(self) -> bytes:
        return b"incompatible: TF_Something is missing"


def test_an_unsupported_tensorflow_is_named(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = SimpleNamespace(horo_tensorflow_problem=Problem())
    monkeypatch.setattr("horo.tensorflow.library.ctypes.CDLL", lambda path: plugin)
    words = rf"made for TensorFlow 2\.16 to 2\.21, but {tf.__version__} \(.*TF_Something is missing\) is installed"
    with pytest.raises(horo.HorovodVersionMismatchError, match=words):
        library.ops.__wrapped__()


@pytest.mark.parametrize("name", ["horovod.tensorflow.sync_batch_norm", "horovod.tensorflow.gradient_aggregation"])
def test_modules_of_single_names_are_there(hvd: ModuleType, name: str) -> None:
    module = importlib.import_module(name)
    assert [one for one in module.__all__ if getattr(module, one) is not getattr(hvd, one)] == []
