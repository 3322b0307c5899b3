"""Gradients of a step are a few operations of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import horo.tensorflow
from horo.process_sets import ProcessSet
from horo.tensorflow.errors import translated as failure
from horo.tensorflow.graph import unconverted

# The first travel while others are still computed, and there are few kernels that wait.
GROUP_BYTES = 25 << 20


def reduce(
    gradients: Sequence[Any], name: str, op: int, scales: tuple[float, float], process_set: ProcessSet
) -> list[Any]:
    before, after = scales
    return horo.tensorflow.grouped_allreduce(
        list(gradients), op=op, prescale_factor=before, postscale_factor=after, process_set=process_set, name=name
    )


def is_sparse(gradient: Any) -> bool:
    return hasattr(gradient, "indices")


def dense(gradient: Any) -> Any:
    return horo.tensorflow.dense(gradient) if is_sparse(gradient) else gradient


def is_compiled(model: Any) -> bool:
    return bool(model.jit_compile) and not model.run_eagerly


__all__ = ["GROUP_BYTES", "dense", "failure", "is_compiled", "is_sparse", "reduce", "unconverted"]
