"""What DistributedDataParallel has beside training: its arguments, copies, records, and ranks that change."""

from __future__ import annotations

import copy
import inspect
import io
from types import ModuleType
from typing import Any

import pytest
import torch
from ddp_models import different_on_ranks, loss_of, plain, trains_as_one
from torch.nn.parallel.distributed import _BufferCommHookLocation, _MixedPrecision
from training import close, data_of, same_on_all_ranks, sgd, share_of


def test_it_takes_the_arguments_of_torchs(hvd: ModuleType) -> None:
    theirs = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
    ours = inspect.signature(hvd.DistributedDataParallel.__init__).parameters
    assert [name for name in theirs if name not in ours] == []
    same = [name for name in theirs if ours[name].default == theirs[name].default]
    assert [name for name in theirs if name not in same and name != "broadcast_buffers"] == []


def test_it_has_the_methods_of_torchs(hvd: ModuleType) -> None:
    """None of torch's own may look for a reducer or a process group of torch."""
    kind = hvd.DistributedDataParallel
    theirs = torch.nn.parallel.DistributedDataParallel
    inherited = {
        *("forward", "scatter", "gather", "to_kwargs", "train", "no_sync", "join_device", "will_sync_module_buffers"),
        *("_inside_ddp_forward", "_get_active_ddp_module", "_assign_modules_buffers", "_sync_module_buffers"),
        *("_default_broadcast_coalesced", "_register_buffer_comm_hook", "_get_data_parallel_params", "_log_and_throw"),
        *(
            "_set_params_and_buffers_to_ignore_for_model",
            "_set_ddp_sink_clone",
            "_get_parameters",
            "_clear_grad_buffer",
        ),
        *("_check_sync_bufs_pre_fwd", "_check_sync_bufs_post_fwd", "__module__", "__doc__", "__abstractmethods__"),
        *("_active_ddp_module", "_abc_impl", "__annotations__", "_lazy_init"),
    }
    construction = {
        *("_ddp_init_helper", "_build_params_for_reducer", "_build_debug_param_to_name_mapping", "_check_comm_hook"),
        *("_passing_sync_batchnorm_handle", "_check_default_group", "_register_accum_grad_hook", "_sync_buffers"),
        *("_delayed_all_reduce_hook", "_register_delay_all_reduce_hook", "_setup_in_backward_optimizers"),
        *("_fire_reducer_autograd_hook", "_root_copy_hook", "_module_wait_for_copy_hook", "_sync_final_model"),
        *("_check_and_sync_module_buffers", "_match_all_reduce_for_bwd_pass", "_match_unused_params_allreduce"),
        *("_check_global_requires_backward_grad_sync",),
    }
    left = [name for name in vars(theirs) if name not in vars(kind) and name not in inherited | construction]
    assert left == []


@pytest.mark.parametrize(
    "dtypes", [(torch.bfloat16, None, None), (torch.bfloat16, torch.float32, torch.float32)], ids=str
)
def test_mixed_precision(hvd: ModuleType, dtypes: tuple[Any, Any, Any]) -> None:
    seen: list[torch.dtype] = []

    class Looking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = plain()
            self.register_buffer("factor", torch.ones(1, dtype=torch.float64))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen.append(inputs.dtype)
            seen.append(next(self.inner.parameters()).dtype)
            return self.inner(inputs).float()

    config = _MixedPrecision(param_dtype=dtypes[0], reduce_dtype=dtypes[1], buffer_dtype=dtypes[2])
    mine = trains_as_one(
        hvd,
        Looking,
        mixed_precision=config,
        tolerance=3e-2,
        call=lambda model, inputs, step: model(inputs),
    )
    wrapped = seen[0::4] + seen[1::4]
    assert set(wrapped) == {torch.bfloat16}
    assert {one.dtype for one in mine.parameters()} == {torch.float32}
    assert {one.grad.dtype for one in mine.parameters()} == {torch.float32}
    assert mine.module.factor.dtype == (dtypes[2] or torch.float64)
    with torch.no_grad():
        mine(torch.ones(1, 4))
    assert {one.dtype for one in mine.parameters()} == {torch.float32}
    with pytest.raises(RuntimeError, match="reduce_dtype"):
        mine.register_comm_hook(None, "fp16")


@pytest.mark.parametrize("location", list(_BufferCommHookLocation), ids=lambda one: one.name)
def test_hooks_for_buffers(hvd: ModuleType, location: _BufferCommHookLocation) -> None:
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    mine = hvd.DistributedDataParallel(module)
    calls: list[list[str]] = []

    def mean(state: str, buffers: dict[str, torch.Tensor]) -> list[torch.futures.Future]:
        calls.append([state, *sorted(buffers)])
        for name in sorted(buffers):
            if buffers[name].is_floating_point():
                hvd.allreduce_(buffers[name], name=name)
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(None)
        return [future]

    mine._register_buffer_comm_hook("state", mean, location)
    for step in range(3):
        inputs, targets = data_of(step)
        loss_of(mine(share_of(hvd, inputs)), share_of(hvd, targets)).backward()
    assert calls == [["state", "1.num_batches_tracked", "1.running_mean", "1.running_var"]] * 3
    everybody = hvd.allgather(mine.module[1].running_mean.reshape(1, -1), "means")
    if location == _BufferCommHookLocation.POST_FORWARD:
        assert all(torch.equal(one, everybody[0]) for one in everybody)


def test_a_record_is_kept(hvd: ModuleType) -> None:
    mine = trains_as_one(hvd, steps=3, bucket_cap_mb=0.0002)
    facts = mine._get_ddp_logging_data()
    assert facts["world_size"] == hvd.size()
    assert facts["rank"] == hvd.rank()
    assert facts["iteration"] == 3
    assert facts["module_name"] == "Sequential"
    assert facts["backend_name"] == "horo"
    assert facts["num_parameter_tensors"] == 6
    assert facts["total_parameter_size_bytes"] == sum(one.nbytes for one in plain().parameters())
    assert facts["dtypes"] == "float32"
    assert facts["has_rebuilt_buckets"] == 1
    assert sum(int(one) for one in facts["rebuilt_bucket_sizes"].split(", ")) == facts["total_parameter_size_bytes"]
    assert len(facts["prev_iteration_grad_ready_order_indices"].split(", ")) == 6
    assert facts["can_set_static_graph"] == 1
    for name in ("forward_compute_time", "backward_compute_time", "backward_comm_time", "avg_backward_comm_time"):
        assert facts[name] > 0, name
    mine._set_ddp_runtime_logging_sample_rate(1)
    with pytest.raises(ValueError, match="sample rate"):
        mine._set_ddp_runtime_logging_sample_rate(0)
    assert facts["comm_hook"] == ""


def test_it_is_pickled_and_copied_with_what_it_has_learned(hvd: ModuleType) -> None:
    mine = trains_as_one(hvd, gradient_as_bucket_view=True)
    stream = io.BytesIO()
    torch.save(mine, stream)
    stream.seek(0)
    for other in (torch.load(stream, weights_only=False), copy.deepcopy(mine)):
        assert isinstance(other, hvd.DistributedDataParallel)
        close(other, mine)
        assert other.gradient_as_bucket_view
        optimizer = sgd(other.parameters())
        inputs, targets = data_of(5)
        loss_of(other(share_of(hvd, inputs)), share_of(hvd, targets)).backward()
        optimizer.step()
        same_on_all_ranks(hvd, other)


def test_other_ranks_may_take_over(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        pytest.skip("needs a set that is not all ranks and not one")
    fewer = hvd.add_process_set(range(hvd.size() - 1))
    mine = hvd.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    mine(torch.full((1, 1), float(hvd.rank()))).sum().backward()
    size = hvd.size()
    assert mine.module.weight.grad.item() == (size - 1) / 2
    try:
        mine._update_process_group(fewer)
        mine.zero_grad()
        mine.module(torch.zeros(1, 1)).sum()
        if hvd.rank() < size - 1:
            for _ in range(3):
                mine.zero_grad()
                mine(torch.full((1, 1), float(hvd.rank()))).sum().backward()
                assert mine.module.weight.grad.item() == (size - 2) / 2
        mine._update_process_group(hvd.global_process_set)
        mine.zero_grad()
        mine(torch.full((1, 1), float(hvd.rank()))).sum().backward()
        assert mine.module.weight.grad.item() == (size - 1) / 2
    finally:
        hvd.remove_process_set(fewer)


def test_a_model_lives_through_leaving_and_joining_the_job(hvd: ModuleType) -> None:
    mine = trains_as_one(hvd)
    hvd.shutdown()
    with torch.no_grad():
        assert mine(torch.ones(1, 4)).shape == (1, 3), "what needs no other rank still works"
    hvd.init()
    mine.zero_grad()
    (mine(torch.ones(1, 4)) * hvd.rank()).sum().backward()
    same_on_all_ranks(hvd, torch.nn.ParameterList([one.grad for one in mine.parameters()]))


def test_hooks_of_parameters_can_be_removed(hvd: ModuleType) -> None:
    mine = hvd.DistributedDataParallel(plain())
    mine._remove_autograd_hooks()
    (mine(torch.ones(1, 4)) * (hvd.rank() + 1)).sum().backward()
    assert mine.module[4].bias.grad.unique().tolist() == [hvd.rank() + 1]
    mine._set_ddp_sink_clone(False)


def test_without_synchronisation_at_the_start_models_keep_their_own_values(hvd: ModuleType) -> None:
    mine = hvd.DistributedDataParallel(different_on_ranks(hvd, plain()), init_sync=False)
    close(mine, different_on_ranks(hvd, plain()))


def test_evaluation_asks_nobody(hvd: ModuleType) -> None:
    mine = hvd.DistributedDataParallel(plain())
    if hvd.rank() == 0:
        mine.eval()
        with torch.no_grad():
            for _ in range(3):
                assert mine(torch.ones(1, 4)).shape == (1, 3)
        mine.train()
    mine(torch.ones(1, 4)).sum().backward()
    mine._check_reducer_finalized()


@pytest.mark.usefixtures("compiler")
def test_compiled_models_are_cut_where_buckets_end(hvd: ModuleType) -> None:
    graphs: list[Any] = []

    def counting(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    class Deep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layers(inputs)

    mine = hvd.DistributedDataParallel(Deep(), bucket_cap_mb=1)
    compiled = torch.compile(mine, backend=counting)
    for _ in range(3):
        mine.zero_grad()
        (compiled(torch.ones(2, 512)) * (hvd.rank() + 1)).sum().backward()
        same_on_all_ranks(hvd, torch.nn.ParameterList([one.grad for one in mine.parameters()]))
    assert len(graphs) == 4, f"{len(graphs)} graphs for 4 buckets"
