"""Embeddings: only the rows that a batch has used travel, or the whole table with --dense.

horo run -np 2 python examples/python/tensorflow_embeddings.py
"""

from __future__ import annotations

import digits_tf as digits
import numpy as np
import tensorflow as tf

import horo.tensorflow as hvd

# The brightness of each of the 64 pixels is a word: 17 for each place.
WORDS = 64 * 17


def words_of(images: np.ndarray) -> np.ndarray:
    places = np.arange(64) * 17
    return np.rint(images.reshape(len(images), 64) * 16).astype(np.int32) + places.astype(np.int32)


def main() -> None:
    parser = digits.arguments(__doc__, epochs=4)
    parser.add_argument("--dense", action="store_true", help="send whole tables")
    args = parser.parse_args()
    digits.start()
    images, labels, test_images, test_labels = digits.load()
    data = digits.batches(words_of(images), labels, args.batch_size, args.seed, hvd.rank(), hvd.size())
    table = tf.Variable(tf.random.stateless_normal([WORDS, 10], [args.seed, 0], stddev=0.1), name="table")
    hvd.broadcast_variables([table], root_rank=0)

    @tf.function
    def step(words: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = digits.loss_of(tf.reduce_sum(tf.gather(table, words), axis=1), labels)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=args.dense)
        gradient = tape.gradient(loss, table)
        if isinstance(gradient, tf.IndexedSlices):
            table.scatter_sub(tf.IndexedSlices(0.2 * gradient.values, gradient.indices))
        else:
            table.assign_sub(0.2 * gradient)
        return loss

    losses = []
    for _ in range(args.epochs):
        total = [float(step(*batch)) for batch in data]
        losses.append(digits.mean_over_ranks(sum(total) / len(total)))
    logits = tf.reduce_sum(tf.gather(table, words_of(test_images)), axis=1)
    # Rows that several ranks have used are added up in the same order everywhere.
    digits.check_equal([table])
    digits.report(losses, float(np.mean(np.argmax(logits, 1) == test_labels)))


if __name__ == "__main__":
    main()
