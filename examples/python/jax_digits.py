"""JAX alone that learns digits on several ranks: a step is one compiled program, with one grouped allreduce in it.

horo run -np 2 python examples/python/jax_digits.py
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from digits_data import load_digits

import horo.jax as hvd

RATE = 0.2


def parameters(seed: int) -> list[dict[str, jax.Array]]:
    first, second = jax.random.split(jax.random.key(seed))
    return [
        {"kernel": 0.1 * jax.random.normal(first, (64, 64)), "bias": jnp.zeros(64)},
        {"kernel": 0.1 * jax.random.normal(second, (64, 10)), "bias": jnp.zeros(10)},
    ]


def outputs(layers: Any, images: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(images @ layers[0]["kernel"] + layers[0]["bias"])
    return hidden @ layers[1]["kernel"] + layers[1]["bias"]


def loss_of(layers: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
    scores = jax.nn.log_softmax(outputs(layers, images))
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


@jax.jit
def step(layers: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(layers, images, labels)
    gradients, loss = hvd.grouped_allreduce((gradients, loss), name="step")
    return jax.tree.map(lambda value, gradient: value - RATE * gradient, layers, gradients), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    args = parser.parse_args()
    hvd.init()
    pixels, digits = load_digits()
    images, labels = (pixels.reshape(-1, 64) / 16).astype(np.float32), digits.astype(np.int32)
    count = 1440 // hvd.size() // args.batch_size * args.batch_size  # The same on all ranks.
    mine, answers = images[hvd.rank() : 1440 : hvd.size()][:count], labels[hvd.rank() : 1440 : hvd.size()][:count]

    layers = hvd.broadcast_tree(parameters(seed=hvd.rank()), root_rank=0)
    losses = []
    for _ in range(args.epochs):
        total = 0.0
        for begin in range(0, count, args.batch_size):
            batch = slice(begin, begin + args.batch_size)
            layers, loss = step(layers, mine[batch], answers[batch])
            total += float(loss)
        losses.append(total / (count // args.batch_size))
    right = float((outputs(layers, images[1440:]).argmax(1) == labels[1440:]).mean())

    digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in jax.tree.leaves(layers))).hexdigest()
    if len(set(hvd.allgather_object(digest))) != 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks have different parameters")
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {right:.3f}, all equal")


if __name__ == "__main__":
    main()
