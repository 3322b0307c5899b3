"""A wrapped optimizer and its original are one; and what cannot be wrapped."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from types import ModuleType
from typing import Any

import pytest
import torch
from training import close, data_of, loss_of, model_of, same_on_all_ranks, sgd, share_of


def test_everything_is_shared_with_the_original(hvd: ModuleType) -> None:
    model = model_of()
    original = torch.optim.Adam(model.parameters(), 0.01)
    wrapped = hvd.DistributedOptimizer(original, model.named_parameters())
    assert isinstance(wrapped, torch.optim.Adam)
    assert type(wrapped).__name__ == "Adam"
    assert type(wrapped).__module__ == "horo.torch.optimizer"
    assert wrapped._parameter_names == {param: name for name, param in model.named_parameters()}
    for _ in range(2):
        assert wrapped.state is original.state
        assert wrapped.param_groups is original.param_groups
        assert wrapped.defaults is original.defaults
        loss_of(model, *data_of(0)).backward()
        wrapped.step()
        wrapped.zero_grad()
        saved = copy.deepcopy(original.state_dict())
        wrapped.load_state_dict(saved)
        assert wrapped.state is original.state
        original.load_state_dict(wrapped.state_dict())
    assert original.state[model[0].weight]["step"] == 2
    calls = []
    wrapped.register_step_post_hook(lambda *_: calls.append("wrapped"))
    original.register_step_pre_hook(lambda *_: calls.append("original"))
    wrapped.step()
    assert calls == ["original", "wrapped"]
    assert "lr: 0.01" in repr(wrapped)


@pytest.mark.parametrize("on_original", [True, False])
@pytest.mark.parametrize("wrap_first", [True, False])
def test_schedulers_work_on_either_optimizer(hvd: ModuleType, on_original: bool, wrap_first: bool) -> None:
    model = model_of()
    original = torch.optim.SGD(model.parameters(), 1.0)
    wrapped = hvd.DistributedOptimizer(original, model.named_parameters()) if wrap_first else None
    scheduler = None
    if not wrap_first and on_original:
        scheduler = torch.optim.lr_scheduler.StepLR(original, 1, 0.5)
    wrapped = wrapped or hvd.DistributedOptimizer(original, model.named_parameters())
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(original if on_original else wrapped, 1, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            loss_of(model, *data_of(0)).backward()
            wrapped.step()
            wrapped.zero_grad()
            scheduler.step()
    assert wrapped.param_groups[0]["lr"] == original.param_groups[0]["lr"] == 0.25


def test_pickling_gives_the_plain_optimizer(hvd: ModuleType) -> None:
    model = model_of()
    wrapped = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, *data_of(0)).backward()
    wrapped.step()
    file = io.BytesIO()
    torch.save(wrapped, file)
    file.seek(0)
    for plain in (pickle.loads(pickle.dumps(wrapped)), torch.load(file, weights_only=False)):
        assert type(plain) is torch.optim.SGD
        momenta = [state["momentum_buffer"] for state in plain.state.values()]
        expected = [state["momentum_buffer"] for state in wrapped.state.values()]
        assert all(torch.equal(one, other) for one, other in zip(momenta, expected, strict=True))


def test_a_deep_copy_is_wrapped_again(hvd: ModuleType) -> None:
    model = model_of()
    params = list(model.parameters())
    wrapped = hvd.DistributedOptimizer(sgd(params), model.named_parameters(), groups=[params[:2]])
    twin_model, twin = copy.deepcopy((model, wrapped))
    assert twin.param_groups[0]["params"][0] is twin_model[0].weight
    assert list(twin._parameter_names.values()) == list(wrapped._parameter_names.values())
    inputs, targets = data_of(0)
    for one, optimizer in ((twin_model, twin), (model, wrapped)):
        loss_of(one, share_of(hvd, inputs), share_of(hvd, targets)).backward()
        optimizer.step()
        same_on_all_ranks(hvd, one)
    close(twin_model, model)


def test_a_wrapper_that_is_dropped_takes_its_hooks_along(hvd: ModuleType) -> None:
    model = model_of()
    original = sgd(model.parameters())
    wrapped = hvd.DistributedOptimizer(original, model.named_parameters())
    del wrapped
    wrapped = hvd.DistributedOptimizer(original, model.named_parameters())
    loss_of(model, *data_of(0)).backward()
    wrapped.step()
    same_on_all_ranks(hvd, model)


def refused(hvd: ModuleType, words: str, kind: type[Exception] = ValueError, **arguments: Any) -> None:
    model = model_of()
    given = {"optimizer": sgd(model.parameters()), "named_parameters": list(model.named_parameters()), **arguments}
    with pytest.raises(kind, match=words):
        hvd.DistributedOptimizer(**given)


def test_wrong_arguments_are_refused_with_words(hvd: ModuleType) -> None:
    model = model_of()
    named = list(model.named_parameters())
    twice = [("a", named[0][1]), ("a", named[1][1]), *named[2:]]
    optimizer = sgd(model.parameters())
    params = list(model.parameters())
    refused(hvd, "torch.optim.Optimizer", TypeError, optimizer=model)
    refused(hvd, "already", optimizer=hvd.DistributedOptimizer(optimizer))
    refused(hvd, "Found duplicates: a", optimizer=optimizer, named_parameters=twice)
    refused(hvd, "were not named", optimizer=optimizer, named_parameters=named[:2])
    refused(hvd, "sequence of tuples", optimizer=optimizer, named_parameters=params)
    refused(hvd, "backward_passes_per_step", backward_passes_per_step=0)
    refused(hvd, "backward_passes_per_step", backward_passes_per_step="2")
    refused(hvd, "op != Average", gradient_predivide_factor=2.0, op=hvd.Sum)
    refused(hvd, "positive", gradient_predivide_factor=0.0)
    refused(hvd, "op must be", op=hvd.Min)
    refused(hvd, "groups should be", groups=0)
    refused(hvd, "groups should be", groups=-1)
    refused(hvd, "groups should be", groups="all")
    refused(hvd, "groups should be", optimizer=optimizer, named_parameters=named, groups=params)
    refused(hvd, "groups must consist", optimizer=optimizer, named_parameters=named, groups=[["a"]])
    refused(hvd, "only appear once", optimizer=optimizer, named_parameters=named, groups=[params, params[:1]])
    refused(hvd, "does not have", optimizer=optimizer, named_parameters=named, groups=[[torch.zeros(1)]])
    refused(hvd, "compressor", compression="fp16")
    refused(hvd, "ProcessSet", process_set=[0])
    refused(hvd, "groups of its own", groups=2, gradient_as_bucket_view=True)
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        hvd.DistributedOptimizer(optimizer).set_backward_passes_per_step(-1)
