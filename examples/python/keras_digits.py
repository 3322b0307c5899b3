"""Keras 3 that learns digits on several ranks, on the back end that KERAS_BACKEND names: tensorflow, jax or torch.

KERAS_BACKEND=jax horo run -np 2 python examples/python/keras_digits.py
"""

from __future__ import annotations

import argparse
import hashlib

import keras
import numpy as np
from digits_data import load_digits

import horo.keras as hvd


def network() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    args = parser.parse_args()
    hvd.init()
    keras.utils.set_random_seed(1)
    pixels, digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits))  # The same on every rank.
    images, labels = pixels[order, ..., None].astype("float32") / 16, digits[order]
    testing = images[1440:], labels[1440:]
    # Every rank trains with its part, of the same length on all.
    part = slice(hvd.rank(), 1440 // hvd.size() * hvd.size(), hvd.size())

    model = network()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(
        images[:1440][part],
        labels[:1440][part],
        batch_size=args.batch_size,
        epochs=args.epochs,
        verbose=0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    )
    right = model.evaluate(*testing, batch_size=len(testing[1]), verbose=0, return_dict=True)["accuracy"]

    digest = hashlib.sha256(b"".join(keras.ops.convert_to_numpy(one).tobytes() for one in model.weights)).hexdigest()
    if len(set(hvd.allgather_object(digest))) != 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks have different parameters")
    losses = history.history["loss"]
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {right:.3f}, all equal")


if __name__ == "__main__":
    main()
