"""Communication hooks: those of the library, and functions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_models import Branches, loss_of, plain, train, trains_as_one
from training import close, data_of, same_on_all_ranks, share_of


def averaging(hvd: ModuleType, seen: list[Any] | None = None) -> Any:
    """What the default does, as a hook."""

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if seen is not None:
            seen.append((bucket.index(), bucket.is_last(), [tuple(one.shape) for one in bucket.parameters()]))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(hvd.allreduce(bucket.buffer(), name=f"hook.{bucket.index()}"))
        return future

    return hook


@pytest.mark.parametrize("views", [False, True])
def test_a_function_gets_buckets_in_order(hvd: ModuleType, views: bool) -> None:
    seen: list[Any] = []
    mine = trains_as_one(
        hvd,
        prepare=lambda model: model.register_comm_hook(None, averaging(hvd, seen)),
        bucket_cap_mb=0.0002,
        gradient_as_bucket_view=views,
        steps=3,
    )
    assert mine._get_ddp_logging_data()["comm_hook"].endswith("hook")
    last = seen[-len(mine.reducer.buckets) :]
    assert [one[0] for one in last] == list(range(len(mine.reducer.buckets)))
    assert [one[1] for one in last] == [False] * (len(last) - 1) + [True]
    assert sum(len(one[2]) for one in last) == len(list(mine.parameters()))


def test_a_bucket_has_the_gradients_as_views_of_its_buffer(hvd: ModuleType) -> None:
    def hook(state: list[Any], bucket: Any) -> Any:
        buffer = bucket.buffer()
        assert buffer.dim() == 1
        assert sum(one.numel() for one in bucket.gradients()) == buffer.numel()
        for gradient, param in zip(bucket.gradients(), bucket.parameters(), strict=True):
            assert gradient.shape == param.shape
            torch.testing.assert_close(gradient, param.grad, rtol=0, atol=0)
        bucket.set_buffer(buffer.clone())
        assert bucket.buffer().data_ptr() != buffer.data_ptr()
        future: Any = torch.futures.Future()
        future.set_result([buffer * 0 + 7])  # torch's own futures of collectives hold a list of one.
        state.append(bucket.index())
        return future

    mine = hvd.DistributedDataParallel(plain())
    state: list[int] = []
    mine.register_comm_hook(state, hook)
    mine(torch.ones(2, 4)).sum().backward()
    assert state == [0]
    assert all(one.grad.unique().tolist() == [7] for one in mine.parameters())


def test_futures_may_be_completed_later_and_by_a_chain(hvd: ModuleType) -> None:
    waiting: list[Any] = []

    def hook(state: Any, bucket: Any) -> Any:
        future: Any = torch.futures.Future()
        waiting.append(
            (future, hvd.allreduce_async(bucket.buffer() / hvd.size(), name=f"b{bucket.index()}", op=hvd.Sum))
        )
        if bucket.is_last():
            for one, handle in waiting:
                one.set_result([hvd.synchronize(handle)])
            waiting.clear()
        return future.then(lambda done: done.value()[0] * 1)

    trains_as_one(hvd, prepare=lambda model: model.register_comm_hook(None, hook), bucket_cap_mb=0.0002)


def test_hooks_see_parameters_without_gradients_as_zeros(hvd: ModuleType) -> None:
    mine, alone = train(
        hvd,
        Branches,
        call=lambda model, inputs, step: model(inputs, step),
        find_unused_parameters=True,
        prepare=lambda model: model.register_comm_hook(None, averaging(hvd)),
    )
    close(mine, alone)
    assert mine.module.never.weight.grad is None


TOLERANCES = {"allreduce": 1e-6, "fp16": 2e-3, "bf16": 2e-2, "int8": 5e-2}


@pytest.mark.parametrize("name", list(TOLERANCES))
@pytest.mark.parametrize("views", [False, True])
def test_hooks_of_the_library_lose_as_little_as_documented(hvd: ModuleType, name: str, views: bool) -> None:
    mine = trains_as_one(
        hvd,
        prepare=lambda model: model.register_comm_hook(None, getattr(hvd.hooks, name)),
        gradient_as_bucket_view=views,
        tolerance=TOLERANCES[name],
    )
    facts = mine._get_ddp_logging_data()
    assert facts["comm_hook"] == f"horo.torch.hooks.{name}"
    if hvd.size() > 1 and name in ("fp16", "bf16"):
        assert facts["sent_bytes"] * 2 == facts["gradient_bytes"]
    if hvd.size() > 1 and name == "int8":
        assert facts["sent_bytes"] < facts["gradient_bytes"] / 2


@pytest.mark.parametrize("rank", [1, 2])
def test_power_sgd_learns_with_fewer_bytes(hvd: ModuleType, rank: int) -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(9)
        return torch.nn.Sequential(
            torch.nn.Linear(4, 64), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)
        )

    state = hvd.hooks.PowerSGDState(matrix_approximation_rank=rank, start_powerSGD_iter=2)
    mine = hvd.DistributedDataParallel(make())
    mine.register_comm_hook(state, hvd.hooks.powersgd)
    optimizer = torch.optim.SGD(mine.parameters(), 0.1)
    inputs, targets = data_of(0)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_of(mine(share_of(hvd, inputs)), share_of(hvd, targets))
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()).item())
    same_on_all_ranks(hvd, mine)
    assert losses[-1] < 0.8 * losses[0]
    facts = mine._get_ddp_logging_data()
    assert facts["sent_bytes"] < facts["gradient_bytes"]


def test_hooks_by_name_and_by_torchs_numbers(hvd: ModuleType) -> None:
    for choose in (
        lambda model: model.register_comm_hook(None, "fp16"),
        lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS),
    ):
        mine = trains_as_one(hvd, prepare=choose, tolerance=2e-3)
        with pytest.raises(RuntimeError, match="registered before"):
            mine.register_comm_hook(None, "bf16")
    trains_as_one(hvd, prepare=lambda m: m._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE))


def wrong_hooks(hvd: ModuleType) -> list[tuple[type[Exception], str, Any, Any]]:
    def annotated(state: Any, bucket: int) -> torch.futures.Future[torch.Tensor]: ...

    def returning(state: Any, bucket: dist.GradBucket) -> int: ...

    def nameless(state: Any, other: Any) -> Any: ...

    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return [
        (TypeError, "callable", None, 17),
        (ValueError, "there is no hook 'zip'", None, "zip"),
        (ValueError, "bucket annotation", None, annotated),
        (ValueError, "return annotation", None, returning),
        (ValueError, "bucket", None, nameless),
        (TypeError, "has no state", object(), "fp16"),
        (TypeError, "PowerSGDState", object(), "powersgd"),
        (RuntimeError, "init_process_group", None, default_hooks.fp16_compress_hook),
    ]


def test_what_is_no_hook_is_refused(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(plain())
    for kind, words, state, hook in wrong_hooks(hvd):
        with pytest.raises(kind, match=words):
            model.register_comm_hook(state, hook)
    with pytest.raises(ValueError, match="at least 2"):
        hvd.hooks.PowerSGDState(start_powerSGD_iter=1)
    with pytest.raises(ValueError, match="at least 1"):
        hvd.hooks.PowerSGDState(matrix_approximation_rank=0)
    with pytest.raises(ValueError, match="no built-in hook"):
        model._register_builtin_comm_hook("fp16")
    model(torch.ones(1, 4)).sum().backward()


def broken(hvd: ModuleType, how: str, rank: int) -> Any:
    def hook(state: Any, bucket: Any) -> Any:
        if hvd.rank() != rank:
            return averaging(hvd)(state, bucket) if how != "raises" else _done(bucket.buffer())
        future: Any = torch.futures.Future()
        if how == "raises":
            raise ZeroDivisionError("the hook's own words")
        value = hvd.allreduce(bucket.buffer(), name=f"hook.{bucket.index()}")
        if how == "later":
            future.set_exception(ZeroDivisionError("the hook's own words"))
        elif how == "shape":
            future.set_result(value[1:])
        elif how == "dtype":
            future.set_result(value.double())
        elif how == "nothing":
            return value
        else:
            future.set_result("a word")
        return future

    return hook


def _done(value: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("how", ["raises", "later", "shape", "dtype", "nothing", "word"])
def test_a_hook_that_fails_on_one_rank_fails_on_all(hvd: ModuleType, how: str) -> None:
    culprit = hvd.size() - 1
    model = hvd.DistributedDataParallel(plain())
    model.register_comm_hook(None, broken(hvd, how, culprit))
    words = {"raises": "own words", "later": "own words", "shape": "elements", "dtype": "float64"}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"parameter '4\.bias'|parameter '0\.weight'") as caught:
            model(torch.ones(2, 4)).sum().backward()
        assert words.get(how, "not a") in str(caught.value)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="works").item() == hvd.size()
