"""Makes a job of Ray's workers: they tell where they are, one opens a meeting, and each gets its place.

The key travels in calls between actors, never in an environment or on a command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ray

from horo.legacy.timeout import Timeout
from horo.ray import worker

# Calls a function on the worker of a rank.
Call = Callable[..., ray.ObjectRef]


def hand_out_places(call: Call, size: int, interfaces: Sequence[str] | None) -> list[ray.ObjectRef]:
    """Workers that are in a job together stay there; else all of them become the ranks of a new one. Does not wait:
    each worker is ready when its reference is."""
    arrived = [call(rank, worker.arrive, interfaces) for rank in range(size)]
    terms = call(0, worker.open_meeting, *arrived)
    return [call(rank, worker.take_place, terms, rank) for rank in range(size)]


def fetch(refs: Any, limit: Timeout) -> Any:
    try:
        return ray.get(refs, timeout=limit.remaining())
    except ray.exceptions.GetTimeoutError:
        limit.check_time_out_for("setting up the workers")
        raise
