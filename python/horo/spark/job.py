"""The driver's side of horo.spark.run()."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from horo.exceptions import RankFailedError
from horo.job import check_count, failure_of
from horo.spark.slots import check_slots, count_slots
from horo.spark.task import run_rank

_START_SECONDS = 600.0


def run(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on `num_proc` ranks, tasks of the active SparkContext, and returns what they returned
    in their order. The function calls init() itself.

    Without `num_proc` every slot of the cluster gets a rank. More ranks than slots is an error at once; executors that
    are on their way are waited for, `start_timeout` seconds at most (HOROVOD_SPARK_START_TIMEOUT, else 600). `env` is
    put into the environment of the ranks; of the interfaces `nics` each host uses the first that it has.

    An exception of a rank is raised here, with the rank's traceback as its cause (a RankTraceback). RankFailedError is
    raised when the process of a rank has died: Spark does not run such a stage again. `executable` is the Python of the
    ranks: that of the application (PYSPARK_PYTHON, spark.pyspark.python), or on this host alone the driver's own.
    """
    unused = {"use_mpi": use_mpi, "extra_mpi_args": extra_mpi_args, "stdout": stdout, "stderr": stderr}
    unused["prefix_output_with_timestamp"] = prefix_output_with_timestamp
    say_what_changes_nothing(unused)
    context = usable_context()
    num_proc = await_slots(context, num_proc, start_timeout)
    task = partial(run_rank, (fn, tuple(args), dict(kwargs or {})), texts_of(env), sorted(nics or ()))
    ranks = context.parallelize(range(num_proc), num_proc).barrier().mapPartitions(task)
    with python_of_ranks(context, executable):
        try:
            return _values(dict(ranks.collect()))
        except Py4JJavaError as error:
            said = str(error.java_exception.getMessage())
            raise RankFailedError(f"a rank ended and returned nothing. Spark says: {said}") from error


def usable_context() -> SparkContext:
    """The active one, whose channels nobody else listens to."""
    context = active_context()
    check_channels(context)
    return context


def texts_of(env: Mapping[str, str] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (env or {}).items()}


def await_slots(context: SparkContext, num_proc: int | None, start_timeout: float | None) -> int:
    """The number of ranks, for which there are slots now."""
    if num_proc is not None:
        check_count("num_proc", num_proc)
    limit = start_timeout or float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT", _START_SECONDS))
    if num_proc is None:
        return count_slots(context, limit)
    check_slots(context, num_proc, limit)
    return num_proc


@contextmanager
def python_of_ranks(context: SparkContext, executable: str | None) -> Iterator[None]:
    """What Spark calls the Python of executors is whatever python3 is in their PATH, where nobody says otherwise."""
    before = context.pythonExec
    if executable is None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        executable = context.getConf().get("spark.pyspark.python", sys.executable)
    context.pythonExec = executable or before
    try:
        yield
    finally:
        context.pythonExec = before


def _values(outcomes: Mapping[int, dict[str, Any]]) -> list[Any]:
    failed = [rank for rank in sorted(outcomes) if "value" not in outcomes[rank]]
    if not failed:
        return [pickle.loads(outcomes[rank]["value"]) for rank in sorted(outcomes)]
    # Ranks that have lost one fail because of it.
    causes = [rank for rank in failed if not outcomes[rank].get("lost_ranks")]
    first = (causes or failed)[0]
    raise failure_of(first, outcomes[first])


def active_context() -> SparkContext:
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError(
            "there is no active SparkContext: make one first, SparkSession.builder.getOrCreate(). A session of Spark "
            "Connect has none: run the program on the driver"
        )
    return context


def check_channels(context: SparkContext) -> None:
    """The function, its results and the job's key go over Spark's channels."""
    if context.master.startswith("local") or context.getConf().get("spark.authenticate", "false") == "true":
        return
    if os.environ.get("HORO_TRUST_SPARK", "").lower() in ("1", "true", "yes", "on"):
        return
    raise RuntimeError(
        f"Spark at {context.master} does not authenticate its connections, over which code and the job's key would go: "
        "set spark.authenticate=true (and spark.network.crypto.enabled=true to encrypt), or HORO_TRUST_SPARK=1 if "
        "nobody else can reach the cluster's network"
    )


def say_what_changes_nothing(given: Mapping[str, Any]) -> None:
    reasons = {
        "use_mpi": "ranks are tasks of Spark, not of mpirun",
        "extra_mpi_args": "ranks are tasks of Spark, not of mpirun",
        "stdout": "what ranks write is in the logs of their executors",
        "stderr": "what ranks write is in the logs of their executors",
        "prefix_output_with_timestamp": "what ranks write is in the logs of their executors",
        "cooldown_range": "Spark starts tasks again when it likes",
    }
    for name, value in given.items():
        if value:
            warnings.warn(f"{name} changes nothing: {reasons[name]}", UserWarning, stacklevel=3)
