"""Elastic jobs on clusters: what a driver and the processes that it lets a cluster start have in common.

The driver serves the job's store. Each process takes a seat with a ticket of the driver's: the first ones as ranks of
a job of their size, later ones at the door of that job, which takes them in when its ranks commit (docs/elastic.md).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from horo import _horo, basics, resize
from horo.exceptions import HorovodInternalError, RankFailedError
from horo.job import check_count, failure_of
from horo.meeting import LOOPBACK, Arrival, Terms, layout
from horo.task import outcome_of_error, outcome_of_exit, outcome_of_value
from horo.world import world

Outcome = dict[str, Any]
_NUMBERS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
_CONNECT_SECONDS = 10.0


class Limits(NamedTuple):
    """Of an elastic job: how many ranks it has at least and at most, and for how long it waits for others."""

    least: int = 1
    most: int | None = None
    seconds: float = 600
    resets: int | None = None

    def check(self, least: str, most: str) -> None:
        """The names are those that the caller knows them by."""
        for name, value in {least: self.least, most: self.most}.items():
            if value is not None:
                check_count(name, value)
        if self.most is not None and self.most < self.least:
            raise ValueError(f"{most} is {self.most}, less than {least}, which is {self.least}")
        if self.seconds <= 0:
            raise ValueError(f"elastic_timeout is {self.seconds}; it is more than 0 seconds")

    def variables(self) -> dict[str, str]:
        found = {
            "HORO_ELASTIC_MIN_RANKS": self.least,
            "HORO_ELASTIC_MAX_RANKS": self.most,
            "HORO_ELASTIC_TIMEOUT": max(1, round(self.seconds)),
            "HORO_RESET_LIMIT": self.resets,
        }
        return {
            "HOROVOD_ELASTIC": "1",
            **{name: str(value) for name, value in found.items() if value is not None},
        }


class Ticket(NamedTuple):
    """What a process needs to take its seat. Whoever has one can join the job."""

    terms: Terms
    limits: Limits
    seat: int
    rank: int | None  # None: it comes later.
    variables: Mapping[str, str] = {}  # For its environment.

    def environment(self, key_file: str, host_name: str) -> dict[str, str]:
        """For a process that is started with variables; the file with the job's key is where that process is."""
        terms = self.terms
        found = {"HORO_STORE": terms.store or "", "HORO_JOB_ID": terms.job, "HORO_KEY_FILE": key_file}
        if terms.on_one_machine:
            found["HORO_INTERFACE"] = LOOPBACK
        seat = {"HORO_SEAT": str(self.seat), "HOROVOD_HOSTNAME": host_name}
        return {**found, **self.limits.variables(), **seat, **self.variables}


class ElasticJob:
    """The driver's part: the store where processes meet, at `address`, and who they are."""

    def __init__(self, limits: Limits, address: str) -> None:
        self.limits = limits
        job, key = secrets.token_hex(8), secrets.token_bytes(32)
        self._store = _horo.Store(f"[{address}]:0" if ":" in address else f"{address}:0", job, key)
        self._terms = Terms(self._store.address, job, key, address == LOOPBACK, [])
        self.is_open = True  # Others can enter.

    def first_tickets(self, size: int, hosts: Sequence[Hashable] = ()) -> list[Ticket]:
        """For the first ranks, which are on these hosts, if that is known."""
        terms = self._terms._replace(hosts=[0] * size)
        numbers = layout(hosts) if hosts else [{"rank": rank, "size": size} for rank in range(size)]
        return [
            Ticket(
                terms, self.limits, rank, rank, {f"HOROVOD_{name.upper()}": str(value) for name, value in of.items()}
            )
            for rank, of in enumerate(numbers)
        ]

    def later_ticket(self, seat: int) -> Ticket:
        return Ticket(self._terms, self.limits, seat, None)

    @property
    def is_on_one_machine(self) -> bool:
        return self._terms.on_one_machine

    def write_key(self, path: str) -> None:
        """Into a new file that only this user can read."""
        assert self._terms.key is not None
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(self._terms.key)

    def ended(self, ticket: Ticket) -> None:
        """That process is gone: nobody need wait for it to join."""
        if not self.is_open:
            return
        # Whatever goes wrong here, the others will find out by themselves.
        with contextlib.suppress(HorovodInternalError):
            if ticket.rank is None:
                self._store.newcomer_ended(ticket.seat)
            else:
                here = Arrival("", "", LOOPBACK if self._terms.on_one_machine else "", False)
                place = ticket.terms.place(ticket.rank, here)
                _horo.Runtime.decline(None, place._replace(settings=(*place.settings, "HORO_TIMEOUT=2")))

    def ask_to_leave(self, seat: int, why: str) -> None:
        with contextlib.suppress(HorovodInternalError):
            self._store.ask_to_leave(seat, why)

    def close(self) -> None:
        """Nobody enters any more, and those who wait at the door are told by that; the job itself goes on."""
        if self.is_open:
            self.is_open = False
            self._store.close()


class Cooldowns:
    """How long places where processes were lost are left alone: longer each time."""

    USUAL = (1.0, 60.0)

    def __init__(
        self,
        seconds: Sequence[float] | None,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        low, high = seconds or self.USUAL
        if not 0 <= low <= high:
            raise ValueError(f"cooldown_range is {seconds}: seconds, at least and at most")
        self._low, self._high, self._now, self._draw = low, high, now, draw
        self._losses: dict[Hashable, int] = {}
        self._until: dict[Hashable, float] = {}

    def lost_at(self, place: Hashable) -> None:
        count = self._losses.get(place, 0)
        self._losses[place] = count + 1
        wait = min(self._high, self._low * 2 ** min(count, 30) + self._draw(0, self._low))
        self._until[place] = self._now() + wait

    def is_over(self, place: Hashable) -> bool:
        return self._now() >= self._until.get(place, float("-inf"))


# ---- In the processes ------------------------------------------------------------------------------------------------


def take_seat(ticket: Ticket, here: Arrival, host_name: str) -> None:
    """The next init() in this process joins the job."""
    basics.shutdown()
    resize.forget_door()
    for name in [f"{prefix}_{number}" for prefix in ("HORO", "HOROVOD") for number in _NUMBERS]:
        os.environ.pop(name, None)
    os.environ.update({**ticket.limits.variables(), "HORO_SEAT": str(ticket.seat), "HOROVOD_HOSTNAME": host_name})
    os.environ.update(ticket.variables)
    place = ticket.terms.place(-1 if ticket.rank is None else ticket.rank, here)
    world.stand_at(place if ticket.rank is not None else place._replace(size=-1))


def call_in_seat(
    ticket: Ticket, here: Arrival, func: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}
) -> Outcome:
    """What the call came to; nothing where the process comes when the job is over."""
    if ticket.rank is None and not _is_served(ticket.terms.store or ""):
        return {"exit": 0, "code": 0, "rank": -1}
    take_seat(ticket, here, here.address)
    return _outcome_in_seat(func, args, kwargs)


def has_joined() -> bool:
    """Whether this process is in the job of its seat, or was."""
    return world.last_rank() >= 0


def _is_served(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def outcome_of(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outcome:
    """What a call came to, exceptions too. `is_loss`: what it raised is not the program's mistake, and another process
    might do better."""
    try:
        return outcome_of_value(func(*args, **kwargs))
    except SystemExit as left:
        return outcome_of_exit(left)
    except BaseException as error:
        traceback.print_exc()
        is_loss = isinstance(error, HorovodInternalError) and error.code != "mismatch"
        return {**outcome_of_error(error), "is_loss": is_loss}


def _outcome_in_seat(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Outcome:
    """With this process's rank at last; -1 if it was never in the job."""
    outcome = outcome_of(func, args, kwargs)
    outcome["rank"] = world.last_rank()
    # A rank that has failed must not keep the others waiting, be they in the job or on their way. Whoever comes later
    # declines nothing: the driver tells the job that its process has ended.
    basics.shutdown()
    if "value" not in outcome and outcome["rank"] < 0 and not resize.is_newcomer():
        world.decline()
    return outcome


def values_of(outcomes: Sequence[Outcome], lost: int) -> list[Any]:
    """What those returned that were left at the end, by their ranks. Of those who failed the first in `outcomes` is
    raised: one that did not lose another rank, if there is one. `lost` ended without any outcome."""
    returned = sorted((one for one in outcomes if "value" in one), key=lambda one: one["rank"])
    if returned:
        return [pickle.loads(one["value"]) for one in returned]
    failed = [one for one in outcomes if one.get("code") != 0]
    causes = [one for one in failed if not one.get("lost_ranks")]
    # Those who never came in fail because nobody was there to let them in.
    members = [one for one in causes or failed if one["rank"] >= 0]
    if not failed or (lost and not members):
        raise RankFailedError(f"{lost} ranks were lost, and none is left that could return anything")
    first = (members or causes or failed)[0]
    raise failure_of(first["rank"], first)
