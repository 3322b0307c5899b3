"""Ranks with different numbers of batches."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from ddp_models import Branches, different_on_ranks, loss_of, plain
from torch.distributed.algorithms.join import Join
from training import close, data_of, same_on_all_ranks, sgd


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = data_of(100 * rank + step)
    return inputs, targets


def expected(make: Any, size: int, counts: list[int], *, by_all: bool, call: Any) -> torch.nn.Module:
    """One process that takes the ranks' batches in turns."""
    model = make()
    optimizer = sgd(model.parameters())
    for step in range(max(counts)):
        optimizer.zero_grad()
        active = [rank for rank in range(size) if step < counts[rank]]
        for rank in active:
            inputs, targets = batch_of(rank, step)
            (loss_of(call(model, inputs, step), targets) / (size if by_all else len(active))).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("by_all", [True, False])
@pytest.mark.parametrize(
    "arguments", [{}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}], ids=str
)
@pytest.mark.parametrize("first_has_most", [True, False])
def test_all_batches_count(hvd: ModuleType, by_all: bool, arguments: dict[str, Any], first_has_most: bool) -> None:
    size = hvd.size()
    counts = [2 + (size - rank if first_has_most else rank) for rank in range(size)]
    make = Branches if "find_unused_parameters" in arguments else plain

    def call(model: Any, inputs: torch.Tensor, step: int) -> torch.Tensor:
        return model(inputs, step) if make is Branches else model(inputs)

    mine = hvd.DistributedDataParallel(different_on_ranks(hvd, make()), **arguments)
    optimizer = sgd(mine.parameters())
    with mine.join(divide_by_initial_world_size=by_all):
        for step in range(counts[hvd.rank()]):
            inputs, targets = batch_of(hvd.rank(), step)
            optimizer.zero_grad()
            loss_of(call(mine, inputs, step), targets).backward()
            optimizer.step()
    same_on_all_ranks(hvd, mine)
    close(mine, expected(make, size, counts, by_all=by_all, call=call))
    (mine(torch.ones(1, 4)) * hvd.rank()).sum().backward() if make is plain else None


def test_passes_without_synchronisation_and_buffers_of_a_rank_that_has_data(hvd: ModuleType) -> None:
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    mine = hvd.DistributedDataParallel(module)
    last = hvd.size() - 1
    with mine.join():
        for step in range(2 + 4 * (hvd.rank() == last)):
            inputs, targets = batch_of(hvd.rank(), step)
            if step % 2 == 0:
                with mine.no_sync():
                    loss_of(mine(inputs), targets).backward()
            else:
                loss_of(mine(inputs), targets).backward()
    everybody = hvd.allgather(mine.module[1].running_mean.reshape(1, -1), "means")
    assert all(torch.equal(one, everybody[0]) for one in everybody)
    assert mine.module[1].num_batches_tracked.item() == 6, "those of the last rank that had data"


def test_sparse_gradients_of_a_rank_without_data_count_once(hvd: ModuleType) -> None:
    torch.manual_seed(2)
    mine = hvd.DistributedDataParallel(torch.nn.Embedding(5, 2, sparse=True))
    optimizer = torch.optim.SGD(mine.parameters(), 1.0)
    before = mine.module.weight.detach().clone()
    with mine.join():
        for step in range(1 + hvd.rank()):
            optimizer.zero_grad()
            mine(torch.tensor([step])).sum().backward()
            optimizer.step()
    size = hvd.size()
    for row in range(size):
        wanted = before[row] - (size - row) / size
        torch.testing.assert_close(mine.module.weight[row], wanted)
    assert torch.equal(mine.module.weight[size:], before[size:])


def test_hooks_take_part(hvd: ModuleType) -> None:
    for hook in ("fp16", None):
        mine = hvd.DistributedDataParallel(plain())

        def own(state: Any, bucket: Any) -> Any:
            future: Any = torch.futures.Future()
            future.set_result(hvd.allreduce(bucket.buffer(), name=f"join.{bucket.index()}"))
            return future

        mine.register_comm_hook(None, hook or own)
        with mine.join():
            for step in range(1 + hvd.rank()):
                inputs, targets = batch_of(hvd.rank(), step)
                loss_of(mine(inputs), targets).backward()
        same_on_all_ranks(hvd, mine)


def test_all_ranks_may_be_stopped_when_one_has_no_more(hvd: ModuleType) -> None:
    mine = hvd.DistributedDataParallel(plain())
    if hvd.size() == 1:
        with mine.join(throw_on_early_termination=True):
            mine(torch.ones(1, 4)).sum().backward()
        return

    def train() -> None:
        with mine.join(throw_on_early_termination=True):
            for _ in range(2 + hvd.rank()):
                mine(torch.ones(1, 4)).sum().backward()

    with pytest.raises(RuntimeError, match="exhausted"):
        train()
    mine.zero_grad()
    (mine(torch.ones(1, 4)) * hvd.rank()).sum().backward()
    same_on_all_ranks(hvd, torch.nn.ParameterList([one.grad for one in mine.parameters()]))


def test_it_can_be_switched_off(hvd: ModuleType) -> None:
    mine = hvd.DistributedDataParallel(plain())
    with mine.join(enable=False):
        mine(torch.ones(1, 4)).sum().backward()
    with pytest.raises(ZeroDivisionError), mine.join():
        raise ZeroDivisionError


def test_torchs_join_says_what_it_needs(hvd: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        Join([hvd.DistributedDataParallel(plain())])
