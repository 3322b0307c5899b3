"""A loop of training with tf.GradientTape: rank 0 keeps a checkpoint, from which all ranks go on.

horo run -np 2 python examples/python/tensorflow_digits.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import digits_tf as digits
import tensorflow as tf

import horo.tensorflow as hvd


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    digits.start()
    images, labels, *testing = digits.load()
    data = digits.batches(images, labels, args.batch_size, args.seed, hvd.rank(), hvd.size())
    # Ranks begin differently, and become like rank 0.
    model = digits.Net(args.seed + hvd.rank())
    optimizer = digits.Momentum(model.trainable_variables, rate=0.05)
    state = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=tf.Variable(0, dtype=tf.int64))
    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = digits.loss_of(model(images), labels)
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        return loss

    folder = Path(hvd.broadcast_object(tempfile.mkdtemp(prefix="digits-") if hvd.rank() == 0 else None))
    losses = []
    for epoch in range(args.epochs):
        if epoch == args.epochs // 2:
            restore(state, folder, model, optimizer)
        total = [float(step(*batch)) for batch in data]
        losses.append(digits.mean_over_ranks(sum(total) / len(total)))
        state.epoch.assign_add(1)
        if hvd.rank() == 0:
            state.write(str(folder / "newest"))
    digits.check_equal(model.variables)
    digits.report(losses, digits.accuracy(model, *testing))


def restore(state: tf.train.Checkpoint, folder: Path, model: digits.Net, optimizer: digits.Momentum) -> None:
    """As a job does that starts again: rank 0 reads the file, the others hear of it."""
    for one in [*model.variables, *optimizer.variables, state.epoch]:
        one.assign(tf.zeros_like(one))
    if hvd.rank() == 0:
        state.read(str(folder / "newest")).assert_consumed()
    hvd.broadcast_variables([*model.variables, *optimizer.variables, state.epoch], root_rank=0)


if __name__ == "__main__":
    main()
