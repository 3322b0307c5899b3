"""SyncBatchNorm on the ranks' batches is BatchNorm on the joint batch."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


def batch_of(rank: int, sizes: list[int], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn((sizes[rank], 3, *shape), generator=generator, dtype=torch.float64) * 2 + 5).to(dtype)


def joint(sizes: list[int], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.cat([batch_of(rank, sizes, shape, dtype) for rank in range(len(sizes))])


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("shape", [(), (4,), (4, 5)], ids=str)
@pytest.mark.parametrize("even", [True, False])
def test_it_equals_batch_norm_on_the_joint_batch(
    hvd: ModuleType, shape: tuple[int, ...], momentum: float | None, affine: bool, even: bool
) -> None:
    size, rank = hvd.size(), hvd.rank()
    sizes = [4 if even else 2 + one for one in range(size)]
    mine = hvd.SyncBatchNorm(3, momentum=momentum, affine=affine).double()
    whole_kind = {0: torch.nn.BatchNorm1d, 1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d}[len(shape)]
    whole = whole_kind(3, momentum=momentum, affine=affine).double()
    if affine:
        for module in (mine, whole):
            torch.nn.init.constant_(module.weight, 1.5)
            torch.nn.init.constant_(module.bias, -0.5)
    begin = sum(sizes[:rank])
    own = slice(begin, begin + sizes[rank])
    for _ in range(2):
        input = batch_of(rank, sizes, shape, torch.float64).requires_grad_()
        everything = joint(sizes, shape, torch.float64).requires_grad_()
        output, wanted = mine(input), whole(everything)
        torch.testing.assert_close(output, wanted[own])
        (output.cos() * (rank + 1)).sum().backward()
        factors = torch.cat([torch.full((count,), one + 1.0) for one, count in enumerate(sizes)])
        (wanted.cos() * factors.view(-1, *[1] * (wanted.dim() - 1))).sum().backward()
        torch.testing.assert_close(input.grad, everything.grad[own])
        torch.testing.assert_close(mine.running_mean, whole.running_mean)
        torch.testing.assert_close(mine.running_var, whole.running_var)
    assert mine.num_batches_tracked == whole.num_batches_tracked == 2
    if affine:
        torch.testing.assert_close(hvd.allreduce(mine.weight.grad, op=hvd.Sum), whole.weight.grad)
        torch.testing.assert_close(hvd.allreduce(mine.bias.grad, op=hvd.Sum), whole.bias.grad)
    mine.eval()
    whole.eval()
    if rank == 0:  # Nobody else takes part.
        torch.testing.assert_close(mine(input), whole(input))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_far_from_zero_and_in_few_bits(hvd: ModuleType, dtype: torch.dtype) -> None:
    sizes = [4] * hvd.size()
    mine, whole = hvd.SyncBatchNorm(3).to(dtype), torch.nn.BatchNorm1d(3)
    far = 10000 if dtype == torch.float32 else 0
    output = mine(batch_of(hvd.rank(), sizes, (8,), dtype) + far)
    assert output.dtype == dtype
    wanted = whole.double()(joint(sizes, (8,), dtype).double() + far)[4 * hvd.rank() : 4 * hvd.rank() + 4]
    torch.testing.assert_close(output.double(), wanted, atol=2e-2, rtol=2e-2)


def test_a_rank_may_have_nothing(hvd: ModuleType) -> None:
    sizes = [3] + [0] * (hvd.size() - 1)
    mine = hvd.SyncBatchNorm(3)
    input = batch_of(hvd.rank(), sizes, (4,), torch.float32).requires_grad_()
    output = mine(input)
    output.square().sum().backward()
    whole = torch.nn.BatchNorm1d(3)
    whole(joint(sizes, (4,), torch.float32))
    torch.testing.assert_close(mine.running_var, whole.running_var)
    assert input.grad.shape == input.shape


def test_the_ranks_of_a_process_set_share_a_batch(hvd: ModuleType) -> None:
    if hvd.size() < 3:
        pytest.skip("needs a set that is not all ranks and not one")
    some = hvd.add_process_set([0, 1])
    try:
        if hvd.rank() < 2:
            mine, whole = hvd.SyncBatchNorm(3, process_set=some), torch.nn.BatchNorm1d(3)
            output = mine(batch_of(hvd.rank(), [2, 2], (), torch.float32))
            wanted = whole(joint([2, 2], (), torch.float32))
            torch.testing.assert_close(output, wanted[2 * hvd.rank() : 2 * hvd.rank() + 2])
    finally:
        hvd.remove_process_set(some)


def test_models_are_converted_with_what_they_have_learned(hvd: ModuleType) -> None:
    inner = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 2), torch.nn.BatchNorm2d(3, eps=0.1, momentum=0.3))
    model = torch.nn.ModuleDict({"inner": inner, "plain": torch.nn.BatchNorm1d(3, affine=False)})
    model["inner"](torch.randn(4, 1, 5, 5))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    parameters = [id(one) for one in model.parameters()]
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(converted["inner"][1], hvd.SyncBatchNorm)
    assert isinstance(converted["plain"], hvd.SyncBatchNorm)
    assert (converted["inner"][1].eps, converted["inner"][1].momentum) == (0.1, 0.3)
    assert [id(one) for one in converted.parameters()] == parameters, "an optimizer made before still has them"
    after = converted.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    single = torch.nn.BatchNorm1d(2)
    assert isinstance(hvd.SyncBatchNorm.convert_sync_batchnorm(single), hvd.SyncBatchNorm)


def test_wrong_input_is_said(hvd: ModuleType) -> None:
    layer = hvd.SyncBatchNorm(3)
    with pytest.raises(ValueError, match="2D"):
        layer(torch.ones(3))
    with pytest.raises(ValueError, match="3 channels"):
        layer(torch.ones(2, 4))
    with pytest.raises(ValueError, match="more than 1 value"):
        layer(torch.ones(1 if hvd.rank() == 0 else 0, 3))
    assert layer(torch.ones(2, 3)).shape == (2, 3)
