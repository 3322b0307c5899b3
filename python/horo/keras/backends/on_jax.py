"""Gradients of a step are one call of a handler inside the compiled step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horo.jax
from horo.jax.errors import translated as failure
from horo.process_sets import ProcessSet

GROUP_BYTES = None


def reduce(
    gradients: Sequence[Any], name: str, op: int, scales: tuple[float, float], process_set: ProcessSet
) -> list[Any]:
    return horo.jax.grouped_allreduce(list(gradients), name, op, *scales, process_set)


def dense(gradient: Any) -> Any:
    return gradient


def is_sparse(gradient: Any) -> bool:
    return False


def unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def is_compiled(model: Any) -> bool:
    return False  # By XLA, which calls the handler.


__all__ = ["GROUP_BYTES", "dense", "failure", "is_compiled", "is_sparse", "reduce", "unconverted"]
