"""A rank of horo.spark.run(): a task of a barrier stage, in a Python process of an executor."""

from __future__ import annotations

import json
import os
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import BarrierTaskContext

from horo import basics
from horo.meeting import Arrival, Meeting, Terms, arrival, first_interface
from horo.task import outcome_of_error, outcome_of_exit, outcome_of_value
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
    try:
        return outcome_of_value(func(*args, **kwargs))
    except SystemExit as left:
        outcome = outcome_of_exit(left)
    except BaseException as error:
        traceback.print_exc()
        outcome = outcome_of_error(error)
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


@contextmanager
def _joined(context: BarrierTaskContext, interfaces: Sequence[str]) -> Iterator[int]:
    """The next init() in this process joins the job of this stage's tasks."""
    if interfaces and not os.environ.get("HORO_INTERFACE"):
        os.environ["HORO_INTERFACE"] = first_interface(interfaces)
    here = arrival()
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
