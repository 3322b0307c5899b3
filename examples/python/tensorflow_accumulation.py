"""Gradients of several batches add up on each rank before they travel.

horo run -np 2 python examples/python/tensorflow_accumulation.py
"""

from __future__ import annotations

import digits_tf as digits
import tensorflow as tf

import horo.tensorflow as hvd


def main() -> None:
    parser = digits.arguments(__doc__, epochs=4)
    parser.add_argument("--passes", type=int, default=2, help="batches of a step")
    args = parser.parse_args()
    digits.start()
    images, labels, *testing = digits.load()
    data = digits.batches(images, labels, args.batch_size // args.passes, args.seed, hvd.rank(), hvd.size())
    model = digits.Net(args.seed)
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.MomentumOptimizer(0.05, 0.9),
        backward_passes_per_step=args.passes,
        average_aggregated_gradients=True,
    )
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def batch(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        def loss() -> tf.Tensor:
            return digits.loss_of(model(images), labels)

        pairs = optimizer.compute_gradients(loss, var_list=list(model.trainable_variables))
        optimizer.apply_gradients(pairs)
        return loss()

    losses = []
    for _ in range(args.epochs):
        total = [float(batch(*one)) for one in data]
        losses.append(digits.mean_over_ranks(sum(total) / len(total)))
    digits.check_equal(model.variables)
    digits.report(losses, digits.accuracy(model, *testing))


if __name__ == "__main__":
    main()
