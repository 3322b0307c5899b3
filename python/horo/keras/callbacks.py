"""Callbacks for `fit()`. Put them before those that use what they change, such as ModelCheckpoint or EarlyStopping."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from horo.collectives import Min
from horo.keras.checkpoint import BestModelCheckpoint
from horo.keras.schedules import LearningRateScheduleCallback, LearningRateWarmupCallback
from horo.keras.stepping import switch_off_jit
from horo.keras.variables import bring_up_to_date, broadcast_variables, variables_of
from horo.objects import allgather_object
from horo.operations import allreduce


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all ranks the variables of `root_rank` at the beginning of training: before the first step where models and
    optimizers are built by then, else after it."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.local_variables = list(local_variables or [])
        self.broadcast_done = False

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        switch_off_jit(model)

    def on_train_begin(self, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        optimizer = getattr(self.model, "optimizer", None)
        if self.model.built and optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        # A rank that goes on from a checkpoint may have been built before the others.
        built = allreduce(np.array(bool(self.model.built), np.uint8), name="broadcast.built", op=Min)
        if built:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        bring_up_to_date(self.model)
        local = {id(one) for one in self.local_variables}
        shared = [one for one in variables_of(self.model) if id(one) not in local]
        broadcast_variables(shared, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of an epoch over all ranks, in place."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        switch_off_jit(model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs:
            return
        mine = {name: float(value) for name, value in logs.items() if np.ndim(value) == 0 and value is not None}
        everybody = allgather_object(mine, "metrics")
        for name in mine:
            logs[name] = float(np.mean([one[name] for one in everybody if name in one]))


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
