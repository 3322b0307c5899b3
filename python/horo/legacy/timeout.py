"""A limit for several activities together."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The limit has passed."""


class Timeout:
    """`message` tells what to do, and may contain {activity}. A copy in another process counts on from what is left."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._end = time.monotonic() + timeout

    def remaining(self) -> float:
        """Seconds; 0 once it has passed."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        return self.remaining() == 0

    def check_time_out_for(self, activity: str) -> None:
        if self.timed_out():
            told = self._message.format(activity=activity)
            raise TimeoutException(f"{told} {activity} did not end within {self._timeout} seconds.")

    def __getstate__(self) -> dict[str, object]:
        return {"timeout": self._timeout, "message": self._message, "remaining": self.remaining()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["timeout"], state["message"])
        self._end = time.monotonic() + state["remaining"]
