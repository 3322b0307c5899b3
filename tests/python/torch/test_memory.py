"""Tensors in memory that ranks share."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


def test_such_a_tensor_is_like_any_other(hvd: ModuleType) -> None:
    one = hvd.shared_empty(3, 5)
    assert one.shape == (3, 5)
    assert one.dtype is torch.float32
    assert one.is_contiguous()
    one.fill_(float(hvd.rank()))
    hvd.allreduce_(one, op=hvd.Sum, name="shared")
    assert one.eq(sum(range(hvd.size()))).all()
    view = hvd.shared_empty((7,), dtype=torch.float64)[2:]
    del one
    view.fill_(1.0)
    assert hvd.allreduce(view, op=hvd.Sum, name="view").eq(hvd.size()).all()
    assert hvd.shared_empty(0, 4).shape == (0, 4)
    assert hvd.shared_empty(4, dtype=torch.int8, device="cpu").dtype is torch.int8


def test_other_devices_are_refused(hvd: ModuleType) -> None:
    with pytest.raises(ValueError, match="not on meta"):
        hvd.shared_empty(3, device="meta")
