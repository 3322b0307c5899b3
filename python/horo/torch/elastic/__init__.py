"""Training of torch that goes on after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horo.elastic import run_fn
from horo.torch.elastic.sampler import ElasticSampler
from horo.torch.elastic.state import TorchState


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for `train(state, ...)`: the state is synchronised first. When an operation fails on all ranks, they
    go back to the last commit, join the job again, and call the function once more."""
    return run_fn(func)


__all__ = ["ElasticSampler", "TorchState", "run"]
