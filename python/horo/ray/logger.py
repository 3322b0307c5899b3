"""Messages of ranks to the callbacks of an elastic job, under Horovod's name `horovod.ray.ray_logger`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray.util.queue import Queue


class _Here:
    def __init__(self) -> None:
        self.queue: Queue | None = None


_here = _Here()


def configure(queue: Queue | None) -> None:
    """Where log() of this process puts its messages."""
    _here.queue = queue


def log(info: dict[str, Any]) -> None:
    """Tells the callbacks of the driver's run() something; without callbacks nothing."""
    if _here.queue is not None:
        _here.queue.put(info)


Callback = Callable[[dict[str, Any]], Any]
Ship = Callable[[Callable[[], Any]], Callable[[], Any]]


@contextmanager
def messages(callbacks: Sequence[Callback] | None) -> Iterator[tuple[Ship, Callable[[], None]]]:
    """What makes a function one whose messages arrive here, and what hands them to the callbacks."""
    if not callbacks:
        yield lambda func: func, lambda: None
        return
    queue = Queue(actor_options={"num_cpus": 0})

    def hear() -> None:
        for info in queue.get_nowait_batch(queue.qsize()):
            for callback in callbacks:
                callback(info)

    try:
        yield lambda func: functools.partial(_call, queue, func), hear
    finally:
        queue.shutdown()


def _call(queue: Queue, func: Callable[[], Any]) -> Any:
    configure(queue)
    return func()
