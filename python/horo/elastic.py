"""Training that goes on after a failure: states that can be saved, restored and synchronised, and the loop around them.

When a rank is lost, the others go back to their last commit, go on as a smaller job in place, and train from there:
`horo run --min-np` lets them. No process restarts, and nothing connects again. Processes that the launcher starts later
enter at the next commit, and get the state of those that are there (docs/elastic.md).
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import os
import queue
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from horo.basics import init, is_initialized, rank, reform, size
from horo.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horo.listeners import tell_listeners
from horo.objects import allgather_object
from horo.process_sets import ProcessSet, global_process_set, process_set_of, remove_process_set
from horo.resize import HostUpdateResult, changes_that_wait, is_newcomer, own_seat, resize

# Failures without a lost rank so often, and nothing committed in between: they will not go away.
_MOST_RESETS = 3
# What no reset mends: the program asks for different things on different ranks; the others went on without this one.
_LASTING = ("mismatch", "evicted", "forked", "incompatible", "state lost")
_SAY_EVERY_SECONDS = 10.0
_HASHED_BYTES = 16 << 20  # By one thread.


class State:
    """What training needs to go on. `bcast_object` gives all ranks an object of rank 0."""

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[Any, int]] = queue.Queue()
        self._last_updated_timestamp: Any = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0
        self._is_empty = is_newcomer()  # Until it has got what the others have.
        self._at_commit = False  # Nothing has changed since save().
        self._givers: ProcessSet | None = None  # To be removed where all ranks come by.

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
        self._at_commit = True
        self.check_host_updates()
        self._at_commit = False

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks when rank 0 was told that hosts have changed."""
        givers, self._givers = self._givers, None
        if givers is not None:  # If the job was made anew since, the set is over already.
            remove_process_set(givers)
        if is_initialized() and rank() == 0 and (waiting := changes_that_wait()):
            # The rank that found the last news may have been another, with a clock that is ahead.
            now = max(time.time(), math.nextafter(self._last_updated_timestamp, math.inf))
            self.on_hosts_updated(now, waiting)
            tell_listeners(now, waiting)
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
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed)

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

    def _gives(self) -> bool:
        """Whether newcomers can get the state from rank 0 while the others go on: then _share() of all ranks and
        _give() of those do what sync() does."""
        return False

    def _share(self) -> None:
        """What is small, or is put together out of all ranks'."""

    def _give(self, process_set: ProcessSet) -> None:
        """The rest, from rank 0 to the others of the set. Saves it."""

    def _combine(self) -> None:
        """What is put together out of all ranks', of what there is and of what was saved. Called by all ranks before
        some of them leave, and where the rest need not be synchronised."""

    def _contents(self) -> Iterable[Any]:
        """The memory of what was saved last, for comparing it with other ranks'."""
        return ()


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


class _Resets:
    """How often the job has begun anew, and whether it may again."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._commits = state._commits
        self._limit = _whole_number("HORO_RESET_LIMIT", 0)
        self._all = 0
        self._in_vain = 0  # Without a lost rank, and without anything committed in between.

    def failed(self, error: HorovodInternalError) -> None:
        if error.code in _LASTING:
            raise error
        self.count()
        if self._state._commits != self._commits:
            self._commits, self._in_vain = self._state._commits, 0
        # "stopped" names a rank that begins anew and is alive.
        if error.lost_ranks and error.code != "stopped":
            return
        self._in_vain += 1
        if self._in_vain > _MOST_RESETS:
            raise HorovodInternalError(
                f"training failed {self._in_vain} times without a commit in between, the last time with: {error}",
                error.code,
                error.lost_ranks,
            ) from error

    def count(self) -> None:
        self._all += 1
        if 0 < self._limit < self._all:
            raise HorovodInternalError(
                f"the job has begun anew {self._limit} times, which is as often as HORO_RESET_LIMIT (--reset-limit) "
                "allows"
            )


def _whole_number(variable: str, otherwise: int) -> int:
    words = (os.environ.get(variable) or os.environ.get(variable.replace("HORO_", "HOROVOD_")) or "").strip()
    try:
        return int(words or otherwise)
    except ValueError:
        raise ValueError(f"{variable}={words!r} is no whole number") from None


def reset_job(before_leaving: Callable[[], None] | None = None) -> bool:
    """The ranks that are left go on as one job, in place, and with those who have come. Every one of them calls it.
    Whether somebody has come. If some are to leave, all call `before_leaving` first."""
    if not is_initialized():
        init()
        return False
    least = _whole_number("HORO_ELASTIC_MIN_RANKS", 1)
    # Left to the library's own limits would be too short: a rank may come late, from a long validation, say.
    limit = _whole_number("HORO_ELASTIC_TIMEOUT", 600)
    end, say_at, grown = time.monotonic() + limit, 0.0, False
    while True:
        reform(max(1.0, end - time.monotonic()))
        few = size() < least
        if few and rank() == 0 and time.monotonic() >= say_at:
            print(
                f"horo: {size()} ranks are left, fewer than the {least} of --min-np: waiting for others",
                file=sys.stderr,
            )
            say_at = time.monotonic() + _SAY_EVERY_SECONDS
        try:
            change = resize(1.0 if few else 0.0, before_leaving)
        except HorovodInternalError as error:
            if error.code in _LASTING or time.monotonic() >= end:
                raise
            continue  # Another one is lost.
        grown |= change.grown
        if not change.left and size() >= least:
            return grown
        waited = time.monotonic() >= end
        if not change.left and not change.grown and (waited or not change.can_grow):
            why = f"nobody came within {limit} s (--elastic-timeout)" if change.can_grow else "no others can come"
            raise HorovodInternalError(
                f"{size()} ranks are left, fewer than the {least} that HORO_ELASTIC_MIN_RANKS (--min-np) asks for, and "
                f"{why}",
                "unavailable",
            )


def _synchronise(state: State, settled: bool) -> None:
    """Gives the state of rank 0, which has been here longest, to newcomers, and compares what they got with it. Unless
    all others are `settled`, they get it too: then some may have saved more than others before somebody was lost."""
    if own_seat() is None:
        return state.sync()
    ready = state._gives() and (settled or state._is_empty)
    ranks = allgather_object((state._is_empty, ready), "horo.elastic.empty")
    newcomers = [rank for rank, (empty, _) in enumerate(ranks) if empty]
    if 0 in newcomers:
        raise HorovodInternalError(
            "all ranks that had the job's state are gone; start it from a checkpoint", "state lost"
        )
    if newcomers and all(ready for _, ready in ranks):
        state._share()
        givers, is_new = process_set_of([0, *newcomers])
        state._givers = givers if is_new else None
        if givers.included():
            state._give(givers)
            _compare(state, givers)
        else:
            state.save()  # With what reset callbacks have changed.
    else:
        state.sync()
        if newcomers:
            _compare(state, global_process_set)
    state._is_empty = False
    return None


def _compare(state: State, process_set: ProcessSet) -> None:
    """What newcomers have got with what rank 0 has."""
    concerned = state._is_empty or rank() == 0
    digests = allgather_object(
        (rank(), _digest(state)) if concerned else (rank(), None), "horo.elastic.digest", process_set
    )
    wrong = [one for one, digest in digests if digest not in (None, digests[0][1])]
    if wrong:
        raise HorovodInternalError(f"what rank(s) {wrong} got is not the state of rank 0", "corrupt")


def _digest(state: State) -> bytes:
    """Of the digests of its pieces, which several threads make."""
    import numpy as np

    digest = hashlib.sha256()
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:
        for memory in state._contents():
            whole = np.ascontiguousarray(memory).reshape(-1).view(np.uint8)
            pieces = [whole[begin : begin + _HASHED_BYTES] for begin in range(0, whole.size, _HASHED_BYTES)]
            digests = threads.map(_hash, pieces) if len(pieces) > 1 else map(_hash, pieces)
            digest.update(b"".join([whole.size.to_bytes(8, "little"), *digests]))
    return digest.digest()


def _hash(piece: Any) -> bytes:
    return hashlib.sha256(piece).digest()


def run_fn(func: Callable[..., Any], reset: Callable[[], bool | None] = reset_job) -> Callable[..., Any]:
    """A function that calls `func(state, ...)` with a synchronised state, and again after failures and interrupts."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        resets = _Resets(state)
        begin_anew = functools.partial(reset_job, state._combine) if reset is reset_job else reset
        skip_sync = begun_anew = settled = False
        while True:
            try:
                # A rank may be lost in here too, whatever the program does in its callbacks.
                if begun_anew:
                    state.on_reset()
                if skip_sync:
                    state._combine()
                else:
                    _synchronise(state, settled)
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                state.restore()
                resets.failed(error)
                skip_sync = settled = False
            except HostsUpdatedInterrupt as interrupt:
                resets.count()
                # Raised on all ranks or on none: all have saved the same.
                skip_sync, settled = interrupt.skip_sync, state._at_commit
            state._at_commit = False
            # Who has come needs the state, whatever the interrupt was for.
            skip_sync = not begin_anew() and skip_sync
            begun_anew = True

    return wrapper


__all__ = ["ObjectState", "State", "reset_job", "run_fn"]
