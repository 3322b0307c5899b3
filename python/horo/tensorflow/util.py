"""Small things that scripts for Horovod import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()


def _make_subgraph(function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(function)


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.cache(function)


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Whether TensorFlow sees a GPU. Operations run on the host, and TensorFlow copies."""
    return bool(tf.config.list_physical_devices("GPU"))


def vars_to_refs(variables: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(one.ref() for one in variables)


def refs_to_vars(references: Iterable[Any]) -> list[Any]:
    return [one.deref() for one in references]


__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "gpu_available", "refs_to_vars", "vars_to_refs"]
