"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from horo.collectives import Sum
from horo.process_sets import ProcessSet, global_process_set
from horo.torch.compiling import uncompiled
from horo.torch.tensors import now


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (like.dim() - 2))


def _joint_statistics(input: torch.Tensor, process_set: ProcessSet) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean, variance and number of values of each channel over all ranks.

    From the ranks' own means and variances (Chan, Golub and LeVeque): sums of squares would cancel out.
    """
    kind = torch.promote_types(input.dtype, torch.float32)
    channels = input.shape[1]
    count = input.numel() // channels if channels else 0
    mine = torch.zeros(1, 2 * channels + 1, dtype=kind, device=input.device)
    if count:
        dims = [dim for dim in range(input.dim()) if dim != 1]
        variance, mean = torch.var_mean(input.to(kind), dims, correction=0)
        mine[0] = torch.cat([mean, variance, mean.new_tensor([float(count)])])
    everybody = now.allgather(mine, "sync_batch_norm.statistics", process_set)
    means, variances, counts = everybody[:, :channels], everybody[:, channels:-1], everybody[:, -1:]
    total = float(counts.sum())
    if total < 2:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    mean = (counts * means).sum(0) / total
    variance = (counts * (variances + (means - mean) ** 2)).sum(0) / total
    return mean, variance, total


class _JointNormalisation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor,
        scale: torch.Tensor,
        total: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.save_for_backward(input, weight, mean, scale)
        ctx.total, ctx.process_set = total, process_set
        output = (input - _per_channel(mean, input)) * _per_channel(scale, input)
        if weight is not None and bias is not None:
            output = output * _per_channel(weight, input) + _per_channel(bias, input)
        return output.to(input.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        input, weight, mean, scale = ctx.saved_tensors
        dims = [dim for dim in range(input.dim()) if dim != 1]
        gradient = gradient.to(mean.dtype)
        normal = (input - _per_channel(mean, input)) * _per_channel(scale, input)
        of_bias, of_weight = gradient.sum(dims), (gradient * normal).sum(dims)
        to_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.stack([of_bias, of_weight])
            sums = now.allreduce_(sums, None, "sync_batch_norm.gradients", Sum, process_set=ctx.process_set) / ctx.total
            flow = gradient - _per_channel(sums[0], input) - normal * _per_channel(sums[1], input)
            factor = scale if weight is None else scale * weight
            to_input = (flow * _per_channel(factor, input)).to(input.dtype)
        to_weight = None if weight is None else of_weight.to(weight.dtype)
        to_bias = None if weight is None else of_bias.to(weight.dtype)
        return to_input, to_weight, to_bias, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d, 2d and 3d, but in training the batch is that of all ranks of `process_set` together,
    which need not have equal shares of it. All of them call it in training, in the same order."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels (got {input.shape[1]} in {tuple(input.shape)})")

    @uncompiled
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or self.process_set.size() == 1:
            return self._alone(input)
        with torch.no_grad():
            mean, variance, total = _joint_statistics(input, self.process_set)
            if self.track_running_stats:
                self._track(mean, variance * (total / (total - 1)))
        scale = torch.rsqrt(variance + self.eps)
        return _JointNormalisation.apply(input, self.weight, self.bias, mean, scale, total, self.process_set)

    def _alone(self, input: torch.Tensor) -> torch.Tensor:
        factor = 0.0
        if self.training and self.track_running_stats:
            factor = self._next_factor()
        use_batch = self.training or self.running_mean is None
        tracked = (
            (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        )
        return functional.batch_norm(input, *tracked, self.weight, self.bias, use_batch, factor, self.eps)

    def _next_factor(self) -> float:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        factor = self._next_factor()
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            self.running_var.lerp_(variance.to(self.running_var.dtype), factor)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """The module with SyncBatchNorm for every BatchNorm in it, which keeps its parameters and statistics."""
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_set,
            )
            converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_set))
        return converted
