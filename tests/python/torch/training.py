"""Small trainings for the tests of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

SAMPLES = 12  # A number that 1, 2, 3 and 4 ranks share equally.


def model_of(seed: int = 1) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def data_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(SAMPLES, 4, generator=generator), torch.randn(SAMPLES, 3, generator=generator)


def share_of(hvd: ModuleType, data: torch.Tensor) -> torch.Tensor:
    return data[hvd.rank() :: hvd.size()]


def loss_of(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(inputs), targets)


def same_on_all_ranks(hvd: ModuleType, model: torch.nn.Module) -> None:
    for name, param in model.named_parameters():
        everybody = hvd.allgather(param.detach().reshape(1, -1), f"check.{name}")
        assert all(torch.equal(everybody[0], one) for one in everybody), f"{name} differs between ranks"


def train(
    hvd: ModuleType,
    make: Callable[[Any], torch.optim.Optimizer],
    steps: int = 3,
    use: Callable[..., Any] | None = None,
    **arguments: Any,
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A model trained on all ranks, and one trained by this process alone with the data of all."""
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(make(mine.parameters()), mine.named_parameters(), **arguments)
    reference = make(alone.parameters())
    for step in range(steps):
        inputs, targets = data_of(step)
        optimizer.zero_grad()
        loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
        reference.zero_grad()
        loss_of(alone, inputs, targets).backward()
        if use is not None:
            use(mine, alone)
        optimizer.step()
        reference.step()
    same_on_all_ranks(hvd, mine)
    return mine, alone


def close(mine: torch.nn.Module, alone: torch.nn.Module, tolerance: float = 1e-6) -> None:
    for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance * 10, atol=tolerance)


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, 0.1, momentum=0.9)
