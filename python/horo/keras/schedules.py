"""Learning rates that change during training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from horo.basics import rank, size
from horo.keras.stepping import switch_off_jit
from horo.keras.variables import bring_up_to_date


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` in the epochs from `start_epoch` until `end_epoch`.

    :param multiplier: a number, or a function of the epoch; without `staircase` epochs are fractions.
    :param staircase: once at the beginning of an epoch; else with every batch.
    :param momentum_correction: what the momentum has gathered with the old rate is scaled to the new one.
    :param steps_per_epoch: found out where it can be.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is the learning rate that the multiplier is applied to, not None")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch: int = 0
        if callable(multiplier):
            self.staircase = staircase
            self.multiplier = multiplier
        else:
            self.staircase = True
            self.multiplier = lambda epoch: multiplier

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        switch_off_jit(model)

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    "it is not known how many batches an epoch has; give steps_per_epoch to "
                    f"{type(self).__name__}, and to fit() where the data set repeats itself"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if self.staircase and batch == 0:
            self._adjust(self.current_epoch)
        elif not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            bring_up_to_date(self.model)
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _adjust(self, epoch: float) -> None:
        bring_up_to_date(self.model)
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        if old == new:
            return
        try:
            self.model.optimizer.learning_rate = new
        except TypeError as error:
            raise ValueError(
                f"{type(self).__name__} sets the learning rate, and the optimizer has a schedule of its own; give the "
                "optimizer a number"
            ) from error
        if self.momentum_correction and old > 0:
            for slot in momentum_slots(self.model.optimizer):
                slot.assign(slot.value * (new / old))


def momentum_slots(optimizer: Any) -> list[Any]:
    """Variables with gradients that were multiplied with the learning rate of their time.

    An optimizer's momentum is a constant of the compiled step. To multiply it with new/old for one step is the same as
    to multiply these.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "momentum", 0):
        return []
    slots = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    return [one for one in slots if one is not None]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr` in the first epochs, with every batch:
    the large batches of many ranks need a large rate, which is too large at the beginning."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The last batch of the last epoch has the whole rate.
            done = (epoch + 1.0 / self.steps_per_epoch) / warmup_epochs
            return 1.0 / size() * (min(done, 1.0) * (size() - 1) + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")
