"""The driver's side of horo.spark.run_elastic()."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from horo.driver import ElasticJob, Limits, Ticket, values_of
from horo.exceptions import RankFailedError
from horo.meeting import LOOPBACK, address_of, first_interface
from horo.spark.job import await_slots, python_of_ranks, say_what_changes_nothing, texts_of, usable_context
from horo.spark.task import run_seat, seat_of

_LOOK_SECONDS = 0.2
_GROUP = "spark.jobGroup.id"


def run_elastic(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on ranks that come and go, and returns what those returned that were left at the end,
    by their ranks. The function calls init() itself and trains with elastic.run (docs/elastic.md).

    The job begins with `num_proc` ranks: tasks of a plain stage, of `max_num_proc` in all (as many as `num_proc` if not
    given), of which the others enter when Spark has slots for them. A task whose process dies is lost, and what Spark
    starts in its place enters at the next commit, as often as spark.task.maxFailures allows. With fewer ranks than
    `min_num_proc` (`num_proc` if not given) the job waits for others, `elastic_timeout` seconds (600). The rest is as
    for run().
    """
    unused = {"stdout": stdout, "stderr": stderr, "prefix_output_with_timestamp": prefix_output_with_timestamp}
    say_what_changes_nothing({**unused, "cooldown_range": cooldown_range})
    for old, value in (("min_np", min_np), ("max_np", max_np)):
        if value is not None:
            warnings.warn(f"{old} is called {old[:4]}num_proc now", DeprecationWarning, stacklevel=2)
    context = usable_context()
    _refuse_speculation(context)
    num_proc = await_slots(context, num_proc, start_timeout)
    least = next(value for value in (min_num_proc, min_np, num_proc) if value is not None)
    most = next(value for value in (max_num_proc, max_np, num_proc) if value is not None)
    limits = Limits(least, most, 600 if elastic_timeout is None else elastic_timeout, reset_limit)
    limits.check("min_num_proc", "max_num_proc")
    if not least <= num_proc <= most:
        raise ValueError(f"num_proc is {num_proc}, not between min_num_proc, {least}, and max_num_proc, {most}")
    interfaces = sorted(nics or ())
    job = ElasticJob(limits, _own_address(context, interfaces))
    first, later = job.first_tickets(num_proc), job.later_ticket(-1)
    call = (fn, tuple(args), dict(kwargs or {}))
    task = partial(run_seat, call, first, later, most, texts_of(env), interfaces)
    stage = context.parallelize(range(most), most).mapPartitions(task)
    with python_of_ranks(context, None), _watched(context, job, first, most) as attempts:
        try:
            outcomes = stage.collect()
        except Py4JJavaError as error:
            said = str(error.java_exception.getMessage())
            raise RankFailedError(f"Spark has given up the job's tasks. It says: {said}") from error
    return values_of(outcomes, attempts.failed)


class _Attempt(NamedTuple):
    seat: int
    status: str


class _Attempts:
    """What has become of the tasks. The first one that ends well ends the job: nobody enters any more."""

    def __init__(self, job: ElasticJob, first: Sequence[Ticket]) -> None:
        self._job = job
        self._first = first
        self._ended: set[int] = set()
        self.failed = 0

    def take_note(self, found: Iterable[_Attempt]) -> None:
        for seat, status in found:
            if status == "SUCCESS":
                self._job.close()
            elif status in ("FAILED", "KILLED") and seat not in self._ended:
                self._ended.add(seat)
                self.failed += 1
                print(f"horo: seat {seat} is lost: its task has {status.lower()}", file=sys.stderr)
                self._job.ended(self._first[seat] if seat < len(self._first) else self._job.later_ticket(seat))


@contextmanager
def _watched(context: SparkContext, job: ElasticJob, first: Sequence[Ticket], seats: int) -> Iterator[_Attempts]:
    """The tasks of what this thread lets Spark do."""
    group = f"horo-{secrets.token_hex(8)}"
    attempts, over = _Attempts(job, first), threading.Event()

    def watch() -> None:
        stage: int | None = None
        while job.is_open and not over.wait(_LOOK_SECONDS):
            stage = _stage_of(context, group) if stage is None else stage
            if stage is not None:
                attempts.take_note(_attempts_of(context, stage, seats))

    watcher = threading.Thread(target=watch, name="horo-attempts", daemon=True)
    before = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, group)
    watcher.start()
    try:
        yield attempts
    finally:
        over.set()
        watcher.join()
        job.close()
        context.setLocalProperty(_GROUP, before)


def _stage_of(context: SparkContext, group: str) -> int | None:
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        if info is not None and len(info.stageIds) > 0:
            return int(info.stageIds[0])
    return None


def _attempts_of(context: SparkContext, stage: int, seats: int) -> list[_Attempt]:
    try:
        tasks = context._jsc.sc().statusStore().taskList(stage, 0, 1 << 30)
    except Py4JJavaError:
        return []  # It has not begun.
    found = [tasks.apply(index) for index in range(tasks.size())]
    return [_Attempt(seat_of(task.index(), task.attempt(), seats), task.status()) for task in found]


def _own_address(context: SparkContext, interfaces: Sequence[str]) -> str:
    """Where the tasks reach this process, as they reach Spark's driver."""
    if context.master.startswith("local"):
        return LOOPBACK
    if interfaces:
        return address_of(first_interface(interfaces))
    return socket.gethostbyname(context.getConf().get("spark.driver.host"))


def _refuse_speculation(context: SparkContext) -> None:
    if context.getConf().get("spark.speculation", "false") == "true":
        raise RuntimeError("spark.speculation starts tasks twice, and ranks must not be: set it to false")
