"""Training of TensorFlow that goes on after a failure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from horo.basics import rank
from horo.elastic import ObjectState, run_fn
from horo.process_sets import ProcessSet, global_process_set
from horo.tensorflow.errors import horo_errors
from horo.tensorflow.functions import broadcast_object, broadcast_variables


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for `train(state, ...)`: the state is synchronised first. When an operation fails on all ranks, in a
    tf.function or outside, they go back to the last commit, join the job again, and call the function once more."""

    @functools.wraps(func)
    def in_horos_words(*args: Any, **kwargs: Any) -> Any:
        with horo_errors():
            return func(*args, **kwargs)

    return run_fn(in_horos_words)


class TensorFlowState(ObjectState):
    """Variables, and anything else as attributes: `TensorFlowState(variables=[...], batch=0)`.

    Variables are restored in place. Everything else is copied, so keep it small. There are no sessions.
    """

    def __init__(self, variables: Any = None, session: None = None, **kwargs: Any) -> None:
        if session is not None:
            raise ValueError("states work without sessions, which are TensorFlow 1's: leave `session` out")
        self.variables = [] if variables is None else list(variables)
        super().__init__(lambda obj: broadcast_object(obj, 0), rank, **kwargs)
        self._save_variables()

    def _all_variables(self) -> list[Any]:
        return self.variables

    def _save_variables(self) -> None:
        self._values = [tf.convert_to_tensor(one).numpy().copy() for one in self._all_variables()]

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self._all_variables(), self._values, strict=False):
            variable.assign(value)
        super().restore()

    def _contents(self) -> Iterable[Any]:
        return [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in self._values]

    def sync(self) -> None:
        self._give(global_process_set)
        self._share()

    def _gives(self) -> bool:
        return type(self).sync is TensorFlowState.sync

    def _give(self, process_set: ProcessSet) -> None:
        broadcast_variables(self._all_variables(), 0, process_set)
        self._save_variables()

    def _share(self) -> None:
        super().sync()


class TensorFlowKerasState(TensorFlowState):
    """A model of Keras, its optimizer, and anything else as attributes. `backend` is accepted and not needed."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        if self.optimizer is not None and not self.optimizer.built and model.built:
            self.optimizer.build(model.trainable_variables)
        super().__init__(None, None, **kwargs)

    def _all_variables(self) -> list[Any]:
        own = [] if self.optimizer is None else list(self.optimizer.variables)
        return [*self.model.variables, *own]


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
