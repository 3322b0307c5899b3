"""Jobs on Spark: run(fn) calls a function on ranks that are the tasks of a barrier stage, run_elastic(fn)
on ranks that come and go (docs/spark.md)."""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "horo.spark needs PySpark, which is not installed here: pip install pyspark (and Java, 17 or newer)",
        name="pyspark",
    ) from None

from horo.spark.elastic import run_elastic
from horo.spark.job import run

__all__ = ["run", "run_elastic"]
