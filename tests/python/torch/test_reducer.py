"""The compiled reducer as a front end uses it: hooks without Python code, views, buckets of the caller, failures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch

from horo import _horo
from horo.exceptions import HorovodInternalError
from horo.torch import tensors
from horo.world import world

REDUCED, UNTOUCHED, WITHOUT_PLACE, BY_CALLER = (
    _horo.OUTCOMES[name] for name in ("reduced", "untouched", "without_place", "by_caller")
)


class Reduced:
    """A model whose gradients a reducer averages: the least that a front end does."""

    def __init__(self, model: torch.nn.Module, sparse: Sequence[str] = (), **options: Any) -> None:
        self.names, self.params = zip(*model.named_parameters(), strict=True)
        self.model, self.views = model, bool(options.get("views"))
        self.group = world.runtime.group(list(range(world.runtime.size())))
        forms = [
            (name, tensors.dtype_number(param, "ddp"), tuple(param.shape), param.stride(), 0, name in sparse)
            for name, param in zip(self.names, self.params, strict=True)
        ]
        limits = {"first_limits": [2**40], "rebuilt_limits": [1 << 10, 1 << 14]}
        self.reducer = _horo.Reducer(self.group, tensors.tensor_reader(), forms, **(limits | options))
        self.finished = 0
        self.handles = [
            param.register_post_accumulate_grad_hook(self.reducer.hook(i)) for i, param in enumerate(self.params)
        ]
        self.place()

    def place(self) -> None:
        self.slots = []
        for i, param in enumerate(self.params):
            bucket, offset = self.reducer.slot(i)
            flat = torch.from_numpy(self.reducer.memory(bucket))[offset : offset + param.nbytes].view(param.dtype)
            self.slots.append(flat.as_strided(param.shape, param.stride()))
        if self.views:
            self.reducer.set_views(self.slots)

    def step(self, inputs: torch.Tensor, unused: Sequence[int] = (), synchronize: bool = True) -> list[int]:
        if self.reducer.prepare_forward():
            self.place()
        loss = self.model(inputs).pow(2).sum()
        held = [(i, 0 if self.params[i].grad is None else self.params[i].grad.data_ptr()) for i in unused]
        self.reducer.prepare_backward(synchronize, held)
        loss.backward()
        if not synchronize:
            return []
        assert self.reducer.all_launched()
        return self.reducer.finish()


def model_of(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
    ).to(memory_format=torch.channels_last)


def inputs_of(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1000 * step + rank))


def expected(model: torch.nn.Module, size: int, step: int) -> list[torch.Tensor]:
    """The average of what all ranks would get."""
    model.zero_grad(set_to_none=True)
    for rank in range(size):
        (model(inputs_of(rank, step)).pow(2).sum() / size).backward()
    return [param.grad.clone() for param in model.parameters()]


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("to_none", [False, True])
def test_gradients_are_averages_wherever_they_lie(hvd: ModuleType, views: bool, to_none: bool) -> None:
    model, reference = model_of(), model_of()
    reduced = Reduced(model, views=views)
    for step in range(4):
        model.zero_grad(set_to_none=to_none)
        assert set(reduced.step(inputs_of(hvd.rank(), step))) == {REDUCED}
        for i, (param, average) in enumerate(
            zip(model.parameters(), expected(reference, hvd.size(), step), strict=True)
        ):
            torch.testing.assert_close(param.grad, average, rtol=1e-5, atol=1e-5)
            assert (param.grad.data_ptr() == reduced.slots[i].data_ptr()) == views
        everywhere = hvd.allgather_object([param.grad.sum().item() for param in model.parameters()])
        assert all(one == everywhere[0] for one in everywhere)
    statistics = reduced.reducer.statistics()
    assert statistics["rebuilt"]
    assert statistics["iterations"] == 4
    assert statistics["mean_backward"] > 0


def test_passes_that_only_add_up_count_when_the_next_one_is_reduced(hvd: ModuleType) -> None:
    model, reference = model_of(), model_of()
    reduced = Reduced(model)
    reduced.step(inputs_of(hvd.rank(), 0), synchronize=False)
    reduced.step(inputs_of(hvd.rank(), 1))
    sums = zip(expected(reference, hvd.size(), 0), expected(reference, hvd.size(), 1), strict=True)
    for param, (first, second) in zip(model.parameters(), sums, strict=True):
        torch.testing.assert_close(param.grad, first + second, rtol=1e-5, atol=1e-5)


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.third = (torch.nn.Linear(5, 5, bias=False) for _ in range(3))
        self.which = "first"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self, self.which)(inputs)


@pytest.mark.parametrize("views", [False, True])
def test_unused_parameters_get_the_others_gradients_or_none(hvd: ModuleType, views: bool) -> None:
    model = Branches()
    reduced = Reduced(model, find_unused=True, rebuilt_limits=[], views=views)
    second = hvd.size() > 1 and hvd.rank() == hvd.size() - 1
    model.which = "second" if second else "first"
    outcomes = reduced.step(torch.ones(1, 5), unused=[0, 2] if second else [1, 2])
    assert outcomes[0] == (WITHOUT_PLACE if second else REDUCED)
    assert outcomes[1] == (REDUCED if second else WITHOUT_PLACE if hvd.size() > 1 else UNTOUCHED)
    assert outcomes[2] == UNTOUCHED
    assert model.third.weight.grad is None
    mine = hvd.allgather_object(model.second.weight.grad if second else reduced.slots[1].clone())
    assert all(torch.equal(one, mine[0]) for one in mine)


def test_gradients_that_lie_otherwise_are_left_to_the_caller(hvd: ModuleType) -> None:
    model = torch.nn.Linear(4, 3, bias=False)
    torch.nn.init.constant_(model.weight, float(hvd.rank()))
    reduced = Reduced(model)
    seen = []

    def odd(i: int, param: torch.nn.Parameter) -> None:
        seen.append(i)
        reduced.slots[i].copy_(param.grad)
        reduced.reducer.ready(i, reduced.slots[i].data_ptr())

    reduced.reducer.on_odd(odd)
    reduced.reducer.prepare_forward()
    reduced.reducer.prepare_backward(True, [])
    model.weight.grad = torch.full((4, 3), float(hvd.rank())).t()
    reduced.reducer.hook(0)(model.weight)
    assert reduced.reducer.finish() == [WITHOUT_PLACE]
    assert seen == [0]
    assert reduced.slots[0][0, 0].item() == pytest.approx(sum(range(hvd.size())) / hvd.size())
    reduced.reducer.on_odd(None)
    reduced.reducer.prepare_backward(True, [])
    with pytest.raises(TypeError, match="does not lie as its parameter"):
        reduced.reducer.hook(0)(model.weight)


def caller_hook(reduced: Reduced, fail: Callable[[int], None] = lambda bucket: None) -> list[int]:
    """Sums every bucket with operations of its own."""
    order: list[int] = []

    def on_bucket(bucket: int) -> None:
        order.append(bucket)
        fail(bucket)
        buffer = torch.from_numpy(reduced.reducer.memory(bucket)).view(torch.float32)
        kinds, ops = _horo.KINDS["allreduce"], _horo.REDUCTIONS["sum"]
        dtype = _horo.DTYPES["float32"]
        address = buffer.data_ptr()
        reduced.group.run(kinds, address, address, dtype=dtype, op=ops, count=buffer.numel())
        half = buffer / 2
        reduced.reducer.deliver(bucket, half.data_ptr())

    reduced.reducer.set_hook("caller")
    reduced.reducer.on_bucket(on_bucket)
    return order


def test_buckets_of_the_caller_come_in_order_and_are_delivered(hvd: ModuleType) -> None:
    model, reference = model_of(), model_of()
    reduced = Reduced(model, first_limits=[1 << 10])
    order = caller_hook(reduced)
    launched: list[bool] = []
    reduced.reducer.on_launched(lambda: launched.append(True))
    for step in range(3):
        model.zero_grad()
        reduced.step(inputs_of(hvd.rank(), step))
        for param, average in zip(model.parameters(), expected(reference, hvd.size(), step), strict=True):
            torch.testing.assert_close(param.grad, average * hvd.size() / 2, rtol=1e-5, atol=1e-5)
        assert order == list(range(len(reduced.reducer.buckets())))
        order.clear()
    assert launched == [True] * 3


def test_a_hook_that_raises_on_one_rank_is_an_error_on_all(hvd: ModuleType) -> None:
    model = model_of()
    reduced = Reduced(model, first_limits=[1 << 10])
    last = hvd.size() - 1

    def fail(bucket: int) -> None:
        if hvd.rank() == last and bucket == 1:
            raise ZeroDivisionError("on purpose")

    caller_hook(reduced, fail)
    words = "on purpose" if hvd.rank() == last else "differs between ranks"
    with pytest.raises(Exception, match=words):
        reduced.step(inputs_of(hvd.rank(), 0))
    reduced.reducer.set_hook("allreduce")
    model.zero_grad()
    assert set(reduced.step(inputs_of(hvd.rank(), 1))) == {REDUCED}


def test_a_parameter_that_one_rank_misses_is_named_on_all(hvd: ModuleType) -> None:
    model = Branches()
    reduced = Reduced(model)
    reduced.reducer.prepare_forward()
    reduced.reducer.prepare_backward(True, [])
    outputs = [getattr(model, name)(torch.ones(5)) for name in ("first", "second", "third")]
    (sum(outputs) if hvd.rank() > 0 else outputs[0] + outputs[2]).sum().backward()
    with pytest.raises(Exception, match=r"'second\.weight' got no gradient"):
        reduced.reducer.finish()
    sum(getattr(model, name)(torch.ones(5)) for name in ("first", "second", "third")).sum().backward()
    reduced.reducer.prepare_backward(True, [])
    sum(getattr(model, name)(torch.ones(5)) for name in ("first", "second", "third")).sum().backward()
    assert set(reduced.reducer.finish()) == {REDUCED}
    with pytest.raises(Exception, match="a second backward pass"):
        model.first(torch.ones(5)).sum().backward()


def test_models_that_differ_are_an_error_on_all_ranks(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    width = 4 + (hvd.rank() == 1)
    with pytest.raises(Exception, match=r"rank 1 has parameter 0 as 'weight', f32\[5, 3\].*rank 0 has .*f32\[4, 3\]"):
        Reduced(torch.nn.Linear(3, width))


@pytest.mark.parametrize("kind", ["fp16", "bf16", "int8", "powersgd"])
def test_hooks_that_shorten_stay_near_the_average(hvd: ModuleType, kind: str) -> None:
    torch.manual_seed(0)
    model, reference = torch.nn.Linear(64, 48), torch.nn.Linear(64, 48)
    reference.load_state_dict(model.state_dict())
    reduced = Reduced(model, views=True)
    reduced.reducer.set_hook(kind, rank=2, start_iteration=1, error_feedback=False)
    for step in range(3):
        model.zero_grad()
        reference.zero_grad()
        generator = [torch.Generator().manual_seed(100 * step + rank) for rank in range(hvd.size())]
        samples = [torch.randn(2, 64, generator=one) for one in generator]
        reduced.step(samples[hvd.rank()])
        for sample in samples:
            (reference(sample).pow(2).sum() / hvd.size()).backward()
        error = (model.weight.grad - reference.weight.grad).norm() / reference.weight.grad.norm()
        assert error < {"fp16": 1e-3, "bf16": 1e-2, "int8": 2e-2, "powersgd": 1.0}[kind]
        grads = hvd.allgather_object(model.weight.grad)
        assert all(torch.equal(one, grads[0]) for one in grads)
    statistics = reduced.reducer.statistics()
    share = statistics["sent_bytes"] / statistics["gradient_bytes"]
    assert share < {"fp16": 0.51, "bf16": 0.51, "int8": 0.27, "powersgd": 0.5}[kind]


def test_a_model_and_its_reducer_go_when_nobody_needs_them(hvd: ModuleType) -> None:
    model = model_of()
    reduced = Reduced(model, views=True)
    reduced.reducer.on_bucket(lambda bucket, holder=reduced: None)
    reduced.step(inputs_of(hvd.rank(), 0))
    slot = reduced.slots[0]
    gone = [weakref.ref(model), weakref.ref(reduced), weakref.ref(reduced.reducer)]
    del model, reduced
    gc.collect()
    assert [one() for one in gone] == [None] * 3
    slot.fill_(1)  # Memory that is still looked at stays.


def test_internal_errors_are_those_that_elastic_jobs_know(hvd: ModuleType) -> None:
    reduced = Reduced(model_of())
    reduced.group.give_up("on purpose")
    with pytest.raises(HorovodInternalError):
        reduced.step(inputs_of(hvd.rank(), 0))
