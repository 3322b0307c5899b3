"""Gradients are reduced where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horo.torch
from horo.process_sets import ProcessSet

GROUP_BYTES = None


def reduce(
    gradients: Sequence[Any], name: str, op: int, scales: tuple[float, float], process_set: ProcessSet
) -> list[Any]:
    return horo.torch.grouped_allreduce_(list(gradients), None, name, op, *scales, process_set)


def dense(gradient: Any) -> Any:
    return gradient.to_dense() if gradient.is_sparse else gradient


def is_sparse(gradient: Any) -> bool:
    return gradient.is_sparse


def unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def is_compiled(model: Any) -> bool:
    return False  # torch.compile() breaks its graph at an operation.


def failure(error: BaseException) -> Exception | None:
    return None  # They are horo's.
