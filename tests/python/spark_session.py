"""A Spark for tests: two executors of this machine, on loopback, which authenticate each other; gone at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

MASTER = "local-cluster[2,1,1024]"


def java_home() -> str | None:
    """Of a Java that Spark runs on; "" where the one in the PATH will do."""
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    if shutil.which("java"):
        return ""
    return next((str(path) for path in sorted(Path("/usr/lib/jvm").glob("java-17-*"))), None)


def settings() -> dict[str, str]:
    """For the environment of whoever starts a Spark."""
    home = java_home()
    return {"SPARK_LOCAL_IP": "127.0.0.1", **({"JAVA_HOME": home} if home else {})}


@contextlib.contextmanager
def spark_session() -> Iterator[Any]:
    folder = Path(tempfile.mkdtemp(prefix="horo-spark-"))
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(secrets.token_hex(32))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
    with mock.patch.dict(os.environ, {**inherited, **settings()}, clear=True):
        try:
            yield from _running(folder, secret)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _running(folder: Path, secret: Path) -> Iterator[Any]:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    wanted = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": str(secret),
    }
    conf = SparkConf().setMaster(MASTER).setAppName("horo's tests").setAll(list(wanted.items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        session.sparkContext.setLogLevel("OFF")
        yield session
    finally:
        gateway = SparkContext._gateway
        session.stop()
        if gateway is not None:
            # The JVM goes with the end of its input.
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None
