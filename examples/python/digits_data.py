"""1797 images of digits, 8x8, which lie in the package scikit-learn: read without importing it, which takes two seconds
on every rank."""

from __future__ import annotations

from importlib.metadata import distribution

import numpy as np


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Images of 8x8 numbers from 0 to 16, and what they show. Raises PackageNotFoundError without scikit-learn."""
    table = np.loadtxt(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz"), delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
