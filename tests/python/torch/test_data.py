"""Data: shares of a data set, workers that are alive during training, and ranks that have less."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def optimizer_of(hvd: ModuleType, model: torch.nn.Module) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.05), model.named_parameters())


def model_of() -> torch.nn.Module:
    torch.manual_seed(11)
    return torch.nn.Linear(4, 1)


def examples(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(torch.randn(count, 4, generator=generator), torch.randn(count, 1, generator=generator))


def test_a_distributed_sampler_gives_the_ranks_what_one_process_would_have(hvd: ModuleType) -> None:
    data = examples(24)
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    mine, alone = model_of(), model_of()
    optimizer = optimizer_of(hvd, mine)
    reference = torch.optim.SGD(alone.parameters(), 0.05)
    whole = DataLoader(data, batch_size=12)
    for (inputs, targets), (all_inputs, all_targets) in zip(
        DataLoader(data, batch_size=12 // hvd.size(), sampler=sampler), whole, strict=True
    ):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(mine(inputs), targets).backward()
        optimizer.step()
        reference.zero_grad()
        torch.nn.functional.mse_loss(alone(all_inputs), all_targets).backward()
        reference.step()
    torch.testing.assert_close(mine.weight, alone.weight)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_are_alive_during_training(hvd: ModuleType, method: str) -> None:
    if method == "spawn" and hvd.size() > 2:
        return  # Each takes a second or more to start, on one core.
    model = model_of()
    optimizer = optimizer_of(hvd, model)
    loader = DataLoader(
        examples(16), batch_size=4, num_workers=1, multiprocessing_context=method, persistent_workers=True
    )
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    weights = hvd.allgather(model.weight.detach(), "weights")
    assert all(torch.equal(weights[0], one) for one in weights)
    del loader


@pytest.mark.parametrize("in_buckets", [False, True])
def test_ranks_with_less_data_join(hvd: ModuleType, in_buckets: bool) -> None:
    model = model_of()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.5), model.named_parameters(), gradient_as_bucket_view=in_buckets
    )
    start = model.bias.item()
    for _ in range(hvd.rank() + 1):
        optimizer.zero_grad()
        model(torch.zeros(1, 4)).sum().backward()
        optimizer.step()
    last = hvd.join()
    assert 0 <= last < hvd.size()
    # In step k ranks k, k + 1, ... have a gradient of 1; the average is over all ranks.
    steps = [(hvd.size() - step) / hvd.size() for step in range(hvd.rank() + 1)]
    assert model.bias.item() == pytest.approx(start - 0.5 * sum(steps), abs=1e-6)
