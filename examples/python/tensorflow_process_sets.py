"""Two models in one job: each half of the ranks trains one, with another rate.

horo run -np 4 python examples/python/tensorflow_process_sets.py
"""

from __future__ import annotations

import digits_tf as digits
import tensorflow as tf

import horo.tensorflow as hvd

RATES = (0.05, 0.02)


def main() -> None:
    args = digits.arguments(__doc__, epochs=4).parse_args()
    digits.start()
    half = (hvd.size() + 1) // 2
    sets = [hvd.add_process_set(range(half)), hvd.add_process_set(range(half, hvd.size()))]
    which = int(hvd.rank() >= half)
    mine = sets[which]
    images, labels, *testing = digits.load()
    data = digits.batches(images, labels, args.batch_size, args.seed, mine.rank(), mine.size())
    model = digits.Net(args.seed + hvd.rank())
    optimizer = digits.Momentum(model.trainable_variables, rate=RATES[which])
    hvd.broadcast_variables(model.variables, root_rank=which * half, process_set=mine)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = digits.loss_of(model(images), labels)
        tape = hvd.DistributedGradientTape(tape, process_set=mine)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))
        return loss

    losses = []
    for _ in range(args.epochs):
        total = [float(step(*batch)) for batch in data]
        losses.append(digits.mean_over_ranks(sum(total) / len(total), mine))
    digits.check_equal(model.variables, mine)
    accuracies = hvd.allgather_object(digits.accuracy(model, *testing))
    if hvd.rank() == 0:
        print(f"rate {RATES[0]}: accuracy {accuracies[0]:.3f}, rate {RATES[1]}: accuracy {accuracies[-1]:.3f}")
    digits.report(losses, accuracies[0])


if __name__ == "__main__":
    main()
