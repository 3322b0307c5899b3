"""Models, and trainings of them in DistributedDataParallel beside one process with the data of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from training import close, data_of, same_on_all_ranks, sgd, share_of

Model = Callable[[], torch.nn.Module]


def plain() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    )


class Branches(torch.nn.Module):
    """Uses one of two layers, or none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first = torch.nn.Linear(4, 8)
        self.left = torch.nn.Linear(8, 3)
        self.right = torch.nn.Linear(8, 3)
        self.never = torch.nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor, turn: int = 0) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs))
        return self.left(hidden) if turn % 2 == 0 else self.right(hidden)


def different_on_ranks(hvd: ModuleType, model: torch.nn.Module) -> torch.nn.Module:
    """As if every rank had a seed of its own; wrapping makes them equal."""
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(float(hvd.rank()))
    return model


def loss_of(output: Any, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(output, targets)


def train(
    hvd: ModuleType,
    make: Model = plain,
    steps: int = 4,
    call: Callable[[torch.nn.Module, torch.Tensor, int], torch.Tensor] | None = None,
    set_to_none: bool = True,
    prepare: Callable[[Any], None] | None = None,
    **arguments: Any,
) -> tuple[Any, torch.nn.Module]:
    """A wrapped model trained on all ranks, and one trained by this process alone with the data of all."""
    call = call or (lambda model, inputs, step: model(inputs))
    alone = make()
    mine = hvd.DistributedDataParallel(different_on_ranks(hvd, make()), **arguments)
    if prepare is not None:
        prepare(mine)
    optimizer, reference = sgd(mine.parameters()), sgd(alone.parameters())
    for step in range(steps):
        inputs, targets = data_of(step)
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(call(mine, share_of(hvd, inputs), step), share_of(hvd, targets)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(call(alone, inputs, step), targets).backward()
        reference.step()
    same_on_all_ranks(hvd, mine)
    return mine, alone


def trains_as_one(hvd: ModuleType, *arguments: Any, tolerance: float = 1e-6, **named: Any) -> Any:
    mine, alone = train(hvd, *arguments, **named)
    close(mine, alone, tolerance)
    return mine
