"""torch's own ways to train in parallel, on the back end."""

from __future__ import annotations

import copy
from types import ModuleType

import pytest
import torch
from torch import nn

STEPS = 5


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def train(parallel: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> list[float]:
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(rank, step)
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_equal(dist: ModuleType, module: nn.Module) -> None:
    """All ranks have the same parameters, bit by bit."""
    mine = torch.cat([one.detach().flatten() for one in module.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    assert all(torch.equal(one, mine) for one in every)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True, "bucket_cap_mb": 1},
    ],
    ids=["plain", "views", "static", "unused"],
)
def test_torchs_ddp_trains(dist: ModuleType, rank: int, size: int, arguments: dict) -> None:
    module = model()
    alone = copy.deepcopy(module)
    parallel = nn.parallel.DistributedDataParallel(module, **arguments)
    train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1), rank)
    check_equal(dist, module)
    # The same with the mean of the gradients by hand.
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    copies = [copy.deepcopy(alone) for _ in range(size)]
    for step in range(STEPS):
        optimizer.zero_grad()
        for one, replica in enumerate(copies):
            replica.load_state_dict(alone.state_dict())
            inputs, targets = batch(one, step)
            nn.functional.mse_loss(replica(inputs), targets).backward()
        for name, parameter in alone.named_parameters():
            grads = [dict(replica.named_parameters())[name].grad for replica in copies]
            parameter.grad = torch.stack(grads).mean(0)
        for replica in copies:
            replica.zero_grad()
        optimizer.step()
    for one, wanted in zip(module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-6)


def test_horos_ddp_trains_on_a_process_group(dist: ModuleType, rank: int) -> None:
    import horo.torch

    modules = [model(), model()]
    both = [
        horo.torch.DistributedDataParallel(modules[0], process_group=dist.group.WORLD),
        nn.parallel.DistributedDataParallel(modules[1]),
    ]
    for parallel in both:
        train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1), rank)
        check_equal(dist, parallel.module)
    for one, wanted in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        torch.testing.assert_close(one, wanted)


def test_comm_hooks_of_torch_work(dist: ModuleType, rank: int) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, state in (
        (default_hooks.allreduce_hook, None),
        (default_hooks.fp16_compress_hook, None),
        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)),
    ):
        parallel = nn.parallel.DistributedDataParallel(model())
        parallel.register_comm_hook(state, hook)
        train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.05), rank)
        check_equal(dist, parallel.module)


def test_uneven_inputs_join(dist: ModuleType, rank: int) -> None:
    parallel = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    with parallel.join():
        for step in range(2 + rank):
            inputs, targets = batch(rank, step)
            nn.functional.mse_loss(parallel(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
    check_equal(dist, parallel.module)


def test_sparse_gradients_are_reduced(dist: ModuleType, rank: int) -> None:
    module = nn.Embedding(10, 3, sparse=True)
    parallel = nn.parallel.DistributedDataParallel(module)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        parallel(torch.tensor([rank, 5, step])).sum().backward()
        assert module.weight.grad.is_sparse
        optimizer.step()
    check_equal(dist, module)


def test_the_optimizer_of_zero_has_the_results_of_the_whole(dist: ModuleType, rank: int) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module, whole = model(), model()
    parallel = nn.parallel.DistributedDataParallel(module)
    sharded = ZeroRedundancyOptimizer(parallel.parameters(), torch.optim.Adam, lr=0.01)
    other = nn.parallel.DistributedDataParallel(whole)
    train(parallel, sharded, rank)
    train(other, torch.optim.Adam(other.parameters(), lr=0.01), rank)
    for one, wanted in zip(module.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one, wanted)
    sharded.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(sharded.state_dict()["state"]) == len(list(module.parameters()))


def test_fully_sharded_modules_train(dist: ModuleType, rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    alone = copy.deepcopy(module)
    mesh = init_device_mesh("cpu", (size,))
    for layer in (module[0], module[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    losses = train(module, torch.optim.SGD(module.parameters(), lr=0.1), rank)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for one in range(size):
            inputs, targets = batch(one, step)
            (nn.functional.mse_loss(alone(inputs), targets) / size).backward()
        optimizer.step()
    assert len(losses) == STEPS
    for one, wanted in zip(module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.full_tensor(), wanted, rtol=1e-4, atol=1e-6)


def test_checkpoints_are_written_together(
    dist: ModuleType, rank: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import torch.distributed.checkpoint as checkpoint

    where = [str(tmp_path_factory.mktemp("checkpoint"))]
    dist.broadcast_object_list(where, 0)
    state = {"weight": torch.full((3,), 7.0), "step": 5}
    checkpoint.save(state, checkpoint_id=where[0])
    loaded = {"weight": torch.zeros(3), "step": 0}
    checkpoint.load(loaded, checkpoint_id=where[0])
    assert torch.equal(loaded["weight"], state["weight"])
    assert loaded["step"] == 5
