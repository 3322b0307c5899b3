"""horo's DistributedDataParallel on process groups of torch: no hvd.init(), torch's own hooks and Join."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer

import horo.torch as hvd


def model_of(seed: int = 1, **arguments: Any) -> Any:
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    return hvd.DistributedDataParallel(module, **arguments)


def batch_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(100 * rank + step))


def averages(dist: ModuleType, gradients: list[torch.Tensor], group: Any = None) -> list[torch.Tensor]:
    wanted = [one / dist.get_world_size(group) for one in gradients]
    for one in wanted:
        dist.all_reduce(one, group=group)
    return wanted


def local_gradients(model: Any, data: torch.Tensor) -> list[torch.Tensor]:
    alone = copy.deepcopy(model.module)
    alone.zero_grad()
    alone(data).square().sum().backward()
    return [one.grad for one in alone.parameters()]


def check(dist: ModuleType, model: Any, group: Any = None, tolerance: float = 1e-5, steps: int = 3) -> None:
    for step in range(steps):
        data = batch_of(dist.get_rank(), step)
        wanted = averages(dist, local_gradients(model, data), group)
        model.zero_grad()
        model(data).square().sum().backward()
        for one, other in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(one.grad, other, rtol=tolerance, atol=tolerance)


def test_the_default_group_is_enough(dist: ModuleType) -> None:
    assert not hvd.is_initialized()
    model = model_of()
    check(dist, model)
    assert model._get_ddp_logging_data()["world_size"] == dist.get_world_size()
    assert model.join_process_group is dist.group.WORLD
    again = copy.deepcopy(model)
    check(dist, again)


def test_a_group_of_some_ranks_and_a_mesh(dist: ModuleType) -> None:
    some = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        model = model_of(process_group=some, gradient_as_bucket_view=True)
        check(dist, model, some)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    check(dist, model_of(device_mesh=mesh))
    with pytest.raises(RuntimeError, match="both process_group and device_mesh"):
        model_of(device_mesh=mesh, process_group=dist.group.WORLD)


def test_the_group_can_change(dist: ModuleType) -> None:
    model = model_of()
    check(dist, model)
    everybody = dist.new_group()
    model._update_process_group(everybody)
    check(dist, model, everybody)


def test_hook_functions_of_torch_work(dist: ModuleType) -> None:
    halved = model_of()
    halved.register_comm_hook(None, default_hooks.fp16_compress_hook)
    check(dist, halved, tolerance=2e-2)
    average = model_of(bucket_cap_mb=0.0001)
    average.register_comm_hook(dist.group.WORLD, default_hooks.allreduce_hook)
    check(dist, average)
    thin = model_of()
    thin.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
    optimizer = torch.optim.SGD(thin.parameters(), 0.01)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = thin(batch_of(dist.get_rank(), 0)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_join_of_torch_takes_several(dist: ModuleType) -> None:
    model = model_of(find_unused_parameters=False)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01)
    alone = copy.deepcopy(model.module)
    reference = torch.optim.SGD(alone.parameters(), lr=0.01)
    size = dist.get_world_size()
    with Join([model, optimizer]):
        for step in range(2 + dist.get_rank()):
            optimizer.zero_grad()
            model(batch_of(dist.get_rank(), step)).square().sum().backward()
            optimizer.step()
    for step in range(1 + size):
        reference.zero_grad()
        for rank in range(size):
            if step < 2 + rank:
                (alone(batch_of(rank, step)).square().sum() / size).backward()
        reference.step()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
