"""Training of Keras that goes on after a failure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from horo.basics import rank
from horo.elastic import ObjectState, run_fn
from horo.keras.backends import backend
from horo.keras.stepping import check_model, switch_off_jit
from horo.keras.variables import bring_up_to_date, broadcast_variables, values_of, variables_of
from horo.objects import broadcast_object
from horo.process_sets import ProcessSet, global_process_set


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for `train(state, ...)`: the state is synchronised first. When an operation fails on all ranks, they
    go back to the last commit, join the job again, and call the function once more."""

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            failure = backend().failure(error)
            if failure is None:
                raise
            raise failure from error

    return run_fn(translated)


class KerasState(ObjectState):
    """A model, its optimizer, and anything else, as attributes: `KerasState(model, batch=0, epoch=0)`.

    The model must be built. The optimizer is the model's, unless another one is given.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        check_model(model)
        if not model.built:
            raise ValueError("KerasState needs a model with variables: give it an Input layer, or call it once")
        self.model = model
        self.optimizer = model.optimizer if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        self._save_variables()
        super().__init__(lambda obj: broadcast_object(obj, 0), rank, **kwargs)

    def _variables(self) -> list[Any]:
        return variables_of(self.model, self.optimizer)

    def _save_variables(self) -> None:
        bring_up_to_date(self.model)
        self._saved_values = values_of(self._variables())

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self._variables(), self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def _contents(self) -> Iterable[Any]:
        return [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in self._saved_values]

    def sync(self) -> None:
        self._give(global_process_set)
        self._share()

    def _gives(self) -> bool:
        return type(self).sync is KerasState.sync

    def _give(self, process_set: ProcessSet) -> None:
        bring_up_to_date(self.model)
        broadcast_variables(self._variables(), 0, process_set)
        self._save_variables()

    def _share(self) -> None:
        super().sync()


class _StateCallback(keras.callbacks.Callback):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        switch_off_jit(model)


class CommitStateCallback(_StateCallback):
    """Commits the state after so many batches. Put it behind those that change the state."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(state)
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit


class UpdateBatchStateCallback(_StateCallback):
    """Keeps in `state.batch` how many batches of this epoch are done: after a reset give fit() so many steps less."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._done_before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._done_before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._done_before = 0
        self.state.batch = 0


class UpdateEpochStateCallback(_StateCallback):
    """Keeps in `state.epoch` how many epochs are done, whether fit() counts from `initial_epoch` or from 0."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._first: int | None = None
        self._done_before = self.state.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self._done_before + epoch - self._first + 1


__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
