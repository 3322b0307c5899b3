"""DistributedDataParallel, and the hooks that go with it."""

from __future__ import annotations

from horo.torch.parallel.comm_hook import comm_hook
from horo.torch.parallel.hooks import GradBucket
from horo.torch.parallel.module import DistributedDataParallel

__all__ = ["DistributedDataParallel", "GradBucket", "comm_hook"]
