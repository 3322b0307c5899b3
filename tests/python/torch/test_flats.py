"""The buckets of modules on a GPU, here on the CPU: the same code, and the results of the library's own buckets."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
import torch
from ddp_models import Branches, loss_of, plain, train, trains_as_one
from training import data_of, same_on_all_ranks, share_of


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("horo.torch.parallel.flats.are_needed", lambda tensors: True)
    return monkeypatch


@pytest.mark.usefixtures("by_torch")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0002},
        {"bucket_cap_mb_list": [0.0001, 0.0005]},
        {"static_graph": True, "bucket_cap_mb": 0.0002},
        {"find_unused_parameters": True, "skip_all_reduce_unused_params": True},
    ],
    ids=str,
)
def test_it_trains_as_one_process(hvd: ModuleType, arguments: dict[str, Any]) -> None:
    for set_to_none in (True, False):
        mine = trains_as_one(hvd, set_to_none=set_to_none, **arguments)
        assert (len(mine.reducer.buckets) > 1) == any(name.startswith("bucket_cap") for name in arguments)
        assert sorted(number for bucket in mine.reducer.buckets for number in bucket) == list(range(6))


@pytest.mark.parametrize("hook", ["allreduce", "fp16", "bf16"])
def test_the_bits_are_those_of_the_librarys_buckets(hvd: ModuleType, by_torch: pytest.MonkeyPatch, hook: str) -> None:
    results = []
    for needed in (True, False):
        by_torch.setattr("horo.torch.parallel.flats.are_needed", lambda tensors, needed=needed: needed)
        mine, _ = train(hvd, prepare=lambda model: model.register_comm_hook(None, hook))
        results.append([one.detach().clone() for one in mine.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.usefixtures("by_torch")
@pytest.mark.parametrize(("hook", "tolerance"), [("fp16", 2e-3), ("bf16", 2e-2), ("int8", 5e-2)])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0002}, {"bucket_cap_mb": 0.00001}],
    ids=str,
)
def test_short_gradients_lose_as_little_as_documented(
    hvd: ModuleType, arguments: dict[str, Any], hook: str, tolerance: float
) -> None:
    def prepare(model: Any) -> None:
        model.register_comm_hook(None, hook)

    for set_to_none in (True, False):
        trains_as_one(hvd, prepare=prepare, tolerance=tolerance, set_to_none=set_to_none, **arguments)


@pytest.mark.usefixtures("by_torch")
def test_a_gradient_as_8_bit_integers_is_off_by_little(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(torch.nn.Linear(37, 29), gradient_as_bucket_view=True)
    model.register_comm_hook(None, "int8")
    generator = torch.Generator().manual_seed(3)
    everybody = torch.randn(3, hvd.size(), 5, 37, generator=generator) * torch.logspace(-3, 3, 37)
    for turn in range(3):
        exact, largest = 0.0, 0.0
        for rank in range(hvd.size()):
            gradient = everybody[turn, rank].sum(0).expand(29, 37)
            exact = exact + gradient / hvd.size()
            largest = largest + gradient.abs().max() / hvd.size()
        model.zero_grad(set_to_none=False)
        model(everybody[turn, hvd.rank()]).sum().backward()
        assert ((model.module.weight.grad - exact).abs().max() <= largest / 127 * 1.001).item()
        same = hvd.allgather(model.module.weight.grad[None])
        assert all(torch.equal(one, same[0]) for one in same)
    # A value that is not finite makes its tensor NaN on all ranks, and no other.
    inputs = everybody[0, hvd.rank()].clone()
    if hvd.rank() == hvd.size() - 1:
        inputs[0, 0] = float("inf")
    model(inputs).sum().backward()
    assert model.module.weight.grad.isnan().all()
    assert model.module.bias.grad.isfinite().all()


@pytest.mark.usefixtures("by_torch")
def test_what_is_not_used_stays_as_it_is_with_8_bit_integers(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(Branches(), find_unused_parameters=True)
    model.register_comm_hook(None, "int8")
    for step in range(2):
        inputs, targets = data_of(step)
        model.zero_grad()
        loss_of(model(share_of(hvd, inputs), step), share_of(hvd, targets)).backward()
        assert model.module.never.weight.grad is None
        used, other = (model.module.left, model.module.right)[:: 1 if step == 0 else -1]
        assert used.weight.grad is not None
        assert other.weight.grad is None


@pytest.mark.usefixtures("by_torch")
def test_unused_parameters_and_ranks_without_data(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(Branches(), find_unused_parameters=True)
    for step in range(4):
        inputs, targets = data_of(step)
        turn = step if step < 2 else step + hvd.rank()  # First one branch on all ranks, then different ones.
        for one in model.parameters():
            one.grad = None
        loss_of(model(share_of(hvd, inputs), turn), share_of(hvd, targets)).backward()
        assert model.module.never.weight.grad is None
        if step < 2:
            used, other = (model.module.left, model.module.right)[:: 1 if step == 0 else -1]
            assert used.weight.grad is not None
            assert other.weight.grad is None
        elif hvd.size() > 1:
            assert model.module.left.weight.grad is not None
            assert model.module.right.weight.grad is not None
        same_on_all_ranks(hvd, model)
    with model.join():
        for step in range(1 + hvd.rank()):
            inputs, targets = data_of(step)
            loss_of(model(inputs, 0), targets).backward()
    same_on_all_ranks(hvd, model)


@pytest.mark.usefixtures("by_torch")
def test_hooks_of_the_callers(hvd: ModuleType) -> None:
    seen: list[tuple[int, bool]] = []

    def average(state: None, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        seen.append((bucket.index(), bucket.is_last()))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(hvd.allreduce(bucket.buffer(), op=hvd.Average, name=f"bucket{bucket.index()}"))
        return future

    trains_as_one(hvd, steps=2, bucket_cap_mb=0.0002, prepare=lambda model: model.register_comm_hook(None, average))
    assert seen[0] == (0, True), "one bucket before the order is known"
    assert seen[1:] == [(number, number == len(seen) - 2) for number in range(len(seen) - 1)]

    def failing(state: None, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if hvd.rank() == hvd.size() - 1:
            raise ZeroDivisionError("not today")
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = hvd.DistributedDataParallel(plain())
    model.register_comm_hook(None, failing)
    for _ in range(2):
        with pytest.raises(ValueError, match="not today"):
            model(data_of(0)[0]).sum().backward()


@pytest.mark.usefixtures("by_torch")
def test_a_parameter_without_a_gradient_is_named_on_all_ranks(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(Branches())
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'never\.weight'"):
            model(data_of(0)[0]).sum().backward()
        for one in model.parameters():
            one.grad = None


@pytest.mark.usefixtures("by_torch")
def test_what_is_not_there_is_refused_with_the_reason(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"powersgd works on the CPU only.*allreduce, fp16, bf16, int8"):
        hvd.DistributedDataParallel(plain()).register_comm_hook(None, "powersgd")
    with pytest.raises(ValueError, match="'weight' gets sparse gradients"):
        hvd.DistributedDataParallel(torch.nn.Embedding(4, 3, sparse=True))


def test_buckets_of_torch_s_reducer_wait_in_streams(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    comm_hook = importlib.import_module("horo.torch.parallel.comm_hook")  # The function has the module's name.
    given: dict[str, Any] = {}
    waited: list[torch.Tensor] = []

    class Group:
        def submit(self, *arguments: Any, **settings: Any) -> str:
            given.update(settings)
            return "request"

    monkeypatch.setattr(comm_hook, "interruptibly", lambda make: Group())
    monkeypatch.setattr(comm_hook, "place_of", lambda tensor: (1, 71))
    monkeypatch.setattr(comm_hook, "finish", lambda request, tensor=None: waited.append(tensor))
    route = comm_hook._Route(comm_hook.world.runtime, hvd.global_process_set)
    bucket = torch.ones(3)
    future = route.send(bucket)
    assert (given["device"], given["stream"]) == (1, 71)
    assert not future.done()
    route.settle()
    assert waited[0] is bucket, "its stream is what waits"
    assert future.value() is bucket
