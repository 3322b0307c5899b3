"""What has become of the workers of an ElasticDriver."""

from __future__ import annotations

import threading
from typing import Any

READY = "READY"
SUCCESS = "SUCCESS"
FAILURE = "FAILURE"


class WorkerStateRegistry:
    """The last state of each slot. Counting ends nothing, and nobody waits here: the ranks agree among themselves about
    who is left, and the driver decides what follows. `reset_limit` is how many failures the job survives."""

    def __init__(
        self, driver: Any = None, host_manager: Any = None, reset_limit: int | None = None, verbose: bool = False
    ) -> None:
        self._reset_limit = reset_limit
        self._lock = threading.Lock()
        self._states: dict[tuple[str, int], str] = {}
        self._failures = 0

    def record_ready(self, host: str, slot: int) -> None:
        """Its worker was started."""
        self._record(host, slot, READY)

    def record_success(self, host: str, slot: int) -> None:
        self._record(host, slot, SUCCESS)

    def record_failure(self, host: str, slot: int) -> None:
        self._record(host, slot, FAILURE)

    def forget(self, host: str, slot: int) -> None:
        """Its worker has left, as it was asked to."""
        with self._lock:
            self._states.pop((host, slot), None)

    def get_recorded_slots(self) -> set[tuple[str, int]]:
        with self._lock:
            return set(self._states)

    def get(self, state: str) -> set[tuple[str, int]]:
        with self._lock:
            return {place for place, known in self._states.items() if known == state}

    def count(self, state: str) -> int:
        return len(self.get(state))

    def size(self) -> int:
        return len(self.get_recorded_slots())

    def is_over_limit(self) -> bool:
        with self._lock:
            return self._reset_limit is not None and self._failures > self._reset_limit

    def _record(self, host: str, slot: int, state: str) -> None:
        with self._lock:
            self._states[host, slot] = state
            self._failures += state == FAILURE
