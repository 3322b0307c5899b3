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
    yield rank, outcome


def _outcome_of(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Exceptions are outcomes, too: Spark would call the function again, three times."""
    try:
        return outcome_of_value(func(*args, **kwargs))
    except SystemExit as left:
        return outcome_of_exit(left)
    except BaseException as error:
        traceback.print_exc()
        return outcome_of_error(error)


@contextmanager
def _joined(context: BarrierTaskContext, interfaces: Sequence[str]) -> Iterator[int]:
    """The next init() in this process joins the job of this stage's tasks."""
    if interfaces and not os.environ.get("HORO_INTERFACE"):
        os.environ["HORO_INTERFACE"] = first_interface(interfaces)
    here, task = arrival(), context.partitionId()
    arrivals = [Arrival(*json.loads(one)) for one in context.allGather(json.dumps(here))]
    # Ranks of a host follow each other.
    hosts = list(dict.fromkeys(one.host for one in arrivals))
    order = sorted(range(len(arrivals)), key=lambda other: (hosts.index(arrivals[other].host), other))
    rank = order.index(task)
    meeting = Meeting([arrivals[other] for other in order]) if rank == 0 else None
    try:
        said = context.allGather(meeting.terms.written() if meeting else "")
        terms = Terms.read(next(words for words in said if words))
        os.environ.update(terms.variables(rank, socket.gethostname()))
        basics.shutdown()
        world.stand_at(terms.place(rank, here))
        yield rank
    finally:
        # The process may be used for other tasks. A rank that has failed must not keep the others waiting.
        basics.shutdown()
        world.stand_at(None)
        if meeting:
            meeting.close()


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
