"""A barrier that names who did not come. Its words are those of torch's for gloo, which programs look for."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch

from horo.torch.c10d.messages import FIRST_OWN_TAG

_ARRIVED, _GO_ON = FIRST_OWN_TAG, FIRST_OWN_TAG + 1


def monitored_barrier(group: Any, timeout: timedelta | None, wait_all_ranks: bool) -> None:
    limit = timeout if timeout is not None else group._timeout
    word = torch.zeros(1, dtype=torch.uint8)
    if group.rank() != 0:
        try:
            group._send([word], 0, _ARRIVED, limit).wait()
            group._receive([word], 0, _GO_ON, limit).wait()
        except RuntimeError as error:
            raise RuntimeError(
                f"Rank {group.rank()} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank 0. Please check rank 0 logs for faulty rank. ({error})"
            ) from error
        return
    milliseconds = round(limit.total_seconds() * 1000)
    if milliseconds <= 0 and group.size() > 1:
        raise RuntimeError(f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms.")
    missing = _collect(group, limit, wait_all_ranks)
    if missing:
        ranks = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(str(rank) for rank in missing)}"
        raise RuntimeError(f"[Rank 0]: {ranks} failed to pass monitoredBarrier in {milliseconds} ms")
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
