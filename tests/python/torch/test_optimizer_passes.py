"""DistributedOptimizer where backward passes bring gradients of other parameters on other ranks."""

from __future__ import annotations

import threading
import warnings
from types import ModuleType
from typing import Any

import pytest
import torch

import horo.torch.gradients

WAYS: list[dict[str, Any]] = [{}, {"groups": 1}, {"gradient_as_bucket_view": True}]


class Two:
    """Two parameters and their optimizer. The first one always gets gradients."""

    def __init__(self, hvd: ModuleType, **arguments: Any) -> None:
        self.first, self.second = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
        params = [("first", self.first), ("second", self.second)]
        self.optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one for _, one in params], 1.0), params, **arguments)

    def one_pass(self, factor: float | None) -> None:
        loss = self.first.sum()
        (loss if factor is None else loss + self.second.sum() * factor).backward()


def mean_of(hvd: ModuleType, factor: float) -> float:
    """Of gradients that are the factor times the number of a rank, from one on."""
    return factor * (hvd.size() + 1) / 2


@pytest.mark.parametrize("arguments", WAYS, ids=str)
def test_what_one_rank_lacked_once_may_come_in_a_second_pass(hvd: ModuleType, arguments: dict[str, Any]) -> None:
    two = Two(hvd, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        two.one_pass(None if hvd.rank() == 0 else 1.0)
    two.optimizer.step()
    for step in range(2, 5):
        two.optimizer.zero_grad()
        two.first.sum().backward()
        (two.second.sum() * (hvd.rank() + 1) * step).backward()
        two.optimizer.step()
        assert two.first.grad.tolist() == [1.0] * 3
        torch.testing.assert_close(two.second.grad, torch.full((3,), mean_of(hvd, step)))


@pytest.mark.parametrize("arguments", WAYS, ids=str)
def test_what_all_ranks_lacked_once_may_come_in_a_second_pass(hvd: ModuleType, arguments: dict[str, Any]) -> None:
    two = Two(hvd, op=hvd.Sum, **arguments)
    two.one_pass(None)
    two.optimizer.step()
    for _ in range(2):
        two.optimizer.zero_grad()
        two.first.sum().backward()
        two.second.sum().backward()
        if hvd.size() > 1:
            assert two.second.grad.tolist() == [hvd.size()] * 3, "averages when the last pass returns"
        two.optimizer.step()
        assert two.first.grad.tolist() == two.second.grad.tolist() == [hvd.size()] * 3


@pytest.mark.parametrize("arguments", WAYS, ids=str)
def test_what_no_rank_uses_keeps_nothing_from_being_averages(hvd: ModuleType, arguments: dict[str, Any]) -> None:
    two = Two(hvd, **arguments)
    for step in range(1, 4):
        two.optimizer.zero_grad()
        (two.first.sum() * (hvd.rank() + 1) * step).backward()
        torch.testing.assert_close(two.first.grad, torch.full((3,), mean_of(hvd, step)))
        assert two.second.grad is None
        if step == 2:
            (two.second.sum() * (hvd.rank() + 1)).backward()
            torch.testing.assert_close(two.second.grad, torch.full((3,), mean_of(hvd, 1)))
        two.optimizer.step()
        torch.testing.assert_close(two.first.grad, torch.full((3,), mean_of(hvd, step)))
        if step == 2 or hvd.size() > 1:
            torch.testing.assert_close(two.second.grad, torch.full((3,), mean_of(hvd, 1) if step == 2 else 0.0))
    for _ in range(2):  # All at once, in the parcels that they were made for.
        two.optimizer.zero_grad()
        two.one_pass(hvd.rank() + 1.0)
        torch.testing.assert_close(two.second.grad, torch.full((3,), mean_of(hvd, 1)))
        two.optimizer.step()


def test_a_group_that_a_later_pass_brings_is_reduced_as_one_and_a_part_of_it_is_told(hvd: ModuleType) -> None:
    first, second, third = (torch.nn.Parameter(torch.zeros(3)) for _ in range(3))
    params = [("first", first), ("second", second), ("third", third)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([one for _, one in params], 1.0), params, groups=[[second, third]]
    )
    mine = hvd.rank() + 1.0
    for part in (False, True, False):
        optimizer.zero_grad()
        (first.sum() * mine).backward()
        torch.testing.assert_close(first.grad, torch.full((3,), mean_of(hvd, 1)))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            (second.sum() * mine if part else (second.sum() + third.sum()) * mine).backward()
        assert ["a part of a group" in str(one.message) for one in said] == [True] * (part and hvd.size() > 1)
        if not part:
            torch.testing.assert_close(third.grad, torch.full((3,), mean_of(hvd, 1)))
        elif hvd.size() > 1:
            with pytest.raises(AssertionError, match="synchronize"):
                optimizer.zero_grad()
        optimizer.step()
        torch.testing.assert_close(second.grad, torch.full((3,), mean_of(hvd, 1)))


@pytest.mark.parametrize("arguments", WAYS, ids=str)
def test_a_scaler_skips_on_all_ranks_though_no_rank_uses_all_parameters(
    hvd: ModuleType, arguments: dict[str, Any]
) -> None:
    two = Two(hvd, **arguments)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for broken in (False, True, False):
        two.optimizer.zero_grad()
        scaler.scale(two.first.sum() * (float("inf") if broken and hvd.rank() == 0 else 1.0)).backward()
        scaler.step(two.optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0
    assert two.first.tolist() == [-2.0] * 3


@pytest.mark.parametrize("arguments", WAYS, ids=str)
def test_another_operation_may_come_before_a_gradient_that_a_rank_lacks(
    hvd: ModuleType, arguments: dict[str, Any]
) -> None:
    two = Two(hvd, **arguments)
    for step in range(3):
        two.optimizer.zero_grad()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            two.one_pass(None if hvd.rank() == step % hvd.size() else 1.0)
        assert len(said) == (step == 0 and hvd.size() > 1), "once, and on all ranks"
        assert all("Call synchronize()" in str(one.message) for one in said)
        assert hvd.allreduce(torch.ones(1), name="loss", op=hvd.Sum).item() == hvd.size()
        two.optimizer.step()
        if hvd.size() > 1:
            torch.testing.assert_close(two.second.grad, torch.full((3,), 1 - 1 / hvd.size()))


def test_another_operation_may_come_before_a_pass_that_a_rank_lacks(
    hvd: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two(hvd)
    for step in range(3):
        # Waited for in vain once, and never again.
        monkeypatch.setattr(horo.torch.gradients, "_PATIENCE_SECONDS", 0.1 if step == 0 else 1000.0)
        two.optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if step == 0 else "error")
            two.first.sum().backward()
            if hvd.rank() > 0:
                (two.second.sum() * step).backward()
        assert hvd.allreduce(torch.ones(1), name="loss", op=hvd.Sum).item() == hvd.size()
        two.optimizer.step()
        if hvd.size() > 1:
            torch.testing.assert_close(two.second.grad, torch.full((3,), step * (1 - 1 / hvd.size())))


def test_a_rank_that_is_late_is_waited_for(hvd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horo.torch.gradients, "_PATIENCE_SECONDS", 0.05)
    two = Two(hvd)
    hvd.barrier()
    if hvd.rank() == 0:
        threading.Event().wait(0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two.one_pass(hvd.rank() + 1.0)
    torch.testing.assert_close(two.second.grad, torch.full((3,), mean_of(hvd, 1.0)))
    two.optimizer.step()


def test_a_rank_may_have_no_pass_at_all(hvd: ModuleType) -> None:
    two = Two(hvd)
    for _ in range(2):
        two.optimizer.zero_grad()
        if hvd.rank() > 0 or hvd.size() == 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                two.one_pass(1.0)
        two.optimizer.step()
        expected = 1.0 if hvd.size() == 1 else 1 - 1 / hvd.size()
        torch.testing.assert_close(two.second.grad, torch.full((3,), expected))


def test_a_scaler_may_skip_a_step_with_a_gradient_that_a_rank_lacks(hvd: ModuleType) -> None:
    two = Two(hvd)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    lacks = hvd.rank() == 0 and hvd.size() > 1
    for broken in (False, True, False):
        two.optimizer.zero_grad()
        loss = two.first.sum() if lacks else two.first.sum() + two.second.sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scaler.scale(loss * float("inf") if broken and hvd.rank() == 0 else loss).backward()
        two.optimizer.synchronize()
        scaler.unscale_(two.optimizer)
        scaler.step(two.optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0
    assert two.first.tolist() == [-2.0] * 3
    if hvd.size() > 1:
        # Without synchronize() they may not be thrown away: others wait for them.
        two.optimizer.zero_grad()
        two.one_pass(None if lacks else 1.0)
        with pytest.raises(AssertionError, match="synchronize"):
            two.optimizer.zero_grad()
        two.optimizer.synchronize()
        two.optimizer.zero_grad()
