"""Models of all kinds: unused, frozen, sparse, compiled and broken ones."""

from __future__ import annotations

import copy
import warnings
from types import ModuleType
from typing import Any

import pytest
import torch
from training import SAMPLES, close, data_of, loss_of, model_of, same_on_all_ranks, sgd, share_of

import horo


def test_parameters_may_have_no_gradient_on_some_ranks(hvd: ModuleType) -> None:
    """Each rank uses another part, and nobody uses the last one."""
    torch.manual_seed(3)
    parts = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(hvd.size() + 1)])
    for in_buckets in (False, True):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(parts.parameters(), 0.1), parts.named_parameters(), gradient_as_bucket_view=in_buckets
        )
        for step in range(hvd.size() + 2):
            optimizer.zero_grad()
            with warnings.catch_warnings():
                # It says once that nobody waits here for gradients that others lack.
                warnings.simplefilter("ignore" if step == 0 else "error")
                parts[(hvd.rank() + step) % hvd.size()](torch.ones(1, 2)).sum().backward()
            optimizer.step()
            same_on_all_ranks(hvd, parts)
        if hvd.size() > 1:
            assert torch.equal(parts[-1].weight.grad, torch.zeros(2, 2))


def test_several_backward_passes_may_bring_the_gradients_of_one_step(hvd: ModuleType) -> None:
    first, second = model_of(1), model_of(2)
    both = torch.nn.ModuleList([first, second])
    alone = copy.deepcopy(both)
    optimizer = hvd.DistributedOptimizer(sgd(both.parameters()), both.named_parameters())
    reference = sgd(alone.parameters())
    for step in range(2):
        inputs, targets = data_of(step)
        for mine, other in zip(both, alone, strict=True):
            loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
            loss_of(other, inputs, targets).backward()
            for one, its in zip(mine.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(one.grad, its.grad, rtol=1e-5, atol=1e-6)
        for one in (optimizer, reference):
            one.step()
            one.zero_grad()
    close(both, alone)


def test_a_gradient_may_come_after_it_was_taken_for_missing(hvd: ModuleType) -> None:
    both = torch.nn.ModuleList([model_of(1), model_of(2)])
    alone = copy.deepcopy(both)
    optimizer = hvd.DistributedOptimizer(sgd(both.parameters()), both.named_parameters())
    reference = sgd(alone.parameters())
    for step in range(5):
        inputs, targets = data_of(step)
        optimizer.zero_grad()
        reference.zero_grad(set_to_none=False)
        for mine, other in list(zip(both, alone, strict=True))[: 1 if step < 2 else 2]:
            loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
            loss_of(other, inputs, targets).backward()
        optimizer.step()
        reference.step()
    close(both, alone)
    same_on_all_ranks(hvd, both)


def test_parameters_can_be_frozen_unfrozen_and_added(hvd: ModuleType) -> None:
    mine, alone = model_of(), model_of()
    head, other = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    other.load_state_dict(head.state_dict())
    hvd.broadcast_parameters(head.state_dict(), 0)
    hvd.broadcast_parameters(other.state_dict(), 0)
    mine[0].weight.requires_grad_(False)
    alone[0].weight.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(sgd(mine.parameters()), mine.named_parameters())
    reference = sgd(alone.parameters())
    for step in range(4):
        if step == 1:
            optimizer.add_param_group({"params": head.parameters(), "lr": 0.01})
            reference.add_param_group({"params": other.parameters(), "lr": 0.01})
        frozen = step == 2
        for model in (mine, alone):
            model[2].weight.requires_grad_(not frozen)
            model[0].weight.requires_grad_(step == 3)
        optimizer.zero_grad()
        reference.zero_grad()
        inputs, _ = data_of(step)
        head(mine(share_of(hvd, inputs))).pow(2).mean().backward()
        other(alone(inputs)).pow(2).mean().backward()
        if step == 0:
            for param in (*head.parameters(), *other.parameters()):
                param.grad = None
        optimizer.step()
        reference.step()
    close(mine, alone)
    close(head, other)
    same_on_all_ranks(hvd, mine)


@pytest.mark.parametrize("arguments", [{"groups": 1}, {"gradient_as_bucket_view": True}], ids=str)
def test_groups_and_buckets_go_without_frozen_parameters(hvd: ModuleType, arguments: dict[str, Any]) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(sgd(mine.parameters()), mine.named_parameters(), **arguments)
    reference = sgd(alone.parameters())
    for step in range(3):
        inputs, targets = data_of(step)
        for model, its in ((mine, optimizer), (alone, reference)):
            model[2].weight.requires_grad_(step != 1)
            its.zero_grad()
        loss_of(mine, share_of(hvd, inputs), share_of(hvd, targets)).backward()
        loss_of(alone, inputs, targets).backward()
        for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
        optimizer.step()
        reference.step()
    close(mine, alone)


def test_sparse_gradients_are_reduced_sparse_or_dense(hvd: ModuleType) -> None:
    for dense in (False, True):
        torch.manual_seed(5)
        mine, alone = (torch.nn.Embedding(20, 3, sparse=True) for _ in range(2))
        alone.load_state_dict(mine.state_dict())
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(mine.parameters(), 0.1), mine.named_parameters(), sparse_as_dense=dense
        )
        reference = torch.optim.SGD(alone.parameters(), 0.1)
        for step in range(3):
            words = torch.randint(0, 20, (SAMPLES,), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            reference.zero_grad()
            mine(share_of(hvd, words)).pow(2).mean().backward()
            alone(words).pow(2).mean().backward()
            assert mine.weight.grad.is_sparse == (not dense or hvd.size() == 1)
            optimizer.step()
            reference.step()
        close(mine, alone)
        same_on_all_ranks(hvd, mine)


def test_a_rank_without_a_sparse_gradient_gives_an_empty_one(hvd: ModuleType) -> None:
    torch.manual_seed(6)
    model = torch.nn.Embedding(8, 2, sparse=True)
    scale = torch.nn.Parameter(torch.ones(1))
    params = [("words", model.weight), ("scale", scale)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one for _, one in params], 0.1), params)
    for step in range(2):
        optimizer.zero_grad()
        loss = (scale * 2).sum()
        if step == 0 or hvd.rank() == 0:
            loss = loss + (model(torch.arange(3)) * scale).sum()
        loss.backward()
        optimizer.step()
    same_on_all_ranks(hvd, model)


def test_sparse_gradients_are_refused_in_buckets(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    model = torch.nn.Embedding(8, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), gradient_as_bucket_view=True)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        model(torch.arange(3)).sum().backward()
    optimizer.zero_grad()


class _SometimesSparse(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Parameter(torch.randn(20, 3, generator=torch.Generator().manual_seed(7)))
        self.factor = torch.nn.Parameter(torch.ones(3))

    def forward(self, words: torch.Tensor, sparse: bool) -> torch.Tensor:
        return torch.nn.functional.embedding(words, self.words, sparse=sparse) * self.factor


@pytest.mark.parametrize("compression", ["none", "fp16"])
@pytest.mark.parametrize("as_dense", [False, True])
def test_gradients_may_be_sparse_in_some_steps(hvd: ModuleType, compression: str, as_dense: bool) -> None:
    mine, alone = _SometimesSparse(), _SometimesSparse()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(mine.parameters(), 0.1),
        mine.named_parameters(),
        compression=getattr(hvd.Compression, compression),
        sparse_as_dense=as_dense,
    )
    reference = torch.optim.SGD(alone.parameters(), 0.1)
    for step, sparse in enumerate([False, False, True, False, True]):
        words = torch.randint(0, 20, (SAMPLES,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        reference.zero_grad()
        mine(share_of(hvd, words), sparse).pow(2).mean().backward()
        alone(words, sparse).pow(2).mean().backward()
        assert mine.words.grad.is_sparse == (sparse and (not as_dense or hvd.size() == 1))
        optimizer.step()
        reference.step()
    for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 if compression == "none" else 1e-3)
    same_on_all_ranks(hvd, mine)


def test_gradients_with_a_graph_of_their_own_are_refused_in_any_step(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    for passes_before in range(3):
        model = model_of()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        for step in range(passes_before):
            loss_of(model, *data_of(step)).backward()
            optimizer.step()
            optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of torch, about graphs that hold themselves.
            with pytest.raises(AssertionError, match="requires a gradient; reduce it yourself"):
                loss_of(model, *data_of(0)).backward(create_graph=True)
        optimizer.synchronize()
        optimizer.zero_grad()
        loss_of(model, *data_of(1)).backward()
        optimizer.step()
        same_on_all_ranks(hvd, model)


def test_a_grad_scaler_sees_averages(hvd: ModuleType) -> None:
    model = model_of()
    wrapped = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    inputs, targets = data_of(0)
    for broken in (False, True):
        wrapped.zero_grad()
        loss = loss_of(model, share_of(hvd, inputs), share_of(hvd, targets))
        if broken and hvd.rank() == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(wrapped)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(wrapped)
        scaler.update()
    assert scaler.get_scale() == 2.0, "all ranks have seen what happened on rank 0"
    assert all(torch.isfinite(param).all() for param in model.parameters())
    same_on_all_ranks(hvd, model)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models_train(hvd: ModuleType, backend: str) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(sgd(mine.parameters()), mine.named_parameters())
    reference = sgd(alone.parameters())
    compiled = torch.compile(mine, backend=backend)
    for step in range(2):
        inputs, targets = data_of(step)
        optimizer.zero_grad()
        reference.zero_grad()
        loss_of(compiled, share_of(hvd, inputs), share_of(hvd, targets)).backward()
        loss_of(alone, inputs, targets).backward()
        optimizer.step()
        reference.step()
    close(mine, alone)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_models_train(hvd: ModuleType, reentrant: bool) -> None:
    mine, alone = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(sgd(mine.parameters()), mine.named_parameters())
    inputs, targets = data_of(0)
    outputs = share_of(hvd, inputs).requires_grad_()
    for layer in mine:
        outputs = torch.utils.checkpoint.checkpoint(layer, outputs, use_reentrant=reentrant)
    torch.nn.functional.mse_loss(outputs, share_of(hvd, targets)).backward()
    loss_of(alone, inputs, targets).backward()
    for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
    optimizer.step()


def test_a_backward_pass_that_fails_can_be_repeated(hvd: ModuleType) -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.clone()

        @staticmethod
        def backward(_: Any, __: torch.Tensor) -> torch.Tensor:
            raise KeyError("broken")

    model = model_of()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    inputs, targets = data_of(0)
    middle = Broken.apply(model[0](inputs).tanh())
    with pytest.raises(KeyError, match="broken"):
        torch.nn.functional.mse_loss(model[2](middle), targets).backward()
    optimizer.synchronize()
    optimizer.zero_grad()
    loss_of(model, inputs, targets).backward()
    optimizer.step()
    same_on_all_ranks(hvd, model)


def test_ranks_that_disagree_get_an_error_and_go_on(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    model = torch.nn.Linear(2 + hvd.rank(), 1)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    with pytest.raises(hvd.HorovodInternalError, match="weight"):
        model(torch.ones(1, 2 + hvd.rank())).sum().backward()
    del optimizer
    model = model_of()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, *data_of(0)).backward()
    optimizer.step()
    same_on_all_ranks(hvd, model)


def test_channels_last_gradients_are_averaged(hvd: ModuleType) -> None:
    for in_buckets in (False, True):
        torch.manual_seed(7)
        model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1), gradient_as_bucket_view=in_buckets
        )
        images = torch.full((2, 3, 5, 5), hvd.rank() + 1.0).to(memory_format=torch.channels_last)
        model(images).sum().backward()
        mean = torch.full_like(model.weight, 18 * (hvd.size() + 1) / 2)
        torch.testing.assert_close(model.weight.grad, mean)
        assert model.weight.grad.stride() == model.weight.stride()
        optimizer.step()


def test_large_gradients_stay_out_of_the_buckets(hvd: ModuleType) -> None:
    mine, alone = (torch.nn.Linear(1024, 1024) for _ in range(2))
    hvd.broadcast_parameters(mine.state_dict(), 0)
    alone.load_state_dict(mine.state_dict())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(mine.parameters(), 0.1), mine.named_parameters(), gradient_as_bucket_view=True
    )
    reference = torch.optim.SGD(alone.parameters(), 0.1)
    inputs = torch.randn(SAMPLES, 1024, generator=torch.Generator().manual_seed(8))
    views = []
    for step in range(3):
        optimizer.zero_grad(set_to_none=step != 2)  # The last gradients are added to zeros in their places.
        reference.zero_grad()
        mine(share_of(hvd, inputs)).pow(2).mean().backward()
        alone(inputs).pow(2).mean().backward()
        torch.testing.assert_close(mine.weight.grad, alone.weight.grad, rtol=1e-4, atol=1e-6)
        views.append(mine.bias.grad)
        optimizer.step()
        reference.step()
    assert hvd.size() == 1 or all(view is views[0] for view in views)
    same_on_all_ranks(hvd, mine)


def test_gradients_lie_in_one_piece_of_memory(hvd: ModuleType) -> None:
    if hvd.size() == 1:
        return
    model = model_of()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), gradient_as_bucket_view=True)
    loss_of(model, *data_of(0)).backward()
    storages = {param.grad.untyped_storage().data_ptr() for param in model.parameters()}
    assert len(storages) == 1
    views = [param.grad for param in model.parameters()]
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(param.grad is view and not view.any() for param, view in zip(model.parameters(), views, strict=True))
    optimizer.zero_grad()
    assert all(param.grad is None for param in model.parameters())
    loss_of(model, *data_of(0)).backward()
    assert all(param.grad is view for param, view in zip(model.parameters(), views, strict=True))
    before = horo.metrics()["process_sets"][0]["operations"]["allreduce"]["tensors"]
    optimizer.zero_grad()
    loss_of(model, *data_of(0)).backward()
    assert horo.metrics()["process_sets"][0]["operations"]["allreduce"]["tensors"] == before + 2, (
        "a bucket, and what ranks agree on at the end of a backward pass"
    )


def test_gradients_that_are_negated_lazily_are_averaged(hvd: ModuleType) -> None:
    """What lies in memory is not what they say."""

    class Negative(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
            return values.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            return torch._neg_view(gradient.clone())

    for in_buckets in (False, True):
        param = torch.nn.Parameter(torch.zeros(6))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([param], 1.0), [("param", param)], gradient_as_bucket_view=in_buckets
        )
        (Negative.apply(param) * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        torch.testing.assert_close(param.detach(), torch.full((6,), (hvd.size() + 1) / 2))


def test_gradients_in_a_bucket_may_be_unusual_in_some_steps(hvd: ModuleType) -> None:
    """Small ones are moved in when all have come, and are looked at only then."""
    if hvd.size() == 1:
        return
    mine, alone = _SometimesSparse(), _SometimesSparse()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(mine.parameters(), 0.01),
        mine.named_parameters(),
        sparse_as_dense=True,
        gradient_as_bucket_view=True,
    )
    reference = torch.optim.SGD(alone.parameters(), 0.01)
    words = torch.tensor([1, 5, 5, 2])
    for sparse in (False, False, True, False, True):
        for model, one in ((mine, optimizer), (alone, reference)):
            one.zero_grad()
            (model(words, sparse).pow(2).sum() * (hvd.rank() + 1 if model is mine else (hvd.size() + 1) / 2)).backward()
            one.step()
        close(mine, alone)

    refused = _SometimesSparse()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(refused.parameters(), 0.1), gradient_as_bucket_view=True)
    refused(words, False).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(ValueError, match="sparse_as_dense"):
        refused(words, True).sum().backward()
    optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of torch, about graphs that hold themselves.
        with pytest.raises(AssertionError, match="reduce it yourself"):
            refused(words, False).pow(2).sum().backward(create_graph=True)
    optimizer.zero_grad()


def test_gradients_of_a_bucket_that_are_not_replaced_stay_where_they_are(hvd: ModuleType) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), gradient_as_bucket_view=True)
    places = set()
    for turn in range(4):
        optimizer.zero_grad(set_to_none=turn % 2 == 0)
        (model(torch.ones(1, 3)).sum() * (hvd.rank() + 1)).backward()
        torch.testing.assert_close(model.bias.grad, torch.full((2,), (hvd.size() + 1) / 2))
        if turn > 0:
            places.add(model.bias.grad.data_ptr())
        optimizer.step()
    assert len(places) == 1 or hvd.size() == 1
