"""How an elastic job changes its size, at a point where all its ranks are: those whose slots are gone leave, and those
who wait at its door enter. Rank 0 hears of both through the launcher's store (docs/elastic.md)."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from enum import IntFlag
from typing import NamedTuple

from horo._horo import Door, Runtime
from horo.basics import rank, shutdown, size
from horo.exceptions import HorovodInternalError
from horo.objects import allgather_object, broadcast_object
from horo.process_sets import follow_growth
from horo.world import is_newcomer, own_seat, world


class HostUpdateResult(IntFlag):
    """What has happened to the hosts and slots of a job, or is to happen at the next commit."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


def most_ranks() -> int:
    return int(os.environ.get("HORO_ELASTIC_MAX_RANKS") or 0) or sys.maxsize


class _Doorway:
    """The door of the job that this process is rank 0 of."""

    def __init__(self) -> None:
        self._door: Door | None = None
        self._runtime: Runtime | None = None  # Whose door it is.
        self._gone = False
        self._exit_hook = False
        # Of the ranks, and perhaps of some that died, as of the last resize(); None before.
        self.seats: set[int | None] | None = None

    def open(self) -> Door | None:
        """None where nobody can come, or not any more."""
        runtime = world.runtime
        if own_seat() is None or self._gone:
            return None
        if self._runtime is not runtime:
            self.close()
            try:
                self._door = Door(runtime)
            except HorovodInternalError as error:
                self._lost(error)
                return None
            self._runtime = runtime
            if not self._exit_hook:
                atexit.register(self.close)
                self._exit_hook = True
        return self._door

    def news(self, timeout: float) -> bool:
        door = self.open()
        if door is None:
            return False
        found = door.news(timeout)
        self._gone = found < 0
        return found > 0

    def look(self) -> tuple[list[int], list[int]]:
        door = self.open()
        if door is None:
            return [], []
        try:
            return door.look()
        except HorovodInternalError as error:
            self._lost(error)
            return [], []

    def close(self) -> None:
        door, self._door, self._runtime = self._door, None, None
        if door is not None:
            door.close()

    def forget(self) -> None:
        self.close()
        self._gone = False
        self.seats = None

    def _lost(self, error: HorovodInternalError) -> None:
        self._gone = True
        print(f"horo: the launcher is gone, and the job goes on without growing: {error}", file=sys.stderr)


_doorway = _Doorway()


def forget_door() -> None:
    """In a process that takes part in one job after the other: the next may have a launcher."""
    _doorway.forget()


class _Plan(NamedTuple):
    leavers: list[int]  # Ranks.
    newcomers: tuple[int, ...] = ()  # Seats.
    generation: str = ""
    can_grow: bool = True


def changes_that_wait() -> HostUpdateResult:
    """On rank 0: whether somebody has come or is to leave. Asks the store only after news."""
    found = HostUpdateResult.no_update
    if not _doorway.news(0):
        return found
    newcomers, leavers = _doorway.look()
    # Whoever was asked to leave may be gone, or was never here. Where that is not known, all ranks find out together.
    if _doorway.seats is not None:
        leavers = [seat for seat in leavers if seat in _doorway.seats]
    if newcomers and size() < most_ranks():
        found |= HostUpdateResult.added
    return found | HostUpdateResult.removed if leavers else found


class Change(NamedTuple):
    """What has happened to the job."""

    left: bool = False  # Some have left, and the others call reform().
    grown: bool = False
    can_grow: bool = True  # Others may still come.


def resize(wait: float = 0.0, before_leaving: Callable[[], None] | None = None) -> Change:
    """Called by all ranks at the same point. Rank 0 waits so many seconds for somebody to come. On ranks that are to
    leave it does not return; all call `before_leaving` while these are still there."""
    seats = allgather_object(own_seat(), "horo.resize.seats")
    plan = broadcast_object(_plan(seats, wait) if rank() == 0 else None, 0, "horo.resize.plan")
    if plan.leavers and before_leaving is not None:
        before_leaving()
    _doorway.seats = {seat for one, seat in enumerate(seats) if one not in plan.leavers}
    if plan.leavers:
        if rank() in plan.leavers:
            _leave()
        return Change(left=True)
    if not plan.newcomers:
        return Change(can_grow=plan.can_grow)
    grown = _grow(plan)
    if grown:
        _doorway.seats.update(plan.newcomers)
    return Change(grown=grown)


def _plan(seats: list[int | None], wait: float) -> _Plan:
    if wait > 0:
        _doorway.news(wait)
    newcomers, asked = _doorway.look()
    leavers = [rank for rank, seat in enumerate(seats) if seat in asked]
    if len(leavers) == len(seats):
        leavers = []  # Somebody has to end the training; the launcher ends whom it must.
    if leavers:
        return _Plan(leavers)
    count = min(len(newcomers), max(0, most_ranks() - len(seats)))
    door = _doorway.open()
    if count == 0 or door is None:
        return _Plan([], can_grow=door is not None)
    try:
        return _Plan([], tuple(newcomers[:count]), door.begin())
    except HorovodInternalError as error:
        _doorway._lost(error)
        return _Plan([], can_grow=False)


def _leave() -> None:
    """This rank's slot is gone. Its peers have its part of the last commit."""
    print(f"horo: seat {own_seat()} leaves the job, as its slot is gone", file=sys.stderr)
    _doorway.close()
    shutdown()
    raise SystemExit(0)


def _grow(plan: _Plan) -> bool:
    """Either all ranks and the newcomers are in the larger job then, or the old one goes on."""
    target = size() + len(plan.newcomers)
    door = _doorway.open() if rank() == 0 else None
    if door is not None:
        # If that fails the generation is over for all, and those that were told come back to the door.
        with contextlib.suppress(HorovodInternalError):
            door.admit(plan.generation, target, len(plan.newcomers))
    try:
        world.grow(plan.generation, target)
    except HorovodInternalError as error:
        if error.code == "evicted":
            raise
        if rank() == 0:
            print(f"horo: the job goes on with {size()} ranks, without those who came: {error}", file=sys.stderr)
        return False
    follow_growth()
    return True


__all__ = ["Change", "HostUpdateResult", "changes_that_wait", "forget_door", "is_newcomer", "own_seat", "resize"]
