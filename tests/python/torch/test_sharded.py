"""Optimizers whose state is divided among the ranks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from training import close, data_of, loss_of, model_of, same_on_all_ranks, share_of

from horo.torch.sharded import bucket as buckets

OPTIMIZERS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    (torch.optim.Adagrad, {"lr": 0.1}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.ASGD, {"lr": 0.05}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {"lr": 0.05}),
    (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (torch.optim.Rprop, {}),
]
_names = [one.__name__ for one, _ in OPTIMIZERS]


def train(
    hvd: ModuleType,
    optimizer: torch.optim.Optimizer,
    reference: torch.optim.Optimizer,
    mine: torch.nn.Module,
    alone: torch.nn.Module,
    steps: range = range(4),
    before: Callable[[], None] = lambda: None,
) -> None:
    for step in steps:
        inputs, targets = data_of(step)
        optimizer.zero_grad()
        loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
        reference.zero_grad()
        loss_of(alone, inputs, targets).backward()
        before()
        optimizer.step()
        reference.step()
    same_on_all_ranks(hvd, mine)


@pytest.mark.parametrize(("optimizer_class", "settings"), OPTIMIZERS, ids=_names)
def test_results_are_those_of_the_whole_optimizer(
    hvd: ModuleType, optimizer_class: type[torch.optim.Optimizer], settings: dict[str, Any]
) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.ShardedOptimizer(optimizer_class, mine.parameters(), **settings)
    train(hvd, optimizer, optimizer_class(alone.parameters(), **settings), mine, alone)
    close(mine, alone, 1e-5)


def test_each_rank_keeps_its_part_of_the_state(hvd: ModuleType) -> None:
    """At most 1/N and a tenth of that of the whole one."""
    torch.manual_seed(2)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(12)])
    whole = torch.optim.Adam(model.parameters())
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam, model.parameters())
    for one in (whole, optimizer):
        model(torch.ones(2, 64)).sum().backward()
        one.step()

    def bytes_of(state: dict[Any, dict[str, Any]]) -> int:
        return sum(value.nbytes for values in state.values() for value in values.values() if value.dim() > 0)

    assert bytes_of(optimizer.local.state) <= (1 / hvd.size() + 0.1) * bytes_of(whole.state)


def test_many_buckets_and_dtypes(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "_BUCKET_BYTES", 300)
    torch.manual_seed(3)
    shapes = [(7,), (), (3, 5), (64,), (1,), (0,), (11, 13), (2, 3, 4)]
    mine = torch.nn.ParameterList(
        [
            torch.randn(shape, dtype=dtype)
            for shape in shapes
            for dtype in (torch.float32, torch.float64, torch.bfloat16)
        ]
    )
    alone = copy.deepcopy(mine)
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam, mine.parameters(), lr=0.1)
    reference = torch.optim.Adam(alone.parameters(), lr=0.1)
    for step in range(3):
        for one, other in zip(mine, alone, strict=True):
            one.grad = torch.full_like(one, (hvd.rank() + 1) * (step + 1))
            other.grad = torch.full_like(other, (hvd.size() + 1) / 2 * (step + 1))
        optimizer.step()
        reference.step()
    same_on_all_ranks(hvd, mine)
    close(mine, alone)


def test_parameters_without_a_gradient_are_left_alone(hvd: ModuleType) -> None:
    """None on all ranks: as if they were not there. None on some: zeros there."""
    mine = torch.nn.ParameterList([torch.ones(50) for _ in range(3)])
    alone = copy.deepcopy(mine)
    optimizer = hvd.ShardedOptimizer(torch.optim.AdamW, mine.parameters(), lr=0.1, weight_decay=0.5)
    reference = torch.optim.AdamW(alone.parameters(), lr=0.1, weight_decay=0.5)
    for step in range(3):
        mine[0].grad = torch.ones(50)
        alone[0].grad = torch.ones(50)
        mine[1].grad = torch.ones(50) if hvd.rank() == 0 else None
        alone[1].grad = torch.full((50,), 1 / hvd.size())
        mine[2].grad = torch.ones(50) if step == 2 else None
        alone[2].grad = torch.ones(50) if step == 2 else None
        optimizer.step()
        reference.step()
    close(mine, alone)


def test_strides_are_kept(hvd: ModuleType) -> None:
    torch.manual_seed(4)
    mine = torch.nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
    alone = copy.deepcopy(mine)
    strides = mine.weight.stride()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, mine.parameters(), lr=0.1, momentum=0.9)
    assert mine.weight.stride() == strides
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(5)
    images = torch.randn(12, 3, 8, 8)
    for model, one, data in ((mine, optimizer, images[hvd.rank() :: hvd.size()]), (alone, reference, images)):
        for _ in range(2):
            one.zero_grad()
            model(data).square().mean().backward()
            one.step()
    close(mine, alone)
    optimizer.consolidate_state_dict(to=None)
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    torch.testing.assert_close(momentum, reference.state_dict()["state"][0]["momentum_buffer"])


@pytest.mark.parametrize(("optimizer_class", "settings"), OPTIMIZERS, ids=_names)
def test_a_checkpoint_of_either_loads_into_either(
    hvd: ModuleType, optimizer_class: type[torch.optim.Optimizer], settings: dict[str, Any]
) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.ShardedOptimizer(optimizer_class, mine.parameters(), **settings)
    reference = optimizer_class(alone.parameters(), **settings)
    train(hvd, optimizer, reference, mine, alone, range(2))
    optimizer.consolidate_state_dict(to=None)
    theirs, ours = copy.deepcopy(reference.state_dict()), optimizer.state_dict()
    assert theirs["param_groups"] == ours["param_groups"]
    optimizer = hvd.ShardedOptimizer(optimizer_class, mine.parameters(), **settings)
    reference = optimizer_class(alone.parameters(), **settings)
    optimizer.load_state_dict(theirs)
    reference.load_state_dict(ours)
    train(hvd, optimizer, reference, mine, alone, range(2, 4))
    close(mine, alone, 1e-5)


def test_state_is_where_it_was_brought(hvd: ModuleType) -> None:
    model = model_of()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(RuntimeError, match="consolidate_state_dict"):
        optimizer.state_dict()
    loss_of(model, *data_of(0)).backward()
    optimizer.step()
    last = hvd.size() - 1
    optimizer.consolidate_state_dict(to=last)
    if hvd.rank() == last:
        assert sorted(optimizer.state_dict()["state"]) == [0, 1, 2, 3]
    else:
        with pytest.raises(RuntimeError, match="divided among the ranks"):
            optimizer.state_dict()


def test_schedulers_closures_and_groups_that_come_later(hvd: ModuleType) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, mine[0].parameters(), lr=0.1, momentum=0.9)
    reference = torch.optim.SGD(alone[0].parameters(), lr=0.1, momentum=0.9)
    for one, model in ((optimizer, mine), (reference, alone)):
        one.add_param_group({"params": list(model[2].parameters()), "lr": 0.01})
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.5) for one in (optimizer, reference)]
    for step in range(3):
        inputs, targets = data_of(step)

        def closure(one: Any, model: Any, *data: torch.Tensor) -> torch.Tensor:
            one.zero_grad()
            loss = loss_of(model, *data)
            loss.backward()
            return loss

        here = share_of(hvd, inputs), share_of(hvd, targets)
        loss = optimizer.step(lambda here=here: closure(optimizer, mine, *here))
        assert isinstance(loss, torch.Tensor)
        reference.step(lambda data=(inputs, targets): closure(reference, alone, *data))
        for schedule in schedules:
            schedule.step()
    assert optimizer.local.param_groups[1]["lr"] == pytest.approx(0.01 * 0.25)  # Of the last step.
    close(mine, alone)


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf")])
def test_clipping_sees_the_gradients_of_all_ranks(hvd: ModuleType, norm: float) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, mine.parameters(), lr=0.5)

    def clip() -> None:
        here = optimizer.clip_grad_norm_(0.01, norm)
        there = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.01, norm)
        torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-7)

    train(hvd, optimizer, torch.optim.SGD(alone.parameters(), lr=0.5), mine, alone, before=clip)
    close(mine, alone)


def test_gradients_that_are_averaged_already_are_taken_as_they_are(hvd: ModuleType) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam, mine.parameters(), reduce_gradients=False)

    def average() -> None:
        for number, param in enumerate(mine.parameters()):
            hvd.allreduce_(param.grad, name=f"average.{number}")

    train(hvd, optimizer, torch.optim.Adam(alone.parameters()), mine, alone, before=average)
    close(mine, alone)


def test_a_process_set_divides_among_its_own_ranks(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        return  # A set of all ranks, or of one.
    some = hvd.add_process_set([0, 2])
    if some.included():
        mine, alone = model_of(), model_of()
        optimizer = hvd.ShardedOptimizer(torch.optim.Adam, mine.parameters(), process_set=some)
        reference = torch.optim.Adam(alone.parameters())
        inputs, targets = data_of(0)
        loss_of(mine, inputs[some.rank() :: 2], targets[some.rank() :: 2]).backward()
        loss_of(alone, inputs, targets).backward()
        optimizer.step()
        reference.step()
        close(mine, alone)
    hvd.remove_process_set(some)


def test_parameters_that_were_given_other_memory_come_back(hvd: ModuleType) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, mine.parameters(), lr=0.1)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    other = model_of(7)
    for model in (mine, alone):
        for param, its in zip(model.parameters(), other.parameters(), strict=True):
            param.data = its.detach().clone()
    train(hvd, optimizer, reference, mine, alone)
    close(mine, alone)


# ---- What is wrong is told to all ranks


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "Adafactor", "Muon"])
def test_optimizers_that_look_at_whole_tensors_are_refused_by_name(hvd: ModuleType, name: str) -> None:
    optimizer_class = getattr(torch.optim, name, None)
    if optimizer_class is None:
        return  # This torch does not have it.
    with pytest.raises(ValueError, match=f"{name} is not known to treat every element by itself"):
        hvd.ShardedOptimizer(optimizer_class, model_of().parameters(), lr=0.1)


def test_ones_own_class_needs_a_word(hvd: ModuleType) -> None:
    class Mine(torch.optim.SGD):
        pass

    model = model_of()
    with pytest.raises(ValueError, match="element_wise=True"):
        hvd.ShardedOptimizer(Mine, model.parameters(), lr=0.1)
    hvd.ShardedOptimizer(Mine, model.parameters(), lr=0.1, element_wise=True)


def test_different_parameters_are_told_to_all_ranks(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    params = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(4 if hvd.rank() == 0 else 5))]
    with pytest.raises(ValueError, match=r"parameter 1 differs: \([45],\)"):
        hvd.ShardedOptimizer(torch.optim.SGD, params, lr=0.1)
    with pytest.raises(ValueError, match=r"has \d parameters"):
        hvd.ShardedOptimizer(torch.optim.SGD, params[: 1 + (hvd.rank() == 0)], lr=0.1)


def test_a_sparse_gradient_or_a_changed_parameter_on_one_rank_is_told_to_all(hvd: ModuleType) -> None:
    named = [("first", torch.nn.Parameter(torch.zeros(3, 2))), ("second", torch.nn.Parameter(torch.zeros(4, 2)))]
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, named, lr=0.1)
    second = named[1][1]
    if hvd.rank() == 0:
        second.grad = torch.ones(4, 2).to_sparse()
    with pytest.raises(ValueError, match=r"gradient of parameter 1 \('second'\) is sparse"):
        optimizer.step()
    second.grad = None
    if hvd.rank() == hvd.size() - 1:
        second.data = torch.zeros(5, 2)
    with pytest.raises(ValueError, match=r"parameter 1 \('second'\) has another shape"):
        optimizer.step()


def test_it_is_not_copied(hvd: ModuleType) -> None:
    optimizer = hvd.ShardedOptimizer(torch.optim.SGD, model_of().parameters(), lr=0.1)
    for copying in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="consolidated state_dict"):
            copying(optimizer)


def test_a_state_of_another_model_is_refused(hvd: ModuleType) -> None:
    optimizer = hvd.ShardedOptimizer(torch.optim.Adam, model_of().parameters())
    other = torch.optim.Adam([torch.nn.Parameter(torch.zeros(9)) for _ in range(4)])
    for param in other.param_groups[0]["params"]:
        param.grad = torch.ones(9)
    other.step()
    with pytest.raises(ValueError, match="cannot be divided"):
        optimizer.load_state_dict(other.state_dict())
