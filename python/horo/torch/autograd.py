"""Operations that gradients flow through. Their gradients are operations too, of all ranks."""

from __future__ import annotations

from typing import Any

import torch

from horo.collectives import Average, Sum
from horo.process_sets import ProcessSet
from horo.torch.tensors import allgather_with_rows, grouped_allgather_with_rows, now
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


class HorovodAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> torch.Tensor:
        gathered, ctx.rows = allgather_with_rows(tensor, name, process_set)
        ctx.name, ctx.process_set = _gradient_name(name), process_set
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        reduced = HorovodAllreduce.apply(gradient, None, ctx.name, Average, 1.0, 1.0, ctx.process_set)
        return _own_rows(reduced, ctx.rows, ctx.process_set), None, None


def _own_rows(gathered: torch.Tensor, rows: list[int], process_set: ProcessSet) -> torch.Tensor:
    mine = process_set.rank()
    return gathered.narrow(0, sum(rows[:mine]), rows[mine])


class HorovodGroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        gathered = grouped_allgather_with_rows(tensors, name, process_set)
        ctx.rows = [rows for _, rows in gathered]
        ctx.name, ctx.process_set = _gradient_name(name), process_set
        return tuple(one for one, _ in gathered)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        reduced = HorovodGroupedAllreduce.apply(None, ctx.name, Average, 1.0, 1.0, ctx.process_set, *gradients)
        mine = [_own_rows(one, rows, ctx.process_set) for one, rows in zip(reduced, ctx.rows, strict=True)]
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
