"""Training that goes on after a failure: states that can be saved, restored and synchronised, and the loop around them.

The size of a job is fixed in this version. A failure of an operation is survived: all ranks go back to their last
commit, join the job again and go on from there. A rank that is gone does not come back; the job ends then, and says so.
"""

from __future__ import annotations

import copy
import functools
import queue
from collections.abc import Callable, Iterable
from typing import Any

from horo.basics import init, shutdown
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt, InitializationError

# The same failure so often, and nothing committed in between: it will not go away.
_MOST_RESETS = 3

REMOVED = 1  # Of HostUpdateResult: hosts have gone, and none has come.


class State:
    """What training needs to go on. `bcast_object` gives all ranks an object of rank 0."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[Any, int]] = queue.Queue()
        self._last_updated_timestamp: Any = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Functions that are called after the job was joined anew, before the state is synchronised."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: int) -> None:
        """Another thread says that hosts have changed. check_host_updates() of all ranks raises it."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, which a failure goes back to, and looks whether hosts have changed."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks when rank 0 was told that hosts have changed."""
        before = newest = self._last_updated_timestamp
        result = 0
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > newest:
                newest = timestamp
                result |= update
        before, newest, result = self._bcast_object((before, newest, result))
        self._last_updated_timestamp = newest
        if newest > before:
            raise HostsUpdatedInterrupt(result == REMOVED)

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        """As it was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """As it is on rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """The ranks may be others now."""


class ObjectState(State):
    """Any objects, as attributes."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._set_attributes()

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attributes()

    def sync(self) -> None:
        if self._saved_state:
            self._saved_state = self._bcast_object({name: getattr(self, name) for name in self._saved_state})
            self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))


class _Attempts:
    """How often the job was joined anew without anything committed in between."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._commits = state._commits
        self._resets = 0

    def failed(self, error: HorovodInternalError) -> None:
        if error.lost_ranks:
            gone = ", ".join(str(rank) for rank in error.lost_ranks)
            raise HorovodInternalError(
                f"rank {gone} is gone, and this job has a fixed size: ranks that come and go need an elastic launcher, "
                f"which this version does not have. Start the job again. ({error})",
                error.code,
                error.lost_ranks,
            ) from error
        if self._state._commits != self._commits:
            self._commits, self._resets = self._state._commits, 0
        self._resets += 1
        if self._resets > _MOST_RESETS:
            raise HorovodInternalError(
                f"training failed {self._resets} times without a commit in between, the last time with: {error}",
                error.code,
                error.lost_ranks,
            ) from error


def _join_anew(reset: Callable[[], None]) -> None:
    try:
        reset()
    except InitializationError as error:
        raise InitializationError(
            f"not all ranks have joined the job again, and it has a fixed size: ranks that come and go need an elastic "
            f"launcher, which this version does not have. ({error})",
            error.code,
            error.lost_ranks,
        ) from error


def reset_job() -> None:
    """This rank leaves the job and joins it again, as all others do."""
    shutdown()
    init()


def run_fn(func: Callable[..., Any], reset: Callable[[], None] = reset_job) -> Callable[..., Any]:
    """A function that calls `func(state, ...)` with a synchronised state, and again after failures and interrupts."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        attempts = _Attempts(state)
        skip_sync = False
        while True:
            try:
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                state.restore()
                attempts.failed(error)
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            _join_anew(reset)
            state.on_reset()

    return wrapper


__all__ = ["ObjectState", "State", "reset_job", "run_fn"]
