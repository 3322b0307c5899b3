"""Parameters, optimizers and objects from rank to rank."""

from __future__ import annotations

import copy
from types import ModuleType

import pytest
import torch
from values import equal

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "Adafactor": {},
    "LBFGS": {},
}


def model_of(rank: int) -> torch.nn.Module:
    torch.manual_seed(rank)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = model(torch.arange(12.0).view(4, 3)).square().sum()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(loss)


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def test_parameters_become_those_of_the_root(hvd: ModuleType) -> None:
    root = hvd.size() - 1
    wanted = model_of(root).state_dict()
    for form in ("state_dict", "pairs", "tensors"):
        model = model_of(hvd.rank())
        given = {
            "state_dict": model.state_dict(),
            "pairs": list(model.named_parameters()),
            "tensors": list(model.parameters()),
        }[form]
        hvd.broadcast_parameters(given, root_rank=root)
        for name, parameter in model.named_parameters():
            assert equal(parameter.detach(), wanted[name]), (form, name)


def test_values_that_are_no_tensors_come_along(hvd: ModuleType) -> None:
    state = {"weight": torch.full((2,), float(hvd.rank())), "_extra_state": {"rank": hvd.rank()}, "nothing": None}
    hvd.broadcast_parameters(state, root_rank=0)
    assert state["weight"].tolist() == [0, 0]
    assert state["_extra_state"] == {"rank": 0}
    pairs = [("a", torch.tensor(float(hvd.rank()))), ("b", hvd.rank())]
    hvd.broadcast_parameters(pairs, root_rank=0)
    assert pairs == [("a", torch.tensor(0.0)), ("b", 0)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("empty", ["elsewhere", "at the root", "nowhere"])
def test_optimizers_become_those_of_the_root(hvd: ModuleType, name: str, empty: str) -> None:
    root = hvd.size() - 1
    kind = getattr(torch.optim, name)

    def made(rank: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = model_of(rank)
        optimizer = kind(model.parameters(), **OPTIMIZERS[name])
        optimizer.param_groups[0]["lr"] = 0.001 * (rank + 1)
        if empty == "nowhere" or (empty == "elsewhere") == (rank == root):
            train(model, optimizer)
        return model, optimizer

    model, optimizer = made(hvd.rank())
    groups, state = optimizer.param_groups[0], optimizer.state
    hvd.broadcast_parameters(model.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root)
    wanted_model, wanted = made(root)
    assert same(optimizer.state_dict(), wanted.state_dict())
    assert optimizer.param_groups[0] is groups
    assert optimizer.state is state
    train(model, optimizer, 1)
    train(wanted_model, wanted, 1)
    assert same(model.state_dict(), wanted_model.state_dict())


@pytest.mark.parametrize("others", ["have none", "have the same", "have another"])
def test_optimizer_states_lie_as_those_of_the_root(hvd: ModuleType, others: str) -> None:
    root = hvd.size() - 1

    def made(rank: int, layout: torch.memory_format) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(rank)
        model = torch.nn.Conv2d(3, 4, 3).to(memory_format=layout)
        optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
        if rank == root or others != "have none":
            model(torch.ones(1, 3, 4, 4)).sum().backward()
            optimizer.step()
        return model, optimizer

    is_other = hvd.rank() != root and others == "have another"
    model, optimizer = made(hvd.rank(), torch.contiguous_format if is_other else torch.channels_last)
    model.to(memory_format=torch.channels_last)
    averages = optimizer.state[model.weight].get("exp_avg")
    hvd.broadcast_parameters(model.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root)
    wanted_model, wanted = made(root, torch.channels_last)
    assert same(optimizer.state_dict(), wanted.state_dict())
    assert equal(model.weight.detach(), wanted_model.weight.detach())
    got = optimizer.state[model.weight]["exp_avg"]
    assert got.stride() == wanted.state[wanted_model.weight]["exp_avg"].stride() == model.weight.stride()
    assert others != "have the same" or got is averages, "what fits is written where it is"


def test_optimizers_of_different_parameters_are_refused_everywhere(hvd: ModuleType) -> None:
    if hvd.size() < 2:
        pytest.skip("one rank agrees with itself")
    layers = 1 + (hvd.rank() == 1)
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(layers)])
    with pytest.raises(ValueError, match=r"rank 1 has parameter groups of \[4\] parameters, rank 0 of \[2\]"):
        hvd.broadcast_optimizer_state(torch.optim.SGD(model.parameters(), lr=0.1), 0)


def test_tensors_in_options_are_written_where_they_are(hvd: ModuleType) -> None:
    rate = torch.tensor(0.1 * (hvd.rank() + 1))
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=rate, foreach=False, capturable=True)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.1)


def test_objects_travel(hvd: ModuleType) -> None:
    made = {"rank": hvd.rank(), "tensor": torch.full((2,), float(hvd.rank())), "text": "x" * 10000}
    got = hvd.broadcast_object(copy.deepcopy(made), root_rank=hvd.size() - 1)
    assert got["rank"] == hvd.size() - 1
    assert got["tensor"].tolist() == [hvd.size() - 1] * 2
    everything = hvd.allgather_object(made, name="all")
    assert [one["rank"] for one in everything] == list(range(hvd.size()))
    assert hvd.allgather_object(None) == [None] * hvd.size()
