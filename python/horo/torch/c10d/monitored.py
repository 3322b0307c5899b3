"""A barrier that names who did not come."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch

from horo.torch.c10d.messages import _TAGS

_ARRIVED, _GO_ON = _TAGS + 1, _TAGS + 2


def monitored_barrier(group: Any, timeout: timedelta | None, wait_all_ranks: bool) -> None:
    limit = timeout if timeout is not None else group._timeout
    word = torch.zeros(1, dtype=torch.uint8)
    if group.rank() != 0:
        group._send([word], 0, _ARRIVED, limit).wait()
        try:
            group._receive([word], 0, _GO_ON, limit).wait()
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {group.rank()} came to monitored_barrier, but rank 0 did not say within "
                f"{limit.total_seconds():g} s that all did: {error}"
            ) from error
        return
    missing = _collect(group, limit, wait_all_ranks)
    if missing:
        ranks = ", ".join(str(rank) for rank in missing)
        raise RuntimeError(
            f"Rank 0 waited {limit.total_seconds():g} s in monitoredBarrier: rank{'s' if len(missing) > 1 else ''} "
            f"{ranks} failed to pass monitoredBarrier"
        )
    for rank in range(1, group.size()):
        group._send([word], rank, _GO_ON, limit).wait()


def _collect(group: Any, limit: timedelta, wait_all_ranks: bool) -> list[int]:
    """Ranks that did not come; the first of them only, unless all are to be named."""
    end = time.monotonic() + limit.total_seconds()
    words = [torch.zeros(1, dtype=torch.uint8) for _ in range(group.size())]
    waits = [(rank, group._receive([words[rank]], rank, _ARRIVED, limit)) for rank in range(1, group.size())]
    missing = []
    for rank, work in waits:
        try:
            work.wait(timedelta(seconds=max(end - time.monotonic(), 0.001)))
        except RuntimeError:
            missing.append(rank)
            if not wait_all_ranks:
                break
    return missing
