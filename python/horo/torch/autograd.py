"""Operations that gradients flow through. Their gradients are operations too, of all ranks."""

from __future__ import annotations

from typing import Any

import torch

from horo.collectives import Average, Sum
from horo.process_sets import ProcessSet
from horo.torch.tensors import now
from horo.world import world


def _gradient_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.grad"


class HorovodAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.arguments = (average, _gradient_name(name), op, prescale_factor, postscale_factor, process_set)
        return now.allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        return HorovodAllreduce.apply(gradient, *ctx.arguments), None, None, None, None, None, None


class HorovodGroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (average, _gradient_name(name), op, prescale_factor, postscale_factor, process_set)
        return tuple(now.grouped_allreduce(tensors, average, name, op, prescale_factor, postscale_factor, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, None, None, None, None, None, *HorovodGroupedAllreduce.apply(*ctx.arguments, *gradients)


def _first_row(rows: int, name: str | None, process_set: ProcessSet) -> int:
    """Where this rank's rows begin in what an allgather gives."""
    name = None if name is None else f"{name}.rows"
    everybody = now.allgather(torch.tensor([rows]), name, process_set)
    return int(everybody[: process_set.rank()].sum())


class HorovodAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        ctx.rows, ctx.name, ctx.process_set = tensor.shape[0] if tensor.dim() else 1, _gradient_name(name), process_set
        ctx.shape = tensor.shape
        return now.allgather(tensor, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        first = _first_row(ctx.rows, ctx.name, ctx.process_set)
        reduced = HorovodAllreduce.apply(gradient, None, ctx.name, Average, 1.0, 1.0, ctx.process_set)
        return reduced.narrow(0, first, ctx.rows).reshape(ctx.shape), None, None


class HorovodGroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.shapes, ctx.name, ctx.process_set = [one.shape for one in tensors], _gradient_name(name), process_set
        return tuple(now.grouped_allgather(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name = None if ctx.name is None else f"{ctx.name}.rows"
        rows = [shape[0] if len(shape) else 1 for shape in ctx.shapes]
        everybody = now.allgather(torch.tensor([rows]), name, ctx.process_set)
        first = everybody[: ctx.process_set.rank()].sum(0).tolist()
        reduced = HorovodGroupedAllreduce.apply(None, ctx.name, Average, 1.0, 1.0, ctx.process_set, *gradients)
        mine = [
            one.narrow(0, start, count).reshape(shape)
            for one, start, count, shape in zip(reduced, first, rows, ctx.shapes, strict=True)
        ]
        return None, None, *mine


class HorovodBroadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, _gradient_name(name), process_set
        return now.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        reduced = HorovodAllreduce.apply(gradient, None, ctx.name, Average, 1.0, 1.0, ctx.process_set)
        mine = reduced if world.runtime.rank() == ctx.root_rank else reduced * 0
        return mine, None, None, None


class HorovodAlltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = now.alltoall(tensor, splits, name, process_set)
        ctx.received, ctx.name, ctx.process_set = received, _gradient_name(name), process_set
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        return HorovodAlltoall.apply(gradient, ctx.received, ctx.name, ctx.process_set)[0], None, None, None


def _scattered_factor(op: int, prescale: float, postscale: float, process_set: ProcessSet) -> float:
    return (process_set.size() if op == Sum else 1) * prescale * postscale


class HorovodReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> torch.Tensor:
        ctx.factor = _scattered_factor(op, prescale_factor, postscale_factor, process_set)
        ctx.name, ctx.process_set = _gradient_name(name), process_set
        return now.reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        scaled = gradient if ctx.factor == 1 else gradient * ctx.factor
        return HorovodAllgather.apply(scaled, ctx.name, ctx.process_set), None, None, None, None, None


class HorovodGroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.factor = _scattered_factor(op, prescale_factor, postscale_factor, process_set)
        ctx.name, ctx.process_set = _gradient_name(name), process_set
        return tuple(now.grouped_reducescatter(tensors, name, op, process_set, prescale_factor, postscale_factor))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        scaled = [one if ctx.factor == 1 else one * ctx.factor for one in gradients]
        return None, None, None, None, None, *HorovodGroupedAllgather.apply(ctx.name, ctx.process_set, *scaled)
