"""What is wrong is said on every rank, with the parameter's name, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from ddp_models import Branches, plain
from training import same_on_all_ranks


def works(hvd: ModuleType, model: torch.nn.Module | None = None) -> None:
    assert hvd.allreduce(torch.ones(2), name="works", op=hvd.Sum).tolist() == [hvd.size()] * 2
    if model is not None:
        model.zero_grad()
        (model(torch.ones(2, 4)).sum() * (hvd.rank() + 1)).backward()
        same_on_all_ranks(hvd, torch.nn.ParameterList([one.grad for one in model.parameters()]))


def odd_models(hvd: ModuleType) -> list[tuple[str, Callable[[], torch.nn.Module]]]:
    odd = hvd.rank() == hvd.size() - 1
    linear = torch.nn.Linear
    return [
        ("2.weight|1.weight", lambda: torch.nn.Sequential(linear(2, 2), *([torch.nn.ReLU()] * odd), linear(2, 2))),
        ("1.weight", lambda: torch.nn.Sequential(linear(2, 2), linear(2, 3 if odd else 2))),
        ("1.bias", lambda: torch.nn.Sequential(linear(2, 2), linear(2, 2, bias=not odd))),
        ("0.weight", lambda: torch.nn.Sequential(linear(2, 2).double() if odd else linear(2, 2))),
    ]


@pytest.mark.parametrize("case", range(4))
def test_different_parameters_on_ranks(hvd: ModuleType, case: int) -> None:
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    name, make = odd_models(hvd)[case]
    with pytest.raises(hvd.HorovodInternalError, match=name) as caught:
        hvd.DistributedDataParallel(make())
    assert caught.value.code == "mismatch"
    works(hvd, hvd.DistributedDataParallel(plain()))


@pytest.mark.parametrize("hooked", [False, True])
def test_a_parameter_that_one_rank_does_not_use(hvd: ModuleType, hooked: bool) -> None:
    model = hvd.DistributedDataParallel(Branches())

    def hook(state: None, bucket: object) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    if hooked:
        model.register_comm_hook(None, hook)
    everything = model.module.never(torch.ones(1, 2)).sum() + model.module.right(torch.ones(1, 8)).sum()
    output = model(torch.ones(2, 4)).sum()
    loss = output + everything if hvd.rank() > 0 else output
    with pytest.raises(ValueError, match=r"never\.weight|right\.weight") as caught:
        loss.backward()
    assert "find_unused_parameters" in str(caught.value)
    works(hvd)
    for turn in range(2):
        hidden = model(torch.ones(2, 4)).sum()
        rest = [model.module.never(torch.ones(1, 2)), model.module.right(torch.ones(1, 8))]
        (hidden + sum(one.sum() for one in rest) * (hvd.rank() + turn)).backward()
    if not hooked:
        same_on_all_ranks(hvd, torch.nn.ParameterList([model.module.never.weight.grad]))


def test_a_second_backward_pass_without_a_forward_pass(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(plain())
    loss = model(torch.ones(2, 4)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(ValueError, match=r"parameters? '\d\.(weight|bias)'"):
        loss.backward()
    works(hvd, model)


def test_a_backward_pass_that_was_not_finished(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(plain())
    output = model(torch.ones(2, 4))
    with pytest.raises(RuntimeError, match="not reduced yet"):
        model._check_reducer_finalized()

    def stop(gradient: torch.Tensor) -> None:
        raise ZeroDivisionError("in the middle of a backward pass")

    middle = model.module[2].weight.register_hook(stop)
    with pytest.raises(ZeroDivisionError):
        output.sum().backward()
    middle.remove()
    with pytest.raises(ValueError, match=r"parameters? '\d\.(weight|bias)'"):
        model(torch.ones(2, 4))
    works(hvd, model)


def test_parameters_changed_after_wrapping(hvd: ModuleType) -> None:
    odd = hvd.rank() == hvd.size() - 1
    model = hvd.DistributedDataParallel(plain())
    if odd:
        model.module[2].weight = torch.nn.Parameter(torch.ones(8, 16))
    with pytest.raises(ValueError, match=r"replaced or removed after|'2\.weight'"):
        model(torch.ones(2, 4)).sum().backward()
    added = hvd.DistributedDataParallel(plain())
    added.module[0].register_parameter("extra", torch.nn.Parameter(torch.ones(1)))
    with pytest.raises(ValueError, match="'extra' was added after"):
        added(torch.ones(2, 4))
    frozen = hvd.DistributedDataParallel(plain())
    frozen.module[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"0\.weight"):
        frozen(torch.ones(2, 4)).sum().backward()
    other = hvd.DistributedDataParallel(plain())
    other.module.double()
    with pytest.raises(ValueError, match=r"parameters? '\d\.(weight|bias)'"):
        other(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    works(hvd)


def wrong_arguments(hvd: ModuleType) -> list[tuple[type[Exception], str, Callable[[], object]]]:
    wrap = hvd.DistributedDataParallel
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    elsewhere = torch.nn.Linear(2, 2, device="meta")
    normal = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SyncBatchNorm(2))
    lazy = torch.nn.LazyLinear(2)
    return [
        (TypeError, "torch.nn.Module", lambda: wrap([torch.nn.Linear(2, 2)])),
        (RuntimeError, "requires a gradient", lambda: wrap(frozen)),
        (RuntimeError, "not initialised", lambda: wrap(lazy)),
        (ValueError, "parameter 'weight' is on meta", lambda: wrap(elsewhere)),
        (ValueError, "device_ids", lambda: wrap(plain(), device_ids=[0])),
        (ValueError, "single element", lambda: wrap(plain(), device_ids=[0, 1])),
        (ValueError, "output_device", lambda: wrap(plain(), output_device=0)),
        (ValueError, "delay_all_reduce", lambda: wrap(plain(), delay_all_reduce_named_params=[])),
        (ValueError, "bucket_cap_mb", lambda: wrap(plain(), bucket_cap_mb=0)),
        (ValueError, "bucket_cap_mb_list", lambda: wrap(plain(), bucket_cap_mb_list=[1, 0])),
        (ValueError, "convert_sync_batchnorm", lambda: wrap(normal)),
        (ValueError, 'back end "horo"', lambda: wrap(plain(), process_group=object())),
        (ValueError, "not known to horo", lambda: wrap(plain(), process_group=hvd.ProcessSet([0]))),
        (TypeError, "unexpected keyword", lambda: wrap(plain(), bucket_cap=1)),
    ]


def test_a_wrong_argument_is_said_before_other_ranks_are_asked(hvd: ModuleType) -> None:
    if hvd.rank() == 0:
        for kind, words, call in wrong_arguments(hvd):
            with pytest.raises(kind, match=words):
                call()
    works(hvd)


def test_a_model_is_wrapped_once(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedDataParallel(hvd.DistributedDataParallel(plain()))


def test_without_a_job_it_says_what_to_do(hvd: ModuleType) -> None:
    hvd.shutdown()
    try:
        with pytest.raises(RuntimeError, match=r"hvd.init\(\)"):
            hvd.DistributedDataParallel(plain())
    finally:
        hvd.init()
    works(hvd)
