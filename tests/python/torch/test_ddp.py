"""DistributedDataParallel trains as one process with the data of all ranks would."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from types import ModuleType
from typing import Any

import pytest
import torch
from ddp_models import Branches, different_on_ranks, loss_of, plain, train, trains_as_one
from torch.utils.checkpoint import checkpoint
from training import close, data_of, same_on_all_ranks, sgd, share_of


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("cap", [None, 0.0002, [0.0001, 0.0005]], ids=str)
def test_it_trains_as_one_process(hvd: ModuleType, views: bool, set_to_none: bool, cap: Any) -> None:
    caps = {"bucket_cap_mb_list": cap} if isinstance(cap, list) else {"bucket_cap_mb": cap}
    mine = trains_as_one(hvd, set_to_none=set_to_none, gradient_as_bucket_view=views, **caps)
    assert mine._has_rebuilt_buckets
    assert len(mine.reducer.buckets) == 1 if cap is None else len(mine.reducer.buckets) > 1
    assert [name for name, _ in mine.named_parameters()] == [f"module.{name}" for name, _ in plain().named_parameters()]
    assert list(mine.state_dict()) == [f"module.{name}" for name in plain().state_dict()]
    assert isinstance(mine, torch.nn.parallel.DistributedDataParallel)


def test_parameters_are_bit_identical_after_many_steps(hvd: ModuleType) -> None:
    mine, _ = train(hvd, steps=100)
    same_on_all_ranks(hvd, mine)


def test_gradients_that_are_views_stay_views(hvd: ModuleType) -> None:
    model = hvd.DistributedDataParallel(plain(), gradient_as_bucket_view=True)
    optimizer = sgd(model.parameters())
    addresses = []
    for step in range(4):
        inputs, targets = data_of(step)
        loss_of(model(inputs), targets).backward()
        addresses.append([one.grad.data_ptr() for one in model.parameters()])
        assert all(one.grad.stride() == one.stride() for one in model.parameters())
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        assert all(one.grad.count_nonzero() == 0 for one in model.parameters())
    assert addresses[1] == addresses[2] == addresses[3], "the buckets are made anew once, after the first iteration"
    flat = model.reducer._flats[0]
    inside = range(flat.data_ptr(), flat.data_ptr() + flat.nbytes)
    assert all(address in inside for address in addresses[-1])


def test_no_sync_adds_up_and_the_pass_after_it_reduces(hvd: ModuleType) -> None:
    for arguments in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        mine, alone = hvd.DistributedDataParallel(plain(), **arguments), plain()
        for step in range(3):
            for part in range(3):
                inputs, targets = data_of(10 * step + part)
                mine.require_backward_grad_sync = True
                context = mine.no_sync() if part < 2 else torch.enable_grad()
                with context:
                    loss_of(mine(share_of(hvd, inputs)), share_of(hvd, targets)).backward()
                loss_of(alone(inputs), targets).backward()
            for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
                one.grad = other.grad = None


@pytest.mark.parametrize("views", [False, True])
def test_unused_parameters_are_found(hvd: ModuleType, views: bool) -> None:
    mine = trains_as_one(
        hvd,
        Branches,
        call=lambda model, inputs, step: model(inputs, step),
        find_unused_parameters=True,
        gradient_as_bucket_view=views,
        steps=6,
    )
    assert mine.module.never.weight.grad is None, "no rank used it"
    assert mine._get_ddp_logging_data()["can_set_static_graph"] == 0


def test_parameters_that_one_rank_uses_get_its_share(hvd: ModuleType) -> None:
    """Rank 0 goes left, all others right."""
    mine, alone = hvd.DistributedDataParallel(Branches(), find_unused_parameters=True), Branches()
    inputs = torch.ones(2, 4)
    for _ in range(2):
        mine.zero_grad()
        alone.zero_grad()
        mine(inputs, int(hvd.rank() > 0)).sum().backward()
        (alone(inputs, 0).sum() + (hvd.size() - 1) * alone(inputs, 1).sum()).div(hvd.size()).backward()
        if hvd.size() == 1:
            assert mine.module.right.weight.grad is None
            continue
        for name in ("first", "left", "right"):
            one, other = getattr(mine.module, name).weight.grad, getattr(alone, name).weight.grad
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert mine.module.never.weight.grad is None


def test_outputs_that_no_loss_uses_are_unused(hvd: ModuleType) -> None:
    class Two(Branches):
        def forward(self, inputs: torch.Tensor, turn: int = 0) -> Any:
            hidden = torch.tanh(self.first(inputs))
            return self.left(hidden), self.right(hidden)

    mine = hvd.DistributedDataParallel(Two(), find_unused_parameters=True)
    for step in range(3):
        mine.zero_grad()
        mine(torch.ones(2, 4))[step % 2].sum().backward()
        used, other = (mine.module.left, mine.module.right) if step % 2 == 0 else (mine.module.right, mine.module.left)
        assert used.weight.grad is not None
        assert other.weight.grad is None
        mine._check_reducer_finalized()


def test_a_static_graph_knows_its_unused_parameters(hvd: ModuleType) -> None:
    mine = trains_as_one(hvd, Branches, static_graph=True, steps=5)
    assert mine.module.right.weight.grad is None
    other = hvd.DistributedDataParallel(Branches())
    other._set_static_graph()
    with pytest.warns(UserWarning, match="no need to set it again"):
        other._set_static_graph()
    for _ in range(3):
        other(torch.ones(2, 4)).sum().backward()
    assert other._get_ddp_logging_data()["static_graph"] == 1


class Checkpointed(torch.nn.Module):
    def __init__(self, reentrant: bool, twice: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.last = torch.nn.Linear(4, 3)
        self.reentrant, self.twice = reentrant, twice

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs if not self.reentrant else inputs.clone().requires_grad_()
        for layer in self.layers:
            for _ in range(1 + self.twice):
                hidden = checkpoint(
                    lambda value, layer=layer: torch.tanh(layer(value)), hidden, use_reentrant=self.reentrant
                )
        return self.last(hidden)


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("static", [False, True])
def test_checkpoints(hvd: ModuleType, reentrant: bool, static: bool, views: bool) -> None:
    trains_as_one(
        hvd,
        lambda: Checkpointed(reentrant),
        static_graph=static,
        gradient_as_bucket_view=views,
        bucket_cap_mb=0.0001,
        steps=5,
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_are_checkpointed_twice_need_a_static_graph(hvd: ModuleType, reentrant: bool) -> None:
    trains_as_one(hvd, lambda: Checkpointed(reentrant, twice=True), static_graph=True, steps=5)


@dataclasses.dataclass
class Answer:
    scores: torch.Tensor
    extra: dict[str, Any]


@pytest.mark.parametrize("find_unused", [False, True])
def test_outputs_may_be_nested(hvd: ModuleType, find_unused: bool) -> None:
    class Nested(Branches):
        def forward(self, inputs: torch.Tensor, turn: int = 0) -> Any:
            hidden = torch.tanh(self.first(inputs))
            return Answer(self.left(hidden), {"all": (self.right(hidden), ["a word", self.never(inputs[:, :2])])})

    def call(model: torch.nn.Module, inputs: torch.Tensor, step: int) -> torch.Tensor:
        answer = model(inputs)
        assert isinstance(answer, Answer)
        assert answer.extra["all"][1][0] == "a word"
        return answer.scores + answer.extra["all"][0] + answer.extra["all"][1][1].sum(1, keepdim=True)

    trains_as_one(hvd, Nested, call=call, find_unused_parameters=find_unused, steps=4)


def test_several_forward_passes_before_one_backward_pass(hvd: ModuleType) -> None:
    for arguments in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
        trains_as_one(hvd, call=lambda model, inputs, step: model(inputs) + model(2 * inputs), **arguments)


def test_what_one_of_several_forward_passes_uses_is_used(hvd: ModuleType) -> None:
    for views in (False, True):
        trains_as_one(
            hvd,
            Branches,
            call=lambda model, inputs, step: model(inputs, 0) + model(inputs, step % 2),
            find_unused_parameters=True,
            gradient_as_bucket_view=views,
        )


def test_several_forward_passes_each_with_a_backward_pass_after_all(hvd: ModuleType) -> None:
    mine, alone = hvd.DistributedDataParallel(plain()), plain()
    for step in range(2):
        inputs, targets = data_of(step)
        losses = [loss_of(mine(share_of(hvd, inputs) * k), share_of(hvd, targets)) for k in (1, 2)]
        for loss in losses:
            loss.backward()
        for k in (1, 2):
            loss_of(alone(inputs * k), targets).backward()
    for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)


def test_losses_of_different_outputs_may_have_backward_passes_of_their_own(hvd: ModuleType) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.one, self.other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

        def forward(self, inputs: torch.Tensor) -> Any:
            return self.one(inputs), self.other(inputs)

    mine, alone = hvd.DistributedDataParallel(Two()), Two()
    for step in range(3):
        inputs, targets = data_of(step)
        for model, data in ((mine, share_of(hvd, inputs)), (alone, inputs)):
            model.zero_grad()
            wanted = share_of(hvd, targets) if model is mine else targets
            for output in model(data):
                loss_of(output, wanted).backward()
        for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)
        mine._check_reducer_finalized()


def test_gradients_of_inputs_alone_are_no_backward_pass(hvd: ModuleType) -> None:
    """As in a gradient penalty."""
    mine, alone = hvd.DistributedDataParallel(plain()), plain()
    for step in range(3):
        inputs, _ = data_of(step)
        for model, own in ((mine, share_of(hvd, inputs)), (alone, inputs)):
            data = own.clone().requires_grad_()
            model.zero_grad()
            output = model(data)
            (slope,) = torch.autograd.grad(output.sum(), data, create_graph=True)
            (output.square().mean() + slope.square().mean()).backward()
        for one, other in zip(mine.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("find_unused", [False, True])
def test_sparse_gradients(hvd: ModuleType, find_unused: bool) -> None:
    class Words(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.words = torch.nn.Embedding(20, 4, sparse=True)
            self.bags = torch.nn.EmbeddingBag(20, 4, sparse=True, mode="sum")
            self.last = torch.nn.Linear(4, 3)

        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return self.last(self.words(numbers).sum(1) + self.bags(numbers))

    mine = hvd.DistributedDataParallel(different_on_ranks(hvd, Words()), find_unused_parameters=find_unused)
    alone = Words()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (mine, alone)]
    for step in range(3):
        numbers = torch.randint(0, 20, (12, 3), generator=torch.Generator().manual_seed(step))
        _, targets = data_of(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(mine(share_of(hvd, numbers)), share_of(hvd, targets)).backward()
        loss_of(alone(numbers), targets).backward()
        assert mine.module.words.weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
    same_on_all_ranks(hvd, mine)
    close(mine, alone)


def test_parameters_of_other_layouts_and_dtypes(hvd: ModuleType) -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(6)
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 2), torch.nn.Conv2d(2, 3, 2), torch.nn.Flatten())
        model = model.to(memory_format=torch.channels_last)
        model[1].weight.data = model[1].weight.data.double()
        model[1].bias.data = model[1].bias.data.double()
        return model

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make()
            self.gaps = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2)[:, :1])
            self.turned = torch.nn.Parameter(torch.arange(6.0).reshape(3, 2).t())
            self.one = torch.nn.Parameter(torch.tensor(2.0))
            self.none = torch.nn.Parameter(torch.empty(0, 3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = self.inner[1](self.inner[0](inputs.view(-1, 1, 2, 2).repeat(1, 1, 2, 2)).double()).flatten(1)
            hidden = hidden[:, :3].float() * self.one + self.none.sum()
            return hidden + self.gaps.t() + self.turned.sum(0)

    for views in (False, True):
        mine = trains_as_one(hvd, Mixed, gradient_as_bucket_view=views, tolerance=1e-5)
        for one in mine.parameters():
            assert one.grad.shape == one.shape
            assert one.grad.dtype == one.dtype


def test_buffers_come_from_rank_0_before_each_forward_pass(hvd: ModuleType) -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        model.register_buffer("rank", torch.tensor([float(hvd.rank())]))
        return model

    synced = hvd.DistributedDataParallel(make())
    kept = hvd.DistributedDataParallel(make(), forward_sync_buffers=False)
    with pytest.warns(FutureWarning, match="broadcast_buffers"):
        own = hvd.DistributedDataParallel(make(), broadcast_buffers=False)
    assert synced.module.rank.item() == kept.module.rank.item() == 0, "wrapping makes them equal"
    assert own.module.rank.item() == hvd.rank()
    assert synced.broadcast_buffers
    assert not kept.broadcast_buffers
    for model in (synced, kept):
        model.module.rank.fill_(hvd.rank())
        for step in range(2):
            inputs, targets = data_of(step)
            loss_of(model(share_of(hvd, inputs) * (1 + hvd.rank())), share_of(hvd, targets)).backward()
    assert synced.module.rank.item() == 0
    assert kept.module.rank.item() == hvd.rank()
    before = hvd.allgather(kept.module[1].running_mean.reshape(1, -1), "own means")
    if hvd.size() > 1:
        assert not torch.equal(before[0], before[1])
    synced.eval()
    with torch.no_grad():
        synced(data_of(0)[0])  # What the last pass changed is brought along.
    everybody = hvd.allgather(synced.module[1].running_mean.reshape(1, -1), "means again")
    assert all(torch.equal(one, everybody[0]) for one in everybody)


def test_what_is_ignored_is_left_alone(hvd: ModuleType) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    names = ["0.bias", "1.running_mean"]
    hvd.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    different_on_ranks(hvd, model)
    bias, mean = model[0].bias.detach().clone(), model[1].running_mean.clone()
    wrapped = hvd.DistributedDataParallel(model)
    assert torch.equal(wrapped.module[0].bias, bias)
    assert torch.equal(wrapped.module[1].running_mean, mean)
    assert "0.bias" not in wrapped.reducer.parameters.names
    (wrapped(torch.randn(3, 4)) * (hvd.rank() + 1)).sum().backward()
    assert wrapped.module[0].bias.grad is not None
    same_on_all_ranks(hvd, torch.nn.ParameterList([wrapped.module[0].weight.grad]))


def test_sync_batch_norm_is_batch_norm_on_the_joint_batch(hvd: ModuleType) -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(8)
        return torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
        )

    alone = make()
    mine = hvd.DistributedDataParallel(hvd.SyncBatchNorm.convert_sync_batchnorm(make()))
    optimizers = [sgd(model.parameters()) for model in (mine, alone)]
    for step in range(4):
        inputs, targets = data_of(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(mine(share_of(hvd, inputs)), share_of(hvd, targets)).backward()
        loss_of(alone(inputs), targets).backward()
        for optimizer in optimizers:
            optimizer.step()
    same_on_all_ranks(hvd, mine)
    close(mine, alone, 1e-5)
    torch.testing.assert_close(mine.module[1].running_var, alone[1].running_var)


def test_the_ranks_of_a_process_set_train_a_model_of_their_own(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        pytest.skip("needs a set that is not all ranks and not one")
    some = hvd.add_process_set([0, 2])
    try:
        if hvd.rank() in (0, 2):
            model = hvd.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False), process_group=some)
            (model(torch.ones(1, 1)).sum() * hvd.rank()).backward()
            assert model.module.weight.grad.item() == 1
            with pytest.raises(RuntimeError, match="cannot be pickled"):
                model.__getstate__()
        else:
            with pytest.raises(ValueError, match="is not in"):
                hvd.DistributedDataParallel(torch.nn.Linear(1, 1), process_group=some)
    finally:
        hvd.remove_process_set(some)


def test_a_model_that_is_dropped_leaves_a_plain_module(hvd: ModuleType) -> None:
    module = plain()
    model = hvd.DistributedDataParallel(module)
    model(torch.ones(1, 4)).sum().backward()
    gone = weakref.ref(model.reducer)
    del model
    gc.collect()
    assert gone() is None
    module.zero_grad()
    (module(torch.ones(1, 4)) * hvd.rank()).sum().backward()
    module.zero_grad()
    again = hvd.DistributedDataParallel(module)
    (again(torch.ones(1, 4)) * hvd.rank()).sum().backward()
    same_on_all_ranks(hvd, torch.nn.ParameterList([one.grad for one in again.parameters()]))


def test_two_models_in_one_backward_pass_do_not_meet(hvd: ModuleType) -> None:
    first, second = hvd.DistributedDataParallel(plain()), hvd.DistributedDataParallel(plain())
    for step in range(3):
        inputs, _ = data_of(step)
        data = share_of(hvd, inputs)
        (first(data).sum() + second(data).square().sum()).backward()
        second(data).sum().backward()
        first(data).sum().backward()
    for model in (first, second):
        same_on_all_ranks(hvd, torch.nn.ParameterList([one.grad for one in model.parameters()]))
