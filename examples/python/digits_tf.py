"""What the TensorFlow examples share: 8x8 images of digits, a small network for them, and two ways to judge it."""

from __future__ import annotations

import argparse
import hashlib
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from digits_data import load_digits

import horo.tensorflow as hvd


def arguments(description: str | None, epochs: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def start() -> None:
    """Joins the job; the ranks of a host share its cores."""
    hvd.init()
    threads = max(1, len(os.sched_getaffinity(0)) // hvd.local_size())
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels for training and for testing, the same on every rank."""
    pixels, digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits))
    images, labels = pixels[order, :, :, None].astype(np.float32) / 16, digits[order]
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


def batches(
    images: np.ndarray, labels: np.ndarray, batch_size: int, seed: int, rank: int, ranks: int
) -> tf.data.Dataset:
    """A rank's part of the data, in another order each time; every rank has equally many batches."""
    count = len(labels) // ranks
    own = slice(rank * count, (rank + 1) * count)
    mine = tf.data.Dataset.from_tensor_slices((images[own], labels[own]))
    return mine.shuffle(count, seed=seed).batch(batch_size, drop_remainder=True)


class Net(tf.Module):
    """A convolutional network with about 80,000 parameters."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        random = np.random.default_rng(seed)

        def weights(name: str, *shape: int) -> tf.Variable:
            scale = np.sqrt(2 / np.prod(shape[:-1]))
            return tf.Variable((random.normal(size=shape) * scale).astype(np.float32), name=name)

        self.filters = [weights("conv1", 3, 3, 1, 16), weights("conv2", 3, 3, 16, 32)]
        self.hidden, self.last = weights("hidden", 512, 128), weights("last", 128, 10)
        self.biases = [tf.Variable(tf.zeros([128]), name="hidden_bias"), tf.Variable(tf.zeros([10]), name="last_bias")]

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        for one in self.filters:
            images = tf.nn.relu(tf.nn.conv2d(images, one, strides=1, padding="SAME"))
        flat = tf.reshape(tf.nn.max_pool2d(images, 2, 2, "VALID"), [-1, 512])
        hidden = tf.nn.relu(tf.matmul(flat, self.hidden) + self.biases[0])
        return tf.matmul(hidden, self.last) + self.biases[1]


class Momentum(tf.Module):
    """Gradient descent with momentum."""

    def __init__(self, variables: tuple[tf.Variable, ...], rate: float, momentum: float = 0.9) -> None:
        super().__init__()
        self.rate, self.momentum, self.trained = rate, momentum, variables
        self.slots = [tf.Variable(tf.zeros_like(one), trainable=False, name=f"{one.name}_slot") for one in variables]

    def apply(self, gradients: list[tf.Tensor]) -> None:
        for variable, slot, gradient in zip(self.trained, self.slots, gradients, strict=True):
            slot.assign(self.momentum * slot + gradient)
            variable.assign_sub(self.rate * slot)


def loss_of(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def accuracy(model: Net, images: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(np.argmax(model(tf.constant(images)), 1) == labels))


def mean_over_ranks(value: float, process_set: hvd.ProcessSet = hvd.global_process_set) -> float:
    return float(hvd.allreduce(tf.constant(value), name="mean", process_set=process_set))


def check_equal(variables: list[tf.Variable], process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
    """All ranks must have the same values, to the last bit."""
    digest = hashlib.sha256()
    for one in variables:
        digest.update(one.numpy().tobytes())
    if len(set(hvd.allgather_object(digest.hexdigest(), process_set=process_set))) != 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks have different parameters")


def report(losses: list[float], right: float) -> None:
    """One line, by rank 0; tests read it."""
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {right:.3f}, all equal")
