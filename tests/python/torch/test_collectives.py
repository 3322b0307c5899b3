"""All operations on all element types, in all their forms."""

from __future__ import annotations

from types import ModuleType

import torch


def test_an_average_is_of_all_ranks(hvd: ModuleType) -> None:
    mean = hvd.allreduce(torch.full((5, 3), float(hvd.rank())), name="x")
    assert torch.equal(mean, torch.full((5, 3), (hvd.size() - 1) / 2))
