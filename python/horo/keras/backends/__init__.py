"""What reducing gradients is on each back end of Keras."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras

from horo.process_sets import ProcessSet


class Backend(Protocol):
    # Gradients are put together in groups of so many bytes; None: all are one group.
    GROUP_BYTES: int | None

    def reduce(
        self, gradients: Sequence[Any], name: str, op: int, scales: tuple[float, float], process_set: ProcessSet
    ) -> list[Any]:
        """What all ranks agree on for each of them, as one operation."""

    def dense(self, gradient: Any) -> Any:
        """A sparse gradient with all its rows; others as they are."""

    def is_sparse(self, gradient: Any) -> bool: ...

    def unconverted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is written, also in a step whose source the framework rewrites."""

    def is_compiled(self, model: Any) -> bool:
        """Whether a step of the model is compiled by something that cannot compile horo's operations."""

    def failure(self, error: BaseException) -> Exception | None:
        """The exception of horo's that an exception of the framework's was made of."""


@functools.cache
def backend() -> Backend:
    name = keras.config.backend()
    if name not in ("tensorflow", "jax", "torch"):
        raise ValueError(
            f"horo.keras works with the back ends tensorflow, jax and torch of Keras, not with {name!r}; set "
            "KERAS_BACKEND before Keras is imported"
        )
    return importlib.import_module(f"horo.keras.backends.on_{name}")
