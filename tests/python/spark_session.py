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


@contextlib.contextmanager
def spark_settings() -> Iterator[dict[str, str]]:
    """An environment in which whoever starts a Spark starts one like this. What a command line must not show is in a
    file."""
    with tempfile.TemporaryDirectory(prefix="horo-spark-", ignore_cleanup_errors=True) as folder:
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": f"{folder}/local",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(32),
        }
        file = Path(folder) / "spark-defaults.conf"
        file.touch(0o600)
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_", "HOROVOD_"))}
        home = java_home()
        yield {
            **inherited,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": folder,
            **({"JAVA_HOME": home} if home else {}),
        }


@contextlib.contextmanager
def spark_session() -> Iterator[Any]:
    import pyspark
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with spark_settings() as environment, mock.patch.dict(os.environ, environment, clear=True):
        session = SparkSession.builder.master(MASTER).appName("horo's tests").getOrCreate()
        try:
            session.sparkContext.setLogLevel("OFF")
            yield session
        finally:
            gateway, application = SparkContext._gateway, session.sparkContext.applicationId
            session.stop()
            # Executors of a local cluster have their folders in Spark's own, whatever its settings say.
            shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)
            if gateway is not None:
                # The JVM goes with the end of its input.
                gateway.shutdown()
                gateway.proc.stdin.close()
                gateway.proc.wait(60)
                SparkContext._gateway = SparkContext._jvm = None
