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

    __slots__ = ("__weakref__", "_native", "_read", "_value", "device", "taken")

    def __init__(
        self,
        native: _horo.Handle | _horo.Batch,
        read: Callable[[Any], Any] | None,
        device: int = -1,
        value: Any = None,
    ) -> None:
        """The result is `value`, or what `read` makes of it when it is there."""
        self._native = native
        self.device = device  # -1: the host.
        self._read = read
        self._value = value
        self.taken = False  # Whether wait() has returned.

    def done(self) -> bool:
        return self._native.done()

    def wait_until(self, limit: float, stream: int | None = None) -> bool:
        """Whether wait() would return by then, on the clock of time.monotonic(); it says how it ended."""
        while not self._native.done():
            left = limit - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(RuntimeError, ValueError):
                if self._wait(min(left, SLICE_SECONDS), stream):
                    return True
        return True

    def wait(self, stream: int | None = None) -> Any:
        """The result. With a stream of the device that it is on: for what is put there later; it need not be done."""
        # In slices, so that Ctrl-C ends the waiting; the operation goes on, and the arrays stay.
        while not self._wait(SLICE_SECONDS, stream):
            pass
        if not self.taken:
            read, self._read, self.taken = self._read, None, True
            if read is not None:
                self._value = read(self._native)
        return self._value

    def _wait(self, seconds: float, stream: int | None) -> bool:
        return self._native.wait(seconds) if stream is None else self._native.wait(seconds, stream)


def poll(handle: Handle) -> bool:
    """Whether an operation is done: synchronize() returns at once then."""
    return handle.done()


def synchronize(handle: Handle) -> Any:
    """Waits for an operation and returns its result. Raises HorovodInternalError when it failed."""
    return handle.wait()
