"""How many tasks a Spark application can run at once. Spark itself would try for ten minutes to start a stage that is
too large."""

from __future__ import annotations

import re
import threading
import time

from pyspark import SparkContext

_POLL_SECONDS = 0.1
# Of an application that does not say how many executors it wants: how long after one has come another may follow.
_SETTLE_SECONDS = 5.0


def check_slots(context: SparkContext, wanted: int, limit: float) -> None:
    expected = _expected(context)
    if expected is not None and expected < wanted:
        raise _too_few(context, wanted, expected)
    found = _await(context, wanted, expected, limit)
    if found < wanted:
        raise _too_few(context, wanted, found)


def count_slots(context: SparkContext, limit: float) -> int:
    """All of them."""
    expected = _expected(context)
    found = _await(context, expected or 1 << 30, expected, limit)
    if found == 0:
        raise _too_few(context, 1, 0)
    return found


def _await(context: SparkContext, wanted: int, expected: int | None, limit: float) -> int:
    """Slots that are there once there are enough, or no more will come."""
    end = changed = time.monotonic() + limit
    found = -1
    pause = threading.Event()
    while True:
        before, found = found, _present(context)
        now = time.monotonic()
        changed = now if found != before else changed
        settled = expected is None and found > 0 and now - changed > _SETTLE_SECONDS
        if found >= wanted or settled or now > end:
            return found
        pause.wait(_POLL_SECONDS)


def _present(context: SparkContext) -> int:
    scheduler = context._jsc.sc()
    return int(scheduler.maxNumConcurrentTasks(scheduler.resourceProfileManager().defaultResourceProfile()))


def _expected(context: SparkContext) -> int | None:
    """How many there will be, where the application says so."""
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus", "1"))
    if context.master == "local" or context.master.startswith("local["):
        return _present(context)
    small = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", context.master)
    if small:
        return int(small[1]) * (int(small[2]) // cpus)
    executors, cores = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
    if executors is not None and cores is not None:
        return int(executors) * (int(cores) // cpus)
    return None


def _too_few(context: SparkContext, wanted: int, found: int) -> RuntimeError:
    return RuntimeError(
        f"{wanted} ranks need {wanted} slots, and Spark at {context.master} has {found}: ask for fewer ranks "
        "(num_proc), or for more executors or cores (spark.executor.instances, spark.executor.cores, spark.task.cpus)"
    )
