"""Ranks of horo.spark.run(), tasks of a barrier stage, and of run_elastic(): in Python processes of executors."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import BarrierTaskContext, TaskContext

from horo import basics
from horo.driver import Ticket, call_in_seat, outcome_of
from horo.meeting import Arrival, Meeting, Terms, arrival, first_interface
from horo.world import world

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def run_rank(
    call: Call, variables: Mapping[str, str], interfaces: Sequence[str], rows: Iterator[Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    with _environment(variables), _joined(BarrierTaskContext.get(), interfaces) as rank:
        outcome = _outcome_of(*call)
    if "value" in outcome:
        _served.close()
    yield rank, outcome


def _outcome_of(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Exceptions are outcomes, too: Spark would call the function again, three times."""
    outcome = outcome_of(func, args, kwargs)
    if "value" not in outcome:
        # A rank that has failed must not keep the others waiting, be they in the job or on their way.
        basics.shutdown()
        world.decline()
    return outcome


class _Served:
    """The meeting that this process has opened. Where it has failed, it lasts until the next, or until Spark ends the
    process: ranks that come later have to hear of it."""

    def __init__(self) -> None:
        self._meeting: Meeting | None = None

    def open(self, arrivals: Sequence[Arrival]) -> str:
        """What the others need to know."""
        self.close()
        self._meeting = Meeting(arrivals)
        return self._meeting.terms.written()

    def close(self) -> None:
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            meeting.close()


_served = _Served()


def run_seat(
    call: Call,
    first: Sequence[Ticket],
    later: Ticket,
    seats: int,
    variables: Mapping[str, str],
    interfaces: Sequence[str],
    rows: Iterator[Any],
) -> Iterator[dict[str, Any]]:
    """A task of an elastic job, of which there are `seats`: one of the first, or one that comes later. What Spark
    starts in the place of one that failed takes another seat."""
    context = TaskContext.get()
    assert context is not None
    number = seat_of(context.partitionId(), context.attemptNumber(), seats)
    with _environment(variables):
        try:
            here = _arrival(interfaces)
            yield call_in_seat(first[number] if number < len(first) else later._replace(seat=number), here, *call)
        finally:
            # The process may be used for other tasks.
            basics.shutdown()
            world.stand_at(None)


def seat_of(partition: int, attempt: int, seats: int) -> int:
    return attempt * seats + partition


def _arrival(interfaces: Sequence[str]) -> Arrival:
    if interfaces and not os.environ.get("HORO_INTERFACE"):
        os.environ["HORO_INTERFACE"] = first_interface(interfaces)
    return arrival()


@contextmanager
def _joined(context: BarrierTaskContext, interfaces: Sequence[str]) -> Iterator[int]:
    """The next init() in this process joins the job of this stage's tasks."""
    here = _arrival(interfaces)
    try:
        rank, terms = _meet(context, here)
        os.environ.update(terms.variables(rank, socket.gethostname()))
        basics.shutdown()
        world.stand_at(terms.place(rank, here))
        yield rank
    finally:
        # The process may be used for other tasks.
        basics.shutdown()
        world.stand_at(None)


def _meet(context: BarrierTaskContext, here: Arrival) -> tuple[int, Terms]:
    """This task's rank, and the terms of the job."""
    task, addresses = context.partitionId(), [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
    # Where all seem to be on one host the first task opens the meeting at once: allGather() takes a second each time.
    offer = _served.open([here] * len(addresses)) if task == 0 and len(set(addresses)) == 1 else ""
    said = [json.loads(one) for one in context.allGather(json.dumps([here, offer]))]
    arrivals, offer = [Arrival(*one) for one, _ in said], said[0][1]
    # Ranks of a host follow each other.
    hosts = list(dict.fromkeys(one.host for one in arrivals))
    order = sorted(range(len(arrivals)), key=lambda other: (hosts.index(arrivals[other].host), other))
    rank = order.index(task)
    if not offer or len({(one.machine, one.host) for one in arrivals}) > 1:
        offers = context.allGather(_served.open([arrivals[other] for other in order]) if rank == 0 else "")
        offer = next(words for words in offers if words)
    return rank, Terms.read(offer)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
