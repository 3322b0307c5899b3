"""DistributedOptimizer: the same steps as one process with the data of all ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from training import close, data_of, loss_of, model_of, same_on_all_ranks, sgd, share_of, train

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda params: torch.optim.SGD(params, 0.1),
    "momentum": lambda params: torch.optim.SGD(params, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda params: torch.optim.Adam(params, 0.01, eps=1e-4),
    "AdamW": lambda params: torch.optim.AdamW(params, 0.01, eps=1e-4, amsgrad=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, 0.05),
    "RMSprop": lambda params: torch.optim.RMSprop(params, 0.01, eps=1e-4, momentum=0.5),
    "NAdam": lambda params: torch.optim.NAdam(params, 0.01, eps=1e-4),
    "Adadelta": torch.optim.Adadelta,
    "fused Adam": lambda params: torch.optim.Adam(params, 0.01, eps=1e-4, fused=True),
}


@pytest.mark.parametrize("in_buckets", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_one_process_with_all_data(hvd: ModuleType, name: str, in_buckets: bool) -> None:
    close(*train(hvd, OPTIMIZERS[name], gradient_as_bucket_view=in_buckets))


@pytest.mark.parametrize("in_buckets", [False, True])
@pytest.mark.parametrize("says_otherwise", [False, True])
def test_hooks_ask_torch_s_library_for_the_pass_unless_python_says_otherwise(
    hvd: ModuleType, monkeypatch: pytest.MonkeyPatch, says_otherwise: bool, in_buckets: bool
) -> None:
    asked = 0
    number = torch._C._current_graph_task_id

    def ask() -> int:
        nonlocal asked
        asked += 1
        return number() + 1000 * says_otherwise

    def averaged(mine: torch.nn.Module, alone: torch.nn.Module) -> None:
        for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)

    monkeypatch.setattr(torch._C, "_current_graph_task_id", ask)
    steps = 3
    close(*train(hvd, sgd, steps, averaged, gradient_as_bucket_view=in_buckets))
    hooks = 4 * steps if hvd.size() > 1 else 0
    assert asked >= hooks if says_otherwise else asked <= hooks / 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"groups": 2},
        {"groups": 100},
        {"gradient_predivide_factor": 2.0},
        {"gradient_predivide_factor": 2.0, "groups": 2},
        {"gradient_predivide_factor": 4.0, "gradient_as_bucket_view": True},
        {"sparse_as_dense": True},
    ],
    ids=str,
)
def test_arguments_change_nothing_about_the_steps(hvd: ModuleType, arguments: dict[str, Any]) -> None:
    close(*train(hvd, sgd, **arguments))


def test_num_groups_is_the_older_name_of_groups(hvd: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match="num_groups"):
        close(*train(hvd, sgd, num_groups=2))


def test_groups_can_be_lists_of_parameters(hvd: ModuleType) -> None:
    model = model_of()
    params = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(params), model.named_parameters(), groups=[[params[3], params[0]]])
    inputs, targets = data_of(0)
    loss_of(model, share_of(hvd, inputs), share_of(hvd, targets)).backward()
    optimizer.step()
    same_on_all_ranks(hvd, model)


def test_a_sum_is_the_average_times_the_ranks(hvd: ModuleType) -> None:
    def use(_: torch.nn.Module, alone: torch.nn.Module) -> None:
        for param in alone.parameters():
            param.grad *= hvd.size()

    close(*train(hvd, sgd, use=use, op=hvd.Sum), 1e-5)


class Halved:
    """A compressor of one's own."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.to(torch.bfloat16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


@pytest.mark.parametrize("extra", [{}, {"groups": 2}, {"gradient_as_bucket_view": True}], ids=str)
def test_compressed_gradients_are_close(hvd: ModuleType, extra: dict[str, Any]) -> None:
    close(*train(hvd, sgd, compression=hvd.Compression.fp16, **extra), 2e-3)
    close(*train(hvd, sgd, compression=Halved, **extra), 2e-2)


def test_gradients_are_averages_when_backward_returns(hvd: ModuleType) -> None:
    def use(mine: torch.nn.Module, alone: torch.nn.Module) -> None:
        for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
        for model in (mine, alone):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)

    close(*train(hvd, sgd, use=use))
    close(*train(hvd, sgd, use=use, gradient_as_bucket_view=True))
    close(*train(hvd, sgd, use=use, groups=1))


def test_large_gradients_lie_in_the_buffer_too(hvd: ModuleType) -> None:
    layer = torch.nn.Linear(1201, 1201)  # 5.8 MB.
    optimizer = hvd.DistributedOptimizer(sgd(layer.parameters()), gradient_as_bucket_view=True)
    places = set()
    for step in range(3):
        optimizer.zero_grad()
        layer(torch.full((1, 1201), float(hvd.rank() + step))).sum().backward()
        expected = (hvd.size() - 1) / 2 + step
        assert (layer.weight.grad == expected).all()
        assert (layer.bias.grad == 1).all()
        places.add(layer.weight.grad.data_ptr())
        optimizer.step()
    assert hvd.size() == 1 or len(places) == 1


def test_gradients_that_a_failing_callback_kept_from_being_waited_for_are_averages_after_synchronize(
    hvd: ModuleType,
) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(sgd(mine.parameters()), mine.named_parameters())
    inputs, targets = data_of(0)
    loss_of(alone, inputs, targets).backward()

    def fail() -> None:
        raise ValueError("another callback")

    # Its gradient comes last: the callback is called between the one that hands in and the one that waits.
    first = next(mine.parameters())
    queue = torch.autograd.Variable._execution_engine.queue_callback
    hook = first.register_post_accumulate_grad_hook(lambda param: queue(fail))
    with pytest.raises(ValueError, match="another callback"):
        loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
    hook.remove()
    optimizer.synchronize()
    for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
    with optimizer.skip_synchronize():
        optimizer.step()


def test_without_waiting_in_backward_gradients_are_averages_after_synchronize(
    hvd: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORO_WAIT_IN_BACKWARD", "0")
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(sgd(mine.parameters()), mine.named_parameters())
    inputs, targets = data_of(0)
    loss_of(alone, inputs, targets).backward()
    loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
    optimizer.synchronize()
    for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    assert next(mine.parameters()).grad is None
    same_on_all_ranks(hvd, mine)


@pytest.mark.parametrize("in_buckets", [False, True])
def test_gradients_add_up_over_backward_passes(hvd: ModuleType, in_buckets: bool) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(
        sgd(mine.parameters()), backward_passes_per_step=2, gradient_as_bucket_view=in_buckets
    )
    reference = sgd(alone.parameters())
    for step in range(3):
        passes = 2 if step < 2 else 3
        optimizer.set_backward_passes_per_step(passes)
        assert optimizer.backward_passes_per_step == passes
        optimizer.zero_grad()
        reference.zero_grad()
        for part in range(passes):
            inputs, targets = data_of(10 * step + part)
            loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
            loss_of(alone, inputs, targets).backward()
        optimizer.step()
        reference.step()
    close(mine, alone)
    same_on_all_ranks(hvd, mine)


def test_one_backward_pass_too_many_is_refused(hvd: ModuleType) -> None:
    model = model_of()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    inputs, targets = data_of(0)
    loss_of(model, inputs, targets).backward()
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            loss_of(model, inputs, targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model, inputs, targets).backward()
    optimizer.step()
    same_on_all_ranks(hvd, model)


def test_gradients_can_be_thrown_away(hvd: ModuleType) -> None:
    model = model_of()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    inputs, targets = data_of(0)
    for _ in range(2):
        loss_of(model, inputs, targets).backward()
        optimizer.zero_grad()
    assert all(param.grad is None for param in model.parameters())
    optimizer.zero_grad(set_to_none=False)


def test_a_step_after_synchronize_reduces_nothing_again(hvd: ModuleType) -> None:
    model = model_of()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), op=hvd.Sum)
    before = copy.deepcopy(model)
    inputs, targets = data_of(0)
    loss_of(model, inputs, targets).backward()
    optimizer.synchronize()
    optimizer.step()
    for old, new in zip(before.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(new, old - new.grad)


def closure_of(optimizer: Any, model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Any:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_decides_the_same_on_all_ranks(hvd: ModuleType, line_search: str | None) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(mine.parameters(), 0.5, 4, line_search_fn=line_search))
    reference = torch.optim.LBFGS(alone.parameters(), 0.5, 4, line_search_fn=line_search)
    for step in range(2):
        inputs, targets = data_of(step)
        loss = optimizer.step(closure_of(optimizer, mine, share_of(hvd, inputs), share_of(hvd, targets)))
        expected = reference.step(closure_of(reference, alone, inputs, targets))
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    close(mine, alone, 1e-4)
    same_on_all_ranks(hvd, mine)


def test_adasum_combines_what_the_ranks_would_have_done(hvd: ModuleType) -> None:
    model = model_of()
    before = [param.detach().clone() for param in model.parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), op=hvd.Adasum)
    inputs, targets = data_of(0)
    loss_of(model, share_of(hvd, inputs), share_of(hvd, targets)).backward()
    expected = []
    for index, (param, start) in enumerate(zip(model.parameters(), before, strict=True)):
        step = -0.1 * param.grad
        expected.append(start + hvd.allreduce(step, name=f"step.{index}", op=hvd.Adasum))
    optimizer.step()
    for param, value in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(param.detach(), value)
    same_on_all_ranks(hvd, model)
    if hvd.size() > 1:
        with (
            pytest.raises(AssertionError, match="Skipping synchronization is not supported"),
            optimizer.skip_synchronize(),
        ):
            pass
        loss_of(model, inputs, targets).backward()
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            loss_of(model, inputs, targets).backward()
    optimizer.synchronize()
    optimizer.step()
    same_on_all_ranks(hvd, model)


def test_a_process_set_reduces_among_its_ranks(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    evens = hvd.add_process_set(range(0, hvd.size(), 2))
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), process_set=evens)
    (model(torch.ones(1, 1)).sum() * hvd.rank()).backward()
    optimizer.step()
    ranks = list(range(0, hvd.size(), 2))
    expected = sum(ranks) / len(ranks) if hvd.rank() in ranks else hvd.rank()
    assert model.weight.grad.item() == expected
    assert hvd.remove_process_set(evens)
