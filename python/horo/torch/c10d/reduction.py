"""torch's reductions in the library's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from horo import _horo

_Kind = dist.ReduceOp.RedOpType
_NUMBERS = {
    _Kind.SUM: "sum",
    _Kind.AVG: "average",
    _Kind.PRODUCT: "product",
    _Kind.MIN: "min",
    _Kind.MAX: "max",
    _Kind.BAND: "and",
    _Kind.BOR: "or",
    _Kind.BXOR: "xor",
    _Kind.PREMUL_SUM: "sum",
}
_BITWISE = (_Kind.BAND, _Kind.BOR, _Kind.BXOR)


@dataclass(frozen=True)
class Reduction:
    number: int
    prescale: float = 1.0

    @property
    def arguments(self) -> dict[str, Any]:
        return {"op": self.number, "prescale": self.prescale}


def reduction_of(op: Any, tensor: torch.Tensor, what: str) -> Reduction:
    """`op` is a ReduceOp or one of its kinds. Raises what cannot be done with the tensor's dtype."""
    kind, factor = op.__getstate__() if isinstance(op, dist.ReduceOp) else (op, None)
    name = _NUMBERS.get(kind)
    if name is None:
        raise ValueError(f"{what}: the back end horo does not know the reduction {kind}")
    arithmetic = tensor.is_floating_point() or tensor.is_complex()
    if kind == _Kind.AVG and not arithmetic:
        raise RuntimeError(f"{what}: ReduceOp.AVG of {tensor.dtype} has no exact result; use SUM, or a float dtype")
    if kind == _Kind.PREMUL_SUM and not arithmetic:
        raise RuntimeError(f"{what}: ReduceOp.PREMUL_SUM takes float dtypes, not {tensor.dtype}")
    if kind in _BITWISE and arithmetic:
        raise RuntimeError(f"{what}: Cannot use ReduceOp.{kind.name} with {tensor.dtype}; it takes integers and bool")
    if tensor.is_complex() and kind in (_Kind.MIN, _Kind.MAX):
        raise RuntimeError(f"{what}: ReduceOp.{kind.name} of {tensor.dtype} does not exist")
    return Reduction(_horo.REDUCTIONS[name], 1.0 if factor is None else float(factor))
