"""The best model so far, in a file."""

from __future__ import annotations

from typing import Any

import keras

from horo.basics import rank


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """A ModelCheckpoint of rank 0 that keeps the best model only. `filepath` may be set later, as an attribute; it ends
    in .keras, or in .weights.h5 with `save_weights_only`."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: Any = None,
    ) -> None:
        super().__init__(
            filepath or ("unset.weights.h5" if save_weights_only else "unset.keras"),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath

    def on_train_begin(self, logs: Any = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint has no file: set its attribute filepath")
        super().on_train_begin(logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if rank() == 0:
            super()._save_model(*args, **kwargs)
