"""Operations under way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from horo import _horo
from horo.world import SLICE_SECONDS


class Handle:
    """An operation under way: give it to poll() and synchronize(). Its arrays live until it is done, with it or not."""

    __slots__ = ("__weakref__", "_native", "_read", "_value")

    def __init__(self, native: _horo.Handle | _horo.Batch, read: Callable[[Any], Any]) -> None:
        self._native = native
        self._read: Callable[[_horo.Handle], Any] | None = read
        self._value: Any = None

    @property
    def taken(self) -> bool:
        """Whether wait() has returned."""
        return self._read is None

    def done(self) -> bool:
        return self._native.done()

    def wait_until(self, limit: float) -> bool:
        """Whether it is done by then, on the clock of time.monotonic(). wait() says how it ended."""
        while not self._native.done():
            left = limit - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(RuntimeError, ValueError):
                self._native.wait(min(left, SLICE_SECONDS))
        return True

    def wait(self) -> Any:
        # In slices, so that Ctrl-C ends the waiting; the operation goes on, and the arrays stay.
        while not self._native.wait(SLICE_SECONDS):
            pass
        read, self._read = self._read, None
        if read is not None:
            self._value = read(self._native)
        return self._value


def poll(handle: Handle) -> bool:
    """Whether an operation is done: synchronize() returns at once then."""
    return handle.done()


def synchronize(handle: Handle) -> Any:
    """Waits for an operation and returns its result. Raises HorovodInternalError when it failed."""
    return handle.wait()
