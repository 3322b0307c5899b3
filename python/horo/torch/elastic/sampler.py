"""The indices of a data set, shared between the ranks, whatever their number is."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch.utils.data

from horo.basics import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Gives each rank its share of what was not processed yet in this epoch.

    Call `record_batch()` after each batch and `set_epoch()` at the *end* of an epoch. Part of a TorchState, it goes on
    after a reset with what no rank has processed.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.indices: list[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """A new epoch, of which nothing is processed."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank has processed a batch."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Iterable[int]) -> None:
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        begin = batch_idx * batch_size
        return self.indices[begin : begin + batch_size]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def reset(self) -> None:
        """Shares what is left between the ranks that are there now."""
        self.num_replicas = size()
        self.rank = rank()
        self.remaining_indices = [one for one in range(len(self.dataset)) if one not in self.processed_indices]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._share()

    def _share(self) -> list[int]:
        everybody = list(self.remaining_indices)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(everybody)
        # Some come twice, so that all ranks have equally many.
        missing = self.total_size - len(everybody)
        everybody += (everybody * math.ceil(missing / max(len(everybody), 1)))[:missing]
        return everybody[self.rank : self.total_size : self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        self.indices = self._share()
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
