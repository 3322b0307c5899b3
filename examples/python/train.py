"""Data-parallel training with NumPy alone: a linear model, gradients averaged while the next one is computed.

horo run -np 2 python examples/python/train.py
"""

from __future__ import annotations

import numpy as np

import horo

STEPS = 200
FEATURES = 8


def main() -> None:
    horo.init()
    random = np.random.default_rng(horo.rank())  # Every rank has its own data.
    truth = np.arange(FEATURES, dtype=np.float32)
    weight = np.zeros(FEATURES, np.float32)
    bias = np.zeros(1, np.float32)
    horo.broadcast_(weight, root_rank=0)

    for _ in range(STEPS):
        inputs = random.standard_normal((64, FEATURES), np.float32)
        error = inputs @ weight + bias - (inputs @ truth + 3)
        bias_gradient = horo.allreduce_async(error.mean(keepdims=True), name="bias")
        weight_gradient = horo.allreduce_async(inputs.T @ error / len(error), name="weight")
        weight -= 0.1 * horo.synchronize(weight_gradient)
        bias -= 0.1 * horo.synchronize(bias_gradient)

    difference = float(np.abs(weight - truth).max())
    if horo.rank() == 0:
        print(f"{horo.size()} ranks: the weights are off by {difference:.1e}, the bias is {bias[0]:.3f}")
    if difference > 1e-2:
        raise SystemExit("the model did not converge")
    horo.shutdown()


if __name__ == "__main__":
    main()
